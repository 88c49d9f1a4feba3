"""What verify says of one look, and of several: steps and gates, and what it must not say."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from rebal.groups.model import Coordinator, CoordinatorKind, GroupSnapshot
from rebal.planner.paths import make_plan
from rebal.planner.plan import Accepted, Plan
from rebal.planner.verification.journal import PlanContext
from rebal.planner.verification.outsiders import Doubt
from rebal.planner.verification.verify import Standing, verify
from tests.planner.looks import Story, app, bare, done, id_of, look, pods
from tests.planner.plans import BOTH, DONE, NO_LIMIT

COORDINATOR = Coordinator(broker_id=1, kind=CoordinatorKind.JAVA)


def test_a_restart_without_the_list_of_bounce_1_is_what_the_probe_shows(plan: Plan) -> None:
    members = [bare(n, 2) for n in range(3)]
    known = Accepted(families={"*": "java"})
    probe = {"cooperative-sticky": False, "range": True}
    standing = verify(plan, [], look(1, members, probe=probe), accepted=known)
    assert {member.why for member in standing.members} == {"no evidence shows its list"}
    said = "the probe shows that the list of one or more of app-0, app-1, app-2 has no cooperative"
    assert said in standing.next


def test_a_member_that_runs_eager_after_the_vote_still_has_an_eager_assignor() -> None:
    """Such as a pod of the old version that was added in the second bounce."""
    made = make_plan(look(0, pods(1, 1, list=BOTH), elected=DONE[0]))
    new = [app(0, 2, list=DONE), app(1, 2, ran="EAGER")]
    standing = verify(made, [], look(1, new, elected=DONE[0]))
    assert done(standing) == {"app-0": "yes", "app-1": "no"}
    assert standing.next == "restart app-1 with [cooperative-sticky]; one member at a time"


def test_a_missing_one_of_equal_members_is_not_guessed() -> None:
    pods = [{"id": f"pod.{n}", "client": "app", "family": None} for n in range(3)]
    plan = make_plan(look(0, pods), expect_members=3)
    standing = verify(plan, [], look(1, pods[:1]))
    assert len(standing.outsiders) == 2
    assert all(one.doubt is Doubt.NONE for one in standing.outsiders)
    new = [{"id": "pod.9", "client": "app", "family": None}]
    standing = verify(plan, [], look(1, new))
    assert len(standing.outsiders) == 2
    moved = [app(0), {**app(1, 2), "host": "/10.0.0.9"}]
    plan = make_plan(look(0, [app(0), app(1)]), expect_members=3)
    assert verify(plan, [], look(1, moved)).outsiders == ()


def narrowed(plan: Plan, kept: dict[int, bool], **client: Any) -> Standing:
    """Every member restarted in step 2; `kept` says which sent owned partitions since."""
    tell = Story(plan)
    before = [app(n, 2, list=BOTH) for n in range(3)]
    assert tell(look(1, before, elected="cooperative-sticky")).exit_code == 0
    shape = {"family": "java", **client}
    members = [bare(n, 3) | shape | {"owned": kept[n]} for n in range(3)]
    return tell(look(2, members, elected="cooperative-sticky"))


def test_partitions_owned_after_the_restart_prove_cooperative_for_java_alone(plan: Plan) -> None:
    every = dict.fromkeys(range(3), True)
    assert narrowed(plan, every).finished
    # An empty list proves nothing: a member that owned nothing when it rejoined sends it too.
    one = narrowed(plan, every | {1: False})
    assert done(one) == {"app-0": "yes", "app-1": "cannot tell", "app-2": "yes"}
    assert [str(member.runs) for member in one.members] == [
        "COOPERATIVE", "cannot tell", "COOPERATIVE"
    ]  # fmt: skip
    # A guessed client, and one that follows the vote, may hold an eager assignor beside it.
    for client in ({"guess": True}, {"family": None}, {"family": "franz-go"}):
        other = narrowed(plan, every, **client)
        assert set(done(other).values()) == {"cannot tell"}
        assert all("runs COOPERATIVE" in member.why for member in other.members)


@pytest.mark.parametrize(
    ("then", "now", "restarted"),
    [(3, 3, True), (3, 4, False), (None, 4, False), (None, None, True)],
)
def test_restart_counts_as_one_since_the_load_only_in_the_plan_s_leader_epoch(
    plan: Plan, then: int | None, now: int | None, restarted: bool
) -> None:
    def in_epoch(snapshot: GroupSnapshot, epoch: int | None) -> GroupSnapshot:
        known = None if epoch is None else replace(COORDINATOR, leader_epoch=epoch)
        return replace(snapshot, group=replace(snapshot.group, coordinator=known))

    made = replace(plan, baseline=in_epoch(plan.baseline, then))
    seen = in_epoch(look(1, [bare(0, 2), bare(1), bare(2)]), now)
    assert PlanContext(made, seen).restarted == ({id_of(0, 2)} if restarted else set())


def test_nothing_rests_on_a_list_that_evidence_contradicts() -> None:
    what = "one member id joined with different lists: [range] and [cooperative-sticky, range]"
    disputed = {"contradictions": [{"member": id_of(1), "what": what}], "cluster": NO_LIMIT}
    start = look(0, pods(1, 1, list=BOTH), **disputed)
    made = make_plan(start, expect_members=2)
    assert (made.exit_code, made.advice.text[:12]) == (4, "first RB902:")
    tell = Story(made)
    told = tell(look(1, pods(1, 1, list=BOTH), **disputed))
    assert (told.exit_code, told.advice.recommended) == (4, False)
    assert told.next.endswith("the evidence on app-1 contradicts itself (RB902)")
    # The journal keeps none of the two lists.
    later = tell(look(2, [app(0, list=BOTH), app(1)], cluster=NO_LIMIT))
    assert done(later) == {"app-0": "yes", "app-1": "cannot tell"}
