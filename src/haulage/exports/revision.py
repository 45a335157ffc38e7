"""What may be seen, as one text: asked of the source in the snapshot of a file, and again when it is to be fetched.

Apart from policies.py, because every child of a build loads this file.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from contextlib import closing
from typing import TYPE_CHECKING, Any

from haulage.core.errors import BuildFailed
from haulage.core.reading import Reading

if TYPE_CHECKING:
    from haulage.core.source import Snapshot


def revision_of(question: str, answer: str | None) -> str:
    """What a run keeps: a digest of what was asked and answered. Another question has no equal answers."""
    return hashlib.sha256(json.dumps([question, answer]).encode()).hexdigest()


def reading_of(policy: Mapping[str, Any], session: Mapping[str, str]) -> Reading:
    """A query for a revision as a source gets it."""
    return Reading(policy["sql"], policy["binds"], {}, None, (), (), None, {}, session, as_text=True)


def revision_in(snapshot: Snapshot, policy: Mapping[str, Any], session: Mapping[str, str]) -> str:
    """The revision that a query answers in a snapshot.

    Args:
        policy: as a plan holds it (``plan.py``).
        session: what is set in the database before it.

    Raises:
        BuildFailed: ``source_failed`` when it answers anything but one row with one column.
    """
    rows: list[tuple[Any, ...]] = []
    with closing(snapshot.batches(reading_of(policy, session))) as batches:
        for batch in batches:
            rows += batch
            if len(rows) > 1:
                break
    if [len(row) for row in rows] != [1]:
        raise BuildFailed("source_failed", cause="policy_revision does not answer one row with one column")
    (answer,) = rows[0]
    return revision_of(policy["sql"], None if answer is None else str(answer))
