"""Statements of admission. Rule: counts come in a statement after the locks; a snapshot is as old as its statement.

Lock order: user, then the queue of the whole system. The second is one lock for all queues, because the system's limit
counts them together and the fair order's levels are read under it.
"""

from __future__ import annotations

from typing import Final

from slackwater.store.sql import sql

_USER_LOCK: Final = 0x51A1
_SYSTEM_LOCK: Final = 0x51A2

LOCK_USER = sql("SELECT pg_advisory_xact_lock({lock}, hashtext(CAST(:user_id AS text)))", {"lock": str(_USER_LOCK)})
LOCK_SYSTEM = sql("SELECT pg_advisory_xact_lock({lock}, 0)", {"lock": str(_SYSTEM_LOCK)})

REPLAYED = sql(
    """
    SELECT key, task_id, body_hash FROM {s}.idempotency
     WHERE user_id = :user_id AND key = ANY(CAST(:keys AS text[]))
    """
)

COUNTS = sql(
    """
    SELECT (SELECT count(*) FROM {s}.claim WHERE state = 'queued' AND user_id = :user_id) AS user_queued,
           (SELECT count(*) FROM {s}.claim WHERE state = 'queued') AS system_queued,
           (SELECT document FROM {s}.policy WHERE id = 1) AS policy
    """
)

CHANNEL_COUNTS = sql(
    """
    SELECT channel, count(*) AS queued FROM {s}.claim
     WHERE state = 'queued' AND channel = ANY(CAST(:channels AS text[])) GROUP BY channel
    """
)

STANDING = sql(
    """
    SELECT (SELECT bool_and(admission = 'Closed') FROM {s}.pool WHERE :queue = ANY(queues)) AS closed,
           (SELECT count(*) FROM {s}.claim
             WHERE state = 'queued' AND user_id = :user_id AND queue = :queue) AS pending,
           share.finish, running.tag AS running, due.tag AS due, later.tag AS later
      FROM (SELECT 1) AS one
      LEFT JOIN {s}.user_share AS share ON share.queue = :queue AND share.user_id = :user_id
      LEFT JOIN LATERAL (
           SELECT max(c.order_key + :step * t.priority) AS tag
             FROM {s}.claim AS c JOIN {s}.task AS t ON t.id = c.task_id
            WHERE c.state = 'running' AND c.queue = :queue AND c.channel = :channel) AS running ON true
      LEFT JOIN LATERAL (
           SELECT c.order_key + :step * t.priority AS tag
             FROM {s}.claim AS c JOIN {s}.task AS t ON t.id = c.task_id
            WHERE c.state = 'queued' AND c.queue = :queue AND c.channel = :channel
              AND c.claimable_from <= clock_timestamp()
            ORDER BY c.order_key, c.task_id LIMIT 1) AS due ON true
      LEFT JOIN LATERAL (
           SELECT c.order_key + :step * t.priority AS tag
             FROM {s}.claim AS c JOIN {s}.task AS t ON t.id = c.task_id
            WHERE c.state = 'queued' AND c.queue = :queue AND c.channel = :channel
            ORDER BY c.order_key, c.task_id LIMIT 1) AS later ON true
    """
)

INSERT = sql(
    """
    WITH new AS (
        SELECT r.*, CAST(payload_text AS jsonb) AS payload
          FROM unnest(CAST(:id AS uuid[]), CAST(:type AS text[]), CAST(:queue AS text[]), CAST(:channel AS text[]),
                      CAST(:payload AS text[]), CAST(:priority AS int[]), CAST(:cost AS float8[]),
                      CAST(:trace_id AS text[]), CAST(:run_at AS timestamptz[]), CAST(:order_key AS float8[]),
                      CAST(:reserve AS numeric[]), CAST(:idempotency_key AS text[]), CAST(:body_hash AS text[]))
            AS r(id, type, queue, channel, payload_text, priority, cost, trace_id, run_at, order_key, reserve,
                 idempotency_key, body_hash)
    ), queues AS (
        INSERT INTO {s}.queue (name) SELECT DISTINCT queue FROM new ORDER BY queue ON CONFLICT DO NOTHING
    ), tasks AS (
        INSERT INTO {s}.task (id, type, queue, user_id, channel, payload, priority, cost, trace_id)
        SELECT id, type, queue, :user_id, channel, payload, priority, cost, trace_id FROM new
    ), claims AS (
        INSERT INTO {s}.claim (task_id, claimable_from, order_key, queue, type, user_id, channel)
        SELECT id, greatest(run_at, clock_timestamp()), order_key, queue, type, :user_id, channel FROM new
    ), reserves AS (
        INSERT INTO {s}.settlement (task_id, n, user_id, reserved) SELECT id, 1, :user_id, reserve FROM new
    ), events AS (
        INSERT INTO {s}.event (task_id, seq, epoch, counter, kind) SELECT id, 1, 0, 0, 'queued' FROM new
    ), letters AS (
        INSERT INTO {s}.outbox (task_id, seq, kind, data) SELECT id, 1, 'queued', '{}' FROM new
    ), keys AS (
        INSERT INTO {s}.idempotency (user_id, key, task_id, body_hash)
        SELECT :user_id, idempotency_key, id, body_hash FROM new WHERE idempotency_key IS NOT NULL
    ), shares AS (
        INSERT INTO {s}.user_share (queue, user_id, finish)
        SELECT queue, :user_id, finish FROM unnest(CAST(:share_queue AS text[]), CAST(:share_finish AS float8[]))
            AS share(queue, finish)
        ON CONFLICT (queue, user_id) DO UPDATE SET finish = excluded.finish
    )
    SELECT pg_notify(:wake, queue) FROM (SELECT DISTINCT queue FROM new) AS woken
    """
)

SAVE_SHARE = sql(
    """
    INSERT INTO {s}.user_share (queue, user_id, finish) VALUES (:queue, :user_id, :finish)
    ON CONFLICT (queue, user_id) DO UPDATE SET finish = excluded.finish
    """
)

WAKE = sql("SELECT pg_notify(:channel, :queue)")
