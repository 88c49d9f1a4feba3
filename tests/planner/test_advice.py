"""What is advised, of groups in which the wrong restart would lose a member."""

from typing import Any

import pytest
from msgspec.structs import replace

from rebal.groups.model import Evidence, GroupSnapshot, Source, Tri, Unmatched
from rebal.planner.advice.actions import as_it_runs, restart_of
from rebal.planner.advice.steps import step_action
from rebal.planner.context import Context
from rebal.planner.paths import make_plan
from rebal.planner.plan import Accepted, Advice, Plan
from rebal.planner.rules import evaluate
from rebal.planner.verification.verify import Standing, verify
from tests.planner.builder import context_of, group_of
from tests.planner.looks import look
from tests.planner.plans import NO_LIMIT
from tests.planner.plans import m as java

BOTH, COOP, RANGE = ["range", "cooperative-sticky"], ["cooperative-sticky"], ["range"]
MIXED = ["cooperative-sticky", "range"]
NO = {"cooperative-sticky": False, "range": True}


def static(name: str, names: list[str], **more: Any) -> dict[str, Any]:
    return java(name, names, instance=name, **more)


def group(members: list[dict[str, Any]], **more: Any) -> GroupSnapshot:
    return group_of({"members": members, "cluster": NO_LIMIT, **more})


def plan(members: list[dict[str, Any]], goal: str = "cooperative", **more: Any) -> Plan:
    return make_plan(group(members, **more), goal)


def told(made: Plan, members: list[dict[str, Any]], **more: Any) -> Standing:
    return verify(made, [], look(1, members, cluster=NO_LIMIT, **more))


@pytest.mark.parametrize(
    ("members", "action", "who"),
    [
        ([java("a", BOTH), static("b", BOTH)], "restart", "a"),
        ([static("a", BOTH), static("b", BOTH)], "restart", "a"),
        ([static(n, BOTH) for n in "abc"], "temporary", None),
    ],
    ids=["a dynamic member", "two static ones", "three static ones"],
)
def test_cheapest_rebalance_is_advised_to_restore_lists_after_a_coordinator_reload(
    members: list[dict[str, Any]], action: str, who: str | None
) -> None:
    advice = plan(members, reloaded=True, probe=NO).advice
    assert (advice.action, advice.verdict) == (action, Tri.YES)
    assert advice.names == ((who,) if who else ())
    leaves = any("it leaves when the group is Stable" in text for text in advice.after)
    assert leaves is (who is None)
    assert "cooperative-sticky]" not in advice.text.replace("[range, cooperative-sticky]", "")
    assert advice.assignors == (() if who else tuple(BOTH)), "the common list"


@pytest.mark.parametrize("may_start", [True, False])
def test_file_matched_to_no_member_may_change_the_list_of_any_restart(*, may_start: bool) -> None:
    """A restart that changes no list takes what its file says."""
    file = Unmatched(
        what="app.properties",
        why="the files of this group differ",
        evidence=Evidence(source=Source.CONFIG_FILE, detail="app.properties"),
        may_start=may_start,
    )

    def advice(members: list[dict[str, Any]]) -> Advice:
        snapshot = replace(group(members, reloaded=True, probe=NO), unmatched=(file,))
        context = Context(snapshot, target="cooperative-sticky")
        return as_it_runs(context, context.members[0])

    exact = advice([java("a", BOTH), java("b", BOTH)])
    assert (exact.action, exact.assignors) == ("restart", tuple(BOTH) if may_start else ())
    unknown = advice([{"id": "a"}, {"id": "b"}])
    assert unknown.action == ("evidence" if may_start else "restart")
    assert ("no file of the inventory is known to be a's" in unknown.text) is may_start


def test_static_member_that_missed_the_rebalance_after_a_reload_is_restarted() -> None:
    """A rebalance has completed since the load, and some list is short all the same."""
    members = [java("a", BOTH), static("b", BOTH), static("c", BOTH)]
    advice = plan(members, reloaded=False, probe=NO).advice
    assert (advice.action, advice.names, advice.assignors) == ("restart", ("b",), ())
    assert advice.verdict is Tri.YES, "its present list holds range, which is elected"


def test_probe_that_contradicts_every_dynamic_list_asks_for_evidence_not_a_restart() -> None:
    """A rebalance has completed since the load: another one changes nothing."""
    advice = plan([java("a", BOTH), java("b", BOTH)], reloaded=False, probe=NO).advice
    assert (advice.action, advice.members) == ("evidence", ())
    assert "the coordinator's lists and the logs are at odds" in advice.text


