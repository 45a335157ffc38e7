"""JSON: one array, one object a row, keys in the order of the columns; ``[]`` when there are no rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from haulage.formats.cells import encoded
from haulage.formats.format import ABOUT_NOTHING, About, Format, Notices
from haulage.formats.objects import NUMBERS_OPTION, Objects

if TYPE_CHECKING:
    from haulage.core.catalogue import Column


class JsonEncoder:
    """One JSON file in the making; implements ``TakesText``."""

    held = 0
    profile = Objects.profile

    def __init__(self, columns: Sequence[Column], options: Mapping[str, str], about: About = ABOUT_NOTHING) -> None:
        self.notices = Notices()
        self._objects = Objects(columns, options, self.notices, about, b",\n")
        self._is_empty = True
        self.trailer = b"]\n"

    def begin(self) -> bytes:
        return b"["

    def rows(self, batch: Sequence[tuple[object, ...]]) -> bytes:
        if not batch:
            return b""
        return self._lead() + encoded(",\n".join(self._objects.texts(batch)), self.notices)

    def must_look(self) -> bool:
        return False

    def look_text(self, data: bytes) -> None:
        """There is no text that it could not take."""

    def text(self, data: bytes, rows: int) -> bytes:
        return self._objects.text(data, rows, self._lead(), b"") if data else b""

    def _lead(self) -> bytes:
        # A separator stands before each row but the first that is really written. One that is decided by a
        # count taken earlier makes `[{…},]` or `{…}{…}` as soon as the count and the rows differ.
        lead = b"\n" if self._is_empty else b",\n"
        self._is_empty = False
        return lead

    def end(self) -> bytes:
        return b"]\n" if self._is_empty else b"\n]\n"


FORMAT = Format(
    name="json",
    label="JSON",
    media_type="application/json",
    suffix=".json",
    options=(NUMBERS_OPTION,),
    open=JsonEncoder,
    compressions=("gzip", "zstd"),
)
