"""Conditions of a move to a newer protocol and back, decided from the evidence.

The moves are to KIP-848, and of a Kafka Streams program to the streams protocol (KIP-1071). Each
condition is an `Answer`: yes (it allows the move), no, or cannot tell, with one clause as reason.
Rules and paths use the same answers.

`brokers`, `clients` and `fits` concern every path. `policy`, `room` and `user_data` concern only
the online path, because an Empty group is replaced by a new one whatever its type was (seen on
4.1.1). KIP-1071 has no online path; an Empty group is replaced there too (seen on 4.3.1 and 4.4.0).
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from rebal.groups.clients import UNKNOWN, family, other_brokers, version_tuple
from rebal.groups.model import GroupState, GroupType, Record, Tri
from rebal.planner.admission.memory import POLICY, classic_joins, static_restarts_when_full
from rebal.planner.clients import fault
from rebal.planner.context import CLASSIC, STREAMS, Context, Facts
from rebal.planner.plan import Aim, Risk, Step
from rebal.planner.settings import asks_for_range
from rebal.planner.verdict import opposite, worst

_PROTOCOLS: Final = "group.coordinator.rebalance.protocols"
_SIZES: Final = {
    GroupType.CLASSIC: "group.max.size",
    GroupType.CONSUMER: "group.consumer.max.size",
    GroupType.STREAMS: "group.streams.max.size",
}
_SIZE: Final = _SIZES[GroupType.CONSUMER]
NEEDS: Final = {
    GroupType.CONSUMER: ("KIP-848", "group.version", "4.0"),
    GroupType.STREAMS: ("KIP-1071", "streams.version", "4.2"),
}
"""Type of group → its proposal, the feature that brokers need for it, and their first release."""
# Java's Integer.MAX_VALUE, the default of both: no limit.
_NO_LIMIT: Final = 2**31 - 1


class Answer(Record, frozen=True, kw_only=True):
    """One condition: whether it allows the path, the reason, and the members that prevent it."""

    allows: Tri
    why: str
    members: tuple[Facts, ...] = ()


def allows(answers: Iterable[Answer]) -> Tri:
    """Return whether all conditions together allow the path."""
    return worst(answer.allows for answer in answers)


def needed(answers: Sequence[Answer], first: str = "") -> str:
    """Return one text: the clause `first`, then each answer's reason that does not allow the path.

    If `first` is empty and every answer allows it, the text has the reasons of all answers.
    """
    left = [answer.why for answer in answers if answer.allows is not Tri.YES]
    return "; ".join(filter(None, [first, *left])) or "; ".join(one.why for one in answers)


def brokers(context: Context, kind: GroupType = GroupType.CONSUMER) -> Answer:
    """Return whether the brokers support groups of type `kind`.

    Their release, their feature level and group.coordinator.rebalance.protocols decide.
    """
    cluster = context.snapshot.cluster
    proposal, feature, since = NEEDS[kind]
    other = other_brokers(context.given.brokers, cluster.cluster_id)
    release = version_tuple(cluster.version)
    # Both lose their last zeros: 4.0 is (4,).
    old = release is not None and release < (version_tuple(since) or ())
    level = cluster.features.get(feature)
    protocols = cluster.settings.get(_PROTOCOLS, kind.value)
    runs = kind.value in [each.strip().lower() for each in protocols.split(",")]
    return _first(
        (context.group.type is kind, Tri.YES, f"the group's type is {kind} already"),
        (
            other is not None and other.kip848 is False,
            Tri.NO,
            f"the brokers are {other and other.name}'s, without {proposal} groups",
        ),
        (
            old and " or later" not in (cluster.version or ""),
            Tri.NO,
            f"the brokers are {cluster.version}, and {proposal} groups need {since} or later",
        ),
        (level and not runs, Tri.NO, f"the brokers' {_PROTOCOLS} is {protocols}, without {kind}"),
        (level, Tri.YES, f"the brokers have {feature} {level}"),
        (
            level == 0 or cluster.features,
            Tri.NO,
            f"the cluster's feature {feature} is not switched on (it is 0)",
        ),
        (
            True,
            Tri.CANNOT_TELL,
            f"it is not verified that the brokers have the feature {feature}",
        ),
    )


def _first(*rows: tuple[object, Tri, str, *tuple[Sequence[Facts], ...]]) -> Answer:
    """Return the answer of the first row whose condition holds.

    A row is a condition, the answer, its reason, and optionally the members that it is about.
    """
    _, allowed, why, *members = next(row for row in rows if row[0])
    return Answer(allows=allowed, why=why, members=tuple(*members))


def policy(context: Context, *, up: bool) -> Answer:
    """Return whether group.consumer.migration.policy allows the online upgrade, or downgrade.

    Once the group is a KIP-848 one, the upgrade needs no conversion: its classic members must be
    admitted when the next restart makes them join again. In a downgrade the policy must allow the
    conversion when the last member with group.protocol=consumer leaves.
    """
    wanted = "upgrade" if up else "downgrade"
    said = context.snapshot.cluster.settings.get(POLICY)
    joins = classic_joins(context.snapshot.cluster)
    converted = up and context.group.type is GroupType.CONSUMER
    classic = [f for f in context.members if f.member.protocol_type == "classic"]
    why = f"the brokers' {POLICY} is {said}"
    return _first(
        (
            # The restart of the only one moves it.
            converted and (joins is Tri.YES or len(classic) < 2),
            Tri.YES,
            "the group's type is consumer already",
        ),
        (
            said is None,
            Tri.CANNOT_TELL,
            f"the brokers' {POLICY} was not read, and must be {wanted} or bidirectional",
        ),
        ((said or "").strip().lower() in (wanted, "bidirectional"), Tri.YES, why),
        (
            True,
            Tri.NO,
            f"{why}, so {_closed(context, joins, up=up)}: set the policy to {wanted} or "
            "bidirectional",
            classic if converted else (),
        ),
    )


def _closed(context: Context, joins: Tri, *, up: bool) -> str:
    """Return a clause on what the brokers do while the migration policy forbids the change.

    The change is the online upgrade to KIP-848 (`up`) or the downgrade. `joins` is whether these
    brokers admit classic joins to a KIP-848 group that has members (`classic_joins`).
    """
    if up and context.group.type is not GroupType.CONSUMER:
        return (
            "a member with group.protocol=consumer is rejected while the group has classic members"
        )
    if joins is Tri.YES:
        return "classic members are admitted, but the group stays a KIP-848 group"
    version = context.snapshot.cluster.version or "an unknown version"
    unsure = f"some brokers, and these ({version}) may be such,"
    who = "these brokers" if joins is Tri.NO else unsure
    ends = ", and each rebalance ends the classic members that are in it" if up else ""
    return f"{who} reject every classic join to a KIP-848 group{ends} (KAFKA-20640)"


def fits(context: Context, kind: GroupType) -> Answer:
    """Return whether the number of members fits the limit of groups of this type.

    A member above the limit is rejected, online and after a stop.
    """
    key = _SIZES[kind]
    count, limit = _count(context), _limit(context, key)
    most = _NO_LIMIT if limit is None else limit
    return _first(
        (
            limit is None,
            Tri.CANNOT_TELL,
            f"the brokers' {key}, which limits the members after the change, was not read",
        ),
        (
            not count and most < _NO_LIMIT,
            Tri.CANNOT_TELL,
            f"the group may exceed the brokers' {key}, which is {limit}: its number of members is "
            "unknown (--expect-members)",
        ),
        (
            count > most,
            Tri.NO,
            f"the last members to join are rejected: the group has {_members(count)}, and the "
            f"brokers' {key} is {limit}",
        ),
        (
            most == _NO_LIMIT,
            Tri.YES,
            f"the brokers do not limit the number of members ({key})",
        ),
        (True, Tri.YES, f"{_members(count)}, and the brokers' {key} is {limit}"),
    )


def room(context: Context, ahead: tuple[Facts, ...]) -> Answer:
    """Return whether the group's limit lets a restarted member rejoin while all others are in it.

    `ahead` are the members still to restart. In a group that is exactly full, a restarted member is
    rejected unless its old process has left first. A static member does not leave when it stops,
    and a surge deployment starts the new process before the old one stops.
    """
    limit, count = _limit(context, _SIZE), _count(context)
    full = f"{_members(count)} is all that the brokers' {_SIZE} allows"
    surging = [facts for facts in ahead if facts.surges]
    static = [facts for facts in ahead if facts.back_in_time(context.speed)]
    returns = static_restarts_when_full(context.snapshot.cluster)
    rejected = "rejected" if returns is Tri.NO else "rejected before Kafka 4.4.0"
    return _first(
        # `fits` cannot tell, and one such answer is enough.
        (limit is None, Tri.YES, f"whether a member has room to rejoin depends on {_SIZE}"),
        (
            count != limit or not ahead,
            Tri.YES,
            f"a restarted member can rejoin: the group is not at the limit ({_SIZE})",
        ),
        (
            surging,
            Tri.NO,
            f"{full}, and the deployment starts the new {context.named(surging)} before the old "
            "one has left (maxSurge), so it is rejected",
            surging,
        ),
        (
            static and returns is not Tri.YES,
            returns,
            f"{full}, and {context.named(static)} does not leave when it stops (static): it is "
            f"{rejected} unless it stays down until its session ends",
            static,
        ),
        (
            returns is Tri.YES and all(facts.static for facts in ahead),
            Tri.YES,
            f"{full}, and these brokers admit a static member that returns",
        ),
        (
            True,
            Tri.CANNOT_TELL,
            f"{full}: a member that rejoins before its old process has left is rejected",
        ),
    )


def user_data(context: Context) -> Answer:
    """Return whether the members' assignments allow the conversion of the group to KIP-848.

    User data in any of them prevents it (KAFKA-18134).
    """
    named = [f for f in context.members if f.member.assignment_user_data]
    unread = [
        f
        for f in context.members
        if f.member.assignment_user_data is None and f.member.subscription is None
    ]
    return _first(
        (
            named,
            Tri.NO,
            f"the assignments of {context.named(named)} carry user data of "
            f"{context.group.assignor or 'the assignor'}, and such a group is not converted "
            "(KAFKA-18134)",
            named,
        ),
        (
            unread and context.group.type is not GroupType.CONSUMER,
            Tri.CANNOT_TELL,
            f"the assignments of {context.named(unread)} may carry user data, which prevents the "
            "conversion: their bytes were not read",
            unread,
        ),
        (True, Tri.YES, "no member's assignment carries user data"),
    )


def conditions(context: Context, *, up: bool) -> tuple[tuple[Answer, ...], tuple[Answer, ...]]:
    """Return the conditions of the move to KIP-848 (`up`) or back, as two tuples.

    The first holds the conditions of both paths, the second those of the online path alone.
    """
    kind = "consumer" if up else "classic"
    rest = tuple(f for f in context.members if f.member.protocol_type != kind)
    own = (policy(context, up=up), room(context, rest))
    if not up:
        # The group is converted when the last member with group.protocol=consumer leaves.
        none_left = Answer(
            allows=Tri.NO,
            why="every member is a classic one already, and the group was not converted when the "
            "last member with group.protocol=consumer left",
        )
        stuck = (none_left,) if context.members and not rest else ()
        return (
            (fits(context, GroupType.CLASSIC), _families(context)),
            (*own, *_lists(context), *stuck),
        )
    common = (brokers(context), *clients(context), fits(context, GroupType.CONSUMER))
    return common, own if context.group.type is GroupType.CONSUMER else (*own, user_data(context))


def closed_online(context: Context, *, up: bool) -> tuple[Answer, ...]:
    """Return the conditions that rule out the online path, if the path with a stop remains.

    Empty if the online path may be open, if no path at all is, or if the group has no members.
    Empty too if the group is half-way to KIP-848: the operator can meet the conditions, and
    stopping the classic members for them would be wrong.
    """
    common, own = conditions(context, up=up)
    if (
        not context.members
        or (up and context.group.type is GroupType.CONSUMER)
        or allows(common) is Tri.NO
    ):
        return ()
    return tuple(answer for answer in own if answer.allows is Tri.NO)


def online(context: Context) -> tuple[Answer, ...]:
    """Return all conditions of a member's join with group.protocol=consumer on the online path."""
    common, own = conditions(context, up=True)
    return (*common, *own)


