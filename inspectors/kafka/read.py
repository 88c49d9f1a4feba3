"""Live groups: `select_groups` chooses them, `read_groups` reads each into a `GroupSnapshot`.

The description has the members' raw subscription bytes, from one moment; topics, offsets and broker
settings are read beside it. What cannot be read becomes a note; a group without a description is a
failure. `read_brokers` reads a cluster without its groups.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from typing import Final, NamedTuple

from msgspec.structs import replace

from rebal.groups import VERSION, clients
from rebal.groups.compact import NO_LAG, Lag, Lags
from rebal.groups.evidence.merge import merge
from rebal.groups.model import (
    Cluster,
    Coordinator,
    Evidence,
    Group,
    GroupSnapshot,
    GroupType,
    Record,
    Source,
    Timeouts,
    Topic,
    Tri,
)
from rebal.inspectors import clock
from rebal.inspectors.connection.config import ClusterConfig
from rebal.inspectors.errors import (
    ConnectError,
    RequestError,
)
from rebal.inspectors.kafka.brokers import ClusterReading, coordinator_kind
from rebal.inspectors.kafka.cluster import RawCluster, side_by_side
from rebal.inspectors.kafka.describe import (
    CONSUMER,
    Described,
    Offsets,
    committed_offsets,
    describe,
    within,
)
from rebal.inspectors.kafka.listing import (
    GroupFailure,
    failure_of,
    list_groups,
    pattern_of,
    reason_of,
)
from rebal.inspectors.kafka.messages import DescribeConfigsRequest
from rebal.inspectors.kafka.probe import probe_group
from rebal.inspectors.kafka.reload import (
    Reading,
    proven_by_probe,
    rebalanced_since_load,
)
from rebal.inspectors.kafka.resources import Resources
from rebal.inspectors.kafka.session import Session, connect
from rebal.inspectors.kafka.wire import Deadline

TopicPartition = tuple[str, int]
_OF_BROKERS: Final = frozenset(
    {"__consumer_offsets", "__transaction_state", "__share_group_state", "__cluster_metadata"}
)
# The type of a group's configuration, and the source of a value that was set there (KIP-848).
_GROUP: Final = 32
_OF_GROUP: Final = 8
_YEAR_10000: Final = 253_402_300_800_000
_NOT_ASKED: Final = "read only together with the probe (--probe)"


def read_group(
    session: Session,
    group_id: str,
    deadline: Deadline,
    *,
    probe: bool = False,
    assignors: Sequence[str] = (),
    own: Callable[[Deadline], Mapping[str, Mapping[str, str]] | None] = lambda _: None,
) -> GroupSnapshot:
    """Return the group as it is now, with the bounds of its members' assignor lists.

    `own` returns the groups' own settings, as `own_settings` reads them.

    Raises:
        RequestError: the group cannot be described.
        ConnectError: the connection is lost for good.
    """
    measured = session.clock_ahead(deadline)
    ahead = measured or timedelta()
    described = describe(session.raw, group_id, deadline)
    described = replace(described, at=described.at - ahead)
    offsets: Offsets | RequestError | ConnectError
    try:
        offsets = committed_offsets(session.raw, group_id, deadline)
    except (RequestError, ConnectError) as error:
        offsets = error
    settings = own(deadline)
    (snapshot,), notes = snapshots(session, [Look(described, offsets)], lambda: deadline)
    cluster = snapshot.cluster
    if settings is not None and group_id in settings:
        cluster = replace(cluster, settings={**cluster.settings, **settings[group_id]})
    elif settings is not None and described.type is GroupType.CONSUMER:
        notes.append("the group's own settings were not read: allow DESCRIBE_CONFIGS on the group")
    snapshot = replace(
        snapshot,
        cluster=cluster,
        clock_ahead_ms=round(ahead / timedelta(milliseconds=1)),
        clock_compared=measured is not None,
        notes=(*([clock.note(ahead)] if ahead else []), *notes),
    )
    if probe:
        snapshot = _probed(session, snapshot, assignors)
    return merge(snapshot, ())


class Look(NamedTuple):
    """A coordinator's answer on a group; `offsets` is an error where they were not read."""

    described: Described
    offsets: Offsets | RequestError | ConnectError


