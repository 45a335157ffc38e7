"""How a record is written into a file: a line that says what it is, its checksum, and the record as JSON.

    haulage run 1 SHA-256
    {"id": …}

What is not exactly so is no record: a file cut short, empty, overwritten, of another name or of a later version.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from haulage.stores.atomic import read

VERSION = 1  # of the files; a store says which one it has in its fact file


class Unreadable(Exception):
    """A file is not what its name says; the message says why, without its content."""


def sealed(kind: str, record: Mapping[str, Any]) -> bytes:
    """A record as the content of a file."""
    body = json.dumps(record, separators=(",", ":")).encode() + b"\n"
    return f"haulage {kind} {VERSION} {hashlib.sha256(body).hexdigest()}\n".encode() + body


def read_letter(kind: str, path: Path) -> tuple[dict[str, Any], os.stat_result]:
    """The record in a file, and what the file was when it was opened.

    Raises:
        OSError: it is not there, or cannot be read.
        Unreadable: it is none.
    """
    data, status = read(path)
    if not stat.S_ISREG(status.st_mode):
        raise Unreadable("it is no file")
    return opened(kind, data), status


def opened(kind: str, data: bytes) -> dict[str, Any]:
    """The record in the content of a file.

    Raises:
        Unreadable: it is none.
    """
    if not data:
        raise Unreadable("it is empty")
    if not data.strip(b"\0"):
        raise Unreadable("it holds nothing but NUL bytes")
    head, _, body = data.partition(b"\n")
    words = head.split(b" ")
    if len(words) != 4 or words[:2] != [b"haulage", kind.encode()]:
        raise Unreadable(f"it is no {kind} of haulage")
    if words[2] != str(VERSION).encode():
        if words[2].isdigit() and int(words[2]) > VERSION:
            raise Unreadable(f"it is of version {int(words[2])}, and this haulage reads version {VERSION}")
        raise Unreadable("its version cannot be read")
    if hashlib.sha256(body).hexdigest().encode() != words[3]:
        raise Unreadable("its checksum is wrong: it was cut short or changed")
    try:
        record = json.loads(body)
    except ValueError:
        record = None
    if not isinstance(record, dict):
        raise Unreadable("it holds no record")
    return record
