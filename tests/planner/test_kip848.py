"""To KIP-848 and back: what the brokers, the clients and the group say to it.

Brokers differ by version: KAFKA-20640 (a disabled policy) and KAFKA-20601 (a full group).
"""

from typing import Any

import pytest
from msgspec.structs import replace

from rebal.cli.output import render
from rebal.cli.render.plans.screen import plan_view
from rebal.groups.model import Cluster, Evidence, GroupSnapshot, GroupType, Refusal, Source, Tri
from rebal.planner.admission.check import (
    JoinEvent,
    LeaveEvent,
    Needs,
    admitted,
    answer_if_repeated,
    restart,
)
from rebal.planner.admission.memory import (
    CoordinatorMemory,
    classic_joins,
    memory_of,
    static_restarts_when_full,
)
from rebal.planner.paths import make_plan
from rebal.planner.plan import Accepted, Plan
from rebal.planner.verification.verify import Standing, verify
from tests.planner.builder import context_of, group_of, seen
from tests.planner.looks import Story, look
from tests.planner.plans import COOP, DONE, entry

ONLINE = {"type": "consumer", "elected": "uniform"}
READY = {
    "group.consumer.migration.policy": "bidirectional",
    "group.coordinator.rebalance.protocols": "classic,consumer",
    "group.consumer.max.size": "2147483647",
}


def shown(members: list[dict[str, Any]], settings: dict[str, str] | None = None, *,
          version: int | None = 1, **more: Any) -> GroupSnapshot:  # fmt: skip
    cluster = {
        "version": "4.1.1",
        "features": {} if version is None else {"group.version": version},
        "settings": {**READY, **(settings or {})},
    }
    made = group_of({"members": members, "reloaded": False, "cluster": cluster, **more})
    return replace(made, evidence=(seen(Source.DESCRIBE),))


def plan(members: list[dict[str, Any]], settings: dict[str, str] | None = None, *,
         to: str = "consumer", **more: Any) -> Plan:  # fmt: skip
    return make_plan(shown(members, settings, **more), to)


def java(name: str, version: str = "4.1.1", **more: Any) -> dict[str, Any]:
    return {"id": name, "list": ["range"], "version": version, **more}


def own(made: Plan) -> tuple[str, int | None, Tri]:
    return made.path, made.next_step, made.steps[0].precondition_holds


def test_user_data_in_an_assignment_excludes_the_online_move_to_kip848() -> None:
    made = plan([java("a", assigned_data="x"), java("b")])
    assert own(made) == ("kip848_offline", 1, Tri.NO)
    assert any("user data" in line for line in made.steps[0].why)
    assert plan([java("a", assigned_data=""), java("b")]).path == "kip848_online"


def test_a_full_group_goes_online_only_where_each_leaves_first() -> None:
    members = [java("a"), java("b")]
    full = plan(members, {"group.consumer.max.size": "2"})
    assert own(full) == ("kip848_online", 1, Tri.CANNOT_TELL)
    assert full.exit_code == 4
    static = [java("a", instance="i", timeouts=[45_000, 300_000]), java("b")]
    shut = plan(static, {"group.consumer.max.size": "2"})
    assert own(shut) == ("kip848_offline", 1, Tri.NO)
    assert any("does not leave when it stops" in line for line in shut.steps[0].why)
    assert any("45 s later" in line for line in shut.steps[0].order)
    room = plan(static, {"group.consumer.max.size": "3"})
    assert (room.path, room.exit_code) == ("kip848_online", 0)


