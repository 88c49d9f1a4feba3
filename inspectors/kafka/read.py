"""Live groups: `select_groups` chooses them, `read_groups` reads each into a `GroupSnapshot`.

Groups are read in batches. One request to a coordinator describes many groups, another returns
their offsets, and a probe covers many groups at a time; topics and end offsets of all groups are
read together. A group whose coordinator is not known, loads or moves is read alone. Data of a group
that cannot be read becomes a note; a group that cannot be described becomes a failure. `survey`
reads all groups of a cluster, `read_brokers` a cluster without its groups.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Final, NamedTuple

from msgspec.structs import replace

from rebal.groups.evidence.merge import merge
from rebal.groups.model import GroupSnapshot, Record, Topic
from rebal.inspectors import clock
from rebal.inspectors.connection.config import ClusterConfig
from rebal.inspectors.errors import ConnectError, RequestError, unless_error
from rebal.inspectors.kafka.brokers import ClusterReading
from rebal.inspectors.kafka.cluster import MOVED_OR_LOADING, RawCluster, side_by_side
from rebal.inspectors.kafka.describe import NOT_THERE, GroupLook, look_at
from rebal.inspectors.kafka.listing import GroupFailure, failure_of, list_groups, pattern_of
from rebal.inspectors.kafka.probe import probe_group, probe_groups, undescribed_probe
from rebal.inspectors.kafka.reload import Fetches, offsets_partition
from rebal.inspectors.kafka.session import Session, connect
from rebal.inspectors.kafka.snapshots import assignors_to_ask, snapshots, with_probe
from rebal.inspectors.kafka.wire import Deadline

Answers = dict[str, GroupSnapshot | GroupFailure]
_OF_BROKERS: Final = frozenset(
    {"__consumer_offsets", "__transaction_state", "__share_group_state", "__cluster_metadata"}
)
_THREADS: Final = 8
_BATCH: Final = 50
_BROKERS: Final = 16
# Groups that are probed at once: the last one is asked some milliseconds after its description.
_PROBED: Final = 20
_PROBING: Final = 4
# Unless the cluster is set up otherwise (offsets.topic.num.partitions).
_PARTITIONS: Final = 50


class Selection(Record, frozen=True, kw_only=True):
    """The ids of the groups to read, and the failures of brokers that could not list their groups.

    `coordinators` maps group id → the broker that listed the group.
    """

    group_ids: tuple[str, ...] = ()
    coordinators: Mapping[str, int] = {}
    unlisted: tuple[GroupFailure, ...] = ()


class Survey(NamedTuple):
    """The groups of a cluster that could be read, and the failures to list or read the others.

    `notes` are the notes of all snapshots, each once.
    """

    groups: list[GroupSnapshot]
    failures: list[GroupFailure]
    notes: tuple[str, ...] = ()


def select_groups(
    config: ClusterConfig,
    wanted: Sequence[str],
    *,
    match: str | None = None,
    all_groups: bool = False,
) -> Selection:
    """Return the group ids to read: `wanted` in its order, then the cluster's groups, sorted.

    The cluster's groups are added only with `match` (a regular expression for the whole group id)
    or `all_groups`. The brokers list only groups that the user may describe.

    Raises:
        SelectionError: `match` is no regular expression, or there is no group to read.
        ConnectError: the cluster cannot be reached.
    """
    chosen = list(dict.fromkeys(wanted))
    if match is None and not all_groups:
        return Selection(group_ids=tuple(chosen))
    pattern = pattern_of(match)
    with connect(config) as session:
        found, unlisted = list_groups(session.raw, pattern, needed=not chosen)
    return Selection(
        group_ids=tuple(dict.fromkeys([*chosen, *sorted(found)])),
        coordinators=found,
        unlisted=tuple(unlisted),
    )


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
    coordinator is probed for the elected assignor, for `assignors` and for all assignors that rebal
    knows. `coordinators` maps group id → coordinator; these brokers are asked about many groups at
    once.

    Raises:
        ConnectError: the cluster cannot be reached, or the login is rejected.
    """
    if not group_ids:
        return []
    with connect(config) as session:
        return _read_all(
            session,
            group_ids,
            {name: coordinators[name] for name in group_ids if name in coordinators},
            probe=probe,
            assignors=assignors,
        )


