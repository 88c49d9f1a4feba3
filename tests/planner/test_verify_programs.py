"""Every step of every way: can verify say that its gate holds, and does it wait for the truth?"""

from collections import Counter
from typing import Any
from uuid import UUID

import pytest
from msgspec.structs import replace

from rebal.cli.output import render
from rebal.cli.render.plans.screen import plan_view
from rebal.groups.model import (
    Evidence,
    GroupSnapshot,
    Member,
    RanProtocol,
    RebalanceProtocol,
    Source,
    Subscription,
    Tri,
)
from rebal.groups.streams import process_names
from rebal.groups.wire.consumer_protocol import StreamsUserData
from rebal.planner.context import Context, comes_from, names
from rebal.planner.paths import make_plan
from rebal.planner.plan import Aim, Plan, Step
from rebal.planner.rehearsal.scripts import rollout
from rebal.planner.verification.verify import AnsweredError, NothingToConfirmError, verify
from tests.encoders import encode_streams
from tests.planner.looks import Story, back_from, done, look, pods
from tests.planner.plans import BOTH, COOP, DONE, RANGE

KIP848 = {
    "type": "consumer",
    "elected": "uniform",
    "cluster": {
        "features": {"group.version": 1},
        "settings": {"group.consumer.migration.policy": "bidirectional"},
    },
}
WHY = "looked at both logs"


def java(number: int, start: int, names: list[str], **more: Any) -> dict[str, Any]:
    return {"id": f"j-{number}.{start}", "client": f"j-{number}", "list": names, **more}


def rd(start: int, names: list[str] | None, **more: Any) -> dict[str, Any]:
    known = {"family": "librdkafka", "version": "2.6.0"} if names else {"family": None}
    listed = {"list": names} if names else {}
    return {"id": f"rd-0.{start}", "client": "rd-0", **known, **listed, **more}


# --- mixed families ---------------------------------------------------------------------------


@pytest.fixture
def mixed() -> Plan:
    """Two Java members and one of librdkafka, all on range."""
    plan = make_plan(look(0, [java(0, 1, RANGE), java(1, 1, RANGE), rd(1, RANGE)]))
    assert (plan.path, plan.steps[0].left_out) == ("mixed_families", ("librdkafka",))
    return plan


def test_step_that_stops_librdkafka_members_begins_when_they_leave(mixed: Plan) -> None:
    check = Story(mixed)
    javas = [java(0, 2, BOTH), java(1, 2, BOTH)]
    wide = look(1, [*javas, rd(1, RANGE)])
    assert check(wide).exit_code == 0
    assert {one.family for one in make_plan(wide).steps[0].config} == {"java"}
    stopped = check(look(2, javas))
    assert (stopped.step, stopped.exit_code) == (2, 4)
    assert [one.name for one in stopped.outsiders] == ["rd-0"]
    back = check(look(3, [*javas, rd(2, DONE)], **COOP))
    assert (back.step, back.exit_code) == (2, 0)
    assert back.next.startswith("begin step 3")
    last = check(look(4, [java(0, 3, DONE), java(1, 2, BOTH), rd(2, DONE)], **COOP))
    assert (last.step, last.exit_code) == (3, 4)
    assert done(last) == {"j-0": "yes", "j-1": "no", "rd-0": "yes"}
    assert check(look(5, [java(0, 3, DONE), java(1, 3, DONE), rd(2, None)], **COOP)).finished
    # It starts with the last list, so its old id says nothing of the last step.
    unseen = [*javas, rd(2, None)]
    check.entries = check.entries[:2]
    assert check(look(3, unseen, **COOP)).step == 2
    assert done(check(look(4, unseen, **COOP), step=3))["rd-0"] == "cannot tell"


def test_member_whose_client_is_only_guessed_is_not_left_out_of_the_step(mixed: Plan) -> None:
    javas = [java(0, 2, BOTH), java(1, 2, BOTH)]
    guess = {"id": "rd-0.2", "client": "rd-0", "family": "librdkafka", "guess": True}
    standing = verify(mixed, [], look(1, [*javas, guess]))
    assert (standing.step, standing.exit_code) == (1, 4)
    assert standing.why == ("not known: rd-0",)
    stated = make_plan(mixed.baseline, families={"rd-0": "librdkafka"})
    assert verify(stated, [], look(1, [*javas, guess])).exit_code == 0


