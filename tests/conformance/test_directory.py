"""What a store of files promises beside the verbs: where things lie, a run with its key, names made once."""

from __future__ import annotations

import contextlib
import stat
import threading
from dataclasses import replace

import pytest
from tests.conformance.cases import DAY, MINUTE, Case, Directory
from tests.conformance.folders import age, names

from haulage.core.errors import StoreUnavailable
from haulage.core.ports import KeptKey, Query
from haulage.flows import FLOWS


@pytest.fixture
def case(folder):
    made = Case(Directory(), FLOWS[0], folder)
    yield made
    made.store.close()


# -- what lies where --------------------------------------------------------------------------------------


def test_only_the_owner_can_read_anything(case):
    case.hold()
    case.bring("cancelled")
    case.presence()
    case.store.keys.keep("north", "amina", "k", KeptKey("b" * 64, "r"), seconds=60, now=case.now)
    modes = {path: stat.S_IMODE(path.lstat().st_mode) for path in [case.store.path, *case.store.path.rglob("*")]}

    assert {True: {0o700}, False: {0o600}} == {
        folder: {mode for path, mode in modes.items() if path.is_dir() == folder} for folder in (True, False)
    }
    assert 12 < len(modes)


def test_a_run_that_has_ended_is_out_of_the_way_and_still_found(case):
    ended, _ = case.bring("cancelled")
    odd = case.cancel(case.add(id="not-a-uuid").id)
    ready, _ = case.bring("ready")

    assert [f"{ready.id}.json"] == names(case, "live")
    assert sorted([f"{ended.id}.json", "not-a-uuid.json"]) == names(case, "ended/2027-01-15")
    assert [ended, odd, ready] == [case.get(run) for run in (ended, odd, ready)]
    assert {ended.id, odd.id, ready.id} == {run.id for run in case.runs.list(Query())}
    assert {"cancelled": 2, "ready": 1} == case.runs.tally()


def test_a_list_over_many_days_turns_its_pages_by_the_day(case):
    runs = [case.cancel(case.add(seconds=day * 86_400).id) for day in range(5)]
    newest = case.runs.list(Query(limit=2))
    next_page = case.runs.list(Query(limit=9, before=(runs[3].requested_at, runs[3].id)))

    assert [runs[4], runs[3], runs[2]] == newest
    assert [runs[2], runs[1], runs[0]] == next_page


def test_a_folder_of_a_day_goes_with_its_last_run(case):
    case.bring("cancelled")

    assert 1 == case.runs.remove(now=case.now + 7 * DAY)
    assert [] == names(case, "ended")


def test_names_of_a_death_are_tidied_up_and_those_of_the_living_stay(case):
    held, waiting = case.hold(active_key="k"), case.add(active_key="w")
    case.add(id="ended-here")
    root = case.store.path
    leftovers = [
        root / ".haulage.json.abc.new",
        root / "live" / ".half.json.abc.new",
        root / "keys" / ".half.abc.new",
        root / "held" / "nobody.1",
        root / "held" / f"{held.id}.7",
        root / "slots" / "9",
        root / "active" / ("f" * 64),
    ]
    for path in leftovers:
        path.write_bytes(b"half")
    young = case.runs.patrol.pass_once(case.runs.lives, case.runs.move_to_ended)
    for path in [*leftovers, *(root / "slots").iterdir(), *(root / "active").iterdir(), *(root / "held").iterdir()]:
        age(path)
    done = case.runs.patrol.pass_once(case.runs.lives, case.runs.move_to_ended)

    assert (0, len(leftovers)) == (young, done)
    assert [] == [path for path in leftovers if path.exists()]
    assert case.beat(held).held
    assert [held.id, waiting.id] == [case.runs.find_active(key).id for key in ("k", "w")]


def test_a_run_that_ended_where_a_death_left_it_is_put_away(case):
    run = case.add()
    with pytest.MonkeyPatch.context() as broken:
        broken.setattr(case.runs, "move_to_ended", lambda _run, _tx: None)
        ended = case.cancel(run.id)
    before = names(case, "live")
    case.runs.remove(now=case.now)

    assert ([f"{run.id}.json"], []) == (before, names(case, "live"))
    assert ended == case.get(run)


# -- a run and its key --------------------------------------------------------------------------------------


