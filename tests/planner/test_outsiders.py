"""Who is out of the group, who left before the plan, and how an empty group starts again."""

from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from rebal.groups.model import Evidence, GroupSnapshot, GroupState, Member, Refusal, Source, Tri
from rebal.planner.admission.check import joined_since_rejection, member_of, unresolved_rejections
from rebal.planner.commands import Given
from rebal.planner.paths import make_plan
from rebal.planner.plan import Accepted, Action, Plan
from rebal.planner.verification.outsiders import Doubt, OutsiderKind
from rebal.planner.verification.verify import Standing, verify
from tests.planner.builder import AT, group_of
from tests.planner.every_path import PLANS
from tests.planner.looks import Story, app, back_from, id_of, look, pods
from tests.planner.plans import BOTH, DONE, NO_LIMIT, RANGE, plan, rules

OUT = {"client": "app-9", "list": ["roundrobin"]}
AUTOMATIC = "consumer-checkout-1"


def two(start: int, names: list[str], **more: Any) -> list[dict[str, Any]]:
    return [app(n, start, list=names, **more) for n in (0, 1)]


def done(minutes: float, **more: Any) -> Any:
    """A look at which both members have completed the plan."""
    return look(minutes, two(2, DONE), elected="cooperative-sticky", **more)


@pytest.fixture
def begun() -> Plan:
    return make_plan(group_of({"members": two(1, BOTH), "reloaded": False}))


def shown(standing: Standing) -> list[tuple[OutsiderKind, str, Doubt]]:
    return [(one.kind, one.name, one.doubt) for one in standing.outsiders]


def test_rejected_clients_of_an_unknown_service_keep_the_plan_open_until_counted(
    begun: Plan,
) -> None:
    check = Story(begun)
    check(done(2, refusals=[{**OUT, "client": f"app-{n}", "at": 1.9} for n in (8, 9)]))
    text = "app-8, app-9 were rejected and no log shows that they rejoined; --expect-members 4 if"
    # Their log is rotated.
    later = check(done(30))
    assert text in later.next
    assert (later.finished, later.exit_code) == (False, 4)
    assert shown(later) == [(OutsiderKind.REJECTED, f"app-{n}", Doubt.COUNT) for n in (8, 9)]
    assert verify(begun, check.entries, done(31), expect_members=2).finished


def test_rejected_client_is_not_started_before_the_member_whose_list_rejects_it_restarts() -> None:
    brokers = {"settings": {"group.consumer.migration.policy": "bidirectional"}}
    online = {"type": "consumer", "elected": "uniform", "cluster": brokers}
    members = [app(n, protocol_type="consumer") for n in (0, 1)]
    made = make_plan(group_of({"members": members, "reloaded": False, **online}), "range")
    newcomer = app(2, protocol_type="classic", list=DONE)
    rejected = [{"client": "app-0", "list": RANGE, "at": 1.9}]
    standing = verify(
        made, [], look(2, [app(1, protocol_type="consumer"), newcomer], refusals=rejected, **online)
    )
    assert standing.next.startswith("restart app-2 with [range] and group.protocol=classic")
    assert "app-0 not yet: the coordinator's list of app-2 has no range" in standing.next


@pytest.mark.parametrize(
    ("names", "more", "joiner"),
    [
        (["default"], {"protocol_type": "connect", "family": "connect"}, RANGE),
        (["stream"], {"family": "streams"}, RANGE),
        (RANGE, {}, ["stream"]),
        (RANGE, {}, ["sessioned", "compatible", "default"]),
    ],
)
def test_another_kind_of_program_gets_a_group_of_its_own_and_no_list(
    names: list[str], more: dict[str, Any], joiner: list[str]
) -> None:
    family = {key: value for key, value in more.items() if key == "family"}
    group = {"protocol_type": more.get("protocol_type", "consumer"), "elected": names[0]}
    here, out = two(1, names, **family), [{"client": "other", "list": joiner, "at": 1.9}]
    made = make_plan(group_of({"members": here, "reloaded": False, **group}))
    seen = look(2, here, refusals=out, **group)
    standing = Story(made)(seen)
    assert standing.exit_code == 3
    assert "other" not in standing.advice.names
    (found,) = (one for one in make_plan(seen).findings if one.rule == "RB904")
    assert found.fix == "Give that client a group id of its own."


