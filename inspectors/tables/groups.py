"""Groups of a scan as `GroupSnapshot`s, without a broker, and its evidence of their members.

`ScannedGroups` reads the rows of all groups, or of one, and makes a snapshot of each that is asked
for. The tables tell members, what they sent and what they own. The brokers' settings, and how many
partitions a topic has, are known if the scan asked the brokers; else they stay unknown, or are said
to follow from what is owned. Lag is not in them (`lag.read_lag`).

`read_observations` gives what a live group's members are bound to: a fact about a member id is
exact for as long as that id is in the group, however old the scan; it binds to nothing once the id
is gone (groups/evidence/merge.py).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Final, NamedTuple

from msgspec.structs import replace

from rebal.groups.clients import family_of
from rebal.groups.evidence.merge import merge
from rebal.groups.evidence.observations import Joined, Observation, Refused
from rebal.groups.model import (
    Cluster,
    Evidence,
    Group,
    GroupSnapshot,
    GroupState,
    GroupType,
    Member,
    Software,
    Source,
    Subscription,
    Timeouts,
    Topic,
    TopicPartitions,
)
from rebal.inspectors.clock import moment
from rebal.inspectors.fleet.manifest import Manifest
from rebal.inspectors.tables.columns import by_group, rows_of
from rebal.inspectors.tables.history import ListSeen
from rebal.inspectors.tables.reader import Tables

_SOURCES: Final = {source.value: source for source in Source}
_STATES: Final = {state.value: state for state in GroupState}
_TYPES: Final = {kind.value: kind for kind in GroupType}
_ENDS: Final = "log end offsets: a scan's tables have none"


def read_observations(tables: Tables, group: str | None = None) -> Iterator[Observation]:
    """Yield each join with an exact list, and each rejected one, of one `group` or of all.

    A list that was sent more than once has the time when it was last seen. A member id that came
    after the first generation that the scan knows of its group was new then.
    """
    for rows in by_group(tables.read("assignor_lists", ListSeen._fields, group), ListSeen).values():
        first = min((row.generation for row in rows if row.generation is not None), default=0)
        for row in rows:
            made = _of_list(row, new=row.generation is not None and row.generation > first)
            if made is not None:
                yield made


def _of_list(row: ListSeen, *, new: bool) -> Observation | None:
    at = moment(row.last_at) or moment(row.at)
    evidence = Evidence(
        source=_SOURCES.get(row.evidence or "", Source.OFFSETS_TOPIC),
        at=at,
        detail=row.source or "",
    )
    names = row.assignors or ()
    client_id, host = row.client_id or "", row.host or ""
    said = software_of(row.software_name, row.software_version, evidence)
    if row.refused:
        return Refused(
            group_id=row.group_id,
            list=names,
            at=at,
            times=row.times or 1,
            client_id=client_id,
            instance_id=row.instance_id,
            host=host,
            software=said,
            evidence=evidence,
        )
    if not row.member_id:
        return None
    return Joined(
        group_id=row.group_id,
        member_id=row.member_id,
        list=names,
        new=new,
        at=at,
        client_id=client_id,
        instance_id=row.instance_id,
        host=host,
        software=said,
        reason=row.reason,
        generation_id=row.generation,
        session_timeout_ms=row.session_timeout_ms,
        rebalance_timeout_ms=row.rebalance_timeout_ms,
        protocol_type=row.protocol_type or "consumer",
        replaced_member_id=row.replaced_member_id,
        evidence=evidence,
    )


def software_of(name: str | None, version: str | None, evidence: Evidence) -> Software | None:
    """Return the client software of this name and version; None where no name is known."""
    if not name:
        return None
    return Software(
        family=family_of(name, version), name=name, version=version, evidence=(evidence,)
    )


class _Group(NamedTuple):
    """One row of `groups`, in the columns' order."""

    group_id: str
    type: str | None
    protocol_type: str | None
    state: str | None
    assignor: str | None
    generation: int | None
    assignment_epoch: int | None
    last_seen: int | None


