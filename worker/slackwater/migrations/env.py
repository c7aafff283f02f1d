"""Alembic's entry: runs on the connection and in the transaction of `slackwater.migrations.upgrade`."""

from alembic import context

from slackwater.schema import SCHEMA, metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    version_table_schema=SCHEMA,
    transaction_per_migration=False,
)
context.run_migrations()
