"""What the doors are given, as ports: web knows no store, no configuration and no artifact folder by name.

``Services`` is filled by ``app.py``. ``Door`` adds what this process makes of it once: the tokens, and
whether it stands alone or is mounted in a host that says who asks.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol

from starlette.requests import Request
from starlette.types import Scope

from haulage.core import events
from haulage.core.catalogue import Catalogue
from haulage.core.limits import DoorLimits, ExportLimits
from haulage.core.ports import Artifacts, Sessions, Watcher, Workers
from haulage.core.requester import Requester
from haulage.exports.request import Exports
from haulage.web.tokens import Tokens

# Gives who asks in a host's request, or None for somebody unknown; sync or async.
Authenticate = Callable[[Request], Requester | Awaitable[Requester | None] | None]


class Accounts(Protocol):
    """Who the configured keys stand for, as it is now."""

    def find(self, text: str) -> Requester | None:
        """The requester of a bearer key, with a session of that key; every key is compared."""

    def named(self, name: str, *, session: str = "") -> Requester | None:
        """The requester of a key by its name; None when it was removed."""

    def standing(self, asked: Requester) -> Requester:
        """A requester with the grants of now, or banned; the same one where nobody can know.

        Raises:
            Overdue: the host was asked and did not say in time.
        """


class Schema(Protocol):
    """How the store's schema compares with the one of this version."""

    @property
    def version(self) -> int | None:
        """The store's; None where there is none yet."""

    @property
    def wanted(self) -> int:
        """This version's."""


class ExportFigures(Protocol):
    """What only the operator's figures ask of the export table."""

    def waiting(self) -> int:
        """How many runs wait, over all tenants."""

    def running(self) -> int:
        """How many runs are worked on, over all tenants."""

    def tally(self) -> dict[str, int]:
        """How many runs there are in each state, over all tenants; it reads every row."""


class DoorStore(Protocol):
    """What the doors themselves need of a store; everything about runs goes through ``Exports``."""

    @property
    def exports(self) -> ExportFigures:
        """Figures of the export table."""

    @property
    def workers(self) -> Workers:
        """Who is alive."""

    @property
    def sessions(self) -> Sessions:
        """Sign-ins."""

    def schema(self) -> Schema:
        """Which schema the store has."""

    def watch(self) -> Watcher:
        """A hint that something changed."""

    def now(self) -> int:
        """The store's clock, in milliseconds."""


def _nothing() -> None:
    return None


@dataclass(frozen=True, slots=True)
class Services:
    """Everything behind the doors.

    Args:
        secret_keys: the first signs tokens, all verify.
        sweep: one pass of the sweep, so that limits hold while no worker lives.
        version: of this program; shown to the operator.
    """

    exports: Exports
    store: DoorStore
    artifacts: Artifacts
    catalogue: Catalogue
    accounts: Accounts
    secret_keys: tuple[str, ...]
    limits: ExportLimits
    doors: DoorLimits
    sweep: Callable[[], object] = _nothing
    observe: events.Observe = events.ignore
    version: str = ""


@dataclass(frozen=True, slots=True)
class Door:
    """One web application: its services and how it is reached.

    Args:
        authenticate: the host's; None when this application stands alone.
    """

    services: Services
    tokens: Tokens
    authenticate: Authenticate | None

    @property
    def mounted(self) -> bool:
        """Say whether a host decides who asks."""
        return self.authenticate is not None

    @property
    def prefix(self) -> str:
        """What stands between the application's root and the API."""
        return "" if self.mounted else "/api"

    def base(self, scope: Scope) -> str:
        """The path of the API as the client sees it, without a slash at its end."""
        root: str = scope.get("root_path", "")
        return root.rstrip("/") + self.prefix


def door_of(request: Request) -> Door:
    """The door that a request came through."""
    door: Door = request.app.state.haulage
    return door
