"""What a host easily gives by mistake is refused where it is given, not found missing later."""

from __future__ import annotations

import pytest

from haulage import Requester


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"tenant": 7, "account": "amina"}, "Requester(tenant=7) is no text"),
        ({"tenant": "north", "account": 5}, "Requester(account=5) is no text"),
        ({"tenant": "north", "account": "amina", "session": None}, "Requester(session=None) is no text"),
        ({"tenant": "north", "account": "amina", "grants": "read"}, 'Requester(grants="read") is one text'),
    ],
)
def test_what_is_no_text_is_refused(given, told):
    with pytest.raises(TypeError) as refused:
        Requester(**given)

    assert str(refused.value).startswith(told)


@pytest.mark.parametrize("name", ["tenant", "account"])
@pytest.mark.parametrize(("text", "why"), [
    ("", "0 characters; write 1 to 200"), ("n" * 201, "201 characters; write 1 to 200"),
    ("nor\0th", "a NUL or half a surrogate pair"), ("\ud800", "a NUL or half a surrogate pair"),
])  # fmt: skip
def test_a_name_that_not_every_store_keeps_is_refused(name, text, why):
    with pytest.raises(ValueError, match=rf"Requester\({name}=…\) has {why}"):
        Requester(**{"tenant": "north", "account": "amina", name: text})
    Requester(**{"tenant": "north", "account": "amina", name: "ñ" * 200})


def test_grants_of_any_kind_become_a_set():
    requester = Requester("north", "amina", ["orders.read", "orders.read"])

    assert frozenset({"orders.read"}) == requester.grants
    assert requester.holds("orders.read")
    assert not requester.holds("orders")