def test_empty_group_may_start_with_either_group_protocol() -> None:
    disabled = {"group.consumer.migration.policy": "disabled"}
    empty: dict[str, Any] = {"state": "Empty", "elected": None}
    up = plan([], disabled, **empty)
    assert (up.path, up.next_step, up.exit_code) == ("kip848_offline", 1, 0)
    assert any("group.protocol=consumer" in setting.text for setting in up.steps[0].config)
    small = plan([], {**disabled, "group.consumer.max.size": "5"}, **empty)
    assert small.exit_code == 4
    assert "--expect-members" in small.summary
    old = plan([], disabled, version=0, **empty)
    assert old.exit_code == 3
    down = plan([], disabled, to="range", type="consumer", **empty)
    assert (down.path, down.next_step, down.exit_code) == ("kip848_back_offline", 1, 0)
    assert any("group.protocol=classic" in setting.text for setting in down.steps[0].config)
    there = plan([], disabled, type="consumer", **empty)
    assert (there.path, there.verdict.value) == ("kip848_offline", "ready")


@pytest.mark.parametrize(("version", "code"), [(0, 3), (None, 4)])
def test_move_to_kip848_needs_brokers_with_group_version_1(version: int | None, code: int) -> None:
    made = plan([java("a")], version=version)
    assert (made.path, made.exit_code) == ("kip848_online", code)
    holds = Tri.NO if code == 3 else Tri.CANNOT_TELL
    assert (made.steps[0].precondition_holds, made.advice.verdict) == (holds, holds)
    assert (made.advice.action == "restart") is (code == 4)
    assert "coordinator" not in made.advice.text


def test_no_probe_answers_for_the_limit_of_kip848_groups() -> None:
    start = shown([java("a"), java("b")])
    made = make_plan(replace(start, cluster=replace(start.cluster, settings={})), "consumer")
    assert made.advice.evidence_needed == ("broker settings",)


def test_kip848_plan_warns_against_two_processes_with_one_group_instance_id() -> None:
    for made in (
        plan([java("a", instance="i"), java("b")]),
        plan([java("a", instance="i", protocol_type="consumer")], to="range", type="consumer",
             elected="uniform"),
    ):  # fmt: skip
        text = " ".join(made.steps[0].order)
        assert "static (i): never two processes with one id" in text
        assert "rebalances only" not in text


def test_back_to_classic_a_group_may_be_too_large() -> None:
    members = [java("a", protocol_type="consumer"), java("b", protocol_type="consumer")]
    crowded = plan(members, {"group.max.size": "1"}, to="range", **ONLINE)
    assert (crowded.path, crowded.exit_code) == ("kip848_back", 3)
    assert "2 members, and the brokers' group.max.size is 1" in crowded.summary


def test_move_back_to_classic_checks_the_lists_of_members_already_on_classic() -> None:
    more: dict[str, Any] = {"to": "cooperative-sticky", **ONLINE}
    moving = java("a", protocol_type="consumer")
    back = {"id": "b", "protocol_type": "classic", "version": "4.1.1"}
    right = plan([moving, {**back, "list": ["cooperative-sticky"]}], **more)
    assert (right.exit_code, right.steps[0].done) == (0, ("b-0f0f",))
    # Its records hold whole lists, so no coordinator reload matters.
    assert right.advice.risks == ()
    wrong = plan([moving, {**back, "list": ["range"]}], **more)
    assert wrong.exit_code == 3
    unknown = plan([moving, back], **more)
    assert unknown.exit_code == 4


def test_member_that_already_uses_kip848_needs_no_known_client() -> None:
    there = {"id": "a", "protocol_type": "consumer", "family": None}
    assert plan([there, java("b", protocol_type="classic")], **ONLINE).exit_code == 0
    asked = plan([java("a"), {"id": "b", "list": ["range"], "family": None}]).advice
    assert (asked.action, asked.evidence_needed) == ("evidence", ("client log", "request log"))
    back = plan([there], to="cooperative-sticky", **ONLINE)
    assert back.exit_code == 0
    able = {"java", "librdkafka", "franz-go"}
    assert {setting.family for setting in back.steps[0].config} == able
    # librdkafka has no sticky.
    assert plan([there], to="sticky", **ONLINE).exit_code == 4