def snapshots(
    session: Session, looks: Sequence[Look], deadline: Callable[[], Deadline]
) -> tuple[list[GroupSnapshot], list[str]]:
    """Return the groups with their topics and lag, and notes on what was not read.

    Topics and end offsets of all groups are asked for at once, the latter last: a stopped broker
    delays them. `deadline` gives that of a request.
    """
    notes: list[str] = []
    partitions: set[TopicPartition] = set()
    names: set[str] = set()
    clusters: dict[int, Cluster] = {}
    for described, offsets in looks:
        broker = described.coordinator_id
        if broker not in clusters:
            clusters[broker], unread = session.cluster(broker, deadline())
            notes += unread
        owned, subscribed = used_by(described)
        names |= subscribed
        if isinstance(offsets, RequestError | ConnectError):
            notes.append(f"lag was not read: {reason_of(offsets)}")
        else:
            partitions |= owned | offsets.keys()
    topics = {each.name: each for each in read_topics(session, sorted(names), deadline(), notes)}
    ends: Mapping[TopicPartition, int] | None = None
    try:
        ends = session.resources.ends(sorted(partitions), deadline())
    except (RequestError, ConnectError) as error:
        notes.append(f"lag was not read: {reason_of(error)}")
    made: list[GroupSnapshot] = []
    for look, offsets in looks:
        described, broker = within(look, topics.values()), look.coordinator_id
        owned, needed = used_by(described)
        lag = NO_LAG
        if ends is not None and not isinstance(offsets, RequestError | ConnectError):
            lag = Lags(
                Lag(
                    topic=each[0],
                    partition=each[1],
                    committed=offsets.get(each),
                    end=ends.get(each),
                )
                for each in sorted(owned | offsets.keys())
            )
        made.append(
            snapshot_of(
                described,
                address=session.raw.brokers.get(broker),
                cluster=clusters[broker],
                topics=tuple(topics[name] for name in sorted(needed & topics.keys())),
                lag=lag,
            )
        )
    return made, notes


def own_settings(
    raw: RawCluster, group_ids: Sequence[str], deadline: Deadline
) -> dict[str, dict[str, str]] | None:
    """Return group id → the settings of the group's own configuration, by the name of the broker's
    setting that each replaces (KIP-848); None where the brokers keep none (before 4.0) or did not
    answer. A group is left out where the right to read its configuration lacks.
    """
    resources = [
        {"resource_type": _GROUP, "resource_name": each, "configuration_keys": None}
        for each in group_ids
    ]
    try:
        connection = raw.any(deadline)
        if connection.features.get("group.version", 0) < 1:
            return None
        answer = connection.send(
            DescribeConfigsRequest, deadline.share(2), min_version=1, resources=resources
        )
    except (RequestError, ConnectError):
        return None
    return {
        result.resource_name: {
            f"group.{setting.name}": setting.value
            for setting in result.configs
            if setting.config_source == _OF_GROUP and setting.name.startswith("consumer.")
        }
        for result in answer.results
        if not result.error_code
    }


def snapshot_of(
    described: Described,
    *,
    address: tuple[str, int, str | None] | None,
    cluster: Cluster,
    topics: tuple[Topic, ...],
    lag: Lags,
) -> GroupSnapshot:
    """Return the snapshot of a described group.

    `address` is its coordinator's host, port and rack; None where the brokers do not name it.
    """
    host, port, _ = address or ("", 0, None)
    kind = described.type.value.capitalize()
    request = "DescribeGroups" if described.type is GroupType.CLASSIC else f"{kind}GroupDescribe"
    return GroupSnapshot(
        group=Group(
            group_id=described.group_id,
            state=described.state,
            type=described.type,
            protocol_type=described.protocol_type,
            assignor=described.assignor,
            group_epoch=described.group_epoch,
            assignment_epoch=described.assignment_epoch,
            coordinator=Coordinator(
                broker_id=described.coordinator_id,
                host=host,
                port=port,
                kind=coordinator_kind(cluster),
                rebalanced_why=_NOT_ASKED if described.type is GroupType.CLASSIC else "",
            ),
        ),
        captured_at=described.at,
        captured_by=f"rebal {VERSION}",
        cluster=cluster,
        evidence=(Evidence(source=Source.DESCRIBE, at=described.at, detail=request),),
        members=described.members,
        topics=topics,
        lag=lag,
    )


def assignors_to_ask(elected: str | None, more: Sequence[str]) -> tuple[str, ...]:
    """Return the assignors to probe for: the elected one, then `more`, then the known ones."""
    # Assignors with `depends` belong to Connect workers and Streams.
    known = [n for n, assignor in clients.assignors().items() if assignor.protocols != "depends"]
    return tuple(dict.fromkeys([*([elected] if elected else []), *more, *known]))


