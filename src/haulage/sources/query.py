"""One query as an operator wrote it, and how every SQL source wraps it.

    select columns from (query) as haulage_query where visible order by …

Where cells are blanked, what ``blanking.py`` says stands in the place of the query.

Column names come from the query itself before the wrap; the order stands outside of it. What differs between
databases (how a value gets into the SQL, what a column is written as) is given to these functions.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from importlib import import_module
from typing import Any, NamedTuple, Protocol

from haulage.core.binds import rewrite_names, statements
from haulage.core.errors import BuildFailed
from haulage.core.reading import Column, Reading, unique_names
from haulage.sources.blanking import blanked, faulty

WRAP = "haulage_query"  # what the query is called inside its wrap
ORDER_TERM = r'\s*("(?:[^"]|"")+"|\S+)(\s+(?:asc|desc))?(\s+nulls\s+(?:first|last))?\s*'


class Name(NamedTuple):
    """One column of a query: as a request names it, as the query does, and as it stands inside the wrap."""

    key: str
    own: str
    inside: str


class _Source(Protocol):
    def snapshot(self) -> AbstractContextManager[Any]: ...


def checked(source: _Source, reading: Reading) -> list[str]:
    """Prepare a query in a snapshot of its own; every problem as a sentence for the operator."""
    try:
        with source.snapshot() as snapshot:
            return faulty(reading, snapshot.problems)
    except BuildFailed as failed:
        return [f"{failed.detail} ({failed.cause})" if failed.cause else failed.detail]


def needed(module: str, extra: str) -> Any:
    """A driver.

    Raises:
        BuildFailed: it is not installed.
    """
    try:
        return import_module(module)
    except ImportError as problem:
        why = f"{module} not found; install the {extra} extra: pip install 'haulage[{extra}]'"
        raise BuildFailed("source_unavailable", cause=why) from problem


def bare(reading: Reading) -> str:
    """The operator's one statement, ready to be wrapped."""
    found = statements(reading.sql)
    if len(found) != 1:
        raise BuildFailed("source_failed", cause=f"write one statement, not {len(found)}")
    return found[0]


def quoted(name: str) -> str:
    """A name as an identifier of SQL."""
    return '"' + name.replace('"', '""') + '"'


def wrapped(
    reading: Reading, what: str, bound: Callable[[str], str], names: Sequence[Name] = (), wrap: str = WRAP
) -> str:
    """The query in its wrap, without an order; ``bound`` puts the values in, ``wrap`` may name its columns anew."""
    query = f"(\n{bound(bare(reading))}\n) as {wrap}"
    return f"select {what} from {seen(reading, query, bound, names)}"


def seen(
    reading: Reading,
    query: str,
    bound: Callable[[str], str],
    names: Sequence[Name],
    quoted: Callable[[str], str] = quoted,
    bits: Collection[Name] = (),
) -> str:
    """What stands after FROM: the query with its condition, and its columns as the requester may see them."""
    rows = query + visible_rows(reading, bound)
    if not reading.blanked:
        return rows
    return f"(\nselect {blanked(reading, names, bound, quoted, WRAP, bits)} from {rows}\n) as {WRAP}"


def visible_rows(reading: Reading, bound: Callable[[str], str]) -> str:
    """The condition that stands after the wrapped query."""
    return f"\nwhere (\n{bound(reading.visible)}\n)" if reading.visible else ""


def with_values(reading: Reading, literal: Callable[[Any, str | None], str]) -> Callable[[str], str]:
    """What puts the bound values into SQL as literals, a list as one for each; ``literal`` knows value and type."""

    def value_of(name: str) -> str:
        if name not in reading.binds:
            raise BuildFailed("source_failed", cause=f"nothing is bound as :{name}")
        value, kind = reading.binds[name], reading.types.get(name)
        if isinstance(value, list | tuple):
            return ", ".join(literal(item, kind) for item in value) or "null"
        return literal(value, kind)

    return lambda sql: rewrite_names(sql, value_of)