def request(case, run, key="k"):
    with case.store.begin() as tx:
        case.runs.add(run, tx=tx)
        kept = KeptKey("b" * 64, run.id)
        case.store.keys.keep("north", "amina", key, kept, seconds=60, now=case.now, tx=tx)


def test_what_breaks_off_at_the_door_has_written_neither_run_nor_key(case):
    run = case.kit.new(requested_at=case.now, active_key="a")
    with contextlib.suppress(LookupError), case.store.begin() as tx:
        case.runs.add(run, tx=tx)
        kept = KeptKey("b" * 64, run.id)
        case.store.keys.keep("north", "amina", "k", kept, seconds=60, now=case.now, tx=tx)
        inside = case.runs.get(run.id, tx=tx), case.runs.find_active("a", tx=tx), case.runs.waiting(tx=tx)
        raise LookupError

    assert (run, run, 1) == inside
    assert (None, None) == (case.get(run), case.store.keys.find("north", "amina", "k", now=case.now))
    request(case, run)
    assert run == case.get(run)


def test_a_key_is_found_with_its_run_where_its_own_file_was_never_made(case):
    """The process died between the two."""
    run = case.kit.new(requested_at=case.now)
    request(case, run)
    (path,) = (case.store.path / "keys").iterdir()
    path.unlink()
    living = case.store.keys.find("north", "amina", "k", now=case.now)
    case.cancel(run.id)
    ended = case.store.keys.find("north", "amina", "k", now=case.now)
    old = case.store.keys.find("north", "amina", "k", now=case.now + MINUTE)

    assert (run.id, run.id, None) == (living.run, ended.run, old)


def test_forty_equal_requests_make_one_run(case):
    ready, made = threading.Barrier(40), []

    def ask(number):
        run = case.kit.new(requested_at=case.now + number, active_key="same")
        ready.wait()
        with case.store.begin() as tx:
            active = case.runs.find_active("same", tx=tx)
            if active is None:
                case.runs.add(run, tx=tx)
        made.append((active or run).id)

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(40)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert (40, 1, 1) == (len(made), len(set(made)), case.runs.waiting())


# -- a volume whose locks exclude nobody --------------------------------------------------------------------


@pytest.fixture
def another(case, monkeypatch):
    """Another process at the same store, while locks exclude nobody: the names are all that is left."""
    monkeypatch.setattr("haulage.stores.directory.folder.try_lock", lambda _descriptor, **_how: True)
    other = case.open()
    yield other
    other.close()


def test_a_claim_that_another_has_begun_is_none(case, another):
    run = case.add()
    another.exports.leases.take(replace(run, claim_no=1))  # and its row is not written yet
    claimed = case.claim()
    age(case.store.path / "held" / f"{run.id}.1")  # It died before its row was written.
    later = case.claim()

    assert None is claimed
    assert (run.id, 1) == (later[0].id, later[0].claim_no)


def test_a_claim_that_another_overtook_is_none(case, another, monkeypatch):
    """It read the run as waiting; meanwhile another finished it, and the name of its claim is free again."""
    run, finish, take = case.add(), case.moves("finish"), case.runs.leases.take

    def overtaken(claimed):
        held, _ = another.exports.claim(case.terms("faster"), now=case.now)
        another.exports.settle(held, finish, case.kit.values(finish), now=case.now)
        return take(claimed)

    monkeypatch.setattr(case.runs.leases, "take", overtaken)
    claimed = case.claim("slower")

    assert None is claimed
    assert ("ready", 1) == (case.get(run).state, case.get(run).claim_no)


def test_a_slot_that_another_has_just_taken_is_not_given_again(case, another):
    run, theirs = case.add(), case.add("south")
    another.exports.leases.take(replace(theirs, claim_no=1))
    assert another.exports.leases.take_slot(replace(theirs, claim_no=1, slot=1))

    assert None is case.claim(only=run.id, slots=1)
    assert 2 == case.claim(only=run.id, slots=2)[1].slot


def test_an_equal_request_that_another_is_writing_is_refused_for_the_moment(case, another):
    mine, theirs = (case.kit.new(requested_at=case.now, active_key="same") for _ in range(2))
    another.exports.actives.take(theirs)  # and its row is not written yet
    with pytest.raises(StoreUnavailable, match="an equal request is just being written"):
        case.runs.add(mine)
    age(next((case.store.path / "active").iterdir()))
    case.runs.add(mine)

    assert mine == case.runs.find_active("same")
