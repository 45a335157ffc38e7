"""Events as log lines: one logger, one JSON object a line, so that no value can begin a line of its own."""

from __future__ import annotations

import json
import logging
import time
from dataclasses import fields

from haulage.core import events

logger = logging.getLogger("haulage")

LEVELS: dict[type[events.Event], int] = {
    events.StoreFailed: logging.WARNING,
    events.RemovalFailed: logging.WARNING,
    events.LeaseWasLost: logging.WARNING,
    events.WorkerRefuses: logging.ERROR,
    events.ArtifactLost: logging.ERROR,
    events.StateQuarantined: logging.ERROR,
    events.KeysNotRead: logging.ERROR,
    events.Incident: logging.ERROR,
}


def log(event: events.Event) -> None:
    """Write one event. A failed run is a warning; what nobody expected is an error."""
    level = LEVELS.get(type(event), logging.INFO)
    if isinstance(event, events.RunSettled) and event.code:
        level = logging.WARNING
    if logger.isEnabledFor(level):
        known = {each.name: getattr(event, each.name) for each in fields(event)}
        logger.log(level, "%s", json.dumps({"event": type(event).__name__, **known}, ensure_ascii=True))


def apart(observe: events.Observe) -> events.Observe:
    """An observer whose own failure is a line in the log, and nothing to the run, the request or the worker."""

    def tell(event: events.Event) -> None:
        try:
            observe(event)
        except Exception as problem:  # noqa: BLE001 - a host's observer may raise anything
            log(events.Incident("observer", type(event).__name__, f"{type(problem).__name__}: {problem}"[:500]))

    return tell


class _InUtc(logging.Formatter):
    """Lines of several hosts can be laid side by side."""

    converter = staticmethod(time.gmtime)
    default_time_format = "%Y-%m-%dT%H:%M:%S"
    default_msec_format = "%s.%03dZ"


def to_stderr(level: int = logging.INFO) -> None:
    """Send log lines to standard error, with time and level; for the commands, not for a host application."""
    handler = logging.StreamHandler()
    handler.setFormatter(_InUtc("%(asctime)s %(levelname)s %(message)s"))
    logger.handlers[:] = [handler]
    logger.setLevel(level)
    logger.propagate = False
