"""Many groups in few requests: `read_batches`.

A coordinator describes many groups in one request, gives their offsets in another, and is probed
for many at a time. Topics and end offsets of all groups are asked for together.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple, TypeVar

from msgspec.structs import replace

from rebal.groups.evidence.merge import merge
from rebal.groups.model import GroupSnapshot
from rebal.inspectors.errors import ConnectError, RequestError
from rebal.inspectors.kafka.cluster import MOVED, RawCluster, side_by_side
from rebal.inspectors.kafka.describe import NOT_THERE, Described, describe_many, offsets_of_many
from rebal.inspectors.kafka.listing import GroupFailure, failure_of
from rebal.inspectors.kafka.probe import probe_groups, undescribed
from rebal.inspectors.kafka.reload import Fetches, offsets_partition
from rebal.inspectors.kafka.session import Session
from rebal.inspectors.kafka.snapshots import Look, assignors_to_ask, snapshots, with_probe
from rebal.inspectors.kafka.wire import Connection, Deadline

_T = TypeVar("_T")
_Error = RequestError | ConnectError
Answers = dict[str, GroupSnapshot | GroupFailure]
_BATCH: Final = 50
_BROKERS: Final = 16
# Groups that are probed at once: the last one is asked some milliseconds after its description.
_PROBED: Final = 20
_PROBING: Final = 4
# Unless the cluster is set up otherwise (offsets.topic.num.partitions).
_PARTITIONS: Final = 50


def read_batches(
    session: Session,
    coordinators: Mapping[str, int],
    *,
    probe: bool = False,
    assignors: Sequence[str] = (),
) -> Answers:
    """Return a snapshot or a failure for each group, which the broker named beside it coordinates.

    Those that must be read alone are left out: they moved, were deleted, or changed meanwhile. A
    broker that does not answer delays the answer by one timeout.
    """
    by_broker: dict[int, list[str]] = defaultdict(list)
    for name, broker in coordinators.items():
        by_broker[broker].append(name)
    answers = side_by_side(
        lambda each: _of_broker(session.raw, *each), list(by_broker.items()), _BROKERS
    )
    looks = [look for each in answers for look in each.looks]
    found: Answers = {one.name: one for each in answers for one in each.failures}
    if not looks:
        return found
    made = snapshots(session, looks, session.raw.deadline)
    if not probe:
        return found | {one.group.group_id: merge(one, ()) for one in made}
    batches = list(_probe_batches(made))
    for some in side_by_side(lambda each: _probed(session, *each, assignors), batches, _PROBING):
        found |= some
    return found


class _Answers(NamedTuple):
    """Answers of one coordinator on its groups; those that it does not hold now are left out."""

    looks: list[Look]
    failures: list[GroupFailure]


def _of_broker(raw: RawCluster, broker: int, group_ids: list[str]) -> _Answers:
    """Return what this coordinator says of its groups and of their offsets."""

    def described_by(
        connection: Connection, some: list[str], deadline: Deadline
    ) -> Mapping[str, Described | RequestError]:
        return describe_many(connection, broker, some, deadline)

    described: list[Described] = []
    failures: list[GroupFailure] = []
    answers, deadline = _in_batches(raw, broker, group_ids, described_by)
    for name, answer in answers.items():
        if isinstance(answer, Described):
            described.append(answer)
        elif isinstance(answer, ConnectError):
            message = f"{name}: {answer}"
            failures.append(GroupFailure(group_id=name, message=message, kind="network"))
        elif answer.name not in (*MOVED, NOT_THERE):
            failures.append(failure_of(name, answer, deadline))
    names = [each.group_id for each in described]
    offsets, _ = _in_batches(raw, broker, names, offsets_of_many)
    return _Answers([Look(each, offsets[each.group_id]) for each in described], failures)


def _in_batches(
    raw: RawCluster,
    broker: int,
    group_ids: list[str],
    ask: Callable[[Connection, list[str], Deadline], Mapping[str, _T | RequestError]],
) -> tuple[dict[str, _T | _Error], Deadline]:
    """Return `ask`'s answers, and the deadline of the last batch that was asked.

    After a batch without an answer no more is asked: the broker would delay each of them.
    """
    found: dict[str, _T | _Error] = {}
    deadline = raw.deadline()
    for begin in range(0, len(group_ids), _BATCH):
        deadline = raw.deadline()
        try:
            some = group_ids[begin : begin + _BATCH]
            found |= ask(raw.node(broker, deadline), some, deadline)
        except (RequestError, ConnectError) as error:
            found |= dict.fromkeys(group_ids[begin:], error)
            break
    return found, deadline


def _probe_batches(made: Sequence[GroupSnapshot]) -> Iterator[tuple[int, list[GroupSnapshot]]]:
    """Yield a coordinator and groups to probe at once, by partition of the offsets topic.

    What is stored in a partition is then read once for all its groups.
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
    """Return the groups that this broker coordinates with the probe's answers."""
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
        for one in batch:
            found[one.group.group_id] = merge(replace(one, probe=undescribed(error)), ())
    except ConnectError as error:
        for name in [one.group.group_id for one in batch if one.group.group_id not in found]:
            found[name] = GroupFailure(group_id=name, message=f"{name}: {error}", kind="network")
    return found
