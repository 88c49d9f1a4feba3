"""The plan of a group: its route, its next step and exit code, what the clients make of it; and the
plans of many groups side by side.
"""

from typing import Any

import pytest
from msgspec.structs import replace

from rebal.groups.compact import Partitions
from rebal.groups.model import Tri
from rebal.planner.paths import make_plan
from rebal.planner.plan import Verdict
from rebal.planner.readiness import Pauses, Readiness, in_order, readiness, to_rehearse
from rebal.planner.rehearsal.costs import steps
from rebal.planner.rehearsal.costs.start import Pricing
from rebal.planner.rehearsal.outcome import Rehearsal
from rebal.planner.rehearsal.scripts import Scene
from tests.planner.builder import group_of
from tests.planner.plans import BOTH, DEFAULT, DONE, RANGE, m, plan, rules


def test_one_member_with_an_unknown_list_keeps_the_second_bounce_shut() -> None:
    made = plan([m("a", BOTH), m("b", BOTH), m("c")])
    assert (made.next_step, made.exit_code) == (2, 4)
    assert "1 member unknown" in made.summary
    accepted = plan([m("a", BOTH), m("b", BOTH), m("c")], ignore={"RB901": "c is going away"})
    assert accepted.exit_code == 0
    assert accepted.steps[1].precondition_holds is Tri.CANNOT_TELL
    assert accepted.assumptions == ("RB901 is ignored: c is going away",)
    assert accepted.advice.reason.startswith("accepted by you: it is not known whether")


def test_plan_is_done_only_when_every_target_list_is_proven() -> None:
    def after(**second: Any) -> tuple[int | None, int]:
        made = plan([m("a", DONE), {"id": "b", **second}], elected="cooperative-sticky")
        return made.next_step, made.exit_code

    assert after(list=DONE) == (None, 0)
    assert after(at_least=DONE, owned=True) == (None, 0)
    assert after(at_least=DONE) == (2, 4)
    assert after(at_least=DONE, owned=True, family="franz-go") == (2, 4)


@pytest.mark.parametrize(
    ("target", "members", "elected", "back", "shows"),
    [
        ("cooperative", [RANGE] * 2, "range", "range", "no eager assignor"),
        ("cooperative", [BOTH] * 2, DONE[0], "range", "no eager assignor"),
        ("eager", [DONE] * 2, DONE[0], DONE[0], "no cooperative assignor"),
        ("roundrobin", [RANGE] * 2, "range", "range", "no assignor but roundrobin"),
        ("roundrobin", [["roundrobin", *RANGE]] * 2, "roundrobin", "range", "but roundrobin"),
        ("roundrobin", [DONE] * 2, DONE[0], DONE[0], "no cooperative assignor"),
    ],
)
def test_rollback_names_the_old_assignor_and_the_last_gate_requires_that_no_list_holds_it(
    target: str, members: list[list[str]], elected: str, back: str, shows: str
) -> None:
    made = plan([m(f"a{n}", one) for n, one in enumerate(members)], target, elected=elected)
    first, last = made.steps
    assert first.rollback == f"[{back}] while elected, then plan --to {back}"
    assert f"--to {back} " in f"{first.commands[-1].line} "
    assert shows in last.gate.shows


@pytest.mark.parametrize(("reloaded", "code"), [(True, 3), (None, 4)])
def test_plan_after_a_coordinator_reload_begins_with_one_restart_with_the_current_list(
    reloaded: bool | None, code: int
) -> None:
    members = [m("a", DEFAULT, instance="pod-0"), m("b", DEFAULT)]
    made = plan(members, reloaded=reloaded)
    assert (made.path, made.next_step, made.exit_code) == ("one_bounce", 1, 0)
    first, second = made.steps
    assert (first.target_list, first.to_do, first.config) == ((), ("b-0f0f",), ())
    assert "CURRENT list" in first.title
    assert (second.id, second.target_list, second.exit_code) == (2, ("cooperative-sticky",), code)
    for known in (
        plan(members, reloaded=reloaded, probe={"cooperative-sticky": True}),
        plan(members, reloaded=None, ignore={"RB113": "seen to remember"}),
        plan([m("a", DEFAULT), m("b", DEFAULT)], reloaded=False),
    ):
        assert [step.target_list for step in known.steps] == [("cooperative-sticky",)]
        assert known.exit_code == 0
    # No word stands against a load that is proven.
    accepted = plan(members, reloaded=True, ignore={"RB113": "seen to remember"})
    assert [step.target_list for step in accepted.steps] == [(), ("cooperative-sticky",)]