def test_member_that_moved_to_kip848_makes_a_new_plan_necessary() -> None:
    made = make_plan(group_of({"members": [app(n, list=RANGE) for n in (0, 1)], "reloaded": False}))
    now = [app(0, 2, list=BOTH, protocol_type="classic"), app(1, 2, protocol_type="consumer")]
    standing = verify(made, [], look(2, now, type="consumer", elected="uniform"))
    assert standing.advice.action is Action.REPLAN
    assert "the protocol of app-1 is consumer (KIP-848)" in standing.next


def test_rejection_in_a_journal_of_an_older_version_is_dated_by_its_entry(begun: Plan) -> None:
    check, undated = Story(begun), [{**OUT, "at": None}]
    check(done(2, refusals=undated))
    check.entries = [
        replace(one, rejected=tuple(replace(each, shown_at=None) for each in one.rejected))
        for one in check.entries
    ]
    assert shown(check(done(30, refusals=undated))) == [
        (OutsiderKind.REJECTED, "app-9", Doubt.COUNT)
    ]
    assert check(done(31, refusals=undated), expect_members=2).finished


def test_advice_on_a_rejection_names_a_time_once_expect_members_is_given(begun: Plan) -> None:
    """The number of members, given once, changes nothing when it is given again."""
    check, rejected = Story(begun), [{**OUT, "at": 1.9}]
    texts = [check(done(2, refusals=rejected), expect_members=given).next for given in (None, 2)]
    until = check.entries[-1].at + timedelta(minutes=0.9)
    assert [text.partition("if the service has no more members: ")[2] for text in texts] == [
        "--expect-members 2",
        f"look again after {until:%H:%M:%SZ}",
    ]
    assert check(done(2.9, refusals=rejected)).finished


def test_undated_rejection_is_in_doubt_until_a_session_after_the_first_look(begun: Plan) -> None:
    """The coordinator counts a member that has ended without leaving until its session ends."""
    check, undated = Story(begun), [{**OUT, "at": None}]
    doubts = [check(done(at, refusals=undated), expect_members=2).outsiders for at in (2, 2.9, 3.1)]
    assert [[one.doubt for one in out] for out in doubts] == [[Doubt.TIME], [Doubt.TIME], []]


@pytest.mark.parametrize(
    ("more", "gone", "name"),
    [
        ((), (), "app-8"),
        (({**OUT, "client": "app-7", "at": 1.9},), (), "app-7"),
        ((), ({"id": "app-9", "client": "app-9", "at": -11, "left": True},), "app-9"),
    ],
    ids=["the newest", "one since the plan", "the one that was a member"],
)
def test_unnamed_missing_member_is_identified_with_the_likeliest_rejected_client(
    begun: Plan, more: tuple[Any, ...], gone: tuple[Any, ...], name: str
) -> None:
    out = [*({**OUT, "client": f"app-{n}", "at": -n} for n in (8, 9)), *more]
    standing = verify(begun, [], done(2, refusals=out, departed=gone), expect_members=3)
    assert shown(standing) == [(OutsiderKind.REJECTED, name, Doubt.NONE)]


@pytest.mark.parametrize(
    ("ahead", "codes"), [(-60, [3, 3, 0]), (60, [3, 3, 0]), (1441.9, [3, 3, 0]), (1500, [0, 0, 0])]
)
@pytest.mark.parametrize("planned", [False, True])
def test_rejection_dated_by_an_uncompared_clock_counts_unless_it_is_over_a_day_old(
    begun: Plan, planned: bool, ahead: float, codes: list[int]
) -> None:
    """The rejection is no later than the look that shows it; no clock is a day wrong."""
    alone = replace(begun, baseline=replace(begun.baseline, clock_compared=planned))
    check, out = Story(alone), [{**OUT, "at": 1.9 - ahead}]
    looks = [replace(done(at, refusals=out), clock_compared=not planned) for at in (2, 2.9, 3.1)]
    assert [check(one, expect_members=2).exit_code for one in looks] == codes


