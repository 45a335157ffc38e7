"""What only a store of files can suffer: damage, leftovers, other people's folders, a volume that keeps nothing."""

from __future__ import annotations

import contextlib
import os
import stat
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest
from tests.conformance.cases import DAY, MINUTE, NOW, Case, Directory

from haulage.core import events
from haulage.core.errors import SchemaMismatch, StoreUnavailable
from haulage.core.ports import KeptKey, Query, SignIn
from haulage.flows import FLOWS
from haulage.stores import open_store
from haulage.stores.directory import peer, volume, watcher
from haulage.stores.directory.letter import Unreadable, opened, sealed
from haulage.stores.directory.store import directory_path, open_directory


@pytest.fixture
def case(folder):
    made = Case(Directory(), FLOWS[0], folder)
    yield made
    made.store.close()


@pytest.fixture
def told(case):
    seen = []
    case.store.folder.observe = seen.append
    return seen


def age(path, seconds=60):
    """As if so much time had passed since a name was made."""
    then = path.lstat().st_mtime - seconds
    os.utime(path, (then, then), follow_symlinks=False)


def look_anew(case, told):
    """As another process, which knows nothing yet."""
    case.store.close()
    case.store = open_store(case.url, case.limits, observe=told.append)


def names(case, place):
    return sorted(path.name for path in (case.store.path / place).iterdir())


# -- the content of a file --------------------------------------------------------------------------------