def test_new_client_that_cannot_hold_a_mixed_list_blocks_the_plan(mixed: Plan) -> None:
    other = {"id": "py.1", "client": "py", "list": RANGE, "family": "kafka-python"}
    members = [java(0, 2, BOTH), java(1, 1, RANGE), rd(1, RANGE), other]
    standing = verify(mixed, [], look(1, members))
    assert standing.exit_code == 3
    assert [f.rule for f in standing.findings if f.severity == "block"] == ["RB104"]


# --- the other ways ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("members", "goal", "group", "short_of"),
    [
        ([java(n, 1, DONE) for n in range(2)], "cooperative", COOP, "start j-1 with [cooperative-"),
        ([java(n, 1, RANGE) for n in range(2)], "range", {}, "start j-1 with [range], if it is"),
        (
            [{"id": f"k-{n}", "protocol_type": "consumer"} for n in range(2)],
            "consumer",
            KIP848,
            "wait: 1 of 2 expected members is not in the group",
        ),
    ],
    ids=["cooperative", "range", "consumer"],
)
def test_done_plan_is_reopened_by_a_missing_member_and_outdated_by_another_assignor(
    members: list[dict[str, Any]], goal: str, group: dict[str, Any], short_of: str
) -> None:
    plan = make_plan(look(0, members, **group), goal, expect_members=2)
    assert (plan.verdict, plan.steps) == ("done", ())
    standing = verify(plan, [], look(1, members, **group))
    assert (standing.exit_code, standing.finished, standing.step) == (0, True, None)
    short = verify(plan, [], look(1, members[:1], **group))
    assert (short.exit_code, short.finished) == (4, False)
    assert short.next.startswith(short_of)
    assert short.next.endswith("if the service has no more members: --expect-members 1")
    old = [java(n, 2, ["roundrobin"], protocol_type="classic") for n in range(2)]
    changed = verify(plan, [], look(2, old, elected="roundrobin"))
    assert changed.exit_code == 4
    assert changed.next.startswith("make a new plan: ")
    assert changed.advice.command.startswith("rebal plan-upgrade checkout")


# --- what a person takes upon themselves ------------------------------------------------------


@pytest.fixture
def hand() -> Plan:
    """Two Streams instances, and two steps to versions that nothing on the wire shows."""
    plan = make_plan(look(0, bare(1, 1), elected="stream"), "eager", expect_members=2)
    gate = replace(
        plan.steps[0].gate, aim=Aim.STREAMS_NEW, by_hand="its log names upgrade.from=2.3"
    )
    return replace(plan, steps=tuple(replace(s, gate=gate, unknown=()) for s in plan.steps))


def bare(*starts: int) -> list[dict[str, Any]]:
    return pods(*starts, family=None)


def test_confirmation_holds_only_for_the_member_ids_that_the_operator_checked(hand: Plan) -> None:
    check = Story(hand)
    with pytest.raises(AnsweredError, match="app-1: not restarted"):
        check.confirm(look(1, bare(2, 1), elected="stream"), 1, WHY)
    open_ = check(look(2, bare(2, 2), elected="stream"))
    assert open_.exit_code == 4
    assert open_.why == ("no evidence shows it for app-0, app-1: its log names upgrade.from=2.3",)
    with pytest.raises(NothingToConfirmError, match="is in step 1"):
        check.confirm(look(2.5, bare(2, 2), elected="stream"), 2, WHY)
    check.confirm(look(3, bare(2, 2), elected="stream"), 1, WHY)
    holds = check(look(4, bare(2, 2), elected="stream"))
    assert (holds.step, holds.exit_code) == (1, 0)
    # No list is confirmed in this step.
    expected = f"confirmed by the operator, Nov 20 09:03Z: {WHY}"
    assert [one.why for one in holds.members] == [expected, expected]
    with pytest.raises(AnsweredError, match="its gate holds"):
        check.confirm(look(4.5, bare(2, 2), elected="stream"), 1, WHY)
    # Somebody who comes later was not looked at. The first step's gate held, so it is the second.
    later = check(look(5, bare(2, 3), elected="stream"))
    assert (later.step, later.exit_code) == (2, 4)
    assert verify(hand, check.entries, look(6, bare(2, 3), elected="stream"), step=1).why == (
        "no evidence shows it for app-1: its log names upgrade.from=2.3",
    )


