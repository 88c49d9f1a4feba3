"""The engine beside captured groups: the same deeds give the same generations and partitions."""

from collections.abc import Iterator
from functools import cache
from itertools import groupby
from pathlib import Path
from random import Random
from typing import Any, Final

import pytest

from rebal.groups.model import RebalanceProtocol
from rebal.groups.wire.offsets_topic import CurrentAssignment, GroupEpoch
from rebal.planner.rehearsal.engine.agenda import Chance
from rebal.planner.rehearsal.engine.coordinator import ClassicTable
from rebal.planner.rehearsal.engine.member import Process
from rebal.planner.rehearsal.engine.memory import Brokers, Error, MemberState, ReconcilingMember
from rebal.planner.rehearsal.engine.world import World
from tests.planner.captured import BUNDLED, FOLDER
from tests.planner.rehearsal.captures.capture import read
from tests.planner.rehearsal.captures.replay import Comparison, replay, settled, stories

KINDS = {"state", "assignor", "leader", "members", "partitions", "rejections", "starts"}


def compare(folder: Path, seed: int = 0, *, only: tuple[str, ...] = ()) -> Comparison:
    """Replay the groups of a capture, or those that are named."""
    capture, all_ = read(folder), Comparison()
    for story in stories(capture):
        if not only or story.group.name in only:
            all_.take(replay(story, capture, seed))
    return all_


compared = cache(compare)


def test_replay_of_captured_groups_equals_the_capture(capsys: pytest.CaptureFixture[str]) -> None:
    found = compared(FOLDER)
    with capsys.disabled():
        print(f"\n{found}")
    assert {*found.expected} >= KINDS
    assert found.share >= 0.99, found


def test_replay_of_the_captured_timeouts_equals_the_capture() -> None:
    assert compared(BUNDLED.with_name("captures_timeouts")).differences == []


def test_each_difference_from_the_bundled_capture_has_a_reason() -> None:
    unexplained = [str(one) for one in compared(BUNDLED).differences if not one.reason]
    assert unexplained == []


def test_replay_does_not_depend_on_the_seed() -> None:
    shares = {seed: compared(BUNDLED, seed).share for seed in range(1, 4)}
    assert min(shares.values()) >= 0.99, shares


def test_each_group_of_the_bundled_capture_is_compared_at_several_points() -> None:
    points = {story.group.name: len(settled(story)) for story in stories(read(BUNDLED))}
    assert len(points) == 15
    assert min(points.values()) >= 3


def test_replay_notices_a_coordinator_that_rejects_no_join(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ClassicTable, "admits", lambda *_: True)
    found = compare(BUNDLED, only=("checkout", "pyapp"))
    missed = [one for one in found.differences if one.kind == "rejections"]
    assert len(missed) >= 5
    assert all(one.capture == [Error.INCONSISTENT_GROUP_PROTOCOL.name] for one in missed)


def test_replay_notices_members_with_an_eager_protocol_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        "rebal.planner.rehearsal.engine.consumer.fixed_protocol", lambda *_: RebalanceProtocol.EAGER
    )
    found = compare(BUNDLED, only=("billing",))
    assert {one.kind for one in found.differences} >= {"rebalances"}


STATES: Final = (MemberState.STABLE, MemberState.UNREVOKED, MemberState.UNRELEASED)
State = tuple[str, int, MemberState, tuple[int, ...], tuple[int, ...]]
"""Member id, epoch, state, assigned partitions, partitions to revoke."""


def state(member_id: str, value: CurrentAssignment) -> State:
    assigned, revoking = (
        tuple(number for _, numbers in partitions for number in numbers)
        for partitions in (value.assigned, value.pending_revocation)
    )
    return member_id, value.member_epoch, STATES[value.state], assigned, revoking


