"""Situations → the walk of a draining pod, forced drains, lost nodes, witnesses, and the store that gives no answer."""

from __future__ import annotations

from dataclasses import replace

from slackwater_operator.actions import (
    CallOff,
    Condemn,
    Create,
    Delete,
    Drain,
    Mark,
    Protect,
    TakeAway,
    Vanish,
    Witness,
)
from slackwater_operator.drain import Work, look
from slackwater_operator.names import Cause
from slackwater_operator.seen import Exit, Node, Taint, Toleration, Worker
from tests.unit.situations import (
    LONG_AGO,
    NOW,
    OLD,
    ROLLED,
    ROLLING,
    Situation,
    World,
    after,
    broken,
    ended,
    names,
    of,
    pending,
    pool,
    revision,
    said,
    seconds,
    serving,
    silent,
)

PLAIN = pool(1)


def test_a_cordoned_pod_with_a_lease_is_waited_for() -> None:
    found = after(serving("a"), serving("d").cordoned().busy()).plan(PLAIN)
    assert not of(Condemn, found) + of(Delete, found)


def test_a_cordoned_pod_whose_lease_has_expired_is_waited_for_too() -> None:
    d = serving("d").cordoned().busy()
    d = replace(d, leases=(replace(d.leases[0], until=NOW - seconds(100)),))
    assert said(after(serving("a"), d).plan(PLAIN)) == []


def test_a_cordoned_pod_without_leases_is_condemned_not_deleted() -> None:
    assert said(after(serving("a"), serving("d", OLD).cordoned()).plan(PLAIN)) == ["condemn d"]


def test_a_silent_container_that_is_cordoned_is_freed_like_any_other() -> None:
    assert said(after(serving("a"), silent("d", OLD).cordoned()).plan(PLAIN)) == ["condemn d"]


def test_not_even_a_pending_pod_is_deleted_before_it_is_condemned() -> None:
    assert said(after(serving("a"), pending("d").cordoned(Cause.SCALE_DOWN)).plan(PLAIN)) == ["condemn d"]


def test_not_even_a_failed_pod_is_deleted_before_it_is_condemned() -> None:
    assert said(after(serving("a"), ended("d")).plan(PLAIN)) == ["drain d Gone"]
    assert said(after(serving("a"), ended("d").cordoned(Cause.GONE)).plan(PLAIN)) == ["condemn d"]


def test_a_condemned_pod_loses_its_label_and_is_deleted_in_this_order() -> None:
    d = serving("d", OLD).cordoned(condemned=True).but(protected=True, kept=True)
    found = after(serving("a"), d).plan(PLAIN)
    assert [type(a) for a in found.actions] == [Protect, Delete]
    assert of(Delete, found)[0].uid == "d"
    assert of(Delete, found)[0].grace is None


def test_a_pod_past_its_deadline_is_deleted_with_thirty_seconds() -> None:
    d = serving("d", OLD).cordoned(condemned=True, deadline=-seconds(20))
    assert of(Delete, after(serving("a"), d).plan(PLAIN))[0].grace == seconds(30)


def test_until_fifteen_seconds_past_the_deadline_the_worker_hands_back_itself() -> None:
    d = serving("d").cordoned(deadline=-seconds(14)).busy()
    assert said(after(serving("a"), d).plan(PLAIN)) == []
    d = serving("d").cordoned(deadline=-seconds(15)).busy()
    assert said(after(serving("a"), d).plan(PLAIN)) == ["takeaway d"]


def test_on_deadline_wait_nothing_is_ever_taken_away() -> None:
    waits = pool(1, drain={"onDeadline": "Wait"})
    d = serving("d").cordoned(deadline=None).busy()
    assert not of(TakeAway, after(serving("a"), d).plan(waits))
    assert of(Drain, after(*(serving(n) for n in "ab")).plan(waits))[0].deadline is None


def test_a_deleted_pod_is_left_to_its_own_drain_but_cordoned() -> None:
    d = serving("d").but(deleting=NOW + seconds(330)).busy()
    drain = of(Drain, after(serving("a"), d).plan(PLAIN))[0]
    assert (drain.pod, drain.cause, drain.annotate) == ("d", Cause.TERMINATED, False)
    assert drain.deadline == seconds(300)


def test_an_intent_without_cordon_is_resumed() -> None:
    d = serving("d", OLD).but(cause="Rollout")
    found = after(serving("a"), d).plan(PLAIN)
    assert said(found) == ["drain d Rollout"]


def test_an_admin_annotation_drains_and_is_replaced_at_once() -> None:
    assert said(after(serving("d").but(cause="Admin")).plan(PLAIN)) == ["drain d Admin", "create new"]


def test_a_cordon_whose_annotation_was_removed_is_lifted() -> None:
    d = serving("d").cordoned(Cause.ADMIN, annotated=False)
    found = after(d).plan(PLAIN)
    assert said(found) == ["calloff d"]
    assert of(CallOff, found)[0].sequence == 7


