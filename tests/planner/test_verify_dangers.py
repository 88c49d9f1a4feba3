"""What verify calls a danger: refusals, idle members, storms, and lag by partition and owner."""

from collections.abc import Mapping
from typing import Any

import pytest
from msgspec.structs import replace

from rebal.groups.compact import Lag, Partitions
from rebal.groups.model import GroupSnapshot, Timeouts
from rebal.planner.paths import make_plan
from rebal.planner.plan import Accepted, Plan
from rebal.planner.verification.journal import JournalEntry
from rebal.planner.verification.verify import Standing, entry_of, verify
from tests.planner.builder import group_of
from tests.planner.looks import Story, app, bare, id_of, look
from tests.planner.plans import BOTH, COOP, DONE, NO_LIMIT

FINAL = "cooperative-sticky"


def rejected(minutes: float) -> list[dict[str, Any]]:
    return [{"client": "app-0", "list": [FINAL], "at": minutes}]


def test_rejection_is_a_danger_until_every_member_is_back(plan: Plan) -> None:
    short = [app(1, 2, list=BOTH), app(2, list=["range"])]
    standing = verify(plan, [], look(9, short, refusals=rejected(4)))
    assert standing.exit_code == 3
    (danger,) = standing.dangers
    assert "app-0 [cooperative-sticky]" in danger.message
    assert danger.members == (id_of(2),)
    full = [app(0, 3, list=BOTH), app(1, 2, list=BOTH), app(2, 2, list=BOTH)]
    assert verify(plan, [], look(9, full, elected=FINAL, refusals=rejected(8.5))).exit_code == 3
    assert verify(plan, [], look(9, full, elected=FINAL, refusals=rejected(4))).exit_code == 0
    assert verify(plan, [], look(9, short, refusals=rejected(-51))).dangers == ()


def owning(snapshot: GroupSnapshot, counts: list[int]) -> GroupSnapshot:
    members, at = [], 0
    for member, count in zip(snapshot.members, counts, strict=True):
        owned = {"orders": Partitions(range(at, at + count))} if count else {}
        members.append(replace(member, assignment=owned))
        at += count
    return replace(snapshot, members=tuple(members))


def test_member_without_partitions_is_a_danger_only_after_half_a_minute(plan: Plan) -> None:
    check = Story(plan)
    members = [bare(0, 2), bare(1), bare(2)]
    codes = [check(owning(look(m, members), [0, 6, 6])).exit_code for m in (1, 1.3, 1.6)]
    assert codes == [4, 4, 3]
    # It got some in between: the clock starts again.
    check = Story(plan)
    check(owning(look(1, members), [0, 6, 6]))
    check(owning(look(1.3, members), [4, 4, 4]))
    check(owning(look(1.5, members), [0, 6, 6]))
    assert check(owning(look(1.8, members), [0, 6, 6])).exit_code == 4


def test_more_members_than_partitions_leave_a_member_idle_without_danger(plan: Plan) -> None:
    check = Story(plan)
    members = [bare(0, 2), bare(1), bare(2)]
    for minute in range(1, 9):
        assert not check(owning(look(minute, members), [0, 1, 1])).dangers


def test_restarts_of_pods_that_share_one_client_id_are_no_crash_loop(plan: Plan) -> None:
    check = Story(plan)
    for start in range(1, 7):
        same = [{"id": f"pod-{n}.{start}", "client": "pod", "family": None} for n in range(2)]
        assert not check(look(start, same, generation=5 + 2 * start)).dangers


def crash_loop(tell: Story, *starts: float) -> Standing:
    """app-0 is seen with a new member id at each of these minutes."""
    for number, minute in enumerate(starts, 1):
        members = [bare(0, number), bare(1), bare(2)]
        standing = tell(look(minute, members, generation=5 + 2 * number))
    return standing


def test_crash_loop_ends_once_the_process_runs_longer_than_the_ones_before(plan: Plan) -> None:
    check = Story(plan)
    assert not crash_loop(Story(plan), 1, 2, 3, 4).dangers
    began = crash_loop(check, 1, 2, 3, 4, 5.5, 6)
    assert "app-0 5 times" in began.dangers[0].message
    until = "This danger ends at 09:07:30Z at the latest, if no member rejoins until then."
    assert until in began.dangers[0].message
    cured = [look(m, [bare(0, 6), bare(1), bare(2)], generation=17) for m in (7, 7.4, 7.6, 9)]
    assert [check(each).exit_code for each in cured] == [3, 3, 4, 4]
    # Until then it may still end as its earlier processes did.
    check = Story(plan)
    crash_loop(check, 1, 2, 3, 4, 5.5, 6)
    check(look(7, [bare(1), bare(2)], generation=18))
    again = check(look(7.6, [bare(0, 7), bare(1), bare(2)], generation=19))
    assert "app-0 6 times" in again.dangers[0].message
    assert "ends at 09:09:12Z" in again.dangers[0].message


