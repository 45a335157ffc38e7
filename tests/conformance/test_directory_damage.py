"""Files of a directory store that are damaged: moved aside whole, told, and never taken for a record."""

from __future__ import annotations

import errno
import os
import socket

import pytest
from tests.conformance.cases import DAY, MINUTE, Case, Directory
from tests.conformance.folders import age, look_anew, names

from haulage.core import events
from haulage.core.errors import StoreUnavailable
from haulage.core.ports import KeptKey, Query, SignIn
from haulage.flows import FLOWS
from haulage.stores.directory.letter import Unreadable, opened, sealed


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


# -- the content of a file --------------------------------------------------------------------------------


def lacking(data, name):
    """A whole record of a run, as somebody might have written it who knows the checksum."""
    run = opened("run", data)["run"]
    return sealed("run", {"run": {each: value for each, value in run.items() if each != name}})


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
    "a run without its clocks": lambda data: lacking(data, "requested_at"),
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


def plant(kind, path, precious="nowhere"):
    """Something that is no file, in the place of one."""
    if path.exists():
        path.unlink()
    if kind == "socket":
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(os.path.relpath(path))  # A path of a socket may not be long.
    else:
        {"link": lambda: path.symlink_to(precious), "pipe": lambda: os.mkfifo(path), "folder": path.mkdir}[kind]()


NO_FILES = ["link", "pipe", "folder", "socket"]


@pytest.mark.parametrize("kind", NO_FILES)
def test_what_is_no_file_is_no_run_and_keeps_nobody_waiting(case, told, tmp_path, kind):
    run, precious = case.add(), tmp_path / "precious"
    precious.write_bytes(case.runs.live.path(run.id).read_bytes())
    planted = case.runs.live.path("planted")
    plant(kind, planted, precious)
    look_anew(case, told)

    assert run.id == case.claim()[0].id
    assert precious.exists()
    assert [("live/planted.json", "it is no file")] == [(event.file, event.reason) for event in told]


@pytest.mark.parametrize("kind", NO_FILES)
def test_what_is_no_file_is_no_key_sign_in_or_worker_and_stops_no_sweep(case, told, kind):
    case.presence("w1")
    for place in ("keys", "sessions", "workers"):
        plant(kind, case.store.path / place / "planted")
    seen = [presence.id for presence in case.store.workers.seen(60, now=case.now)]
    abandoned = case.runs.abandon_waiting(60, now=case.now)
    forgotten = [case.store.keys.forget(), case.store.sessions.forget(), case.store.workers.forget(1e9, now=case.now)]

    assert (["w1"], [], [0, 0, 0]) == (seen, abandoned, forgotten)
    assert {"keys/planted", "sessions/planted", "workers/planted"} == {event.file for event in told}
    assert {"it is no file"} == {event.reason for event in told}
    assert ["w1"] == names(case, "workers")


@pytest.mark.parametrize("kind", NO_FILES)
def test_a_worker_in_whose_place_something_else_lies_is_seen_again_at_its_next_beat(case, told, kind):
    case.presence("w1")
    plant(kind, case.store.path / "workers" / "w1")
    gone = case.store.workers.seen(60, now=case.now)
    case.presence("w1")

    assert ([], ["w1"]) == (gone, [presence.id for presence in case.store.workers.seen(60, now=case.now)])
    assert [("workers/w1", "it is no file")] == [(event.file, event.reason) for event in told]


@pytest.mark.parametrize("kind", NO_FILES)
def test_what_is_no_file_in_the_place_of_a_claim_leaves_the_lease_that_the_row_has(case, kind):
    held = case.hold()
    plant(kind, case.store.path / "held" / f"{held.id}.1")
    other = case.open()
    lost = other.exports.sweep(case.moves("lose"), {}, worker="sweeper", now=case.now + 14_000)
    listed = other.exports.list(Query())
    late = other.exports.sweep(case.moves("lose"), {}, worker="sweeper", now=case.now + 15_000)
    other.close()

    assert ([], [held.id], [held.id]) == (lost, [run.id for run in listed], [run.id for run in late])


def test_a_word_why_that_cannot_be_read_hides_no_other(case):
    run = case.add()
    path = case.runs.live.path(run.id)
    path.write_bytes(b"")
    case.get(run)
    (case.store.path / "quarantine" / "a.why").mkdir()
    (case.store.path / "quarantine" / "b.why").symlink_to("nowhere")

    told = case.store.quarantined()
    assert [f"quarantine/{name}.why: it does not say what was wrong" for name in "ab"] == sorted(told)[-2:]
    assert f"live/{run.id}.json: it is empty" in told


def test_facts_that_are_none_are_not_written_again(case):
    facts = case.store.path / "haulage.json"
    whole = facts.read_bytes()
    for content in (b"", whole[:-1]):
        facts.write_bytes(content)
        with pytest.raises(StoreUnavailable, match=r"haulage\.json"):
            case.store.check()
        assert content == facts.read_bytes()
    facts.unlink()
    os.mkfifo(facts)
    with pytest.raises(StoreUnavailable, match=r"haulage\.json"):
        case.store.check()


def test_a_lock_whose_count_cannot_be_read_is_let_go(case, monkeypatch):
    """As where the volume answers EIO once: who cannot read what it locked must not keep it."""
    monkeypatch.setattr("haulage.stores.directory.folder._read_count", failing)
    with pytest.raises(StoreUnavailable, match="Input/output error"):
        case.add()
    monkeypatch.undo()

    assert "queued" == case.get(case.add().id).state


def failing(_descriptor):
    raise OSError(errno.EIO, os.strerror(errno.EIO))


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


def test_what_a_newer_haulage_wrote_about_a_run_is_kept_to_its_end(case, told):
    """A version may write more; the one before it works on beside it, and takes nothing away."""
    run = case.add()
    path = case.runs.live.path(run.id)
    record = opened("run", path.read_bytes())
    path.write_bytes(sealed("run", {**record, "run": {**record["run"], "colour": "blue"}}))
    look_anew(case, told)

    held, claimed = case.claim()
    case.beat(held)
    ended = case.settle(held, case.moves("finish"))
    expired = case.runs.move(run.id, case.moves("expire"), {}, now=case.now)

    (last,) = case.store.path.rglob(f"{run.id}.json")
    assert [run.id] * 3 == [claimed.id, ended.id, expired.id]
    assert ("blue", "expired") == tuple(opened("run", last.read_bytes())["run"][name] for name in ("colour", "state"))
    assert [] == told


@pytest.mark.parametrize("state", ["queued", "cancelled"])
def test_a_file_of_a_later_version_in_a_store_of_that_version_is_left_alone_and_stops_the_one_who_cannot_read_it(
    case, told, state
):
    run, _ = case.bring(state)
    path = next(case.store.path.rglob(f"{run.id}.json"))
    later = path.read_bytes().replace(b"haulage run 1 ", b"haulage run 2 ", 1)
    path.write_bytes(later)
    facts = opened("facts", (case.store.path / "haulage.json").read_bytes())
    (case.store.path / "haulage.json").write_bytes(sealed("facts", {**facts, "schema_version": 2}))
    look_anew(case, told)

    asks = [lambda: case.get(run), lambda: case.runs.list(Query())]
    if state == "queued":  # Nobody looks for bytes, or work, among those that have ended.
        asks += [case.claim, lambda: case.runs.promised([f"{run.id}.1"])]
    for ask in asks:
        with pytest.raises(StoreUnavailable, match=r"files of version 2.*install a newer haulage"):
            ask()
    assert later == path.read_bytes()
    assert [] == told
