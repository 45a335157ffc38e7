"""A store that is locked, full, or not there says so, and nothing is half done."""

from __future__ import annotations

import os
import subprocess
import time

import pytest
from tests.conformance.cases import MINUTE, STORES, Sqlite
from tests.conformance.processes import CONTEXT

from haulage.core.errors import StoreUnavailable
from haulage.core.ports import KeptKey
from haulage.stores.open import open_store

pytestmark = pytest.mark.slow

WRITES = {
    "add": lambda case, _held: case.add(),
    "claim": lambda case, _held: case.claim(slots=9),
    "heartbeat": lambda case, held: case.beat(held),
    "settle": lambda case, held: case.settle(held, case.moves("finish")),
    "move": lambda case, _held: case.runs.move("a-run", case.moves("abandon"), {}),
    "request_cancel": lambda case, held: case.cancel(held.id),
    "sweep": lambda case, _held: case.runs.sweep(case.moves("lose"), {}, worker="s", now=case.now + MINUTE),
    "announce": lambda case, _held: case.presence(),
    "migrate": lambda case, _held: case.store.migrate(),
    "check": lambda case, _held: case.store.check(),
}
READS = {
    "get": lambda case, held: case.get(held.id).state,
    "waiting": lambda case, _held: case.runs.waiting(),
    "claiming": lambda case, _held: case.store.workers.claiming(15),
    "key": lambda case, _held: case.store.keys.find("north", "amina", "k"),
}


@pytest.fixture
def impatient(case, monkeypatch):
    """A case whose store waits for a lock less long than others do, for the sake of the test."""
    case.opener.impatient(monkeypatch)
    case.store.close()
    case.store = case.open()
    return case


@pytest.mark.parametrize("name", WRITES)
def test_a_locked_store_is_unavailable_and_nothing_was_written(impatient, name):
    held = impatient.hold()
    before = impatient.get(held.id), impatient.runs.waiting()

    with impatient.opener.locked(impatient.url), pytest.raises(StoreUnavailable):
        WRITES[name](impatient, held)

    assert before == (impatient.get(held.id), impatient.runs.waiting())


def test_a_lock_is_waited_for_but_not_longer_than_a_beat(case):
    held = case.hold()
    began = time.monotonic()

    with case.opener.locked(case.url), pytest.raises(StoreUnavailable):
        case.beat(held)

    assert 0.5 < time.monotonic() - began < 15


@pytest.mark.parametrize("name", READS)
def test_a_store_that_another_writes_to_can_be_read(case, name):
    held = case.hold()

    with case.opener.locked(case.url):
        locked = READS[name](case, held)

    assert READS[name](case, held) == locked


def test_a_store_answers_again_when_the_lock_is_gone(impatient):
    held = impatient.hold()
    with impatient.opener.locked(impatient.url), pytest.raises(StoreUnavailable):
        impatient.beat(held)

    assert impatient.beat(held).held


def add_with_its_key(case, run):
    with case.store.begin() as tx:
        case.store.keys.keep("north", "amina", "k", KeptKey("b" * 64, run.id), seconds=60, now=case.now, tx=tx)
        case.runs.add(run, tx=tx)


def test_a_full_store_is_unavailable_and_nothing_is_half_written(case):
    """Also where a store has no transactions: a run and the key that stands for it are one (DECISIONS 32)."""
    case.needs_opener("without_space")
    large = case.kit.new(tenant="north", requested_at=case.now, parameters={"text": "x" * 200_000})

    with case.opener.without_space(case.store):
        with pytest.raises(StoreUnavailable, match=r"full|No space"):
            add_with_its_key(case, large)
        half = case.get(large), case.store.keys.find("north", "amina", "k", now=case.now)
    case.runs.add(large)

    assert (None, None) == half
    assert large == case.get(large)


