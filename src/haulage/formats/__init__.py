"""File formats: rows in, bytes out. One file = one format, and one line here makes it known.

Read format.py first (what a format is), then csv.py; objects.py is what json.py and ndjson.py share, archive.py
is what xlsx.py writes into. cells.py, json_values.py, guard.py and the other files are about single values,
compression.py is about whole files. A build
imports this package in a child that starts for every run, so a format is imported when it is looked up.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import TypeGuard

from haulage.formats.compression import COMPRESSIONS, Compression, Compressor
from haulage.formats.format import Encoder, Format, Notices, Option, OptionInvalid, resolve_options

_NAMES = (  # each is the name of a format and of the file that defines it
    "csv",
    "json",
    "ndjson",
    "parquet",
    "xlsx",
)


class _Formats(Mapping[str, Format]):
    def __getitem__(self, name: str) -> Format:
        if name not in _NAMES:
            raise KeyError(name)
        format: Format = import_module(f"haulage.formats.{name}").FORMAT
        return format

    def __iter__(self) -> Iterator[str]:
        return iter(_NAMES)

    def __len__(self) -> int:
        return len(_NAMES)

    def __contains__(self, name: object) -> bool:
        return name in _NAMES


FORMATS: Mapping[str, Format] = _Formats()

__all__ = [
    "COMPRESSIONS",
    "FORMATS",
    "Compression",
    "Compressor",
    "Encoder",
    "Format",
    "Notices",
    "Option",
    "OptionInvalid",
    "file_name",
    "media_type",
    "resolve_options",
]


def file_name(base: str, format: Format, compression: str | None = None) -> str:
    """Name a file after what is in it.

    Args:
        base: the name without any suffix.
        format: what is in it.
        compression: a name of ``COMPRESSIONS``; ``"none"`` or None for a plain file.

    Example:
        >>> file_name("orders", FORMATS["csv"], "gzip")
        'orders.csv.gz'
    """
    return base + format.suffix + (COMPRESSIONS[compression].suffix if _is_packed(compression) else "")


def media_type(format: Format, compression: str | None = None) -> str:
    """Say what the bytes on disk are; a compressed file is of its own type, it is not an encoding of another.

    Example:
        >>> media_type(FORMATS["csv"], "none")
        'text/csv; charset=utf-8'
    """
    return COMPRESSIONS[compression].media_type if _is_packed(compression) else format.media_type


def _is_packed(compression: str | None) -> TypeGuard[str]:
    return compression is not None and compression != "none"