def test_plan_for_a_full_group_of_static_members_is_blocked_and_names_the_remedy() -> None:
    full = {"cluster": {"version": "3.9", "settings": {"group.max.size": "2"}}, "reloaded": False}
    made = plan([m("a", RANGE, instance="a"), m("b", RANGE, instance="b")], **full)
    assert (made.verdict, made.exit_code, made.advice.action) == ("blocked", 3, "stop")
    assert made.summary.endswith("raise the limit, or let its session end first")
    assert plan([m("a", RANGE), m("b", RANGE)], **full).verdict == "ready", "they leave first"
    alone = {"cluster": {"version": "3.9", "settings": {"group.max.size": "1"}}}
    assert "has 1 member and" in plan([m("a", RANGE, instance="a")], **alone).summary


def test_a_static_member_rebalances_when_the_vote_changes_or_its_session_ends() -> None:
    cost = plan([m("a", RANGE, instance="pod-0"), m("b", RANGE)]).steps[0].cost
    # Two for the dynamic one; one when the static one's new list changes the vote.
    assert cost.rebalances == 3
    late = plan([m("a", RANGE, instance="pod-0", timeouts=[10_000, 60_000]), m("b", RANGE)])
    assert "rebalances only" not in "".join(late.steps[0].order), "a restart of 30 s"


CLASSIC = {"id": "b", "protocol_type": "classic", "version": "4.1.1"}


@pytest.mark.parametrize(
    ("behind", "path", "code", "says"),
    [
        ({**CLASSIC, "list": DONE}, "already_incremental", 0, "classic protocol: b"),
        ({**CLASSIC, "list": RANGE}, "kip848_online", 4, "online · 1 of 2 done"),
        (CLASSIC, "kip848_online", 4, "online · 1 of 2 done"),
    ],
    ids=["cooperative", "eager", "unknown"],
)
def test_last_classic_member_of_a_kip848_group_is_moved_unless_it_is_cooperative(
    behind: dict[str, Any], path: str, code: int, says: str
) -> None:
    members = [{"id": "a", "protocol_type": "consumer"}, behind]
    made = plan(members, type="consumer", elected="uniform")
    assert (made.path, made.exit_code) == (path, code)
    assert says in made.summary
    if made.steps:
        assert (made.to, made.steps[0].to_do) == ("KIP-848", ("b-0f0f",))
        assert "--to consumer" in made.steps[0].gate.command
    else:
        assert "--to" not in made.summary


def test_java_settings_name_range_for_a_client_before_3_0_and_escape_the_group_id() -> None:
    made = plan([m("a", RANGE, version="2.8.2")], group_id="check\nout")
    properties, *_, code = made.steps[0].config
    assert "name range explicitly" in properties.text
    assert "group check\\nout" in properties.text
    assert code.text.startswith("// name range explicitly")


@pytest.mark.parametrize(
    ("left", "known"), [("java >= 3.4 or franz-go", True), ("java < 2.4 or franz-go", False)]
)
def test_version_range_of_a_java_client_is_enough_for_its_settings(left: str, known: bool) -> None:
    made = plan([m("a", family=None, left=left)])
    assert made.exit_code == 0
    java = next(s.text for s in made.steps[0].config if s.family == "java")
    assert ("name range explicitly" in java) is not known
    assert ("upgrade in this restart" in java) is not known
    assert "not every version" not in java
    narrow = next(s.text for s in made.steps[1].config if s.family == "java")
    assert ("needs kafka-clients 2.4 or later\n" in narrow) is not known
    assert "upgrade in this restart" not in narrow


def test_eager_only_clients_get_settings_for_a_change_between_eager_assignors() -> None:
    families = ("aiokafka", "segmentio", "kafkajs")
    made = plan([m(key, RANGE, family=key) for key in families], "roundrobin")
    texts = {setting.family: setting.text for setting in made.steps[0].config}
    assert (
        "from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor\n"
        in texts["aiokafka"]
    )
    assert "=[RoundRobinPartitionAssignor, RangePartitionAssignor])" in texts["aiokafka"]
    assert (
        "[]kafka.GroupBalancer{kafka.RoundRobinGroupBalancer{}, kafka.RangeGroupBalancer{}}"
        in texts["segmentio"]
    )
    assert 'kafkajs has no roundrobin: assigners["roundrobin"] stands for' in texts["kafkajs"]
    assert '[assigners["roundrobin"], assigners["range"]] });' in texts["kafkajs"]
    own = plan([m("kafkajs", ["RoundRobinAssigner"], family="kafkajs")], "range",
               elected="RoundRobinAssigner")  # fmt: skip
    (text,) = (setting.text for setting in own.steps[0].config)
    assert text.endswith('[assigners["range"], PartitionAssigners.roundRobin] });')
    assert "RB101" in made.steps[0].why[2]
    assert not any("RB108" in line for line in made.steps[0].why)


