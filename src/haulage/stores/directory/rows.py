"""Reading runs: those that live, with what their claims have written since, and those that have ended."""

from __future__ import annotations

from dataclasses import fields
from typing import Any, Generic, TypeVar

from haulage.core.lifecycle import Lifecycle
from haulage.core.ports import Query
from haulage.stores.directory.ended import Ended, Word, word_of
from haulage.stores.directory.folder import Folder, Writing
from haulage.stores.directory.leases import Leases
from haulage.stores.directory.live import Live, RunFiles
from haulage.stores.tenants import may

Run = TypeVar("Run")
TRIES = 3  # of a reader between whose looks a run is settled


def names_of(record: type[Any], kind: str = "") -> list[str]:
    """The fields of a record, or those whose type begins so: JSON gives a tuple back as a list."""
    return [field.name for field in fields(record) if str(field.type).startswith(kind)]


class Rows(Generic[Run]):
    """Every run of a folder."""

    def __init__(self, folder: Folder, life: type[Lifecycle], record: type[Run]) -> None:
        """Bind the folder and what is kept in it."""
        files: RunFiles[Run] = RunFiles(folder, record, names_of(record), names_of(record, "tuple"))
        self._leased = life.leased_states()
        self.live: Live[Run] = Live(files)
        self.ended: Ended[Run] = Ended(files)
        self.leases = Leases(folder)

    def find(self, run_id: str, tx: Writing | None = None) -> Run | None:
        """A run, wherever it is."""
        run = self.find_live(run_id, tx)
        if run is None:  # It moves from there to here, and never back.
            kept = self.ended.find(run_id, tx)
            run = None if kept is None else kept.run
        return run

    def find_live(self, run_id: str, tx: Writing | None = None) -> Run | None:
        """A run that lives, read from the disk."""
        kept = self.live.find(run_id, tx)
        for _ in range(TRIES):
            run: Any = None if kept is None else kept.run
            if kept is None or run.state not in self._leased:
                break
            seen: Run | None = self.leases.seen(run)
            if seen is not None:
                return seen
            before, kept = kept, self.live.find(run_id, tx)  # It may have been settled between the two looks.
            if kept is not None and kept.status == before.status:
                break  # The file of its claim is really gone, as after a power cut: the row has all that is known.
        return None if kept is None else kept.run

    def seen(self, run: Any) -> Any:
        """A run as its claim last wrote it."""
        return (self.leases.seen(run) or run) if run.state in self._leased else run

    def living(self, tx: Writing | None = None) -> list[Any]:
        """Every run that lives, without what its beats have written since; with those that are just being added."""
        return [*(kept.run for kept in self.live.rows(tx)), *(tx.added.values() if tx is not None else ())]

    def list(self, query: Query) -> list[Run]:
        """Runs, newest first; one more than ``query.limit`` when there is another page."""

        def wanted(word: Word) -> bool:
            return (
                may(query.tenant, word)
                and query.account in (None, word.account)
                and query.state in (None, word.state)
                and query.dataset in (None, word.dataset)
                and (query.parent is None or query.parent[:2] == (word.parent_kind, word.parent))
                and not (query.parentless and word.parent is not None)
                and (query.before is None or (word.requested_at, word.id) < query.before)
            )

        # Those that live first: a run that ends meanwhile is then seen twice, and never not at all.
        living = {run.id: run for run in self.living()}
        found = {word.id: word for word in map(word_of, living.values()) if wanted(word)}
        for day in self.ended.words(until=query.before[0] if query.before else None):
            found |= {word.id: word for word in day if wanted(word)}
            eldest = min((word.requested_at for word in day), default=0)
            if sum(word.requested_at >= eldest for word in found.values()) > query.limit:
                break  # Whatever the older days hold comes after these.
        runs = []
        for word in sorted(found.values(), reverse=True):
            run = self.seen(living[word.id]) if word == word_of(living.get(word.id)) else self.find(word.id)
            if run is not None:
                runs.append(run)
            if len(runs) > query.limit:
                break
        return runs