def test_done_plan_is_verified_by_the_protocol_or_the_assignor_it_was_asked_for() -> None:
    sticky, mixed = ["sticky"], ["range", "sticky"]
    two = [java(0, 0, mixed), java(1, 0, sticky)]
    by_kind = make_plan(look(0, two, elected="sticky"), "eager")
    assert verify(by_kind, [], look(1, two, elected="sticky")).finished
    alike = [java(0, 0, sticky), java(1, 0, sticky)]
    by_name = make_plan(look(0, alike, elected="sticky"), "sticky")
    later = look(1, [alike[0], java(1, 1, mixed)], elected="sticky")
    assert not verify(by_name, [], later).finished


SESSIONED = ["sessioned", "compatible", "default"]


def streams(minutes: float, *members: dict[str, Any]) -> GroupSnapshot:
    return look(minutes, list(members), reloaded=None, elected="stream")


def workers(minutes: float, elected: str, *members: dict[str, Any]) -> GroupSnapshot:
    more = {"elected": elected, "protocol_type": "connect"}
    return look(minutes, list(members), reloaded=None, **more)


def one(number: int, start: int, version: str | None, **more: Any) -> dict[str, Any]:
    guess = {} if version else {"guess": True}
    client = f"s-{number}"
    return {"id": f"{client}.{start}", "client": client, "list": ["stream"], "family": "streams",
            "version": version, **guess, **more}  # fmt: skip


def worker(number: int, start: int, names: list[str] | None = None) -> dict[str, Any]:
    return {"id": f"w-{number}.{start}", "client": f"w-{number}", "family": "connect",
            "guess": True, "topics": [], **({"list": names} if names else {})}  # fmt: skip


def test_streams_version_is_proven_by_bytes_and_cooperative_by_kept_partitions() -> None:
    check = Story(make_plan(streams(0, one(0, 1, "2.3.1"), one(1, 1, "2.3.1")), expect_members=2))
    eager = one(0, 2, "3.9.1", ran="EAGER")
    half = check(streams(1, eager, one(1, 1, "2.3.1")))
    assert (done(half), half.exit_code) == ({"s-0": "yes", "s-1": "no"}, 4)
    assert check(streams(2, eager)).gate is Tri.NO
    unseen = check(streams(3, one(0, 3, "3.9.1"), one(1, 1, "2.3.1")))
    assert unseen.exit_code == 4
    assert "RB505" in {finding.rule for finding in unseen.findings}
    forgotten = check(streams(4, one(0, 4, "3.9.1", owned=True), one(1, 1, "2.3.1")))
    assert forgotten.exit_code == 3, "COOPERATIVE beside 2.3.1: a danger"
    assert forgotten.step == 1, "who was too early has not begun the second step"
    whole = check(streams(5, one(0, 5, "3.9.1", ran="EAGER"), one(1, 2, "3.9.1", ran="EAGER")))
    assert (whole.step, whole.gate, whole.exit_code) == (1, Tri.YES, 0)

    second = check(streams(6, one(0, 6, "3.9.1"), one(1, 2, "3.9.1", ran="EAGER")))
    assert (second.step, done(second)) == (2, {"s-0": "cannot tell", "s-1": "no"})
    assert "--client-log" in second.members[0].why
    kept = check(streams(7, one(0, 6, "3.9.1", owned=True), one(1, 3, "3.9.1")))
    assert done(kept) == {"s-0": "yes", "s-1": "cannot tell"}
    # What one look proved of an id stays proven while it is there.
    later = check(streams(8, one(0, 6, "3.9.1"), one(1, 3, "3.9.1", ran="COOPERATIVE")))
    assert (done(later), later.finished) == ({"s-0": "yes", "s-1": "yes"}, True)


