"""The captured group `migrating` against the engine: what its broker stored, record by record.

Its two Java 4.1.1 members restart one by one with group.protocol=consumer. Records of the kinds 2,
3 and 6 give generations and epochs, those of the kind 8 each member's state (KIP-848).
"""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from random import Random
from typing import Any, Final

import pytest

from rebal.groups.wire.offsets_topic import (
    CurrentAssignment,
    GroupEpoch,
    GroupMetadata,
    TargetEpoch,
    decode_consumer_group_record,
    decode_group_metadata,
    decode_key,
)
from rebal.planner.rehearsal.engine.chance import Chance
from rebal.planner.rehearsal.engine.memory import Brokers
from rebal.planner.rehearsal.engine.process import Process
from rebal.planner.rehearsal.engine.reconciliation import MemberState, ReconcilingMember
from rebal.planner.rehearsal.engine.world import World

DATA: Final = Path(__file__).parents[2] / "data" / "captures"
STATES: Final = (MemberState.STABLE, MemberState.UNREVOKED, MemberState.UNRELEASED)
State = tuple[str, int, MemberState, tuple[int, ...], tuple[int, ...]]
"""Member id, epoch, state, assigned partitions, partitions to revoke."""


def records() -> Iterator[tuple[float, str, Any]]:
    """Yield the group's records but its commits: seconds since the first, member id, value."""
    first = 0.0
    with gzip.open(DATA / "consumer_offsets.jsonl.gz", "rt", encoding="utf-8") as lines:
        rows = [json.loads(line) for line in lines]
    for row in rows:
        data = base64.b64decode(row["key"])
        if b"migrating" not in data or int.from_bytes(data[:2]) < 2:
            continue
        key: Any = decode_key(data)
        at = row["timestamp"] / 1000
        first = first or at
        if row["value"] is not None:
            value, kind = base64.b64decode(row["value"]), key.version
            classic = kind == 2
            read = (
                decode_group_metadata(value)
                if classic
                else decode_consumer_group_record(kind, value)
            )
            yield at - first, getattr(key, "member_id", ""), read


def numbers(partitions: Any) -> tuple[int, ...]:
    return tuple(number for _, some in partitions for number in some)


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
    stored = list(records())
    classic = {
        member.client_id: member.member_id
        for _, _, value in stored
        if isinstance(value, GroupMetadata)
        for member in value.members
    }
    current = [
        (id_, value.member_epoch, STATES[value.state], numbers(value.assigned),
         numbers(value.pending_revocation))
        for _, id_, value in stored
        if isinstance(value, CurrentAssignment)
    ]  # fmt: skip
    first, second = (id_ for id_ in dict.fromkeys(one[0] for one in current) if "mig" not in id_)
    joins = {id_: min(at for at, one, _ in stored if one == id_) for id_ in (first, second)}

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

    generations = [value.generation for _, _, value in stored if isinstance(value, GroupMetadata)]
    for name, at in (("mig-0", 0.0), ("mig-1", 5.0)):
        world.start(process(name, "classic"), at)
    for name, gone, joined in (("mig-0", 16.0, joins[first]), ("mig-1", 40.0, joins[second])):
        world.agenda.run(gone)
        world.restart(name, joined - gone, process(name, "consumer"))
    assert world.settle(60.0)

    epochs = [value.epoch for _, _, value in stored if isinstance(value, GroupEpoch)]
    targets = [value.assignment_epoch for _, _, value in stored if isinstance(value, TargetEpoch)]
    assert (generations, epochs, targets) == ([0, 1, 2, 3], [3, 4, 5, 6], [3, 4, 5, 6])
    assert [run.generation for run in world.rebalances] == [1, 2, 3, 4, 5, 6]
    assert [run.assignor for run in world.rebalances] == ["range"] * 3 + ["uniform"] * 3

    expected = distinct(iter(current))
    # The first record of a member that was classic is the conversion itself.
    assert expected[classic["mig-1"]].pop(0)[1:3] == (3, MemberState.STABLE)
    assert distinct(iter(seen)) == expected
    assert {len(found) for found in expected.values()} == {1, 2, 5}
    assert sorted(world.consumers["mig-0"].owned) == [0, 1, 2]
    assert sorted(world.consumers["mig-1"].owned) == [3, 4, 5]