def test_member_entry_restored_by_a_coordinator_reload_is_not_the_rejected_client() -> None:
    """app-0 was rejected after the join of its old entry: only a later join is its return."""
    out = [{**OUT, "client": "app-0", "host": "/10.0.0.1", "at": -0.2}]
    alone = {"members": [app(1, list=BOTH)], "reloaded": False, "refusals": out}
    check = Story(make_plan(group_of(alone), expect_members=2))
    other = [{"id": "app-7", "list": BOTH, "at": 0.15}]
    named = ["app-0 (10.0.0.1)"]
    for n, start, joined, names in ((0.1, 1, -2, named), (0.2, 1, -2, named), (2, 2, 1, [])):
        here = [app(0, start, list=BOTH, joined=joined), app(1, list=BOTH)]
        seen = look(n, here, refusals=out, departed=other)
        assert [one.name for one in check(seen).outsiders] == names


def test_member_of_a_surge_that_is_over_is_not_missing(begun: Plan) -> None:
    check, new = Story(begun), [app(n, list=BOTH) for n in (2, 3)]
    check(look(1, [*two(1, BOTH), *new]))
    check(look(2, new))
    assert [one.name for one in check(look(3, new[:1])).outsiders] == ["app-3"]


def test_one_rejected_client_starts_where_the_brokers_leave_no_room_for_all() -> None:
    full = {"settings": {"group.max.size": "3"}}
    made = make_plan(look(0, two(1, BOTH), cluster=full), expect_members=4)
    out = [{"client": f"app-{n}", "list": DONE, "at": 1} for n in (8, 9)]
    after = verify(made, [], look(2, two(1, BOTH), cluster=full, refusals=out))
    assert (after.advice.action, after.advice.names) == (Action.START, ("app-8",))
    assert "app-9 not yet, look again first: the group has 3 members" in after.next
    expected = "app-8 [cooperative-sticky], app-9 [cooperative-sticky]: rejected"
    assert after.dangers[0].message.startswith(expected)


def test_full_group_bars_only_its_static_members() -> None:
    """A dynamic member leaves before it joins again, so it is the one that starts the rebalance."""
    members = [app(0, list=BOTH, instance="s"), app(1, list=BOTH), app(2, list=BOTH)]
    full = {"settings": {"group.max.size": "3"}}
    made = make_plan(group_of({"members": members, "reloaded": False, "cluster": full}))
    after = verify(made, [], look(5, members, cluster=full, reloaded=True))
    assert (after.advice.action, after.advice.names) == (Action.RESTART, ("app-1",))
    assert after.advice.assignors == (), "every list is remembered again, then the step goes on"


def test_temporary_member_that_restored_no_list_is_followed_by_a_wait_for_the_session() -> None:
    """All members are static, and one that is down keeps the list that a reload has left."""
    static = {"timeouts": [600_000, 60_000]}
    members = [app(n, list=BOTH, instance=f"s-{n}", **static) for n in range(3)]
    check = Story(make_plan(look(0, members, cluster=NO_LIMIT)))

    def at(minutes: float, generation: int) -> Standing:
        more = {"cluster": NO_LIMIT, "reloaded": True, "generation": generation}
        return check(look(minutes, members, **more))

    assert at(1, 5).advice.action is Action.TEMPORARY
    assert at(2, 5).advice.action is Action.TEMPORARY, "it was not carried out yet"
    waits = at(3, 7)
    assert waits.advice.action is Action.WAIT
    assert "look again after 09:13:00Z" in waits.next
    assert at(13, 7).advice.action is Action.TEMPORARY, "that session is over"


def test_rejection_before_the_plan_counts_if_the_plan_counted_the_clients_stale_entry() -> None:
    """The plan counted the entry as a member, so its group had only seemed to be complete."""
    members = [*two(1, BOTH), app(5, list=BOTH, instance="s", timeouts=[600_000, 300_000])]
    out = [{"client": "app-5", "instance": "s", "list": ["roundrobin"], "at": -1}]
    made = make_plan(look(0, members, refusals=out), expect_members=3)
    standing = verify(made, [], look(6, members, refusals=out))
    assert shown(standing) == [(OutsiderKind.REJECTED, "s", Doubt.NONE)]
    assert standing.advice.names == ("s",)


