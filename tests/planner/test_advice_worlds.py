"""Advice that leads on: what it recommends starts, is admitted, and is not asked for again."""

from __future__ import annotations

from typing import Any

import pytest

from rebal.groups.model import Tri
from rebal.planner.paths import make_plan
from rebal.planner.plan import Advice, Plan
from rebal.planner.verification.verify import Standing, verify
from tests.planner.builder import group_of
from tests.planner.looks import look

COOP, RANGE = "cooperative-sticky", "range"
BOTH = [COOP, RANGE]
NO_LIMIT = {"settings": {"group.max.size": "2147483647"}}


def plan(members: list[dict[str, Any]], **more: Any) -> Plan:
    return make_plan(group_of({"members": members, "cluster": NO_LIMIT, **more}))


def held(made: Plan, members: list[dict[str, Any]], **more: Any) -> Standing:
    return verify(made, [], look(1, members, cluster=NO_LIMIT, **more))


def test_a_stop_of_some_clients_waits_for_the_cure_of_a_forgetful_coordinator() -> None:
    """Every list of those that stay holds the target, and the coordinator remembers range alone."""
    members = [
        {"id": "a", "list": BOTH},
        {"id": "b", "list": [RANGE], "family": "librdkafka"},
        {"id": "c", "list": BOTH, "instance": "c"},
    ]
    made = plan(members, reloaded=True, probe={COOP: False, RANGE: True})
    assert (made.path, made.next_step) == ("mixed_families", 2)
    assert (made.advice.action, made.advice.names) == ("restart", ("a",))
    assert (made.advice.assignors, made.advice.verdict) == ((), Tri.YES)
    assert [one.action for one in made.withheld] == ["cut-over"]
    assert (made.exit_code, made.steps[1].exit_code) == (4, 4), "the stop is not admitted yet"
    standing = held(made, members, reloaded=True, probe={COOP: False, RANGE: True})
    assert (standing.advice.names, standing.exit_code) == (("a",), 4)


def test_a_cure_names_the_list_where_the_file_differs_from_it() -> None:
    members = [
        {"id": "a", "list": BOTH, "instance": "a"},
        {"id": "b", "list": [RANGE, COOP], "declared": [COOP, "sticky"]},
    ]
    made = plan(members, reloaded=True, probe={COOP: False, RANGE: True})
    assert (made.advice.action, made.advice.names) == ("restart", ("b",))
    assert (made.advice.assignors, made.advice.verdict) == ((RANGE, COOP), Tri.YES)


def test_a_member_of_an_unknown_client_is_not_given_a_mixed_list() -> None:
    before = [{"id": "a", "list": BOTH}, *({"id": n, "family": None} for n in "bc")]
    made = plan(before, reloaded=False, probe={COOP: True, RANGE: True})

    def advice(family: str | None) -> Advice:
        lost = [
            {"id": f"{n}.2", "client": n, "list": [RANGE], "family": family, "joined": 1}
            for n in "bc"
        ]
        return held(made, [before[0], *lost]).advice

    open_ = advice(None)
    assert (open_.action, open_.verdict) == ("evidence", Tri.CANNOT_TELL), open_.text
    assert "the client of b, c is not known" in open_.text
    assert (advice("java").names, advice("java").assignors) == (("b",), (COOP, RANGE))
    assert advice("librdkafka").action in ("replan", "stop"), advice("librdkafka").text


@pytest.mark.parametrize("rejected", [False, True])
def test_a_client_that_refuses_mixed_lists_is_started_with_what_is_elected(rejected: bool) -> None:
    native = {"id": "b", "list": [RANGE], "family": "librdkafka"}
    made = plan([{"id": "a", "list": [RANGE]}, native], reloaded=False)
    assert made.path == "mixed_families"
    out = {"refusals": [{"client": "b", "list": ["sticky"], "at": 1}]} if rejected else {}
    standing = held(made, [{"id": "a", "list": [RANGE]}], **out)
    assert (standing.advice.action, standing.advice.assignors) == ("start", (RANGE,))
    java = plan([{"id": "a", "list": [RANGE]}, {**native, "family": "java"}], reloaded=False)
    again = held(java, [{"id": "a", "list": [RANGE]}], **out)
    assert again.advice.assignors == (COOP, RANGE)


