"""Names of what may be asked for once at a time: ``active/HASH`` holds the id of the run that an active key stands for.

The name is made by exactly one of those who try. The row says who holds a key; a name whose run does not is nobody's.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from haulage.core.errors import StoreUnavailable
from haulage.stores.atomic import mark
from haulage.stores.directory.folder import Folder


class Actives:
    """The folder of these names; whoever calls holds the right to write."""

    def __init__(self, folder: Folder) -> None:
        """Bind the folder."""
        self._folder = folder
        self.place = folder.root / "active"

    def take(self, run: Any) -> None:
        """Take the name of a run's key; that no other row holds the key was seen before.

        Raises:
            StoreUnavailable: somebody else is about to take it.
        """
        if run.active_key is None:
            return
        path = self.path(run.active_key)
        try:
            mark(path, run.id)
        except FileExistsError:
            # Somebody died between this and the row; or the locks of this volume are none, and the name is the guard.
            if not self._folder.is_stale(path):
                raise StoreUnavailable("an equal request is just being written") from None
            path.unlink()
            mark(path, run.id)

    def give_back(self, run: Any) -> None:
        """Remove the name of a run's key."""
        if run.active_key is not None:
            self.path(run.active_key).unlink(missing_ok=True)

    def path(self, active_key: str) -> Path:
        """The name of a key, which may hold any character."""
        return self.place / hashlib.sha256(active_key.encode()).hexdigest()