def used_by(described: Described) -> tuple[set[TopicPartition], set[str]]:
    """Return the partitions that the group's members own, and the topics they own or subscribe."""
    owned = {
        (topic, number)
        for member in described.members
        for topic, numbers in member.assignment.items()
        for number in numbers
    }
    names = {topic for topic, _ in owned}
    return owned, names | {t for member in described.members for t in member.subscribed_topics}


def read_topics(
    session: Session, names: list[str], deadline: Deadline, notes: list[str]
) -> tuple[Topic, ...]:
    """Return the topics that can be read; before the end offsets, which a stopped broker delays."""
    try:
        found, failed = session.resources.topics(names, deadline)
    except (RequestError, ConnectError) as error:
        notes.append(f"topics were not read: {reason_of(error)}")
        return ()
    notes += [_topic_note(name, error) for name, error in sorted(failed.items())]
    return tuple(found)


def _topic_note(name: str, error: RequestError) -> str:
    if error.name == "TOPIC_AUTHORIZATION_FAILED":
        return f"topic {name} was not read: allow DESCRIBE on it"
    if error.name == "UNKNOWN_TOPIC_OR_PARTITION":
        return f"topic {name} does not exist"
    return f"topic {name} was not read: {error.reason}"


def _probed(session: Session, snapshot: GroupSnapshot, assignors: Sequence[str]) -> GroupSnapshot:
    group = snapshot.group
    asked = assignors_to_ask(group.assignor, assignors)
    probe = probe_group(session.raw, snapshot, asked)
    ahead = timedelta(milliseconds=snapshot.clock_ahead_ms)
    answers = tuple(replace(answer, at=answer.at - ahead) for answer in probe.answers)
    probe = replace(probe, answers=answers)
    if group.type is not GroupType.CLASSIC or group.protocol_type != CONSUMER:
        return replace(snapshot, probe=probe)
    reading = rebalanced_since_load(session.raw, group.group_id, fetches=session.fetches)
    yes = [answer.assignor for answer in probe.answers if answer.supported is Tri.YES]
    reading = proven_by_probe(reading, group.assignor, yes)
    return _with_reading(replace(snapshot, probe=probe), reading)


def _with_reading(snapshot: GroupSnapshot, reading: Reading) -> GroupSnapshot:
    coordinator = snapshot.group.coordinator
    assert coordinator is not None
    snapshot = _noted(snapshot, _moment(reading.generation_ms), _moment(reading.loaded_ms))
    coordinator = replace(
        coordinator,
        rebalanced_since_load=reading.rebalanced,
        rebalanced_why=reading.why,
        loaded_at=_moment(reading.loaded_ms),
        leader_epoch=reading.epoch,
    )
    if reading.generation is None:
        return replace(snapshot, group=replace(snapshot.group, coordinator=coordinator))
    group = replace(
        snapshot.group,
        coordinator=coordinator,
        generation=reading.generation,
        generation_at=_moment(reading.generation_ms),
    )
    stored_in = Evidence(
        source=Source.OFFSETS_TOPIC,
        at=clock.now() - timedelta(milliseconds=snapshot.clock_ahead_ms),
        detail=f"generation {reading.generation}",
    )
    stored = {
        one.member_id: Timeouts(
            session_ms=one.session_timeout_ms,
            # Version 0 of the record has none: the coordinator uses the session timeout.
            rebalance_ms=one.rebalance_timeout_ms or one.session_timeout_ms,
            evidence=(stored_in,),
        )
        for one in reading.members
    }
    members = tuple(
        replace(member, timeouts=stored.get(member.member_id)) for member in snapshot.members
    )
    return replace(snapshot, group=group, members=members, evidence=(*snapshot.evidence, stored_in))


def _noted(snapshot: GroupSnapshot, *moments: datetime | None) -> GroupSnapshot:
    """Return the snapshot with a note where records that were there already are later than it.

    The difference is a lower bound, and another one at each look: it orders no look after another.
    """
    latest = max((moment for moment in moments if moment is not None), default=None)
    if latest is None or latest - snapshot.captured_at <= clock.MATERIAL:
        return snapshot
    note = clock.note(snapshot.captured_at - latest, at_least=True)
    return replace(snapshot, clock_compared=False, notes=(*snapshot.notes, note))


def _moment(ms: int | None) -> datetime | None:
    if ms is None or not 0 <= ms < _YEAR_10000:
        return None
    return datetime.fromtimestamp(ms / 1000, UTC)


_THREADS: Final = 8


class Selection(Record, frozen=True, kw_only=True):
    """The ids of the groups to read, and the coordinators whose groups could not be listed.

    `coordinators` are the brokers that list a group.
    """

    group_ids: tuple[str, ...] = ()
    coordinators: Mapping[str, int] = {}
    unlisted: tuple[GroupFailure, ...] = ()