def not_range(context: Context, step: Step) -> str:
    """Return why the brokers do not assign by range, although `step` asks for it.

    Empty if `step` does not ask for range, if the brokers assign by it, or if they do not assign
    yet. Members that ask for an assignor outvote those that ask for none
    (ConsumerGroup.computePreferredServerAssignor).
    """
    by = context.group.assignor if context.group.type is GroupType.CONSUMER else None
    if not (step.aim is Aim.CONSUMER and asks_for_range(step.config)) or by in (None, "range"):
        return ""
    return (
        f"the brokers assign by {by}: no member asks for range, or others outvote it "
        f"({Risk.NOT_RANGE})"
    )


def _count(context: Context) -> int:
    return max(len(context.members), context.expected or 0)


def _members(count: int) -> str:
    return f"{count} member{'' if count == 1 else 's'}"


def _limit(context: Context, key: str) -> int | None:
    """Return the brokers' limit of members by the setting `key`; None if no setting was read.

    If settings were read without this one, there is no limit (`_NO_LIMIT`).
    """
    settings = context.snapshot.cluster.settings
    if not settings:
        return None
    return int(settings[key]) if settings.get(key, "").isdigit() else _NO_LIMIT


def clients(context: Context) -> Iterator[Answer]:
    """Yield answers on the members whose client has, or may have, no version with KIP-848.

    A client of an unknown family may have none. Yield nothing for the other members; rule RB412
    checks the version that they run.
    """
    ahead = [facts for facts in context.members if facts.member.protocol_type != "consumer"]
    unknown = [facts for facts in ahead if facts.family is None]
    if unknown:
        yield Answer(
            allows=Tri.CANNOT_TELL,
            why=f"the client library of {context.named(unknown)} is unknown (--assume-family)",
        )
    for key in sorted({facts.family for facts in ahead if facts.family is not None}):
        since = family(key).kip848_since
        never = since != UNKNOWN
        says = "has no group.protocol=consumer" if never else "is not known to speak KIP-848"
        for proven in (True, False):
            named = [f for f in ahead if f.family == key and f.family_proven is proven]
            if named and version_tuple(since) is None:
                yield Answer(
                    allows=Tri.NO if never and proven else Tri.CANNOT_TELL,
                    why=f"{context.named(named)}: {key} {says}"
                    if proven
                    else f"{context.named(named)}: the client {key} {says}, and it is inferred, "
                    "not proven",
                )


