"""Live groups: `select_groups` chooses them, `read_groups` reads each into a `GroupSnapshot`.

What cannot be read of a group becomes a note; a group without a description is a failure.
`read_brokers` reads a cluster without its groups.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

from rebal.groups.evidence.merge import merge
from rebal.groups.model import GroupSnapshot, Record, Topic
from rebal.inspectors import clock
from rebal.inspectors.connection.config import ClusterConfig
from rebal.inspectors.errors import ConnectError, RequestError
from rebal.inspectors.kafka.batches import read_batches
from rebal.inspectors.kafka.brokers import ClusterReading
from rebal.inspectors.kafka.cluster import side_by_side
from rebal.inspectors.kafka.describe import Offsets, committed_offsets, describe
from rebal.inspectors.kafka.listing import GroupFailure, failure_of, list_groups, pattern_of
from rebal.inspectors.kafka.probe import probe_group
from rebal.inspectors.kafka.reload import Fetches
from rebal.inspectors.kafka.resources import Resources
from rebal.inspectors.kafka.session import Session, connect
from rebal.inspectors.kafka.snapshots import Look, assignors_to_ask, snapshots, with_probe
from rebal.inspectors.kafka.wire import Deadline

_OF_BROKERS: Final = frozenset(
    {"__consumer_offsets", "__transaction_state", "__share_group_state", "__cluster_metadata"}
)


def read_group(
    session: Session,
    group_id: str,
    deadline: Deadline,
    *,
    probe: bool = False,
    assignors: Sequence[str] = (),
) -> GroupSnapshot:
    """Return the group as it is now, with the bounds of its members' assignor lists.

    Raises:
        RequestError: the group cannot be described.
        ConnectError: the connection is lost for good.
    """
    described = describe(session.raw, group_id, deadline)
    offsets: Offsets | RequestError | ConnectError
    try:
        offsets = committed_offsets(session.raw, group_id, deadline)
    except (RequestError, ConnectError) as error:
        offsets = error
    (snapshot,) = snapshots(session, [Look(described, offsets)], lambda: deadline)
    if probe:
        asked = assignors_to_ask(described.assignor, assignors)
        answer = probe_group(session.raw, snapshot, asked)
        snapshot = with_probe(session, snapshot, answer, Fetches())
    return merge(snapshot, ())


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

    Groups are read in parallel, each request within `config.timeout_ms`. With `probe`, the
    coordinator is asked for the elected assignor, `assignors` and the known ones. `coordinators`
    are brokers to ask without a search, about many groups at once.

    Raises:
        ConnectError: the cluster cannot be reached, or the login is rejected.
    """
    if not group_ids:
        return []
    with connect(config) as session:
        known = {name: coordinators[name] for name in group_ids if name in coordinators}
        return read_all(session, group_ids, known, probe=probe, assignors=assignors)


def read_all(
    session: Session,
    group_ids: Sequence[str],
    coordinators: Mapping[str, int],
    *,
    probe: bool = False,
    assignors: Sequence[str] = (),
) -> list[GroupSnapshot | GroupFailure]:
    """Return what `read_groups` returns, over the connections of `session`."""

    def one(group_id: str) -> GroupSnapshot | GroupFailure:
        deadline = session.raw.deadline()
        try:
            return read_group(session, group_id, deadline, probe=probe, assignors=assignors)
        except RequestError as error:
            return failure_of(group_id, error, deadline)
        except ConnectError as error:
            return GroupFailure(group_id=group_id, message=f"{group_id}: {error}", kind="network")

    answers = read_batches(session, coordinators, probe=probe, assignors=assignors)
    left = [group_id for group_id in group_ids if group_id not in answers]
    answers |= zip(left, side_by_side(one, left, _THREADS), strict=True)
    return [answers[group_id] for group_id in group_ids]


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