def test_a_storm_that_is_over_ends_after_a_quiet_time(plan: Plan) -> None:
    check = Story(plan)
    members = [bare(n) for n in range(3)]
    for minute, number in ((1, 5), (2, 12), (2.5, 19)):
        standing = check(look(minute, members, generation=number))
    assert "ends at 09:03:30Z" in standing.dangers[0].message
    assert check(look(3.4, members, generation=19)).dangers
    assert not check(look(3.6, members, generation=19)).dangers
    assert check(look(3.7, members, generation=26)).dangers


def test_rebalance_storm_is_counted_by_new_member_ids_if_no_generation_is_known(plan: Plan) -> None:
    check = Story(plan)
    for start in range(2, 10):
        standing = check(look(start / 2, [bare(n, start) for n in range(3)]))
    assert standing.dangers[0].message.startswith("21 new member ids since 09:01:00Z: more than")


def test_a_rebalance_that_does_not_end_is_a_danger(plan: Plan) -> None:
    check = Story(plan)
    members = [bare(n) for n in range(3)]
    for minute in range(1, 6):
        standing = check(look(minute, members, state="PreparingRebalance", elected=None))
        assert standing.exit_code == 4
    standing = check(look(6, members, state="PreparingRebalance", elected=None))
    assert [danger.kind for danger in standing.dangers] == ["stuck"]


def test_a_plan_without_steps_is_not_finished_while_a_danger_stands() -> None:
    """What a plan that is made now says has no past: its dangers are those of any look."""
    alone = [{"id": n, "client": n, "instance": n, "list": [FINAL],
              "timeouts": [300_000, 60_000], "joined": 0} for n in "ab"]  # fmt: skip
    more: dict[str, Any] = {"elected": FINAL, "cluster": NO_LIMIT}
    check = Story(make_plan(look(0, alone, **more)))
    assert (check.plan.steps, check(look(1, alone, **more)).finished) == ((), True)
    out = {"client": "a", "instance": "a", "list": [FINAL], "at": 1.5}
    kept = check(look(2, alone, **more, refusals=[out]))
    assert (kept.advice.action, kept.exit_code, kept.finished) == ("start", 3, False)
    assert kept.advice.names == ("a",)
    other = {"client": "d", "list": [FINAL], "at": 1.5}
    for given, action in ((None, "evidence"), (2, "wait")):
        asks = verify(
            check.plan, [], look(4, alone, **more, refusals=[other]), expect_members=given
        )
        assert (asks.advice.action, asks.exit_code, asks.finished) == (action, 4, False)
    left = verify(check.plan, [], look(2, alone[1:], **more, refusals=[{**out, "list": ["range"]}]))
    assert (left.advice.action, left.exit_code) == ("start", 3), "nobody waits for a rejected one"
    assert left.advice.assignors == (FINAL,)
    loops = Story(check.plan)
    for n in range(8):
        last = loops(look(1 + n / 3, [alone[0], {**alone[1], "id": f"b.{n}"}], **more))
    assert ([one.kind for one in last.dangers], last.next, last.exit_code, last.finished) == (
        ["storm"], "restart nothing until this danger is over", 3, False,
    )  # fmt: skip
    loops(look(5, alone[:1], **more), accepted=Accepted(departed=("b",)))
    assert (loops.entries[-1].departed, loops(look(20, alone[:1], **more)).present) == (("b",), 1)


@pytest.mark.parametrize("at", [-0.5, 1])
def test_a_stopped_static_member_may_fill_the_place_of_a_rejected_dynamic_one(at: float) -> None:
    kept = {"id": "s", "client": "s", "instance": "s", "list": ["cooperative-sticky"],
            "timeouts": [300_000, 60_000], "joined": -20}  # fmt: skip
    out = {"client": "d", "list": ["range"], "at": at}
    made = make_plan(group_of({"members": [kept, app(1, list=BOTH)], "reloaded": False}))

    def held(minutes: float, static: dict[str, object], *seen: JournalEntry,
             **more: float) -> Standing:  # fmt: skip
        members = [static, app(1, 2, list=["cooperative-sticky"])]
        now = look(minutes, members, elected=FINAL, refusals=[{**out, **more}])
        return verify(made, seen, now, expect_members=2)

    first = held(2.5, kept)
    assert (first.advice.action, first.exit_code, first.finished) == ("wait", 4, False)
    assert first.next.startswith("wait: d was rejected and no log shows that it rejoined; s may")
    assert "Look again after 09:07:30Z" in first.next
    before = entry_of(made, first, look(2.5, [kept, app(1, 2)]))
    assert held(7, kept, before).advice.action == "wait"
    assert held(8, kept, before).finished, "the static member's session is over: it runs"
    again = held(2.5, {**kept, "id": "s.2"})
    assert (again.advice.action, again.finished, again.advice.commands) == ("wait", False, ())
    assert "a static member that joined since may have stopped" in again.next
    before = entry_of(made, again, look(2.5, [{**kept, "id": "s.2"}, app(1, 2)]))
    assert held(8, {**kept, "id": "s.2"}, before).finished, "it runs"
    assert held(2.5, kept, at=-6).finished, "the rejection is a session older than the plan"