@pytest.mark.parametrize(("joined", "needs"), [(None, ("log timezone",)), (5, ())])
def test_log_timezone_is_asked_for_before_a_rebalance_of_static_members(
    joined: int | None, needs: tuple[str, ...]
) -> None:
    """All lists are known, and not whether they were sent after a load that is not known either."""
    members = [static("a", BOTH, joined=joined), static("b", BOTH), static("c", BOTH)]
    seen_now = replace(group(members, reloaded=None, probe=NO), undated_logs=True)
    assert make_plan(seen_now).advice.evidence_needed == needs


def test_static_restart_waits_until_group_max_size_is_read_or_accepted_as_unknown() -> None:
    members = [static("a", RANGE), static("b", RANGE)]
    unread = group_of({"members": members, "reloaded": False})
    made = make_plan(unread)
    assert made.advice.evidence_needed == ("broker settings", "probe")
    assert "--ignore RB908 --reason" in made.advice.command
    stated = make_plan(unread, ignore={"RB908": "no limit"})
    assert (stated.advice.action, stated.advice.verdict) == ("restart", "yes")
    # The word given later fills the same gap.
    accepted = Accepted(ignore={"RB908": "no limit"})
    standing = verify(made, [], look(1, members, reloaded=False), accepted=accepted)
    assert standing.advice.action == "restart"


def test_accepted_upgrade_from_is_void_once_the_streams_instance_runs_cooperative() -> None:
    old = {"id": "a", "list": ["stream"], "family": "streams", "version": "2.3.1"}
    new = {**old, "id": "b", "version": "3.9.1"}
    for member, ignored in ((new, True), ({**new, "owned": True}, False)):
        context = context_of({"planning": True, "elected": "stream", "members": [old, member]})
        (finding,) = (f for f in evaluate(context, ignore={"RB505": "set"}) if f.rule == "RB505")
        assert (finding.ignored is not None) is ignored


def test_operator_can_rule_out_a_coordinator_reload_that_rebal_cannot_read() -> None:
    """One restart had all join again; only the time of the coordinator's load is not known."""
    made = plan([java("a", BOTH, joined=0), java("b", BOTH, joined=0)], reloaded=None)
    again = [java("a2", BOTH, client="a", joined=2), java("b", BOTH, joined=2)]
    standing = told(made, again, reloaded=None)
    assert (standing.advice.action, standing.exit_code) == ("evidence", 4)
    assert "no broker has stopped or moved since 09:02:00Z" in standing.next
    assert "--ignore RB113 --reason" in standing.advice.command
    ignore = Accepted(ignore={"RB113": "looked"})
    seen_now = look(1, again, reloaded=None)
    assert verify(made, [], seen_now, accepted=ignore).advice.recommended
    loaded = look(1, again, reloaded=True)
    assert verify(made, [], loaded, accepted=ignore).advice.assignors != ("cooperative-sticky",)


def test_a_plan_whose_lists_do_not_hold_the_elected_assignor_is_not_carried_on() -> None:
    made = plan([java("a", RANGE), java("b", RANGE)], reloaded=False)
    assert made.advice.assignors == ("cooperative-sticky", "range")
    other = [java("a", ["sticky"], joined=1), java("b", ["sticky"], joined=1)]
    standing = told(made, other, elected="sticky")
    assert (standing.advice.action, standing.exit_code) == ("replan", 3)
    assert (
        "was range when the plan was made and is sticky now: the plan's [cooperative-sticky, range]"
        " and [cooperative-sticky] do not hold it"
    ) in standing.next


@pytest.mark.parametrize(("protocol", "verdict"), [(None, Tri.NO), ("consumer", Tri.YES)])
def test_unchanged_restart_joins_with_the_declared_list_unless_the_file_sets_consumer_protocol(
    protocol: str | None, verdict: Tri
) -> None:
    changed = java("a", RANGE, declared=COOP, group_protocol=protocol)
    context = context_of({"members": [changed, java("b", RANGE)], "reloaded": False})
    assert restart_of(context, context.members[0]).verdict is verdict


