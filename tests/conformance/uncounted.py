"""A flow whose runs share nothing: exports without slots, budget and limits of tenants, in a table of their own.

No flow that is shipped is one; whoever adds a flow may make it so with one word (`tables.run_table`).
"""

from __future__ import annotations

from sqlalchemy import BigInteger, MetaData, String, bindparam, cast, create_mock_engine, literal_column, null, true

from haulage.core.limits import ExportLimits
from haulage.core.progress import Progress
from haulage.exports.life import ExportLife, ExportRun
from haulage.stores.entering import RELEASED, admitted
from haulage.stores.queue import ONE
from haulage.stores.runs import SqlRuns
from haulage.stores.tables import export_table

TABLE = export_table("plain", counted=False, within=MetaData())


class Welcome:
    """Admits every claim."""

    def figures(self):
        return []

    def admit(self, row, terms, now):
        return admitted(row, terms, stored_bytes=0, reserved_bytes=0, now=now) | {"reserved_bytes": None}

    def admitted(self, run, _pool, now):
        return true(), {
            "attempts": run.c.attempts + ONE,
            "finish_by": now + run.c.generation_ms + bindparam("grace_ms", type_=BigInteger),
            "artifact_key": run.c.id.concat(literal_column("'.'")).concat(cast(run.c.claim_no + ONE, String)),
            **dict.fromkeys(Progress._fields, null()),
        }


def statements(runs):
    """What makes the table, beside the one of other runs."""
    made, engine = [], runs._database.engine
    mock = create_mock_engine(engine.url, lambda each, *_a, **_k: made.append(str(each.compile(dialect=mock.dialect))))
    TABLE.create(mock, checkfirst=False)
    if engine.dialect.name == "postgresql":
        made.append(f"alter table {TABLE.name} set (fillfactor = 75)")  # as the migration says of exports
    return made


def uncounted(runs):
    """The verbs of that table, in the store of other runs."""
    retention = ExportLimits().retention_seconds
    return SqlRuns(
        runs._database,
        TABLE,
        ExportLife,
        ExportRun,
        admission=Welcome(),
        retention_seconds=retention,
        released=RELEASED,
    )
