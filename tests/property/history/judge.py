"""What must hold after every step, judged from the committed rows, the sets in Redis and the provider's own record."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

import psycopg
from redis.asyncio import Redis

from slackwater.slots import Kind, Scope
from tests.property.history.world import World

Row = dict[str, Any]
ENDS = frozenset({"done", "failed", "cancelled"})
_LOOK = """
SELECT json_build_object(
  'claims', (SELECT coalesce(json_agg(json_build_object(
      'task', k.task_id, 'state', k.state, 'epoch', k.epoch, 'token', k.token, 'worker', k.worker_id,
      'old', CASE WHEN k.claimable_from > shifted.clock_timestamp() THEN k.old_token END,
      'pod', w.pod_uid, 'user', k.user_id, 'channel', k.channel, 'lease', k.lease_until,
      'settlement', t.settlement, 'result', t.result, 'error', t.error_info) ORDER BY k.order_key), '[]')
    FROM slackwater.claim k JOIN slackwater.task t ON t.id = k.task_id
    LEFT JOIN slackwater.worker w ON w.id = k.worker_id),
  'money', (SELECT coalesce(json_agg(json_build_object(
      'task', task_id, 'n', n, 'reserved', reserved, 'charged', charged, 'refunded', refunded)), '[]')
    FROM slackwater.settlement),
  'events', (SELECT coalesce(json_agg(json_build_object(
      'task', task_id, 'seq', seq, 'epoch', epoch, 'counter', counter, 'kind', kind) ORDER BY task_id, seq), '[]')
    FROM slackwater.event),
  'submissions', (SELECT coalesce(json_agg(json_build_object(
      'task', task_id, 'name', name, 'n', n, 'key', key, 'request', request, 'reference', reference,
      'outcome', outcome) ORDER BY task_id, name, n), '[]') FROM slackwater.submission),
  'cordons', (SELECT coalesce(json_agg(json_build_object(
      'pod', pod_uid, 'since', since, 'condemned', condemned_at IS NOT NULL)), '[]') FROM slackwater.cordon))
"""


@dataclass(frozen=True)
class Seen:
    """The committed state after a step."""

    claims: dict[str, Row]
    money: dict[tuple[str, int], Row]
    events: list[Row]
    submissions: dict[tuple[str, str, int], Row]
    cordons: dict[str, Row]
    members: dict[str, dict[str, float]]
    """Live members and their ends in ms, by scope as `kind:name`."""
    at: float
    """Redis's time in ms."""

    def running(self, **where: Any) -> list[Row]:
        return [k for k in self.claims.values() if k["state"] == "running" and all(k[n] == v for n, v in where.items())]


EMPTY = Seen({}, {}, [], {}, {}, {}, 0)