class _Member(NamedTuple):
    """One row of `members` that is current, in the columns' order."""

    group_id: str
    current: bool | None
    member_id: str
    instance_id: str | None
    client_id: str | None
    host: str | None
    protocol_type: str | None
    software_name: str | None
    software_version: str | None
    session_timeout_ms: int | None
    rebalance_timeout_ms: int | None
    subscription_version: int | None
    subscription_generation: int | None
    topics: tuple[str, ...] | None
    topic_regex: str | None
    owned: TopicPartitions | None
    rack_id: str | None
    user_data: bytes | None
    assignment: TopicPartitions | None
    assignment_user_data: bytes | None
    target: TopicPartitions | None
    joined_at: int | None
    joined_reason: str | None
    last_at: int | None
    last_generation: int | None
    error: str | None


class _Known(NamedTuple):
    """Answers of the brokers: topics' partition counts, names by id and ids by name; and notes on
    what is not known. `until` is the end of the time that the scan's sources cover."""

    until: datetime | None
    cluster: Cluster
    counts: Mapping[str, int]
    names: Mapping[str, str]
    ids: Mapping[str, str]
    notes: tuple[str, ...]


class ScannedGroups:
    """The rows of every group of the scan, or of the one named, if it is in it.

    Raises:
        TablesError: a table cannot be read.
    """

    def __init__(self, tables: Tables, group: str | None = None) -> None:
        members = tables.read("members", _Member._fields, group)
        # Not a row of an earlier generation is worth making Python values of.
        self._members = by_group(members.filter(members["current"]), _Member)
        self._seen: dict[str, list[Observation]] = defaultdict(list)
        for one in read_observations(tables, group):
            self._seen[one.group_id or ""].append(one)
        self._known = _known(tables.manifest)
        rows = map(_Group._make, rows_of(tables.read("groups", _Group._fields, group)))
        self._groups = {row.group_id: row for row in rows}

    @property
    def names(self) -> list[str]:
        """The groups' names, sorted."""
        return sorted(self._groups)

    def snapshot(self, name: str) -> GroupSnapshot:
        """Return the group as it last was.

        Members' lists are bound to them, with the time they were seen; `captured_at` is the end of
        what the scan saw of the group. A deleted group has state Dead and no members.
        """
        return _snapshot(self._groups[name], self._members, self._seen, self._known)


def read_snapshots(tables: Tables, group: str | None = None) -> tuple[GroupSnapshot, ...]:
    """Return every group of the scan (or the one named, if it is in it), by its name."""
    groups = ScannedGroups(tables, group)
    return tuple(map(groups.snapshot, groups.names))


def _known(manifest: Manifest) -> _Known:
    brokers, until = manifest.brokers, manifest.observed_until
    cluster = brokers.cluster if brokers else Cluster()
    # Only brokers with this feature write records of KIP-848 groups; nothing tells its level.
    seen = any(k.startswith("CONSUMER_GROUP_") and n for k, n in manifest.records.items())
    if seen and not cluster.features:
        cluster = replace(cluster, features={"group.version": 1})
    if brokers is None:
        return _Known(until, cluster, {}, {}, {}, (f"broker settings, versions and {_ENDS}",))
    ids = {name: topic_id for topic_id, name in brokers.topic_names.items()}
    notes = (_ENDS, *brokers.notes)
    return _Known(until, cluster, brokers.topics, brokers.topic_names, ids, notes)


