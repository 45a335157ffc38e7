"""One table of the file, read key by key. What nobody has read at the end is an unknown key."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, TypeVar, overload

from haulage.config.faults import Faults, meant
from haulage.config.kinds import COUNT, SECONDS, SIZE, Given, Kind

T = TypeVar("T")


class Table:
    """Reads one table; every fault is collected and a default stands in for what cannot be used."""

    def __init__(self, values: Mapping[str, object], path: str, faults: Faults) -> None:
        """Take the values of a table and its dotted name; the whole file has the empty name."""
        self.values = values
        self.path = path
        self.faults = faults
        self._known: list[str] = []

    def key(self, key: str) -> str:
        """The dotted name of a key of this table."""
        return f"{self.path}.{key}" if self.path else key

    def has(self, key: str) -> bool:
        """Say whether a key is given."""
        return key in self.values

    @overload
    def read(self, key: str, kind: Kind[T], default: T) -> T: ...

    @overload
    def read(self, key: str, kind: Kind[T], default: None) -> T | None: ...

    def read(self, key: str, kind: Kind[T], default: T | None) -> T | None:
        """The value of a key; the default where there is none, or none that can be used."""
        self._known.append(key)
        if key not in self.values:
            return default
        value = self.values[key]
        try:
            return kind.parse(value)
        except ValueError as problem:
            name = self.key(key) + _origin(value)
            for why in kind.whys(problem):
                if kind.secret:
                    self.faults.say(f"{name} {why}")
                else:
                    self.faults.wrong(name, value, why)
            return default

    def demand(self, key: str, kind: Kind[T], stand_in: T) -> T:
        """The value of a key that must be there."""
        if key not in self.values:
            self.faults.say(f"{self.key(key)} is missing; write {key} = {kind.example}")
        return self.read(key, kind, stand_in)

    def table(self, key: str) -> Table:
        """A table inside this one; empty where there is none."""
        self._known.append(key)
        return self._inside(key, self.values.get(key, {}))

    def tables(self, key: str) -> list[tuple[str, Table]]:
        """Every table of a table of tables, by name: ``[sources.shop]`` is ``("shop", …)``."""
        outer = self.table(key)
        return [(name, outer._inside(name, value)) for name, value in outer.values.items()]  # noqa: SLF001

    def _inside(self, key: str, value: object) -> Table:
        if not isinstance(value, Mapping):
            self.faults.wrong(self.key(key), value, f"is not a table; write [{self.key(key)}] and its keys below")
            value = {}
        return Table(value, self.key(key), self.faults)

    def close(self) -> None:
        """Name every key that nobody read. Its value is not shown: it may be a secret under a wrong name."""
        for key, value in self.values.items():
            if key not in self._known:
                name = self.key(key) + _origin(value)
                self.faults.say(f"{name}: there is no such key; {meant(key, self._known)}")

    def numbers(self, base: T, *, skip: tuple[str, ...] = ()) -> dict[str, Any]:
        """The fields of a dataclass of limits; the unit at the end of a name says how each is read."""
        return {
            field.name: self.read(field.name, kind_of_limit(field.name), getattr(base, field.name))
            for field in fields(base)  # type: ignore[arg-type]  # the limits are dataclasses
            if field.name not in skip
        }


def kind_of_limit(name: str) -> Kind[Any]:
    """How a limit of this name is written."""
    if name.endswith("_bytes"):
        return SIZE
    return SECONDS if name.endswith("_seconds") else COUNT


def _origin(value: object) -> str:
    """The environment variable that a value came from."""
    if isinstance(value, Given):
        return f" (from {value.variable})"
    if isinstance(value, Mapping):
        return next((found for inside in value.values() if (found := _origin(inside))), "")
    return ""