def test_classic_members_of_a_group_that_was_not_converted_are_not_back() -> None:
    members = [java("a", protocol_type="consumer"), java("b", protocol_type="consumer")]
    made = plan(members, to="range", **ONLINE)
    there = [java(f"{name}2", protocol_type="classic") for name in "ab"]
    stuck = verify(made, (), shown(there, **ONLINE))
    assert stuck.gate is Tri.NO
    assert any("still a KIP-848 group" in line for line in stuck.why)
    assert verify(made, (), shown(there)).gate is Tri.YES


def test_advice_names_every_setting_that_a_member_changes_to_move_to_kip848_or_back() -> None:
    """A Java client with group.protocol=consumer refuses to start with any of these settings."""
    left = "without partition.assignment.strategy, session.timeout.ms, heartbeat.interval.ms"
    there = plan([java("a"), java("b")]).advice
    assert there.change == f"group.protocol=consumer, group.remote.assignor=range and {left}"
    assert there.text == f"restart a with {there.change}; one member at a time"
    plain = plan([java("a", list=["sticky"])], elected="sticky").advice
    assert plain.change == f"group.protocol=consumer and {left}"
    franz = plan([{"id": "a", "list": ["range"], "family": "franz-go", "version": "1.22"}]).advice
    assert franz.change == "group.protocol=consumer (kgo.ServerSideBalancer())"
    moved = [java(name, list=[], protocol_type="consumer") for name in ("a", "b")]
    back = plan(moved, to="range", type="consumer", elected="range").advice
    assert back.assignors == ("range",)
    assert back.change == "group.protocol=classic and without group.remote.assignor"
    assert back.text.startswith(f"restart a with [range] and {back.change};")


@pytest.mark.parametrize(
    ("members", "more", "instead"),
    [
        ([java("a"), java("b")], {}, "consumer"),
        ([java("a"), java("b", "3.9.1")], {}, ""),
        ([java("a"), java("b", list=["cooperative-sticky", "range"])], {}, ""),
        ([java("a")], {"version": None}, ""),
        ([java("a")], {"settings": {"group.consumer.migration.policy": "disabled"}}, ""),
    ],
    ids=["all can", "an old client", "begun", "old brokers", "a policy against it"],
)
def test_bounces_that_have_not_begun_name_the_one_roll_out_that_replaces_them(
    members: list[dict[str, Any]], more: dict[str, Any], instead: str
) -> None:
    made = plan(members, to="cooperative", **more)
    assert (made.path, made.instead) == ("two_bounces", instead)
    line = "or     move to KIP-848 in one online roll-out: --to consumer"
    assert (line in render(plan_view(made), width=100)) is bool(instead)


POLICY = "group.consumer.migration.policy"


@pytest.mark.parametrize(
    ("version", "policy", "answer"),
    [
        *((free, "disabled", Tri.YES) for free in ("4.0.0", "4.1.2", "4.2.0", "4.2.1", "4.3.0")),
        *((closed, "disabled", Tri.NO) for closed in ("4.2.2", "4.3.1", "4.4.0", "4.4", "4.5.1")),
        *((open_, "Disabled", Tri.CANNOT_TELL) for open_ in ("4.1", "4.2", "4.3", "4.0 or later")),
        (None, "disabled", Tri.CANNOT_TELL),
        *(("4.4.0", policy, Tri.YES) for policy in ("upgrade", "downgrade", "bidirectional")),
        (None, "bidirectional", Tri.YES),
        ("4.4.0", None, Tri.CANNOT_TELL),
        ("4.3.0", None, Tri.YES),
    ],
)
def test_the_version_decides_whether_a_disabled_policy_rejects_classic_joins(
    version: str | None, policy: str | None, answer: Tri
) -> None:
    cluster = Cluster(version=version, settings={POLICY: policy} if policy else {})
    assert classic_joins(cluster) is answer