def test_rejected_client_that_may_be_the_missing_member_renamed_is_started_without_it(
    begun: Plan,
) -> None:
    """Two processes would be started for one place."""
    standing = verify(begun, [], look(2, [app(0, list=BOTH)], refusals=[{**OUT, "at": 1.9}]))
    assert [one.name for one in standing.outsiders] == ["app-9", "app-1"]
    assert standing.advice.names == ("app-9",)


def test_missing_members_with_one_client_id_are_matched_to_a_rejection_by_host() -> None:
    alike = [{**app(0, list=BOTH), "id": f"pod-{n}", "host": f"/10.0.0.{n}"} for n in (7, 8)]
    made = make_plan(look(0, [app(1, list=BOTH), *alike]))
    out = [{**OUT, "client": "app-0", "host": "/10.0.0.8", "at": 1}]
    now = verify(made, [], look(2, [app(1, list=BOTH)], refusals=out))
    assert [(one.kind, one.host) for one in now.outsiders] == [
        (OutsiderKind.REJECTED, "10.0.0.8"),
        (OutsiderKind.MISSING, "10.0.0.7"),
    ]


@pytest.mark.parametrize(
    ("families", "own", "names"),
    [
        ({}, {"app-9": "java"}, BOTH),
        ({}, {"app-9": "librdkafka"}, RANGE),
        ({"family": None}, {}, RANGE),
    ],
)
def test_rejected_client_is_started_with_a_list_that_its_library_takes(
    families: dict[str, None], own: dict[str, str], names: list[str]
) -> None:
    here = two(1, RANGE, **families)
    made = make_plan(group_of({"members": here, "reloaded": False}), families=own)
    after = verify(made, [], look(2, here, refusals=[{**OUT, "at": 1.9}]), expect_members=3)
    assert (after.advice.action, after.advice.assignors) == (Action.START, tuple(names))


@pytest.mark.parametrize(
    ("client", "other", "known"),
    [(AUTOMATIC, "audit", False), ("orders", "audit", True), ("orders", "orders", False)],
)
def test_a_client_id_that_others_have_names_no_member(
    client: str, other: str, *, known: bool
) -> None:
    out = [{"client": client}, {"client": other, "host": "/10.0.0.2"}]
    out = [{**one, "list": ["range"]} for one in out]
    seen = look(1, [{**app(1, joined=1), "client": client}], refusals=out)
    assert (member_of(seen, seen.refusals[0]) is not None) is known
    assert (seen.refusals[0] in unresolved_rejections(seen)) is not known, "it is back"


@pytest.mark.parametrize(
    ("out", "host", "here", "name"),
    [
        ({"client": AUTOMATIC}, "/10.0.0.9", (), f"{AUTOMATIC} (10.0.0.9)"),
        ({"client": AUTOMATIC}, "", (), AUTOMATIC),
        ({"client": AUTOMATIC, "instance": "pod-3"}, "/10.0.0.9", ("/10.0.0.1",), "pod-3"),
        ({"client": "orders"}, "/10.0.0.9", ("/10.0.0.1",), "orders (10.0.0.9)"),
        ({"client": "orders"}, "/10.0.0.9", (), "orders"),
        ({"client": ""}, "/10.0.0.9", (), "a client (10.0.0.9)"),
    ],
)
def test_rejected_client_has_its_address_where_its_name_is_shared(
    plan: Plan, out: dict[str, str], host: str, here: tuple[str, ...], name: str
) -> None:
    """`here` are the addresses of the members with its client id."""
    members = [app(1, 2, list=BOTH), app(2, list=RANGE)]
    for one, place in zip(members, here, strict=False):
        one.update(client=out["client"], host=place)
    refusal = {"list": DONE, "at": 9, "host": host, **out}
    made = verify(plan, [], look(9.1, members, refusals=[refusal]))
    assert (made.advice.action, made.advice.names) == (Action.START, (name,))
    assert made.next.startswith(f"start {name} with")


KEPT = Given(plan="plan.yaml")


def left(name: str = "a2", names: list[str] | None = None, at: int = -1, **more: Any) -> Any:
    return {"id": name, "list": RANGE if names is None else names, "at": at, "left": True, **more}


def before(*gone: Any, lists: list[str] | None = None, **more: Any) -> GroupSnapshot:
    members = pods(1, 1, list=lists or RANGE)
    return group_of({"members": members, "departed": list(gone), "reloaded": False, **more})


