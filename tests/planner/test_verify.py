"""What verify says of one look, and of several, and what it must not make of what it remembers.

The rules on the live group find what came after the plan was made, and the user accepts some of it.
"""

import os
from typing import Any

import pytest
from msgspec.structs import replace

from rebal.groups.evidence.bounds import apply_assumptions
from rebal.groups.evidence.merge import merge
from rebal.groups.model import Coordinator, CoordinatorKind, GroupSnapshot, GroupState, Tri
from rebal.groups.snapshot.redact import redact
from rebal.planner.commands import Given
from rebal.planner.paths import NotPlannedError, make_plan
from rebal.planner.plan import Accepted, Action, Finding, Plan, Severity
from rebal.planner.verdict import code_as_it_runs, judged
from rebal.planner.verification.journal import JournalEntry, PlanContext
from rebal.planner.verification.outsiders import Doubt, OutsiderKind
from rebal.planner.verification.verify import Standing, entry_of, verify
from tests.planner.builder import AT, group_of
from tests.planner.looks import Story, app, bare, done, id_of, look, pods
from tests.planner.plans import BOTH, COOP, DEFAULT, DONE, NO_LIMIT, RANGE, rules
from tests.planner.rule_cases import RULES, cases_of

COORDINATOR = Coordinator(broker_id=1, kind=CoordinatorKind.JAVA)


def test_probe_shows_that_a_restarted_member_lacks_the_list_of_the_first_bounce(plan: Plan) -> None:
    members = [bare(n, 2) for n in range(3)]
    known = Accepted(families={"*": "java"})
    probe = {"cooperative-sticky": False, "range": True}
    standing = verify(plan, [], look(1, members, probe=probe), accepted=known)
    assert {member.why for member in standing.members} == {"no evidence shows its list"}
    text = "the probe shows that the list of one or more of app-0, app-1, app-2 has no cooperative"
    assert text in standing.next


def test_a_member_that_runs_eager_after_the_vote_still_has_an_eager_assignor() -> None:
    """Such as a pod of the old version that was added in the second bounce."""
    made = make_plan(look(0, pods(1, 1, list=BOTH), elected=DONE[0]))
    new = [app(0, 2, list=DONE), app(1, 2, ran="EAGER")]
    standing = verify(made, [], look(1, new, elected=DONE[0]))
    assert done(standing) == {"app-0": "yes", "app-1": "no"}
    assert standing.next == "restart app-1 with [cooperative-sticky]; one member at a time"


