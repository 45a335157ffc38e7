"""The hash of a file that is made beside its bytes is that of all of them, in their order."""

from __future__ import annotations

import hashlib
import random
import threading
import time

import pytest

from haulage.artifacts import hashing
from haulage.artifacts.hashing import Sum


@pytest.fixture(autouse=True)
def two_processors(monkeypatch):
    monkeypatch.setattr(hashing.os, "cpu_count", lambda: 2)
    monkeypatch.setattr(hashing, "ALONE_BYTES", 5_000)
    monkeypatch.setattr(hashing, "AT_ONCE", 100_000)


def beside():
    return [thread for thread in threading.enumerate() if thread.name == "hash"]


def ended():
    until = time.monotonic() + 20
    while beside():
        assert time.monotonic() < until
        time.sleep(0.01)


def test_pieces_of_any_size_in_their_order():
    chance = random.Random(7)
    pieces = [chance.randbytes(chance.choice((0, 1, 700, 4_000, 100_000, 100_001, 300_000))) for _ in range(300)]
    summed, expected = Sum(), hashlib.sha256()
    for number, piece in enumerate(pieces):
        summed.update(piece)
        expected.update(piece)
        assert sum(map(len, summed._gathered)) == summed._size < 100_000
        if len(piece) > 100_000:
            assert (False, 0) == (summed._is_busy, summed._size)
        if number % 50 == 0 or len(piece) == 100_000:
            assert expected.digest() == summed.digest()
    assert expected.digest() == summed.digest()
    assert 1 == len(beside())

    del summed
    ended()


def test_no_more_waits_than_is_gathered():
    summed, piece = Sum(), b"x" * 60_000
    for _ in range(100):
        summed.update(piece)
        assert summed._todo.qsize() + summed._done.qsize() <= 1
    assert hashlib.sha256(piece * 100).digest() == summed.digest()


def test_few_bytes_need_no_thread():
    summed = Sum()
    summed.update(b"x" * 4_999)

    assert [] == beside()
    assert hashlib.sha256(b"x" * 4_999).digest() == summed.digest()


@pytest.mark.parametrize("why", ["one processor", "no further thread"])
def test_without_a_thread_it_is_the_same(monkeypatch, why):
    def refused(_thread):
        raise RuntimeError("can't start new thread")

    if why == "one processor":
        monkeypatch.setattr(hashing.os, "cpu_count", lambda: 1)
    else:
        monkeypatch.setattr(threading.Thread, "start", refused)
    summed = Sum()
    for _ in range(9):
        summed.update(b"x" * 4_000)

    assert [] == beside()
    assert hashlib.sha256(b"x" * 36_000).digest() == summed.digest()


def test_what_ends_the_thread_is_raised_where_bytes_are_added():
    """Whoever adds them would else wait for ever, or have the hash of other bytes."""
    summed = Sum()
    summed.update(b"x" * 5_000)
    summed.update(b"x" * 99_999)
    summed._gathered.append("no bytes")
    summed.update(b"x")  # now it is the thread's

    with pytest.raises(TypeError):
        summed.digest()
    ended()
