"""What is left to do for tasks that ended: a provider to stop, effects to undo. Expands only.

Revision ID: 0004
Revises: 0003
"""

from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

TABLES = """
CREATE TABLE slackwater.aftercare (
    task_id UUID NOT NULL,
    n INTEGER NOT NULL,
    kind TEXT NOT NULL,
    type TEXT NOT NULL,
    tries INTEGER DEFAULT '0' NOT NULL,
    next_try_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
    done_at TIMESTAMP WITH TIME ZONE,
    dead_at TIMESTAMP WITH TIME ZONE,
    last_error TEXT,
    PRIMARY KEY (task_id, n, kind),
    CONSTRAINT aftercare_kind CHECK (kind IN ('stop','compensate')),
    FOREIGN KEY(task_id) REFERENCES slackwater.task (id) ON DELETE CASCADE
);
COMMENT ON COLUMN slackwater.aftercare.n IS 'the settlement that it belongs to';
COMMENT ON COLUMN slackwater.aftercare.kind IS 'stop (the provider) | compensate';
COMMENT ON COLUMN slackwater.aftercare.next_try_at IS 'while it runs: when another worker may run it';
CREATE INDEX aftercare_open ON slackwater.aftercare (next_try_at) WHERE done_at IS NULL AND dead_at IS NULL;
"""


def upgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.execute(TABLES)


def downgrade() -> None:
    raise NotImplementedError("going back needs no data migration: the last release runs on this schema")