def test_streams_downgrade_goes_over_the_bridge_version_and_eager_to_the_old_version() -> None:
    check = Story(make_plan(streams(0, one(0, 1, "4.1.1"), one(1, 1, "4.1.1")), "eager"))
    first = check(streams(1, one(0, 2, "3.9.1"), one(1, 1, "4.1.1")))
    assert (first.step, done(first)) == (1, {"s-0": "yes", "s-1": "no"})
    unsure = check(streams(2, one(0, 2, "3.9.1"), one(1, 2, None)))
    assert done(unsure) == {"s-0": "yes", "s-1": "cannot tell"}
    assert unsure.exit_code == 4
    early = check(streams(2.5, one(0, 9, "3.9.1", ran="EAGER"), one(1, 1, "4.1.1")))
    assert early.step == 1, "4.1.1 does not start with what the second step brings"
    assert check(streams(3, one(0, 2, "3.9.1"), one(1, 2, "3.9.1"))).gate is Tri.YES
    eager = [one(n, 3, "3.9.1", ran="EAGER") for n in range(2)]
    assert (check(streams(4, *eager)).step, check(streams(5, *eager)).gate) == (2, Tri.YES)
    old = check(streams(6, one(0, 4, "2.3.1"), eager[1]))
    assert (old.step, done(old)) == (3, {"s-0": "yes", "s-1": "no"})
    assert check(streams(7, one(0, 4, "2.3.1"), one(1, 4, "2.3.1"))).finished


OLD, NEW, EAGER, KEPT = "2.3.1", "3.9.1", {"ran": "EAGER"}, {"ran": "COOPERATIVE"}


@pytest.mark.parametrize(
    ("to", "planned", "now"),
    [
        ("cooperative", [one(0, 1, NEW, **EAGER), one(1, 1, NEW, **EAGER)],
         [one(0, 1, NEW, **EAGER), one(1, 2, OLD)]),
        ("cooperative", [one(0, 1, None), one(1, 1, None)], [one(0, 1, OLD), one(1, 1, OLD)]),
        ("eager", [one(0, 1, NEW, **KEPT), one(1, 1, NEW, **KEPT)],
         [one(0, 1, NEW, **KEPT), one(1, 2, "4.1.1")]),
    ],
)  # fmt: skip
def test_no_streams_instance_restarts_beside_one_whose_version_the_step_excludes(
    to: str, planned: list[dict[str, Any]], now: list[dict[str, Any]]
) -> None:
    standing = Story(make_plan(streams(0, *planned), to, expect_members=2))(streams(1, *now))
    assert standing.next.startswith("make a new plan: versions")
    assert standing.next.endswith("s-1")


def test_streams_version_must_be_known_before_upgrade_from_is_set() -> None:
    unknown = [one(n, 1, None, owned=True) for n in range(2)]
    made = make_plan(streams(0, *unknown), "eager", expect_members=2)
    assert "the version of s-0, s-1 is not known" in Story(made)(streams(1, *unknown)).next


def test_idle_streams_instance_is_no_danger_while_its_state_store_catches_up() -> None:
    check = Story(make_plan(streams(0, one(0, 1, "3.9.1", owned=True), one(1, 1, "3.9.1"))))
    idle = [one(0, 1, "3.9.1", owned=True), one(1, 2, "3.9.1", idle=True)]
    for minutes in (1, 2, 12):
        assert not check(streams(minutes, *idle)).dangers
    (danger,) = check(streams(17, *idle)).dangers
    assert danger.kind == "idle"
    assert "KIP-441" in danger.fix


