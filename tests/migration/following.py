"""The version after this one, for the tests that this one works on beside it: a copy of the code with a migration more.

There is one migration so far, so there is no earlier code to try. The pair is made the other way round: what is here is
the version before (N-1), and the copy is the next one (N). It adds what an additive migration may add (a column that
may be empty, one with a default, a table, an index, a fact), writes to it, and keeps ``min_worker``.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import haulage
from haulage.stores.schema import MIN_WORKER, SCHEMA_VERSION

NEXT = SCHEMA_VERSION + 1
MIGRATION = '''
"""A colour for every run."""
import sqlalchemy as sa
from alembic import op

revision, down_revision = "NEXT", "THIS"


def upgrade():
    op.add_column("exports", sa.Column("colour", sa.String(32), nullable=True))
    op.add_column("exports", sa.Column("weight", sa.Integer(), nullable=False, server_default="7"))
    op.add_column("workers", sa.Column("region", sa.String(32), nullable=True))
    op.create_table("colours", sa.Column("name", sa.String(32), primary_key=True), sa.Column("used", sa.Integer()))
    op.create_index("exports_coloured", "exports", ["colour", "requested_at"])
    facts = sa.table("haulage_facts", sa.column("name", sa.String), sa.column("value", sa.BigInteger))
    op.execute(facts.update().where(facts.c.name == "schema_version").values(value=NUMBER))
    op.execute(facts.update().where(facts.c.name == "min_worker").values(value=MIN_WORKER))
    op.bulk_insert(facts, [{"name": "colours", "value": 1}])


def downgrade():
    raise NotImplementedError
'''
CHANGES = {  # of the copy: file, what stands there, what stands there in the next version
    "stores/schema.py": [
        (f"SCHEMA_VERSION = {SCHEMA_VERSION}", f"SCHEMA_VERSION = {NEXT}"),
        (f"MIN_WORKER = {MIN_WORKER}", "MIN_WORKER = {oldest}"),
    ],
    "stores/tables.py": [
        (
            '        Column("stored_bytes", BigInteger),\n',
            (
                '        Column("stored_bytes", BigInteger),\n'
                '        Column("colour", String(32)),\n'
                '        Column("weight", Integer, nullable=False, server_default="7"),\n'
            ),
        )
    ],
    "exports/life.py": [
        (
            "    stored_bytes: int | None = None\n",
            "    stored_bytes: int | None = None\n    colour: str | None = None\n    weight: int = 8\n",
        )
    ],
    "exports/plan.py": [
        ("        file_bytes=build.file_bytes,\n", '        file_bytes=build.file_bytes,\n        colour="blue",\n')
    ],
}


class Following:
    """The next version, in a folder of its own."""

    def __init__(self, folder: Path, oldest: int = MIN_WORKER):
        """``oldest`` is the schema of the oldest worker that may claim after its migration."""
        self.place = folder / "following"
        package = self.place / "haulage"
        shutil.copytree(Path(haulage.__file__).parent, package)  # compiled files too: what is changed is compiled anew
        for name, changes in CHANGES.items():
            text = (package / name).read_text()
            for before, after in changes:
                assert 1 == text.count(before), f"{name} is not what it was: {before}"
                text = text.replace(before, after.format(oldest=oldest) if "{oldest}" in after else after)
            (package / name).write_text(text)
        versions = package / "stores/migrations/versions"
        words = {"MIN_WORKER": oldest, "NUMBER": NEXT, "NEXT": f"{NEXT:04}", "THIS": f"{SCHEMA_VERSION:04}"}
        text = MIGRATION
        for word, value in words.items():
            text = text.replace(word, str(value))
        (versions / f"v{NEXT:04}_colours.py").write_text(text)

    def environ(self, environ: dict[str, str]) -> dict[str, str]:
        return {**environ, "PYTHONPATH": str(self.place)}

    def run(self, terminal, *words: str, code: int = 0) -> str:
        """Run its ``haulage`` to the end; gives what it said."""
        command = [sys.executable, "-P", "-m", "haulage", *words]
        ran = subprocess.run(
            command,
            cwd=terminal.folder,
            env=self.environ(terminal.environ),
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        assert code == ran.returncode, ran.stdout + ran.stderr
        return ran.stdout

    def started(self, terminal, *words: str):
        """Start its ``haulage``."""
        return terminal.started(*words, PYTHONPATH=str(self.place))
