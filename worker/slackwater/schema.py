"""The tables. Rule: one narrow `claim` row per task is the only fence; everything wide or cold lives elsewhere.

All instants are `timestamptz` written with the database's `clock_timestamp()`, never with a process's clock.
The tables live in the PostgreSQL schema `slackwater`, so every statement is schema-qualified and PgBouncer-safe.
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    DateTime,
    Float,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    Numeric,
    Sequence,
    SmallInteger,
    Table,
    Text,
    UniqueConstraint,
    text,
)
from sqlalchemy.dialects.postgresql import ARRAY, JSONB, UUID

SCHEMA = "slackwater"
metadata = MetaData(schema=SCHEMA)

STATES = ("queued", "running", "held", "unknown", "done", "failed", "cancelled")
"""queued, running, held (interrupted, for an admin), unknown (a provider's outcome is not known), and three ends."""
ENDED = ("done", "failed", "cancelled")

_now = text("clock_timestamp()")


def _instant(name: str, *, nullable: bool = True, default: bool = False) -> Column[object]:
    return Column(name, DateTime(timezone=True), nullable=nullable, server_default=_now if default else None)


pool = Table(
    "pool",
    metadata,
    Column("uid", Text, primary_key=True, comment="uid of the WorkerPool, or an id made at registration"),
    Column("name", Text, nullable=False),
    Column("namespace", Text, nullable=False, server_default=""),
    Column("admission", Text, nullable=False, server_default="Open"),
    Column("queues", ARRAY(Text), nullable=False),
    Column("replicas", Integer, nullable=False, server_default="0", comment="desired pods, for estimates"),
    Column("concurrency", Integer, nullable=False, server_default="1", comment="tasks per pod"),
    _instant("refreshed_at", nullable=False, default=True),
    CheckConstraint("admission IN ('Open','Hold','HoldAndDrain','Closed')", name="pool_admission"),
)

queue = Table(
    "queue",
    metadata,
    Column("name", Text, primary_key=True),
    Column("paused", Boolean, nullable=False, server_default=text("false")),
    _instant("served_since", nullable=False, default=True),
)

worker = Table(
    "worker",
    metadata,
    Column("id", Text, primary_key=True, comment="random per process start"),
    Column("pool_uid", Text, nullable=False),
    Column("pod_uid", Text, nullable=False),
    Column("pod_name", Text, nullable=False, server_default=""),
    Column("node", Text, nullable=False, server_default=""),
    Column("revision", Text, nullable=False, server_default=""),
    Column("task_types", ARRAY(Text), nullable=False),
    Column("queues", ARRAY(Text), nullable=False),
    Column("concurrency", Integer, nullable=False),
    _instant("registered_at", nullable=False, default=True),
    _instant("ended_at"),
    Column("end_reason", Text, comment="drained | deadline | stubborn | witnessed | vanished"),
    Index("worker_by_pod", "pod_uid"),
    Index("worker_by_pool", "pool_uid"),
)

worker_heartbeat = Table(
    "worker_heartbeat",
    metadata,
    Column("worker_id", Text, primary_key=True),
    _instant("seen_at", nullable=False, default=True),
    Column("running", Integer, nullable=False, server_default="0"),
    postgresql_with={"fillfactor": "50"},
)

cordon_sequence = Sequence("cordon_sequence", metadata=metadata)

cordon = Table(
    "cordon",
    metadata,
    Column("pod_uid", Text, primary_key=True),
    Column("sequence", BigInteger, nullable=False, server_default=cordon_sequence.next_value()),
    Column("origin", Text, comment="operator (may be called off) | worker (SIGTERM, stubborn code: final)"),
    Column("cause", Text, comment="Rollout | ScaleDown | NodeDrain | Spot | Admin | Terminated | Stubborn | Gone"),
    _instant("since"),
    _instant("deadline"),
    _instant("condemned_at"),
    _instant("created_at", nullable=False, default=True),
    CheckConstraint("condemned_at IS NULL OR since IS NOT NULL", name="cordon_condemned_is_cordoned"),
    comment="One row per pod, made open at registration; cordoned when `since` is set.",
)

task = Table(
    "task",
    metadata,
    Column("id", UUID(as_uuid=True), primary_key=True),
    Column("type", Text, nullable=False),
    Column("queue", Text, nullable=False),
    Column("user_id", Text, nullable=False),
    Column("channel", Text, nullable=False, server_default=""),
    Column("payload", JSONB, nullable=False),
    Column("priority", SmallInteger, nullable=False, server_default="0"),
    Column("cost", Float, nullable=False, server_default="1"),
    Column("trace_id", Text, nullable=False, server_default=""),
    Column("settlement", Integer, nullable=False, server_default="1", comment="the open settlement's n"),
    Column("attempts", Integer, nullable=False, server_default="0", comment="runs ended by the task's own doing"),
    Column("interruptions", Integer, nullable=False, server_default="0", comment="without progress in between"),
    Column("progress", Float),
    Column("checkpoint", JSONB),
    Column("result", JSONB),
    Column("error_info", JSONB),
    _instant("created_at", nullable=False, default=True),
    _instant("updated_at", nullable=False, default=True),
    _instant("pending_since", nullable=False, default=True),
    _instant("started_at"),
    _instant("finished_at"),
    Index("task_by_user", "user_id", "id"),
    comment="updated_at moves by the outside party's activity and by fenced main progress only (R-STALE-05, 07).",
)

claim = Table(
    "claim",
    metadata,
    Column("task_id", UUID(as_uuid=True), ForeignKey(task.c.id, ondelete="CASCADE"), primary_key=True),
    Column("state", Text, nullable=False, server_default="queued"),
    Column("epoch", BigInteger, nullable=False, server_default="0"),
    Column("token", UUID(as_uuid=True)),
    Column("old_token", UUID(as_uuid=True), comment="of an execution fenced before its lease's end"),
    Column("worker_id", Text),
    _instant("lease_until"),
    _instant("claimed_at"),
    _instant("active_at"),
    _instant("claimable_from", nullable=False, default=True),
    Column("order_key", Float, nullable=False, server_default="0", comment="fair tag less the priority's bonus"),
    Column("queue", Text, nullable=False),
    Column("type", Text, nullable=False),
    Column("user_id", Text, nullable=False),
    Column("channel", Text, nullable=False, server_default=""),
    CheckConstraint(f"state IN {STATES}", name="claim_state"),
    CheckConstraint("(state = 'running') = (token IS NOT NULL)", name="claim_running_has_token"),
    # No index names lease_until or active_at: renewals stay heap-only.
    Index("claim_next", "queue", "order_key", "task_id", postgresql_where=text("state = 'queued'")),
    Index("claim_running", "worker_id", postgresql_where=text("state = 'running'")),
    Index("claim_fenced", "task_id", postgresql_where=text("old_token IS NOT NULL")),
    Index("claim_unknown", "task_id", postgresql_where=text("state = 'unknown'")),
    Index("claim_pending_by_user", "user_id", postgresql_where=text("state = 'queued'")),
    postgresql_with={
        "fillfactor": "70",
        "autovacuum_vacuum_scale_factor": "0.02",
        "autovacuum_vacuum_threshold": "200",
    },
)

task_type = Table(
    "task_type",
    metadata,
    Column("name", Text, primary_key=True),
    Column("declaration", JSONB, nullable=False),
    _instant("updated_at", nullable=False, default=True),
    comment="What a type declares, written at registration: sweeps and operator know it without task code.",
)

submission = Table(
    "submission",
    metadata,
    Column("task_id", UUID(as_uuid=True), ForeignKey(task.c.id, ondelete="CASCADE"), primary_key=True),
    Column("name", Text, primary_key=True, comment="given by the task, or the number in call order"),
    Column("n", Integer, primary_key=True, comment="rises only after the one before is resolved"),
    Column("key", Text, nullable=False, unique=True, comment="a function of (task, name, n), never random"),
    Column("provider", Text, nullable=False),
    Column("request", JSONB, nullable=False, comment="the whole request, sent again under the same key"),
    Column("epoch", BigInteger, nullable=False, comment="of the execution that wrote the intent"),
    _instant("intent_at", nullable=False, default=True),
    Column("reference", Text),
    _instant("reference_at"),
    Column("outcome", JSONB, comment="on record at the provider under this key; resolves the submission"),
    _instant("resolved_at"),
)

aftercare = Table(
    "aftercare",
    metadata,
    Column("task_id", UUID(as_uuid=True), ForeignKey(task.c.id, ondelete="CASCADE"), primary_key=True),
    Column("n", Integer, primary_key=True, comment="the settlement that it belongs to"),
    Column("kind", Text, primary_key=True, comment="stop (the provider) | compensate"),
    Column("type", Text, nullable=False),
    Column("tries", Integer, nullable=False, server_default="0"),
    Column(
        "next_try_at",
        DateTime(timezone=True),
        nullable=False,
        server_default=_now,
        comment="while it runs: when another worker may run it",
    ),
    _instant("done_at"),
    _instant("dead_at"),
    Column("last_error", Text),
    Index("aftercare_open", "next_try_at", postgresql_where=text("done_at IS NULL AND dead_at IS NULL")),
    CheckConstraint("kind IN ('stop','compensate')", name="aftercare_kind"),
)

settlement = Table(
    "settlement",
    metadata,
    Column("task_id", UUID(as_uuid=True), ForeignKey(task.c.id, ondelete="CASCADE"), primary_key=True),
    Column("n", Integer, primary_key=True),
    Column("user_id", Text, nullable=False),
    Column("reserved", Numeric, nullable=False),
    Column("charged", Numeric),
    Column("refunded", Numeric),
    Column("late_cost", Numeric, comment="of a result that came after the refund"),
    _instant("reserved_at", nullable=False, default=True),
    _instant("settled_at"),
    CheckConstraint("charged IS NULL OR refunded IS NULL", name="settlement_once"),
)

event = Table(
    "event",
    metadata,
    Column("task_id", UUID(as_uuid=True), ForeignKey(task.c.id, ondelete="CASCADE"), primary_key=True),
    Column("seq", BigInteger, primary_key=True, comment="gapless within the task"),
    Column("epoch", BigInteger, nullable=False),
    Column("counter", Integer, nullable=False, comment="the run's own; makes a repeat harmless"),
    Column("kind", Text, nullable=False),
    Column("data", JSONB, nullable=False, server_default=text("'{}'::jsonb")),
    _instant("created_at", nullable=False, default=True),
    UniqueConstraint("task_id", "epoch", "counter", name="event_once"),
)

outbox = Table(
    "outbox",
    metadata,
    Column("id", BigInteger, primary_key=True, autoincrement=True),
    Column("task_id", UUID(as_uuid=True), nullable=False),
    Column("seq", BigInteger, nullable=False),
    Column("kind", Text, nullable=False),
    Column("data", JSONB, nullable=False),
    _instant("created_at", nullable=False, default=True),
    Column("delivered_at", DateTime(timezone=True), comment="when it was handed to the webhooks' deliveries"),
    Column("tries", Integer, nullable=False, server_default="0"),
    _instant("next_try_at", nullable=False, default=True),
    Index("outbox_open", "id", postgresql_where=text("delivered_at IS NULL")),
)

webhook = Table(
    "webhook",
    metadata,
    Column("name", Text, primary_key=True),
    Column("url", Text, nullable=False),
    Column("secrets", ARRAY(Text), nullable=False, comment="newest first; each signs, so that one can be replaced"),
    Column("kinds", ARRAY(Text), nullable=False, server_default=text("'{}'"), comment="of events; none: all"),
    Column(
        "private",
        Boolean,
        nullable=False,
        server_default=text("false"),
        comment="may lead to an address that is not public",
    ),
    _instant("created_at", nullable=False, default=True),
)

delivery = Table(
    "delivery",
    metadata,
    Column("webhook", Text, ForeignKey(webhook.c.name, ondelete="CASCADE"), primary_key=True),
    Column("outbox_id", BigInteger, ForeignKey(outbox.c.id, ondelete="CASCADE"), primary_key=True),
    Column("task_id", UUID(as_uuid=True), nullable=False),
    Column("seq", BigInteger, nullable=False),
    Column("tries", Integer, nullable=False, server_default="0"),
    Column(
        "next_try_at",
        DateTime(timezone=True),
        nullable=False,
        server_default=_now,
        comment="while it is being sent: when another may send it",
    ),
    _instant("delivered_at"),
    _instant("dead_at"),
    Column("last_error", Text),
    Index(
        "delivery_open",
        "webhook",
        "task_id",
        "seq",
        postgresql_where=text("delivered_at IS NULL AND dead_at IS NULL"),
    ),
    Index("delivery_by_outbox", "outbox_id"),
)

idempotency = Table(
    "idempotency",
    metadata,
    Column("user_id", Text, primary_key=True),
    Column("key", Text, primary_key=True),
    Column("task_id", UUID(as_uuid=True), nullable=False),
    Column("body_hash", Text, nullable=False),
    _instant("created_at", nullable=False, default=True),
)

user_share = Table(
    "user_share",
    metadata,
    Column("queue", Text, primary_key=True),
    Column("user_id", Text, primary_key=True),
    Column("weight", Float, nullable=False, server_default="1"),
    Column("finish", Float, nullable=False, server_default="0", comment="virtual finish of the last admitted"),
)

policy = Table(
    "policy",
    metadata,
    Column("id", SmallInteger, primary_key=True, server_default="1"),
    Column("document", JSONB, nullable=False),
    _instant("updated_at", nullable=False, default=True),
    CheckConstraint("id = 1", name="policy_single"),
)

slot_generation = Table(
    "slot_generation",
    metadata,
    Column("id", SmallInteger, primary_key=True, server_default="1"),
    Column("generation", BigInteger, nullable=False, server_default="0"),
    _instant("raised_at", nullable=False, default=True),
    CheckConstraint("id = 1", name="slot_generation_single"),
)

timeline = Table(
    "timeline",
    metadata,
    Column("id", SmallInteger, primary_key=True, server_default="1"),
    Column("name", Text, nullable=False, comment="first 8 digits of the WAL file's name"),
    _instant("changed_at", nullable=False),
    CheckConstraint("id = 1", name="timeline_single"),
    comment="Claims compare it: after a failover nothing is claimed for one lease.",
)

sweep = Table(
    "sweep",
    metadata,
    Column("kind", Text, primary_key=True, comment="expired | touch | stale | orphans | outbox | …"),
    _instant("last", nullable=False),
    _instant("quiet_until"),
)

counter = Table(
    "counter",
    metadata,
    Column("pool_uid", Text, primary_key=True),
    Column("name", Text, primary_key=True, comment="stale_writes_refused, tasks_requeued, …"),
    Column("value", BigInteger, nullable=False, server_default="0"),
)

audit = Table(
    "audit",
    metadata,
    Column("id", BigInteger, primary_key=True, autoincrement=True),
    _instant("at", nullable=False, default=True),
    Column("who", Text, nullable=False),
    Column("action", Text, nullable=False),
    Column("task_id", UUID(as_uuid=True)),
    Column("detail", JSONB, nullable=False, server_default=text("'{}'::jsonb")),
)

WAKE_CHANNEL = "slackwater_wake"
"""NOTIFY channel: payload = queue name; once per batch of new or requeued tasks."""
POOL_CHANNEL = "slackwater_pool"
"""NOTIFY channel: payload = pool uid; sent when a worker registers or ends, a cordon changes, or a claim of a
cordoned pod ends (not at every end: a notification takes a lock of the whole cluster at commit)."""
EVENT_CHANNEL = "slackwater_event"
"""NOTIFY channel: payload = task id; sent by whoever stores an event, in the same transaction."""
GENERATION_LOCK = 0x51AC4
"""Advisory lock: claims hold it shared for their transaction; a raise of the slot generation holds it alone."""