def test_connect_worker_that_ran_while_the_group_fell_back_to_eager_must_restart() -> None:
    """It does not stop the tasks that the eager leader gave to others (KAFKA-13816)."""
    check = Story(make_plan(workers(0, "default", *[worker(n, 1, ["default"]) for n in (0, 1)])))
    assert check(workers(1, "sessioned", worker(0, 2), worker(1, 2))).finished
    back = check(workers(2, "default", worker(0, 3, ["default"]), worker(1, 2)))
    assert done(back) == {"w-0": "no", "w-1": "no"}
    half = check(workers(3, "sessioned", worker(0, 4), worker(1, 2)))
    assert (done(half), half.exit_code) == ({"w-0": "yes", "w-1": "no"}, 4)
    assert half.next == "restart w-1 with the configuration of step 1; one member at a time"
    assert check(workers(4, "sessioned", worker(0, 4), worker(1, 3))).finished


def test_elected_connect_protocol_shows_whether_the_last_worker_was_changed() -> None:
    plan = make_plan(workers(0, "sessioned", worker(0, 1), worker(1, 1)), "eager")
    standing = Story(plan)(workers(1, "default", worker(0, 2), worker(1, 2, SESSIONED)))
    assert done(standing) == {"w-0": "yes", "w-1": "no"}, "somebody has default alone: not w-1"
    start, agreed = workers(0, "sessioned", worker(0, 1)), {"RB413": "agreed"}
    check = Story(make_plan(start, "eager", expect_members=1, ignore=agreed))
    kept = check(workers(1, "sessioned", worker(0, 2)))
    assert (done(kept), kept.exit_code) == ({"w-0": "no"}, 4)
    moving = {"state": "PreparingRebalance", "elected": None, "protocol_type": "connect"}
    assert check(look(2, [worker(0, 3)], **moving)).exit_code == 4
    made = check(workers(3, "default", worker(0, 3)))
    assert (done(made), made.exit_code) == ({"w-0": "yes"}, 0)


def test_missing_connect_worker_is_started_with_the_configuration_of_those_that_are_back() -> None:
    started = [worker(number, 1) for number in range(3)]
    start, agreed = workers(0, "sessioned", *started), {"RB413": "agreed"}
    seen = Story(make_plan(start, "eager", expect_members=3, ignore=agreed))
    crashed = seen(workers(1, "sessioned", *started[:2]))
    assert crashed.next.startswith("stop w-0, w-1 together"), "the stop goes on without it"
    back = seen(workers(2, "default", worker(0, 2), worker(1, 2)))
    assert "start w-2 with the configuration of step 1" in back.next


def test_client_log_or_observed_protocol_proves_the_version_of_a_streams_instance() -> None:
    by_log = (Evidence(source=Source.CLIENT_LOG, detail="s-0.log:1"),)

    def printed(snapshot: GroupSnapshot, value: RebalanceProtocol) -> GroupSnapshot:
        first, *rest = snapshot.members
        ran = RanProtocol(value=value, evidence=by_log)
        return replace(snapshot, members=(replace(first, ran=ran), *rest))

    def bare(minutes: float, *starts: int) -> GroupSnapshot:
        return streams(minutes, *(one(n, start, None) for n, start in enumerate(starts)))

    # Only since 2.4 does a log say which member of the group it is of.
    up = make_plan(streams(0, one(0, 1, "2.3.1"), one(1, 1, "2.3.1")), expect_members=2)
    assert done(Story(up)(bare(1, 2, 2))) == {"s-0": "cannot tell", "s-1": "cannot tell"}
    standing = Story(up)(printed(bare(1, 2, 2), RebalanceProtocol.EAGER))
    assert done(standing) == {"s-0": "yes", "s-1": "cannot tell"}
    # And 4.0 knows no EAGER: who gave up its partitions is on the bridge.
    down = make_plan(streams(0, one(0, 1, "4.1.1"), one(1, 1, "4.1.1")), "eager")
    eager = Story(down)(streams(1, one(0, 2, None, ran="EAGER"), one(1, 1, "4.1.1")), step=1)
    assert done(eager) == {"s-0": "yes", "s-1": "no"}
    other = Story(down)(streams(1, one(0, 2, None, ran="COOPERATIVE"), one(1, 1, "4.1.1")), step=1)
    assert done(other) == {"s-0": "cannot tell", "s-1": "no"}
    old = Story(down)(printed(bare(1, 2, 2), RebalanceProtocol.EAGER), step=3)
    assert done(old) == {"s-0": "no", "s-1": "cannot tell"}


