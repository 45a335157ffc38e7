"""Kinds of values: how each is read from the file or from an environment variable, and an example of it."""

from __future__ import annotations

import ipaddress
import json
import math
import re
import tomllib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Generic, Self, TypeVar

from haulage.config.faults import meant

T = TypeVar("T")

SIZES = {"": 1, "B": 1}
SIZES |= {f"{letter}B": 1000 ** (power + 1) for power, letter in enumerate("KMGT")}
SIZES |= {f"{letter}IB": 1024 ** (power + 1) for power, letter in enumerate("KMGT")}
# fmt: off
DURATIONS = {
    "ms": 0.001,
    "": 1, "s": 1, "second": 1, "seconds": 1,
    "min": 60, "minute": 60, "minutes": 60,
    "h": 3600, "hour": 3600, "hours": 3600,
    "d": 86400, "day": 86400, "days": 86400,
}
# fmt: on
NUMBER_MAX = 2**53  # more is a slip of the hand, and not every reader of JSON keeps it
SECONDS_MAX = 100 * 366 * 86400.0  # a hundred years; instants must stay within what a store holds
_QUANTITY = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]*)")


class Given(str):
    """The text of an environment variable that overrides a key; its kind decides what it becomes."""

    __slots__ = ("variable",)
    variable: str

    def __new__(cls, text: str, variable: str) -> Self:
        """Remember which variable it came from."""
        given = super().__new__(cls, text)
        given.variable = variable
        return given


@dataclass(frozen=True, slots=True)
class Kind(Generic[T]):
    """One kind of value.

    Args:
        noun: what it is, after "is no" or "is not".
        example: what to write instead.
        parse: gives the value, or raises ``ValueError``; its messages, if any, replace noun and example.
        secret: its value must not be shown.
    """

    noun: str
    example: str
    parse: Callable[[object], T]
    secret: bool = False

    def whys(self, problem: ValueError) -> list[str]:
        """Say what is wrong and what to write; a list may have several things wrong with it."""
        return [str(why) for why in problem.args] or [f"is not {self.noun}; write {self.example}"]


def _text(value: object) -> str:
    if not isinstance(value, str) or not value.strip() or "\0" in value:
        raise ValueError
    return str(value)


def _texts(value: object) -> tuple[str, ...]:
    if isinstance(value, Given):
        listed = _toml(value) if value.lstrip().startswith("[") else value.split(",")
        value = [item.strip() if isinstance(item, str) else item for item in _list(listed)]
    texts = tuple(_text(item) for item in _list(value))
    if len(set(texts)) != len(texts):
        raise ValueError("names something twice; write each once")
    return texts


def _list(value: object) -> list[object]:
    if isinstance(value, str) and value.strip():
        raise ValueError(f"is not a list; write [{json.dumps(value, ensure_ascii=False)}]")
    if not isinstance(value, list):
        raise ValueError  # noqa: TRY004 - one way out for all that cannot be used
    return value


def _toml(text: str) -> object:
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return str(text)


def _any(value: object) -> object:
    return _toml(value) if isinstance(value, Given) else value


def _boolean(value: object) -> bool:
    if isinstance(value, Given):
        value = {"true": True, "1": True, "false": False, "0": False}.get(value.lower())
    if not isinstance(value, bool):
        raise ValueError  # noqa: TRY004
    return value


def _integer(value: object) -> int:
    if isinstance(value, Given) and re.fullmatch(r"[0-9_]+", value):
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError  # noqa: TRY004
    return value


def _count(value: object) -> int:
    number = _integer(value)
    if not 1 <= number <= NUMBER_MAX:
        raise ValueError("is out of range; write a whole number from 1 on")
    return number


def _quantity(value: object, units: dict[str, float] | dict[str, int], *, fold: Callable[[str], str]) -> float:
    if isinstance(value, str):
        found = _QUANTITY.fullmatch(value.strip())
        if found is None or fold(found[2]) not in units:
            raise ValueError
        return float(found[1]) * units[fold(found[2])]
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError  # noqa: TRY004
    return value


def _size(value: object) -> int:
    number = _quantity(value, SIZES, fold=str.upper)
    if not 1 <= number <= NUMBER_MAX or number != int(number):
        raise ValueError
    return int(number)


def _seconds(value: object) -> float:
    number = _quantity(value, DURATIONS, fold=str.lower)
    if not math.isfinite(number) or not 0 < number <= SECONDS_MAX:
        raise ValueError
    return number


def _port(value: object) -> int:
    number = _integer(value)
    if not 0 <= number <= 65535:
        raise ValueError("is no port; write a number from 1 to 65535, or 0 for any free one")
    return number


def _networks(value: object) -> tuple[str, ...]:
    texts = _texts(value)
    faults = []
    for text in texts:
        try:
            ipaddress.ip_network(text)
        except ValueError:
            faults.append(f'holds {json.dumps(text)}, no address or network; write "127.0.0.1" or "10.0.0.0/8"')
    if faults:
        raise ValueError(*faults)
    return texts


TEXT = Kind("text", '"some text"', _text)
TEXTS = Kind("a list of texts", '["one", "two"]', _texts)
NETWORKS = Kind("a list of addresses", '["127.0.0.1"]', _networks)
ANY: Kind[object] = Kind("a value", "a value", _any)
BOOLEAN = Kind("true or false", "true or false", _boolean)
COUNT = Kind("a whole number", "a whole number such as 2", _count)
SIZE = Kind("a size", 'a number of bytes, or "128 MiB"', _size)
SECONDS = Kind("a time", 'a number of seconds, or "2 min"', _seconds)
PORT = Kind("a port", "a number such as 8480", _port)


def one_of(choices: Iterable[str], noun: str) -> Kind[str]:
    """One of some words."""
    known = tuple(choices)

    def parse(value: object) -> str:
        text = _text(value)
        if text not in known:
            raise ValueError(f"is no {noun}; {meant(text, known)}")
        return text

    return Kind(f"a {noun}", f'"{known[0]}"', parse)


def matching(pattern: str, noun: str, example: str) -> Kind[str]:
    """Text of a certain form."""

    def parse(value: object) -> str:
        text = _text(value)
        if not re.fullmatch(pattern, text):
            raise ValueError
        return text

    return Kind(noun, example, parse)
