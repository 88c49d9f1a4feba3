"""Groups of a fleet scan as `GroupSnapshot`s, without a broker, and observations of their members.

`ScannedGroups` reads the table rows of all groups, or of one, and makes each snapshot on request. A
snapshot's members, subscriptions and assignments are from the tables. Broker settings and partition
counts are known if the scan asked the brokers. Otherwise settings are unknown, and a topic counts
as having the partitions that are owned. Snapshots have no lag; `read_lag` returns the groups' lag
at the time of the scan.

`read_observations` yields observations to bind to a live group's members. A fact about a member id
is exact while that id is in the group, however old the scan is. Once the id is gone, it applies to
no member (groups/evidence/merge.py).
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Final

from msgspec.structs import replace

from rebal.groups.clients import software_of
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
    Record,
    Source,
    Subscription,
    Timeouts,
    Topic,
    TopicPartitions,
)
from rebal.inspectors.clock import micros, moment
from rebal.inspectors.fleet.manifest import Manifest
from rebal.inspectors.kafka.brokers import ClusterReading
from rebal.inspectors.tables.reader import ListSeen, Row, Tables, by_group, named_rows, rows_of

_SOURCES: Final = {source.value: source for source in Source}
_STATES: Final = {state.value: state for state in GroupState}
_TYPES: Final = {kind.value: kind for kind in GroupType}
_MEMBER: Final = (
    "group_id",
    "current",
    "member_id",
    "instance_id",
    "client_id",
    "host",
    "protocol_type",
    "software_name",
    "software_version",
    "session_timeout_ms",
    "rebalance_timeout_ms",
    "subscription_version",
    "subscription_generation",
    "topics",
    "topic_regex",
    "owned",
    "rack_id",
    "user_data",
    "assignment",
    "assignment_user_data",
    "target",
    "joined_at",
    "joined_reason",
    "last_at",
    "last_generation",
    "error",
)
_ENDS: Final = "log end offsets: a scan's tables have none"


def read_observations(tables: Tables, group: str | None = None) -> Iterator[Observation]:
    """Yield the joins with an exact assignor list, and the rejected joins, that a scan recorded.

    They are those of `group`, or of all groups if it is None. A list that was sent more than once
    has the time of its last join. A join is marked `new` if its generation is later than the first
    one that the scan recorded for the group.
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
    software = software_of(row.software_name, row.software_version, evidence)
    if row.refused:
        return Refused(
            group_id=row.group_id,
            list=names,
            at=at,
            times=row.times or 1,
            client_id=client_id,
            instance_id=row.instance_id,
            host=host,
            software=software,
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
        software=software,
        reason=row.reason,
        generation_id=row.generation,
        session_timeout_ms=row.session_timeout_ms,
        rebalance_timeout_ms=row.rebalance_timeout_ms,
        protocol_type=row.protocol_type or "consumer",
        replaced_member_id=row.replaced_member_id,
        evidence=evidence,
    )