def too_old(facts: Facts) -> Tri:
    """Return whether this member's client must be upgraded before the move to KIP-848.

    The answer is cannot tell if the family has no known version with KIP-848.
    """
    since = family(facts.family).kip848_since
    return Tri.CANNOT_TELL if version_tuple(since) is None else facts.older_than(since)


def _lists(context: Context) -> Iterator[Answer]:
    """Yield an answer for the classic members whose list lacks the target, or may lack it."""
    classic = [facts for facts in context.members if facts.member.protocol_type == "classic"]
    for answer, says in ((Tri.NO, "lacks it"), (Tri.CANNOT_TELL, "is not known to hold it")):
        named = [facts for facts in classic if context.supports(facts, context.target) is answer]
        if named:
            yield Answer(
                allows=answer,
                why=f"a classic member is admitted while every classic member's list holds "
                f"{context.target}, and that of {context.named(named)} {says}",
            )


def _families(context: Context) -> Answer:
    """Return whether the client of every member has the target assignor (RB124)."""
    doubtful = [f for f in context.members if context.can_list(f, context.target) is not Tri.YES]
    return _first(
        (
            context.unable,
            Tri.NO,
            f"the client of {context.named(context.unable)} has no assignor {context.target}",
            context.unable,
        ),
        (
            doubtful,
            Tri.CANNOT_TELL,
            f"the client of {context.named(doubtful)} is not known to have "
            f"{context.target} (--assume-family)",
        ),
        (True, Tri.YES, f"the clients have the assignor {context.target}"),
    )


