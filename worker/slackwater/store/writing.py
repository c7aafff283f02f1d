"""What an execution writes. Rule: everything proves its claim first (`fence`), and may be repeated after a lost reply.

All raise LeaseLost (an answer: the claim no longer stands, nothing was written; counted) and StoreUnavailable (no
answer; call again, a repeat changes nothing). InvalidInput comes before anything is sent.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, assert_never

from slackwater.claim import Claim, Done, Failed, HandedBack, OnInterrupt, Outcome, TaskState
from slackwater.errors import LeaseLost
from slackwater.limits import check_checkpoint, check_event, check_result
from slackwater.retry import RetryDecision
from slackwater.store import Store, events
from slackwater.store.fence import STALE_WRITES_REFUSED, count, count_within, fenced, own_end, prove, renew
from slackwater.store.settling import Facts, Verdict, facts, settle, tell
from slackwater.store.sql import as_json, sql

__all__ = ["add_event", "checkpoint", "finish", "hand_back", "progress", "renew"]

TASKS_REQUEUED = "tasks_requeued"

# Only a step forward is a sign of life: a loop that reports the same figure again must not look alive (R-STALE-07).
_PROGRESS = sql("""
    UPDATE {s}.task SET progress = :fraction, interruptions = 0, updated_at = clock_timestamp()
    WHERE id = :task_id AND (progress IS NULL OR progress < :fraction)
    RETURNING id
""")
_ACTIVE = sql("UPDATE {s}.claim SET active_at = clock_timestamp() WHERE task_id = :task_id")
_CHECKPOINT = sql("""
    UPDATE {s}.task SET checkpoint = CAST(:checkpoint AS jsonb), interruptions = 0
    WHERE id = :task_id AND checkpoint IS DISTINCT FROM CAST(:checkpoint AS jsonb)
""")

_AUDIT_HAND_BACK = sql("""
    INSERT INTO {s}.audit (who, action, task_id, detail)
    VALUES (:who, 'hand_back', :task_id, CAST(:detail AS jsonb))
""")


async def progress(store: Store, claim: Claim, fraction: float) -> None:
    """Main progress, from 0 to 1. A step forward moves `updated_at` and `active_at`; anything else changes nothing."""
    async with fenced(store, claim) as (connection, _):
        values = {"task_id": claim.task_id, "fraction": min(max(fraction, 0.0), 1.0)}
        if (await connection.execute(_PROGRESS, values)).one_or_none() is not None:
            await connection.execute(_ACTIVE, {"task_id": claim.task_id})


async def checkpoint(store: Store, claim: Claim, data: Any) -> None:
    """Keep `data` for the next run of this task; a new one counts as progress between interruptions."""
    body = check_checkpoint(data)
    async with fenced(store, claim) as (connection, _):
        await connection.execute(_CHECKPOINT, {"task_id": claim.task_id, "checkpoint": body})


async def add_event(store: Store, claim: Claim, counter: int, kind: str, data: Any) -> int:
    """Store an event of this run; `counter` from 1, the run's own. Returns its number within the task, from 1."""
    check_event(data)
    async with fenced(store, claim) as (connection, _):
        return await events.add(connection, claim.task_id, epoch=claim.epoch, counter=counter, kind=kind, data=data)


async def finish(
    store: Store,
    claim: Claim,
    outcome: Outcome,
    *,
    retry: RetryDecision | None = None,
    on_interrupt: OnInterrupt = OnInterrupt.FAIL,
) -> TaskState:
    """End the run; returns the task's state after it (queued: it runs again).

    `retry` applies to Failed, `on_interrupt` to HandedBack. A failure with an open submission that is not run again
    leaves the task `unknown`. After a lost commit reply call it again: own end on record = success.
    """
    match outcome:
        case Done(result=result):
            check_result(result)
            return await _end(
                store, claim, lambda _: Verdict(TaskState.DONE, result=result, attempts=1, interruptions=-1)
            )
        case Failed():
            failed = outcome
            return await _end(store, claim, lambda known: _failure(failed, retry, known))
        case HandedBack():
            return await hand_back(
                store,
                claim,
                reason=outcome.reason,
                started=outcome.started,
                checkpoint=outcome.checkpoint,
                on_interrupt=on_interrupt,
            )
        case _:
            assert_never(outcome)


