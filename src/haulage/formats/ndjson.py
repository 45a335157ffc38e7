"""NDJSON: one JSON object a line, a line for each row and nothing else; a file without rows is empty."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from haulage.formats.cells import encoded
from haulage.formats.format import ABOUT_NOTHING, About, Format, Notices
from haulage.formats.objects import NUMBERS_OPTION, Objects

if TYPE_CHECKING:
    from haulage.core.catalogue import Column


class NdjsonEncoder:
    """One NDJSON file in the making; implements ``TakesText``."""

    held = 0
    profile = Objects.profile

    def __init__(self, columns: Sequence[Column], options: Mapping[str, str], about: About = ABOUT_NOTHING) -> None:
        self.notices = Notices()
        self._objects = Objects(columns, options, self.notices, about, b"\n")
        self.trailer = b""  # until there is a line that must have an end

    def begin(self) -> bytes:
        return b""

    def rows(self, batch: Sequence[tuple[object, ...]]) -> bytes:
        if not batch:
            return b""
        self.trailer = b"\n"
        return encoded("\n".join(self._objects.texts(batch)) + "\n", self.notices)

    def must_look(self) -> bool:
        return False

    def look_text(self, data: bytes) -> None:
        """There is no text that it could not take."""

    def text(self, data: bytes, rows: int) -> bytes:
        if not data:
            return b""
        self.trailer = b"\n"
        return self._objects.text(data, rows, b"", b"\n")

    def end(self) -> bytes:
        return b""


FORMAT = Format(
    name="ndjson",
    label="NDJSON",
    media_type="application/x-ndjson",
    suffix=".ndjson",
    options=(NUMBERS_OPTION,),
    open=NdjsonEncoder,
    compressions=("gzip", "zstd"),
)