@pytest.mark.parametrize(
    ("version", "answer"),
    [("4.3.1", Tri.NO), ("4.3", Tri.NO), ("4.4", Tri.YES), ("4.1 or later", Tri.CANNOT_TELL),
     (None, Tri.CANNOT_TELL)],
)  # fmt: skip
def test_since_4_4_a_static_member_needs_no_place_in_a_kip848_group(
    version: str | None, answer: Tri
) -> None:
    assert static_restarts_when_full(Cluster(version=version)) is answer
    members = [{"id": "a", "instance": "a", "protocol_type": "consumer"}]
    spec = {"members": members, "type": "consumer", "elected": "uniform"}
    found = memory_of(context_of({**spec, "cluster": {"version": version}}))
    assert found.static_restarts_when_full is answer


def test_server_side_assignor_is_not_taken_for_part_of_a_members_list() -> None:
    members = [{"id": "a", "protocol_type": "classic"}, {"id": "b", "protocol_type": "consumer"}]
    found = context_of({"members": members, "type": "consumer", "elected": "uniform"})
    assert [found.names_held(one.member) for one in found.members] == [frozenset(), frozenset()]


def half_way(joins: Tri = Tri.NO, **more: Any) -> CoordinatorMemory:
    """A KIP-848 group of the classic members a and b, and x."""
    found = CoordinatorMemory(
        type=GroupType.CONSUMER,
        cases=((entry("a", "range"), entry("b", "range")),),
        others=(entry("x"),),
        max_size=10,
        classic_joins=joins,
    )
    return replace(found, **more)


def test_brokers_without_classic_joins_reject_a_classic_member_whatever_its_assignors() -> None:
    alone = half_way(cases=((),))
    answer = admitted(alone, [JoinEvent(assignors=("range",))])
    assert (answer.verdict, answer.needs) == (Tri.NO, None)
    assert answer.error == "INCONSISTENT_GROUP_PROTOCOL"
    assert "KAFKA-20640" in answer.reason
    open_ = replace(alone, classic_joins=Tri.CANNOT_TELL)
    unsure = admitted(open_, [JoinEvent(assignors=("range",))])
    assert (unsure.verdict, unsure.needs) == (Tri.CANNOT_TELL, Needs.BROKER)
    assert admitted(alone, restart(alone, "x", ("range",))).verdict is Tri.YES, "it empties it"
    assert admitted(alone, [JoinEvent(assignors=None, kip848=True)]).verdict is Tri.YES


@pytest.mark.parametrize(
    "action",
    [
        [JoinEvent(assignors=None, name="temporary", kip848=True)],
        [LeaveEvent(member_id="x"), JoinEvent(assignors=None, name="x", kip848=True)],
        [LeaveEvent(member_id="b"), JoinEvent(assignors=None, name="b", kip848=True)],
        [JoinEvent(assignors=None, name="i", instance_id="i", kip848=True)],
    ],
)
def test_remaining_classic_members_are_rejected_at_the_next_rebalance(action: list[Any]) -> None:
    answer = admitted(half_way(), action)
    assert (answer.verdict, answer.error) == (Tri.NO, "INCONSISTENT_GROUP_PROTOCOL")
    assert "the rebalance makes a" in answer.reason
    assert admitted(half_way(Tri.CANNOT_TELL), action).verdict is Tri.CANNOT_TELL
    assert admitted(half_way(Tri.YES), action).verdict is Tri.YES


def test_last_classic_member_can_move_to_kip848_and_a_full_stop_rejects_no_member() -> None:
    last = half_way(cases=((entry("a", "range"),),))
    move = [LeaveEvent(member_id="a"), JoinEvent(assignors=None, name="a", kip848=True)]
    assert admitted(last, move).verdict is Tri.YES
    stop = [LeaveEvent(member_id=each) for each in "abx"]
    assert admitted(half_way(), [*stop, JoinEvent(assignors=("sticky",))]).verdict is Tri.YES