def test_a_missing_member_is_started_with_the_list_of_the_step() -> None:
    made = plan([{"id": n, "list": [RANGE]} for n in "ab"], reloaded=False)
    standing = held(made, [{"id": "a", "list": [RANGE]}])
    assert standing.next.startswith("start b with [cooperative-sticky, range], if it is down")


def test_a_cut_over_is_not_outdated_by_another_elected_assignor() -> None:
    """The group is Empty when its members start: any list is admitted."""
    one = {"id": "a", "list": ["sticky", RANGE], "family": "librdkafka"}
    snapshot = group_of({"members": [one], "cluster": NO_LIMIT, "elected": "sticky"})
    made = make_plan(snapshot, ignore={"RB104": "agreed"})
    assert made.path == "cut_over"
    standing = held(made, [{**one, "id": "a.2", "client": "a", "list": [RANGE]}])
    assert standing.advice.action == "cut-over"
    assert standing.advice.assignors == (COOP,)


def test_an_unseen_list_is_asked_for_instead_of_a_wait() -> None:
    made = plan([{"id": "a", "at_least": [COOP], "instance": "a"}], elected=COOP, reloaded=True)
    assert (made.verdict, made.advice.action) == ("unproven", "evidence"), made.advice.text
    assert "client log" in made.advice.evidence_needed


def test_a_file_without_the_target_is_to_be_changed_before_the_restart() -> None:
    member = {"id": "a", "list": ["roundrobin", RANGE], "declared": [RANGE]}
    made = plan([member, {"id": "b", "list": [RANGE]}], reloaded=False)
    (finding,) = [each for each in made.findings if each.rule == "RB903"]
    assert finding.fix.startswith("Set the file to the list of the plan's step"), finding.fix


def test_a_missing_member_of_an_unknown_client_is_not_started_with_a_mixed_list() -> None:
    """Found by the search: it was a kafka-python client, and failed when it was built."""
    before = [{"id": "a", "list": [RANGE], "instance": "a"}, {"id": "b", "family": None}]
    made = plan(before, reloaded=False)
    standing = held(made, [{"id": "a", "list": [RANGE], "instance": "a"}])
    assert (standing.advice.action, standing.advice.assignors) == ("start", (RANGE,))
    alike = [{**one, "client": "c"} for one in before]
    standing = held(plan(alike, reloaded=False), alike[:1])
    assert (standing.advice.action, standing.advice.assignors) == ("start", (RANGE,))


def test_a_cure_that_no_evidence_could_show_is_not_asked_for() -> None:
    """Found by the search: the members were restarted for ever.

    While the kafka-python member is there, a probe answers no, whatever the coordinator remembers;
    and the records that would show its last load may not be read.
    """
    members = [
        {"id": "a", "list": BOTH, "instance": "a"},
        {"id": "b", "list": BOTH, "instance": "b"},
        {"id": "c", "list": [RANGE], "family": "kafka-python"},
    ]
    made = plan(members, reloaded=None, probe={COOP: False, RANGE: True})
    standing = held(made, members, reloaded=None, probe={COOP: False, RANGE: True})
    assert (made.path, standing.advice.action) == ("mixed_families", "evidence")
    assert standing.advice.evidence_needed == ("offsets topic", "log timezone")
    assert "READ __consumer_offsets" in standing.next


def test_a_static_member_is_not_restarted_twice_for_one_cure() -> None:
    """Found by the search: no clock orders its join and the load, and each look asked again."""
    known = {"reloaded": False, "probe": {COOP: False, RANGE: True}, "elected": RANGE}
    old = {"id": "c", "list": [RANGE], "family": "kafka-python"}
    before = [{"id": n, "client": n, "list": BOTH, "instance": n} for n in "ab"]
    made = plan([*before, old], **known)
    assert (made.advice.action, made.advice.names) == ("restart", ("a",))
    after = [{"id": f"{n}.2", "client": n, "list": BOTH, "instance": n} for n in "ab"]
    first = held(made, [after[0], before[1], old], **known)
    assert (first.advice.action, first.advice.names) == ("restart", ("b",))
    second = held(made, [*after, old], **known)
    assert second.advice.action == "evidence", second.advice.text
    assert "log timezone" in second.advice.evidence_needed
