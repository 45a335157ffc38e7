"""For whoever runs it: workers, storage, health, metrics. Figures of all tenants are the operator's alone."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import suppress
from typing import Any

from fastapi import APIRouter, Depends, Request
from starlette.responses import Response

from haulage.core import events
from haulage.core.clock import rfc3339
from haulage.core.errors import Refused, StoreUnavailable
from haulage.core.requester import OPERATOR
from haulage.exports.life import ExportLife
from haulage.web.access import Asking, Asks, no_query
from haulage.web.answers import document
from haulage.web.openapi import says
from haulage.web.problem import problem
from haulage.web.services import Services, door_of
from haulage.web.shown import HealthShown, StorageShown, WorkerList

router = APIRouter(tags=["operation"])

METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"


@router.get("/workers", dependencies=[Depends(no_query)], responses=says({200: WorkerList}, "forbidden", "invalid"))
def list_workers(asking: Asks) -> Response:
    """Who is alive, and how many builds run."""
    refuse_others(asking)
    services = asking.services
    exports = services.store.exports  # every page of an operator asks this every few seconds
    items = [
        {
            "id": each.id,
            "host": each.host,
            "pid": each.pid,
            "version": each.version,
            "state": each.state,
            "lanes": each.lanes,
            "started_at": rfc3339(each.started_at),
            "seen_at": rfc3339(each.seen_at),
            "only_run": each.only_run,
        }
        for each in services.store.workers.seen(services.limits.presence_seconds)
    ]
    slots = {"total": services.limits.slots, "taken": exports.running()}
    return document({"items": items, "slots": slots, "waiting": exports.waiting()})


@router.get("/storage", dependencies=[Depends(no_query)], responses=says({200: StorageShown}, "invalid"))
def show_storage(asking: Asks) -> Response:
    """Bytes in use: one's own tenant's, and for the operator all of them."""
    used = asking.services.exports.storage(asking.requester)
    every = asking.requester.holds(OPERATOR)
    return document(
        {
            "used_bytes": used.stored_bytes if every else None,
            "reserved_bytes": used.reserved_bytes if every else None,
            "budget_bytes": asking.services.limits.store_bytes if every else None,
            "own_bytes": used.tenant_bytes,
        }
    )


@router.get(
    "/metrics",
    dependencies=[Depends(no_query)],
    response_class=Response,
    responses=says({200: METRICS_TYPE}, "forbidden", "invalid"),
)
def show_metrics(asking: Asks) -> Response:
    """Figures in the text format of Prometheus; no label names a tenant or an account."""
    refuse_others(asking)
    text = "".join(_metrics(asking.services, asking))
    return Response(text, 200, {"Content-Type": METRICS_TYPE, "Cache-Control": "no-store"})


@router.get("/health/live", responses=says({200: HealthShown}, public=True))
async def show_live() -> Response:
    """This process answers."""
    # Without a thread of the pool: all of them may wait for a store or a source, and that is no reason to be killed.
    return document({"status": "ok", "checks": {}, "workers": None})


@router.get("/health/ready", responses=says({200: HealthShown}, "not_serving", public=True))
async def show_ready(request: Request) -> Response:
    """Store, schema and storage can be used. It is ready without a worker too: files can still be fetched."""
    readiness: Readiness = request.app.state.readiness
    found = await readiness.look(door_of(request).services)
    if found["status"] != "ok":
        return problem("not_serving", headers={"Retry-After": "2"}, checks=found["checks"], workers=found["workers"])
    return document(found)


class Readiness:
    """The last look at what this process needs, so that asking often costs nothing.

    Whoever asks while a look goes on waits for that one, and not for long: a store or a disk that hangs keeps one
    thread of our own, however often it is asked, and none of those that answer requests.
    """

    def __init__(
        self, clock: Callable[[], float] = time.monotonic, keep_seconds: float = 2, wait_seconds: float = 3
    ) -> None:
        """``keep_seconds`` is how old an answer may be, ``wait_seconds`` how long a look may take."""
        self._clock = clock
        self._keep_seconds = keep_seconds
        self._wait_seconds = wait_seconds
        self._lock = threading.Lock()
        self._look: _Look | None = None

    async def look(self, services: Services) -> dict[str, Any]:
        """What can be used, and how many workers live; None where the store does not say."""
        with self._lock:
            look = self._look
            if look is None or (look.ended_at is not None and self._clock() - look.ended_at >= self._keep_seconds):
                look = self._look = _Look(services, self._clock)
        if not look.done.done():
            await asyncio.wait([asyncio.wrap_future(look.done)], timeout=self._wait_seconds)
        return look.found()


class _Look:
    """One look, in a thread of its own; what has not been seen to work counts as failing."""

    def __init__(self, services: Services, clock: Callable[[], float]) -> None:
        self.done: Future[None] = Future()
        self.ended_at: float | None = None
        self._services = services
        self._clock = clock
        self._checks = dict.fromkeys(("store", "schema", "artifacts"), "failing")
        self._workers: int | None = None
        threading.Thread(target=self._run, daemon=True, name="haulage readiness").start()

    def found(self) -> dict[str, Any]:
        checks = dict(self._checks)
        status = "failing" if "failing" in checks.values() else "ok"
        return {"status": status, "checks": checks, "workers": self._workers}

    def _run(self) -> None:
        try:
            with suppress(StoreUnavailable):
                self._ask_store()
            with suppress(OSError):
                self._services.artifacts.check()
                self._checks["artifacts"] = "ok"
        except Exception as problem:  # noqa: BLE001 - nobody else would hear of it
            what = f"{type(problem).__name__}: {problem}"[:500]
            self._services.observe(events.Incident("readiness", "readiness", what))
        self.ended_at = self._clock()
        self.done.set_result(None)

    def _ask_store(self) -> None:
        store = self._services.store
        schema = store.schema()
        if schema.version is not None and schema.version >= schema.wanted:
            self._workers = len(store.workers.seen(self._services.limits.presence_seconds))
            self._checks["schema"] = "ok"
        self._checks["store"] = "ok"


def refuse_others(asking: Asking) -> None:
    """See that the operator asks.

    Raises:
        Refused: ``forbidden``.
    """
    if not asking.requester.holds(OPERATOR):
        raise Refused("forbidden", "This needs the operator grant.")
    if asking.services.exports.one_tenant:  # For good: to try again would not help.
        raise Refused("forbidden", "This web acts for one tenant at a time. Ask one that enters as haulage_worker.")


def _metrics(services: Services, asking: Asking) -> Iterator[str]:
    tally = services.store.exports.tally()
    used = services.exports.storage(asking.requester)
    alive = services.store.workers.seen(services.limits.presence_seconds)
    yield from _gauge("haulage_info", "The version of this program.", {f'version="{services.version}"': 1})
    states = {f'flow="{ExportLife.flow}",state="{state}"': tally.get(state, 0) for state in ExportLife.states}
    yield from _gauge("haulage_runs", "Runs in each state.", states)
    states_of_workers = ("claiming", "draining", "refusing")
    living = {f'state="{state}"': sum(each.state == state for each in alive) for state in states_of_workers}
    yield from _gauge("haulage_workers", "Workers seen lately.", living)
    yield from _gauge("haulage_slots", "Builds at once, over all hosts.", {"": services.limits.slots})
    stored = {'kind="stored"': used.stored_bytes, 'kind="reserved"': used.reserved_bytes}
    yield from _gauge("haulage_storage_bytes", "Bytes of finished files, and promised to builds.", stored)
    yield from _gauge("haulage_storage_budget_bytes", "Bytes that may be used.", {"": services.limits.store_bytes})


def _gauge(name: str, meaning: str, values: dict[str, int]) -> Iterator[str]:
    yield f"# HELP {name} {meaning}\n# TYPE {name} gauge\n"
    for labels, value in values.items():
        yield f"{name}{{{labels}}} {value}\n" if labels else f"{name} {value}\n"
