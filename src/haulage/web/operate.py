"""For whoever runs it: workers, storage, health, metrics. Figures of all tenants are the operator's alone."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from fastapi import APIRouter, Depends, Request
from starlette.responses import Response

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
    _refuse_others(asking)
    services = asking.services
    tally = services.store.exports.tally()
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
    slots = {"total": services.limits.slots, "taken": tally.get("running", 0)}
    return document({"items": items, "slots": slots, "waiting": tally.get("queued", 0)})


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
    _refuse_others(asking)
    text = "".join(_metrics(asking.services, asking))
    return Response(text, 200, {"Content-Type": METRICS_TYPE, "Cache-Control": "no-store"})


@router.get("/health/live", responses=says({200: HealthShown}, public=True))
async def show_live() -> Response:
    """This process answers."""
    # Without a thread of the pool: all of them may wait for a store or a source, and that is no reason to be killed.
    return document({"status": "ok", "checks": {}, "workers": None})


@router.get("/health/ready", responses=says({200: HealthShown}, "not_serving", public=True))
def show_ready(request: Request) -> Response:
    """Store, schema and storage can be used. It is ready without a worker too: files can still be fetched."""
    readiness: Readiness = request.app.state.readiness
    found = readiness.look(door_of(request).services)
    if found["status"] != "ok":
        return problem("not_serving", headers={"Retry-After": "2"}, checks=found["checks"], workers=found["workers"])
    return document(found)


class Readiness:
    """The last look at what this process needs, so that asking often costs nothing."""

    def __init__(self, clock: Callable[[], float] = time.monotonic, keep_seconds: float = 2) -> None:
        """``keep_seconds`` is how old an answer may be."""
        self._clock = clock
        self._keep_seconds = keep_seconds
        self._lock = threading.Lock()
        self._looked_at = float("-inf")
        self._found: dict[str, Any] = {}

    def look(self, services: Services) -> dict[str, Any]:
        """What can be used, and how many workers live; None where the store does not say."""
        with self._lock:
            if self._clock() - self._looked_at >= self._keep_seconds:
                self._found = self._check(services)
                self._looked_at = self._clock()
            return self._found

    def _check(self, services: Services) -> dict[str, Any]:
        checks = {"store": "ok", "schema": "ok", "artifacts": "ok"}
        workers: int | None = None
        try:
            schema = services.store.schema()
            if schema.version is None or schema.version < schema.wanted:
                checks["schema"] = "failing"
            else:
                workers = len(services.store.workers.seen(services.limits.presence_seconds))
        except StoreUnavailable:
            checks |= {"store": "failing", "schema": "failing"}
        try:
            services.artifacts.check()
        except OSError:
            checks["artifacts"] = "failing"
        status = "failing" if "failing" in checks.values() else "ok"
        return {"status": status, "checks": checks, "workers": workers}


def _refuse_others(asking: Asking) -> None:
    if not asking.requester.holds(OPERATOR):
        raise Refused("forbidden", "This needs the operator grant.")


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