def test_missing_member_is_not_guessed_among_members_with_one_client_id() -> None:
    pods = [{"id": f"pod.{n}", "client": "app", "family": None} for n in range(3)]
    plan = make_plan(look(0, pods), expect_members=3)
    standing = verify(plan, [], look(1, pods[:1]))
    assert len(standing.outsiders) == 2
    assert all(one.doubt is Doubt.NONE for one in standing.outsiders)
    standing = verify(plan, [], look(1, [{"id": "pod.9", "client": "app", "family": None}]))
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
def test_restart_since_the_plan_counts_only_while_the_coordinator_leader_epoch_is_the_same(
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
    made = make_plan(look(0, pods(1, 1, list=BOTH), **disputed), expect_members=2)
    assert (made.exit_code, made.advice.text[:12]) == (4, "first RB902:")
    story = Story(made)
    standing = story(look(1, pods(1, 1, list=BOTH), **disputed))
    assert (standing.exit_code, standing.advice.recommended) == (4, False)
    assert standing.next.endswith("the evidence on app-1 contradicts itself (RB902)")
    # The journal keeps none of the two lists.
    later = story(look(2, [app(0, list=BOTH), app(1)], cluster=NO_LIMIT))
    assert done(later) == {"app-0": "yes", "app-1": "cannot tell"}


SESSION = {"timeouts": [600_000, 60_000]}


def final(*numbers: int) -> list[dict[str, Any]]:
    return [app(n, 2, list=DONE) for n in numbers]


def rejected(client: str, minutes: float | None) -> list[dict[str, Any]]:
    return [{"client": client, "list": ["roundrobin"], "at": minutes}]


def coop(minutes: float, members: list[dict[str, Any]], **more: Any) -> GroupSnapshot:
    return look(minutes, members, elected="cooperative-sticky", cluster=NO_LIMIT, **more)


def test_second_coordinator_reload_is_answered_with_a_restart_like_the_first() -> None:
    members = [app(n, list=BOTH) for n in range(3)]
    story = Story(make_plan(look(0, members, cluster=NO_LIMIT)))
    first = story(look(1, members, generation=5, cluster=NO_LIMIT, reloaded=True))
    assert first.advice.action is Action.RESTART
    members = [app(0, 2, list=BOTH), *members[1:]]
    cured = story(look(2, members, generation=7, cluster=NO_LIMIT))
    assert cured.advice.assignors == ("cooperative-sticky",)
    second = story(look(3, members, generation=7, cluster=NO_LIMIT, reloaded=True))
    assert second.advice.action is Action.RESTART
    assert "changed nothing" not in second.next


@pytest.mark.parametrize("threads", [1, 3])
def test_restart_that_restored_no_list_after_a_reload_is_not_advised_again(threads: int) -> None:
    rest = {**app(9, list=BOTH), "instance": "app-9"}

    def at(minutes: float, start: int) -> GroupSnapshot:
        own = [
            {"id": f"m{n}.{start}", "client": f"consumer-checkout-{n}", "host": "/10.0.0.1",
             "list": BOTH}
            for n in range(threads)
        ]  # fmt: skip
        more = {"cluster": NO_LIMIT, "reloaded": bool(minutes), "generation": 4 + start}
        return look(minutes, [*own, rest], **more)

    story = Story(make_plan(at(0, 1)))
    first = story(at(1, 1))
    assert (first.advice.action, len(first.advice.members)) == (Action.RESTART, threads)
    assert "the rebalance changed nothing" in story(at(2, 2)).next


def test_second_growth_of_a_topic_gets_an_owner_like_the_first() -> None:
    begun = [app(n, list=BOTH) for n in range(3)]
    story = Story(make_plan(look(0, begun, cluster=NO_LIMIT), expect_members=3))

    def grown(minutes: float, start: int, generation: int, partitions: int) -> Any:
        members, topics = [app(0, start, list=DONE), *final(1, 2)], {"orders": partitions}
        seen = coop(minutes, members, generation=generation, topics=topics)
        asked = (replace(one, subscribed_topics=("orders",)) for one in seen.members)
        return replace(seen, members=tuple(asked))

    story(grown(1, 2, 5, 13))
    assert story(grown(2, 2, 5, 13)).advice.action is Action.RESTART
    assert story(grown(3, 3, 7, 12)).finished, "each partition has an owner"
    story(grown(60, 3, 7, 13))
    again = story(grown(61, 3, 7, 13))
    assert again.advice.action is Action.RESTART, again.next


def test_rejected_stranger_hides_no_missing_member() -> None:
    """`audit` was rejected hours ago; app-1 restarts just now."""
    members = [app(n, list=BOTH) for n in range(4)]
    story = Story(make_plan(look(0, members, cluster=NO_LIMIT)))
    story(coop(2, [*final(0), *members[1:]], refusals=rejected("audit", 1)))
    now = story(coop(180, [*final(0), *members[2:]]))
    assert "app-1" in [one.name for one in now.outsiders if one.kind is OutsiderKind.MISSING]
    assert "app-1" in now.why[0]
    assert "audit" not in now.why[0], "it was never a member"
    assert "app-1" in now.advice.names


def test_rejoin_of_a_rejected_client_still_counts_after_its_log_is_rotated() -> None:
    begun = [app(n, list=BOTH) for n in (0, 1)]
    story = Story(make_plan(look(0, begun, cluster=NO_LIMIT)))
    story(coop(2, begun[:1], refusals=rejected("app-1", 1.9)))
    back = coop(4, final(0, 1), refusals=rejected("app-1", 1.9))
    rejoined = {"rejoined_as": "app-1.2-0f0f", "rejoined_at": AT}
    back = replace(back, refusals=tuple(replace(one, **rejoined) for one in back.refusals))
    assert story(back).finished
    assert story(coop(6, final(0, 1))).finished


def test_remembered_list_that_this_look_contradicts_is_left_out() -> None:
    plan = make_plan(look(0, [app(n, list=BOTH) for n in (0, 1)]))
    (shown, hidden) = verify(plan, [], look(1, [app(0, lacks=["range"]), app(1)])).members
    assert (shown.list, hidden.list) == ((), tuple(BOTH))


def test_only_static_members_that_may_have_stopped_are_named() -> None:
    """s-1 joined after the rejection."""
    begun = [app(0, list=BOTH)]
    begun += [app(n, list=BOTH, instance=f"s-{n}", **SESSION) for n in (1, 2)]
    given = Given(connection=("-b", "h:9092"), brokers="h:9092", plan="p.yaml")
    story = Story(make_plan(look(0, begun, cluster=NO_LIMIT), expect_members=3, given=given))
    two = app(2, 2, list=DONE, instance="s-2", joined=1, **SESSION)
    story(coop(1.5, [*final(0), begun[1], two]))
    one = app(1, 2, list=DONE, instance="s-1", joined=5, **SESSION)
    seen = coop(6, [*final(0), one, two], refusals=rejected("app-9", 2))
    now = story(seen, expect_members=3)
    assert "s-2 may have stopped" in now.next
    assert "s-1" not in now.next
    (removal,) = now.advice.commands
    assert removal.use == "only if s-2 is gone for good: remove its entry"
    assert removal.line.endswith(f"groups remove-members -g {seen.group.group_id} -i s-2")


def test_snapshot_without_a_coordinator_shows_no_coordinator_reload() -> None:
    now = Coordinator(broker_id=1, kind=CoordinatorKind.JAVA, leader_epoch=4)
    before = JournalEntry(at=AT, plan="", group_id="g", broker_id=1, leader_epoch=3)
    assert before.is_before_load(now)
    assert not before.is_before_load(None)
    assert not replace(before, broker_id=None).is_before_load(now)


def with_uuids(snapshot: GroupSnapshot) -> GroupSnapshot:
    """The same with member ids as Kafka makes them: a name, and a random end."""
    ends = {f"{n}": f"{n:08}-1111-4222-8333-444455556666" for n in range(10)}

    def real(member_id: str) -> str:
        name, _, start = member_id.removesuffix("-0f0f").partition(".")
        return f"{name}-{ends[start or '0']}"

    members = tuple(replace(one, member_id=real(one.member_id)) for one in snapshot.members)
    return replace(snapshot, members=members)


def redacted_plan(**group: Any) -> Plan:
    made = make_plan(redact(with_uuids(group_of({"reloaded": False, **group}))))
    assert made.baseline.redacted
    return made


def test_redacted_plan_names_no_missing_member_by_its_pseudonym() -> None:
    made = redacted_plan(members=[app(n, list=BOTH) for n in range(3)])
    now = verify(made, [], with_uuids(look(1, [app(0, list=BOTH)])), expect_members=3)
    assert (now.outsiders, now.why[0]) == ((), "2 of 3 expected members are not in the group")


def test_rejected_client_of_a_redacted_plan_counts_when_its_log_is_rotated() -> None:
    """Another new member could be the rejected client's, or not: pseudonyms match nobody."""
    before = {"members": [app(0, list=BOTH), app(1, list=BOTH)]}
    out = {"client": "d", "list": ["range"], "at": -1}
    made = redacted_plan(**before, refusals=[out])
    grown = [app(0, 2, list=DONE), app(1, 2, list=DONE), app(5, list=DONE)]
    now = with_uuids(look(30, grown, elected="cooperative-sticky"))
    standing = verify(made, [], now)
    assert (standing.finished, standing.exit_code) == (False, 4)
    assert "--expect-members 3 if not" in standing.next
    assert verify(made, [], now, expect_members=3).finished
    assert verify(redacted_plan(**before), [], now).finished, "nobody was rejected"
    logged = look(30, grown, elected="cooperative-sticky", refusals=[out])
    advice = verify(made, [], with_uuids(logged)).next
    assert "--expect-members 4 if it belongs" in advice, "it is counted once"


WHY = "tried on staging"


def apps(start: int, names: list[str] | None = None) -> list[dict[str, Any]]:
    return pods(start, start, start, **({"list": names} if names else {}))


@pytest.fixture
def ranged() -> Plan:
    return make_plan(look(0, apps(1, RANGE)), expect_members=3)


NEW = {
    "librdkafka joined": ({"family": "librdkafka", "version": "2.6.0"}, "RB104", "replan"),
    "librdkafka joined, and its file has the step's list": (
        {"family": "librdkafka", "version": "2.6.0", "declared": BOTH}, "RB104", "stop"
    ),
    "kafkajs joined": ({"family": "kafkajs", "list": ["RoundRobinAssigner", "range"]}, "RB105",
                       "stop"),
    "the next start drops range": ({"declared": DONE, "version": "2.8.2"}, "RB103", "stop"),
    "the next start has nothing common": ({"declared": ["sticky"]}, "RB101", "stop"),
    "a static member's deployment surges": (
        {"instance": "i-2", "declared": BOTH, "surge": "25%"}, "RB604", "stop"
    ),
    "a custom client nobody knows": (
        {"family": None, "left": "java >= 2.4, kafka-python"}, "RB906", "evidence"
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", NEW)
def test_what_came_after_the_plan_is_found_and_decides(ranged: Plan, name: str) -> None:
    changes, rule, action = NEW[name]
    result = Tri.CANNOT_TELL if action == "evidence" else Tri.YES
    members = [app(0, 2, list=BOTH), app(1, 1, list=RANGE), app(2, 2, list=RANGE) | changes]
    standing = verify(ranged, [], look(1, members))
    finding, *_ = (f for f in standing.findings if f.rule == rule)
    assert (finding.severity, finding.result) == ("block", result)
    assert (standing.exit_code, standing.advice.action) == (3 if result is Tri.YES else 4, action)
    accepting = verify(ranged, [], look(1, members), accepted=Accepted(ignore={rule: WHY}))
    assert accepting.exit_code == 4
    finding, *_ = (f for f in accepting.findings if f.rule == rule)
    assert finding.ignored == WHY
    recorded = make_plan(ranged.baseline, expect_members=3, ignore={rule: WHY})
    assert verify(recorded, [], look(1, members)).exit_code == 4


def test_missing_member_keeps_the_gate_shut_and_an_extra_member_is_a_warning(ranged: Plan) -> None:
    missing = verify(ranged, [], look(1, apps(2, BOTH)[:2], **COOP))
    assert (missing.exit_code, rules(missing)) == (4, set())
    assert missing.why[0].startswith("1 of 3 expected members is not in the group")
    more = verify(ranged, [], look(1, [*apps(2, BOTH), app(3, 1, list=BOTH)], **COOP))
    assert (more.exit_code, rules(more)) == (0, {"RB607"})
    # A word does not open the gate below the expected count: it takes another count.
    ignored = Accepted(ignore={"RB606": "gone for good"})
    assert verify(ranged, [], look(1, apps(2, BOTH)[:2], **COOP), accepted=ignored).exit_code == 4
    assert verify(ranged, [], look(1, apps(2, BOTH)[:2], **COOP), expect_members=2).exit_code == 0


def test_coordinator_reload_during_the_roll_out_blocks_the_next_restart() -> None:
    ranged = make_plan(look(0, apps(1, DEFAULT)), expect_members=3)
    assert ranged.path == "one_bounce"
    # Two are not restarted, all hold both lists, and a load leaves range alone of them.
    half = [app(0, 2, list=DEFAULT), app(1, 1, list=DEFAULT), app(2, 1, list=DEFAULT)]
    forgot = verify(ranged, [], look(1, half, reloaded=True))
    assert (forgot.exit_code, "RB113" in rules(forgot)) == (3, True)
    unsure = verify(ranged, [], look(1, half, reloaded=None))
    assert (unsure.exit_code, "RB113" in rules(unsure)) == (4, True)
    accepted = Accepted(ignore={"RB113": "the probe was asked by hand"})
    assert verify(ranged, [], look(1, half, reloaded=True), accepted=accepted).exit_code == 4
    assert "RB113" not in rules(verify(ranged, [], look(1, half)))


def test_file_that_declares_the_old_list_blocks_a_finished_plan(ranged: Plan) -> None:
    assert verify(ranged, [], look(1, apps(2, DONE), **COOP), step=2).finished
    back = look(1, [*apps(2, DONE)[:2], app(2, 2, list=DONE, declared=RANGE)], **COOP)
    standing = verify(ranged, [], back, step=2)
    assert (standing.exit_code, rules(standing)) == (3, {"RB108", "RB903"})
    assert not standing.finished


def test_operator_can_accept_unknown_assignor_lists_but_no_disproved_one(ranged: Plan) -> None:
    snapshot = look(1, apps(2))
    assert verify(ranged, [], snapshot).exit_code == 4
    standing = verify(ranged, [], snapshot, accepted=Accepted(ignore={"RB901": WHY}))
    assert (standing.gate, standing.exit_code) == (Tri.YES, 0)
    assert standing.accepted == (f"not known: app-0, app-1, app-2 (RB901 is ignored: {WHY})",)
    assert WHY in entry_of(ranged, standing, snapshot).accepted[0]
    # It goes no further than that: what evidence speaks against stays so.
    lacking = look(1, [app(0, 2, list=RANGE), app(1, 2), app(2, 2)])
    accepting = verify(ranged, [], lacking, accepted=Accepted(ignore={"RB901": WHY}))
    assert (accepting.gate, accepting.exit_code) == (Tri.NO, 4)


def test_assumed_list_counts_for_its_member_id_only_and_is_not_kept_as_proof(ranged: Plan) -> None:
    texts = [f"client-id=app-{n}:cooperative-sticky,range" for n in range(3)]
    made, assumptions = apply_assumptions(look(1, apps(2)), texts)
    standing = verify(ranged, [], made)
    assert (standing.gate, standing.exit_code, len(assumptions)) == (Tri.YES, 0, 3)
    assert all(member.vouched for member in standing.members)
    entry = entry_of(ranged, standing, made)
    assert not any(member.made or member.assignors for member in entry.members)
    assert verify(ranged, [entry], look(2, apps(2))).exit_code == 4
    # In a plan's baseline it stands at its member id, for as long as that is there.
    known, assumptions = apply_assumptions(look(0, apps(1), **COOP), texts)
    planned = make_plan(known, expect_members=3, assumed=assumptions)
    assert planned.next_step == 2
    assert verify(planned, [], look(1, apps(1), **COOP), step=1).exit_code == 0
    assert verify(planned, [], look(1, apps(2), **COOP), step=2).exit_code == 4


def test_list_that_the_journal_proved_still_counts_for_the_same_member_id(ranged: Plan) -> None:
    first = look(1, apps(2, BOTH), **COOP)
    entry = entry_of(ranged, verify(ranged, [], first), first)
    # Nothing but the journal knows the lists now: the forgotten one is named all the same.
    back = look(3, [app(0, 2), app(1, 2), app(2, 3, list=RANGE)], elected="range")
    standing = verify(ranged, [entry], back, step=2)
    assert standing.exit_code == 3
    assert [f.members for f in standing.findings if f.rule == "RB102"] == [("app-2.3-0f0f",)]


def test_snapshot_older_than_the_plan_verifies_no_gate(ranged: Plan) -> None:
    before = verify(ranged, [], look(-5, apps(2, BOTH), **COOP))
    assert (before.gate, before.exit_code) == (Tri.CANNOT_TELL, 4)
    assert "older than the plan" in before.why[0]


def test_journal_entries_later_than_the_snapshot_are_left_out_and_reported(ranged: Plan) -> None:
    later = look(9, apps(2, BOTH), **COOP)
    standing = verify(
        ranged, [entry_of(ranged, verify(ranged, [], later), later)], look(5, apps(2))
    )
    assert standing.exit_code == 4
    assert any("left out: 1 (" in note for note in standing.notes)


def test_an_unknown_client_that_holds_the_target_is_no_question() -> None:
    """The first bounce asks nothing of it, so plan and verify both begin the second one."""
    members = [bare(n) for n in range(3)]
    more = {**COOP, "probe": {"cooperative-sticky": True, "range": True}}
    made = make_plan(merge(look(0, members, **more), ()), expect_members=3)
    standing = verify(made, [], merge(look(1, members, **more), ()))
    assert "RB906" not in {one.rule for one in (*made.findings, *standing.findings)}
    assert (made.next_step, made.exit_code, standing.exit_code) == (2, 0, 0)
    assert made.advice.members == standing.advice.members
    assert made.advice.assignors == standing.advice.assignors == ("cooperative-sticky",)
    assert made.advice.verdict is standing.advice.verdict is Tri.YES


@pytest.mark.parametrize(
    ("members", "more", "first", "code"),
    [
        (pods(1, 1, family="librdkafka", guess=True), {}, "first RB104: restart nothing before", 4),
        (
            pods(1, family="kafkajs", guess=True, list=["RoundRobinAssigner"]),
            {"elected": "RoundRobinAssigner"},
            "first RB105: restart nothing before the client is known",
            4,
        ),
        ([], {"state": "Empty", "elected": None}, "first RB905: Start the members", 4),
        (pods(1), {"state": "PreparingRebalance"}, "first RB905: Wait until it is Stable", 4),
        (pods(1), {"type": "share"}, "first RB905: ", 3),
    ],
    ids=["librdkafka", "kafkajs", "Empty", "unstable", "share"],
)
def test_verify_of_a_plan_without_steps_names_the_deciding_rule_instead_of_a_new_plan(
    members: list[dict[str, Any]], more: dict[str, Any], first: str, code: int
) -> None:
    ranged = make_plan(look(0, members, **more), given=Given(plan="p.yaml"))
    assert (ranged.path, ranged.steps) == ("none", ())
    now = verify(ranged, [], look(5, members, **more))
    assert now.next.startswith(first)
    assert (now.exit_code, now.advice.action == "replan") == (code, False)
    assert "--out p.yaml --new-attempt" in now.advice.command
    # Once that is settled, a new plan has a step.
    known = make_plan(look(0, pods(1, 1, list=["range"])), given=Given(plan="p.yaml"))
    now = verify(replace(ranged, baseline=known.baseline), [], look(5, pods(1, 1, list=["range"])))
    assert now.advice.action == "replan"
    assert now.next == "make a new plan: this one has no step left"


GOALS = ("cooperative", "eager", "consumer", "range")


def check(standing: Standing) -> None:
    """Assert that the advice takes the configuration, if there is one."""
    if not standing.config:
        return
    advice = standing.advice
    (step,) = (one for one in standing.steps if one.id == advice.step)
    assert advice.recommended
    assert advice.action in ("restart", "cut-over", "start")
    assert advice.assignors or advice.change or advice.action != "start", "its current list"
    assert set(advice.members) <= set(step.to_do)
    for setting in standing.config:
        for name in advice.assignors if setting.format == "librdkafka properties" else ():
            assert name in setting.text


@pytest.mark.usefixtures("no_costs")
@pytest.mark.parametrize("rule", RULES)
def test_configuration_is_printed_for_the_advised_action_alone(rule: str) -> None:
    groups = [case["group"] for case in cases_of(rule)]
    every = os.environ.get("REBAL_FULL") == "1"
    for number, group in enumerate(groups):
        snapshot = group_of(group)
        for goal in GOALS if every else [GOALS[number % len(GOALS)]]:
            try:
                ranged = make_plan(snapshot, goal)
            except NotPlannedError:
                continue
            for one in (snapshot, group_of(groups[0])):
                check(verify(ranged, (), one))


def finding(severity: Severity, **more: Any) -> Finding:
    return Finding(rule="RB106", severity=severity, message="m", **more)


def test_fail_on_warning_counts_warnings_and_exit_zero_counts_no_finding() -> None:
    warns = [finding(Severity.WARN)]
    perhaps = [finding(Severity.WARN, result=Tri.CANNOT_TELL)]
    ignored = [finding(Severity.WARN, ignored="known")]
    assert judged(0, warns, "block", False) == 0
    assert judged(0, warns, "warning", False) == 3
    assert judged(4, warns, "warning", False) == 3
    assert judged(0, perhaps, "warning", False) == 0
    assert judged(0, ignored, "warning", False) == 0
    assert judged(3, warns, "warning", True) == 0
    assert judged(1, warns, "warning", True) == 1


@pytest.mark.parametrize(
    ("found", "code"),
    [
        (finding(Severity.BLOCK), 3),
        (finding(Severity.BLOCK, result=Tri.CANNOT_TELL), 0),
        (finding(Severity.BLOCK, before_step=1), 0),
        (finding(Severity.BLOCK, ignored="known"), 0),
        (finding(Severity.WARN), 0),
    ],
)
def test_only_a_proven_block_before_any_step_blocks_the_group_as_it_runs(
    found: Finding, code: int
) -> None:
    assert code_as_it_runs([found], GroupState.STABLE) == code


def test_a_dead_group_is_unproven_unless_a_finding_blocks_it() -> None:
    assert code_as_it_runs([], GroupState.DEAD) == 4
    assert code_as_it_runs([finding(Severity.BLOCK)], GroupState.DEAD) == 3