def survey(config: ClusterConfig, *, match: str | None = None) -> Survey:
    """Return snapshots of every group of the cluster, or of those whose whole id matches `match`.

    A broker that does not answer delays the result by one timeout, whatever the number of groups.

    Raises:
        SelectionError: `match` is no regular expression, or no group matches it.
        ConnectError: the cluster cannot be reached, or the login is rejected.
    """
    pattern = pattern_of(match)
    with connect(config) as session:
        found, failures = list_groups(session.raw, pattern, needed=match is not None)
        answers = _read_all(session, list(found), found)
    groups = [each for each in answers if isinstance(each, GroupSnapshot)]
    failures += [
        each
        for each in answers
        # A group that was deleted after it was listed is not missed.
        if isinstance(each, GroupFailure) and each.kind != "not-found"
    ]
    return Survey(groups, failures, tuple({note: None for one in groups for note in one.notes}))


def _read_all(
    session: Session,
    group_ids: Sequence[str],
    coordinators: Mapping[str, int],
    *,
    probe: bool = False,
    assignors: Sequence[str] = (),
) -> list[GroupSnapshot | GroupFailure]:
    def alone(group_id: str) -> GroupSnapshot | GroupFailure:
        deadline = session.raw.deadline()
        try:
            return read_group(session, group_id, deadline, probe=probe, assignors=assignors)
        except (RequestError, ConnectError) as error:
            return failure_of(group_id, error, deadline)

    answers = read_batches(session, coordinators, probe=probe, assignors=assignors)
    left = [group_id for group_id in group_ids if group_id not in answers]
    answers |= zip(left, side_by_side(alone, left, _THREADS), strict=True)
    return [answers[group_id] for group_id in group_ids]


def read_group(
    session: Session,
    group_id: str,
    deadline: Deadline,
    *,
    probe: bool = False,
    assignors: Sequence[str] = (),
) -> GroupSnapshot:
    """Return a snapshot of the group as it is now; wait while its coordinator loads it.

    It contains the bounds of each member's assignor list: names known to be in it, or not in it.
    With `probe`, the coordinator is also probed for the elected assignor, for `assignors` and for
    all assignors that rebal knows.

    Raises:
        RequestError: the group cannot be described.
        ConnectError: the connection is lost for good.
    """
    look = session.raw.on_coordinator(
        group_id,
        deadline,
        lambda connection, broker: unless_error(
            look_at(connection, broker, [group_id], deadline, lambda: deadline)[group_id]
        ),
    )
    (snapshot,) = snapshots(session, [look], lambda: deadline)
    if probe:
        answer = probe_group(
            session.raw, snapshot, assignors_to_ask(snapshot.group.assignor, assignors)
        )
        snapshot = with_probe(session, snapshot, answer, Fetches())
    return merge(snapshot, ())


def read_batches(
    session: Session,
    coordinators: Mapping[str, int],
    *,
    probe: bool = False,
    assignors: Sequence[str] = (),
) -> Answers:
    """Return group id → snapshot or failure; `coordinators` maps group id → its coordinator.

    Groups that must be read alone are left out: their coordinator moved or loads, they were
    deleted, or they changed during the probe. A broker that does not answer delays the result by
    one timeout.
    """
    by_broker: dict[int, list[str]] = defaultdict(list)
    for name, broker in coordinators.items():
        by_broker[broker].append(name)
    looks: list[GroupLook] = []
    found: Answers = {}
    for some, failures in side_by_side(
        lambda each: _looks(session.raw, *each), list(by_broker.items()), _BROKERS
    ):
        looks += some
        found |= failures
    if not looks:
        return found
    made = snapshots(session, looks, session.raw.deadline)
    if not probe:
        return found | {one.group.group_id: merge(one, ()) for one in made}
    for probed in side_by_side(
        lambda each: _probed(session, *each, assignors), list(_probe_batches(made)), _PROBING
    ):
        found |= probed
    return found