DAMAGE = {
    "empty": lambda _data: b"",
    "nothing but NUL": lambda data: b"\0" * len(data),
    "the first block NUL": lambda data: b"\0" * 512 + data[512:],
    "the last byte missing": lambda data: data[:-1],
    "half of it": lambda data: data[: len(data) // 2],
    "only its first line": lambda data: data.split(b"\n")[0],
    "written twice": lambda data: data + data,
    "something else": lambda _data: b"Dear diary, today I was taken for a run.\n" * 9,
    "bytes that are no text": lambda _data: bytes(range(256)) * 4,
    "a later version": lambda data: data.replace(b"haulage run 1 ", b"haulage run 2 ", 1),
    "a version that is none": lambda data: data.replace(b"haulage run 1 ", b"haulage run x ", 1),
    "another kind of record": lambda data: data.replace(b"haulage run ", b"haulage key ", 1),
    "a whole record that is no run": lambda _data: sealed("run", {"run": None}),
    "a run with fields of the future": lambda data: sealed(
        "run", {"run": {**opened("run", data)["run"], "colour": "blue"}}
    ),
}


@pytest.mark.parametrize("state", ["queued", "running", "ready", "cancelled"])
@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_file_is_moved_aside_whole_and_told_and_the_others_run_on(case, told, damage, state):
    run, _ = case.bring(state)
    other = case.add("south", seconds=1)
    path = next(case.store.path.rglob(f"{run.id}.json"))
    broken = DAMAGE[damage](path.read_bytes())
    path.write_bytes(broken)
    look_anew(case, told)

    claimed = case.claim(slots=9)
    listed = {each.id for each in case.runs.list(Query())}
    found = case.get(run)
    aside = [path for path in (case.store.path / "quarantine").iterdir() if path.suffix != ".why"]

    assert other.id == claimed[0].id
    assert ({other.id}, None) == (listed, found)
    assert [broken] == [path.read_bytes() for path in aside]
    assert not path.exists()
    assert [events.StateQuarantined(f"{path.parent.name}/{path.name}", told[0].reason)] == told
    assert [f"{path.parent.name}/{path.name}: {told[0].reason}"] == case.store.quarantined()


def test_the_reason_says_what_is_wrong(case, told):
    wanted = {
        "empty": "it is empty",
        "nothing but NUL": "it holds nothing but NUL bytes",
        "half of it": "its checksum is wrong: it was cut short or changed",
        "a later version": "it is of version 2, and this haulage reads version 1",
        "something else": "it is no run of haulage",
        "a run with fields of the future": "it has fields that this haulage does not know: colour",
    }
    for damage in wanted:
        run = case.add()
        path = case.runs.live.path(run.id)
        path.write_bytes(DAMAGE[damage](path.read_bytes()))
        case.get(run)

    assert list(wanted.values()) == [event.reason for event in told]


def test_no_change_of_a_single_bit_and_no_cut_is_taken_for_a_run(case):
    data = case.runs.live.path(case.add().id).read_bytes()
    cuts = [data[:size] for size in range(len(data))]
    flips = [data[:at] + bytes([data[at] ^ 1 << at % 8]) + data[at + 1 :] for at in range(len(data))]
    for broken in cuts + flips:
        with pytest.raises(Unreadable):
            opened("run", broken)


def test_two_files_that_were_swapped_are_neither_run(case, told):
    one, two = case.add(), case.add()
    paths = [case.runs.live.path(run.id) for run in (one, two)]
    contents = [path.read_bytes() for path in paths]
    for path, content in zip(paths, reversed(contents), strict=True):
        path.write_bytes(content)

    assert None is case.claim()
    assert ["it is the run of another id"] * 2 == [event.reason for event in told]


def test_a_copy_under_another_name_is_no_second_run(case, told):
    run = case.add()
    path = case.runs.live.path(run.id)
    path.with_name("copy.json").write_bytes(path.read_bytes())
    look_anew(case, told)

    assert [run.id] == [case.claim(slots=9)[0].id]
    assert None is case.claim(slots=9)
    assert ["live/copy.json"] == [event.file for event in told]


@pytest.mark.parametrize("kind", ["link", "pipe", "folder"])
def test_what_is_no_file_is_no_run_and_keeps_nobody_waiting(case, told, tmp_path, kind):
    run, precious = case.add(), tmp_path / "precious"
    precious.write_bytes(case.runs.live.path(run.id).read_bytes())
    planted = case.runs.live.path("planted")
    {"link": lambda: planted.symlink_to(precious), "pipe": lambda: os.mkfifo(planted), "folder": planted.mkdir}[kind]()
    look_anew(case, told)

    assert run.id == case.claim()[0].id
    assert precious.exists()
    assert (["live/planted.json"] if kind != "link" else []) == [event.file for event in told]


def test_the_worker_of_a_run_whose_file_was_damaged_lost_it_and_its_slot_is_free_again(case):
    held = case.hold()
    waiting = case.add("south")
    path = case.runs.live.path(held.id)
    path.write_bytes(path.read_bytes()[:-9])
    pulse = case.beat(held)
    at_once = case.claim(slots=1)
    age(case.store.path / "slots" / "1")
    later = case.claim(slots=1)

    assert (False, None) == (pulse.held, at_once)
    assert (waiting.id, 1) == (later[0].id, later[1].slot)


def test_a_beat_that_was_cut_short_leaves_the_one_before_it(case):
    held = case.hold()
    case.beat(held, now=case.now + 1_000)
    record = case.store.path / "held" / f"{held.id}.1"
    before = case.get(held.id)
    whole = record.read_bytes()
    case.beat(held, now=case.now + 2_000)
    changed = [at for at, byte in enumerate(record.read_bytes()) if at >= len(whole) or whole[at] != byte]
    for cut in range(changed[0], changed[-1], 7):
        record.write_bytes(record.read_bytes()[:cut] + b"\0" * 40 + record.read_bytes()[cut + 40 :])
        assert case.get(held.id) in (before, case.get(held.id))
        assert case.get(held.id).lease_until in (case.now + 16_000, case.now + 17_000)

    assert case.now + 16_000 == case.get(held.id).lease_until
    assert case.beat(held, now=case.now + 3_000).held
    assert case.now + 18_000 == case.get(held.id).lease_until


def test_a_record_of_a_claim_that_is_garbage_leaves_the_lease_that_the_row_has(case):
    held = case.hold()
    case.beat(held, now=case.now + 9_000)
    record = case.store.path / "held" / f"{held.id}.1"
    with record.open("r+b") as file:
        file.write(os.urandom(1_024))

    assert case.now + 15_000 == case.get(held.id).lease_until
    assert case.beat(held, now=case.now + 10_000).held
    assert case.now + 25_000 == case.get(held.id).lease_until


@pytest.mark.parametrize("damage", ["empty", "nothing but NUL", "half of it", "something else"])
def test_a_damaged_key_or_sign_in_is_nobodys_and_is_moved_aside(case, told, damage):
    case.store.keys.keep("north", "amina", "k", KeptKey("b" * 64, "run"), seconds=60, now=case.now)
    case.store.sessions.open(SignIn("s" * 64, "amina", "north", "amina", case.now + MINUTE))
    for place in ("keys", "sessions"):
        (path,) = (case.store.path / place).iterdir()
        path.write_bytes(DAMAGE[damage](path.read_bytes()))

    assert None is case.store.keys.find("north", "amina", "k", now=case.now)
    assert None is case.store.sessions.find("s" * 64, now=case.now)
    assert 0 == case.store.keys.forget(now=case.now + DAY)
    assert ["keys", "sessions"] == [event.file.split("/")[0] for event in told]
    assert 4 == len(names(case, "quarantine"))


@pytest.mark.parametrize("damage", ["empty", "nothing but NUL", "half of it", "something else"])
def test_a_damaged_presence_is_nobodys_until_its_worker_renews_it(case, damage):
    case.presence("w1")
    case.presence("w2")
    path = case.store.path / "workers" / "w1"
    path.write_bytes(DAMAGE[damage](path.read_bytes()) if damage != "half of it" else path.read_bytes()[:40])
    seen = [each.id for each in case.store.workers.seen(60, now=case.now)]
    case.presence("w1")

    assert ["w2"] == seen
    assert {"w1", "w2"} == {each.id for each in case.store.workers.seen(60, now=case.now)}


def test_a_claim_whose_file_is_gone_lives_until_the_lease_that_the_row_has(case):
    """As after a power cut: files of claims are not synced."""
    lose = case.moves("lose")
    held = case.hold()
    (case.store.path / "held" / f"{held.id}.1").unlink()
    early = case.runs.sweep(lose, {}, worker="sweeper", now=case.now + 14_999)
    late = case.runs.sweep(lose, {}, worker="sweeper", now=case.now + 15_000)

    assert ([], [held.id]) == (early, [run.id for run in late])


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


# -- opening ------------------------------------------------------------------------------------------------


def test_a_folder_that_others_may_enter_is_refused_and_says_what_to_do(tmp_path):
    for mode in (0o750, 0o701, 0o770):
        tmp_path.chmod(mode)
        with pytest.raises(StoreUnavailable, match=f"entered by others .mode {mode:04o}.*run: chmod -R go-rwx"):
            open_store(f"directory://{tmp_path}")

    assert [] == list(tmp_path.iterdir())


@pytest.mark.root
def test_a_folder_of_another_user_is_refused_and_says_what_to_do(tmp_path):
    if os.geteuid() != 0:
        pytest.skip("needs root to give a folder to somebody else")
    tmp_path.chmod(0o700)
    os.chown(tmp_path, 65534, 65534)

    with pytest.raises(StoreUnavailable, match="belongs to user 65534 and this is user 0; a store has one owner"):
        open_store(f"directory://{tmp_path}")


def test_a_folder_with_other_files_is_refused_and_left_alone(tmp_path):
    (tmp_path / "holiday.jpg").touch()
    tmp_path.chmod(0o700)

    with pytest.raises(SchemaMismatch, match=r"is no store of haulage, and holds holiday.jpg; name an empty folder"):
        open_store(f"directory://{tmp_path}")

    assert {"holiday.jpg", "lock"} >= {path.name for path in tmp_path.iterdir()}


def test_a_store_that_wants_newer_workers_is_refused(case):
    case.want_workers(2)

    with pytest.raises(SchemaMismatch, match="wants workers of schema 2 or newer"):
        case.open()


def test_a_fact_file_that_cannot_be_read_is_told_and_nothing_is_made_anew(case):
    path = case.store.path / "haulage.json"
    path.write_bytes(b"")

    with pytest.raises(StoreUnavailable, match=r"haulage.json: it is empty; put it back from a backup"):
        case.open()

    assert b"" == path.read_bytes()


@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("directory:///srv/haulage", "/srv/haulage"),
        ("directory:./runs", "runs"),
        ("directory:///srv/ein Ordner/報告", "/srv/ein Ordner/報告"),
    ],
)
def test_a_url_names_a_folder(url, path):
    assert Path(path) == directory_path(url)


