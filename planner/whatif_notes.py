"""What a simulation takes for granted, in sentences for the person who reads it."""

from __future__ import annotations

from rebal.groups.model import GroupSnapshot, GroupType
from rebal.planner.whatif_assignors import Choice
from rebal.planner.whatif_spec import left_out


def assumes(snapshot: GroupSnapshot, choice: Choice, changes: tuple[str, ...]) -> tuple[str, ...]:
    """The assumptions of one simulation, the most important first; `changes` have their own."""
    made = list(_server_side(snapshot) if choice.server_side else _client_side(snapshot, choice))
    made += changes
    if snapshot.redacted and (choice.server_side or "sticky" in choice.name):
        made.append(
            f"the snapshot is redacted: {choice.name} goes by hashes of the real member ids, "
            "so other, equally good partitions may move"
        )
    unknown = left_out(snapshot)
    if unknown:
        more = f" and {len(unknown) - 5} more" if len(unknown) > 5 else ""
        made.append(
            "there are no more topics than the snapshot describes: members also subscribe to "
            f"{', '.join(unknown[:5])}{more}"
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


def _server_side(snapshot: GroupSnapshot) -> list[str]:
    made = []
    if snapshot.group.type is not GroupType.CONSUMER:
        made.append(
            "the group has moved to KIP-848 (group.protocol=consumer) with what its members own now"
        )
    bare = {topic.name for topic in snapshot.topics if topic.topic_id is None}
    if bare:
        made.append(
            "the snapshot has no topic ids: the coordinator walks topics in the order of their "
            "ids, so other, equally good partitions may move"
        )
    return made
