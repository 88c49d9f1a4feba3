"""Lag judged by partition and owner: a static member that died keeps its partitions unread."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from msgspec.structs import replace

from rebal.groups.compact import Lag, Partitions
from rebal.groups.model import GroupSnapshot, Timeouts
from rebal.planner.plan import Plan
from rebal.planner.verification.verify import Standing
from tests.planner.looks import Story, app, id_of, look
from tests.planner.plans import BOTH, COOP, DONE

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


def test_a_dead_static_member_never_lets_the_plan_be_carried_out(tell: Story) -> None:
    """app-2 died at 10:00; its session lasts 30 minutes, so the coordinator knows nothing of it."""
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
    assert danger.kind == "lag"
    assert danger.members == (id_of(2, 3),)
    assert danger.message.startswith(
        "app-2 has committed nothing on orders-4, orders-5 since 09:10"
    )
    assert "app-0" not in danger.message
    # It runs again and reads what has come.
    again = tell(reading(21, moving(21, dead={4: 20.5, 5: 20.5})))
    assert again.dangers == ()


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
    said = "lag is not judged of 6 partitions"
    assert any(note.startswith(said) for note in standing.notes), standing.notes


def test_partitions_without_an_owner_are_not_lag_of_a_member(tell: Story) -> None:
    """A topic that the group has left keeps its committed offsets."""
    for minutes in (10, 15, 25):
        offsets = {**moving(minutes), 9: (3, 100 + round(minutes))}
        standing = tell(reading(minutes, offsets))
    assert standing.finished
    assert standing.dangers == ()


def test_a_large_group_keeps_one_line_of_offsets_a_topic(tell: Story) -> None:
    def large(minutes: float) -> GroupSnapshot:
        made = reading(minutes, {})
        owner, *others = made.members
        owner = replace(owner, assignment={"orders": Partitions(range(3_000))})
        lag = tuple(Lag("orders", n, 10**6, 10**6 + 1 + round(minutes)) for n in range(3_000))
        return replace(made, members=(owner, *others), lag=lag)

    standing = tell(large(10))
    assert waits(standing)
    assert len(standing.next) < 400
    kept = tell.entries[-1].behind
    assert len(str(kept.dump())) < 60_000
    for minutes, stands in ((10.1, False), (10.4, False), (10.6, True)):
        tell(large(minutes))
        assert (tell.entries[-1].behind is not None) is stands
