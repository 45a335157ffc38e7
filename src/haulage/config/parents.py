"""``[parents.KIND]``: what exports can belong to, and the query that says whose one of them is."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Literal

from haulage.config.faults import Faults, meant
from haulage.config.kinds import TEXT, one_of
from haulage.config.table import Table
from haulage.core.binds import bound_names
from haulage.core.catalogue import NAME
from haulage.core.parents import BIND, OWNERS_BINDS, Parent

TYPE_KIND = one_of(("text", "integer"), "type of an id")


def read_parents(top: Table) -> tuple[Parent, ...]:
    """Every kind of parent of the file, in its order."""
    found = []
    for kind, table in top.tables("parents"):
        if not NAME.fullmatch(kind):
            why = "write a name of small letters, digits and _ that begins with a letter, at most 63"
            top.faults.say(f"{table.path}: {why}")
        of: Literal["text", "integer"] = "integer" if table.read("type", TYPE_KIND, "text") == "integer" else "text"
        found.append(
            Parent(
                kind=kind,
                label=table.read("label", TEXT, kind.replace("_", " ").capitalize()),
                type=of,
                source=table.demand("source", TEXT, ""),
                owners=table.demand("owners", TEXT, ""),
            )
        )
        table.close()
    return tuple(found)


def parent_faults(parent: Parent, sources: Collection[str], sessions: Mapping[str, Mapping[str, str]]) -> list[str]:
    """Everything about a kind of parent that cannot work.

    Args:
        sources: those there are.
        sessions: what each of them sets before a query.
    """
    faults, path = Faults(), f"parents.{parent.kind}"
    if parent.function is not None:
        return []
    if parent.source and parent.source not in sources:
        faults.wrong(f"{path}.source", parent.source, f"there is no such source; {meant(parent.source, sources)}")
    names = bound_names(parent.owners)
    for name in sorted(names - set(OWNERS_BINDS)):
        faults.say(f"{path}.owners binds :{name}; whose a parent is must not depend on more than :parent in its tenant")
    if parent.owners and BIND not in names:
        faults.say(f"{path}.owners does not bind :{BIND}; every parent would have the same owners")
    for value in sessions.get(parent.source, {}).values():
        if value not in ("", ":requester_tenant") and value.startswith(":"):
            why = "the sweep asks for nobody, and what it does not see would be taken for gone; use another source"
            faults.say(f"{path}.source sets {value} in its session: {why}")
    return faults.sentences