def crosses(context: Context) -> bool:
    """Return whether the goal moves this group from classic Streams to KIP-1071, or back.

    A group without members does not show that it was a Streams program; the goal then decides.
    """
    group = context.group
    ran_other = {STREAMS: context.streams, CLASSIC: group.type is GroupType.STREAMS}
    if not context.members:
        return (
            group.state is GroupState.EMPTY
            # A Streams program, or a consumer: the group does not show which one used it last.
            and group.protocol_type in (None, "", "consumer", "streams")
            and context.goal in ran_other
        )
    return ran_other.get(context.goal, False)


def needed_version(context: Context) -> str:
    """Return the Kafka Streams version from which these members can use the streams protocol.

    It is 4.4 if one of them is static, else 4.2.
    """
    return "4.4" if any(facts.static for facts in context.members) else "4.2"


def of_brokers(context: Context) -> tuple[Answer, ...]:
    """Return the conditions of a KIP-1071 move, or of its way back, that depend on the brokers."""
    if context.goal == CLASSIC:
        return (fits(context, GroupType.CLASSIC),)
    return (
        brokers(context, GroupType.STREAMS),
        *_without_faults(context),
        fits(context, GroupType.STREAMS),
    )


def _without_faults(context: Context) -> Iterator[Answer]:
    """Yield an answer for each fault of the streams protocol that the brokers have, or may have."""
    version = context.snapshot.cluster.version
    static = any(facts.static for facts in context.members)
    for one in map(fault, ["KAFKA-20254", *(["KIP-1071"] if static else [])] if version else ()):
        there = one.in_broker(version)
        if there is not Tri.NO:
            yield Answer(
                allows=opposite(there),
                why=f"the brokers are {version}: {one.effect} ({one.issue})",
            )


def of_clients(context: Context) -> tuple[Answer, ...]:
    """Return the condition that every instance runs a version with the streams protocol.

    Empty on the way back, which needs no version, and for a group without members, whose instances
    are not known.
    """
    if context.goal != STREAMS or not context.members:
        return ()
    since = needed_version(context)
    has = [(facts, opposite(facts.older_than(since))) for facts in context.members]
    allowed = worst(answer for _, answer in has)
    named = [facts for facts, answer in has if answer is allowed is not Tri.YES]
    why = {
        Tri.YES: f"every instance runs Kafka Streams {since} or later",
        Tri.NO: f"{context.named(named)}: the version is below {since}",
        Tri.CANNOT_TELL: f"{context.named(named)}: it is not verified that Kafka Streams {since} "
        "or later runs there",
    }
    return (Answer(allows=allowed, why=why[allowed], members=tuple(named)),)
