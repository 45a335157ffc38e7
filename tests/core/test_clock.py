"""Instants as text, and ids that sort by time."""

from __future__ import annotations

import re
import time
import uuid

import pytest

from haulage.core.clock import http_date, new_id, now_ms, rfc3339

UUID7 = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")


def test_now_is_the_clock_of_the_host():
    assert 1_000 > abs(time.time() * 1000 - now_ms())


@pytest.mark.parametrize(
    ("instant", "text"),
    [
        (0, "1970-01-01T00:00:00.000Z"),
        (1, "1970-01-01T00:00:00.001Z"),
        (-1, "1969-12-31T23:59:59.999Z"),
        (1_709_769_599_000, "2024-03-06T23:59:59.000Z"),
        (1_709_164_800_050, "2024-02-29T00:00:00.050Z"),
        (253_402_300_799_999, "9999-12-31T23:59:59.999Z"),
        (None, None),
    ],
)
def test_an_instant_as_rfc_3339(instant, text):
    assert text == rfc3339(instant)


@pytest.mark.parametrize(
    ("instant", "text"),
    [
        (784_111_777_999, "Sun, 06 Nov 1994 08:49:37 GMT"),  # the example of RFC 9110
        (0, "Thu, 01 Jan 1970 00:00:00 GMT"),
        (1_709_164_800_000, "Thu, 29 Feb 2024 00:00:00 GMT"),
        (1_785_542_400_000, "Sat, 01 Aug 2026 00:00:00 GMT"),
    ],
)
def test_an_instant_as_an_http_date(instant, text):
    assert text == http_date(instant)


def test_dates_do_not_depend_on_the_zone_of_the_host(monkeypatch):
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    try:
        told = rfc3339(0), http_date(0)
    finally:
        monkeypatch.undo()
        time.tzset()

    assert ("1970-01-01T00:00:00.000Z", "Thu, 01 Jan 1970 00:00:00 GMT") == told


def test_an_id_is_a_uuid_of_version_7():
    for _ in range(200):
        text = new_id()

        assert UUID7.fullmatch(text)
        assert (7, uuid.RFC_4122, text) == (uuid.UUID(text).version, uuid.UUID(text).variant, str(uuid.UUID(text)))


def test_an_id_holds_its_millisecond():
    assert "017f22e2-79b0-7" == new_id(1_645_557_742_000)[:15]  # the example of RFC 9562


def test_ids_sort_as_their_milliseconds_do():
    instants = [0, 1, 999, 1_000, 1_800_000_000_000, 1_800_000_000_001, 2**48 - 1]
    ids = [new_id(instant) for instant in instants]

    assert ids == sorted(ids)


def test_ids_of_one_millisecond_differ():
    assert 10_000 == len({new_id(5) for _ in range(10_000)})


def test_every_random_bit_of_an_id_is_used():
    ids = [uuid.UUID(new_id(0)).int for _ in range(300)]
    always, ever = ids[0], 0
    for number in ids:
        always &= number
        ever |= number

    assert 0x7 << 76 | 0b10 << 62 == always
    assert (1 << 80) - 1 - (0x8 << 76) - (0b01 << 62) == ever
