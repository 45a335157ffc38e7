"""What a format is: its name, its options, and an encoder that turns batches of rows into bytes.

An encoder is opened for one file and told ``begin``, ``rows`` for each batch, ``end``, in this order. What it
had to change on the way it counts in its notices; what a whole file must end with it says in ``trailer``.
What a format cannot hold at all (``rows_max``, ``columns_max``) is refused before the first row is written.
"""

from __future__ import annotations

from collections.abc import Callable, ItemsView, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol, runtime_checkable

if TYPE_CHECKING:  # only a type: the child need not load the whole catalogue to encode
    from haulage.core.catalogue import Column


COLUMNS_NAMED = 100  # by one notice: a run keeps them, and each of its readers gets them


class Notices:
    """What was written otherwise than it was read, counted by code."""

    __slots__ = ("_columns", "_counts")

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}
        self._columns: dict[str, dict[str, None]] = {}  # the headers in the order of their first value

    def count(self, code: str, n: int = 1, *, column: str | None = None) -> None:
        """Add to a code's count. Zero leaves no trace, so that a code that is there always happened."""
        if n:
            self._counts[code] = self._counts.get(code, 0) + n
            if column is not None:
                named = self._columns.setdefault(code, {})
                if len(named) < COLUMNS_NAMED:
                    named[column] = None

    def columns(self, code: str) -> list[str]:
        """The headers of the columns in which it happened, where they were told; of very many the first."""
        return list(self._columns.get(code, ()))

    def items(self) -> ItemsView[str, int]:
        """Every code that happened, with its count."""
        return self._counts.items()


class Encoder(Protocol):
    """One file in the making."""

    @property
    def notices(self) -> Notices:
        """What had to be changed so far."""

    @property
    def held(self) -> int:
        """Rows that were taken and are in no bytes yet."""

    @property
    def trailer(self) -> bytes:
        """What the whole file ends with; empty where nothing is fixed. Asked after ``end``."""

    def begin(self) -> bytes:
        """What stands before the first row."""

    def rows(self, batch: Sequence[tuple[object, ...]]) -> bytes:
        """One batch, every row of it; nothing for an empty batch.

        Raises:
            ValueError: a row has more or fewer cells than there are columns.
            BuildFailed: ``cell_too_long``, where a format has a limit for that.
        """

    def end(self) -> bytes:
        """What stands after the last row."""


@runtime_checkable
class LooksFirst(Protocol):
    """An encoder that has to see every row, in a first reading of the snapshot, before it can begin."""

    def look(self, batch: Sequence[tuple[object, ...]]) -> None:
        """One batch; nothing is written."""


class Unfit(Exception):
    """Text of a source that this encoder cannot take as such."""


@runtime_checkable
class TakesText(Protocol):
    """An encoder that can also take rows as the text of a source, many at once: faster, and the same file."""

    @property
    def profile(self) -> str:
        """What it asks the source for (``Snapshot.stream``)."""

    def must_look(self) -> bool:
        """Whether it must see all of the text in a first reading."""

    def look_text(self, data: bytes) -> None:
        """Whole rows, in a first reading; asked for also where nothing that was written could be taken back.

        Raises:
            Unfit: these rows must be read as values.
        """

    def text(self, data: bytes, rows: int) -> bytes:
        """Whole rows, in the place of ``rows``; no data and no rows at the end.

        Raises:
            Unfit: these rows must be read as values, and the file begun anew.
        """


class About(NamedTuple):
    """What a file may say of itself, and of what could be asked for in its place.

    Args:
        snapshot_at: milliseconds since 1970 of the instant that it shows; None where there is none.
        offer: a sentence that names the other formats, with a blank before it; empty where there are none.
        total: how many rows were counted.
    """

    snapshot_at: int | None = None
    offer: str = ""
    total: int | None = None


ABOUT_NOTHING = About()


class Opener(Protocol):
    """What starts a file; most formats have nothing to say about it."""

    def __call__(
        self, columns: Sequence[Column], options: Mapping[str, str], about: About = ABOUT_NOTHING, /
    ) -> Encoder:
        """Start a file of these columns, with options that were resolved."""


class Option(NamedTuple):  # not a dataclass: each child waits for it to be defined
    """A choice that the requester has within one format."""

    name: str
    choices: tuple[str, ...]
    default: str
    label: str


class Format(NamedTuple):
    """One kind of file.

    Args:
        suffix: with its dot.
        open: starts a file of these columns, whose headers are distinct, with options that were resolved.
        compressions: names of ``COMPRESSIONS`` that make sense for it; a plain file always does.
        rows_max: how many rows a file can hold, the header not counted; None is any number.
        rows_split: the option and its value with which there may be more rows all the same.
        columns_max: how many columns.
        missing: None when it can be written here, else what to install.
        load: begins to load what it needs and takes long, in a thread; called before rows are counted.
    """

    name: str
    label: str
    media_type: str
    suffix: str
    options: tuple[Option, ...]
    open: Opener
    compressions: tuple[str, ...] = ()
    rows_max: int | None = None
    rows_split: tuple[str, str] | None = None
    columns_max: int | None = None
    missing: Callable[[], str | None] = lambda: None
    load: Callable[[], None] = lambda: None


class OptionInvalid(ValueError):
    """A format does not have this option, or not with this value.

    Args:
        name: the option as it was given.
        value: what was given for it.
        choices: what may be given; empty when there is no such option.
    """

    def __init__(self, format: Format, name: str, value: object, choices: tuple[str, ...]) -> None:
        self.name = name
        self.value = value
        self.choices = choices
        if choices:
            text = f"option {name!r} of {format.name} is {value!r}; choose one of {', '.join(choices)}"
        else:
            known = ", ".join(option.name for option in format.options) or "none"
            text = f"{format.name} has no option {name!r} (given: {value!r}); its options: {known}"
        super().__init__(text)


def resolve_options(format: Format, given: Mapping[str, str]) -> Mapping[str, str]:
    """Every option of a format with the value that counts: the given one, or its default.

    Raises:
        OptionInvalid: the first given option that the format does not have, or not with that value.
    """
    options = {option.name: option for option in format.options}
    for name, value in given.items():
        if name not in options:
            raise OptionInvalid(format, name, value, ())
        if value not in options[name].choices:
            raise OptionInvalid(format, name, value, options[name].choices)
    return {name: given.get(name, option.default) for name, option in options.items()}
