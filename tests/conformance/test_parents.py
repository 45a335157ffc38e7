"""Runs of a parent: listed by it, found by the round of the sweep, and removed when it is gone and not before."""

from __future__ import annotations

import threading

import pytest
from tests.conformance.cases import DAY
from tests.conformance.test_lists import newest_first, pages
from tests.promises import NotPromised

from haulage.artifacts.local import LocalArtifacts
from haulage.core import events
from haulage.core.catalogue import Catalogue
from haulage.core.errors import StoreUnavailable
from haulage.core.parents import Parent, ParentRef
from haulage.core.ports import Query
from haulage.exports import gone
from haulage.exports.expire import ExportSweep
from haulage.exports.parents import Parents

SEVEN, EIGHT = ParentRef("book", "7"), ParentRef("book", "8")


@pytest.fixture
def runs(case):
    case.needs_verb("parents")
    return case.runs


def add(case, id, parent=SEVEN, **changes):
    kind, number = (None, None) if parent is None else parent[:2]
    return case.add(changes.pop("tenant", "north"), id=id, parent_kind=kind, parent=number, **changes)


# -- lists ----------------------------------------------------------------------------------------------------


LISTS = [
    ({"parent": SEVEN}, {"a", "b", "c", "s"}),
    ({"tenant": "north", "parent": SEVEN}, {"a", "b", "c"}),
    ({"tenant": "north", "parent": SEVEN, "state": "cancelled"}, {"c"}),
    ({"tenant": "north", "parent": SEVEN, "dataset": "covers"}, {"b"}),
    ({"tenant": "north", "parent": EIGHT}, {"d"}),
    ({"tenant": "north", "parent": ParentRef("shelf", "7")}, {"e"}),
    ({"tenant": "north", "parent": ParentRef("book", "07")}, set()),
    ({"tenant": "north", "account": "amina", "parentless": True}, {"n"}),
    ({"parentless": True}, {"n"}),
    ({"tenant": "north", "account": "amina"}, {"a", "c", "d", "e", "n"}),
]


def test_a_list_of_a_parent_has_its_runs_whoever_asked_for_them(case, runs):
    add(case, "a")
    add(case, "b", account="ben", dataset="covers")
    add(case, "c")
    add(case, "d", EIGHT)
    add(case, "e", ParentRef("shelf", "7"))
    add(case, "s", tenant="south")
    add(case, "n", None)
    case.cancel("c")

    for query, wanted in LISTS:
        assert wanted == {run.id for run in runs.list(Query(**query))}, query
        assert wanted == set(pages(case, 1, **query)), query


