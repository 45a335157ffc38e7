"""No token in a log: the access log of uvicorn writes paths and queries, and both can hold one."""

from __future__ import annotations

import logging
import re

_TOKENS = re.compile(r"(/(?:exports|files)/)[^/?\s]+|([?&](?:sign_in|cursor)=)[^&\s]*")
HIDDEN = "…"


def redacted(path: str) -> str:
    """A path and query without the tokens in it.

    Example:
        >>> redacted("/api/exports/abc.def/file?cursor=xyz")
        '/api/exports/…/file?cursor=…'
    """
    return _TOKENS.sub(lambda found: (found[1] or found[2]) + HIDDEN, path)


class RedactTokens(logging.Filter):
    """Takes tokens out of every text that a log line is made of."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Change the record and let it pass."""
        if isinstance(record.args, tuple):
            record.args = tuple(redacted(each) if isinstance(each, str) else each for each in record.args)
        return True


def install() -> None:
    """Filter uvicorn's access log in this process, once, whoever configured it."""
    logger = logging.getLogger("uvicorn.access")
    if not any(isinstance(each, RedactTokens) for each in logger.filters):
        logger.addFilter(RedactTokens())