def _looks(
    raw: RawCluster, broker: int, group_ids: list[str]
) -> tuple[list[GroupLook], dict[str, GroupFailure]]:
    """Return descriptions and offsets of the groups that `broker` coordinates, and failures by id.

    Groups that the coordinator does not hold now are left out. After a batch without an answer, all
    remaining groups are failures: the broker would delay each further batch.
    """
    looks: list[GroupLook] = []
    failures: dict[str, GroupFailure] = {}
    for begin in range(0, len(group_ids), _BATCH):
        some, deadline = group_ids[begin : begin + _BATCH], raw.deadline()
        try:
            answers = look_at(raw.node(broker, deadline), broker, some, deadline, raw.deadline)
        except (RequestError, ConnectError) as error:
            failures |= {name: failure_of(name, error, deadline) for name in group_ids[begin:]}
            break
        for name, answer in answers.items():
            if isinstance(answer, GroupLook):
                looks.append(answer)
            elif answer.name not in (*MOVED_OR_LOADING, NOT_THERE):
                failures[name] = failure_of(name, answer, deadline)
    return looks, failures


def _probe_batches(made: Sequence[GroupSnapshot]) -> Iterator[tuple[int, list[GroupSnapshot]]]:
    """Yield batches of groups to probe at once: a coordinator's id, and up to 20 of its groups.

    The groups of a coordinator are sorted by their partition of `__consumer_offsets`, so that the
    groups of one partition, whose records are read once for a batch, come together.
    """
    by_broker: dict[int, list[GroupSnapshot]] = defaultdict(list)
    for one in made:
        assert one.group.coordinator is not None
        by_broker[one.group.coordinator.broker_id].append(one)
    for broker, groups in by_broker.items():
        groups.sort(key=lambda one: offsets_partition(one.group.group_id, _PARTITIONS))
        for begin in range(0, len(groups), _PROBED):
            yield broker, groups[begin : begin + _PROBED]


def _probed(
    session: Session, broker: int, batch: Sequence[GroupSnapshot], assignors: Sequence[str]
) -> Answers:
    found: Answers = {}
    try:
        asked = [(one, assignors_to_ask(one.group.assignor, assignors)) for one in batch]
        probes = probe_groups(session.raw, asked, broker)
        fetches = Fetches()
        for one in batch:
            name = one.group.group_id
            if name in probes:
                found[name] = merge(with_probe(session, one, probes[name], fetches), ())
    except RequestError as error:
        # What is stored is not asked for either: the broker would delay each group.
        found |= {
            one.group.group_id: merge(replace(one, probe=undescribed_probe(error)), ())
            for one in batch
        }
    except ConnectError as error:
        names = [one.group.group_id for one in batch if one.group.group_id not in found]
        found |= {name: failure_of(name, error, session.raw.deadline()) for name in names}
    return found


def read_brokers(config: ClusterConfig) -> ClusterReading:
    """Return the cluster's brokers, settings, topics and log end offsets, without its groups.

    Settings and version are those of the broker with the lowest id.

    Raises:
        ConnectError: the cluster cannot be reached, or the login is rejected.
        RequestError: a broker did not answer.
    """
    with connect(config) as session:
        deadline = session.raw.deadline()
        cluster, notes = session.cluster(min(session.raw.brokers), deadline)
        topics, _ = session.topics(None, deadline)
        ends: Mapping[str, tuple[int | None, ...]] = {}
        try:
            ends = _ends_of(topics, session)
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


def _ends_of(topics: Sequence[Topic], session: Session) -> dict[str, tuple[int | None, ...]]:
    """Return topic → log end offset of each partition in order (None: not known).

    Kafka's internal topics are left out.
    """
    wanted = {one.name: range(one.partitions) for one in topics if one.name not in _OF_BROKERS}
    found = session.ends(
        [(name, number) for name, numbers in wanted.items() for number in numbers],
        session.raw.deadline(),
    )
    return {
        name: tuple(found.get((name, number)) for number in numbers)
        for name, numbers in wanted.items()
    }
