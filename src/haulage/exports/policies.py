"""Whether what may be seen has changed since a file was built: asked each time that the file is to be fetched.

A dataset declares a revision of its policy, a query on its own source or a function of the host. That of a file is
taken at its build: a query's inside the very snapshot that the file shows, a function's just before the build starts,
so that a change in between makes the file too old and never too new. A run without one is refused, too: unknown is not
equal.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from haulage.core import events
from haulage.core.catalogue import Catalogue, Dataset
from haulage.core.clock import now_ms, rfc3339
from haulage.core.errors import BuildFailed, HaulageError, Refused
from haulage.core.patience import Overdue, within
from haulage.core.requester import Requester
from haulage.core.source import Source
from haulage.exports.life import ExportRun
from haulage.exports.plan import asking_binds, policy_of, session_of
from haulage.exports.revision import revision_in, revision_of
from haulage.exports.stored import unreadable

FUNCTION = "function"  # what a run keeps in the place of a query
LATELY_SECONDS = 3.0  # for which a running download believes an answer
RETRY_SECONDS = 5  # told to whoever came while nobody answered


class PolicyUnknown(HaulageError):
    """Today's revision cannot be known now; the message is for the log."""

    code = "host_silent"


class Policies:
    """Asks for revisions."""

    def __init__(
        self,
        catalogue: Catalogue,
        open_source: Callable[[str], Source],
        standing: Callable[[Requester], Requester],
        seconds: float,
        observe: events.Observe = events.ignore,
    ) -> None:
        """Bind the declarations; ``seconds`` is what one answer may take."""
        self._catalogue = catalogue
        self._open_source = open_source
        self._standing = standing
        self._seconds = seconds
        self._observe = observe
        self._seen: dict[str, float] = {}  # runs whose revision was today's, and until when that is believed

    def at_build(self, run: ExportRun) -> str | None:
        """The revision that a function answers before a build, for who asked as they were then; None for a query's.

        Raises:
            BuildFailed: ``host_silent``, or ``source_gone`` where this process does not know the function.
        """
        if run.plan.get("policy") != {FUNCTION: True}:
            return None
        dataset = self._catalogue.find(run.dataset)
        if dataset is None or not callable(dataset.policy_revision):
            raise BuildFailed("source_gone", cause="this worker does not know the policy_revision of the dataset")
        try:
            return self._answered(dataset.policy_revision, Requester.thawed(dict(run.requester)))
        except PolicyUnknown as unknown:
            raise BuildFailed("host_silent", cause=f"policy_revision: {unknown}") from unknown

    def refuse_changed(self, run: ExportRun, *, lately: bool = False) -> None:
        """See that a run shows what may be seen today.

        Args:
            lately: what was so a moment ago will do.

        Raises:
            Refused: ``policy_changed``; ``host_silent`` when nobody could say in time.
        """
        dataset = self._catalogue.find(run.dataset)
        if dataset is None or dataset.policy_revision is None:
            return
        now = time.monotonic()
        if lately and self._seen.get(run.id, now) > now:
            return
        try:
            same = run.policy_revision is not None and run.policy_revision == self._today(dataset, run)
        except PolicyUnknown as unknown:
            self._observe(events.PolicyUnknown(run.dataset, str(unknown)))
            raise Refused("host_silent", retry_after=RETRY_SECONDS) from unknown
        if not same:
            raise Refused("policy_changed", state=run.state)
        self._seen = {each: until for each, until in self._seen.items() if until > now} | {run.id: now + LATELY_SECONDS}

    def _today(self, dataset: Dataset, run: ExportRun) -> str | None:
        if unreadable(run):
            return None
        try:
            today = self._standing(Requester.thawed(dict(run.requester)))
        except Overdue as overdue:
            raise PolicyUnknown(f"standing {overdue}") from overdue
        if callable(dataset.policy_revision):
            return self._answered(dataset.policy_revision, today)
        return self._queried(dataset, today)

    def _answered(self, function: Callable[[Requester], str | int | None], requester: Requester) -> str:
        try:
            answer: object = within(self._seconds, function, requester)
        except Overdue as overdue:
            raise PolicyUnknown(f"its function {overdue}") from overdue
        except Exception as problem:
            raise PolicyUnknown(f"its function raised {type(problem).__name__}") from problem
        if answer is not None and type(answer) not in (str, int):
            raise PolicyUnknown(f"its function answered a {type(answer).__name__}, and no text, number or None")
        return revision_of(FUNCTION, None if answer is None else str(answer))

    def _queried(self, dataset: Dataset, requester: Requester) -> str:
        opened: list[Source] = []
        policy = policy_of(dataset, requester)
        session = session_of(dataset, {**asking_binds(requester), "as_of": rfc3339(now_ms())})

        def ask() -> Any:
            opened.append(self._open_source(dataset.source))
            with opened[0].snapshot() as snapshot:
                return revision_in(snapshot, policy, session)

        try:
            revision: str = within(self._seconds, ask)
        except Overdue as overdue:
            for each in opened:
                with suppress(Exception):  # It may not have begun, or ended meanwhile.
                    each.cancel()
            raise PolicyUnknown(f"its query {overdue}") from overdue
        except BuildFailed as failed:
            raise PolicyUnknown(f"its source answered {failed.code}") from failed
        except Exception as problem:
            raise PolicyUnknown(f"its source raised {type(problem).__name__}") from problem
        return revision
