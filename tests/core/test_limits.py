"""The defaults in literal numbers, and limits that cannot work together."""

from __future__ import annotations

from dataclasses import replace

import pytest

from haulage.core.lease import trusted_until
from haulage.core.limits import BuildLimits, DoorLimits, ExportLimits

USUAL = ExportLimits()


def test_the_defaults_work_together():
    assert [] == USUAL.faults()


def test_the_defaults_are_these():
    assert (2, 134_217_728, 536_870_912) == (USUAL.slots, USUAL.build.file_bytes, USUAL.store_bytes)
    assert (120, 150, 600) == (USUAL.build.generation_seconds, USUAL.queue_seconds, USUAL.expiry_seconds)
    assert (15, 1, 0.25, 5) == (
        USUAL.lease_seconds,
        USUAL.beat_seconds,
        USUAL.progress_seconds,
        USUAL.stop_seconds,
    )
    assert (10_000_000, 604_800) == (USUAL.build.rows, USUAL.retention_seconds)
    assert (1_000_000, 1_000) == (USUAL.build.groups, USUAL.build.pivot_columns)
    assert (20, 2, 1_000) == (USUAL.tenant_queued, USUAL.tenant_running, USUAL.queued)
    assert (120, 60, 15, 5) == (
        USUAL.drain_seconds,
        USUAL.abandon_seconds,
        USUAL.presence_seconds,
        USUAL.sweep_seconds,
    )
    assert (10, 86_400) == (USUAL.build.count_seconds, USUAL.idempotency_seconds)
    assert 10_000 == USUAL.idempotency_keys


def test_the_defaults_of_the_doors_are_these():
    doors = DoorLimits()

    assert (65_536, 200, 300) == (doors.body_bytes, doors.page_size, doors.file_token_seconds)
    assert (60, 600) == (doors.download_stall_seconds, doors.download_seconds)
    assert (8, 200, 1) == (doors.downloads, doors.downloads_in_all, doors.grant_check_seconds)
    assert (10, 43_200, 8) == (doors.sessions, doors.session_seconds, doors.event_streams)
    assert (5, 5) == (doors.evaluate_seconds, doors.host_seconds)


@pytest.mark.parametrize(("beat", "faults"), [(3, 0), (3.01, 1), (15, 1)])
def test_a_beat_fits_five_times_into_a_lease(beat, faults):
    assert faults == len(replace(USUAL, beat_seconds=beat).faults())


def test_a_beat_that_is_too_slow_is_told_with_what_to_write():
    assert [
        "limits.exports.beat_seconds = 4: a beat must fit five times into lease_seconds = 15; write at most 3"
    ] == replace(USUAL, beat_seconds=4).faults()


def test_a_file_may_not_be_larger_than_the_store():
    limits = replace(USUAL, build=BuildLimits(file_bytes=101), store_bytes=100)

    assert ["limits.exports.file_bytes = 101: one file may not be larger than store_bytes = 100"] == limits.faults()
    assert [] == replace(limits, store_bytes=101).faults()


def test_every_fault_is_told_at_once():
    assert 2 == len(replace(USUAL, beat_seconds=4, store_bytes=1).faults())


def test_a_lease_is_trusted_from_when_the_beat_began_less_a_margin():
    assert 112.0 == trusted_until(beat_began=100.0, lease_seconds=15)
