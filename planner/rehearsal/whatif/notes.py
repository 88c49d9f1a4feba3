"""Assumptions of a simulation, as sentences for the reader."""

from __future__ import annotations

from collections.abc import Collection

from rebal.groups.assignors import Spec
from rebal.groups.assignors.server import Undecided
from rebal.groups.model import GroupSnapshot, GroupType
from rebal.planner.rehearsal.spec import left_out
from rebal.planner.rehearsal.whatif.assignors import Choice


def assumes(
    snapshot: GroupSnapshot,
    choice: Choice,
    undecided: Undecided,
    changes: tuple[str, ...],
    spec: Spec,
) -> tuple[str, ...]:
    """Return the assumptions of one simulation, the most important first; `changes` have theirs.

    `spec` is the group when all has happened. `undecided` is whose order in the coordinator's
    tables matters and is not known; its members by name.
    """
    if choice.server_side:
        made = _server_side(snapshot, choice, undecided)
    else:
        made = _client_side(snapshot, choice)
    made += changes
    if snapshot.redacted and (choice.server_side or "sticky" in choice.name):
        made.append(
            f"the snapshot is redacted: {choice.name} goes by hashes of the real member ids, "
            "so other, equally good partitions may move"
        )
    unknown = left_out(spec)
    if unknown:
        made.append(
            "there are no more topics than the snapshot describes: members also subscribe to "
            + _some(unknown)
        )
    return tuple(made)


def _client_side(snapshot: GroupSnapshot, choice: Choice) -> list[str]:
    made = [f"every member runs {choice.name}" + _memory(choice)]
    if not choice.custom:
        made.append(
            "members reach the leader in the order of the snapshot (the order in which they will "
            "join cannot be known; it rarely matters)"
        )
    others = sorted(
        {
            member.software.family
            for member in snapshot.members
            if member.software is not None and member.software.family not in (None, "java")
        }
    )
    if others and not choice.custom:
        made.append(
            f"the leader is a Java client; one of {', '.join(others)} may choose other partitions"
        )
    return made


def _memory(choice: Choice) -> str:
    if choice.custom:
        return ", an assignor that is not Kafka's own"
    if "sticky" in choice.name:
        return " and tells the leader what it owns now"
    return ", which does not ask what they own now"


def _server_side(snapshot: GroupSnapshot, choice: Choice, undecided: Undecided) -> list[str]:
    made = []
    if snapshot.group.type is not GroupType.CONSUMER:
        made.append(
            "the group has moved to KIP-848 (group.protocol=consumer) with what its members own now"
        )
    # The other one gives each topic out by itself.
    if choice.name == "uniform" and any(topic.topic_id is None for topic in snapshot.topics):
        made.append(
            "the snapshot has no topic ids: the coordinator walks topics in the order of their "
            "ids, so other, equally good partitions may move"
        )
    if undecided.topics:
        made.append(
            f"{_some(undecided.topics)} share a place in the coordinator's table: which of them it "
            "walks first depends on its past, which no answer tells, so other, equally good "
            "partitions may move"
        )
    if undecided.members:
        made.append(
            f"members {_some(undecided.members)} share places in the coordinator's table: which of "
            "those at one place it serves first depends on its past, which no answer tells, so one "
            "may get what is predicted for another"
        )
    return made


def _some(names: Collection[str]) -> str:
    """Return the first five by name."""
    more = f" and {len(names) - 5:,} more" if len(names) > 5 else ""
    return ", ".join(sorted(names)[:5]) + more
