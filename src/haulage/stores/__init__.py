"""Keeping runs, in a database or in a folder. The only room with SQLAlchemy, and only a database loads it.

A database: read tables.py, then runs.py; open.py turns a URL into a store. A folder: directory/store.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from haulage.core import events

if TYPE_CHECKING:
    from haulage.core.limits import ExportLimits
    from haulage.stores.directory.store import DirectoryStore
    from haulage.stores.open import Store

    AnyStore: TypeAlias = "Store | DirectoryStore"


def open_store(
    url: str,
    limits: ExportLimits | None = None,
    *,
    migrate_new: bool = True,
    observe: events.Observe = events.ignore,
) -> AnyStore:
    """Open a store of any kind, and see that its schema fits.

    Args:
        url: of a database (``stores/open.py``) or of a folder, ``directory:///path``; a new one gets its schema.
        limits: retention and storage budget; defaults when None.
        migrate_new: False leaves a new one empty and asks for no schema, for ``haulage migrate``.
        observe: told of files of a folder that are no records.

    Raises:
        SchemaMismatch: the schema is older than this version, or wants newer workers; the message says what to do.
        StoreUnavailable: it cannot be opened.
        ValueError: the URL names no store.
    """
    if url.startswith("directory:"):
        from haulage.stores.directory.store import open_directory

        return open_directory(url, limits, migrate_new=migrate_new, observe=observe)
    from haulage.stores.open import open_store as open_database

    return open_database(url, limits, migrate_new=migrate_new)
