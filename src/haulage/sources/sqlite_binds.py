"""What is bound to a statement of SQLite, and how its names are written."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from haulage.core.binds import rewrite_names

if TYPE_CHECKING:
    from haulage.core.reading import Reading


def in_backquotes(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def listed(sql: str, reading: Reading) -> str:
    """Write a list parameter as one bind per value: ``in (:names)`` becomes ``in (:names_N0, :names_N1)``.

    No parameter has a capital, so none can stand in the place of another's value.
    """

    def replace(name: str) -> str:
        value = reading.binds.get(name)
        if not isinstance(value, list | tuple):
            return f":{name}"
        return ", ".join(f":{name}_N{index}" for index in range(len(value))) or "null"

    return rewrite_names(sql, replace)


def binds_of(reading: Reading) -> dict[str, Any]:
    binds: dict[str, Any] = {}
    for name, value in reading.binds.items():
        kind = reading.types.get(name)
        if isinstance(value, list | tuple):
            binds |= {f"{name}_N{index}": adapted(item, kind) for index, item in enumerate(value)}
        else:
            binds[name] = adapted(value, kind)
    return binds


def adapted(value: Any, kind: str | None) -> Any:
    """A bound value as SQLite compares it: numbers as numbers, instants in SQLite's own text form."""
    if isinstance(value, str) and kind == "decimal":
        from decimal import Decimal  # takes 2 ms to load

        number = Decimal(value)
        return int(number) if number == number.to_integral_value() and abs(number) < 2**63 else float(number)
    if isinstance(value, str) and kind == "timestamp":
        from datetime import UTC, datetime

        moment = datetime.fromisoformat(value).astimezone(UTC)
        return moment.strftime("%Y-%m-%d %H:%M:%S") + (f".{moment.microsecond:06d}" if moment.microsecond else "")
    return int(value) if isinstance(value, bool) else value