@pytest.mark.parametrize("answer", Tri)
@pytest.mark.parametrize("who", ["s", "t"])
def test_full_kip848_group_admits_a_static_restart_if_brokers_allow_it(
    who: str, answer: Tri
) -> None:
    """`s` uses the classic protocol, `t` group.protocol=consumer."""
    full = CoordinatorMemory(
        type=GroupType.CONSUMER,
        cases=((entry("s", "range", instance="s"),),),
        others=(entry("t", instance="t"), entry("d")),
        max_size=3,
        static_restarts_when_full=answer,
    )
    log = Evidence(source=Source.REQUEST_LOG)
    rejected = Refusal(list=("range",), instance_id=who, evidence=log)
    for asked in (
        admitted(full, restart(full, who, ("range",))),
        answer_if_repeated(full, rejected),
    ):
        assert asked.verdict is answer
        assert asked.needs is (Needs.BROKER if answer is Tri.CANNOT_TELL else None)
    two = [JoinEvent(assignors=None, kip848=True)] * 2
    assert admitted(replace(full, max_size=4), two).verdict is Tri.NO
    # A dynamic member leaves first; a newcomer finds no place.
    assert admitted(full, restart(full, "d", ("range",))).verdict is Tri.YES
    assert admitted(full, [JoinEvent(assignors=("range",), instance_id="u")]).verdict is Tri.NO


def brokers(policy: str, version: str | None = "4.4") -> dict[str, Any]:
    settings = {POLICY: policy, "group.consumer.max.size": "100"}
    return {"version": version, "features": {"group.version": 1}, "settings": settings}


def old(number: int) -> dict[str, Any]:
    return {"id": f"m-{number}.1", "client": f"m-{number}", "list": DONE, "version": "4.1.1"}


def new(number: int) -> dict[str, Any]:
    return {"id": f"m-{number}.2", "client": f"m-{number}", "protocol_type": "consumer"}


def classic(number: int) -> dict[str, Any]:
    return old(number) | {"protocol_type": "classic"}


def up(policy: str = "bidirectional", **more: Any) -> Plan:
    group = look(0, [old(n) for n in range(3)], cluster=brokers(policy), **COOP)
    return make_plan(group, "consumer", expect_members=3, **more)


def online(
    minutes: int, members: list[dict[str, Any]], policy: str, version: str | None = "4.4"
) -> GroupSnapshot:
    cluster = brokers(policy, version)
    return look(minutes, members, type="consumer", elected="uniform", cluster=cluster)


@pytest.mark.parametrize("version", ["4.4", "4.4.0", "4.3", "4.2.2", None])
def test_nothing_is_restarted_while_the_policy_is_disabled(version: str | None) -> None:
    check = Story(up())
    members = [new(0), classic(1), classic(2)]
    before = check(online(1, members, "bidirectional", version))
    assert before.advice.names == ("m-1",)
    shut = check(online(2, members, "disabled", version))
    assert (shut.exit_code, shut.advice.action, shut.withheld) == (3, "stop", ())
    again = make_plan(online(2, members, "disabled", version), "consumer")
    assert (again.path, again.exit_code, again.advice.action) == ("kip848_online", 3, "stop")
    back = check(online(3, members, "bidirectional", version))
    assert (back.exit_code, back.advice.action, back.advice.names) == (4, "restart", ("m-1",))


def test_classic_member_rejected_by_the_brokers_is_started_with_group_protocol_consumer() -> None:
    check = Story(up())
    check(online(1, [new(0), classic(1), classic(2)], "bidirectional"))
    ended = check(online(2, [new(0)], "disabled"))
    assert ended.advice.action == "start"
    assert ended.advice.change.startswith("group.protocol=consumer and without ")
    assert ended.advice.recommended
    stays = check(online(3, [new(0), classic(1)], "disabled"))
    assert (stays.advice.recommended, stays.exit_code) == (False, 3)
    assert "makes m-1 join again" in stays.next