def sent(version: int, latest: int | None, process: int) -> Subscription:
    data = StreamsUserData(version=version, latest=latest, process_id=UUID(int=process))
    return Subscription(version=3, user_data=encode_streams(data))


def test_threads_of_one_process_are_one_instance() -> None:
    members = tuple(
        Member(member_id=f"m{n}", client_id=f"app-StreamThread-{n}-consumer",
               subscription=sent(11, 11, n // 2))
        for n in range(4)
    )  # fmt: skip
    named = process_names(replace(streams(0), members=members))
    assert sorted(set(named.values())) == ["app …m0 (2 threads)", "app …m2 (2 threads)"]
    assert not process_names(replace(look(0, [], elected="range"), members=members)), (
        "bytes of another client that read as those of Streams"
    )


def test_consumers_that_java_numbered_at_one_address_are_threads_of_one_process() -> None:
    """Two of one number are of two processes, which may have one address, as behind a NAT: nothing
    shows which other ones belong to which.
    """
    at = {"10.0.0.1": [1, 2, 3], "10.0.0.2": [1, 1], "10.0.0.3": [1, 2, 1, 2]}
    found = [
        {"id": f"{host}.{n}", "client": f"consumer-checkout-{number}", "host": f"/{host}"}
        for host, numbers in at.items()
        for n, number in enumerate(numbers)
    ]
    named = process_names(look(0, found))
    made = "consumer-checkout at 10.0.0"
    assert Counter(named.values()) == {f"{made}.1 (3 threads)": 3}
    first = make_plan(look(0, [{**one, "list": ["range"]} for one in found[:3]], elected="range"))
    assert first.advice.names == (f"{made}.1 (3 threads)",)
    assert first.advice.members == first.steps[0].to_do
    assert first.advice.text.endswith("; one process at a time")
    own = [{"id": n, "client": f"consumer-orders-{n}", "host": "/10.0.0.1"} for n in "12"]
    assert not process_names(look(0, own)), "a name that somebody chose"
    static = [{**one, "instance": f"{number}"} for number, one in enumerate(found[:3])]
    assert not process_names(look(0, static)), "the number is the instance id"


def test_one_restart_is_advised_listed_and_priced_for_all_threads_of_a_process() -> None:
    threads = [
        {"id": f"m{n}", "client": f"app-{n // 2}-StreamThread-{n % 2 + 1}-consumer",
         "list": ["stream"], "family": "streams", "version": "2.3.1"}
        for n in range(4)
    ]  # fmt: skip
    base = look(0, threads, elected="stream")

    def planned(threads: int) -> Plan:
        processes = enumerate(base.members)
        members = (replace(m, subscription=sent(11, 11, n // threads)) for n, m in processes)
        return make_plan(replace(base, members=tuple(members)))

    plan, apart = planned(2), planned(1)
    (first, *_), (alone, *_) = plan.steps, apart.steps
    assert len(first.to_do) == 4
    assert (plan.advice.names, plan.advice.members) == (("app-0 (2 threads)",), first.to_do[:2])
    assert apart.advice.members == first.to_do[:1]
    assert "to do     app-0 (2 threads) and app-1 (2 threads)" in render(plan_view(plan), width=120)
    assert [pace.batch for pace in first.cost.paces] == [1, 2]
    assert [pace.batch for pace in alone.cost.paces] == [1, 4]
    assert first.cost.rebalances < alone.cost.rebalances
    assert (first.cost.seconds or 0) < (alone.cost.seconds or 0)
    # A roll-out restarts them together, as the advice says.
    for made, size in ((plan, 2), (apart, 1)):
        assert {len(event.members) for event in rollout(made).events} == {size}


def test_upgrade_from_is_the_version_that_the_bytes_allow() -> None:
    base = streams(0, one(0, 1, None))
    for version, latest, value in ((1, None, "0.10.0"), (2, None, "1.1"), (4, 4, "2.3")):
        member = replace(base.members[0], subscription=sent(version, latest, 1))
        (facts,) = Context(replace(base, members=(member,))).members
        assert comes_from(facts) == value


def by_version(plan: Plan, step: Step) -> tuple[list[str], list[str], list[str]]:
    """Who has to change its version, who has done so, and of whom it is not known."""
    labels = names(plan.baseline.members)
    to_do, done_, unknown = ([labels[id_] for id_ in ids] for ids in
                             (step.to_do, step.done, step.unknown))  # fmt: skip
    return to_do, done_, unknown


def test_streams_rollback_names_the_instances_that_run_the_new_version() -> None:
    """All run EAGER, so the versions alone show what the first step has changed."""
    old = [one(n, 1, "2.3.1") for n in range(3)]
    plan = make_plan(streams(0, *old), expect_members=3)
    new = [one(n, 2, "3.9.1", ran="EAGER") for n in range(3)]
    half = back_from(plan, streams(1, new[0], *old[1:]))
    (step,) = half.steps
    assert (half.exit_code, half.target, step.aim) == (0, "stream", "streams-old")
    assert by_version(half, step) == (["s-0"], ["s-1", "s-2"], [])
    assert "on the plan's version: s-0; on the old version: s-1, s-2" in half.summary
    assert half.advice.text.startswith("restart s-0 with the version and configuration of step 1")
    whole = back_from(plan, streams(2, *new))
    assert by_version(whole, whole.steps[0]) == (["s-0", "s-1", "s-2"], [], [])
    unseen = back_from(plan, streams(3, new[0], one(1, 2, None), old[2]))
    assert [step.aim for step in unseen.steps] == ["streams-eager", "streams-old"]
    assert by_version(unseen, unseen.steps[1]) == (["s-0"], ["s-2"], ["s-1"])
    untouched = back_from(plan, streams(4, *old))
    assert (untouched.path, untouched.exit_code, untouched.steps) == ("finished", 0, ())
    # The kept way back ends when the versions are back, and not before.
    check = Story(whole)
    assert check(streams(5, *new[:2], old[2])).exit_code == 4
    assert check(streams(6, *(one(n, 3, "2.3.1") for n in range(3)))).finished


def test_streams_rollback_to_4_1_restores_the_version_too() -> None:
    """The bridge release runs COOPERATIVE as well: nothing but the version differs."""
    old = [one(n, 1, "4.1.1") for n in range(2)]
    plan = make_plan(streams(0, *old), "eager", expect_members=2)
    half = back_from(plan, streams(1, one(0, 2, "3.9.1", owned=True), old[1]))
    (step,) = half.steps
    assert (half.exit_code, step.aim) == (0, "streams-latest")
    assert by_version(half, step) == (["s-0"], ["s-1"], [])
    eager = back_from(plan, streams(2, *(one(n, 3, "3.9.1", ran="EAGER") for n in range(2))))
    assert [step.aim for step in eager.steps] == ["streams-cooperative", "streams-latest"]
    assert Story(half)(streams(3, *(one(n, 4, "4.1.1") for n in range(2)))).finished


def test_streams_rollback_within_one_version_has_no_version_step() -> None:
    """The instances ran 2.4 to 3.9 with upgrade.from, and run them still."""
    plan = make_plan(streams(0, *(one(n, 1, "3.9.1", ran="EAGER") for n in range(2))))
    assert plan.path == "streams_one_bounce"
    half = streams(1, one(0, 2, "3.9.1", owned=True), one(1, 1, "3.9.1", ran="EAGER"))
    assert [step.aim for step in back_from(plan, half).steps] == ["streams-eager"]


def test_plan_and_gate_agree_on_versions_that_the_protocol_shows() -> None:
    """No instance of 4.0 or later runs EAGER, so the one that does needs no step down."""
    mixed = streams(0, one(0, 1, None, ran="EAGER"), one(1, 1, "4.0.0", ran="COOPERATIVE"))
    made = make_plan(mixed, "eager")
    bridge, *_ = made.steps
    assert bridge.aim == "streams-bridge"
    assert (bridge.done, bridge.unknown) == (("s-0.1-0f0f",), ())
    (first, *_) = verify(made, [], mixed).steps
    assert (first.done, first.to_do) == (bridge.done, bridge.to_do)