@pytest.mark.parametrize("url", ["directory:", "directory://", "directory:///", "directory:///srv?mode=ro"])
def test_a_url_that_names_no_folder_is_refused(url):
    with pytest.raises(ValueError, match=r"names no folder; write directory:///srv/haulage|takes no options"):
        directory_path(url)


def test_everything_can_be_taken_away(case):
    case.hold()
    case.store.migrate("base")

    assert case.store.schema().new
    case.store.migrate()
    assert (1, 0) == (case.store.schema().version, case.runs.waiting())


# -- the volume ---------------------------------------------------------------------------------------------


def test_a_volume_that_keeps_everything_has_no_faults(case):
    assert [] == volume.deep_faults_of(case.store.path)
    assert [] == list(case.store.path.glob(".*"))


def test_two_processes_meet_and_find_nothing(case, folder):
    place = folder / "shared"
    place.mkdir(mode=0o700)
    sides = []

    def come(name):
        side = peer.Side(place, name)
        sides.append(side.meet(20))
        side.leave()

    threads = [threading.Thread(target=come, args=(name,)) for name in ("a_1", "b_2")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert [[], []] == [met.faults for met in sides]
    assert {"a, process 1", "b, process 2"} == {met.other for met in sides}
    assert [] == list(folder.glob("shared/*"))


def test_whoever_waits_for_a_host_that_does_not_come_is_told(case):
    with pytest.raises(peer.Alone, match="nobody came"):
        peer.meet(case.store.path, seconds=0.1)

    assert [] == list(case.store.path.glob(".*"))


def test_the_clock_of_the_store_is_that_of_the_volume(case, monkeypatch):
    """A host whose own clock is an hour off neither loses its lease nor takes that of another."""
    lose = case.moves("lose")
    run = case.add()
    held, _ = case.runs.claim(case.terms(only=run.id))
    monkeypatch.setattr("time.time_ns", lambda: NOW * 1_000_000)
    monkeypatch.setattr("time.time", lambda: NOW / 1000)
    here = case.open()
    lost = here.exports.sweep(lose, {}, worker="sweeper")
    here.exports.heartbeat([(held, None)], lease_seconds=15)

    assert [] == lost
    assert abs(here.now() - case.store.now()) < 5_000
    assert abs(case.get(held.id).lease_until - case.store.now() - 15_000) < 5_000
    here.close()


@pytest.mark.parametrize("kind", ["tmpfs", "nfs4", None])
def test_only_where_others_cannot_write_the_kernel_is_listened_to(case, monkeypatch, kind):
    monkeypatch.setattr("haulage.stores.directory.watcher.kind_of", lambda _path: kind)
    hint = case.store.watch()
    first = [hint.changed(), hint.changed()]
    case.add()
    second = [hint.stirred(), hint.changed(), hint.changed()]
    heard = hint.descriptor is not None
    hint.close()

    assert ([True, False], [kind == "tmpfs", True, False], kind == "tmpfs") == (first, second, heard)


def test_the_kind_of_a_volume_is_known(case):
    assert watcher.kind_of(case.store.path) in watcher.OF_THIS_HOST
    assert "proc" == watcher.kind_of(Path("/proc"))


def test_a_change_that_was_begun_and_not_ended_is_none_yet(case):
    """The writer died in between; the next one sets it right."""
    hint = case.store.watch()
    hint.changed()
    with case.store.folder.writing() as tx:
        tx.begin()
        tx.begun = False  # so that it is never ended
    begun = hint.changed()
    known = case.runs.waiting()
    case.add()

    assert (False, 0, True, 1) == (begun, known, hint.changed(), case.runs.waiting())
    hint.close()


def test_opening_without_migration_leaves_an_empty_folder_empty(tmp_path):
    folder = tmp_path / "new"
    store = open_directory(f"directory://{folder}", migrate_new=False)

    assert store.schema().new
    assert [] == list(folder.iterdir())


def test_a_store_of_files_loads_no_database(tmp_path):
    program = """
import sys, haulage
haul = haulage.Haulage.from_toml(sys.argv[1])
haul.supervisor(), haul.sweeper().pass_once(), haul.store.exports.waiting()
print([name for name in ("sqlalchemy", "alembic") if name in sys.modules])
"""
    config = tmp_path / "haulage.toml"
    config.write_text(f'store = "directory:./runs"\nsecret_keys = ["{"0123456789abcdef" * 4}"]\n')
    answer = subprocess.run([sys.executable, "-c", program, config], capture_output=True, text=True, check=True)

    assert "[]" == answer.stdout.strip()
    assert (tmp_path / "runs" / "haulage.json").exists()
