"""One live group as a `GroupSnapshot`: `read_group`, on the `Session` that all groups share."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import version as installed_version
from typing import Final

from msgspec.structs import replace

from rebal.groups import clients
from rebal.groups.evidence.merge import merge
from rebal.groups.model import (
    Broker,
    Cluster,
    Coordinator,
    Evidence,
    Group,
    GroupSnapshot,
    GroupType,
    Member,
    Probe,
    Source,
    Timeouts,
    Topic,
    Tri,
)
from rebal.groups.snapshot.lag import NO_LAG, Lag, Lags
from rebal.groups.snapshot.replicas import Replicas
from rebal.inspectors.connection.config import ClusterConfig
from rebal.inspectors.kafka.admin import Admin
from rebal.inspectors.kafka.broker import broker_version, coordinator_kind, group_settings
from rebal.inspectors.kafka.cluster import RawCluster
from rebal.inspectors.kafka.describe import CONSUMER, Described, describe
from rebal.inspectors.kafka.errors import ConnectError, RequestError
from rebal.inspectors.kafka.offsets import committed_offsets
from rebal.inspectors.kafka.probe import probe_group
from rebal.inspectors.kafka.reload import Reading, rebalanced_since_load, seen_by_probe
from rebal.inspectors.kafka.wire import Deadline, error_name

_NOT_ASKED: Final = "asked together with the probe only (--probe)"


class Session:
    """The connections of one reading; `raw` or `admin` is None where that client cannot log in."""

    def __init__(
        self,
        config: ClusterConfig,
        raw: RawCluster | None,
        admin: Admin | None,
        notes: tuple[str, ...],
    ) -> None:
        self.config = config
        self.raw = raw
        self.admin = admin
        self.notes = notes
        self._settings: dict[int, Mapping[str, str] | RequestError | ConnectError] = {}
        self._lock = threading.Lock()

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *exc: object) -> None:
        if self.raw is not None:
            self.raw.close()
        if self.admin is not None:
            self.admin.close()

    def settings(
        self, broker_id: int, deadline: Deadline
    ) -> Mapping[str, str] | RequestError | ConnectError:
        """The broker's group-related settings, read once; an error is kept as well."""
        with self._lock:
            if broker_id not in self._settings:
                try:
                    assert self.admin is not None
                    found = group_settings(self.admin.settings(broker_id, deadline))
                    self._settings[broker_id] = found
                except (RequestError, ConnectError) as error:
                    self._settings[broker_id] = error
            return self._settings[broker_id]

    def cluster(self, broker_id: int, deadline: Deadline) -> tuple[Cluster, list[str]]:
        """The cluster by what this broker says of it, and what could not be read.

        Raises:
            RequestError: the broker cannot be asked.
            ConnectError: the connection is lost for good.
        """
        settings: Mapping[str, str] = {}
        notes: list[str] = []
        if self.admin is not None:
            found = self.settings(broker_id, deadline)
            if isinstance(found, RequestError) and "AUTHORIZATION" in found.name:
                notes.append("broker settings were not read: allow DESCRIBE_CONFIGS on the cluster")
            elif isinstance(found, RequestError | ConnectError):
                notes.append(f"broker settings were not read: {found}")
            else:
                settings = found
        if self.raw is None:
            assert self.admin is not None
            cluster_id, brokers = self.admin.cluster(deadline)
            return Cluster(cluster_id=cluster_id, brokers=brokers, settings=settings), notes
        connection = self.raw.node(broker_id, deadline)
        cluster = Cluster(
            cluster_id=self.raw.cluster_id,
            brokers=tuple(
                Broker(broker_id=number, rack=rack)
                for number, (_, _, rack) in sorted(self.raw.brokers.items())
            ),
            version=broker_version(connection),
            features=dict(sorted(connection.features.items())),
            settings=settings,
        )
        return cluster, notes


def read_group(
    session: Session, group_id: str, *, probe: bool = False, assignors: Sequence[str] = ()
) -> GroupSnapshot:
    """The group as it is now, bounds of its members' lists included.

    Raises:
        RequestError: the group cannot be described.
        ConnectError: the connection is lost for good.
    """
    deadline = Deadline(session.config.timeout_ms)
    notes = list(session.notes)
    described, host, port = _describe(session, group_id, deadline)
    cluster, unread = session.cluster(described.coordinator_id, deadline)
    notes += unread
    members = tuple(_identified(member, described) for member in described.members)
    topics, lag = _topics_and_lag(session, described, deadline, notes)
    kind = coordinator_kind(cluster)
    snapshot = GroupSnapshot(
        group=Group(
            group_id=group_id,
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
                kind=kind,
                rebalanced_why=_NOT_ASKED if described.type is GroupType.CLASSIC else "",
            ),
        ),
        captured_at=described.at,
        captured_by=_captured_by(),
        cluster=cluster,
        evidence=(Evidence(source=Source.DESCRIBE, at=described.at, detail=_how(described)),),
        members=members,
        topics=topics,
        lag=lag,
        notes=tuple(notes),
    )
    if probe:
        snapshot = _probed(session, snapshot, assignors)
    return merge(snapshot, ())


def assignors_to_ask(elected: str | None, more: Sequence[str]) -> tuple[str, ...]:
    """What the probe asks for: the selected assignor, the names given, the known ones."""
    # Those that "depend" belong to Connect workers and Streams.
    known = [n for n, assignor in clients.assignors().items() if assignor.protocols != "depends"]
    return tuple(dict.fromkeys([*([elected] if elected else []), *more, *known]))


