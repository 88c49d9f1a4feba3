"""What verify says of one look, and of several: steps and gates, and what it must not say."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from rebal.groups.model import Coordinator, CoordinatorKind, Evidence, GroupSnapshot, Source, Tri
from rebal.planner.paths import make_plan
from rebal.planner.plan import Accepted, Plan
from rebal.planner.verification.journal import PlanContext
from rebal.planner.verification.verify import Standing, verify
from tests.planner.looks import Story, app, bare, id_of, look, pods
from tests.planner.plans import BOTH, COOP, DONE

COORDINATOR = Coordinator(broker_id=1, kind=CoordinatorKind.JAVA)


def done(standing: Standing) -> dict[str, str]:
    return {member.member_id: str(member.done) for member in standing.members}


def test_ids_of_the_baseline_are_not_done_with_no_log_at_all(plan: Plan) -> None:
    standing = verify(plan, [], look(1, [bare(0, 2), bare(1), bare(2)]))
    assert done(standing) == {id_of(0, 2): "cannot tell", id_of(1): "no", id_of(2): "no"}
    assert (standing.step, standing.exit_code) == (1, 4)
    assert "RB906" in standing.next, "its client decides whether it takes the list"
    known = Accepted(families={"*": "java"})
    standing = verify(plan, [], look(1, [bare(0, 2), bare(1), bare(2)]), accepted=known)
    assert "app-1" in standing.next


@pytest.mark.parametrize(
    "evidence",
    [{"elected": "cooperative-sticky"}, {"probe": {"cooperative-sticky": True, "range": True}}],
)
def test_bounce_1_is_proven_by_the_election_or_the_probe(
    plan: Plan, evidence: dict[str, Any]
) -> None:
    standing = verify(plan, [], look(1, [bare(n, 2) for n in range(3)], **evidence))
    assert (standing.step, standing.gate, standing.exit_code) == (1, Tri.YES, 0)
    assert standing.next.startswith("begin step 2")


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
    assert done(standing) == {id_of(0, 2): "yes", id_of(1, 2): "no"}
    assert standing.next == "restart app-1 with [cooperative-sticky]; one member at a time"


def test_a_missing_one_of_equal_members_is_not_guessed() -> None:
    pods = [{"id": f"pod.{n}", "client": "app", "family": None} for n in range(3)]
    plan = make_plan(look(0, pods), expect_members=3)
    standing = verify(plan, [], look(1, pods[:1]))
    assert len(standing.outsiders) == 2
    assert all(one.sure for one in standing.outsiders)
    new = [{"id": "pod.9", "client": "app", "family": None}]
    standing = verify(plan, [], look(1, new))
    assert len(standing.outsiders) == 2
    moved = [app(0), {**app(1, 2), "host": "/10.0.0.9"}]
    plan = make_plan(look(0, [app(0), app(1)]), expect_members=3)
    assert verify(plan, [], look(1, moved)).outsiders == ()


def test_lists_that_the_coordinator_may_have_forgotten_hold_no_gate(plan: Plan) -> None:
    members = [app(n, 2, list=["range", "cooperative-sticky"]) for n in range(3)]
    for reloaded, code in ((True, 4), (None, 4), (False, 0)):
        standing = verify(plan, [], look(1, members, reloaded=reloaded))
        assert standing.exit_code == code, standing
        assert ("RB113" in " ".join(standing.why)) is (code == 4)


def test_bounce_2_is_over_only_with_every_list_and_the_journal_remembers(plan: Plan) -> None:
    tell = Story(plan)
    assert tell(look(1, [app(n, 2, list=BOTH) for n in range(3)], **COOP)).exit_code == 0
    first = [app(0, 3, list=DONE), bare(1, 2), bare(2, 2)]
    standing = tell(look(2, first, **COOP))
    assert (standing.step, standing.exit_code) == (2, 4)
    # The lists of the two others were seen a minute ago, and their ids are still there.
    assert done(standing) == {id_of(0, 3): "yes", id_of(1, 2): "no", id_of(2, 2): "no"}
    second = [bare(0, 3), app(1, 3, list=DONE), bare(2, 2)]
    assert done(tell(look(3, second, **COOP)))[id_of(0, 3)] == "yes"
    last = [bare(0, 3), bare(1, 3), app(2, 3, list=DONE)]
    assert tell(look(4, last, **COOP)).finished
    # Without the journal, the same look proves one member only.
    alone = verify(plan, [], look(4, last, **COOP))
    assert (alone.step, alone.exit_code) == (2, 4)
    assert sorted(done(alone).values()) == ["cannot tell", "cannot tell", "yes"]


def test_the_step_stays_while_a_member_of_bounce_2_is_away(plan: Plan) -> None:
    tell = Story(plan)
    tell(look(1, [app(n, 2, list=BOTH) for n in range(3)], **COOP))
    tell(look(2, [app(0, 3, list=DONE), bare(1, 2), bare(2, 2)], **COOP))
    standing = tell(look(3, [bare(0, 3), bare(2, 2)], **COOP))
    assert (standing.step, standing.exit_code) == (2, 4)
    assert [one.name for one in standing.outsiders] == ["app-1"]
    shown = (standing.state, standing.assignor, standing.present, standing.expected)
    assert shown == ("Stable", "cooperative-sticky", 2, 3)
    away = look(3.1, [bare(0, 3), bare(2, 2)], state="PreparingRebalance", elected=None)
    assert tell(away).step == 2


def test_evidence_against_the_journal_is_no_answer(plan: Plan) -> None:
    tell = Story(plan)
    tell(look(1, [app(n, 2, list=BOTH) for n in range(3)], elected="cooperative-sticky"))
    odd = [app(0, 2, list=["range"]), bare(1, 2), bare(2, 2)]
    standing = tell(look(2, odd))
    assert done(standing)[id_of(0, 2)] == "cannot tell"
    said = "evidence contradicts itself: yes (the journal, Nov 20 09:01Z), no (now)"
    assert (standing.members[0].why, standing.exit_code) == (said, 4)


def test_a_word_of_the_user_in_the_baseline_proves_nothing() -> None:
    assumed = look(0, [app(n, list=BOTH) for n in range(3)])
    word = (Evidence(source=Source.ASSUMED),)
    members = tuple(
        replace(member, assignors=replace(member.assignors, evidence=word))
        for member in assumed.members
    )
    plan = make_plan(replace(assumed, members=members), expect_members=3)
    standing = verify(plan, [], look(1, [bare(n) for n in range(3)]))
    assert standing.exit_code == 4
    assert "yes" not in done(standing).values()


def test_a_refresh_is_over_when_the_coordinator_remembers() -> None:
    lists = {"list": ["range", "cooperative-sticky"]}
    forgot = look(0, [app(n, **lists) for n in range(3)], reloaded=True)
    plan = make_plan(forgot, expect_members=3)
    assert [step.target_list for step in plan.steps] == [(), ("cooperative-sticky",)]
    tell = Story(plan)
    standing = tell(forgot)
    assert (standing.step, standing.exit_code) == (1, 4)
    assert "CURRENT list" in standing.next
    again = look(1, [app(0, 2, **lists), *(app(n, **lists) for n in (1, 2))])
    standing = tell(again)
    assert (standing.step, standing.exit_code) == (1, 0)
    final = [app(0, 3, list=DONE), *(app(n, **lists) for n in (1, 2))]
    standing = tell(look(2, final, elected="cooperative-sticky"))
    assert (standing.step, standing.exit_code) == (2, 4)
    assert done(standing) == {id_of(0, 3): "yes", id_of(1): "no", id_of(2): "no"}


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
    assert done(one) == {id_of(0, 3): "yes", id_of(1, 3): "cannot tell", id_of(2, 3): "yes"}
    assert [str(member.runs) for member in one.members] == [
        "COOPERATIVE", "cannot tell", "COOPERATIVE"
    ]  # fmt: skip
    # A guessed client, and one that follows the vote, may hold an eager assignor beside it.
    for client in ({"guess": True}, {"family": None}, {"family": "franz-go"}):
        other = narrowed(plan, every, **client)
        assert set(done(other).values()) == {"cannot tell"}
        assert all("runs COOPERATIVE" in member.why for member in other.members)


def test_the_users_word_for_the_client_makes_owned_partitions_count(plan: Plan) -> None:
    told = replace(plan, accepted=Accepted(families={"*": "java"}))
    assert narrowed(told, dict.fromkeys(range(3), True), family=None).finished


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