class Judge:
    def __init__(self, world: World, postgres: psycopg.AsyncConnection[Any], redis: Redis) -> None:
        self.world = world
        self.seen = EMPTY
        self.clock_is_whole = True
        """The database's clock never stepped by itself, so leases ran out no sooner than the windows of executions."""
        self._settled_keys: dict[str, set[str]] = {}
        """By task: submissions resolved before its present settlement was opened."""
        self._postgres = postgres
        self._redis = redis
        policy = world.policy
        self._scopes = [
            Scope(Kind.POOL, world.pool, policy.pool_limit(world.pool)),
            *(Scope(Kind.USER, name, limit) for name, limit in policy.users.items()),
            *(Scope(Kind.CHANNEL, name, limit) for name, limit in policy.channels.items()),
        ]

    async def check(self, *, redis_lost: bool = False) -> None:
        before, now = self.seen, await self._look()
        self.seen = now
        world = self.world
        assert not world.faults, world.faults
        writes, world.writes = world.writes, []
        released, world.released = world.released, []
        if before is not EMPTY:
            self._claims(before, now)
            self._writes(before, writes)
            self._cordons(before, now)
            self._money(before, now)
            self._submissions(before, now)
            self._releases(before, now, {token for token, _ in released}, redis_lost=redis_lost)
        self._ends(now)
        self._events(now)
        self._limits(now)
        self._executions()

    # ---- one claim

    def _claims(self, before: Seen, now: Seen) -> None:
        for task, k in now.claims.items():
            was = before.claims[task]
            assert k["epoch"] >= was["epoch"], f"the epoch of {task} fell"
            if was["state"] == k["state"] == "running" and k["epoch"] == was["epoch"]:
                assert k["token"] == was["token"], f"{task} changed hands without an epoch"
            if was["state"] in ENDS and k["state"] != was["state"]:
                assert k["settlement"] > was["settlement"], f"{task} went from {was['state']} to {k['state']}"

    def _writes(self, before: Seen, writes: list[tuple[Any, str]]) -> None:
        ended = {(e["task"], e["epoch"]) for e in before.events if e["counter"] == -1}
        for claim, what in writes:
            k = before.claims[str(claim.task_id)]
            if what == "finish" and (str(claim.task_id), claim.epoch) in ended:
                continue  # told again what it had done
            own = k["state"] == "running" and k["epoch"] == claim.epoch and k["token"] == str(claim.token)
            assert own, f"a stale {what} was accepted: {claim} when the row was {k}"

    def _events(self, now: Seen) -> None:
        last: dict[str, Row] = {}
        for event in now.events:
            was = last.get(event["task"], {"seq": 0, "epoch": 0})
            assert event["seq"] == was["seq"] + 1, f"a gap before {event}"
            assert event["epoch"] >= was["epoch"], f"an older epoch's event after a younger's: {event}"
            last[event["task"]] = event

    # ---- pods

    def _cordons(self, before: Seen, now: Seen) -> None:
        for pod, cordon in now.cordons.items():
            was = before.cordons.get(pod)
            running = {(k["task"], k["epoch"]) for k in now.running(pod=pod)}
            if cordon["condemned"]:
                assert not running, f"condemned {pod} has claims"
            if was is None:
                continue
            assert cordon["condemned"] or not was["condemned"], f"{pod} is not condemned any more"
            if was["since"] is not None and was["since"] == cordon["since"]:
                gained = running - {(k["task"], k["epoch"]) for k in before.running(pod=pod)}
                assert not gained, f"cordoned {pod} gained claims: {gained}"

    # ---- money

    def _ends(self, now: Seen) -> None:
        for task, k in now.claims.items():
            moved = now.money[task, k["settlement"]]
            charged, refunded = moved["charged"] is not None, moved["refunded"] is not None
            assert not (charged and refunded), f"charged and refunded: {moved}"
            assert (charged or refunded) == (k["state"] in ENDS), f"{k['state']}, and its money: {moved}"
            assert (k["result"] is not None) == (k["state"] == "done"), f"{k['state']} with result {k['result']}"
            if k["state"] == "done":
                assert charged, f"done and not charged: {moved}"
                assert k["error"] is None, f"done with an error: {k}"
                assert k["result"]["epoch"] == k["epoch"], f"the result of another epoch: {k}"
            if k["state"] in ("failed", "cancelled"):
                assert k["error"] is not None, f"{k['state']} without a reason"
            if k["state"] == "failed":
                assert refunded, f"failed and not refunded: {moved}"
        for (task, n), moved in now.money.items():
            if n != now.claims[task]["settlement"]:
                settled = (moved["charged"] is not None) + (moved["refunded"] is not None)
                assert settled == 1, f"an older settlement is open: {moved}"

    def _money(self, before: Seen, now: Seen) -> None:
        for key, was in before.money.items():
            if was["charged"] is not None or was["refunded"] is not None:
                assert now.money[key] == was, f"money moved twice: {was}, {now.money[key]}"
        for task, k in now.claims.items():
            ended = k["state"] in ("failed", "cancelled") and before.claims[task]["state"] not in (*ENDS, "unknown")
            resolved = {
                s["key"] for (of, _, _), s in now.submissions.items() if of == task and s["outcome"] is not None
            }
            if k["settlement"] != before.claims[task]["settlement"]:
                self._settled_keys[task] = resolved
            if k["state"] == "cancelled" and now.money[task, k["settlement"]]["charged"] is not None:
                paid = resolved - self._settled_keys.get(task, set())
                assert paid, f"charged for nothing: {now.money[task, k['settlement']]}"
            open_ = [n for (of, _, n), s in now.submissions.items() if of == task and s["outcome"] is None]
            assert not (ended and open_), f"{k['state']} with submission {open_} open"

    def _submissions(self, before: Seen, now: Seen) -> None:
        for key, was in before.submissions.items():
            kept = now.submissions[key]
            assert (kept["key"], kept["request"]) == (was["key"], was["request"]), f"{was} became {kept}"
            for name in ("reference", "outcome"):
                assert was[name] is None or kept[name] == was[name], f"{name} was written twice: {was}, {kept}"
        for (task, name, n), submission in now.submissions.items():
            job = self.world.provider.jobs.get(submission["key"])
            if n > 1:
                older = now.submissions[task, name, n - 1]
                assert older["outcome"] is not None, f"submission {n} of {task} while {n - 1} is unresolved"
            if submission["reference"] is not None:
                assert job is not None, f"a reference that nobody gave: {submission}"
                assert job.reference == submission["reference"], f"whose is {submission}?"
            if submission["outcome"] is not None:
                assert job is not None, f"an outcome that nobody has: {submission}"
                assert job.outcome == submission["outcome"], f"another outcome than the provider's: {submission}"

    # ---- slots

    def _releases(self, before: Seen, now: Seen, released: set[str], *, redis_lost: bool) -> None:
        if redis_lost:
            return
        for name, members in before.members.items():
            gone = {m for m, end in members.items() if end > now.at} - set(now.members[name]) - released
            assert not gone, f"{gone} vanished from {name}, given back by nobody"
        running = {k["token"] for k in now.running()}
        assert not (released & running), f"slots of running claims were given back: {released & running}"

    def _limits(self, now: Seen) -> None:
        for scope in self._scopes:
            assert scope.limit is not None
            claims = [k for k in now.running() if _in(scope, k["user"], k["channel"])]
            assert len(claims) <= scope.limit, f"{len(claims)} running claims in {scope}"
            holders = {t for k in now.claims.values() for t in (k["token"], k["old"]) if t is not None}
            members = set(now.members[f"{scope.kind}:{scope.name}"])
            assert len(members & holders) <= scope.limit, f"{members & holders} hold {scope}"
            if self.world.rebuilds <= 1:
                assert len(members) <= scope.limit, f"{members} are in {scope}"

    def _executions(self) -> None:
        acting = self.world.acting()
        for scope in self._scopes:
            assert scope.limit is not None
            some = [e.claim for e in acting if _in(scope, e.claimed.user_id, e.claimed.channel)]
            assert len(some) <= scope.limit, f"{len(some)} executions act in {scope}: {some}"
        twice = [task for task, n in Counter(e.claim.task_id for e in acting).items() if n > 1]
        if self.clock_is_whole:
            assert not twice, f"two executions of {twice} act at the same time"

    async def _look(self) -> Seen:
        row = await (await self._postgres.execute(_LOOK)).fetchone()
        assert row is not None
        found = row[0]
        pipeline = self._redis.pipeline(transaction=False)
        pipeline.time()
        for scope in self._scopes:
            pipeline.zrange(f"slackwater:slots:{scope.kind}:{scope.name}", 0, -1, withscores=True)
        (seconds, micros), *sets = await pipeline.execute()
        now = seconds * 1000 + micros / 1000
        return Seen(
            claims={k["task"]: k for k in found["claims"]},
            money={(s["task"], s["n"]): s for s in found["money"]},
            events=found["events"],
            submissions={(s["task"], s["name"], s["n"]): s for s in found["submissions"]},
            cordons={c["pod"]: c for c in found["cordons"]},
            members={
                f"{scope.kind}:{scope.name}": {member.decode(): score for member, score in members if score > now}
                for scope, members in zip(self._scopes, sets, strict=True)
            },
            at=now,
        )


def _in(scope: Scope, user: str, channel: str) -> bool:
    match scope.kind:
        case Kind.USER:
            return user == scope.name
        case Kind.CHANNEL:
            return channel == scope.name
        case _:
            return True
