"""Bytes on their way to a client.

Overview. The descriptor was opened and measured before the headers, so what happens to the name of the file
does not matter any more: an expiry lets an open download finish (DECISIONS 16). Pieces of 256 KiB are read
in a thread, one at a time; nothing is held in memory but the piece under way.

Rules. A whole download is hashed; the last piece is sent only when length and hash are those of the row.
Otherwise the connection is cut, so that no client can take it for complete, and the run is corrected. Before
a piece, at most once a second, it is looked again who asks: a log-out, a ban or a lost grant cuts. A client
that takes nothing for a minute is cut, and so is a download of ten minutes.

Cutting. ASGI knows no "abort". An exception after the response has started makes a server close the
connection short of its Content-Length, and passes through a host's middleware as what it is. A server that
closes sends first what it still holds, and to a client that takes nothing that has no end: so where we stand
alone, ``end_connection`` drops the connection under it.
"""

from __future__ import annotations

import asyncio
import hashlib
import socket
import struct
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, BinaryIO

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from haulage.core import events
from haulage.core.errors import ArtifactsUnavailable, Refused, StoreUnavailable
from haulage.exports.files import FILES_RETRY_SECONDS
from haulage.exports.life import ExportRun
from haulage.web.access import Asking, identify, standing_of
from haulage.web.places import DownloadPlaces
from haulage.web.ranges import Piece

PIECE_BYTES = 256 * 1024


class ConnectionCut(Exception):
    """End this connection now; what was sent must not look complete."""


class TakesNothing(ConnectionCut):
    """It has to be dropped with what it still holds, or it would not end."""


def refuse_damaged(asking: Asking, run: ExportRun, opened: BinaryIO, piece: Piece) -> None:
    """Read a file of one piece before its headers, so that a damaged one is a refusal and not a cut.

    Raises:
        Refused: ``artifact_lost``, and the run is corrected; ``files_unavailable``.
    """
    if piece.length != run.bytes or piece.length > PIECE_BYTES:
        return
    try:
        data = _read(opened, piece.length)
    except ArtifactsUnavailable as problem:
        raise Refused("files_unavailable", retry_after=FILES_RETRY_SECONDS) from problem
    opened.seek(0)
    if hashlib.sha256(data).hexdigest() != run.sha256:
        raise asking.services.exports.mislay(run, "the bytes are not those that were written")


def end_connection(scope: Scope, cut: ConnectionCut, stall_seconds: float) -> None:
    """See that a cut connection ends, where the server is uvicorn: it closes, but sends first what it still holds."""
    transport: asyncio.Transport | None = scope.get("haulage.transport")
    if transport is not None:
        seconds = 0 if isinstance(cut, TakesNothing) else stall_seconds
        asyncio.get_running_loop().call_later(seconds, _drop, transport)


def _drop(transport: asyncio.Transport) -> None:
    connection = transport.get_extra_info("socket")
    if connection is not None:
        # Or the kernel would go on offering what it holds to somebody who does not take it.
        with suppress(OSError):
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    transport.abort()


class Download(Response):
    """A response that streams one piece of an open file."""

    def __init__(
        self,
        request: Request,
        asking: Asking,
        run: ExportRun,
        opened: BinaryIO,
        piece: Piece,
        *,
        status: int,
        headers: Mapping[str, str],
    ) -> None:
        """Take over the open file; it is closed when the download ends, however it ends."""
        self.status_code = status
        self.background = None
        self.init_headers(headers)
        self._request = request
        self._asking = asking
        self._run = run
        self._opened = opened
        self._piece = piece
        self._hash = hashlib.sha256() if piece.length == run.bytes else None
        self._doors = asking.services.doors
        self._opened_at = asking.services.store.now()
        self._sent = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send everything, or cut the connection."""
        places: DownloadPlaces = self._request.app.state.downloads
        with self._opened, places.taken(self._asking.requester):
            gone = asyncio.create_task(until_gone(receive))
            whole = False
            try:
                await self._stream(send, gone)
                whole = self._sent == self._piece.length
            finally:
                gone.cancel()
                run, who = self._run, self._asking.requester
                self._asking.services.observe(events.FileServed(run.id, who.tenant, who.account, self._sent, whole))

    async def _stream(self, send: Send, gone: asyncio.Task[None]) -> None:
        began = looked = time.monotonic()
        await self._give(
            send, {"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers}, began
        )
        await run_in_threadpool(self._opened.seek, self._piece.start)
        while not gone.done():
            try:
                data = await run_in_threadpool(self._next)
            except OSError as unreadable:  # Nothing is known of the bytes: the run stays as it is.
                raise ConnectionCut(f"the file cannot be read: {type(unreadable).__name__}") from unreadable
            left = self._piece.length - self._sent - len(data)
            if problem := self._problem(data, left):
                await self._mislay(problem)
                raise ConnectionCut(problem)
            if time.monotonic() - looked >= self._doors.grant_check_seconds and await self._still_may(looked):
                looked = time.monotonic()
            await self._give(send, {"type": "http.response.body", "body": data, "more_body": left > 0}, began)
            self._sent += len(data)
            if left == 0:
                return

    def _next(self) -> bytes:
        data = _read(self._opened, min(PIECE_BYTES, self._piece.length - self._sent))
        if self._hash is not None:
            self._hash.update(data)
        return data

    def _problem(self, data: bytes, left: int) -> str | None:
        """What is wrong with the file, seen before the last byte of it is sent."""
        if not data and left:
            return f"bytes are missing from {self._piece.start + self._sent} on"
        if left == 0 and self._hash is not None and self._hash.hexdigest() != self._run.sha256:
            return "the bytes are not those that were written"
        return None

    async def _mislay(self, problem: str) -> None:
        with suppress(StoreUnavailable):  # The next download finds it again.
            await run_in_threadpool(self._asking.services.exports.mislay, self._run, problem)

    async def _still_may(self, looked: float) -> bool:
        """Look again who asks; False when the store or the host did not say, which is borne for a while.

        Raises:
            ConnectionCut: the session has ended, or the grant is lost.
        """
        asking = self._asking
        try:
            today = await identify(asking.door, self._request)
            if today is None or today.session != asking.requester.session:
                raise ConnectionCut("the session has ended")
            today = await run_in_threadpool(standing_of, asking, today)
            # The run as it was when it was opened: an expiry meanwhile does not count.
            await run_in_threadpool(asking.services.exports.still_may_fetch, today, self._run, self._opened_at)
        except (StoreUnavailable, Refused) as problem:
            if problem.code not in ("store_unavailable", "host_silent"):
                raise ConnectionCut(problem.code) from None
            if time.monotonic() - looked >= self._doors.download_stall_seconds:
                raise ConnectionCut("the session could not be looked at") from None
            return False
        return True

    async def _give(self, send: Send, message: dict[str, Any], began: float) -> None:
        """Hand one message to the server; it waits while the client takes nothing."""
        left = began + self._doors.download_seconds - time.monotonic()
        if left <= 0:
            raise TakesNothing("the download took too long")
        try:
            async with asyncio.timeout(min(left, self._doors.download_stall_seconds)):
                await send(message)
        except TimeoutError:
            raise TakesNothing("the client took nothing") from None


def _read(opened: BinaryIO, count: int) -> bytes:
    """So many bytes, fewer only at the end of the file; a raw file may give them in parts."""
    parts = []
    while count and (part := opened.read(count)):
        parts.append(part)
        count -= len(part)
    return b"".join(parts)


async def until_gone(receive: Receive) -> None:
    """Return when the client has gone; a server's ``send`` does not say so."""
    while (await receive())["type"] != "http.disconnect":
        pass
