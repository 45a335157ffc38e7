"""What a database's trigger does for the directory store: every change of state is written down as it is made.

The one place where the file of a run is written is wrapped, in every process that imports this; it is called with the
right to write, so the lines stand in the order of the changes. How many run is counted from the files themselves.
"""

from __future__ import annotations

import json
from pathlib import Path

from haulage.stores.directory.live import Live

NAME = "transitions"  # beside the store; where it is not there, nothing is written down
real_put = Live.put


def put_and_write_down(self, run, key, tx, *, new=False):
    written = Path(f"{self._folder.root}.{NAME}")
    before = state_in(self.path(run.id)) if written.exists() and not new else None
    real_put(self, run, key, tx, new=new)
    if before is not None and before != run.state:
        running = sum(state_in(path) == "running" for path in self.place.glob("*.json"))
        line = [run.id, before, run.state, run.claim_no, running, int(run.cancel_requested_at is not None)]
        with written.open("a") as file:
            file.write(json.dumps(line) + "\n")


def state_in(path):
    return json.loads(path.read_bytes().split(b"\n", 1)[1])["run"]["state"]


Live.put = put_and_write_down
