"""The tables of the lease protocol, and the rows that the rules presume.

Revision ID: 0001
Revises:
"""

from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

TABLES = """
CREATE SEQUENCE slackwater.cordon_sequence;
CREATE TABLE slackwater.audit (
    id BIGSERIAL NOT NULL,
    at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
    who TEXT NOT NULL,
    action TEXT NOT NULL,
    task_id UUID,
    detail JSONB DEFAULT '{}'::jsonb NOT NULL,
    PRIMARY KEY (id)
);
CREATE TABLE slackwater.cordon (
    pod_uid TEXT NOT NULL,
    sequence BIGINT DEFAULT nextval('slackwater.cordon_sequence') NOT NULL,
    origin TEXT,
    cause TEXT,
    since TIMESTAMP WITH TIME ZONE,
    deadline TIMESTAMP WITH TIME ZONE,
    condemned_at TIMESTAMP WITH TIME ZONE,
    created_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
    PRIMARY KEY (pod_uid),
    CONSTRAINT cordon_condemned_is_cordoned CHECK (condemned_at IS NULL OR since IS NOT NULL)
);
COMMENT ON TABLE slackwater.cordon IS 'One row per pod, made open at registration; cordoned when `since` is set.';
COMMENT ON COLUMN slackwater.cordon.origin IS 'operator (may be called off) | worker (SIGTERM, stubborn code: final)';
COMMENT ON COLUMN slackwater.cordon.cause IS 'Rollout | ScaleDown | NodeDrain | Spot | Admin | Terminated | Stubborn | Gone';
CREATE TABLE slackwater.counter (
    pool_uid TEXT NOT NULL,
    name TEXT NOT NULL,
    value BIGINT DEFAULT '0' NOT NULL,
    PRIMARY KEY (pool_uid, name)
);
COMMENT ON COLUMN slackwater.counter.name IS 'stale_writes_refused, tasks_requeued, …';
CREATE TABLE slackwater.idempotency (
    user_id TEXT NOT NULL,
    key TEXT NOT NULL,
    task_id UUID NOT NULL,
    body_hash TEXT NOT NULL,
    created_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
    PRIMARY KEY (user_id, key)
);
CREATE TABLE slackwater.outbox (
    id BIGSERIAL NOT NULL,
    task_id UUID NOT NULL,
    seq BIGINT NOT NULL,
    kind TEXT NOT NULL,
    data JSONB NOT NULL,
    created_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
    delivered_at TIMESTAMP WITH TIME ZONE,
    tries INTEGER DEFAULT '0' NOT NULL,
    next_try_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
    PRIMARY KEY (id)
);
CREATE INDEX outbox_open ON slackwater.outbox (id) WHERE delivered_at IS NULL;
CREATE TABLE slackwater.policy (
    id SMALLINT DEFAULT '1' NOT NULL,
    document JSONB NOT NULL,
    updated_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
    PRIMARY KEY (id),
    CONSTRAINT policy_single CHECK (id = 1)
);
CREATE TABLE slackwater.pool (
    uid TEXT NOT NULL,
    name TEXT NOT NULL,
    namespace TEXT DEFAULT '' NOT NULL,
    admission TEXT DEFAULT 'Open' NOT NULL,
    queues TEXT[] NOT NULL,
    replicas INTEGER DEFAULT '0' NOT NULL,
    concurrency INTEGER DEFAULT '1' NOT NULL,
    refreshed_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
    PRIMARY KEY (uid),
    CONSTRAINT pool_admission CHECK (admission IN ('Open','Hold','HoldAndDrain','Closed'))
);
COMMENT ON COLUMN slackwater.pool.uid IS 'uid of the WorkerPool, or an id made at registration';
COMMENT ON COLUMN slackwater.pool.replicas IS 'desired pods, for estimates';
COMMENT ON COLUMN slackwater.pool.concurrency IS 'tasks per pod';
CREATE TABLE slackwater.queue (
    name TEXT NOT NULL,
    paused BOOLEAN DEFAULT false NOT NULL,
    served_since TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
    PRIMARY KEY (name)
);
CREATE TABLE slackwater.slot_generation (
    id SMALLINT DEFAULT '1' NOT NULL,
    generation BIGINT DEFAULT '0' NOT NULL,
    raised_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
    PRIMARY KEY (id),
    CONSTRAINT slot_generation_single CHECK (id = 1)
);
CREATE TABLE slackwater.sweep (
    kind TEXT NOT NULL,
    last TIMESTAMP WITH TIME ZONE NOT NULL,
    quiet_until TIMESTAMP WITH TIME ZONE,
    PRIMARY KEY (kind)
);
COMMENT ON COLUMN slackwater.sweep.kind IS 'expired | touch | stale | orphans';
CREATE TABLE slackwater.task (
    id UUID NOT NULL,
    type TEXT NOT NULL,
    queue TEXT NOT NULL,
    user_id TEXT NOT NULL,
    channel TEXT DEFAULT '' NOT NULL,
    payload JSONB NOT NULL,
    priority SMALLINT DEFAULT '0' NOT NULL,
    cost FLOAT DEFAULT '1' NOT NULL,
    trace_id TEXT DEFAULT '' NOT NULL,
    settlement INTEGER DEFAULT '1' NOT NULL,
    attempts INTEGER DEFAULT '0' NOT NULL,
    interruptions INTEGER DEFAULT '0' NOT NULL,
    progress FLOAT,
    checkpoint JSONB,
    result JSONB,
    error_info JSONB,
    created_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
    updated_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
    pending_since TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
    started_at TIMESTAMP WITH TIME ZONE,
    finished_at TIMESTAMP WITH TIME ZONE,
    PRIMARY KEY (id)
);
COMMENT ON TABLE slackwater.task IS 'updated_at moves by the outside party''s activity and by fenced main progress only (R-STALE-05, 07).';
COMMENT ON COLUMN slackwater.task.settlement IS 'the open settlement''s n';
COMMENT ON COLUMN slackwater.task.attempts IS 'runs ended by the task''s own doing';
COMMENT ON COLUMN slackwater.task.interruptions IS 'without progress in between';
CREATE INDEX task_by_user ON slackwater.task (user_id, id);
CREATE TABLE slackwater.task_type (
    name TEXT NOT NULL,
    declaration JSONB NOT NULL,
    updated_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
    PRIMARY KEY (name)
);
COMMENT ON TABLE slackwater.task_type IS 'What a type declares, written at registration: sweeps and operator know it without task code.';
CREATE TABLE slackwater.timeline (
    id SMALLINT DEFAULT '1' NOT NULL,
    name TEXT NOT NULL,
    changed_at TIMESTAMP WITH TIME ZONE NOT NULL,
    PRIMARY KEY (id),
    CONSTRAINT timeline_single CHECK (id = 1)
);
COMMENT ON TABLE slackwater.timeline IS 'Claims compare it: after a failover nothing is claimed for one lease.';
COMMENT ON COLUMN slackwater.timeline.name IS 'first 8 digits of the WAL file''s name';
CREATE TABLE slackwater.user_share (
    queue TEXT NOT NULL,
    user_id TEXT NOT NULL,
    weight FLOAT DEFAULT '1' NOT NULL,
    finish FLOAT DEFAULT '0' NOT NULL,
    PRIMARY KEY (queue, user_id)
);
COMMENT ON COLUMN slackwater.user_share.finish IS 'virtual finish of the last admitted';
CREATE TABLE slackwater.worker (
    id TEXT NOT NULL,
    pool_uid TEXT NOT NULL,
    pod_uid TEXT NOT NULL,
    pod_name TEXT DEFAULT '' NOT NULL,
    node TEXT DEFAULT '' NOT NULL,
    revision TEXT DEFAULT '' NOT NULL,
    task_types TEXT[] NOT NULL,
    queues TEXT[] NOT NULL,
    concurrency INTEGER NOT NULL,
    registered_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
    ended_at TIMESTAMP WITH TIME ZONE,
    end_reason TEXT,
    PRIMARY KEY (id)
);
COMMENT ON COLUMN slackwater.worker.id IS 'random per process start';
COMMENT ON COLUMN slackwater.worker.end_reason IS 'drained | deadline | stubborn | witnessed | vanished';
CREATE INDEX worker_by_pod ON slackwater.worker (pod_uid);
CREATE INDEX worker_by_pool ON slackwater.worker (pool_uid);
CREATE TABLE slackwater.worker_heartbeat (
    worker_id TEXT NOT NULL,
    seen_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
    running INTEGER DEFAULT '0' NOT NULL,
    PRIMARY KEY (worker_id)
)
 WITH (fillfactor = 50);
CREATE TABLE slackwater.claim (
    task_id UUID NOT NULL,
    state TEXT DEFAULT 'queued' NOT NULL,
    epoch BIGINT DEFAULT '0' NOT NULL,
    token UUID,
    old_token UUID,
    worker_id TEXT,
    lease_until TIMESTAMP WITH TIME ZONE,
    claimed_at TIMESTAMP WITH TIME ZONE,
    active_at TIMESTAMP WITH TIME ZONE,
    claimable_from TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
    order_key FLOAT DEFAULT '0' NOT NULL,
    queue TEXT NOT NULL,
    type TEXT NOT NULL,
    user_id TEXT NOT NULL,
    channel TEXT DEFAULT '' NOT NULL,
    PRIMARY KEY (task_id),
    CONSTRAINT claim_state CHECK (state IN ('queued', 'running', 'held', 'unknown', 'done', 'failed', 'cancelled')),
    CONSTRAINT claim_running_has_token CHECK ((state = 'running') = (token IS NOT NULL)),
    FOREIGN KEY(task_id) REFERENCES slackwater.task (id) ON DELETE CASCADE
)
 WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 200);
COMMENT ON COLUMN slackwater.claim.old_token IS 'of an execution fenced before its lease''s end';
COMMENT ON COLUMN slackwater.claim.order_key IS 'fair tag less the priority''s bonus';
CREATE INDEX claim_fenced ON slackwater.claim (task_id) WHERE old_token IS NOT NULL;
CREATE INDEX claim_next ON slackwater.claim (queue, order_key, task_id) WHERE state = 'queued';
CREATE INDEX claim_pending_by_user ON slackwater.claim (user_id) WHERE state = 'queued';
CREATE INDEX claim_running ON slackwater.claim (worker_id) WHERE state = 'running';
CREATE TABLE slackwater.event (
    task_id UUID NOT NULL,
    seq BIGINT NOT NULL,
    epoch BIGINT NOT NULL,
    counter INTEGER NOT NULL,
    kind TEXT NOT NULL,
    data JSONB DEFAULT '{}'::jsonb NOT NULL,
    created_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
    PRIMARY KEY (task_id, seq),
    CONSTRAINT event_once UNIQUE (task_id, epoch, counter),
    FOREIGN KEY(task_id) REFERENCES slackwater.task (id) ON DELETE CASCADE
);
COMMENT ON COLUMN slackwater.event.seq IS 'gapless within the task';
COMMENT ON COLUMN slackwater.event.counter IS 'the run''s own; makes a repeat harmless';
CREATE TABLE slackwater.settlement (
    task_id UUID NOT NULL,
    n INTEGER NOT NULL,
    user_id TEXT NOT NULL,
    reserved NUMERIC NOT NULL,
    charged NUMERIC,
    refunded NUMERIC,
    late_cost NUMERIC,
    reserved_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
    settled_at TIMESTAMP WITH TIME ZONE,
    PRIMARY KEY (task_id, n),
    CONSTRAINT settlement_once CHECK (charged IS NULL OR refunded IS NULL),
    FOREIGN KEY(task_id) REFERENCES slackwater.task (id) ON DELETE CASCADE
);
COMMENT ON COLUMN slackwater.settlement.late_cost IS 'of a result that came after the refund';
CREATE TABLE slackwater.submission (
    task_id UUID NOT NULL,
    name TEXT NOT NULL,
    n INTEGER NOT NULL,
    key TEXT NOT NULL,
    provider TEXT NOT NULL,
    request JSONB NOT NULL,
    epoch BIGINT NOT NULL,
    intent_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
    reference TEXT,
    reference_at TIMESTAMP WITH TIME ZONE,
    outcome JSONB,
    resolved_at TIMESTAMP WITH TIME ZONE,
    PRIMARY KEY (task_id, name, n),
    FOREIGN KEY(task_id) REFERENCES slackwater.task (id) ON DELETE CASCADE,
    UNIQUE (key)
);
COMMENT ON COLUMN slackwater.submission.name IS 'given by the task, or the number in call order';
COMMENT ON COLUMN slackwater.submission.n IS 'rises only after the one before is resolved';
COMMENT ON COLUMN slackwater.submission.key IS 'a function of (task, name, n), never random';
COMMENT ON COLUMN slackwater.submission.request IS 'the whole request, sent again under the same key';
COMMENT ON COLUMN slackwater.submission.epoch IS 'of the execution that wrote the intent';
COMMENT ON COLUMN slackwater.submission.outcome IS 'on record at the provider under this key; resolves the submission';
"""

ROWS = """
INSERT INTO slackwater.slot_generation (id, generation, raised_at) VALUES (1, 0, '-infinity');
INSERT INTO slackwater.sweep (kind, last) VALUES
    ('expired', '-infinity'), ('touch', '-infinity'), ('stale', '-infinity'), ('orphans', '-infinity');
INSERT INTO slackwater.timeline (id, name, changed_at)
    VALUES (1, substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8), '-infinity');
INSERT INTO slackwater.policy (id, document) VALUES (1, '{
    "user_pending_limit": 3, "system_pending_limit": 20, "worker_concurrency": 4,
    "pools": {}, "channels": {}, "users": {}, "weights": {}
}');
"""


def upgrade() -> None:
    op.execute(TABLES)
    op.execute(ROWS)


def downgrade() -> None:
    raise NotImplementedError("going back needs no data migration: the last release runs on this schema")