def test_pages_of_a_parent_are_newest_first_and_whole(case, runs):
    mine = [add(case, f"m{number}", seconds=number // 3) for number in range(10)]
    for number in range(5):
        add(case, f"o{number}", EIGHT, seconds=number)

    assert newest_first(mine) == pages(case, 3, tenant="north", parent=SEVEN)


def test_a_parent_comes_back_as_it_was_written_and_its_case_and_blanks_count(case, runs):
    names = ["x", "X", "x ", "報告", "a'b\"c", "x" * 200]
    for number, name in enumerate(names):
        add(case, f"r{number}", ParentRef("book", name))

    assert names == [runs.get(f"r{number}").parent for number in range(len(names))]
    assert [[f"r{number}"] for number in range(len(names))] == [
        [run.id for run in runs.list(Query(parent=ParentRef("book", name)))] for name in names
    ]


def test_a_parent_without_a_kind_is_refused_by_the_store(case, runs):
    with pytest.raises((AssertionError, StoreUnavailable)):
        case.add(parent="7")


# -- the round ------------------------------------------------------------------------------------------------


def test_the_round_comes_to_every_parent_once(case, runs):
    places = {(f"{number}", kind, tenant) for number in range(3) for kind in ("book", "shelf") for tenant in "ns"}
    for number, (parent, kind, tenant) in enumerate([*places, *places]):
        add(case, f"r{number}", ParentRef(kind, parent), tenant=tenant)
    add(case, "none", None)
    seen, after = [], None
    while found := runs.parents(after=after, limit=5):
        seen += found
        after = found[-1]

    assert sorted(places) == seen


def test_only_what_has_ended_without_bytes_is_removed_with_its_parent(case, runs):
    ready = add(case, "ready")
    held, _run = case.claim(only="ready")
    case.settle(held, case.moves("finish"))
    for name in ("waits", "ended", "more"):
        add(case, name)
    add(case, "other", EIGHT)
    add(case, "south", tenant="south")
    for name in ("ended", "more", "other", "south"):
        case.cancel(name)

    removed = [runs.remove_of("north", SEVEN, limit=1), runs.remove_of("north", SEVEN), runs.remove_of("north", SEVEN)]

    assert [1, 1, 0] == removed
    assert {"ready", "waits", "other", "south"} == {run.id for run in runs.list(Query())}
    assert ready.id == runs.get("ready").id


# -- a parent goes ----------------------------------------------------------------------------------------------


class Library:
    """A host: whose a book is. An exception in the place of an owner is raised."""

    def __init__(self, case, folder):
        self.case = case
        self.owners = {("north", "7"): "amina", ("north", "8"): "ben", ("south", "7"): "chloe"}
        self.asked = []
        self.seen = []
        self.catalogue = Catalogue()
        self.catalogue.add_parent(Parent("book", function=self.owner))
        self.artifacts = LocalArtifacts(folder / "artifacts")
        self.artifacts.prepare()
        case.presence(now=case.now + 9 * DAY)
        self.sweep = self.another_sweep()

    def another_sweep(self, catalogue=None):
        parents = Parents(catalogue or self.catalogue, lambda _name: None, 5, self.seen.append)
        return ExportSweep(self.case.store, self.artifacts, self.case.limits, self.seen.append, parents)

    def owner(self, tenant, book):
        self.asked.append((tenant, book))
        answer = self.owners.get((tenant, book))
        if isinstance(answer, Exception):
            raise answer
        return answer

    def hold(self, id, parent=SEVEN):
        """A run that is built, with unfinished bytes."""
        add(self.case, id, parent)
        held, run = self.case.claim(only=id)
        self.artifacts.begin(run.artifact_key).joinpath("part").write_bytes(b"half")
        return held

    def ready(self, id, parent=SEVEN):
        held = self.hold(id, parent)
        key = self.case.get(id).artifact_key
        self.artifacts.publish(key, 4)
        self.case.settle(held, self.case.moves("finish"))

    def pass_once(self):
        return self.sweep.pass_once(self.case.now)

    def states(self):
        return {run.id: run.state for run in self.case.runs.list(Query())}

    def told(self, kind):
        return [event for event in self.seen if isinstance(event, kind)]


@pytest.fixture
def library(case, runs, folder):
    if case.flow.name != "exports":
        raise NotPromised("the sweep of exports")
    return Library(case, folder)


def test_nothing_happens_to_runs_whose_parents_are_there(case, library):
    library.ready("r")
    add(case, "q", EIGHT)
    add(case, "n", None)

    report = library.pass_once()

    assert {"r": "ready", "q": "queued", "n": "queued"} == library.states()
    assert (0, 0) == (report.parents_gone, report.removed_rows)
    assert [("north", "7"), ("north", "8")] == library.asked


def test_a_parent_that_is_gone_takes_its_runs_and_their_bytes_with_it(case, library):
    held = library.hold("runs")
    library.ready("file")
    add(case, "waits")
    add(case, "other", EIGHT)
    add(case, "south", tenant="south")
    add(case, "none", None)
    del library.owners["north", "7"]

    first = library.pass_once()
    after = library.states()
    pulse = case.beat(held)
    library.artifacts.remove(case.get("runs").artifact_key)
    case.settle(held, case.moves("stop"), artifact_key=None)
    second = library.pass_once()
    third = library.pass_once()

    assert {"runs": "running", "file": "expired", "other": "queued", "south": "queued", "none": "queued"} == {
        name: state for name, state in after.items() if name != "waits"
    }
    assert after.get("waits", "cancelled") == "cancelled"
    assert pulse.cancel_requested
    assert [] == library.artifacts.keys()
    assert {"other", "south", "none"} == library.states().keys()
    assert 3 == sum(each.removed_rows for each in (first, second, third))
    (told,) = library.told(events.ParentGone)
    assert ("book", "north", 1, 1, 1) == (told.kind, told.tenant, told.cancelled, told.stopping, told.expired)
    assert 0 == library.pass_once().parents_gone  # nobody is asked about it any more


def test_a_host_that_cannot_say_takes_nothing_away(case, library):
    library.ready("file")
    held = library.hold("runs")
    add(case, "waits")
    answers = [LookupError("no row"), TimeoutError(), 7, {"amina": 1}, [1], object(), b"amina"]
    for answer in answers:
        library.owners["north", "7"] = answer
        sweep = library.another_sweep()
        for _ in range(2):
            sweep.pass_once(case.now)

    assert {"file": "ready", "runs": "running", "waits": "queued"} == library.states()
    assert not case.beat(held).cancel_requested
    assert 2 * len(answers) == len(library.told(events.ParentUnknown)) == len(library.asked)


def test_a_parent_that_the_host_cannot_say_anything_of_hides_no_other(case, library):
    for number in range(5):
        add(case, f"r{number}", ParentRef("book", f"{number}"))
    library.owners |= {("north", f"{number}"): "amina" for number in range(4)}  # the last one is gone
    library.owners["north", "0"] = library.owners["north", "2"] = LookupError("no such shelf")
    library.pass_once()

    assert {"r0", "r1", "r2", "r3"} == {name for name, state in library.states().items() if state == "queued"}


def test_a_host_that_fails_at_all_of_them_is_not_asked_about_all_of_them(case, library):
    for number in range(9):
        add(case, f"r{number}", ParentRef("book", f"{number}"))
        library.owners["north", f"{number}"] = ConnectionError()
    library.pass_once()

    assert gone.FAILURES_MAX == len(library.asked)
    assert 9 == len(library.states())


def test_a_host_that_hangs_costs_a_pass_its_time_once(case, library):
    release = threading.Event()
    hanging = Catalogue()
    hanging.add_parent(Parent("book", function=lambda *_asked: release.wait(60) and None))
    library.ready("file")
    add(case, "q", EIGHT)
    parents = Parents(hanging, lambda _name: None, 0.05, library.seen.append)
    sweep = ExportSweep(case.store, library.artifacts, case.limits, library.seen.append, parents)

    sweep.pass_once(case.now)
    sweep.pass_once(case.now)
    release.set()

    assert {"file": "ready", "q": "queued"} == library.states()
    assert 1 == len(library.told(events.ParentUnknown))


def test_a_kind_that_this_process_has_not_declared_is_left_to_those_who_have(case, library):
    library.ready("file", ParentRef("shelf", "1"))

    library.another_sweep().pass_once(case.now)
    library.another_sweep(Catalogue()).pass_once(case.now)

    assert {"file": "ready"} == library.states()
    assert [] == library.asked


def test_every_parent_is_asked_about_by_and_by(case, library, monkeypatch):
    monkeypatch.setattr(gone, "ASKED_AT_ONCE", 2)
    for number in range(5):
        add(case, f"r{number}", ParentRef("book", f"{number}"))
        library.owners["north", f"{number}"] = "amina"
    for _ in range(3):
        library.pass_once()
    first = list(library.asked)
    del library.owners["north", "3"]
    for _ in range(4):
        library.pass_once()

    assert [("north", f"{number}") for number in range(5)] == first
    assert "r3" not in library.states() or library.states()["r3"] == "cancelled"
    assert {"r0", "r1", "r2", "r4"} == {name for name, state in library.states().items() if state == "queued"}


def test_two_sweeps_and_the_host_may_say_it_at_once(case, library):
    library.ready("file")
    add(case, "waits")
    del library.owners["north", "7"]
    other = library.another_sweep()

    told = gone.let_go(case.runs, "north", SEVEN, library.seen.append, now=case.now)
    again = gone.let_go(case.runs, "north", SEVEN, library.seen.append, now=case.now)
    for sweep in (library.sweep, other, library.sweep, other):
        sweep.pass_once(case.now)

    assert (1, 0, 1) == (told.cancelled, told.stopping, told.expired)
    assert (0, 0, 0) == (again.cancelled, again.stopping, again.expired)
    assert {} == library.states()
    assert [] == library.artifacts.keys()


def test_bytes_that_cannot_be_removed_keep_their_row_until_they_are_gone(case, library, monkeypatch):
    library.ready("file")
    del library.owners["north", "7"]

    def remove(_key):
        raise OSError(5, "EIO")

    with monkeypatch.context() as broken:
        broken.setattr(library.artifacts, "remove", remove)
        library.pass_once()
        library.pass_once()
        between = library.states(), len(library.artifacts.keys())
    library.pass_once()
    library.pass_once()

    assert ({"file": "expired"}, 1) == between
    assert ({}, []) == (library.states(), library.artifacts.keys())


def test_many_runs_of_a_parent_that_is_gone_all_end(case, library, monkeypatch):
    monkeypatch.setattr(gone, "PAGE", 2)
    for number in range(7):
        add(case, f"r{number}", seconds=number // 3)

    ended = gone.let_go(case.runs, "north", SEVEN, library.seen.append, now=case.now)

    assert 7 == ended.cancelled
    assert {"cancelled"} == set(library.states().values())
