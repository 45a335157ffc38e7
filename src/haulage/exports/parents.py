"""Whose a parent resource is: asked of the host, each time anew, for access.py and for the sweep (gone.py).

There are three answers: the accounts that it belongs to now; that it is not there; and that nobody can know now, since
the host fails, takes too long, or its source is away. Then nothing is allowed, and nothing is removed either.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import closing, suppress
from typing import Any

from haulage.core import events
from haulage.core.binds import bound_names
from haulage.core.catalogue import Catalogue, Dataset
from haulage.core.errors import BuildFailed, Fault, HaulageError, Refused
from haulage.core.parents import BIND, OWNERS_MAX, Parent, ParentRef, read_id
from haulage.core.patience import Overdue, within
from haulage.core.reading import Reading
from haulage.core.requester import OPERATOR, Requester
from haulage.core.source import Source
from haulage.exports.life import ExportRun

PLACE = "/parent"  # where it stands in a request
UNDECLARED = "this process has not declared it"
RETRY_SECONDS = 5  # told to whoever came while the host did not answer


class ParentUnknown(HaulageError):
    """Whose a parent is cannot be known now; the message is for the log."""

    code = "host_silent"


class Parents:
    """Asks whose a parent is."""

    def __init__(
        self,
        catalogue: Catalogue,
        open_source: Callable[[str], Source],
        seconds: float,
        observe: events.Observe = events.ignore,
    ) -> None:
        """Bind the declarations; ``seconds`` is what one answer may take."""
        self._catalogue = catalogue
        self._open_source = open_source
        self._seconds = seconds
        self._observe = observe

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds that this process can ask about."""
        return self._catalogue.parent_kinds

    def read(self, dataset: Dataset, given: object, place: str = PLACE) -> ParentRef | None:
        """The parent that a request names, where its dataset has parents.

        Raises:
            Refused: ``invalid``; ``place`` is where it stands. ``host_silent`` when the kind is declared nowhere.
        """
        if dataset.parent is None:
            if given is not None:
                raise _invalid(place, f"{dataset.name} belongs to no parent; leave it out")
            return None
        if given is None:
            raise _invalid(place, f"is needed: the id of the {dataset.parent} that the export belongs to")
        return self.ref(dataset.parent, given, place)

    def read_with(
        self, faults: Sequence[Fault], dataset: Dataset, given: object
    ) -> tuple[ParentRef | None, Sequence[Fault]]:
        """As ``read``, but what is wrong joins what a door found wrong already."""
        if any(fault.pointer == PLACE for fault in faults):
            return None, faults
        try:
            return self.read(dataset, given), faults
        except Refused as refused:
            if not refused.faults:
                raise
            return None, [*faults, *refused.faults]

    def listed(self, dataset: str | None, given: object, kind: str | None, *, everyone: bool) -> ParentRef | None:
        """The parent whose runs a list asks for; its kind is that of the dataset, or the only one there is.

        Raises:
            Refused: ``invalid``, also where the dataset has parents and none is named.
        """
        declared = None if dataset is None else self._catalogue.find(dataset)
        if given is None and kind is not None:
            raise _invalid("/query/parent", f"is needed: the id of the {kind}")
        if given is None:
            if declared is not None and declared.parent is not None and not everyone:
                raise _invalid("/query/parent", f"is needed: the id of the {declared.parent} whose exports these are")
            return None
        known = self.kinds if declared is None else () if declared.parent is None else (declared.parent,)
        if kind is None and len(known) == 1:
            kind = known[0]
        if kind is None or kind not in known:
            there = f"write one of {', '.join(known)}" if known else "there are no parents; leave it out"
            raise _invalid("/query/parent_kind" if known else "/query/parent", there)
        return self.ref(kind, given, "/query/parent")

    def ref(self, kind: str, given: object, place: str = PLACE) -> ParentRef:
        """A parent by its kind and id.

        Raises:
            Refused: ``invalid``; ``host_silent`` when the kind is not declared in this process.
        """
        declared = self._catalogue.find_parent(kind)
        if declared is None:
            self._observe(events.ParentUnknown(kind, UNDECLARED))
            raise Refused("host_silent", retry_after=RETRY_SECONDS)
        try:
            return read_id(declared, given)
        except ValueError as problem:
            raise _invalid(place, str(problem)) from None

    def sample(self, dataset: Dataset) -> ParentRef | None:
        """No parent, of the right type: for a query that is only looked at."""
        if dataset.parent is None:
            return None
        declared = self._catalogue.find_parent(dataset.parent)
        return ParentRef(dataset.parent, "", "text" if declared is None else declared.type)

    def admit(self, requester: Requester, parent: ParentRef) -> None:
        """See that a requester may ask for exports of a parent: its owner may, and the operator where it is there.

        Raises:
            Refused: ``not_found``, one and the same for a foreign and an unknown parent; ``host_silent``.
        """
        owners = self._told(requester.tenant, parent.kind, parent.id)
        if owners is None or not (requester.account in owners or requester.holds(OPERATOR)):
            raise Refused("not_found")

    def of_run(self, run: ExportRun) -> Collection[str] | None:
        """The accounts that a run's parent belongs to now.

        Raises:
            Refused: ``host_silent``.
        """
        assert run.parent_kind is not None
        assert run.parent is not None
        return self._told(run.tenant, run.parent_kind, run.parent)

    def _told(self, tenant: str, kind: str, id: str) -> Collection[str] | None:
        try:
            return self.owners(tenant, kind, id)
        except ParentUnknown as unknown:
            self._observe(events.ParentUnknown(kind, str(unknown)))
            raise Refused("host_silent", retry_after=RETRY_SECONDS) from unknown

    def owners(self, tenant: str, kind: str, id: str) -> Collection[str] | None:
        """The accounts that a parent belongs to now; None when it is not there.

        Raises:
            ParentUnknown: nobody can know that now.
        """
        declared = self._catalogue.find_parent(kind)
        if declared is None:
            raise ParentUnknown(UNDECLARED)
        try:
            bound = ParentRef(kind, id, declared.type).bound
        except ValueError:  # It was kept while ids were texts.
            raise ParentUnknown("an id that was kept is none of the declared type") from None
        if declared.function is not None:
            return self._of_function(declared, tenant, bound)
        return self._of_query(declared, tenant, bound)

    def _of_function(self, declared: Parent, tenant: str, bound: str | int | None) -> Collection[str] | None:
        assert declared.function is not None
        try:
            answer = within(self._seconds, declared.function, tenant, bound)
        except Overdue as overdue:
            raise ParentUnknown(str(overdue)) from overdue
        except Exception as problem:
            raise ParentUnknown(f"its function raised {type(problem).__name__}") from problem
        if answer is None or isinstance(answer, str):
            return answer and frozenset({answer}) if answer != "" else frozenset()
        if isinstance(answer, (set, frozenset, list, tuple)) and all(isinstance(each, str) for each in answer):
            return _not_too_many(frozenset(answer))
        raise ParentUnknown(f"its function answered a {type(answer).__name__}, and no account, accounts or None")

    def _of_query(self, declared: Parent, tenant: str, bound: str | int | None) -> Collection[str] | None:
        source: list[Source] = []

        def ask() -> list[Any]:
            source.append(self._open_source(declared.source))
            found: list[Any] = []
            reading = reading_of(declared, tenant, bound)
            with source[0].snapshot() as snapshot, closing(snapshot.batches(reading)) as rows:
                for batch in rows:
                    found += [row[0] for row in batch]
                    if len(found) > OWNERS_MAX:
                        break
            return found

        try:
            found = within(self._seconds, ask)
        except Overdue as overdue:
            for each in source:
                with suppress(Exception):  # It may not have begun, or ended meanwhile.
                    each.cancel()
            raise ParentUnknown(str(overdue)) from overdue
        except BuildFailed as failed:
            raise ParentUnknown(f"its source answered {failed.code}") from failed
        except Exception as problem:
            raise ParentUnknown(f"its source raised {type(problem).__name__}") from problem
        if not found:
            return None
        return _not_too_many(frozenset(str(account) for account in found if account is not None))


def _not_too_many(owners: frozenset[str]) -> frozenset[str]:
    if len(owners) > OWNERS_MAX:
        raise ParentUnknown(f"it answered more than {OWNERS_MAX:,} accounts")
    return owners


def _invalid(place: str, detail: str) -> Refused:
    return Refused("invalid", faults=[Fault(place, detail)])


def reading_of(declared: Parent, tenant: str, bound: str | int | None) -> Reading:
    """The query that says whose a parent is, as a source gets it."""
    binds: Mapping[str, Any] = {BIND: bound, "requester_tenant": tenant}
    return Reading(
        sql=declared.owners,
        binds={name: binds[name] for name in sorted(bound_names(declared.owners)) if name in binds},
        types={BIND: declared.type},
        visible=None,
        hidden=(),
        order=(),
        columns=None,
        declared={},
        session={name: tenant if value == ":requester_tenant" else value for name, value in declared.session.items()},
    )
