"""A file that goes to a store of objects while it is built; the child of a run writes it.

The child has no keys and no library: its supervisor began the upload and gives it one signed address a part. It
holds one part in memory, hashes on the way, and sends each part with its MD5, which the server compares.
"""

from __future__ import annotations

import base64
import hashlib
import http.client
import re
import ssl
import time
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from haulage.artifacts.part import Allowed
from haulage.core.errors import BuildFailed
from haulage.core.reading import TAIL_BYTES, Measured

ANSWER_SECONDS = 30  # for a part to be taken
PAUSES = (0.2, 0.6, 1.8)  # seconds before a part is sent again
_CODE = re.compile(rb"<Code>([A-Za-z0-9]{1,60})</Code>")
_FULL = re.compile("full|quota|insufficient", re.IGNORECASE)


class Upload:
    """Where a build writes: counts, hashes and limits on the way. Implements ``core.ports.Sink``."""

    rewinds = False  # a part that was sent would stay, and be listed with those of a shorter file

    def rewind(self) -> None:
        """Never asked."""
        raise AssertionError

    def __init__(self, upload: Mapping[str, Any], *, file_bytes: int, reserved_bytes: int) -> None:
        """``upload`` is what ``objects.ObjectArtifacts.upload`` gave."""
        self._allowed = Allowed(file_bytes, reserved_bytes)
        self._part_bytes: int = upload["part_bytes"]
        self._urls: list[str] = upload["urls"]
        self._context = ssl.create_default_context(cafile=upload["ca_file"]) if upload["ca_file"] else None
        self._connection: http.client.HTTPConnection | None = None
        self._part = bytearray()
        self._digests: list[bytes] = []
        self._bytes = 0
        self._tail = b""
        self._hash = hashlib.sha256()

    def write(self, data: bytes) -> None:
        """Take all of it, or fail before the first byte that is over a limit is sent."""
        self._allowed.refuse(self._bytes + len(data))
        self._hash.update(data)
        self._bytes += len(data)
        self._tail = (self._tail + data[-TAIL_BYTES:])[-TAIL_BYTES:]
        self._part += data
        while len(self._part) >= self._part_bytes:
            self._send(bytes(self._part[: self._part_bytes]))
            del self._part[: self._part_bytes]

    def finish(self, *, reread: bool = False) -> Measured:
        """Send what is left. Only the finished object can be read, so its reader is who publishes it."""
        if self._part or not self._digests:
            self._send(bytes(self._part))
        if self._connection is not None:
            self._connection.close()
        etag = f"{_md5(b''.join(self._digests)).hexdigest()}-{len(self._digests)}"
        return Measured(self._bytes, self._hash.hexdigest(), self._tail, etag)

    def _send(self, part: bytes) -> None:
        """Send one part; the same one may be sent again, since it has a number."""
        url = urlsplit(self._urls[len(self._digests)])
        digest = _md5(part).digest()
        headers = {"Content-MD5": base64.b64encode(digest).decode()}
        for pause in (*PAUSES, None):
            try:
                status, code = self._put(url.scheme, url.netloc, f"{url.path}?{url.query}", part, headers)
            except (OSError, http.client.HTTPException) as problem:
                status, code = 0, type(problem).__name__
            if status == 200:
                self._digests.append(digest)
                return
            if pause is None or not worth_another_try(status):
                raise BuildFailed(
                    failure_of(status, code), cause=f"part {len(self._digests) + 1}: {status or 'no answer'} {code}"
                )
            time.sleep(pause)

    def _put(self, scheme: str, host: str, target: str, part: bytes, headers: dict[str, str]) -> tuple[int, str]:
        connection = self._connection
        if connection is None:
            if scheme == "https":
                connection = http.client.HTTPSConnection(host, timeout=ANSWER_SECONDS, context=self._context)
            else:
                connection = http.client.HTTPConnection(host, timeout=ANSWER_SECONDS)
        self._connection = None  # It is used again only after a whole answer.
        try:
            connection.request("PUT", target, part, headers)
            answer = connection.getresponse()
            body = answer.read()
        except BaseException:
            connection.close()
            raise
        if answer.status == 200:
            self._connection = connection
        else:
            connection.close()
        found = _CODE.search(body)
        return answer.status, found[1].decode() if found else ""


def worth_another_try(status: int) -> bool:
    """Say whether a server may answer otherwise in a moment; 0 stands for none that answered."""
    return status in (0, 408, 409, 429) or (status >= 500 and status not in (501, 507))


def failure_of(status: int, code: str) -> str:
    """The code of a failure for what a server of objects answered."""
    if status == 507 or _FULL.search(code):
        return "no_space"
    return "storage_refused" if status in (401, 403) else "storage_failed"


def _md5(data: bytes) -> hashlib._Hash:
    """Against accidents on the way, which is all that these servers can compare; SHA-256 is what proves a file."""
    return hashlib.md5(data, usedforsecurity=False)