def test_a_condemned_cordon_is_never_lifted() -> None:
    d = serving("d").cordoned(Cause.ADMIN, annotated=False, condemned=True)
    assert said(after(d).plan(PLAIN)) == ["delete d", "create new"]  # the condemned go before anything new is made


def test_a_stubborn_worker_without_deadline_gets_the_pools() -> None:
    d = serving("d").cordoned(Cause.STUBBORN, origin="worker", deadline=None, annotated=False).busy()
    drain = of(Drain, after(serving("a"), d).plan(PLAIN))[0]
    assert (drain.cause, drain.deadline) == (Cause.STUBBORN, PLAIN.drain.deadline)


def going(taint: Taint | None = None, **node: object) -> World:
    nodes = {"n1": Node("n1", taints=(taint,) if taint else (), **node), "n2": Node("n2")}  # type: ignore[arg-type]
    return World((serving("a", node="n2"), serving("b", node="n1").busy()), nodes=nodes)


def test_pods_of_a_node_that_goes_drain_and_are_replaced_in_the_same_round() -> None:
    world = going(Taint("node.kubernetes.io/unschedulable", "NoSchedule"))
    assert said(world.plan(pool(2))) == ["drain b NodeDrain", "create new"]
    assert said(going(deleting=True).plan(pool(2))) == ["drain b NodeDrain", "create new"]
    assert said(going(Taint("maintenance", "NoExecute")).plan(pool(2))) == ["drain b NodeDrain", "create new"]


def test_a_spot_notice_has_its_own_deadline_and_shortens_a_longer_one() -> None:
    world = going(Taint("aws-node-termination-handler/spot-itn", "NoSchedule"))
    drain = of(Drain, world.plan(pool(2)))[0]
    assert (drain.cause, drain.deadline) == (Cause.SPOT, seconds(90))
    slow = replace(world, pods=(world.pods[0], serving("b", node="n1").busy().cordoned(deadline=seconds(3600))))
    assert of(Drain, slow.plan(pool(2)))[0].cause == Cause.SPOT
    short = replace(world, pods=(world.pods[0], serving("b", node="n1").busy().cordoned(deadline=seconds(80))))
    assert not of(Drain, short.plan(pool(2)))


def test_a_taint_that_the_pod_tolerates_for_ever_moves_nothing() -> None:
    """Its replacement would be put on the same node, for ever."""
    world = going(Taint("dedicated", "NoExecute", "gpu"))
    tolerant = Toleration("dedicated", "Equal", "gpu", "NoExecute")
    pods = tuple(s.but(tolerations=(tolerant,)) for s in world.pods)
    assert said(replace(world, pods=pods).plan(pool(2))) == []
    for_a_while = tuple(s.but(tolerations=(replace(tolerant, seconds=60),)) for s in world.pods)
    assert said(replace(world, pods=for_a_while).plan(pool(2))) == ["drain b NodeDrain", "create new"]


def test_a_candidate_mark_and_an_unreachable_taint_are_no_reason_to_drain() -> None:
    assert said(going(Taint("DeletionCandidateOfClusterAutoscaler", "PreferNoSchedule")).plan(pool(2))) == []
    assert said(going(Taint("node.kubernetes.io/unreachable", "NoExecute")).plan(pool(2))) == []


def test_without_the_right_to_read_nodes_no_node_is_drained() -> None:
    world = replace(going(Taint("node.kubernetes.io/unschedulable", "NoSchedule")), nodes=None)
    assert said(world.plan(pool(2))) == []


def unreachable(b: Situation) -> World:
    dead = Node("n1", reachable=False, changed=NOW - seconds(300))
    return World((serving("a", node="n2"), b), nodes={"n1": dead, "n2": Node("n2")})


def heard(before: float, **but: object) -> Situation:
    b = serving("b", node="n1").but(ready=False, **but)
    assert b.worker
    return replace(b, worker=replace(b.worker, seen_at=NOW - seconds(before)))


def test_a_pod_on_an_unreachable_node_is_lost_when_it_is_silent_for_a_minute() -> None:
    assert said(unreachable(heard(61)).plan(pool(2))) == ["create new"]
    assert said(unreachable(heard(59)).plan(pool(2))) == []


def test_a_pod_on_an_unreachable_node_that_still_works_is_not_lost() -> None:
    assert said(unreachable(heard(600).busy()).plan(pool(2))) == []


def test_a_silent_pod_on_a_node_that_answers_is_not_lost() -> None:
    """Its worker may be hung, but the kubelet is there to say so."""
    found = replace(unreachable(heard(600)), nodes={"n1": Node("n1"), "n2": Node("n2")})
    assert said(found.plan(pool(2))) == []


def test_a_pod_whose_node_object_is_gone_is_lost_when_silent() -> None:
    world = replace(unreachable(heard(61)), nodes={"n2": Node("n2")})
    assert said(world.plan(pool(2))) == ["create new"]


def test_a_lost_pod_is_never_deleted_nor_drained() -> None:
    found = unreachable(heard(61)).plan(pool(1))
    assert said(found) == []


def witness(reason: str = "Error", id_: str = "w-b") -> Situation:
    return serving("b").but(running=False, ready=False, restarts=1, exits=(Exit(id_, reason, 137),)).busy()