def planned(*gone: Any, **more: Any) -> Plan:
    return make_plan(before(*gone), given=KEPT, **more)


def widened(minutes: int, *gone: Any, **more: Any) -> GroupSnapshot:
    """The two members after the first bounce."""
    members = pods(2, 2, list=BOTH)
    return look(minutes, members, departed=list(gone), elected="cooperative-sticky", **more)


def asks(standing: Standing) -> bool:
    """It asks about the departed member and opens no step."""
    asked = "RB121" in rules(standing)
    if asked:
        assert (standing.exit_code, standing.advice.action) == (4, "evidence")
        assert "first RB121: Add --expect-members 3 if it belongs" in standing.next
    return asked


def test_a_step_waits_for_the_answer_about_a_member_that_left_before_the_plan() -> None:
    plan = planned(left())
    assert (plan.verdict, plan.exit_code, plan.accepted.members) == ("ready", 0, None)
    (finding,) = (f for f in plan.findings if f.rule == "RB121")
    assert finding.before_step == 2
    # The log of the leave has been rotated away: the plan still knows.
    for departed in ([left()], []):
        standing = Story(plan)(widened(5, *departed))
        assert (standing.step, standing.gate) == (1, "yes")
        assert asks(standing)
        (question,) = (f for f in standing.findings if f.rule == "RB121")
        assert question.message.endswith("Its return is rejected once step 2 has begun.")
        assert [one.line for one in question.commands] == [
            "rebal verify plan.yaml --expect-members 3",
            "rebal verify plan.yaml --departed a2",
        ]


def test_answer_about_a_departed_member_is_kept_in_the_journal_and_opens_the_step() -> None:
    left_for_good = Story(planned(left()))
    standing = left_for_good(widened(5), accepted=Accepted(departed=("a2",)))
    assert (standing.exit_code, standing.advice.action, standing.advice.step) == (0, "restart", 2)
    assert standing.departed == ("a2",)
    assert "a2 left for good" in standing.accepted
    assert left_for_good.entries[-1].departed == ("a2",)
    # Nobody says it again.
    assert left_for_good(widened(6, left())).exit_code == 0
    still_counted = Story(planned(left()))
    standing = still_counted(widened(5), expect_members=3)
    assert (standing.exit_code, standing.counted, standing.expected) == (4, True, 3)
    assert standing.why[0].startswith("1 of 3 expected members is not in the group")
    standing = still_counted(widened(6))
    assert (standing.exit_code, standing.counted, standing.expected) == (4, True, 3)
    assert not asks(standing)
    back = look(7, [*pods(2, 2, list=BOTH), {"id": "a2", "list": BOTH}], elected=DONE[0])
    assert still_counted(back).exit_code == 0


def test_answer_about_a_departed_member_can_be_given_when_the_plan_is_made() -> None:
    for more in ({"departed": ["a2"]}, {"expect_members": 2}):
        plan = planned(left(), **more)
        assert "RB121" not in rules(plan)
        standing = Story(plan)(widened(5, left()))
        assert (standing.exit_code, standing.advice.step) == (0, 2)
    assert planned(left(), departed=["a2"]).accepted.departed == ("a2",)
    assert planned(left(), departed=["a2"]).assumptions == ("a2 left for good",)
    assert planned(left(), expect_members=2).accepted.members == 2


def test_a_member_of_a_shared_client_id_is_back_when_there_are_more_of_them() -> None:
    plan = planned(left(client="app-0"))
    assert asks(Story(plan)(widened(5)))
    members = [*pods(2, 2, list=BOTH), {"id": "x", "client": "app-0", "list": BOTH}]
    assert not asks(Story(plan)(look(5, members, elected="cooperative-sticky")))


def test_departed_members_that_the_plan_or_journal_counted_raise_no_question() -> None:
    """A roll-out with a new client id for each pod leaves all old ones behind."""
    plan = planned()
    old = [{"id": id_of(n).removesuffix("-0f0f"), "list": RANGE, "at": 2} for n in (0, 1)]
    members = [{"id": "new-1", "list": BOTH}, {"id": "new-2", "list": BOTH}]
    check = Story(plan)
    standing = check(look(5, members, departed=old, elected="cooperative-sticky"))
    assert (standing.exit_code, standing.advice.step) == (0, 2)
    again = [{"id": "new-3", "list": BOTH}, {"id": "new-4", "list": BOTH}]
    gone = [*old, *({"id": f"new-{n}", "list": BOTH, "at": 6} for n in (1, 2))]
    assert not asks(check(look(9, again, departed=gone, elected="cooperative-sticky")))


