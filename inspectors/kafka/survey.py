"""All groups of a cluster at once, in few requests: `survey`.

`read_groups` sends some six requests for each group. Here a coordinator describes many groups in
one request and gives their offsets in another, and all end offsets are asked for together. Each
broker gets one request at a time over the raw connection.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple, TypeVar

from rebal.groups.evidence.merge import merge
from rebal.groups.model import GroupSnapshot
from rebal.inspectors.connection.config import ClusterConfig
from rebal.inspectors.errors import ConnectError, RequestError
from rebal.inspectors.kafka.cluster import MOVED, RawCluster, side_by_side
from rebal.inspectors.kafka.describe import (
    Described,
    describe_many,
    offsets_of_many,
)
from rebal.inspectors.kafka.listing import (
    GroupFailure,
    failure_of,
    list_groups,
    pattern_of,
)
from rebal.inspectors.kafka.read import (
    Look,
    read_all,
    snapshots,
)
from rebal.inspectors.kafka.session import connect
from rebal.inspectors.kafka.wire import Connection, Deadline

_T = TypeVar("_T")
_Error = RequestError | ConnectError
_BATCH: Final = 50
_BROKERS: Final = 16
_DELETED: Final = "GROUP_ID_NOT_FOUND"


class Survey(NamedTuple):
    """The groups of a cluster, those that could not be read or listed, and notes on all of them."""

    groups: list[GroupSnapshot]
    failures: list[GroupFailure]
    notes: tuple[str, ...] = ()


class _Answers(NamedTuple):
    """Answers of one coordinator on its groups; `moved` are those that it does not hold now."""

    looks: list[Look]
    failures: list[GroupFailure]
    moved: list[str]


def survey(config: ClusterConfig, *, match: str | None = None) -> Survey:
    """Return every group of the cluster, or those whose whole id matches `match`.

    A broker that does not answer delays the answer by one timeout, whatever the number of groups.

    Raises:
        SelectionError: `match` is no regular expression, or no group matches it.
        ConnectError: the cluster cannot be reached, or the login is rejected.
    """
    pattern = pattern_of(match)
    with connect(config) as session:
        raw = session.raw
        found, unlisted = list_groups(raw, pattern, needed=match is not None)
        by_broker: dict[int, list[str]] = {}
        for name, broker in found.items():
            by_broker.setdefault(broker, []).append(name)
        asked = list(by_broker.items())
        answers = side_by_side(lambda each: _of_broker(raw, *each), asked, _BROKERS)
        looks = [look for each in answers for look in each.looks]
        made, notes = snapshots(session, looks, raw.deadline)
        groups = [merge(snapshot, ()) for snapshot in made]
        failures = [failure for each in answers for failure in each.failures]
        for again in read_all(session, [name for each in answers for name in each.moved]):
            if isinstance(again, GroupSnapshot):
                groups.append(again)
            else:
                failures.append(again)
        return Survey(groups, [*failures, *unlisted], tuple(dict.fromkeys(notes)))


def _of_broker(raw: RawCluster, broker: int, group_ids: list[str]) -> _Answers:
    """Return what this coordinator says of its groups and of their offsets."""

    def described_by(
        connection: Connection, some: list[str], deadline: Deadline
    ) -> Mapping[str, Described | RequestError]:
        return describe_many(connection, broker, some, deadline)

    described: list[Described] = []
    failures: list[GroupFailure] = []
    moved: list[str] = []
    answers, deadline = _in_batches(raw, broker, group_ids, described_by)
    for name, answer in answers.items():
        if isinstance(answer, Described):
            described.append(answer)
        elif isinstance(answer, ConnectError):
            message = f"{name}: {answer}"
            failures.append(GroupFailure(group_id=name, message=message, kind="network"))
        elif answer.name in MOVED:
            moved.append(name)
        elif answer.name != _DELETED:
            failures.append(failure_of(name, answer, deadline))
    names = [each.group_id for each in described]
    offsets, _ = _in_batches(raw, broker, names, offsets_of_many)
    looks = [Look(each, offsets[each.group_id]) for each in described]
    return _Answers(looks, failures, moved)


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
