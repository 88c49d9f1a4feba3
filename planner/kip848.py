"""What stands between a group and KIP-848, or the way back, decided from the evidence.

Each answer is yes (nothing stands there), no, or cannot tell, with one sentence that says why.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from rebal.groups.clients import UNKNOWN, family, version_tuple
from rebal.groups.model import GroupType, Record, Source, Tri
from rebal.planner.context import Context, Facts

POLICY: Final = "group.consumer.migration.policy"
_PROTOCOLS: Final = "group.coordinator.rebalance.protocols"
_SIZE: Final = "group.consumer.max.size"
_CLASSIC_SIZE: Final = "group.max.size"


class Answer(Record, frozen=True, kw_only=True):
    """One condition: does it allow the way, and why."""

    allows: Tri
    why: str


def worst(answers: tuple[Answer, ...]) -> Tri:
    """No before cannot tell before yes."""
    found = {answer.allows for answer in answers}
    return next((a for a in (Tri.NO, Tri.CANNOT_TELL) if a in found), Tri.YES)


def brokers(context: Context) -> Answer:
    """Do the brokers speak KIP-848 (group.version 1, which is 4.0 and later)?"""
    features = context.snapshot.cluster.features
    level = features.get("group.version")
    if level:
        protocols = context.snapshot.cluster.settings.get(_PROTOCOLS, "consumer")
        if "consumer" not in [name.strip().lower() for name in protocols.split(",")]:
            return Answer(
                allows=Tri.NO, why=f"the brokers' {_PROTOCOLS} is {protocols}, without consumer"
            )
        return Answer(allows=Tri.YES, why=f"the brokers have group.version {level}")
    if context.group.type is GroupType.CONSUMER:
        return Answer(allows=Tri.YES, why="the group runs KIP-848 already")
    if level == 0 or features:
        return Answer(
            allows=Tri.NO,
            why="the cluster's feature group.version is 0: brokers from 4.0 and kafka-features.sh "
            "upgrade --feature group.version=1 are needed",
        )
    version = version_tuple(context.snapshot.cluster.version)
    if version is not None and version < (4,):
        return Answer(
            allows=Tri.NO,
            why=f"the brokers run {context.snapshot.cluster.version}: KIP-848 needs 4.0 or later",
        )
    return Answer(
        allows=Tri.CANNOT_TELL,
        why="whether the brokers have group.version 1 is not known (take a new snapshot with rebal "
        "inspect GROUP --save, or ask kafka-features.sh describe)",
    )


def policy(context: Context, *, up: bool) -> Answer:
    """Does group.consumer.migration.policy allow the online way up, or down?"""
    wanted = "upgrade" if up else "downgrade"
    said = context.snapshot.cluster.settings.get(POLICY)
    if said is None:
        return Answer(
            allows=Tri.CANNOT_TELL,
            why=f"the brokers' {POLICY} was not read: it must be {wanted} or bidirectional",
        )
    able = said.strip().lower() in (wanted, "bidirectional")
    return Answer(
        allows=Tri.YES if able else Tri.NO,
        why=f"the brokers' {POLICY} is {said}"
        + ("" if able else f": it must be {wanted} or bidirectional"),
    )


def size(context: Context, *, up: bool) -> Answer:
    """Does the group fit: a joiner comes in before an old member has left, at worst."""
    key = _SIZE if up else _CLASSIC_SIZE
    said = context.snapshot.cluster.settings.get(key)
    count = max(len(context.members), context.expected or 0)
    if said is None or not said.isdigit():
        return Answer(allows=Tri.YES, why=f"the brokers' {key} was not read (unlimited by default)")
    if count >= int(said):
        return Answer(
            allows=Tri.NO,
            why=f"{count} members, and the brokers' {key} is {said}: a joiner would be refused",
        )
    return Answer(allows=Tri.YES, why=f"{count} members, fewer than the brokers' {key} ({said})")


def user_data(context: Context) -> Answer:
    """Is there user data in any member's assignment? A group with it is not converted."""
    named = [f for f in context.members if f.member.assignment_user_data]
    if named:
        return Answer(
            allows=Tri.NO,
            why=f"the assignments of {context.named(named)} carry user data of "
            f"{context.elected or 'the assignor'}: the coordinator does not convert such a group "
            "(KAFKA-18134)",
        )
    described = {evidence.source for evidence in context.snapshot.evidence}
    if Source.DESCRIBE in described or all(f.member.assignment for f in context.members):
        return Answer(allows=Tri.YES, why="no member's assignment carries user data")
    return Answer(
        allows=Tri.CANNOT_TELL, why="whether the assignments carry user data was not read"
    )


def clients(context: Context) -> tuple[Answer, ...]:
    """Is there a version of every member's client that speaks KIP-848 (RB412: its own does)?"""
    return tuple(_clients(context))


def _clients(context: Context) -> Iterator[Answer]:
    ahead = [facts for facts in context.members if facts.member.protocol_type != "consumer"]
    unknown = [facts for facts in ahead if facts.family is None]
    if unknown:
        yield Answer(
            allows=Tri.CANNOT_TELL,
            why=f"the client library of {context.named(unknown)} is not known (--assume-family)",
        )
    by_family: dict[str, list[Facts]] = {}
    for facts in ahead:
        if facts.family is not None:
            by_family.setdefault(facts.family, []).append(facts)
    for key, members in sorted(by_family.items()):
        known = family(key)
        since = known.kip848_since if known else UNKNOWN
        if version_tuple(since) is not None:
            continue
        never = since != UNKNOWN
        yield Answer(
            allows=Tri.NO if never else Tri.CANNOT_TELL,
            why=f"{context.named(members)}: {key} "
            + ("has no group.protocol=consumer" if never else "is not known to speak KIP-848"),
        )


def too_old(facts: Facts) -> Tri:
    """Must this member's client be upgraded before KIP-848 is turned on?"""
    known = family(facts.family)
    if known is None or version_tuple(known.kip848_since) is None:
        return Tri.CANNOT_TELL
    return facts.older_than(known.kip848_since)
