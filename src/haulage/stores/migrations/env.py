"""Alembic's entry: it runs on the connection that run.py passes, inside its transaction."""

from alembic import context

attributes = context.config.attributes
context.configure(
    connection=attributes["connection"], version_table=attributes["version_table"], transactional_ddl=True
)
context.run_migrations()