@pytest.mark.parametrize("family", ["librdkafka", "kafka-python"])
def test_clients_that_refuse_mixed_lists_get_a_cut_over_and_no_bounces(family: str) -> None:
    made = plan([m("a", RANGE, family=family), m("b", RANGE, family=family)])
    assert (made.path, made.exit_code) == ("cut_over", 3)
    online = family == "librdkafka"
    assert any("KIP-848" in one.use for one in made.steps[0].commands) is online
    assert any("KIP-848" in (finding.fix or "") for finding in made.findings) is online
    assert "RB104" in rules(made)
    assert not any("range" in setting.text.lower() for setting in made.steps[0].config)
    done = plan([{"id": "a", "at_least": DONE, "family": family}], elected="cooperative-sticky")
    assert (done.path, done.exit_code) == ("finished", 0)


@pytest.mark.parametrize("family", ["kafkajs", "aiokafka", "segmentio"])
def test_client_without_a_cooperative_assignor_blocks_the_cooperative_plan(family: str) -> None:
    members = [m("a", RANGE), m("b", RANGE, family=family)]
    made = plan(members)
    assert (made.path, made.steps, made.exit_code) == ("none", (), 3)
    why = f"the group cannot leave EAGER while b is in it: no cooperative assignor in {family}"
    assert made.summary.startswith(f"no step can be planned: {why}")
    assert "(RB105)" in made.summary
    assert not [f.rule for f in made.findings if f.severity == "ask" or f.before_step]
    # What the client cannot do is not done by looking away.
    ignored = plan(members, ignore={"RB105": "we know"})
    assert (ignored.steps, ignored.verdict, ignored.exit_code) == ((), "unproven", 4)
    assert "(RB105, ignored)" in ignored.summary
    assert plan(members, "eager").path == "finished"


@pytest.mark.parametrize(
    ("family", "version", "first"),
    [("librdkafka", "1.5.0", "1.6"), ("kafka-python", "2.3.3", "3.0")],
)
def test_client_too_old_for_the_target_is_upgraded_while_it_is_stopped(
    family: str, version: str, first: str
) -> None:
    old = [m("b", RANGE, family=family, version=version)]
    alone, mixed = plan(old), plan([m("a", RANGE), *old])
    assert (alone.path, alone.exit_code) == ("cut_over", 3)
    assert (mixed.path, mixed.exit_code) == ("mixed_families", 0)
    for step in (alone.steps[0], mixed.steps[1]):
        (text,) = {s.text.splitlines()[0].lstrip("#/ ") for s in step.config}
        assert text.startswith("needs ")
        assert f" {first} or later: upgrade in this restart (b: {version})" in text


@pytest.mark.parametrize("family", ["librdkafka", "kafka-python"])
def test_change_between_eager_assignors_takes_two_bounces_and_no_cut_over(family: str) -> None:
    made = plan([m("a", RANGE, family=family), m("b", RANGE, family=family)], "roundrobin")
    assert (made.path, made.exit_code) == ("two_bounces", 0)
    assert made.steps[0].target_list == ("roundrobin", "range")
    assert "accepts two assignors" in made.steps[0].precondition
    assert len(made.steps[1].why) == 1, "all members stay EAGER"
    half = plan([m("a", ["roundrobin", "range"], family=family)], "roundrobin",
                elected="roundrobin")  # fmt: skip
    assert (half.path, half.next_step, half.exit_code) == ("two_bounces", 2, 0)


EVERY_MINUTE = Pauses(downtime=1440.0, avoidable=1200.0)


def ready_of(
    name: str, lists: list[list[str] | None], pauses: Pauses = EVERY_MINUTE, **more: Any
) -> Readiness:
    members = [m(f"{name}-{n}", names) for n, names in enumerate(lists)]
    return readiness(plan(members, group_id=name, reloaded=False, **more), pauses)


@pytest.mark.parametrize(
    ("pauses", "saves", "assumed"),
    [
        (Pauses(), None, False),
        (Pauses(downtime=36.0, avoidable=30.0, is_assumed=True), 30.0, True),
        (Pauses(downtime=36.0, avoidable=0.0), 0, False),
    ],
)
def test_savings_of_an_upgrade_are_unknown_if_no_rebalances_were_observed(
    pauses: Pauses, saves: float | None, assumed: bool
) -> None:
    found = ready_of("g", [["range"]] * 3, pauses)
    assert (found.saves, found.assumed) == (saves, assumed)
    assert (found.pays_back is None) == (not saves)


