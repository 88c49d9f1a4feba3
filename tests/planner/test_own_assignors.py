"""Plans for groups whose assignor is not Kafka's own: what is known of it, and what is asked."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from rebal.groups.model import GroupSnapshot, RebalanceProtocol
from rebal.planner.goals import NotPlannedError
from rebal.planner.paths import make_plan as plan
from tests.planner.builder import group_of

EAGER = {"RB112": "its supportedProtocols() is EAGER alone"}
OWN = ["zone"]
BOTH = ["cooperative-sticky", "zone"]
DONE = ["cooperative-sticky"]


def group(*lists: list[str], elected: str = "zone", **more: Any) -> GroupSnapshot:
    members = [
        {"id": name, "list": names, **more} for name, names in zip("abc", lists, strict=False)
    ]
    return group_of({"members": members, "elected": elected})


def test_its_class_stands_in_the_text_where_a_members_log_shows_it() -> None:
    def said(snapshot: GroupSnapshot) -> str:
        (text,) = (s.text for s in plan(snapshot).steps[0].config if s.format == "Java properties")
        return text

    running = group(OWN, OWN)
    unseen = said(running)
    assert unseen.endswith(".CooperativeStickyAssignor,THE-CLASS-OF-zone")
    assert "put the class you use today for zone" in unseen
    first, second = running.members
    known = replace(first.assignors, classes=("com.acme.ZoneAssignor",))
    shown = said(replace(running, members=(replace(first, assignors=known), second)))
    assert shown.endswith(".CooperativeStickyAssignor,com.acme.ZoneAssignor")
    assert "put the class" not in shown


def test_the_second_bounce_names_who_still_holds_it_and_the_way_back() -> None:
    made = plan(group(BOTH, BOTH, elected="cooperative-sticky"))
    assert (made.path, made.next_step, made.exit_code) == ("two_bounces", 2, 0)
    second = made.steps[1]
    assert second.title == "Every member drops zone"
    assert second.to_do == ("a-0f0f", "b-0f0f")
    assert "first [cooperative-sticky, zone], never straight back" in second.rollback
    assert "still run EAGER (or what zone allows)" in second.why[1]
    half = plan(group(DONE, BOTH, elected="cooperative-sticky"))
    assert half.steps[1].to_do == ("b-0f0f",)
    assert plan(group(DONE, DONE, elected="cooperative-sticky")).verdict == "done"


def test_an_own_cooperative_assignor_is_seen_at_work() -> None:
    # Nothing was seen of it: the way to Kafka's own is safe, whatever it supports.
    nothing_seen = plan(group(OWN, OWN))
    assert (nothing_seen.runs, nothing_seen.exit_code) == (RebalanceProtocol.CANNOT_TELL, 0)
    assert nothing_seen.path == "two_bounces"
    seen = plan(group(OWN, OWN, owned=True))
    assert (seen.verdict, seen.runs, seen.target) == ("done", RebalanceProtocol.COOPERATIVE, "zone")
    assert seen.exit_code == 0
    assert plan(group(OWN, OWN, owned=True), "zone").verdict == "done"
    # Whoever asks for Kafka's own by name gets the way there.
    there = plan(group(OWN, OWN, owned=True), "cooperative-sticky")
    assert (there.path, there.next_step, there.exit_code) == ("two_bounces", 1, 0)


def test_what_one_member_shows_is_no_proof_of_anothers_class_of_that_name() -> None:
    shows, silent = group(OWN, owned=True).members, group(OWN, OWN).members[1:]
    made = plan(replace(group(OWN), members=(*shows, *silent)))
    assert (made.target, made.verdict, made.exit_code) == ("zone", "unproven", 4)
    assert "RB111" in made.summary


def test_back_to_an_own_assignor_asks_whether_it_is_eager() -> None:
    half = group(BOTH, BOTH, elected="cooperative-sticky")
    for target in ("eager", "zone"):
        made = plan(half, target)
        assert (made.target, made.exit_code) == ("zone", 4)
        assert "RB112" in made.summary
        accepted = plan(half, target, ignore=EAGER)
        assert (accepted.next_step, accepted.exit_code) == (1, 0)
        # Every list holds it: only the coordinator's memory may not.
        assert [step.target_list for step in accepted.steps] == [(), ("zone",)]
    assert plan(group(OWN, OWN), "eager").verdict == "unproven"
    beside = plan(group(OWN, OWN), "range")
    assert (beside.path, beside.exit_code) == ("two_bounces", 4)
    assert plan(group(OWN, OWN), "range", ignore=EAGER).exit_code == 0
    assert plan(group(OWN, OWN), "eager", ignore=EAGER).verdict == "done"


def test_the_way_to_an_own_assignor_begins_with_one_member_that_runs_it() -> None:
    first = group(["zone", "range"], ["range"], elected="range")
    made = plan(first, "zone")
    assert (made.path, made.next_step, made.exit_code) == ("two_bounces", 1, 0)
    assert (made.to, made.target, made.steps[0].to_do) == ("COOPERATIVE", "zone", ("b-0f0f",))
    assert [step.target_list for step in made.steps] == [("zone", "range"), ("zone",)]
    assert "--to zone" in made.steps[0].gate.command
    both = group(["zone", "range"], ["zone", "range"])
    assert (plan(both, "zone").next_step, plan(both, "zone").exit_code) == (2, 0)
    half = group(["zone"], ["zone", "range"])
    assert plan(half, "zone").steps[1].to_do == ("b-0f0f",)


def test_a_name_that_no_list_holds_is_no_target() -> None:
    with pytest.raises(NotPlannedError, match="shows a running member that lists it"):
        plan(group(OWN, OWN), "zome")