def unquoted(value: Any, kind: str | None) -> str | None:
    """A bound value that needs no quotes, as SQL; None for a text."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return f"({value!r})"  # -1 after a minus would begin a comment
    if kind == "decimal":
        from decimal import Decimal  # takes 2 ms to load

        return f"({Decimal(value):f})"
    return None


def chosen(reading: Reading, names: Sequence[Name]) -> list[Name]:
    """The columns asked for; a hidden one cannot be asked for, and one that is not there cannot be hidden.

    A misspelt or renamed column would else be written, which somebody meant to keep back.
    """
    hidden = {name.lower() for name in reading.hidden}
    there = {name.lower() for each in names for name in (each.own, each.key)}
    if unknown := [name for name in reading.hidden if name.lower() not in there]:
        raise BuildFailed("source_failed", cause=f"hidden: the query has no column {', '.join(map(repr, unknown))}")
    # Both columns of `select secret, secret` are hidden, and a Secret is too: SQL knows no case.
    shown = [each for each in names if not {each.own.lower(), each.key.lower()} & hidden]
    if reading.columns is not None:
        by_key = {each.key: each for each in shown}
        missing = [key for key in reading.columns if key not in by_key]
        if missing:
            raise BuildFailed("source_failed", cause=f"the query has no column {missing[0]!r} to write")
        shown = [by_key[key] for key in reading.columns]
    if not shown:
        why = "every column of the query is hidden" if names else "the query has no columns"
        raise BuildFailed("source_failed", cause=why)
    return shown


def columns_of(
    reading: Reading,
    shown: Sequence[Name],
    known: Mapping[str, tuple[str | None, str | None]] | None = None,
    foreign: Collection[str] = (),
) -> tuple[Column, ...]:
    """Columns of a file, with headers and types as declared.

    Args:
        known: by key what the source says of each: the type that it is to a file, and its own name of it.
        foreign: keys of those whose type no format has, unless another one is declared.
    """
    columns = []
    for name in shown:
        header, kind = reading.declared.get(name.key, (name.key, None))
        ours, theirs = (known or {}).get(name.key, (None, None))
        kind = kind or ours
        columns.append(Column(name.key, header, kind, theirs, foreign=kind is None and name.key in foreign))
    headers = unique_names([column.header for column in columns])
    return tuple(column._replace(header=header) for column, header in zip(columns, headers, strict=True))


def order_by(reading: Reading, names: Sequence[Name], prefix: str = "", quoted: Callable[[str], str] = quoted) -> str:
    """The order, and how many rows; each name with the prefix before it, and quoted as the database has it."""
    terms = []
    for term in reading.order:
        name, direction = order_term(term, names)
        terms.append(prefix + quoted(name.inside) + direction)
    ordered = "\norder by " + ", ".join(terms) if terms else ""
    return ordered if reading.limit is None else f"{ordered}\nlimit {reading.limit}"


def order_term(term: str, names: Sequence[Name]) -> tuple[Name, str]:
    """One term of the order. A name that is unknown is refused: SQLite would take it for text, and not order."""
    parsed = re.fullmatch(ORDER_TERM, term, re.IGNORECASE)
    if parsed is None:
        raise BuildFailed("source_failed", cause=f'order: {term!r} is not understood; write "name desc"')
    name = parsed[1][1:-1].replace('""', '"') if parsed[1].startswith('"') else parsed[1]
    found = [each for each in names if each.key == name] or [each for each in names if each.key.lower() == name.lower()]
    if not found:
        raise BuildFailed("source_failed", cause=f"order: the query has no column {name!r}")
    return found[0], (parsed[2] or "") + (parsed[3] or "")


def unknown_names(reading: Reading, names: Sequence[Name]) -> list[str]:
    """Columns that a dataset declares and its query does not have, as sentences."""
    known = {name.key for name in names}
    return [f"columns: the query has no column {name!r}" for name in reading.declared if name not in known]


def without_values(words: str, binds: Mapping[str, object] | None = None) -> str:
    """What a database says, without what it quotes: the text of a cell, and every word of a bound value.

    Example:
        >>> without_values("JSON path error near 'hush'"), without_values("no such column: hush", {"q": "hush: a"})
        ("JSON path error near '…'", 'no such column: …')
    """
    return without_bound(re.sub("'.*'", "'…'", words, flags=re.DOTALL), binds or {})


def without_bound(words: str, binds: Mapping[str, object]) -> str:
    """Words without any of a bound value."""
    bound = {word for value in binds.values() for word in re.findall(r"\w+", str(value))}
    return re.sub(r"\w+", lambda found: "…" if found[0] in bound else found[0], words)


def mended(raw: bytes) -> tuple[str, int]:
    """Text of bytes that should be UTF-8, and how many characters had to be replaced.

    A lone surrogate stays one character here; the encoder replaces and counts it.
    """
    try:
        return raw.decode("utf-8", "surrogatepass"), 0
    except UnicodeDecodeError:
        text = raw.decode("utf-8", "replace")
        return text, text.count("\ufffd") - raw.count(b"\xef\xbf\xbd")
