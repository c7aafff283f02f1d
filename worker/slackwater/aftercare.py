"""Aftercare: a task type's hooks, run by any worker that has them. Rule: after the end, at least once, idempotent.

    async def stop(after: Aftermath, submission: Submission) -> Any: ...
        Asks the provider to stop, and returns what it has on record for this submission now; None: not known yet, asked
        again later. Called for each submission without an outcome when the task was cancelled.
    async def undo(after: Aftermath) -> None: ...
        Undoes what the task did. Called once it had begun and ended as failed or cancelled.

    @task("render", on_cancel=stop, compensate=undo)

Neither holds the task's claim: it has ended. An execution that lost it may still act until its lease is over, so a hook
comes after that, except that a provider whose reference is known is asked to stop at once. After 12 tries it is given
up, and counted, for an administrator (`slackwater task aftercare`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, assert_never

import structlog

from slackwater.claim import TaskState
from slackwater.errors import SlackwaterError
from slackwater.limits import clean_error_text
from slackwater.logging import logger, user_hash
from slackwater.sdk import Aftermath
from slackwater.spread import spread
from slackwater.store import Store, aftercare, submissions
from slackwater.store.aftercare import Care, Errand
from slackwater.task import Registry, TaskType

log = logger("slackwater.aftercare")
TRIES: Final = 12
FIRST_WAIT_SECONDS: Final = 5.0
LONGEST_WAIT_SECONDS: Final = 3600.0
HOOK_SECONDS: Final = 60.0
AT_ONCE: Final = 4


class NotYet(SlackwaterError):
    """The provider does not know yet how it ends."""


async def care_forever(
    store: Store, registry: Registry, *, seconds: float, willing: Callable[[], bool] = lambda: True
) -> None:
    """Until cancelled. A hook that is cancelled with it runs again elsewhere when its time is over."""
    while True:
        try:
            more = willing() and await care(store, registry)
        except SlackwaterError as error:
            log.warning("no aftercare", cause=type(error).__name__)
            more = False
        except Exception as error:  # a fault of ours must not end aftercare for ever
            log.error("aftercare broke", exc_info=error)
            more = False
        if not more:
            await asyncio.sleep(spread(seconds))


async def care(store: Store, registry: Registry) -> bool:
    """Run what is due; True: there was something."""
    known = [declared for name in registry.names if (declared := registry.get(name)) is not None]
    stops = tuple(declared.name for declared in known if declared.on_cancel is not None)
    undoes = tuple(declared.name for declared in known if declared.compensate is not None)
    if not stops and not undoes:
        return False
    hold = HOOK_SECONDS + 30
    errands = await aftercare.take(store, stops=stops, compensates=undoes, limit=AT_ONCE, hold_seconds=hold)
    await asyncio.gather(*(_run(store, registry, errand) for errand in errands))
    return bool(errands)


async def _run(store: Store, registry: Registry, errand: Errand) -> None:
    with structlog.contextvars.bound_contextvars(
        task=str(errand.task_id), user=user_hash(errand.user_id), trace=errand.trace_id
    ):
        try:
            async with asyncio.timeout(HOOK_SECONDS):
                await _call(store, registry.get(errand.type), errand)
        except Exception as error:  # the author's code may raise anything
            wait = None if errand.tries >= TRIES else _wait(errand.tries)
            cause = clean_error_text(f"{type(error).__name__}: {error}", 500)
            (log.error if wait is None else log.warning)(
                "hook failed", hook=errand.kind, tries=errand.tries, cause=cause
            )
            await aftercare.failed(store, errand, error=cause, wait_seconds=wait)
        else:
            await aftercare.done(store, errand)
            log.info("hook done", hook=errand.kind)


async def _call(store: Store, declared: TaskType | None, errand: Errand) -> None:
    asked = await submissions.submissions(store, errand.task_id)
    after = Aftermath(
        errand.task_id, errand.type, errand.user_id, errand.payload, errand.state, errand.error_type, tuple(asked)
    )
    match errand.kind:
        case Care.STOP:
            assert declared is not None
            assert declared.on_cancel is not None, "only what the type declares is taken"
            for submission in asked:
                if submission.resolved:
                    continue
                outcome = await declared.on_cancel(after, submission)
                if outcome is None:
                    raise NotYet(f"submission {submission.name} has no outcome yet")
                await submissions.store_outcome(store, submission.key, outcome)
        case Care.COMPENSATE:
            assert declared is not None
            assert declared.compensate is not None, "only what the type declares is taken"
            if errand.state in (TaskState.FAILED, TaskState.CANCELLED):  # else a retry took over what was left
                await declared.compensate(after)
        case _:
            assert_never(errand.kind)


def _wait(tries: int) -> float:
    return spread(min(FIRST_WAIT_SECONDS * 2.0 ** (tries - 1), LONGEST_WAIT_SECONDS))
