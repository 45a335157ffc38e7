"""``haulage doctor --check``: every finished file read again, and every byte asked for its owner."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from haulage.cli.findings import Finding
from haulage.cli.keeping import digest_of
from haulage.core.errors import ArtifactsUnavailable
from haulage.core.ports import Query

if TYPE_CHECKING:
    from haulage.app import Haulage

PAGE = 200  # runs read at once


def files(haul: Haulage) -> Iterator[Finding]:
    """Read every ready file again: a row that promises a file must have exactly it."""
    good, before = 0, None
    while True:
        runs = haul.store.exports.list(Query(state="ready", before=before, limit=PAGE))
        for run in runs[:PAGE]:
            assert run.artifact_key is not None
            try:
                opened, _ = haul.artifacts.open(run.artifact_key)
                with opened:
                    digest = digest_of(opened)
            except ArtifactsUnavailable as problem:
                yield Finding("FAIL", "files", f"run {run.id}: its bytes cannot be read now: {problem}")
                continue
            except OSError as problem:
                digest = problem.strerror or "missing"
            if digest == run.sha256:
                good += 1
                continue
            today = haul.store.exports.get(run.id)
            if today is not None and today.state == "ready":  # else it expired while we looked
                what = f"run {run.id}: its bytes are missing or not those that were written"
                yield Finding("FAIL", "files", what, "export again; a download corrects the run")
        if len(runs) <= PAGE:
            break
        before = (runs[PAGE - 1].requested_at, runs[PAGE - 1].id)
    yield Finding("OK", "files", f"{good:,} whole and as written")


def orphans(haul: Haulage) -> Iterator[Finding]:
    """Bytes without a row; the sweep removes them, so a few seconds after one there must be none."""
    listed = haul.artifacts.keys()  # before the rows: a file made after the list is no orphan
    ownerless: list[str] = []
    for start in range(0, len(listed), PAGE):
        asked = listed[start : start + PAGE]
        ownerless += sorted(set(asked) - haul.store.exports.promised(asked))
    for key in ownerless:
        yield Finding("FAIL", "files", f"{key} belongs to no run", "run: haulage sweep")
    if not ownerless:
        yield Finding("OK", "files", "every byte belongs to a run")
