"""How many downloads may be under way: a slow reader holds a file open for as long as it may take."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from haulage.core.errors import Refused
from haulage.core.limits import DoorLimits
from haulage.core.requester import Requester

RETRY_SECONDS = 5


class DownloadPlaces:
    """The downloads of this process, by account: another sign-in gives no further places."""

    def __init__(self, doors: DoorLimits) -> None:
        """All places are free."""
        self._doors = doors
        self._lock = threading.Lock()
        self._of_account: Counter[tuple[str, str]] = Counter()

    @contextmanager
    def taken(self, who: Requester) -> Iterator[None]:
        """One place, for as long as a download takes.

        Raises:
            Refused: ``too_many_downloads`` of this account, or ``downloads_full``.
        """
        account = (who.tenant, who.account)
        with self._lock:
            if self._of_account[account] >= self._doors.downloads:
                raise Refused("too_many_downloads", retry_after=RETRY_SECONDS)
            if self._of_account.total() >= self._doors.downloads_in_all:
                raise Refused("downloads_full", retry_after=RETRY_SECONDS)
            self._of_account[account] += 1
        try:
            yield
        finally:
            with self._lock:
                self._of_account[account] -= 1
                if not self._of_account[account]:
                    del self._of_account[account]