class ScannedGroups:
    """All groups of a scan, or the one named; `names` are their group ids, sorted.

    Raises:
        TablesError: a table cannot be read.
    """

    def __init__(self, tables: Tables, group: str | None = None) -> None:
        members = tables.read("members", _MEMBER, group)
        # Not a row of an earlier generation is worth making Python values of.
        self._members = by_group(members.filter(members["current"]), Row)
        self._seen: dict[str, list[Observation]] = defaultdict(list)
        for one in read_observations(tables, group):
            self._seen[one.group_id or ""].append(one)
        self._until, self._brokers = tables.manifest.observed_until, tables.manifest.brokers
        self._cluster = _cluster(tables.manifest)
        self._ids = {
            name: topic_id
            for topic_id, name in (self._brokers.topic_names if self._brokers else {}).items()
        }
        self._groups = {
            row["group_id"]: row
            for row in named_rows(
                tables.read(
                    "groups",
                    (
                        "group_id",
                        "type",
                        "protocol_type",
                        "state",
                        "assignor",
                        "generation",
                        "assignment_epoch",
                        "last_seen",
                    ),
                    group,
                )
            )
        }
        self.names = sorted(self._groups)

    def snapshot(self, name: str) -> GroupSnapshot:
        """Return a snapshot of the group `name` as the scan saw it last.

        Its members have the assignor lists that they sent, with the times. `captured_at` is the end
        of the time that the scan's sources cover. A deleted group has state Dead and no members.
        """
        row, observed, brokers = self._groups[name], self._seen[name], self._brokers
        until = self._until or moment(row["last_seen"])
        kind = _TYPES.get(row["type"], GroupType.UNKNOWN)
        generation, classic = row["generation"], kind is GroupType.CLASSIC
        number = f"{'generation' if classic else 'group epoch'} {generation}"
        evidence = Evidence(
            source=Source.OFFSETS_TOPIC,
            at=until,
            detail="" if generation is None else number,
        )
        # What a join says of software and timeouts comes with the join.
        with_software = {
            one.member_id for one in observed if isinstance(one, Joined) and one.software
        }
        names = brokers.topic_names if brokers else {}
        members = tuple(
            _member(one, kind, evidence, one["member_id"] in with_software, names)
            for one in self._members[name]
        )
        topics = _topics(members, brokers.topics if brokers else {}, self._ids)
        return merge(
            GroupSnapshot(
                group=Group(
                    group_id=name,
                    state=_STATES.get(row["state"], GroupState.UNKNOWN),
                    type=kind,
                    protocol_type=row["protocol_type"],
                    assignor=row["assignor"],
                    generation=generation if classic else None,
                    group_epoch=None if classic else generation,
                    assignment_epoch=row["assignment_epoch"],
                ),
                captured_at=until or datetime.fromtimestamp(0, UTC),
                captured_by="rebal fleet scan",
                cluster=self._cluster,
                evidence=(evidence,),
                members=members,
                topics=topics,
                notes=_notes(members, topics, brokers),
            ),
            observed,
        )


def read_snapshots(tables: Tables, group: str | None = None) -> tuple[GroupSnapshot, ...]:
    """Return snapshots of all groups of the scan, or of the one named, sorted by group id."""
    groups = ScannedGroups(tables, group)
    return tuple(map(groups.snapshot, groups.names))


def _cluster(manifest: Manifest) -> Cluster:
    """Return the cluster as its brokers described it to the scan.

    If no features are known, but the scan read records of KIP-848 groups, group.version is set to
    1.
    """
    cluster = manifest.brokers.cluster if manifest.brokers else Cluster()
    # Only brokers with this feature write records of KIP-848 groups; nothing tells its level.
    seen = any(k.startswith("CONSUMER_GROUP_") and n for k, n in manifest.records.items())
    is_new = seen and not cluster.features
    return replace(cluster, features={"group.version": 1}) if is_new else cluster


def _member(
    row: Row, kind: GroupType, seen: Evidence, has_software: bool, names: Mapping[str, str]
) -> Member:
    at = moment(row["last_at"])
    is_classic, is_consumer = kind is GroupType.CLASSIC, kind is GroupType.CONSUMER
    timeouts = row["session_timeout_ms"], row["rebalance_timeout_ms"]
    stored = Evidence(source=Source.OFFSETS_TOPIC, at=at or seen.at)
    logged = Evidence(source=Source.REQUEST_LOG, at=at)
    return Member(
        member_id=row["member_id"],
        client_id=row["client_id"] or "",
        host=row["host"] or "",
        instance_id=row["instance_id"],
        rack=row["rack_id"],
        software=None
        if has_software
        else software_of(row["software_name"], row["software_version"], logged),
        timeouts=Timeouts(session_ms=timeouts[0], rebalance_ms=timeouts[1], evidence=(stored,))
        if timeouts != (None, None) and is_classic and not has_software
        else None,
        subscription=None
        if row["subscription_version"] is None
        else Subscription(
            version=row["subscription_version"],
            topics=row["topics"] or (),
            owned_partitions=row["owned"],
            generation_id=row["subscription_generation"],
            rack_id=row["rack_id"],
            user_data=row["user_data"],
        ),
        subscription_error=row["error"],
        subscribed_topics=row["topics"] or (),
        subscribed_regex=row["topic_regex"],
        assignment=_named(row["assignment"] or {}, names),
        assignment_user_data=row["assignment_user_data"],
        target_assignment=None if row["target"] is None else _named(row["target"], names),
        member_epoch=row["last_generation"] if is_consumer else None,
        protocol_type=row["protocol_type"] if is_consumer else None,
        joined_at=moment(row["joined_at"]),
        join_reason=row["joined_reason"],
    )