@pytest.mark.root
def test_a_full_disk_is_told_and_the_store_is_whole_when_space_returns(folder, case):
    """Not a limit of the database but of the file system under it: a commit fails in the middle."""
    if os.geteuid() != 0:
        pytest.skip("needs root to mount a small file system")
    case.needs_opener("without_space")
    small = folder / "small"
    small.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", small], check=True)
    try:
        tight = type(case)(case.opener, case.flow, small)
        kept = []
        with pytest.raises(StoreUnavailable):
            kept.extend(tight.add(parameters={"text": "x" * 100_000}) for _ in range(100))
        refused = tight.runs.waiting()
        subprocess.run(["mount", "-o", "remount,size=64m", small], check=True)
        last = tight.add(parameters={"text": "x" * 100_000})
        tight.store.close()
    finally:
        subprocess.run(["umount", small], check=True)

    assert len(kept) == refused
    assert last not in kept


def test_a_store_that_is_unavailable_shows_no_value_of_a_row(impatient):
    secret = "a-value-of-a-row"
    held = impatient.hold()

    with impatient.opener.locked(impatient.url), pytest.raises(StoreUnavailable) as refused:
        impatient.settle(held, impatient.moves("fail"), failure_detail=secret)

    chain, problem = "", refused.value
    while problem is not None:
        chain += f"{type(problem).__name__}: {problem}\n"
        problem = problem.__cause__ or problem.__context__
    assert secret not in chain


def test_a_row_that_is_refused_shows_no_value_of_it(case):
    secret = "a-value-of-a-row"
    case.add(active_key="k")

    with pytest.raises(AssertionError) as refused:
        case.add(secret, active_key="k")

    assert secret not in str(refused.value)
    assert secret not in str(refused.value.__cause__)


# -- files that cannot be opened --------------------------------------------------------------------------


def test_a_folder_that_cannot_be_made_is_told_with_its_path(tmp_path):
    (tmp_path / "a-file").write_text("")

    with pytest.raises(StoreUnavailable, match=r"a-file/haulage\.db"):
        open_store(f"sqlite:///{tmp_path}/a-file/haulage.db")


def test_a_folder_in_the_place_of_the_store_is_unavailable(tmp_path):
    with pytest.raises(StoreUnavailable, match="unable to open"):
        open_store(f"sqlite:///{tmp_path}")


@pytest.mark.root
@pytest.mark.process
@pytest.mark.parametrize("mode", [0o400, 0o000])
def test_a_file_that_may_not_be_written_is_unavailable(folder, mode):
    """As another user than root, for whom every file can be written."""
    if os.geteuid() != 0:
        pytest.skip("needs root to become somebody else")
    url = Sqlite().url(folder)
    folder.joinpath("store.db").chmod(mode)
    folder.chmod(0o755)
    answers = CONTEXT.Queue()
    process = CONTEXT.Process(target=_as_nobody, args=(url, answers))
    process.start()

    answer = answers.get(timeout=120)

    process.join()
    assert "StoreUnavailable" == answer


def _as_nobody(url, answers):
    os.setuid(65534)
    try:
        store = open_store(url)
        store.check()
    except Exception as problem:  # noqa: BLE001 - its name is the answer
        answers.put(type(problem).__name__)
    else:
        answers.put("opened")


def test_a_hint_that_cannot_be_read_is_unavailable(case, monkeypatch):
    watcher = case.store.watch()
    watcher.changed()
    case.opener.deafen(watcher, monkeypatch)

    with pytest.raises(StoreUnavailable):
        _ask_for(60, watcher)

    watcher.close()


def _ask_for(seconds, watcher):
    give_up = time.monotonic() + seconds
    while time.monotonic() < give_up:
        watcher.changed()


def test_every_store_has_a_way_to_make_it_trouble():
    assert all(hasattr(opener, "locked") and hasattr(opener, "deafen") for opener in STORES.values())


def test_what_is_said_of_a_row_that_a_store_refuses_tells_nothing_of_it(case):
    """A slot is for those who run."""
    run = case.kit.new(requested_at=case.now, account="hush-4711", slot=1)

    with pytest.raises(AssertionError) as refused:
        case.runs.add(run)

    assert "hush" not in str(refused.value)