def test_unknown_member_that_joined_and_left_since_the_plan_raises_a_question() -> None:
    assert asks(Story(planned())(widened(5, left(at=3))))


def test_renamed_instance_id_counts_as_a_rejected_member_until_it_is_named_as_departed() -> None:
    statics = [{**app(n), "instance": f"i-{n}", "list": BOTH} for n in (0, 1, 9)]
    refused = {"client": "app-2", "instance": "i-2", "list": ["sticky"], "at": -3}
    snapshot = group_of({"members": statics, "refusals": [refused], "elected": DONE[0]})
    plan = make_plan(snapshot, given=KEPT)
    assert plan.expected_members == 4
    (finding,) = (f for f in plan.findings if f.rule == "RB904")
    assert finding.fix.endswith(" If i-2 left for good, or was renamed: --departed i-2.")
    seen = look(9, statics, refusals=[refused], elected=DONE[0])
    now = Story(plan)(seen)
    assert (now.expected, [one.kind for one in now.dangers]) == (4, ["rejected"])
    assert now.dangers[0].fix.endswith(" If i-2 left for good, or was renamed: --departed i-2.")
    check = Story(plan)
    for more in ({"accepted": Accepted(departed=("i-2",))}, {}):
        now = check(seen, **more)
        assert (now.expected, now.dangers, now.outsiders) == (3, (), ())
    renewed = make_plan(snapshot, given=KEPT, departed=["i-2"])
    assert "RB904" not in rules(renewed)
    assert renewed.expected_members is None


def test_rejection_after_an_instance_id_was_named_as_departed_is_reported() -> None:
    statics = [{**app(n), "instance": f"i-{n}", "list": BOTH} for n in (0, 1)]
    refused = {"client": "app-2", "instance": "i-2", "list": RANGE, "at": 6}
    plan = make_plan(group_of({"members": statics, "elected": DONE[0]}), departed=["i-2"])
    standing = Story(plan)(look(6, statics, refusals=[refused], elected=DONE[0]))
    assert [one.kind for one in standing.dangers] == ["rejected"]


def test_client_named_as_departed_that_is_in_the_group_is_reported() -> None:
    plan = planned(left(), departed=["a2"])
    members = [*pods(2, 2, list=BOTH), {"id": "a2", "list": BOTH}]
    standing = Story(plan)(look(5, members, elected="cooperative-sticky"))
    assert "a2 was said to have left for good (--departed) and is in the group" in standing.notes


def test_departed_option_kept_in_the_journal_does_not_cover_a_later_leave() -> None:
    check = Story(replace(planned(left()), made_at=AT + timedelta(minutes=1)))
    check(widened(5), accepted=Accepted(departed=("a2",)))
    check(widened(7), accepted=Accepted(departed=("a2",)))
    assert asks(check(widened(9, left(at=6)), accepted=Accepted(departed=("a2",))))


RDKAFKA = {"family": "librdkafka", "version": "2.6.0"}
TWO_EAGER = ["range", "roundrobin"]
AIMS = {
    "connect": "connect-eager",
    "connect down": "connect-incremental",
    "streams": "streams-cooperative",
    "cut-over": "narrow",
}


def empty(made: Plan) -> GroupSnapshot:
    """The group of the plan after every member was stopped."""
    group = replace(made.baseline.group, state=GroupState.EMPTY, assignor=None)
    at = AT + timedelta(minutes=2)
    return replace(
        made.baseline, group=group, members=(), captured_at=at, lag=(), probe=None, refusals=()
    )