def test_rejection_before_the_plan_is_a_danger_once_a_static_member_has_left() -> None:
    final = ["cooperative-sticky"]
    kept = [{"id": n, "client": n, "instance": n, "list": final} for n in "st"]
    out = {"client": "d", "list": ["range"], "at": -0.5}
    made = make_plan(group_of({"members": [*kept, app(1, list=BOTH)], "reloaded": False}))

    def dangers(*members: dict[str, object]) -> list[str]:
        now = look(2, [*members], elected=FINAL, refusals=[out])
        return [one.kind for one in verify(made, [], now, expect_members=3).dangers]

    assert dangers(*kept, app(1, 2, list=final)) == []
    assert dangers(*kept) == [], "a dynamic member restarts"
    assert dangers(kept[0], app(1, 2, list=final)) == ["rejected"]


ENDED = [app(n, 3, list=DONE) for n in range(3)]
Offsets = Mapping[int, tuple[int | None, int | None]]


def reading(
    minutes: float, offsets: Offsets, members: list[dict[str, Any]] | None = None
) -> GroupSnapshot:
    """The group when all steps are done: app-0 owns orders-0 and -1, app-1 -2 and -3, and so on."""
    made = look(minutes, ENDED if members is None else members, **COOP)
    owners = tuple(
        replace(member, assignment={"orders": Partitions((2 * n, 2 * n + 1))})
        for n, member in enumerate(made.members)
    )
    lag = tuple(Lag("orders", n, *offsets[n]) for n in sorted(offsets))
    return replace(made, members=owners, lag=lag)


def moving(minutes: float, *, dead: Mapping[int, int] | None = None) -> Offsets:
    """Each partition gets 20 records a minute and is 5 behind; `dead` ones stay where they are.

    `dead` is partition → the minute of its last commit.
    """
    ends = {n: (1000 * n + round(20 * minutes)) for n in range(6)}
    last = {n: 1000 * n + round(20 * at) for n, at in (dead or {}).items()}
    return {n: (last.get(n, end - 5), end + 5) for n, end in ends.items()}


@pytest.fixture
def tell(plan: Plan) -> Story:
    story = Story(plan)
    story(look(1, [app(n, 2, list=BOTH) for n in range(3)], **COOP))
    return story


def waits(standing: Standing) -> bool:
    assert standing.gate == "yes"
    assert standing.finished is (standing.advice.action == "none")
    return standing.advice.action == "wait"


def test_crashed_static_member_keeps_the_plan_open_and_becomes_a_lag_danger(tell: Story) -> None:
    """app-2 crashed at 10:00. Its session lasts 30 minutes, so the coordinator still counts it."""
    for minutes in (10, 10.5, 11, 12, 15, 19.9):
        dead = {4: 10, 5: 10}
        standing = tell(reading(minutes, moving(minutes, dead=dead)))
        assert waits(standing), minutes
        assert standing.dangers == ()
    assert "until app-2 has committed orders-4, orders-5" in standing.next
    assert "09:20:00Z at the latest" in standing.next
    standing = tell(reading(20.1, moving(20.1, dead=dead)))
    assert (standing.exit_code, standing.finished) == (3, False)
    (danger,) = standing.dangers
    assert (danger.kind, danger.members) == ("lag", (id_of(2, 3),))
    assert danger.message.startswith(
        "app-2 has committed nothing on orders-4, orders-5 since 09:10"
    )
    assert "app-0" not in danger.message
    # It runs again and reads what has come.
    assert tell(reading(21, moving(21, dead={4: 20.5, 5: 20.5}))).dangers == ()


