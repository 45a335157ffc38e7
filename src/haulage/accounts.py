"""Who the configured keys stand for, read again when the file changes: a banned key is refused at once."""

from __future__ import annotations

import hmac
from collections.abc import Callable, Mapping
from dataclasses import replace

from haulage.config import KeySettings, Settings, hash_key, read_keys
from haulage.core import events
from haulage.core.errors import ConfigInvalid
from haulage.core.patience import within
from haulage.core.requester import Requester

OPERATOR_KEY = "operator"  # the name under which the command line's requester is frozen


class Accounts:
    """The accounts of ``[keys.NAME]`` and ``[operator]``, and of a host that was asked to tell."""

    def __init__(self, settings: Settings, environ: Mapping[str, str], observe: events.Observe = events.ignore) -> None:
        """Start with what the settings say."""
        self._observe = observe
        self._path = settings.path
        self._environ = environ
        self._keys = settings.keys
        self._operator = settings.operator
        self._stamp = self._look()
        self._host: Callable[[Requester], Requester] | None = None
        self._host_seconds = settings.doors.host_seconds

    def ask_host(self, function: Callable[[Requester], Requester]) -> None:
        """Ask this function about accounts that no key stands for."""
        self._host = function

    def find(self, text: str) -> Requester | None:
        """The requester of a bearer key, or None. Every key is compared, so time tells nothing."""
        digest = hash_key(text)
        found: str | None = None
        for name, key in self._current().items():
            if hmac.compare_digest(key.hash, digest):
                found = name
        if found is None:
            return None
        return self.named(found, session=f"key {digest}")

    def named(self, name: str, *, session: str = "") -> Requester | None:
        """The requester of a key by its name in the configuration, as it is today; None when it is banned or gone."""
        key = self._current().get(name)
        if key is None or key.banned:
            return None
        return key.requester(session)

    def standing(self, asked: Requester) -> Requester:
        """A requester as it is today: with the grants of now, or banned when its key is banned or gone.

        Raises:
            Overdue: the host did not say in time.
            TypeError: it answered no Requester.
        """
        if asked.key is None:
            if self._host is None:
                return asked
            today = within(self._host_seconds, self._host, asked)
            if not isinstance(today, Requester):
                message = f"standing answered a {type(today).__name__}; it has to answer a Requester"
                raise TypeError(message)
            return today
        self._current()
        holder = self._operator if asked.key == OPERATOR_KEY else self.named(asked.key)
        if holder is None or (holder.tenant, holder.account) != (asked.tenant, asked.account):
            return replace(asked, grants=frozenset(), banned=True)
        return replace(holder, session=asked.session)

    def _current(self) -> Mapping[str, KeySettings]:
        stamp = self._look()
        if stamp != self._stamp and self._path is not None:
            self._stamp = stamp
            try:
                self._keys, self._operator = read_keys(self._path, self._environ)
            except ConfigInvalid as problem:
                # A file that is being edited: what held before still holds. But a ban that does not count must be seen.
                self._observe(events.KeysNotRead(problem.faults))
        return self._keys

    def _look(self) -> tuple[int, int] | None:
        if self._path is None:
            return None
        try:
            status = self._path.stat()
        except OSError:
            return None
        return status.st_mtime_ns, status.st_size
