"""The captured groups at each point of their story: what was known then, and what happened next."""

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from math import inf
from pathlib import Path
from typing import Any

from rebal.groups.evidence.merge import merge
from rebal.groups.evidence.observations import LogRead, Observation
from rebal.groups.model import (
    Coordinator,
    CoordinatorKind,
    GroupSnapshot,
    Member,
    Topic,
    TopicPartitions,
    Tri,
)
from rebal.groups.wire.consumer_protocol import decode_assignment, decode_subscription
from rebal.groups.wire.offsets_topic import GroupMetadata
from rebal.inspectors.logs.requests.reader import read_request_log
from tests.groups.observed import stable_group
from tests.planner.rehearsal.captures.capture import read

BUNDLED = Path(__file__).parents[1] / "data" / "captures"
FOLDER = Path(os.environ.get("REBAL_CAPTURES") or BUNDLED)
# A record is written while the join that made it is still being answered, and so not logged yet.
SOON = timedelta(milliseconds=100)
# What members print when the group refuses them (Java and kafka-python die of it, librdkafka and
# franz-go go on asking), and when their own client refuses the list that they were given.
REFUSED = re.compile(r"InconsistentGroupProtocol|INCONSISTENT_GROUP_PROTOCOL")
WILL_NOT_START = re.compile(r"must have the same protocol type|do not support a common Rebalance")


@dataclass
class Story:
    """One group's timeline, the errors that its members printed, and a snapshot for each generation
    that had members.
    """

    name: str
    timeline: list[dict[str, Any]]
    errors: list[dict[str, Any]]
    snapshots: list[GroupSnapshot]

    def running(self, at: datetime) -> dict[str, dict[str, Any]]:
        """Client id → the start of each process that runs at this time."""
        alive: dict[str, dict[str, Any]] = {}
        for event in self.timeline:
            if when(event) > at:
                break
            if event["action"] == "start":
                alive[event["client_id"]] = event
            elif event["action"] in ("stop", "kill", "died"):
                alive.pop(event.get("client_id", ""), None)
        return alive

    def next_start(self, at: datetime) -> dict[str, Any] | None:
        """The next process that was started, as `starts` has it.

        None where nobody who was there at this time still was when it started.
        """
        found = next((start for start in self.starts() if when(start) > at), None)
        if found is None:
            return None
        *_, now = (self._ids(one) for one in self.snapshots if one.captured_at <= at)
        *_, then = (self._ids(one) for one in self.snapshots if one.captured_at <= when(found))
        return found if now & then else None

    @staticmethod
    def _ids(snapshot: GroupSnapshot) -> set[str]:
        return {member.member_id for member in snapshot.members}

    def starts(self) -> Iterator[dict[str, Any]]:
        """Each start, with `refused` (did the group refuse it?) and `will_not_start` (its client?).

        Both from what the member printed until its next event.
        """
        for n, event in enumerate(self.timeline):
            if event["action"] != "start":
                continue
            mine = [e for e in self.timeline[n + 1 :] if e.get("client_id") == event["client_id"]]
            until = mine[0]["t_ms"] if mine else inf
            said = "\n".join(
                error["detail"]
                for error in self.errors
                if error["client_id"] == event["client_id"]
                and event["t_ms"] <= error["t_ms"] <= until
            )
            yield {
                **event,
                "refused": bool(REFUSED.search(said)),
                "will_not_start": bool(WILL_NOT_START.search(said)),
            }


@cache
def stories(log: bool, folder: Path = BUNDLED) -> dict[str, Story]:
    """All captured classic consumer groups by name; without `log` there is no request log."""
    seen: tuple[Observation, ...] = ()
    if log:
        seen = read_request_log([folder / "kafka-request.log.gz"]).observations
    found: dict[str, Story] = {}
    for name, group in read(folder).groups.items():
        snapshots = []
        for record in group.records:
            value, at = record.value, datetime.fromtimestamp(record.at, UTC)
            if value is not None and value.members and value.protocol_type == "consumer":
                known = [item for item in seen if item.group_id == name and _at(item) <= at + SOON]
                snapshots.append(merge(_snapshot(name, at, value), known))
        if snapshots:
            errors = [one for one in group.printed if one["event"] == "ERROR"]
            found[name] = Story(name, group.timeline, errors, snapshots)
    return found


def when(event: dict[str, Any]) -> datetime:
    return datetime.fromtimestamp(event["t_ms"] / 1000, UTC)


def _at(item: Observation) -> datetime:
    found = getattr(item, "at", None) or (None if isinstance(item, LogRead) else item.evidence.at)
    assert found is not None
    return found


def _snapshot(group_id: str, at: datetime, value: GroupMetadata) -> GroupSnapshot:
    members = []
    partitions: dict[str, int] = {}
    for one in value.members:
        consumer = value.protocol not in ("stream",)
        owned: TopicPartitions = {}
        if one.assignment:
            owned = decode_assignment(one.assignment).partitions
        for topic, numbers in owned.items():
            partitions[topic] = max(partitions.get(topic, 0), *(n + 1 for n in numbers), 0)
        members.append(
            Member(
                member_id=one.member_id,
                client_id=one.client_id,
                host=one.client_host,
                instance_id=one.instance_id,
                subscription=decode_subscription(one.subscription) if consumer else None,
                assignment=owned,
            )
        )
    return stable_group(
        *members,
        group_id=group_id,
        protocol_type=value.protocol_type,
        assignor=value.protocol,
        generation=value.generation,
        coordinator=Coordinator(
            broker_id=1,
            kind=CoordinatorKind.JAVA,
            # The one broker of the story was never restarted.
            rebalanced_since_load=Tri.YES,
        ),
        captured_at=at,
        topics=tuple(Topic(name=name, partitions=n) for name, n in sorted(partitions.items())),
    )