def test_the_kubelets_terminated_state_that_names_the_worker_is_a_witness() -> None:
    found = after(serving("a"), witness()).plan(pool(2))
    assert [w.worker_id for w in of(Witness, found)] == ["w-b"]


def test_a_guess_of_the_kubelet_or_another_workers_end_proves_nothing() -> None:
    assert not of(Witness, after(serving("a"), witness("ContainerStatusUnknown")).plan(pool(2)))
    assert not of(Witness, after(serving("a"), witness(id_="w-other")).plan(pool(2)))
    assert not of(Witness, after(serving("a"), witness(id_="")).plan(pool(2)))


def test_a_worker_that_ended_and_holds_nothing_needs_no_witness() -> None:
    b = replace(witness(), leases=())
    assert b.worker
    assert not of(Witness, after(serving("a"), replace(b, worker=replace(b.worker, ended=True))).plan(pool(2)))


def test_uids_whose_object_vanished_are_cordoned_once() -> None:
    ghost = Worker("w-g", "ghost", "p-x-0", LONG_AGO, NOW)
    world = after(serving("a"), strangers=(ghost,))
    assert [(v.uid, v.pod) for v in of(Vanish, world.plan(PLAIN))] == [("ghost", "p-x-0")]
    gone = after(serving("a"), strangers=(replace(ghost, ended=True),))
    assert not of(Vanish, gone.plan(PLAIN))


def test_while_the_store_gives_no_answer_nothing_is_drained_condemned_or_deleted() -> None:
    pods = (serving("a"), serving("b", OLD), ended("c"), serving("d").cordoned(condemned=True), broken("e"))
    found = World(pods, reachable=False).plan(pool(1))
    assert said(found) == []


def test_while_the_store_gives_no_answer_what_is_provably_gone_is_replaced() -> None:
    assert said(World((serving("a"), ended("c")), reachable=False).plan(pool(3))) == ["create new", "create new"]
    terminating = serving("b").but(deleting=NOW)
    assert said(World((serving("a"), terminating), reachable=False).plan(pool(2))) == []


def test_the_progress_clock_stands_while_the_store_gives_no_answer() -> None:
    found = World((serving("a", OLD),), ROLLING, reachable=False).plan(PLAIN)
    assert [m.what for m in of(Mark, found)] == ["clock-stop"]


def test_busy_pods_are_protected_after_ten_seconds_and_a_minute_beyond() -> None:
    assert not of(Protect, after(serving("a").busy(since=seconds(9))).plan(PLAIN))
    on = of(Protect, after(serving("a").busy(since=seconds(10))).plan(PLAIN))[0]
    assert (on.label, on.keep) == (True, True)
    a = serving("a").but(protected=True, kept=True)
    assert not of(Protect, after(a, last_busy={"a": NOW - seconds(59)}).plan(PLAIN))
    off = of(Protect, after(a, last_busy={"a": NOW - seconds(60)}).plan(PLAIN))[0]
    assert (off.label, off.keep) == (False, False)


def test_on_a_node_that_goes_only_the_autoscalers_marks_are_taken_off() -> None:
    world = going(Taint("ToBeDeletedByClusterAutoscaler", "NoSchedule"))
    pods = (world.pods[0], world.pods[1].but(protected=True, kept=True))
    change = of(Protect, replace(world, pods=pods).plan(pool(2)))[0]
    assert (change.label, change.keep) == (True, False)


def test_eviction_policy_allow_has_no_budget_and_no_label() -> None:
    allow = pool(1, disruption={"evictionPolicy": "Allow"})
    found = after(serving("a").busy(), budgets=()).plan(allow)
    assert said(found) == []
    assert not of(Protect, found)
    assert said(after(serving("a"), budgets=()).plan(PLAIN)) == ["budget"]


def test_a_new_revision_is_recorded_before_any_pod_of_it_is_made() -> None:
    found = after(serving("a", OLD), revisions=(revision("old", 1, completed=True),)).plan(pool(2))
    assert names(Create, found) == [f"p-{OLD}-0"]
    assert said(World((), ()).plan(pool(2))) == []


def test_names_are_the_lowest_free_ordinals() -> None:
    spec = pool(3)
    first = names(Create, World((), ROLLED).plan(spec))
    assert first == [f"p-{ROLLED[0].name}-{n}" for n in range(3)]
    taken = serving("u").but(name=first[1])
    assert names(Create, after(taken).plan(spec)) == [first[0], first[2]]


def test_a_container_that_registered_before_the_kubelet_told_is_not_taken_for_unstarted() -> None:
    """The store is ahead of the pod's status: it has work to lose, or will have in a moment."""
    early = replace(pending("a"), worker=Worker("w-a", "a", "a", NOW, NOW))
    world = after(early, serving("b"))
    seen = world.seen()
    assert look(seen, early.pod, NOW).work is Work.IDLE
    assert look(seen, pending("a").pod, NOW).work is Work.IDLE
    assert look(after(pending("c")).seen(), pending("c").pod, NOW).work is Work.NOTHING
