"""Server-sent events of one run: hints to read it again, never the run itself.

    data: {"flow": "export", "id": "...", "revision": 7}

Each stream reads the run again when this process hears that the store changed, and says so when the revision
is another one. The first hint comes at once. A stream ends when the run is final, when the session or the
right to see the run has ended, when the client goes, or when the server shuts down. There is no replay: who
comes back reads first.
"""

from __future__ import annotations

import asyncio

from fastapi import APIRouter, Depends, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from haulage.core.errors import Refused, StoreUnavailable
from haulage.exports.life import ExportLife, ExportRun
from haulage.web.access import Asking, Asks, identify, no_query
from haulage.web.answers import written
from haulage.web.exports import find_run
from haulage.web.hints import Hints
from haulage.web.openapi import says
from haulage.web.shapes import RunToken

router = APIRouter(tags=["exports"])

SILENT_SECONDS = 1.0  # before a store, or a host, that did not answer is asked again
COMMENT_SECONDS = 15  # of silence before a comment, so that nobody between us takes the stream for dead


@router.get(
    "/exports/{token}/events",
    dependencies=[Depends(no_query)],
    response_class=Response,
    responses=says({200: "text/event-stream"}, "not_found", "invalid", "too_many_streams"),
)
async def watch_export(request: Request, asking: Asks, token: RunToken) -> Response:
    """Hints to read the run again, as server-sent events."""
    run = await run_in_threadpool(find_run, asking, token)
    return Stream(request, asking, run, request.app.state.hints)


class Stream(Response):
    """One stream of hints."""

    def __init__(self, request: Request, asking: Asking, run: ExportRun, hints: Hints) -> None:
        """Nothing is held before the stream begins."""
        self.status_code = 200
        self.background = None
        self.init_headers({"Content-Type": "text/event-stream", "Cache-Control": "no-store", "X-Accel-Buffering": "no"})
        self._request = request
        self._asking = asking
        self._run = run
        self._hints = hints

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send hints until there is no more reason to."""
        with self._hints.listening(self._asking.binding) as changed:
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            gone = asyncio.create_task(_wake_when_gone(receive, changed))
            try:
                await self._hint_on(send, changed, gone)
            finally:
                gone.cancel()
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _hint_on(self, send: Send, changed: asyncio.Event, gone: asyncio.Task[None]) -> None:
        said = None
        run = await self._look(self._run, changed)  # It may have changed before we listened.
        while run is not None and not gone.done() and not self._hints.ended:
            if run.revision != said:
                said = run.revision
                hint = written({"flow": ExportLife.flow, "id": run.id, "revision": said})
                await _say(send, b"data: " + hint)
            if ExportLife.is_final(run.state):
                return
            try:
                async with asyncio.timeout(COMMENT_SECONDS):
                    await changed.wait()
            except TimeoutError:
                await _say(send, b":")
            changed.clear()
            run = await self._look(run, changed)

    async def _look(self, last: ExportRun, changed: asyncio.Event) -> ExportRun | None:
        """The run as it is now; None where this session may not see it any more."""
        asking = self._asking
        try:
            today = await identify(asking.door, self._request)
            if today is None or today.session != asking.requester.session:
                return None
            return await run_in_threadpool(asking.services.exports.get, today, last.id)
        except (StoreUnavailable, Refused) as problem:
            if problem.code not in ("store_unavailable", "host_silent"):
                return None
            asyncio.get_running_loop().call_later(SILENT_SECONDS, changed.set)
            return last  # What it is now is not known.


async def _say(send: Send, line: bytes) -> None:
    await send({"type": "http.response.body", "body": line + b"\n\n", "more_body": True})


async def _wake_when_gone(receive: Receive, changed: asyncio.Event) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    changed.set()
