"""Reading, cancelling, retrying; what administrators may do, and what users may not."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import uuid4

import httpx
import pytest
from sqlalchemy import text

from slackwater.claim import Claim, Done, Failed
from slackwater.errors import LeaseLost
from slackwater.policy import Policy
from slackwater.store import Store, writing
from slackwater.store.admin import StateStands, cancel
from slackwater.store.claiming import candidates
from slackwater.store.policies import write_policy
from slackwater.store.submissions import intend
from tests.integration.gateway.conftest import FIELDS, Worker, rows_in, state_of

TASK = {"type": "render", "payload": {"frame": 3}}


async def submitted(client: httpx.AsyncClient, **more: Any) -> str:
    return str((await client.post("/api/tasks", json={**TASK, **more})).json()["id"])


async def settlements(store: Store, task_id: str) -> list[tuple[Any, ...]]:
    statement = """SELECT n, charged IS NOT NULL, refunded IS NOT NULL FROM slackwater.settlement
                   WHERE task_id = CAST(:id AS uuid) ORDER BY n"""
    async with store.transaction() as connection:
        return [tuple(row) for row in await connection.execute(text(statement), {"id": task_id})]


async def audits(store: Store) -> list[tuple[str, str]]:
    async with store.transaction() as connection:
        found = await connection.execute(text("SELECT who, action FROM slackwater.audit ORDER BY id"))
        return [(row.who, row.action) for row in found]


async def test_another_users_task_looks_like_none(alice: httpx.AsyncClient, bob: httpx.AsyncClient) -> None:
    theirs = await submitted(alice)
    paths = [f"/api/tasks/{theirs}", f"/api/tasks/{uuid4()}", "/api/tasks/nonsense", f"/api/tasks/{theirs}x"]
    answers = [await bob.get(path) for path in paths]
    answers += [await bob.get(f"{path}/text-events") for path in paths]
    answers += [await bob.post(f"{path}/{act}") for path in paths for act in ("cancel", "retry")]
    assert {answer.status_code for answer in answers} == {404}
    assert len({answer.text for answer in answers}) == 1


async def test_a_list_goes_page_by_page_through_own_tasks_only(
    store: Store, alice: httpx.AsyncClient, bob: httpx.AsyncClient
) -> None:
    await write_policy(store, Policy(user_pending_limit=10), who="test")
    own = [await submitted(alice) for _ in range(5)]
    await submitted(bob)
    seen: list[str] = []
    cursor = None
    for _ in range(3):
        query = {"limit": "2"} | ({} if cursor is None else {"cursor": cursor})
        page = (await alice.get("/api/tasks", params=query)).json()
        seen += [task["id"] for task in page["tasks"]]
        cursor = page["cursor"]
    assert seen == own[::-1]
    assert cursor is None


async def test_a_list_is_narrowed_by_state(alice: httpx.AsyncClient, worker: Worker) -> None:
    for _ in range(3):
        await submitted(alice)
    running = str((await worker.claim()).claim.task_id)
    found = (await alice.get("/api/tasks", params={"state": "running,held"})).json()["tasks"]
    assert [task["id"] for task in found] == [running]


async def test_only_an_admin_lists_everybodys(
    alice: httpx.AsyncClient, bob: httpx.AsyncClient, admin: httpx.AsyncClient
) -> None:
    await submitted(alice)
    for client, count in ((bob, 0), (admin, 1)):
        assert len((await client.get("/api/tasks", params={"all": "true"})).json()["tasks"]) == count


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ({"limit": "0"}, "limit"),
        ({"limit": "201"}, "limit"),
        ({"limit": "x"}, "limit"),
        ({"cursor": "x"}, "cursor"),
        ({"state": "sleeping"}, "state"),
    ],
)
async def test_a_bad_query_names_its_field(alice: httpx.AsyncClient, query: dict[str, str], field: str) -> None:
    answer = await alice.get("/api/tasks", params=query)
    assert (answer.status_code, answer.json()["detail"]["field"]) == (422, field)


async def test_a_place_counts_what_comes_before_in_the_fair_order(
    store: Store, alice: httpx.AsyncClient, bob: httpx.AsyncClient
) -> None:
    await write_policy(store, Policy(user_pending_limit=10, worker_concurrency=1), who="test")
    own = [await submitted(alice) for _ in range(3)]
    theirs = await submitted(bob)
    ahead = [(await alice.get(f"/api/tasks/{i}")).json()["estimate"]["queue_ahead"] for i in own]
    first = (await bob.get(f"/api/tasks/{theirs}")).json()["estimate"]
    assert ahead == [0, 2, 3]
    assert first == {"queue_ahead": 1, "estimated_wait_seconds": 240}


async def test_result_is_told_with_done_and_error_with_failed(
    store: Store, alice: httpx.AsyncClient, worker: Worker
) -> None:
    good, bad = await submitted(alice), await submitted(alice)
    await writing.finish(store, (await worker.claim()).claim, Done({"url": "x"}))
    await writing.finish(store, (await worker.claim()).claim, Failed("ValueError", "no frame"))
    done, failed = [(await alice.get(f"/api/tasks/{i}")).json() for i in (good, bad)]
    assert (done["state"], done["result"], done["error"]) == ("done", {"url": "x"}, None)
    assert (failed["state"], failed["result"]) == ("failed", None)
    assert failed["error"] == {"error_type": "ValueError", "message": "no frame"}


async def test_a_waiting_task_is_cancelled_at_once_and_refunded(store: Store, alice: httpx.AsyncClient) -> None:
    task_id = await submitted(alice)
    answer = await alice.post(f"/api/tasks/{task_id}/cancel")
    assert (answer.status_code, answer.json()["state"]) == (200, "cancelled")
    assert await settlements(store, task_id) == [(1, False, True)]
    assert await candidates(store, queues=["default"], types=["render"], limit=9) == []
    again = await alice.post(f"/api/tasks/{task_id}/cancel")
    assert (again.status_code, again.json()["detail"]["state"]) == (409, "cancelled")
    assert await audits(store) == [("alice", "cancel")]


async def test_cancelling_a_running_task_fences_its_execution(
    store: Store, alice: httpx.AsyncClient, worker: Worker
) -> None:
    task_id = await submitted(alice)
    claim = (await worker.claim()).claim
    assert (await alice.post(f"/api/tasks/{task_id}/cancel")).json()["state"] == "cancelled"
    with pytest.raises(LeaseLost):
        await writing.renew(store, claim, evidence=False)
    with pytest.raises(LeaseLost):
        await writing.finish(store, claim, Done(1))
    assert await state_of(store, task_id) == "cancelled"
    assert await settlements(store, task_id) == [(1, False, True)]


async def test_a_cancel_with_an_open_submission_refunds_nothing(
    store: Store, alice: httpx.AsyncClient, worker: Worker
) -> None:
    task_id = await submitted(alice)
    await intend(store, (await worker.claim()).claim, "frame", "stub", {"frame": 3})
    assert (await alice.post(f"/api/tasks/{task_id}/cancel")).json()["state"] == "unknown"
    assert await settlements(store, task_id) == [(1, False, False)]
    again = await alice.post(f"/api/tasks/{task_id}/cancel")
    assert (again.status_code, again.json()["detail"]["state"]) == (409, "unknown")


async def test_a_cancel_before_reattaching_refunds_nothing(
    store: Store, alice: httpx.AsyncClient, worker: Worker
) -> None:
    task_id = await submitted(alice)
    claim = (await worker.claim()).claim
    await intend(store, claim, "frame", "stub", {"frame": 3})
    await writing.hand_back(store, claim, reason="DrainDeadline", started=True)
    assert await state_of(store, task_id) == "queued"
    assert (await alice.post(f"/api/tasks/{task_id}/cancel")).json()["state"] == "unknown"
    assert await settlements(store, task_id) == [(1, False, False)]


async def test_cancel_against_completion_has_one_winner(store: Store, alice: httpx.AsyncClient, worker: Worker) -> None:
    async def finish(claim: Claim) -> str:
        try:
            return str(await writing.finish(store, claim, Done(1)))
        except LeaseLost:
            return "lost"

    async def stop(task_id: str, claim: Claim) -> str:
        try:
            return str(await cancel(store, claim.task_id, user_id="alice", who="alice"))
        except StateStands as stands:
            return f"409 {stands.state}"

    for turn in range(30):
        task_id = await submitted(alice)
        claim = (await worker.claim()).claim
        both = (finish(claim), stop(task_id, claim))
        if turn % 2:
            finished, stopped = await asyncio.gather(*both)
        else:
            stopped, finished = await asyncio.gather(*both[::-1])
        state = await state_of(store, task_id)
        expected = {"done": [(1, True, False)], "cancelled": [(1, False, True)]}[state]
        assert await settlements(store, task_id) == expected
        assert (finished, stopped) in {("done", "409 done"), ("lost", "cancelled")}


async def test_cancel_against_claim_never_leaves_it_running(
    store: Store, alice: httpx.AsyncClient, worker: Worker
) -> None:
    for _ in range(30):
        task_id = await submitted(alice)

        async def take() -> None:
            # The claim may find nothing any more: then the cancel was first.
            try:
                await worker.claim()
            except (AssertionError, IndexError):
                return

        answer, _ = await asyncio.gather(alice.post(f"/api/tasks/{task_id}/cancel"), take())
        assert (answer.status_code, answer.json()["state"]) == (200, "cancelled")
        assert await state_of(store, task_id) == "cancelled"


async def test_a_retry_opens_the_next_settlement(store: Store, alice: httpx.AsyncClient, worker: Worker) -> None:
    task_id = await submitted(alice, cost=2)
    first = (await worker.claim()).claim
    await writing.finish(store, first, Failed("ValueError", "x"))
    answer = await alice.post(f"/api/tasks/{task_id}/retry")
    assert (answer.status_code, answer.json()["state"]) == (202, "queued")
    view = (await alice.get(f"/api/tasks/{task_id}")).json()
    assert (view["attempts"], view["error"], view["finished_at"]) == (0, None, None)
    second = await worker.claim()
    assert (second.claim.task_id, second.claim.epoch, second.settlement) == (first.task_id, first.epoch + 1, 2)
    await writing.finish(store, second.claim, Done(1))
    assert await settlements(store, task_id) == [(1, False, True), (2, True, False)]
    assert ("alice", "retry") in await audits(store)


async def test_a_refused_retry_leaves_the_task_as_it_was(
    store: Store, alice: httpx.AsyncClient, worker: Worker
) -> None:
    task_id = await submitted(alice)
    await writing.finish(store, (await worker.claim()).claim, Failed("ValueError", "x"))
    for _ in range(3):
        await submitted(alice)
    answer = await alice.post(f"/api/tasks/{task_id}/retry")
    assert (answer.status_code, set(answer.json()["detail"])) == (429, FIELDS)
    assert await state_of(store, task_id) == "failed"
    assert await settlements(store, task_id) == [(1, False, True)]


async def test_what_has_not_ended_or_is_done_is_not_retried(
    store: Store, alice: httpx.AsyncClient, worker: Worker
) -> None:
    task_id = await submitted(alice)
    states = []
    for step in (None, worker.claim):
        taken = None if step is None else await step()
        states.append((await alice.post(f"/api/tasks/{task_id}/retry")).json()["detail"]["state"])
    assert taken is not None
    await writing.finish(store, taken.claim, Done(1))
    states.append((await alice.post(f"/api/tasks/{task_id}/retry")).json()["detail"]["state"])
    assert states == ["queued", "running", "done"]


async def test_retries_at_the_same_time_open_one_settlement(
    store: Store, alice: httpx.AsyncClient, worker: Worker
) -> None:
    task_id = await submitted(alice)
    await writing.finish(store, (await worker.claim()).claim, Failed("ValueError", "x"))
    answers = await asyncio.gather(*(alice.post(f"/api/tasks/{task_id}/retry") for _ in range(5)))
    assert sorted(answer.status_code for answer in answers) == [202, 409, 409, 409, 409]
    assert await rows_in(store, "settlement") == 2


async def test_a_retry_after_a_cancel_waits_for_the_old_lease(
    store: Store, alice: httpx.AsyncClient, worker: Worker
) -> None:
    task_id = await submitted(alice)
    await worker.claim()
    await alice.post(f"/api/tasks/{task_id}/cancel")
    assert (await alice.post(f"/api/tasks/{task_id}/retry")).status_code == 202
    assert await candidates(store, queues=["default"], types=["render"], limit=9) == []
    assert (await alice.get(f"/api/tasks/{task_id}")).json()["run_at"] is not None


async def test_finalize_ends_a_task_whatever_its_state(store: Store, admin: httpx.AsyncClient, worker: Worker) -> None:
    waiting = await submitted(admin)
    answer = await admin.post(f"/api/admin/tasks/{waiting}/finalize", json={"reason": "stuck"})
    assert answer.json()["state"] == "failed"
    view = (await admin.get(f"/api/tasks/{waiting}")).json()
    assert view["error"] == {"error_type": "Finalized", "message": "stuck"}
    running = await submitted(admin)
    await worker.claim()
    assert (await admin.post(f"/api/admin/tasks/{running}/finalize")).json()["state"] == "failed"
    assert await audits(store) == [("root", "finalize")] * 2
    assert (await admin.post(f"/api/admin/tasks/{running}/finalize")).status_code == 409


async def test_finalize_settles_an_unknown_task_only_when_asked_again(
    store: Store, admin: httpx.AsyncClient, worker: Worker
) -> None:
    task_id = await submitted(admin)
    await intend(store, (await worker.claim()).claim, "frame", "stub", {"frame": 3})
    states = [(await admin.post(f"/api/admin/tasks/{task_id}/finalize")).json()["state"] for _ in range(2)]
    assert states == ["unknown", "failed"]
    assert await settlements(store, task_id) == [(1, False, True)]


async def test_a_paused_queue_gives_out_nothing_and_still_accepts(
    store: Store, alice: httpx.AsyncClient, admin: httpx.AsyncClient
) -> None:
    await submitted(alice)
    assert (await admin.post("/api/admin/queues/default/pause")).json() == {"queue": "default", "paused": True}
    await submitted(alice)
    assert await candidates(store, queues=["default"], types=["render"], limit=9) == []
    await admin.post("/api/admin/queues/default/resume")
    assert len(await candidates(store, queues=["default"], types=["render"], limit=9)) == 2
    queues = (await admin.get("/api/admin/queues")).json()["queues"]
    assert [(q["name"], q["due"], q["paused"]) for q in queues] == [("default", 2, False)]
    assert await audits(store) == [("root", "pause"), ("root", "resume")]
    assert (await admin.post("/api/admin/queues/no-such/pause")).status_code == 404


async def test_users_may_not_administer(alice: httpx.AsyncClient) -> None:
    task_id = await submitted(alice)
    paths = ["queues/default/pause", "queues/default/resume", f"tasks/{task_id}/finalize"]
    answers = [await alice.post(f"/api/admin/{path}") for path in paths] + [await alice.get("/api/admin/queues")]
    assert {answer.status_code for answer in answers} == {403}
