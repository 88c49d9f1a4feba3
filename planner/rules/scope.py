"""Parts that rules share: when they apply, which members a plan still changes, and the question
which client library some members run.
"""

from collections.abc import Iterable, Iterator, Sequence
from operator import attrgetter
from typing import Final

from rebal.groups.clients import families, libraries, version_tuple
from rebal.groups.commands import options
from rebal.groups.evidence.fingerprint import excluded_by_bytes
from rebal.groups.model import GroupType, Tri
from rebal.planner.clients import assumed, cooperative, refuses_mixed
from rebal.planner.commands import AGREED, ANSWER, NamedCommand
from rebal.planner.context import CONSUMER, COOPERATIVE, EAGER, Context, Facts
from rebal.planner.kip848 import Answer
from rebal.planner.plan import Finding
from rebal.planner.rules.registry import Risk, Scope, found

# How many families are named where the bytes exclude none.
_ANSWERS: Final = 4
# Whether a plan is being made, for a classic group of consumers with assignor lists of their own,
# for a Stable group with members, for a Kafka Streams program.
planning: Final[Scope] = attrgetter("planning")
classic: Final[Scope] = attrgetter("classic")
stable: Final[Scope] = attrgetter("stable")
streams_program: Final[Scope] = attrgetter("streams")


def with_lists(context: Context) -> bool:
    """Return whether members that start with assignor lists may belong to this group's service."""
    return context.classic or to_consumer(context)


def by_lists(context: Context) -> bool:
    """Return whether the members of a classic group stay on assignor lists."""
    return context.classic and context.goal in (COOPERATIVE, EAGER)


def upgrade(context: Context) -> bool:
    """Return whether the goal is COOPERATIVE."""
    return context.goal == COOPERATIVE


def downgrade(context: Context) -> bool:
    """Return whether the goal is EAGER."""
    return context.goal == EAGER


def no_downgrade(context: Context) -> bool:
    """Return whether the goal is COOPERATIVE or KIP-848."""
    return context.goal != EAGER


def unfinished(context: Context) -> bool:
    """Return whether the plan's steps still change a member."""
    return bool(ahead(context))


def connect_workers(context: Context) -> bool:
    """Return whether this is a group of Connect workers."""
    return context.group.protocol_type == "connect"


def to_cooperative(context: Context) -> bool:
    """Return whether a plan to COOPERATIVE is being made that has steps left.

    Without such a plan no client version is reported: the group already runs.
    """
    return upgrade(context) and _has_steps(context)


def to_or_from_cooperative(context: Context) -> bool:
    """Return whether a plan to or from a COOPERATIVE assignor is being made that has steps left."""
    leaves = context.goal == EAGER and cooperative(context.elected or "") is Tri.YES
    return (upgrade(context) or leaves) and _has_steps(context)


def _has_steps(context: Context) -> bool:
    return context.planning and context.classic and len(context.settled) < len(context.members)


def to_consumer(context: Context) -> bool:
    """Return whether a plan is being made to move consumers to KIP-848 (not Streams or Connect)."""
    return (
        context.planning
        and context.goal == CONSUMER
        and context.group.type in (GroupType.CLASSIC, GroupType.UNKNOWN, GroupType.CONSUMER)
        and context.group.protocol_type in ("consumer", None)
        and not context.streams
    )


def from_consumer(context: Context) -> bool:
    """Return whether a plan is being made to move a KIP-848 group back to a classic assignor.

    The goal `cooperative` alone is no such move: a KIP-848 group already stops only what moves.
    """
    back = context.goal == EAGER or (context.only_target and context.goal != CONSUMER)
    return context.planning and context.group.type is GroupType.CONSUMER and back


def to_or_from_consumer(context: Context) -> bool:
    """Return whether a plan is being made that crosses between classic and KIP-848."""
    return to_consumer(context) or from_consumer(context)


def still_classic(context: Context) -> tuple[Facts, ...]:
    """Return the members that use the classic protocol; in a KIP-848 group, only those known to."""
    if context.group.type is not GroupType.CONSUMER:
        return context.members
    return tuple(f for f in context.members if f.member.protocol_type == "classic")


def ahead(context: Context) -> tuple[Facts, ...]:
    """Return the members that the plan's steps still change."""
    return still_classic(context) if context.goal == CONSUMER else context.ahead