@pytest.mark.parametrize("name", PLANS)
def test_every_group_without_members_can_start_with_what_it_ran(name: str) -> None:
    made = PLANS[name]()
    back = back_from(made, empty(made))
    step = back.step(back.next_step)
    assert (back.exit_code, back.verdict) == (0, "ready")
    assert (back.advice.action, back.advice.verdict) == ("start", Tri.YES)
    assert "CURRENT list" not in back.advice.text
    assert back.expected_members == len(made.baseline.members)
    if name != "two bounces, second":
        assert not step.target_list or made.baseline.group.assignor in step.target_list
    assert step.config
    assert step.aim == AIMS.get(name, step.aim)
    # The plan that was kept gives the same start, from the group as it is.
    again = verify(back, [], empty(made))
    assert (again.advice.action, again.advice.recommended) == ("start", True)
    assert (again.advice.assignors, again.exit_code) == (step.target_list, 4)


def test_the_cut_over_is_undone_with_the_list_that_every_member_ran() -> None:
    made = plan(pods(1, 1, 1, list=TWO_EAGER, **RDKAFKA), expect_members=3)
    assert made.path == "cut_over"
    back = back_from(made, empty(made))
    assert [step.target_list for step in back.steps] == [("range", "roundrobin")]
    assert {each.family for each in back.steps[0].config} == {"librdkafka"}
    check = Story(back)
    started = look(3, pods(2, 2, list=TWO_EAGER, **RDKAFKA))
    assert "1 of 3 expected members is not in the group" in check(started).why[0]
    end = check(look(4, pods(2, 2, 2, list=TWO_EAGER, **RDKAFKA)))
    assert (end.finished, end.exit_code) == (True, 0)
    assert not check(look(5, pods(3, 3, 3, list=["cooperative-sticky"], **RDKAFKA))).finished


def test_rollback_of_differing_or_mixed_lists_uses_the_old_eager_assignor_alone() -> None:
    both = ["cooperative-sticky", "range"]
    made = plan(pods(1, 1, list=both), elected="cooperative-sticky", reloaded=False)
    assert back_from(made, empty(made)).steps[0].target_list == ("range",)
    differ = plan([*pods(1, list=TWO_EAGER), {"id": "b", "list": ["range"]}])
    assert back_from(differ, empty(differ)).steps[0].target_list == ("range",)


def test_rollback_ends_with_the_list_that_every_member_ran() -> None:
    wide, done = ["range", "cooperative-sticky"], ["cooperative-sticky"]
    made = plan(pods(1, 1, list=wide))
    back = back_from(made, look(2, pods(2, 2, list=done), elected=done[0]))
    assert [step.target_list for step in back.steps] == [tuple(wide)]
    assert verify(back, [], look(3, pods(3, 3, list=wide))).finished
    assert back_from(made, look(2, pods(1, 1, list=wide))).verdict == "done"
    unknown = plan(pods(1, 1))
    forgot = look(2, pods(2, 2, list=[*done, "range"]), elected=done[0], reloaded=True)
    assert [step.target_list for step in back_from(unknown, forgot).steps] == [(), ("range",)]


def test_empty_streams_group_starts_with_the_steps_version_or_rolls_back_to_the_old_one() -> None:
    instances = pods(1, 1, list=["stream"], family="streams", version="2.3.1")
    made = plan(instances, elected="stream", expect_members=2)
    forward = verify(made, [], empty(made))
    expected = "start app-0, app-1 with the version and configuration of step 1, if they are down"
    assert forward.next == expected
    back = back_from(made, empty(made))
    assert (back.path, back.target, back.steps[0].aim) == ("streams_start", "stream", "streams-old")
    assert "the old version and its configuration" in back.steps[0].config[0].text


def test_plan_of_a_group_without_members_has_no_rollback() -> None:
    made = plan([], state="Empty", elected=None)
    back = back_from(made, empty(made))
    assert (back.path, back.exit_code) == ("none", 4)


@pytest.mark.parametrize(("instance", "answer"), [("pod-0", Tri.YES), (None, Tri.NO)])
def test_later_join_with_an_old_member_id_ends_the_rejection_of_a_static_member_only(
    instance: str | None, answer: Tri
) -> None:
    log = Evidence(source=Source.REQUEST_LOG, detail="of broker 1")
    out = Refusal(list=("range",), instance_id=instance, at=AT, evidence=log)
    hours = (timedelta(hours=-1), timedelta(hours=1))
    first, last = (AT + each for each in hours)
    member = Member(member_id="m-1", first_joined_at=first, joined_at=last)
    assert joined_since_rejection(member, out) is answer
