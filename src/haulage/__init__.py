"""Durable exports and data runs: what stands behind the Export button of an application."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from haulage.app import Haulage
    from haulage.core.catalogue import Column, Dataset, Dimension, Measure, Parameter
    from haulage.core.errors import BuildFailed, ConfigInvalid, HaulageError, Refused
    from haulage.core.limits import BuildLimits, DoorLimits, ExportLimits
    from haulage.core.pages import Page
    from haulage.core.requester import Requester

__version__ = "0.1.0"

# Names are loaded when they are asked for (PEP 562): the child of a run imports this package too, and must
# start in a few milliseconds.
_HOMES = {
    "BuildFailed": "haulage.core.errors",
    "BuildLimits": "haulage.core.limits",
    "Column": "haulage.core.catalogue",
    "ConfigInvalid": "haulage.core.errors",
    "Dataset": "haulage.core.catalogue",
    "Dimension": "haulage.core.catalogue",
    "DoorLimits": "haulage.core.limits",
    "ExportLimits": "haulage.core.limits",
    "Haulage": "haulage.app",
    "HaulageError": "haulage.core.errors",
    "Measure": "haulage.core.catalogue",
    "Page": "haulage.core.pages",
    "Parameter": "haulage.core.catalogue",
    "Refused": "haulage.core.errors",
    "Requester": "haulage.core.requester",
}

__all__ = [
    "BuildFailed",
    "BuildLimits",
    "Column",
    "ConfigInvalid",
    "Dataset",
    "Dimension",
    "DoorLimits",
    "ExportLimits",
    "Haulage",
    "HaulageError",
    "Measure",
    "Page",
    "Parameter",
    "Refused",
    "Requester",
    "__version__",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        message = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(message)
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
