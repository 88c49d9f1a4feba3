"""To KIP-848 and back: what the brokers, the clients and the group say to it."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from rebal.cli.output import render
from rebal.cli.render.plans.screen import plan_view
from rebal.groups.model import GroupSnapshot, Source, Tri
from rebal.planner.paths import make_plan
from rebal.planner.plan import Plan
from rebal.planner.verification.verify import verify
from tests.planner.builder import group_of, seen

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


def test_user_data_in_an_assignment_shuts_the_online_way() -> None:
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


def test_an_empty_group_may_start_with_either() -> None:
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
def test_the_brokers_must_speak_it(version: int | None, code: int) -> None:
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


def test_a_static_member_takes_its_own_place() -> None:
    for made in (
        plan([java("a", instance="i"), java("b")]),
        plan([java("a", instance="i", protocol_type="consumer")], to="range", type="consumer",
             elected="uniform"),
    ):  # fmt: skip
        said = " ".join(made.steps[0].order)
        assert "static (i): never two processes with one id" in said
        assert "rebalances only" not in said


def test_back_to_classic_a_group_may_be_too_large() -> None:
    members = [java("a", protocol_type="consumer"), java("b", protocol_type="consumer")]
    crowded = plan(members, {"group.max.size": "1"}, to="range", **ONLINE)
    assert (crowded.path, crowded.exit_code) == ("kip848_back", 3)
    assert "2 members, and the brokers' group.max.size is 1" in crowded.summary


def test_back_to_classic_asks_the_lists_of_those_that_are_back() -> None:
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


def test_a_member_that_speaks_it_needs_no_known_client() -> None:
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


def test_the_first_action_says_all_that_a_member_changes() -> None:
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