async def hand_back(
    store: Store,
    claim: Claim,
    *,
    reason: str,
    started: bool,
    checkpoint: Any = None,
    on_interrupt: OnInterrupt = OnInterrupt.FAIL,
) -> TaskState:
    """Give the task up after its code has stopped (rule 16); returns the state it went to.

    Not started: queued again. With an open submission: queued to reattach, or held if the type says hold. Else
    `on_interrupt` decides. Costs no attempt and does not count as an interruption.
    """
    if checkpoint is not None:
        check_checkpoint(checkpoint)

    def decide(known: Facts) -> Verdict:
        return interrupted(
            known, reason=reason, started=started, on_interrupt=on_interrupt, checkpoint=checkpoint, counts=False
        )

    return await _end(store, claim, decide, handed_back=reason)


def interrupted(
    known: Facts,
    *,
    reason: str,
    started: bool = True,
    on_interrupt: OnInterrupt,
    checkpoint: Any = None,
    counts: bool,
    cap: int = 0,
    fenced: bool = False,
) -> Verdict:
    """What an interruption means (rules 12, 13). `counts`: towards `cap` in a row without progress, then PoisonTask.

    An open submission is reattached to, never ended or refunded by an interruption; a poisonous one becomes `unknown`.
    """
    add = 1 if counts else 0
    if counts and started and known.interruptions + 1 >= cap:
        state = TaskState.UNKNOWN if known.open else TaskState.FAILED
        message = f"interrupted {known.interruptions + 1} times without progress ({reason})"
        return Verdict(state, "PoisonTask", message, checkpoint=checkpoint, interruptions=add, fenced=fenced)
    if not started:
        state = TaskState.QUEUED
    elif on_interrupt is OnInterrupt.HOLD:
        state = TaskState.HELD
    elif known.open or on_interrupt is OnInterrupt.REQUEUE:
        state = TaskState.QUEUED
    else:
        state = TaskState.FAILED
    error_type = None if state is TaskState.QUEUED else "WorkerInterrupted"
    return Verdict(state, error_type, reason, checkpoint=checkpoint, interruptions=add, fenced=fenced)


def _failure(outcome: Failed, retry: RetryDecision | None, known: Facts) -> Verdict:
    delay = retry.after_seconds if retry is not None else None
    ending = TaskState.UNKNOWN if known.open else TaskState.FAILED
    state = ending if delay is None else TaskState.QUEUED
    return Verdict(
        state, outcome.error_type, outcome.message, attempts=1, interruptions=-1, delay_seconds=max(delay or 0.0, 0.0)
    )


async def _end(
    store: Store, claim: Claim, decide: Callable[[Facts], Verdict], *, handed_back: str | None = None
) -> TaskState:
    """The run's own end: prove, decide on what the rows say now, write. A repeat after a lost reply finds its event.

    A hand-back leaves its reason in the event and, with the worker's id, in the audit: `handed_back` reads it there.
    """
    try:
        async with store.transaction() as connection:
            try:
                proof = await prove(connection, store, claim)
            except LeaseLost:
                before = await own_end(connection, claim)
                if before is None:
                    raise
                return TaskState(before)
            known = await facts(connection, claim.task_id)
            verdict = decide(known)
            await settle(connection, claim.task_id, claim.epoch, verdict, known)
            await events.add(
                connection,
                claim.task_id,
                epoch=claim.epoch,
                counter=events.OWN_END,
                kind=verdict.state.value,
                data=verdict.error or ({"reason": handed_back} if handed_back else {}),
                outbox=True,
            )
            if handed_back:
                detail = as_json({"reason": handed_back, "epoch": claim.epoch})
                values = {"who": claim.worker_id, "task_id": claim.task_id, "detail": detail}
                await connection.execute(_AUDIT_HAND_BACK, values)
            queued = verdict.state is TaskState.QUEUED
            await tell(connection, queue=proof.queue if queued else None, worker_id=claim.worker_id)
            if queued and verdict.attempts == 0:
                await count_within(connection, claim.worker_id, TASKS_REQUEUED)
            return verdict.state
    except LeaseLost:
        await count(store, claim.worker_id, STALE_WRITES_REFUSED)
        raise
