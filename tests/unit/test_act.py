"""Doing what was planned: order, preconditions, names that are taken, refusals that hold up nothing else."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from slackwater_operator import actions as a
from slackwater_operator import errors
from slackwater_operator.act import Actor, Outcome
from slackwater_operator.cache import Cache, Entry
from slackwater_operator.names import ANNOTATION_CAUSE, Cause, Reason
from slackwater_operator.seen import Revision
from tests.unit.situations import content, pool

SPEC = pool(3)
DEADLINE = datetime(2026, 12, 1, 13, tzinfo=UTC)


def pod(name: str, uid: str = "u1", *, owner: str = "pool", version: int = 1, **meta: Any) -> dict[str, Any]:
    ref = {"kind": "WorkerPool", "uid": owner, "controller": True}
    base = {"name": name, "uid": uid, "resourceVersion": str(version), "creationTimestamp": "2026-12-01T00:00:00Z"}
    return {"kind": "Pod", "metadata": {**base, "ownerReferences": [ref], **meta}}


class Api:
    """Records every call; `answers` maps "METHOD path-suffix" to a body or an error."""

    def __init__(self, log: list[str]) -> None:
        self.log = log
        self.answers: dict[str, Any] = {}
        self.bodies: list[Any] = []

    def _answer(self, method: str, path: str, body: Any) -> Any:
        name = path.rsplit("/", 1)[1]
        self.log.append(f"{method} {name}")
        self.bodies.append(body)
        made = (body or {}).get("metadata", {}).get("name", "") if method == "create" else ""
        found = self.answers.get(f"{method} {made or name}", self.answers.get(method))
        if isinstance(found, Exception):
            raise found
        return found if found is not None else pod(made or name, uid=f"uid-{made or name}")

    async def create(self, path: str, body: Any, *, dry_run: bool = False) -> Any:
        return self._answer("dryrun" if dry_run else "create", path, body)

    async def create_canonical(self, path: str, body: Any) -> Any:
        return self._answer("create", path, body)

    async def get(self, path: str) -> Any:
        return self._answer("get", path, None)

    async def patch(self, path: str, body: Any) -> Any:
        return self._answer("patch", path, body)

    async def delete(self, path: str, *, uid: str, grace_seconds: int | None = None) -> Any:
        return self._answer("delete", path, {"uid": uid, "grace": grace_seconds})


class Store:
    def __init__(self, log: list[str]) -> None:
        self.log = log
        self.condemns = True
        self.calls_off = True
        self.fails = False

    async def cordon(self, uid: str, cause: str, deadline: timedelta | None) -> datetime | None:
        self.log.append(f"cordon {uid} {cause}")
        if self.fails:
            raise errors.StoreUnreachable("gone")
        return DEADLINE

    async def call_off(self, uid: str, sequence: int) -> bool:
        self.log.append(f"call_off {uid} {sequence}")
        return self.calls_off

    async def condemn(self, uid: str) -> bool:
        self.log.append(f"condemn {uid}")
        return self.condemns

    async def handed_back(self, uid: str) -> list[str]:
        return []

    async def vanish(self, uid: str) -> None:
        self.log.append(f"vanish {uid}")


class Bench:
    def __init__(self) -> None:
        self.log: list[str] = []
        self.api, self.store, self.cache = Api(self.log), Store(self.log), Cache()
        self.now = 0.0
        made = Revision("rev", content("i"), 1, DEADLINE)
        entry = Entry("r", "pool", 1, made)
        self.cache.revisions._groups["pool"] = {"r": entry}
        self.actor = Actor(self.api, self.store, self.cache, clock=lambda: self.now)  # type: ignore[arg-type]

    async def run(self, *planned: a.Action) -> Outcome:
        return await self.actor.run(SPEC, planned)


@pytest.fixture
def bench() -> Bench:
    return Bench()


CREATE = a.Create("p-rev-0", "rev", "too few pods")
DRAIN = a.Drain("u1", "p-rev-0", Cause.ROLLOUT, timedelta(minutes=90), "why")
CALL_OFF = a.CallOff("u1", "p-rev-0", 7, "kept")


async def test_the_intent_is_on_the_pod_before_the_store_is_asked(bench: Bench) -> None:
    await bench.run(DRAIN)
    assert bench.log == ["patch p-rev-0", "cordon u1 Rollout"]
    assert bench.api.bodies[0]["metadata"] == {"uid": "u1", "annotations": {ANNOTATION_CAUSE: Cause.ROLLOUT}}


async def test_a_pod_that_is_another_one_by_now_is_not_cordoned(bench: Bench) -> None:
    bench.api.answers["patch"] = errors.Conflict("uid")
    outcome = await bench.run(DRAIN)
    assert "cordon u1 Rollout" not in bench.log
    assert outcome.changed


async def test_the_intent_is_off_the_pod_before_the_cordon_is_lifted(bench: Bench) -> None:
    await bench.run(CALL_OFF)
    assert bench.log == ["patch p-rev-0", "call_off u1 7"]


async def test_a_pod_deleted_meanwhile_is_not_called_off_and_the_round_ends(bench: Bench) -> None:
    bench.api.answers["patch"] = pod("p-rev-0", deletionTimestamp="2026-12-01T01:00:00Z")
    await bench.run(CALL_OFF, CREATE)
    assert bench.log == ["patch p-rev-0"]


async def test_a_cordon_that_is_no_longer_ours_to_lift_ends_the_round(bench: Bench) -> None:
    """What follows was planned for a pod that would serve again."""
    bench.store.calls_off = False
    outcome = await bench.run(CALL_OFF, CREATE)
    assert "create pods" not in bench.log
    assert outcome.changed


async def test_a_name_that_is_ours_already_counts_as_made(bench: Bench) -> None:
    bench.api.answers["create p-rev-0"] = errors.AlreadyExists("there")
    bench.api.answers["get p-rev-0"] = pod("p-rev-0")
    await bench.run(CREATE)
    assert bench.log == ["create pods", "get p-rev-0"]
    assert [p.name for p in bench.cache.pods.of("pool")] == ["p-rev-0"]


@pytest.mark.parametrize(
    "there",
    [
        pod("p-rev-0", owner="someone"),
        pod("p-rev-0", deletionTimestamp="2026-12-01T01:00:00Z"),
        errors.NotFound("gone"),
    ],
)
async def test_a_name_that_is_taken_or_going_gives_way_to_the_next_ordinal(bench: Bench, there: Any) -> None:
    bench.api.answers["create p-rev-0"] = errors.AlreadyExists("there")
    bench.api.answers["get p-rev-0"] = there
    await bench.run(CREATE)
    made = [body["metadata"]["name"] for body in bench.api.bodies if body]
    assert made == ["p-rev-0", "p-rev-1"]


async def test_a_delete_has_the_uid_as_precondition(bench: Bench) -> None:
    await bench.run(a.Delete("u1", "p-rev-0", timedelta(seconds=30), "drained"))
    assert bench.api.bodies[-1] == {"uid": "u1", "grace": 30}


async def test_a_pod_that_is_not_free_changes_nothing(bench: Bench) -> None:
    bench.store.condemns = False
    assert not (await bench.run(a.Condemn("u1", "p-rev-0", "why"))).changed


async def test_only_a_uid_that_the_api_server_does_not_know_has_vanished(bench: Bench) -> None:
    vanish = a.Vanish("u1", "p-rev-0", "why")
    bench.api.answers["get p-rev-0"] = pod("p-rev-0", uid="u1")
    await bench.run(vanish)
    assert "vanish u1" not in bench.log
    bench.api.answers["get p-rev-0"] = pod("p-rev-0", uid="u2", version=2)
    await bench.run(vanish)
    assert "vanish u1" in bench.log


async def test_a_refused_create_is_put_off_ever_longer_and_everything_else_goes_on(bench: Bench) -> None:
    bench.api.answers["create"] = errors.QuotaExceeded("exceeded quota: pods", status=403)
    tries: list[float] = []
    for tenth in range(600):
        bench.now = tenth / 10
        before = len(bench.log)
        outcome = await bench.run(CREATE, a.Condemn("u9", "other", "why"))
        if "create pods" in bench.log[before:]:
            tries.append(bench.now)
        assert outcome.problems[0].reason is Reason.QUOTA_EXCEEDED
        assert bench.log[-1] == "condemn u9"
    assert 3 <= len(tries) <= 10


async def test_a_pause_ends_when_nothing_is_wanted_any_more(bench: Bench) -> None:
    bench.api.answers["create"] = errors.Forbidden("no", status=403)
    await bench.run(CREATE)
    assert bench.actor.next_try(SPEC.uid) is not None
    bench.actor.settle(SPEC.uid, ())
    assert bench.actor.next_try(SPEC.uid) is None


@pytest.mark.parametrize("error", [errors.Unavailable("429"), errors.NotLeader("deposed")])
async def test_what_concerns_more_than_this_act_ends_the_round(bench: Bench, error: Exception) -> None:
    bench.api.answers["patch"] = error
    with pytest.raises(type(error)):
        await bench.run(DRAIN, CREATE)
    assert bench.log == ["patch p-rev-0"]


async def test_a_store_without_answer_ends_the_round(bench: Bench) -> None:
    bench.store.fails = True
    with pytest.raises(errors.StoreUnreachable):
        await bench.run(DRAIN, a.Delete("u2", "p-rev-1", None, "drained"))
    assert "delete p-rev-1" not in bench.log


RECORD = a.Record("new", 2, content("j"), exists=False, reason="a new revision")


async def test_a_template_that_the_api_server_refuses_is_never_recorded(bench: Bench) -> None:
    bench.api.answers["dryrun"] = errors.Invalid("spec.containers[0].image: required", status=422)
    outcome = await bench.run(RECORD)
    assert bench.log == ["dryrun pods"]
    assert outcome.problems[0].reason is Reason.POD_REJECTED
    assert "spec.containers[0].image" in outcome.problems[0].message


async def test_a_full_quota_says_nothing_about_the_template(bench: Bench) -> None:
    bench.api.answers["dryrun"] = errors.QuotaExceeded("exceeded quota", status=403)
    await bench.run(RECORD)
    assert bench.log == ["dryrun pods", "create controllerrevisions"]


async def test_a_budget_of_that_name_that_is_not_ours_is_a_problem(bench: Bench) -> None:
    bench.api.answers["create p-protected"] = errors.AlreadyExists("there", status=409)
    theirs: Callable[..., Any] = pod
    bench.api.answers["get p-protected"] = theirs("p-protected", owner="someone")
    outcome = await bench.run(a.Budget(True, "why"))
    assert outcome.problems[0].reason is Reason.NAME_TAKEN
