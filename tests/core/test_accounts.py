"""Who a key stands for is read again when the file changes; a ban counts at once, and one that cannot is told."""

from __future__ import annotations

import pytest
from tests.core.configuration import SMALLEST, writer

from haulage.accounts import Accounts
from haulage.config import load, new_key
from haulage.core import events
from haulage.core.requester import Requester

OLD, NEW = new_key(), new_key()
TWO = "".join(
    f'[keys.{name}]\nhash = "{hash_}"\ntenant = "north"\naccount = "amina"\ngrants = ["orders.read"]\n'
    for name, (_, hash_) in (("old", OLD), ("new", NEW))
)


@pytest.fixture
def write(tmp_path):
    return writer(tmp_path)


@pytest.fixture
def seen():
    return []


@pytest.fixture
def accounts(write, seen):
    return Accounts(load(write(SMALLEST + TWO), {}), {}, seen.append)


def test_a_banned_key_is_nobody_and_its_runs_stand_banned(accounts, write):
    before = accounts.find(OLD[0])
    write(SMALLEST + TWO.replace("[keys.old]", "[keys.old]\nbanned = true"))
    after = accounts.standing(before)

    assert ("north", "amina", "old") == (before.tenant, before.account, before.key)
    assert (None, None) == (accounts.find(OLD[0]), accounts.named("old"))
    assert (True, False) == (after.banned, after.holds("orders.read"))


def test_the_other_key_of_the_account_goes_on(accounts, write):
    write(SMALLEST + TWO.replace("[keys.old]", "[keys.old]\nbanned = true"))

    assert "new" == accounts.find(NEW[0]).key
    assert accounts.standing(accounts.find(NEW[0])).holds("orders.read")


@pytest.mark.parametrize("fault", ["grants = [", '[keys.other]\nhash = "no hash"\n'])
def test_a_file_with_faults_changes_nobody_and_is_told_once(accounts, write, seen, fault):
    write(SMALLEST + TWO.replace("[keys.old]", "[keys.old]\nbanned = true") + fault)
    found = [accounts.find(OLD[0]) for _ in range(3)]
    told = list(seen)
    write(SMALLEST + TWO.replace("[keys.old]", "[keys.old]\nbanned = true"))

    assert all(found)
    assert [events.KeysNotRead] == [type(event) for event in told]
    assert told[0].faults
    assert accounts.find(OLD[0]) is None


def test_a_host_that_answers_nobody_is_told_what_to_answer(accounts):
    accounts.ask_host(lambda _asked: None)

    with pytest.raises(TypeError, match="standing answered a NoneType; it has to answer a Requester"):
        accounts.standing(Requester("north", "amina"))
