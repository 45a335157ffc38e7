"""Parent resources: what of the host's exports can belong to, and whose it is.

A dataset names a *kind* of parent, ``book``; each of its exports belongs to one parent of that kind, which the host
knows by an id within a tenant. Whose it is, is asked each time and kept nowhere: a copy would be a second place to
disagree with.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, TypeAlias

from haulage.core.requester import ID_MAX

OWNERS_MAX = 1_000  # accounts that one parent may belong to; more are no answer
INTEGER_MAX = 2**63 - 1  # what every source can bind
BIND = "parent"  # the name under which the id is bound in a query
OWNERS_BINDS = (BIND, "requester_tenant")  # what the query that says whose a parent is can bind

# Gives the account, or the accounts, that a parent belongs to now; an empty collection where it is there and nobody's,
# None where it is not there, or not any more. Gets the tenant and the id. What it raises says that it does not know.
OwnersFunction: TypeAlias = Callable[[str, Any], str | Collection[str] | None]


@dataclass(frozen=True, slots=True)
class Parent:
    """A kind of parent, declared once: in ``[parents.KIND]``, or by ``Haulage.parent``.

    Args:
        type: of its ids: ``text``, compared character by character, or ``integer``, so that 7 and 07 are one.
        source: where ``owners`` is asked.
        owners: one SELECT whose first column is an account, a row for each; no row means that there is no such parent.
        function: instead of a query.
        session: its source's: what is set before the query runs.
    """

    kind: str
    label: str = ""
    type: Literal["text", "integer"] = "text"
    source: str = ""
    owners: str = ""
    function: OwnersFunction | None = field(default=None, compare=False)
    session: Mapping[str, str] = field(default_factory=dict)


class ParentRef(NamedTuple):
    """One parent, within a tenant. The id is a text, as it is kept; ``bound`` is what a query or a function gets.

    One without an id stands for none, where a query is only looked at.
    """

    kind: str
    id: str
    type: str = "text"

    @property
    def bound(self) -> str | int | None:
        """The id by its type."""
        if not self.id:
            return None
        return int(self.id) if self.type == "integer" else self.id


def read_id(parent: Parent, value: object) -> ParentRef:
    """The parent that a request names: by text, or by a number as JSON has it.

    Raises:
        ValueError: it can be no id; says what to write instead.
    """
    if isinstance(value, int) and not isinstance(value, bool):
        value = str(value)
    if not isinstance(value, str) or not 0 < len(value) <= ID_MAX or any(map(_is_unkept, value)):
        raise ValueError(f"is no id: write 1 to {ID_MAX} characters, without control characters")
    if parent.type == "integer":
        digits = value.removeprefix("-")
        if not (digits.isascii() and digits.isdigit()) or abs(int(value)) > INTEGER_MAX:
            raise ValueError("is no id: write a whole number, such as 42")
        value = str(int(value))
    return ParentRef(parent.kind, value, parent.type)


def _is_unkept(character: str) -> bool:
    """No database keeps half a surrogate pair, PostgreSQL no NUL; the others only make two ids look like one."""
    return unicodedata.category(character) in ("Cc", "Cs")
