"""The plan of a group: its route, its next step, and the exit code of that step."""

from __future__ import annotations

from typing import Any

import pytest

from rebal.groups.model import Tri
from tests.planner.plans import BOTH, DEFAULT, DONE, RANGE, m, plan


def test_one_unknown_member_keeps_bounce_two_shut() -> None:
    made = plan([m("a", BOTH), m("b", BOTH), m("c")])
    assert (made.next_step, made.exit_code) == (2, 4)
    assert "1 member unknown" in made.summary
    accepted = plan([m("a", BOTH), m("b", BOTH), m("c")], ignore={"RB901": "c is going away"})
    assert accepted.exit_code == 0
    assert accepted.steps[1].precondition_holds is Tri.CANNOT_TELL
    assert accepted.assumptions == ("RB901 is ignored: c is going away",)
    assert accepted.advice.reason.startswith("accepted by you: it is not known whether")


def test_nothing_left_to_do_only_when_proven() -> None:
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
def test_the_way_back_leads_to_the_old_assignor_and_the_last_gate_to_the_target_alone(
    target: str, members: list[list[str]], elected: str, back: str, shows: str
) -> None:
    made = plan([m(f"a{n}", one) for n, one in enumerate(members)], target, elected=elected)
    first, last = made.steps
    assert first.rollback == f"[{back}] while elected, then plan --to {back}"
    assert f"--to {back} " in f"{first.commands[-1].line} "
    assert shows in last.gate.shows


@pytest.mark.parametrize(("reloaded", "code"), [(True, 3), (None, 4)])
def test_a_forgetful_coordinator_gets_one_restart_with_the_current_list_first(
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
    said = plan(members, reloaded=True, ignore={"RB113": "seen to remember"})
    assert [step.target_list for step in said.steps] == [(), ("cooperative-sticky",)]


def test_a_full_group_of_static_members_is_rejected_and_the_way_out_is_named() -> None:
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
def test_who_is_left_behind_in_a_kip_848_group_is_taken_along(
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