def _describe(session: Session, group_id: str, deadline: Deadline) -> tuple[Described, str, int]:
    if session.raw is None:
        assert session.admin is not None
        return session.admin.describe(group_id, deadline)
    described = describe(session.raw, group_id, deadline)
    host, port, _ = session.raw.brokers.get(described.coordinator_id, ("", 0, None))
    return described, host, port


def _how(described: Described) -> str:
    return "ConsumerGroupDescribe" if described.type is GroupType.CONSUMER else "DescribeGroups"


@cache
def _captured_by() -> str:
    return f"rebal {installed_version('rebal')}"


def _identified(member: Member, described: Described) -> Member:
    if described.protocol_type != CONSUMER or described.type is not GroupType.CLASSIC:
        return member
    software = clients.identify(
        member.client_id,
        member.member_id,
        member.subscription,
        described.assignor,
        described.group_id,
    )
    return member if software is None else replace(member, software=software)


def _topics_and_lag(
    session: Session, described: Described, deadline: Deadline, notes: list[str]
) -> tuple[tuple[Topic, ...], Lags]:
    owned = {
        (topic, number)
        for member in described.members
        for topic, numbers in member.assignment.items()
        for number in numbers
    }
    names = {topic for topic, _ in owned}
    names |= {topic for member in described.members for topic in member.subscribed_topics}
    topics = _topics(session, sorted(names), deadline, notes)
    if session.admin is None:
        return topics, NO_LAG
    lag = NO_LAG
    try:
        committed = (
            session.admin.committed(described.group_id, deadline)
            if session.raw is None
            else committed_offsets(session.raw, described.group_id, deadline)
        )
        ends = session.admin.ends(sorted(owned | committed.keys()), deadline)
        lag = Lags(
            Lag(topic=each[0], partition=each[1], committed=committed.get(each), end=ends.get(each))
            for each in sorted(owned | committed.keys())
        )
    except (RequestError, ConnectError) as error:
        notes.append(f"lag was not read: {error}")
    return topics, lag


def _topics(
    session: Session, names: list[str], deadline: Deadline, notes: list[str]
) -> tuple[Topic, ...]:
    """The topics that can be read, before the lag: a broker that is down holds up its ends."""
    try:
        if session.admin is None:
            return _raw_topics(session, names, deadline, notes)
        try:
            within = deadline if session.raw is None else deadline.share(2)
            found, failed = session.admin.topics(names, within)
        except (RequestError, ConnectError):
            if session.raw is None:
                raise
            return _raw_topics(session, names, deadline, notes)
    except (RequestError, ConnectError) as error:
        notes.append(f"topics were not read: {error}")
        return ()
    notes += [_topic_note(name, error) for name, error in sorted(failed.items())]
    return tuple(found)


def _raw_topics(
    session: Session, names: list[str], deadline: Deadline, notes: list[str]
) -> tuple[Topic, ...]:
    assert session.raw is not None
    if not names:
        return ()
    found: list[Topic] = []
    for topic in session.raw.metadata(names, deadline).topics:
        if topic.error_code:
            name = error_name(topic.error_code)
            notes.append(_topic_note(topic.name, RequestError(name, name)))
            continue
        parts = sorted(topic.partitions, key=lambda part: part.partition_index)
        replicas = Replicas(part.replica_nodes for part in parts)
        found.append(Topic(name=topic.name, partitions=len(parts), replicas=replicas))
    return tuple(sorted(found, key=lambda topic: topic.name))


def _topic_note(name: str, error: RequestError) -> str:
    if error.name == "TOPIC_AUTHORIZATION_FAILED":
        return f"topic {name} was not read: allow DESCRIBE on it"
    if error.name == "UNKNOWN_TOPIC_OR_PARTITION":
        return f"topic {name} does not exist"
    return f"topic {name} was not read: {error}"


def _probed(session: Session, snapshot: GroupSnapshot, assignors: Sequence[str]) -> GroupSnapshot:
    group = snapshot.group
    if session.raw is None:
        why = "it is sent with kafka-python, which cannot log in here"
        return replace(snapshot, probe=Probe(refused=why))
    asked = assignors_to_ask(group.assignor, assignors)
    probe = probe_group(session.raw, snapshot, asked)
    if group.type is not GroupType.CLASSIC or group.protocol_type != CONSUMER:
        return replace(snapshot, probe=probe)
    reading = rebalanced_since_load(session.raw, group.group_id)
    yes = [answer.assignor for answer in probe.answers if answer.supported is Tri.YES]
    reading = seen_by_probe(reading, group.assignor, yes)
    return _with_reading(replace(snapshot, probe=probe), reading)


def _with_reading(snapshot: GroupSnapshot, reading: Reading) -> GroupSnapshot:
    coordinator = snapshot.group.coordinator
    assert coordinator is not None
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
    seen = Evidence(
        source=Source.OFFSETS_TOPIC, at=datetime.now(UTC), detail=f"generation {reading.generation}"
    )
    stored = {
        one.member_id: Timeouts(
            session_ms=one.session_timeout_ms,
            # The first version of the record has none: the coordinator takes the session timeout.
            rebalance_ms=one.rebalance_timeout_ms or one.session_timeout_ms,
            evidence=(seen,),
        )
        for one in reading.members
    }
    members = tuple(
        replace(member, timeouts=stored.get(member.member_id)) for member in snapshot.members
    )
    return replace(snapshot, group=group, members=members, evidence=(*snapshot.evidence, seen))


def _moment(ms: int | None) -> datetime | None:
    return None if ms is None or ms < 0 else datetime.fromtimestamp(ms / 1000, UTC)