def narrowing_step(context: Context) -> int | None:
    """Return the number of the step that drops the old assignor; None if no step drops one."""
    return None if context.goal == CONSUMER else context.narrow_step


def unless_allowed(
    answer: Answer, fix: str, commands: Iterable[NamedCommand] = ()
) -> Iterator[Finding]:
    """Yield a finding if the condition `answer` does not allow the path."""
    if answer.allows is not Tri.YES:
        result = Tri.YES if answer.allows is Tri.NO else Tri.CANNOT_TELL
        yield found(
            f"{answer.why}.", result=result, members=answer.members, fix=fix, commands=commands
        )


def probing(context: Context) -> NamedCommand:
    """Return the command that probes the live group."""
    return NamedCommand("probe", context.given.inspect(context.group.group_id, "--probe"))


def switching_on(context: Context, feature: str) -> Iterator[NamedCommand]:
    """Yield the commands that show the finalised features and upgrade one to 1."""
    tool = "kafka-features.sh"
    yield NamedCommand("show the features", context.given.kafka(tool, "describe"))
    yield NamedCommand(
        "upgrade the feature", context.given.kafka(tool, "upgrade", "--feature", f"{feature}=1")
    )


def read_brokers(context: Context) -> str:
    """Return the fix for facts that only the brokers report: how to read them."""
    if context.asked:
        return "Allow DESCRIBE_CONFIGS on the cluster and take the snapshot again."
    return "Name a broker with -b HOST:PORT. Reading its settings needs DESCRIBE_CONFIGS."


def what_decides(context: Context, found: Sequence[Facts]) -> str:
    """Return what was inferred of these members' clients and from which bytes, how to be sure
    without an answer, and that a command records the answer.
    """
    known = [(f, f.member.software.evidence) for f in found if f.member.software is not None]
    told = {
        f"{' or '.join(facts.guesses) or 'no client'} ({said[0].detail})"
        for facts, said in known
        if said and said[0].detail
    }
    inferred = f"Inferred: {'; '.join(sorted(told))}. " if told else ""
    others = list(_left(context, found))[_ANSWERS:]
    more = f" ({', '.join(others)} can stand in it too)" if others else ""
    return (
        f"{inferred}To be sure, add --client-log of one start, --request-log (ApiVersions "
        "names the client) or its image with --inventory. Or answer: run the command of the "
        f"right client{more}."
    )


def answers(context: Context, found: Sequence[Facts]) -> tuple[NamedCommand, ...]:
    """Return the commands that state the client of these members, one for each family that the
    evidence leaves; each states what else its path asks for: the clients' version and unread
    settings in a move to KIP-848, the interruption where all members must stop.
    """
    unproven = [facts for facts in context.members if not facts.family_proven]
    made = []
    for key, of_it in list(_left(context, found).items())[:_ANSWERS]:
        stops = refuses_mixed(key) and len(of_it) == len(context.members)
        every = len(of_it) == len(unproven)
        values = [key] if every else [assumed(f.member.client_id, key) for f in of_it]
        words = options(ANSWER, list(dict.fromkeys(values)))
        runs = f"{context.named(of_it)} {'runs' if len(of_it) == 1 else 'run'}"
        since = families()[key].kip848_since
        if context.goal == CONSUMER and version_tuple(since) is not None:
            runs = f"{runs} {since} or later of"
            reason = f"every client is {key} {since} or later"
            words = (*words, "--ignore", Risk.OLD_CLIENT)
            if context.asked and not context.snapshot.cluster.settings:
                runs = f"the brokers keep Kafka's group settings and {runs}"
                reason = f"{reason}; the brokers keep Kafka's group settings"
                words = (*words, "--ignore", Risk.UNREAD_SETTINGS)
            words = (*words, "--reason", reason)
        elif stops and context.goal != CONSUMER and context.client is None:
            runs = f"an interruption is agreed and {runs}"
            words = (*words, "--ignore", Risk.STOP, "--reason", AGREED)
        made.append(context.answering(f"if {runs} {key}", *words))
    return tuple(made)


def _left(context: Context, found: Sequence[Facts]) -> dict[str, list[Facts]]:
    """Return family → members, for the families that the evidence leaves, the bytes included."""
    by_family: dict[str, list[Facts]] = {}
    for facts in found:
        sent = excluded_by_bytes(facts.member.subscription, context.elected)
        for key in facts.guesses or [each for each in libraries() if each not in sent]:
            by_family.setdefault(key, []).append(facts)
    return by_family
