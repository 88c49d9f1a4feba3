"""What verify says of one look, and of several, and what it must not make of what it remembers."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from rebal.groups.model import Coordinator, CoordinatorKind, GroupSnapshot
from rebal.groups.snapshot.redact import redact
from rebal.planner.commands import Given
from rebal.planner.paths import make_plan
from rebal.planner.plan import Accepted, Action, Plan
from rebal.planner.verification.journal import JournalEntry, PlanContext
from rebal.planner.verification.outsiders import Doubt, OutsiderKind
from rebal.planner.verification.verify import Standing, verify
from tests.planner.builder import AT, group_of
from tests.planner.looks import Story, app, bare, done, id_of, look, pods
from tests.planner.plans import BOTH, DONE, NO_LIMIT

COORDINATOR = Coordinator(broker_id=1, kind=CoordinatorKind.JAVA)


def test_a_restart_without_the_list_of_bounce_1_is_what_the_probe_shows(plan: Plan) -> None:
    members = [bare(n, 2) for n in range(3)]
    known = Accepted(families={"*": "java"})
    probe = {"cooperative-sticky": False, "range": True}
    standing = verify(plan, [], look(1, members, probe=probe), accepted=known)
    assert {member.why for member in standing.members} == {"no evidence shows its list"}
    said = "the probe shows that the list of one or more of app-0, app-1, app-2 has no cooperative"
    assert said in standing.next


def test_a_member_that_runs_eager_after_the_vote_still_has_an_eager_assignor() -> None:
    """Such as a pod of the old version that was added in the second bounce."""
    made = make_plan(look(0, pods(1, 1, list=BOTH), elected=DONE[0]))
    new = [app(0, 2, list=DONE), app(1, 2, ran="EAGER")]
    standing = verify(made, [], look(1, new, elected=DONE[0]))
    assert done(standing) == {"app-0": "yes", "app-1": "no"}
    assert standing.next == "restart app-1 with [cooperative-sticky]; one member at a time"


def test_a_missing_one_of_equal_members_is_not_guessed() -> None:
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
def test_restart_counts_as_one_since_the_load_only_in_the_plan_s_leader_epoch(
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
    tell = Story(made)
    told = tell(look(1, pods(1, 1, list=BOTH), **disputed))
    assert (told.exit_code, told.advice.recommended) == (4, False)
    assert told.next.endswith("the evidence on app-1 contradicts itself (RB902)")
    # The journal keeps none of the two lists.
    later = tell(look(2, [app(0, list=BOTH), app(1)], cluster=NO_LIMIT))
    assert done(later) == {"app-0": "yes", "app-1": "cannot tell"}


SESSION = {"timeouts": [600_000, 60_000]}


def final(*numbers: int) -> list[dict[str, Any]]:
    return [app(n, 2, list=DONE) for n in numbers]


def rejected(client: str, minutes: float | None) -> list[dict[str, Any]]:
    return [{"client": client, "list": ["roundrobin"], "at": minutes}]


def coop(minutes: float, members: list[dict[str, Any]], **more: Any) -> GroupSnapshot:
    return look(minutes, members, elected="cooperative-sticky", cluster=NO_LIMIT, **more)


def test_second_reload_is_cured_like_the_first() -> None:
    members = [app(n, list=BOTH) for n in range(3)]
    tell = Story(make_plan(look(0, members, cluster=NO_LIMIT)))
    first = tell(look(1, members, generation=5, cluster=NO_LIMIT, reloaded=True))
    assert first.advice.action is Action.RESTART
    members = [app(0, 2, list=BOTH), *members[1:]]
    cured = tell(look(2, members, generation=7, cluster=NO_LIMIT))
    assert cured.advice.assignors == ("cooperative-sticky",)
    second = tell(look(3, members, generation=7, cluster=NO_LIMIT, reloaded=True))
    assert second.advice.action is Action.RESTART
    assert "changed nothing" not in second.next


@pytest.mark.parametrize("threads", [1, 3])
def test_restart_of_a_process_that_changed_nothing_is_not_advised_again(threads: int) -> None:
    rest = {**app(9, list=BOTH), "instance": "app-9"}

    def at(minutes: float, start: int) -> GroupSnapshot:
        own = [
            {"id": f"m{n}.{start}", "client": f"consumer-checkout-{n}", "host": "/10.0.0.1",
             "list": BOTH}
            for n in range(threads)
        ]  # fmt: skip
        more = {"cluster": NO_LIMIT, "reloaded": bool(minutes), "generation": 4 + start}
        return look(minutes, [*own, rest], **more)

    tell = Story(make_plan(at(0, 1)))
    first = tell(at(1, 1))
    assert (first.advice.action, len(first.advice.members)) == (Action.RESTART, threads)
    assert "the rebalance changed nothing" in tell(at(2, 2)).next


def test_second_growth_of_a_topic_gets_an_owner_like_the_first() -> None:
    begun = [app(n, list=BOTH) for n in range(3)]
    tell = Story(make_plan(look(0, begun, cluster=NO_LIMIT), expect_members=3))

    def grown(minutes: float, start: int, generation: int, partitions: int) -> Any:
        members, topics = [app(0, start, list=DONE), *final(1, 2)], {"orders": partitions}
        seen = coop(minutes, members, generation=generation, topics=topics)
        asked = (replace(one, subscribed_topics=("orders",)) for one in seen.members)
        return replace(seen, members=tuple(asked))

    tell(grown(1, 2, 5, 13))
    assert tell(grown(2, 2, 5, 13)).advice.action is Action.RESTART
    assert tell(grown(3, 3, 7, 12)).finished, "each partition has an owner"
    tell(grown(60, 3, 7, 13))
    again = tell(grown(61, 3, 7, 13))
    assert again.advice.action is Action.RESTART, again.next


def test_rejected_stranger_hides_no_missing_member() -> None:
    """`audit` was rejected hours ago; app-1 restarts just now."""
    members = [app(n, list=BOTH) for n in range(4)]
    tell = Story(make_plan(look(0, members, cluster=NO_LIMIT)))
    tell(coop(2, [*final(0), *members[1:]], refusals=rejected("audit", 1)))
    now = tell(coop(180, [*final(0), *members[2:]]))
    assert "app-1" in [one.name for one in now.outsiders if one.kind is OutsiderKind.MISSING]
    assert "app-1" in now.why[0]
    assert "audit" not in now.why[0], "it was never a member"
    assert "app-1" in now.advice.names


def test_client_that_a_log_showed_back_stays_back_when_the_log_is_rotated() -> None:
    begun = [app(n, list=BOTH) for n in (0, 1)]
    tell = Story(make_plan(look(0, begun, cluster=NO_LIMIT)))
    tell(coop(2, begun[:1], refusals=rejected("app-1", 1.9)))
    back = coop(4, final(0, 1), refusals=rejected("app-1", 1.9))
    rejoined = {"rejoined_as": "app-1.2-0f0f", "rejoined_at": AT}
    back = replace(back, refusals=tuple(replace(one, **rejoined) for one in back.refusals))
    assert tell(back).finished
    assert tell(coop(6, final(0, 1))).finished


def test_remembered_list_that_this_look_contradicts_is_left_out() -> None:
    plan = make_plan(look(0, [app(n, list=BOTH) for n in (0, 1)]))
    (shown, hidden) = verify(plan, [], look(1, [app(0, lacks=["range"]), app(1)])).members
    assert (shown.list, hidden.list) == ((), tuple(BOTH))


def test_only_static_members_that_may_have_stopped_are_named() -> None:
    """s-1 joined after the rejection."""
    begun = [app(0, list=BOTH)]
    begun += [app(n, list=BOTH, instance=f"s-{n}", **SESSION) for n in (1, 2)]
    given = Given(connection=("-b", "h:9092"), brokers="h:9092", plan="p.yaml")
    tell = Story(make_plan(look(0, begun, cluster=NO_LIMIT), expect_members=3, given=given))
    two = app(2, 2, list=DONE, instance="s-2", joined=1, **SESSION)
    tell(coop(1.5, [*final(0), begun[1], two]))
    one = app(1, 2, list=DONE, instance="s-1", joined=5, **SESSION)
    seen = coop(6, [*final(0), one, two], refusals=rejected("app-9", 2))
    now = tell(seen, expect_members=3)
    assert "s-2 may have stopped" in now.next
    assert "s-1" not in now.next
    (removal,) = now.advice.commands
    assert removal.use == "only if s-2 is gone for good: remove its entry"
    assert removal.line.endswith(f"groups remove-members -g {seen.group.group_id} -i s-2")


def test_a_look_without_its_coordinator_tells_no_load() -> None:
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


def test_nobody_is_missing_by_a_pseudonym() -> None:
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
    said = verify(made, [], with_uuids(logged)).next
    assert "--expect-members 4 if it belongs" in said, "it is counted once"
