"""Deliveries of the outbox to webhooks. Expands only: the release before goes on writing outbox rows as it did.

Revision ID: 0002
Revises: 0001
"""

from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

TABLES = """
CREATE TABLE slackwater.webhook (
    name TEXT NOT NULL,
    url TEXT NOT NULL,
    secrets TEXT[] NOT NULL,
    kinds TEXT[] DEFAULT '{}' NOT NULL,
    private BOOLEAN DEFAULT false NOT NULL,
    created_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
    PRIMARY KEY (name)
);
COMMENT ON COLUMN slackwater.webhook.secrets IS 'newest first; each signs, so that one can be replaced';
COMMENT ON COLUMN slackwater.webhook.kinds IS 'of events; none: all';
COMMENT ON COLUMN slackwater.webhook.private IS 'may lead to an address that is not public';
CREATE TABLE slackwater.delivery (
    webhook TEXT NOT NULL,
    outbox_id BIGINT NOT NULL,
    task_id UUID NOT NULL,
    seq BIGINT NOT NULL,
    tries INTEGER DEFAULT '0' NOT NULL,
    next_try_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
    delivered_at TIMESTAMP WITH TIME ZONE,
    dead_at TIMESTAMP WITH TIME ZONE,
    last_error TEXT,
    PRIMARY KEY (webhook, outbox_id),
    FOREIGN KEY(webhook) REFERENCES slackwater.webhook (name) ON DELETE CASCADE,
    FOREIGN KEY(outbox_id) REFERENCES slackwater.outbox (id) ON DELETE CASCADE
);
COMMENT ON COLUMN slackwater.delivery.next_try_at IS 'while it is being sent: when another may send it';
CREATE INDEX delivery_open ON slackwater.delivery (webhook, task_id, seq)
    WHERE delivered_at IS NULL AND dead_at IS NULL;
CREATE INDEX delivery_by_outbox ON slackwater.delivery (outbox_id);
COMMENT ON COLUMN slackwater.outbox.delivered_at IS 'when it was handed to the webhooks'' deliveries';
COMMENT ON COLUMN slackwater.sweep.kind IS 'expired | touch | stale | orphans | outbox | …';
INSERT INTO slackwater.sweep (kind, last) VALUES ('outbox', '-infinity') ON CONFLICT DO NOTHING;
"""


def upgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.execute(TABLES)


def downgrade() -> None:
    raise NotImplementedError("going back needs no data migration: the last release runs on this schema")
