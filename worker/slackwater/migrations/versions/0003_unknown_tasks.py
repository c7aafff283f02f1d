"""An index for the few tasks whose provider's outcome is not known. Expands only.

Revision ID: 0003
Revises: 0002
"""

from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.execute("CREATE INDEX claim_unknown ON slackwater.claim (task_id) WHERE state = 'unknown'")


def downgrade() -> None:
    raise NotImplementedError("going back needs no data migration: the last release runs on this schema")
