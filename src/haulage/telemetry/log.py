"""Events as log lines: one logger, one JSON object a line, so that no value can begin a line of its own."""

from __future__ import annotations

import json
import logging
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


def to_stderr(level: int = logging.INFO) -> None:
    """Send log lines to standard error, with time and level; for the commands, not for a host application."""
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    logger.handlers[:] = [handler]
    logger.setLevel(level)
    logger.propagate = False