def test_readiness_separates_present_blockers_later_blockers_and_missing_evidence() -> None:
    half = ready_of("half", [BOTH, ["range"], None])
    assert [one.rule for one in half.blockers] == []
    assert {one.rule for one in half.later} == {"RB102"}
    (missing,) = half.missing
    assert (missing.rule, missing.members, missing.before_step) == ("RB901", 1, 2)
    assert missing.how


def test_groups_with_a_rough_cost_are_chosen_for_exact_rehearsal_within_a_work_limit() -> None:
    rough: dict[str, Any] = {"pricing": Pricing(rough=True)}
    fresh, twice = (ready_of(n, [RANGE] * s, **rough) for n, s in (("fresh", 3), ("twice", 6)))
    assert fresh.work > 0
    assert twice.work > 2 * fresh.work
    plain = ready_of("fresh", [RANGE] * 3)
    assert (fresh.outlay.estimated, plain.outlay.estimated, plain.work) == (True, False, 0)
    done = ready_of("done", [DONE] * 2, elected=DONE[0], **rough)
    assert (done.work, done.outlay) == (0, None)
    ordered = in_order([twice, fresh, done])
    assert to_rehearse(ordered, twice.work + fresh.work) == ("fresh", "twice")
    assert to_rehearse(ordered, twice.work) == ("fresh",)
    assert to_rehearse(ordered, fresh.work - 1) == ()


def test_groups_of_one_shape_are_estimated_once(monkeypatch: pytest.MonkeyPatch) -> None:
    runs: list[str] = []
    rehearse = steps.rehearse

    def counted(scene: Scene, *more: Any, **named: Any) -> Rehearsal:
        runs.append(scene.assignor)
        return rehearse(scene, *more, **named)

    monkeypatch.setattr(steps, "rehearse", counted)
    rough = Pricing(rough=True)

    def estimated(name: str, per: int, shared: Pricing = rough, **more: Any) -> Readiness:
        """Four members on range, each with so many partitions."""
        members = [{"id": f"{name}-{n}", "list": ["range"], **more} for n in range(4)]
        spec = {"group_id": name, "members": members, "topics": {name: 4 * per}}
        made = group_of(spec)
        owners = [
            replace(member, assignment={name: Partitions(range(per * n, per * n + per))})
            for n, member in enumerate(made.members)
        ]
        owned = replace(made, members=tuple(owners))
        return readiness(make_plan(owned, pricing=shared), EVERY_MINUTE)

    first = estimated("first", 3)
    assert len(runs) == 2, "one for each bounce"
    second, third = estimated("second", 3), estimated("third", 9)
    assert len(runs) == 2
    assert (second.outlay, second.work) == (first.outlay, first.work)
    apart = estimated("third", 9, Pricing(rough=True)).outlay
    assert third.outlay.partition_seconds == pytest.approx(apart.partition_seconds, rel=0.15)
    estimated("slow", 3, timeouts=[60_000, 600_000])
    assert len(runs) == 6, "its members have other timeouts"


def test_fleet_order_puts_ready_groups_first_then_unproven_blocked_and_done_ones() -> None:
    done = ready_of("a-done", [["cooperative-sticky"]] * 2, elected="cooperative-sticky")
    native = {"id": "m", "list": ["range"], "family": "librdkafka", "version": "2.6.0"}
    blocked = readiness(plan([native], group_id="b-blocked"), EVERY_MINUTE)
    slow = ready_of("c-slow", [["range"]] * 3, Pauses(downtime=24.0, avoidable=24.0))
    unseen = ready_of("d-unseen", [["range"]] * 3, Pauses())
    soon = ready_of("e-soon", [["range"]] * 3)
    begun = ready_of("f-begun", [BOTH, ["range"], ["range"]], Pauses())
    moving = ready_of("g-moving", [["range"]], state="PreparingRebalance")
    assert done.plan.verdict is Verdict.DONE
    assert blocked.plan.verdict is Verdict.BLOCKED
    assert moving.plan.verdict is Verdict.UNPROVEN
    assert begun.under_way
    ordered = in_order([done, blocked, slow, unseen, soon, begun, moving])
    assert [one.plan.group_id[0] for one in ordered] == [*"fecdgba"]
    assert [one.place for one in ordered] == [1, 2, 3, 4, 5, 6, None]


def test_the_cost_of_connect_workers_counts_tasks() -> None:
    workers = [{"id": f"w-{n}", "list": ["default"]} for n in range(2)]
    made = plan(workers, protocol_type="connect", elected="default")
    found = readiness(made, EVERY_MINUTE)
    assert found.outlay.unit == "task"