def test_a_stop_that_is_agreed_goes_on_whatever_the_policy_becomes() -> None:
    shut = brokers("disabled")
    members = [old(n) for n in range(3)]
    check = Story(up("disabled", ignore={"RB413": "agreed"}))
    before = check(look(1, members, cluster=shut, **COOP))
    assert (before.exit_code, before.advice.action, before.findings) == (4, "cut-over", ())
    # The policy opens the online path: a stop that nobody agreed to stays so.
    opened = look(1, members, cluster=brokers("upgrade"), **COOP)
    assert Story(up("disabled"))(opened).exit_code == 3
    empty = check(look(2, [], state="Empty", elected=None, cluster=shut))
    assert (empty.advice.action, empty.advice.recommended) == ("start", True)
    first = check(online(3, [new(0)], "disabled", "4.3.0"))
    assert first.advice.action == "start"
    assert first.advice.change.startswith("group.protocol=consumer and without ")
    assert check(online(4, [new(0), new(1), new(2)], "disabled")).finished


def test_a_group_that_was_not_converted_back_is_stopped_once() -> None:
    start = online(0, [new(0), new(1)], "bidirectional")
    check = Story(make_plan(start, "cooperative-sticky", expect_members=2))
    stays = online(1, [classic(0), classic(1)], "bidirectional")
    standing = check(stays)
    assert (standing.gate, standing.advice.action) == (Tri.NO, "replan")
    made = make_plan(stays, "cooperative-sticky", expect_members=2, ignore={"RB413": "agreed"})
    assert (made.path, made.advice.action) == ("kip848_back_offline", "cut-over")
    (stop,) = (one for one in made.findings if one.rule == "RB413")
    assert stop.fix == "Agree on the interruption and record it."


@pytest.mark.parametrize("policy", ["bidirectional", "disabled"])
def test_members_that_do_not_ask_the_brokers_for_range_have_not_made_the_move(policy: str) -> None:
    cluster, rest = brokers(policy), {"list": ["range"], "version": "4.1.1"}
    start = look(0, [old(n) | rest for n in range(2)], cluster=cluster)
    check = Story(make_plan(start, "consumer", expect_members=2, ignore={"RB413": "agreed"}))

    def moved(minutes: int, assignor: str, *there: dict[str, Any], **more: Any) -> Standing:
        group = {"type": "consumer", "elected": assignor, "cluster": cluster}
        return check(look(minutes, list(there), **group), **more)

    assert moved(1, "uniform", new(0)).advice.action == "start"
    wrong = moved(2, "uniform", new(0), new(1))
    assert (wrong.exit_code, wrong.advice.action, wrong.advice.names) == (4, "restart", ("m-0",))
    assert wrong.why == (
        "the brokers assign by uniform: no member asks for range, or others outvote it (RB408)",
    )
    assert "group.remote.assignor=range" in wrong.advice.change
    assert moved(3, "range", new(0) | {"id": "m-0.3"}, new(1)).finished
    agreed = Accepted(ignore={"RB408": "nothing relies on range"})
    assert moved(4, "uniform", new(0), new(1), accepted=agreed).finished


@pytest.mark.parametrize("version", ["4.1.1", "4.4"])
def test_accepted_cut_over_back_to_classic_continues_until_all_are_stopped(version: str) -> None:
    members, agreed = [new(0), new(1)], {"RB413": "agreed"}
    start = online(0, members, "disabled", version)
    plan = make_plan(start, "cooperative-sticky", expect_members=2, ignore=agreed)
    assert (plan.exit_code, plan.advice.action) == (0, "cut-over")
    check = Story(plan)
    # Classic members that joined one by one are stopped with the others: the group stays KIP-848's.
    both = [classic(n) | {"id": f"m-{n}.3"} for n in range(2)]
    for minutes, there in enumerate((members, [members[0], both[1]], both), 1):
        now = check(online(minutes, there, "disabled", version))
        seen = (now.exit_code, now.advice.action, now.advice.verdict, len(now.advice.names))
        assert seen == (4, "cut-over", Tri.YES, 2), now.next
        assert "check that the group is Empty" in now.next
