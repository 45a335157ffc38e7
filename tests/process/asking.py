"""A client of a test: a process that asks for exports, asks again, cancels and removes, and writes down what it heard.

Two clients share an account and its idempotency keys. A key decides what is asked for, so whoever asks with it asks
for the same. What is asked is written down before, what was answered after it: a client that was killed begins again
where its predecessor was, and asks once more, with the same key, whatever it does not know the answer of.
"""

from __future__ import annotations

import json
import os
import random
import time
from dataclasses import replace
from pathlib import Path

from tests.process.house import BUILD, DATASETS, FOREVER, LIMITS, ROWS, UPTO

from haulage.artifacts.local import LocalArtifacts
from haulage.core.catalogue import Catalogue, Dataset
from haulage.core.errors import Refused, StoreUnavailable
from haulage.core.limits import DoorLimits
from haulage.core.requester import Requester
from haulage.exports.request import Exports
from haulage.sources import open_source
from haulage.stores.open import open_store

HISTORY = replace(
    LIMITS, lease_seconds=4, drain_seconds=20, queue_seconds=15, tenant_queued=8, slots=4, tenant_running=3
)
ENDLESS = replace(BUILD, count_seconds=0.05, rows=10**12, generation_seconds=2)
KINDS = (*["names"] * 6, *["again"] * 3, "endless", "wrong")
NOT_NOW = {"no_worker", "too_many_queued", "queue_full", "storage_exceeded"}  # and nothing was written


class Client:
    """One of them, with a connection to the store of its own."""

    def __init__(self, log: Path, number: int):
        folder = log.parent
        self.chance = random.Random(f"{number} {os.getpid()}")  # a successor does other things
        self.requester = Requester(("north", "south")[number // 2 % 2], f"account-{number // 2}")
        catalogue = Catalogue()
        for dataset in DATASETS:
            if dataset.name in KINDS:
                catalogue.add(dataset)
        catalogue.add(Dataset("endless", "shop", sql=f"{UPTO} select i from n", parameters=ROWS, limits=ENDLESS))
        self.exports = Exports(
            open_store(f"sqlite:///{folder}/haulage.db", HISTORY),
            LocalArtifacts(folder / "artifacts"),
            catalogue,
            open_source=lambda _name: open_source(f"sqlite:///{folder}/shop.db"),
            limits=HISTORY,
            doors=DoorLimits(),
        )
        self.unanswered: set[str] = set()
        self.runs: dict[str, str] = {}  # by key
        self.keys = 0
        for line in heard(log):
            self.remember(line)
        self.log = log.open("a", buffering=1)

    def write(self, **line) -> None:
        self.log.write(json.dumps(line) + "\n")
        self.remember(line)

    def remember(self, line: dict) -> None:
        if "asks" in line:
            self.keys = max(self.keys, int(line["asks"]) + 1)
            self.unanswered.add(line["asks"])
        elif "key" in line:
            self.unanswered.discard(line["key"])
            if "run" in line:
                self.runs[line["key"]] = line["run"]

    # -- what it does ------------------------------------------------------------------------------

    def ask(self, key: str) -> None:
        self.write(asks=key)
        chance = random.Random(key)
        kind, rows = chance.choice(KINDS), chance.choice((0, 10, 5_000, 50_000, 150_000))
        parameters = {"wrong": {}, "endless": FOREVER}.get(kind, {"rows": rows})
        try:
            run = self.exports.request(self.requester, kind, parameters=parameters, idempotency_key=key)
        except Refused as refused:
            if refused.code not in NOT_NOW:
                raise
            self.write(key=key, refused=refused.code)
            return
        self.write(key=key, run=run.id)
        assert self.exports.get(self.requester, run.id).id == run.id, "accepted, and not there"

    def ask_anew(self) -> None:
        self.ask(str(self.keys))

    def ask_again(self) -> None:
        self.ask(self.chance.choice(sorted(self.runs)))

    def cancel(self) -> None:
        run = self.chance.choice(list(self.runs.values())[-4:])
        try:
            cancelled = self.exports.cancel(self.requester, run)
        except Refused as refused:
            if refused.code != "already_final":
                raise
        else:
            self.write(cancelled=run, state=cancelled.state)

    def expire(self) -> None:
        run = self.chance.choice(list(self.runs.values()))
        try:
            self.exports.expire(self.requester, run)
        except Refused as refused:
            if refused.code not in {"already_final", "not_ready"}:
                raise

    def act(self, enough: bool) -> None:
        """Do one thing; whatever the store did not answer is asked again later."""
        try:
            if self.unanswered and (enough or self.chance.random() < 0.5):
                self.ask(min(self.unanswered))
            elif not self.runs or self.chance.random() < 0.5:
                self.ask_anew()
            else:
                self.chance.choices((self.ask_again, self.cancel, self.expire), (6, 1, 2))[0]()
        except StoreUnavailable:
            pass


def main(config: dict, log: Path) -> None:
    """Until there is a file ``enough``, and then until everything asked has its answer; ``launcher.py`` forks it."""
    client = Client(log, config["number"])
    while not (enough := (log.parent / "enough").exists()) or client.unanswered:
        client.act(enough)
        time.sleep(client.chance.uniform(0, 0.2))  # as people do


def heard(log: Path) -> list[dict]:
    """What one client and its predecessors wrote down."""
    lines = log.read_text().splitlines() if log.exists() else []
    return [json.loads(line) for line in lines if line.endswith("}")]