@pytest.mark.parametrize(("declared", "accepted"), [(None, False), (45_000, False), (60_000, True)])
def test_a_restart_keeps_a_session_timeout_that_no_file_changes(
    declared: int | None, accepted: bool
) -> None:
    bounds = {"group.min.session.timeout.ms": "60000", "group.max.session.timeout.ms": "90000"}
    file = {"declared": RANGE, "session": declared} if declared else {}
    member = java("a", RANGE, timeouts=[45_000, 60_000], **file)
    context = context_of({"members": [member], "cluster": {"settings": bounds}})
    error = restart_of(context, context.members[0]).error
    assert (error != "INVALID_SESSION_TIMEOUT") is accepted


@pytest.mark.parametrize(
    ("family", "action", "reason"),
    [
        ("java", "none", "no member is left to restart in this step"),
        # Only a new plan tells what is left to do: the step is not called done.
        ("librdkafka", "replan", "no member is left to stop"),
    ],
)
def test_advice_on_a_step_without_members_names_the_step(
    family: str, action: str, reason: str
) -> None:
    made = plan([java("a", RANGE), java("b", RANGE, family=family)], reloaded=False)
    advice, withheld = step_action(made, made.steps[1], context_of({}), (), ignore={})
    assert (advice.action, advice.reason, advice.step, withheld) == (action, reason, 2, ())


def test_librdkafka_stop_waits_until_lists_are_restored_after_a_coordinator_reload() -> None:
    """Every list of those that stay holds the target, and the coordinator remembers range alone."""
    members = [java("a", MIXED), java("b", RANGE, family="librdkafka"), static("c", MIXED)]
    made = plan(members, reloaded=True, probe=NO)
    assert (made.path, made.next_step) == ("mixed_families", 2)
    assert (made.advice.action, made.advice.names) == ("restart", ("a",))
    assert (made.advice.assignors, made.advice.verdict) == ((), Tri.YES)
    assert [one.action for one in made.withheld] == ["cut-over"]
    assert (made.exit_code, made.steps[1].exit_code) == (4, 4), "the stop is not admitted yet"
    standing = told(made, members, reloaded=True, probe=NO)
    assert (standing.advice.names, standing.exit_code) == (("a",), 4)


def test_restart_with_the_current_list_names_that_list_if_the_file_declares_another() -> None:
    changed = java("b", BOTH, declared=["cooperative-sticky", "sticky"])
    advice = plan([static("a", MIXED), changed], reloaded=True, probe=NO).advice
    assert (advice.action, advice.names) == ("restart", ("b",))
    assert (advice.assignors, advice.verdict) == (tuple(BOTH), Tri.YES)


def test_a_member_of_an_unknown_client_is_not_given_a_mixed_list() -> None:
    first = java("a", MIXED)
    unknown = [{"id": name, "family": None} for name in "bc"]
    made = plan([first, *unknown], reloaded=False, probe=dict.fromkeys(MIXED, True))

    def advice(family: str | None) -> Advice:
        lost = [java(f"{n}.2", RANGE, client=n, family=family, joined=1) for n in "bc"]
        return told(made, [first, *lost]).advice

    open_ = advice(None)
    assert (open_.action, open_.verdict) == ("evidence", Tri.CANNOT_TELL), open_.text
    assert "the client of b, c is not known" in open_.text
    assert (advice("java").names, advice("java").assignors) == (("b",), tuple(MIXED))
    assert advice("librdkafka").action in ("replan", "stop"), advice("librdkafka").text


def test_a_cut_over_is_not_outdated_by_another_elected_assignor() -> None:
    """The group is Empty when its members start: any list is admitted."""
    one = java("a", ["sticky", "range"], family="librdkafka")
    made = make_plan(group([one], elected="sticky"), ignore={"RB104": "agreed"})
    assert made.path == "cut_over"
    advice = told(made, [{**one, "id": "a.2", "client": "a", "list": RANGE}]).advice
    assert (advice.action, advice.assignors) == ("cut-over", tuple(COOP))


def test_no_restart_is_advised_if_no_evidence_could_show_that_it_restored_the_lists() -> None:
    """Found by the search: the members were restarted for ever.

    While the kafka-python member is there, a probe answers no, whatever the coordinator remembers;
    and the records that would show its last load may not be read.
    """
    members = [*(static(n, MIXED) for n in "ab"), java("c", RANGE, family="kafka-python")]
    made = plan(members, reloaded=None, probe=NO)
    standing = told(made, members, reloaded=None, probe=NO)
    assert (made.path, standing.advice.action) == ("mixed_families", "evidence")
    assert standing.advice.evidence_needed == ("offsets topic", "log timezone")
    assert "READ __consumer_offsets" in standing.next
