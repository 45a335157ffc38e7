"""References to records that a requester may not open: their cells are NULL, for everything that looks at the query.

    select a, case when (condition) then b end as b from (query) as haulage_query where visible

stands in the place of the query, so neither order nor key, groups, counts or a preview knows more than what is written.
A condition is over the columns as the query gives them. What a source knows of their types stays true.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from haulage.core.errors import BuildFailed
from haulage.core.reading import Reading

if TYPE_CHECKING:
    from haulage.sources.query import Name


def conditions(reading: Reading, names: Sequence[Name]) -> Mapping[Name, str]:
    """Under which condition each blanked column is there.

    Both columns of `select a, a` are blanked, and A is too: SQL knows no case.

    Raises:
        BuildFailed: the query has no such column; a misspelt or renamed one would else be written.
    """
    wanted = {key.lower(): condition for key, condition in reading.blanked.items()}
    found = {name: wanted[key] for name in names for key in (name.own.lower(), name.key.lower()) if key in wanted}
    there = {key for name in found for key in (name.own.lower(), name.key.lower())}
    if unknown := [key for key in reading.blanked if key.lower() not in there]:
        why = f"columns: the query has no column {', '.join(map(repr, unknown))} to blank"
        raise BuildFailed("source_failed", cause=why)
    return found


def blanked(
    reading: Reading,
    names: Sequence[Name],
    bound: Callable[[str], str],
    quoted: Callable[[str], str],
    wrap: str,
    bits: Collection[Name] = (),
) -> str:
    """The columns of the query as they are to be seen, each under its name inside the wrap.

    Args:
        bits: of which CASE would make text.
    """
    hidden_unless = conditions(reading, names)
    cells = []
    for name in names:
        cell = f"{wrap}.{quoted(name.inside)}"
        if name in hidden_unless:
            shown = f"{cell} + 0" if name in bits else cell
            cell = f"case when (\n{bound(hidden_unless[name])}\n) then {shown} end"
        cells.append(f"{cell} as {quoted(name.inside)}")
    return ", ".join(cells)


def faulty(reading: Reading, problems: Callable[[Reading], Sequence[str]]) -> list[str]:
    """What is wrong with a query, and with which of its conditions; each is tried alone."""
    if not reading.blanked:
        return list(problems(reading))
    found = list(problems(reading._replace(blanked={})))
    for key, condition in reading.blanked.items():
        alone = problems(reading._replace(blanked={key: condition}))
        found += [f"columns.{key}.visible: {sentence}" for sentence in alone if sentence not in found]
    return found