def _snapshot(
    row: _Group,
    members: Mapping[str, Sequence[_Member]],
    seen: Mapping[str, Sequence[Observation]],
    known: _Known,
) -> GroupSnapshot:
    group_id = row.group_id
    until = known.until or moment(row.last_seen)
    kind = _TYPES.get(row.type or "", GroupType.UNKNOWN)
    generation = row.generation
    number = "generation" if kind is GroupType.CLASSIC else "group epoch"
    evidence = Evidence(
        source=Source.OFFSETS_TOPIC,
        at=until,
        detail=f"{number} {generation}" if generation is not None else "",
    )
    observed = seen.get(group_id, ())
    # What a join says of software and timeouts comes with the join.
    told = {one.member_id for one in observed if isinstance(one, Joined) and one.software}
    made = tuple(
        _member(one, kind, evidence, one.member_id in told, known.names)
        for one in members.get(group_id, ())
    )
    topics = _topics(made, known)
    return merge(
        GroupSnapshot(
            group=Group(
                group_id=group_id,
                state=_STATES.get(row.state or "", GroupState.UNKNOWN),
                type=kind,
                protocol_type=row.protocol_type,
                assignor=row.assignor,
                generation=generation if kind is GroupType.CLASSIC else None,
                group_epoch=generation if kind is not GroupType.CLASSIC else None,
                assignment_epoch=row.assignment_epoch,
            ),
            captured_at=until or datetime.fromtimestamp(0, UTC),
            captured_by="rebal fleet scan",
            cluster=known.cluster,
            evidence=(evidence,),
            members=made,
            topics=topics,
            notes=_notes(made, topics, known),
        ),
        observed,
    )


def _member(
    row: _Member, kind: GroupType, seen: Evidence, told: bool, names: Mapping[str, str]
) -> Member:
    at = moment(row.last_at)
    sent = row.subscription_version is not None
    stored = Evidence(source=Source.OFFSETS_TOPIC, at=at or seen.at)
    timeouts = row.session_timeout_ms, row.rebalance_timeout_ms
    logged = Evidence(source=Source.REQUEST_LOG, at=at)
    said = None if told else software_of(row.software_name, row.software_version, logged)
    return Member(
        member_id=row.member_id,
        client_id=row.client_id or "",
        host=row.host or "",
        instance_id=row.instance_id,
        rack=row.rack_id,
        software=said,
        timeouts=Timeouts(session_ms=timeouts[0], rebalance_ms=timeouts[1], evidence=(stored,))
        if timeouts != (None, None) and kind is GroupType.CLASSIC and not told
        else None,
        subscription=Subscription(
            version=row.subscription_version or 0,
            topics=row.topics or (),
            owned_partitions=row.owned,
            generation_id=row.subscription_generation,
            rack_id=row.rack_id,
            user_data=row.user_data,
        )
        if sent
        else None,
        subscription_error=row.error,
        subscribed_topics=row.topics or (),
        subscribed_regex=row.topic_regex,
        assignment=_named(row.assignment or {}, names),
        assignment_user_data=row.assignment_user_data,
        target_assignment=None if row.target is None else _named(row.target, names),
        member_epoch=row.last_generation if kind is GroupType.CONSUMER else None,
        protocol_type=row.protocol_type if kind is GroupType.CONSUMER else None,
        joined_at=moment(row.joined_at),
        join_reason=row.joined_reason,
    )


def _named(partitions: TopicPartitions, names: Mapping[str, str]) -> TopicPartitions:
    """Return the partitions by topics' names, which records of KIP-848 groups do not hold."""
    named = {names.get(topic, topic): numbers for topic, numbers in partitions.items()}
    return dict(sorted(named.items()))


def _topics(members: Sequence[Member], known: _Known) -> tuple[Topic, ...]:
    """Return the topics that are owned or subscribed to.

    One without a count has as many partitions as its highest owned one needs.
    """
    found: dict[str, int] = {}
    for member in members:
        for topic, numbers in member.assignment.items():
            top = max((run.stop for run in numbers.runs), default=0)
            found[topic] = max(top, found.get(topic, 0), known.counts.get(topic, 0))
        for topic in member.subscribed_topics:
            found[topic] = max(found.get(topic, 0), known.counts.get(topic, 0))
    return tuple(
        Topic(name=name, partitions=n, topic_id=known.ids.get(name))
        for name, n in sorted(found.items())
        if n
    )


def _notes(members: Sequence[Member], topics: Sequence[Topic], known: _Known) -> tuple[str, ...]:
    if not members:
        return ()
    if all(topic.name in known.counts for topic in topics):
        return known.notes
    return (*known.notes, "how many partitions a topic has: taken to be as many as are owned")