def test_a_quiet_topic_with_records_left_is_no_fault(tell: Story) -> None:
    """Of a transactional topic the last offset is a marker, which nobody commits beyond."""
    still = dict.fromkeys(range(6), (100, 101))
    assert waits(tell(reading(10, still)))
    assert waits(tell(reading(10.5, still)))
    assert tell(reading(11, still)).finished
    assert tell(reading(60, still)).finished


def test_a_group_that_has_read_everything_is_done_at_once(tell: Story) -> None:
    assert tell(reading(10, dict.fromkeys(range(6), (7, 7)))).finished


def test_a_partition_that_was_caught_up_between_two_looks_is_read(tell: Story) -> None:
    ends = dict.fromkeys(range(6), (100, 100))
    tell(reading(10, {**ends, 0: (100, 140)}))
    assert tell(reading(10.1, {**ends, 0: (140, 140)})).finished
    assert tell(reading(10.2, {**ends, 0: (140, 180)})).finished


@pytest.mark.parametrize("every", [0.1, 1, 3], ids=["6 s", "1 min", "3 min"])
def test_slow_commits_are_no_danger_and_end_the_plan(tell: Story, every: float) -> None:
    """Each partition commits at its own moment, so that never all are new at one look."""

    def offsets(minutes: float) -> Offsets:
        found = {}
        for n in range(6):
            phase = every * n / 6
            last = (minutes - phase) // every * every + phase
            found[n] = (round(60 * last), round(60 * minutes))
        return found

    looks = [10 + n / 6 for n in range(90)]
    standings = [tell(reading(minutes, offsets(minutes))) for minutes in looks]
    assert not any(standing.dangers for standing in standings)
    ends = [minutes for minutes, each in zip(looks, standings, strict=True) if each.finished]
    assert ends
    assert ends[0] <= 10 + 2.5 * max(every, 0.5)
    assert standings[-1].finished


def test_a_restart_begins_the_wait_again(tell: Story) -> None:
    """What the process before it committed says nothing of the one that runs now."""
    for minutes in (10, 10.5):
        standing = tell(reading(minutes, moving(minutes)))
    assert standing.finished
    again = [*ENDED[:2], app(2, 4, list=DONE)]
    for minutes in (11, 11.5):
        standing = tell(reading(minutes, moving(minutes, dead={4: 10.5, 5: 10.5}), again))
    assert waits(standing)
    assert "until app-2 has committed orders-4, orders-5" in standing.next


def test_long_poll_intervals_are_given_twice_their_time(tell: Story) -> None:
    def slow(minutes: float) -> GroupSnapshot:
        made = reading(minutes, moving(minutes, dead={4: 10, 5: 10}))
        long = Timeouts(session_ms=45_000, rebalance_ms=900_000)
        return replace(made, members=tuple(replace(m, timeouts=long) for m in made.members))

    for minutes in (10, 20, 30, 39):
        standing = tell(slow(minutes))
        assert waits(standing)
    assert "09:40:00Z at the latest" in standing.next
    assert tell(slow(41)).exit_code == 3


@pytest.mark.parametrize(
    "offsets",
    [{}, dict.fromkeys(range(6), (None, 50)), dict.fromkeys(range(6), (40, None))],
    ids=["no right", "nothing committed", "no end offsets"],
)
def test_without_offsets_lag_is_not_judged_and_the_plan_ends(tell: Story, offsets: Offsets) -> None:
    standing = tell(reading(10, offsets))
    assert standing.finished
    expected = "lag is not judged of 6 partitions"
    assert any(note.startswith(expected) for note in standing.notes), standing.notes


def test_partitions_without_an_owner_are_not_lag_of_a_member(tell: Story) -> None:
    """A topic that the group has left keeps its committed offsets."""
    for minutes in (10, 15, 25):
        standing = tell(reading(minutes, {**moving(minutes), 9: (3, 100 + round(minutes))}))
    assert standing.finished
    assert standing.dangers == ()


def test_journal_keeps_offsets_of_a_large_group_short_and_30_seconds_apart(tell: Story) -> None:
    def large(minutes: float) -> GroupSnapshot:
        made = reading(minutes, {})
        owner, *others = made.members
        owner = replace(owner, assignment={"orders": Partitions(range(3_000))})
        lag = tuple(Lag("orders", n, 10**6, 10**6 + 1 + round(minutes)) for n in range(3_000))
        return replace(made, members=(owner, *others), lag=lag)

    standing = tell(large(10))
    assert waits(standing)
    assert len(standing.next) < 400
    assert len(str(tell.entries[-1].behind.dump())) < 60_000
    for minutes, stands in ((10.1, False), (10.4, False), (10.6, True)):
        tell(large(minutes))
        assert (tell.entries[-1].behind is not None) is stands
