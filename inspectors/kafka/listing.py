"""Group ids that the brokers list, and the reasons why groups cannot be listed or read."""

import re
from functools import partial
from typing import Final

from rebal.groups.compact import Partitions
from rebal.groups.model import Record
from rebal.inspectors.connection.config import ClusterConfig
from rebal.inspectors.errors import ConnectError, RequestError, SelectionError, error_name
from rebal.inspectors.kafka.cluster import GONE, RawCluster, side_by_side
from rebal.inspectors.kafka.reload import OFFSETS_TOPIC
from rebal.inspectors.kafka.wire import Deadline, request_class

_THREADS: Final = 8
_MESSAGES: Final = {
    "GROUP_ID_NOT_FOUND": ("not-found", "no such group"),
    "GROUP_AUTHORIZATION_FAILED": (
        "authorization",
        "no right to describe it: allow DESCRIBE on the group (rebal doctor shows how)",
    ),
    "COORDINATOR_LOAD_IN_PROGRESS": (
        "loading",
        "its coordinator is still loading after {within}: try again, or give --timeout",
    ),
    "COORDINATOR_NOT_AVAILABLE": (
        "loading",
        "no coordinator within {within}: {topic} has no leader for it; try again",
    ),
    "NOT_COORDINATOR": ("loading", "its coordinator keeps moving: try again"),
    "TIMED_OUT": ("timeout", "no answer within {within}: is the broker up? (--timeout)"),
    "DISCONNECTED": ("network", "the broker closed the connection: try again"),
    "UNREACHABLE": ("network", ""),
    "TOPIC_AUTHORIZATION_FAILED": (
        "authorization",
        "no right to see all its topics, which a KIP-848 group needs: allow DESCRIBE on them",
    ),
    "INVALID_GROUP_ID": ("not-found", "the broker rejects this group id"),
}


class GroupFailure(Record, frozen=True, kw_only=True):
    """The reason why one group could not be read, or why the groups of one broker were not listed.

    If groups were not listed, their ids are not known and `group_id` is None. Only then may
    `broker_id` be set: the coordinator of these groups (None: they have no coordinator). `kind` is
    not-found, authorization, loading, timeout, network or other.
    """

    group_id: str | None
    message: str
    kind: str
    broker_id: int | None = None

    @property
    def name(self) -> str:
        """The group id, else the broker that did not list its groups, else `the cluster`."""
        if self.group_id is not None:
            return self.group_id
        return "the cluster" if self.broker_id is None else f"broker {self.broker_id}"


def pattern_of(match: str | None) -> re.Pattern[str] | None:
    """Return the compiled pattern of --match, for whole group ids; None if `match` is None.

    Raises:
        SelectionError: `match` is no regular expression.
    """
    try:
        return re.compile(match) if match is not None else None
    except re.error as error:
        raise SelectionError(f"--match: not a regular expression: {error}.") from None


def list_groups(
    raw: RawCluster, pattern: re.Pattern[str] | None, *, needed: bool
) -> tuple[dict[str, int], list[GroupFailure]]:
    """Return group id → coordinator of each matching group, and the failures to list groups.

    `pattern` must match the whole group id (None: every group). A failure concerns a broker that
    did not list its groups, or group ids whose coordinator is not known. The brokers list only
    groups that the user may describe.

    Raises:
        SelectionError: no group matches, and `needed` is True.
        ConnectError: the cluster cannot be reached.
    """
    listed, unlisted = _listed(raw)
    if len(unlisted) < len(raw.brokers):
        unlisted += _leaderless(raw)
    found = {name: listed[name] for name in listed if pattern is None or pattern.fullmatch(name)}
    if needed and not found:
        what = "the cluster lists no group"
        if pattern is not None:
            what = f"no group matches {pattern.pattern!r}"
        hint = f"; it lists {len(listed)}" if listed else " that you may describe"
        raise SelectionError(" ".join([f"{what}{hint}.", *(each.message for each in unlisted)]))
    return found, unlisted


def group_names(config: ClusterConfig) -> set[str]:
    """Return the ids of the groups that the brokers list in time, for shell completion.

    Raises:
        ConnectError: the cluster cannot be reached.
    """
    with RawCluster(config) as raw:
        return set(_listed(raw)[0])


def _listed(raw: RawCluster) -> tuple[dict[str, int], list[GroupFailure]]:
    raw.any(raw.deadline())
    brokers = sorted(raw.brokers)
    answers = side_by_side(partial(_listed_by, raw), brokers, _THREADS)
    listed = {
        name: broker
        for broker, answer in zip(brokers, answers, strict=True)
        if not isinstance(answer, GroupFailure)
        for name in answer
    }
    return listed, [answer for answer in answers if isinstance(answer, GroupFailure)]


def _listed_by(raw: RawCluster, broker_id: int) -> set[str] | GroupFailure:
    deadline = raw.deadline()
    try:
        answer = raw.node(broker_id, deadline).send(request_class("ListGroups"), deadline)
    except (RequestError, ConnectError) as error:
        return _unlisted(broker_id, error.reason, silent=getattr(error, "name", "") in GONE)
    if answer.error_code:
        return _unlisted(broker_id, error_name(answer.error_code))
    return {group.group_id for group in answer.groups}


def _leaderless(raw: RawCluster) -> list[GroupFailure]:
    """Return one failure if partitions of `__consumer_offsets` have no leader, else an empty list.

    The groups stored in those partitions have no coordinator, so no broker lists them.
    """
    try:
        (topic,) = raw.metadata([OFFSETS_TOPIC], raw.deadline()).topics
    except (RequestError, ConnectError):
        return []
    lost = sorted(part.partition_index for part in topic.partitions if part.leader_id < 0)
    if not lost:
        return []
    which = f"{len(lost)} of {len(topic.partitions)} partitions of {OFFSETS_TOPIC} have no leader"
    return [
        GroupFailure(
            group_id=None,
            message=f"{which} ({Partitions(lost)}): the groups stored there are not listed.",
            kind="loading",
        )
    ]


def _unlisted(broker_id: int, why: str, *, silent: bool = False) -> GroupFailure:
    text = (
        f"{why}: the groups that it coordinates are not listed."
        if silent
        else f"broker {broker_id} could not list the groups that it coordinates: {why}."
    )
    return GroupFailure(group_id=None, message=text, kind="network", broker_id=broker_id)


def failure_of(
    group_id: str, error: RequestError | ConnectError, deadline: Deadline
) -> GroupFailure:
    """Return the failure of a group that could not be read because of `error`.

    If no answer came in time, its message names the time waited since the start of `deadline`.
    """
    if isinstance(error, ConnectError):
        return GroupFailure(group_id=group_id, message=f"{group_id}: {error}", kind="network")
    kind, text = _MESSAGES.get(error.name, ("other", ""))
    text = text.format(within=deadline.waited(), topic=OFFSETS_TOPIC) or error.reason
    return GroupFailure(group_id=group_id, message=f"{group_id}: {text}.", kind=kind)