def _named(partitions: TopicPartitions, names: Mapping[str, str]) -> TopicPartitions:
    """Return the partitions with the names of topics in place of their ids.

    Records of KIP-848 groups hold topic ids; `names` maps topic id → name.
    """
    named = {names.get(topic, topic): numbers for topic, numbers in partitions.items()}
    return dict(sorted(named.items()))


def _topics(
    members: Sequence[Member], counts: Mapping[str, int], ids: Mapping[str, str]
) -> tuple[Topic, ...]:
    """Return the topics that members own or subscribe to, with partition counts and ids.

    A topic that is not in `counts` has as many partitions as its highest owned partition needs; a
    topic without any partition is left out.
    """
    found: dict[str, int] = {}
    for member in members:
        needed = {
            topic: max((run.stop for run in of.runs), default=0)
            for topic, of in member.assignment.items()
        }
        for topic in {*needed, *member.subscribed_topics}:
            found[topic] = max((needed.get(topic, 0), found.get(topic, 0), counts.get(topic, 0)))
    return tuple(
        Topic(name=name, partitions=n, topic_id=ids.get(name))
        for name, n in sorted(found.items())
        if n
    )


def _notes(
    members: Sequence[Member], topics: Sequence[Topic], brokers: ClusterReading | None
) -> tuple[str, ...]:
    if not members:
        return ()
    guessed = ("how many partitions a topic has: taken to be as many as are owned",)
    if brokers is None:
        return (f"broker settings, versions and {_ENDS}", *(guessed if topics else ()))
    return (
        _ENDS,
        *brokers.notes,
        *(() if all(topic.name in brokers.topics for topic in topics) else guessed),
    )


# Records' times are the brokers', the time at which they were asked is the scanning machine's; in
# microseconds.
_CLOCKS: Final = 300_000_000


class GroupLag(Record, frozen=True, kw_only=True):
    """The lag of one group in records: `total` of all its partitions, `worst` of a single one.

    Both are None if the lag of no partition is known. `unknown` is the number of partitions with a
    committed offset whose lag is not known. `last_commit` is the time of the newest commit, in
    microseconds since 1970 (None: not known).
    """

    total: int | None = None
    worst: int | None = None
    unknown: int = 0
    last_commit: int | None = None


def read_lag(tables: Tables) -> dict[str, GroupLag]:
    """Return group id → lag, for each group that has a committed offset.

    A partition's lag is its log end offset minus its committed offset. Only a scan of live brokers
    has log end offsets (table `log_ends`); captured files and log segments do not show them.

    Such a scan reads the commits first, then the log end offsets. So a committed offset beyond the
    log end offset means that the topic was created again, and the lag is unknown. The lag is also
    unknown if the log end offset was read more than 5 min before the newest time that the scan's
    sources cover, because a later scan read newer records from files.

    Raises:
        TablesError: a table cannot be read.
    """
    until = tables.manifest.observed_until
    newest = 0 if until is None else micros(until)
    ends = {
        (topic, partition): end
        for topic, partition, end, at in rows_of(
            tables.read("log_ends", ("topic", "topic_partition", "log_end_offset", "at"))
        )
        if newest <= at + _CLOCKS
    }
    lags: dict[str, list[int | None]] = defaultdict(list)
    last: dict[str, int | None] = {}
    for group_id, topic, partition, offset, at in rows_of(
        tables.read(
            "commits", ("group_id", "topic", "topic_partition", "committed_offset", "committed_at")
        )
    ):
        if offset is None:
            continue
        end = ends.get((topic, partition))
        lags[group_id].append(None if end is None or end < offset else end - offset)
        last[group_id] = max(filter(None, (at, last.get(group_id))), default=None)
    return {name: _sum(found, last[name]) for name, found in lags.items()}


def _sum(lags: list[int | None], last: int | None) -> GroupLag:
    known = [lag for lag in lags if lag is not None]
    return GroupLag(
        total=sum(known) if known else None,
        worst=max(known, default=None),
        unknown=len(lags) - len(known),
        last_commit=last,
    )
