"""Idempotency keys, sign-ins, and who works: the small tables beside the runs."""

from __future__ import annotations

import pytest
from tests.conformance.cases import MINUTE

from haulage.core.ports import KeptKey, SignIn

KEPT = KeptKey("b" * 64, "run-1")


@pytest.fixture
def keys(case):
    case.store.keys.keep("north", "amina", "k", KEPT, seconds=60, now=case.now)
    return case.store.keys


def test_a_key_is_found_by_its_own_tenant_and_account_only(case, keys):
    asked = [("north", "amina", "k"), ("south", "amina", "k"), ("north", "ben", "k"), ("north", "amina", "K")]

    assert [KEPT, None, None, None] == [keys.find(*who, now=case.now) for who in asked]


def test_a_key_is_found_until_its_time_is_over(case, keys):
    instants = (0, MINUTE - 1, MINUTE)

    assert [KEPT, KEPT, None] == [keys.find("north", "amina", "k", now=case.now + later) for later in instants]


def test_a_key_whose_time_is_over_can_be_used_again(case, keys):
    other = KeptKey("c" * 64, "run-2")
    keys.keep("north", "amina", "k", other, seconds=60, now=case.now + MINUTE)

    assert other == keys.find("north", "amina", "k", now=case.now + MINUTE)


def test_a_key_that_still_holds_is_never_written_over(case, keys):
    with pytest.raises(AssertionError, match="the store refused a row"):
        keys.keep("north", "amina", "k", KeptKey("c" * 64, "run-2"), seconds=60, now=case.now + MINUTE - 1)

    assert KEPT == keys.find("north", "amina", "k", now=case.now)


def test_only_keys_whose_time_is_over_are_forgotten(case, keys):
    keys.keep("north", "amina", "later", KEPT, seconds=120, now=case.now)

    assert [0, 1, 0] == [keys.forget(now=case.now + later) for later in (MINUTE - 1, MINUTE, MINUTE)]
    assert KEPT == keys.find("north", "amina", "later", now=case.now + MINUTE)


# -- sign-ins -------------------------------------------------------------------------------------------


@pytest.fixture
def sign_in(case):
    signed = SignIn("s" * 64, "amina", "north", "amina", case.now + MINUTE)
    case.store.sessions.open(signed)
    return signed


def test_a_sign_in_is_found_until_it_ends(case, sign_in):
    instants = (0, MINUTE - 1, MINUTE)

    assert [sign_in, sign_in, None] == [
        case.store.sessions.find(sign_in.id, now=case.now + later) for later in instants
    ]
    assert None is case.store.sessions.find("t" * 64, now=case.now)


def test_signing_out_ends_it_at_once(case, sign_in):
    case.store.sessions.close(sign_in.id)

    assert None is case.store.sessions.find(sign_in.id, now=case.now)


def test_a_link_works_once(case, sign_in):
    taken = [case.store.sessions.take(sign_in.id, now=case.now) for _ in range(2)]

    assert [sign_in, None] == taken


def test_a_link_works_only_in_its_time(case, sign_in):
    assert None is case.store.sessions.take(sign_in.id, now=case.now + MINUTE)
    assert sign_in == case.store.sessions.take(sign_in.id, now=case.now + MINUTE - 1)


def test_only_sign_ins_that_have_ended_are_forgotten(case, sign_in):
    assert [0, 1] == [case.store.sessions.forget(now=case.now + later) for later in (MINUTE - 1, MINUTE)]
