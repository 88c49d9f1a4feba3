"""A stable group of classic consumers, as most tests want it, and what was observed of it."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from rebal.groups.compact import Partitions
from rebal.groups.evidence.observations import Declared, Joined, Refused
from rebal.groups.model import (
    AssignorList,
    Coordinator,
    Evidence,
    Group,
    GroupSnapshot,
    GroupState,
    GroupType,
    Knowledge,
    Member,
    Probe,
    ProbeAnswer,
    Software,
    Source,
    Subscription,
    Tri,
)

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)


def stable_group(*members: Member, **fields: Any) -> GroupSnapshot:
    """`fields` are those of the snapshot and of its group, which share no name."""
    known: dict[str, Any] = {
        "group_id": "g",
        "state": GroupState.STABLE,
        "type": GroupType.CLASSIC,
        "protocol_type": "consumer",
    }
    known |= {name: fields.pop(name) for name in Group.__struct_fields__ if name in fields}
    usual: dict[str, Any] = {"group": Group(**known), "captured_at": NOW, "members": members}
    return GroupSnapshot(**{**usual, **fields})


COOP = "cooperative-sticky"
MIXED = (COOP, "range")
JAVA = Software(family="java", name="apache-kafka-java", version="3.9.1")
KEPT = Subscription(version=3, topics=("t",), owned_partitions={"t": Partitions([0, 1])})


def member(name: str, *names: str, family: str | None = None, **fields: Any) -> Member:
    """`names` are its list as a log shows it; a client of `family` said its name."""
    if names:
        fields["assignors"] = AssignorList(knowledge=Knowledge.EXACT, list=names)
    if family:
        fields["software"] = Software(family=family, name=family, version="3.9.1")
    return Member(**{"member_id": f"{name}-id", "client_id": name, **fields})


def group(
    *members: Member,
    probe: Mapping[str, Tri] | None = None,
    rebalanced: Tri = Tri.YES,
    assignor: str = "range",
    **fields: Any,
) -> GroupSnapshot:
    """`probe` has the answers by assignor; `rebalanced` is so since the coordinator's load."""
    answers = tuple(
        ProbeAnswer(assignor=name, supported=said, at=NOW) for name, said in (probe or {}).items()
    )
    return stable_group(
        *members,
        assignor=assignor,
        coordinator=Coordinator(broker_id=1, rebalanced_since_load=rebalanced),
        probe=Probe(answers=answers) if answers else None,
        **fields,
    )


def at(minutes: int) -> datetime:
    """So long after an hour before `NOW`."""
    return NOW - timedelta(minutes=60 - minutes)


def joined(name: str, *names: str, minute: int = 0, **fields: Any) -> Joined:
    evidence = Evidence(source=Source.REQUEST_LOG, at=at(minute), detail="JOIN_GROUP")
    return Joined(
        **{
            "group_id": "g",
            "member_id": f"{name}-id",
            "client_id": name,
            "list": names,
            "at": at(minute),
            "evidence": evidence,
            **fields,
        }
    )


def refused(minute: int = 50, **fields: Any) -> Refused:
    evidence = Evidence(source=Source.REQUEST_LOG, at=at(minute))
    return Refused(
        **{"group_id": "g", "client_id": "x", "at": at(minute), "evidence": evidence, **fields}
    )


def declared(where: str, *names: str, **fields: Any) -> Declared:
    evidence = Evidence(source=Source.CONFIG_FILE, detail=where)
    return Declared(
        **{"where": where, "group_id": "g", "list": names, "evidence": evidence, **fields}
    )


def lists(snapshot: GroupSnapshot) -> dict[str, AssignorList]:
    """By client id."""
    return {m.client_id: m.assignors for m in snapshot.members}