def select_groups(
    config: ClusterConfig,
    wanted: Sequence[str],
    *,
    match: str | None = None,
    all_groups: bool = False,
) -> Selection:
    """Return the ids to read: `wanted` in its order, then the cluster's matching groups, sorted.

    `match` is a regular expression for the whole group id. The cluster lists only groups that the
    user may describe.

    Raises:
        SelectionError: `match` is no regular expression, or no group matches.
        ConnectError: the cluster cannot be reached.
    """
    chosen = list(dict.fromkeys(wanted))
    if match is None and not all_groups:
        return Selection(group_ids=tuple(chosen))
    pattern = pattern_of(match)
    with connect(config) as session:
        found, unlisted = list_groups(session.raw, pattern, needed=not chosen)
    group_ids = tuple(dict.fromkeys([*chosen, *sorted(found)]))
    return Selection(group_ids=group_ids, coordinators=found, unlisted=tuple(unlisted))


def read_groups(
    config: ClusterConfig,
    group_ids: Sequence[str],
    *,
    probe: bool = False,
    assignors: Sequence[str] = (),
    coordinators: Mapping[str, int] = MappingProxyType({}),
) -> list[GroupSnapshot | GroupFailure]:
    """Return a snapshot or a failure for each group, in the order of `group_ids`.

    Groups are read in parallel, each within `config.timeout_ms`. With `probe`, the coordinator is
    asked for the elected assignor, `assignors` and the known ones. `coordinators` are brokers to
    ask without a search.

    Raises:
        ConnectError: the cluster cannot be reached, or the login is rejected.
    """
    if not group_ids:
        return []
    with connect(config) as session:
        session.raw.coordinators.update(coordinators)
        return read_all(session, group_ids, probe=probe, assignors=assignors)


def read_all(
    session: Session,
    group_ids: Sequence[str],
    *,
    probe: bool = False,
    assignors: Sequence[str] = (),
) -> list[GroupSnapshot | GroupFailure]:
    """Return what `read_groups` returns, over the connections of `session`."""

    lock = threading.Lock()
    asked: list[dict[str, dict[str, str]] | None] = []

    def own(deadline: Deadline) -> dict[str, dict[str, str]] | None:
        # All groups' settings are asked for at once, in the time of the first one that needs them.
        with lock:
            if not asked:
                asked.append(own_settings(session.raw, group_ids, deadline))
            return asked[0]

    def one(group_id: str) -> GroupSnapshot | GroupFailure:
        deadline = session.raw.deadline()
        try:
            return read_group(
                session, group_id, deadline, probe=probe, assignors=assignors, own=own
            )
        except RequestError as error:
            return failure_of(group_id, error, deadline)
        except ConnectError as error:
            return GroupFailure(group_id=group_id, message=f"{group_id}: {error}", kind="network")

    return side_by_side(one, group_ids, _THREADS)


def read_brokers(config: ClusterConfig) -> ClusterReading:
    """Return the cluster's brokers, settings and topics, as its first broker describes them.

    Raises:
        ConnectError: the cluster cannot be reached, or the login is rejected.
        RequestError: a broker did not answer.
    """
    with connect(config) as session:
        deadline = session.raw.deadline()
        first = min(broker.broker_id for broker in session.resources.cluster(deadline)[1])
        cluster, notes = session.cluster(first, deadline)
        topics = session.resources.all_topics(deadline)
        ends: Mapping[str, tuple[int | None, ...]] = {}
        try:
            ends = _ends_of(topics, session.resources, session.raw.deadline())
        except RequestError as error:
            notes = [*notes, f"log end offsets were not read: {error}"]
        return ClusterReading(
            at=clock.now(),
            cluster=cluster,
            topics={topic.name: topic.partitions for topic in topics},
            topic_names={topic.topic_id: topic.name for topic in topics if topic.topic_id},
            ends=ends,
            notes=tuple(notes),
        )


def _ends_of(
    topics: Sequence[Topic], resources: Resources, deadline: Deadline
) -> dict[str, tuple[int | None, ...]]:
    """Return the log end offsets of all partitions that a group may read."""
    wanted = [topic for topic in topics if topic.name not in _OF_BROKERS]
    found = resources.ends(
        [(topic.name, number) for topic in wanted for number in range(topic.partitions)], deadline
    )
    return {
        topic.name: tuple(found.get((topic.name, number)) for number in range(topic.partitions))
        for topic in wanted
    }