def distinct(states: Iterator[State]) -> dict[str, list[State]]:
    """The states of each member in order, without those that do not differ from the last."""
    found: dict[str, list[State]] = {}
    for state, _ in groupby(states):
        if found.setdefault(state[0], [])[-1:] != [state]:
            found[state[0]].append(state)
    return found


class Ids(Chance):
    """The member ids of the capture, in the order in which each client got them."""

    def __init__(self, ids: dict[str, list[str]]) -> None:
        super().__init__(Random(0))
        self._ids = ids

    def member_id(self, client_id: str, instance_id: str | None, now: float) -> str:
        return self._ids[client_id].pop(0)

    def kip848_member_id(self, client_id: str, now: float) -> str:
        return self._ids[client_id].pop(0)


def test_each_epoch_and_each_member_s_states_are_those_of_the_capture(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two Java 4.1.1 members of `migrating` restart one by one with group.protocol=consumer.

    Records of the kinds 2 and 3 give generations and epochs, those of the kind 8 each member's
    state (KIP-848).
    """
    group = read(BUNDLED).groups["migrating"]
    records = [record for record in group.records if record.value is not None]
    stored = [fact for fact in group.facts if fact.value is not None]
    began = records[0].at
    classic = {
        member.client_id: member.member_id
        for record in records
        if record.value is not None
        for member in record.value.members
    }
    current = [
        state(fact.member_id, fact.value)
        for fact in stored
        if isinstance(fact.value, CurrentAssignment)
    ]
    first, second = (id_ for id_ in dict.fromkeys(one[0] for one in current) if "mig" not in id_)
    joins = {
        id_: min(fact.at for fact in stored if fact.member_id == id_) - began
        for id_ in (first, second)
    }

    seen: list[State] = []
    advance = ReconcilingMember.advance

    def logged(member: ReconcilingMember, *args: Any) -> bool:
        made = advance(member, *args)
        seen.append(
            (
                member.member_id,
                member.epoch,
                member.state,
                tuple(sorted(number for _, number in member.assigned)),
                tuple(sorted(number for _, number in member.revoking)),
            )
        )
        return made

    monkeypatch.setattr(ReconcilingMember, "advance", logged)
    random = Random(0)
    world = World(
        {"payments": 6},
        Brokers(initial_delay=0.0, consumer_heartbeat=1.0),
        random,
        chance=Ids({"mig-0": [classic["mig-0"], first], "mig-1": [classic["mig-1"], second]}),
    )

    def process(name: str, protocol: str) -> Process:
        return Process(
            name=name,
            client_id=name,
            topics=("payments",),
            protocol=protocol,
            session=6.0,
            rebalance=20.0 if protocol == "classic" else 300.0,
            heartbeat=1.0,
        )

    for name, at in (("mig-0", 0.0), ("mig-1", 5.0)):
        world.start(process(name, "classic"), at)
    for name, gone, joined in (("mig-0", 16.0, joins[first]), ("mig-1", 40.0, joins[second])):
        world.agenda.run(gone)
        world.restart(process(name, "consumer"), joined - gone)
    assert world.settle(60.0)

    generations = [record.value.generation for record in records if record.value is not None]
    epochs = [fact.value.epoch for fact in stored if isinstance(fact.value, GroupEpoch)]
    assert (generations, epochs) == ([0, 1, 2, 3], [3, 4, 5, 6])
    assert [run.generation for run in world.rebalances] == [1, 2, 3, 4, 5, 6]
    assert [run.assignor for run in world.rebalances] == ["range"] * 3 + ["uniform"] * 3

    expected = distinct(iter(current))
    # The first record of a member that was classic is the conversion itself.
    assert expected[classic["mig-1"]].pop(0)[1:3] == (3, MemberState.STABLE)
    assert distinct(iter(seen)) == expected
    assert {len(found) for found in expected.values()} == {1, 2, 5}
    assert sorted(world.consumers["mig-0"].owned) == [0, 1, 2]
    assert sorted(world.consumers["mig-1"].owned) == [3, 4, 5]
