"""Rejected clients, groups that no plan can start from, brokers whose settings were not read."""

from datetime import timedelta
from typing import Final

from rebal.groups.model import GroupState, GroupType, Refusal
from rebal.planner.admission.memory import INCONSISTENT
from rebal.planner.admission.rejected import if_renamed, label, rejected_again, still_out
from rebal.planner.advice.actions import DEFAULTS
from rebal.planner.advice.steps import start_fix
from rebal.planner.advice.wording import START_EMPTY
from rebal.planner.commands import NamedCommand
from rebal.planner.context import CONSUMER
from rebal.planner.rules.registry import Context, Findings, Risk, Severity, Trait, Tri, found, rule
from rebal.planner.rules.scope import (
    ahead,
    narrowing_step,
    planning,
    read_brokers,
    stable,
    to_consumer,
    with_lists,
)
from rebal.planner.timeouts import MOST_SESSION, known_session, longest_session
from rebal.planner.verdict import opposite

_OTHER_GROUP: Final = "Give that client a group id of its own."
_LEFT_BEHIND: Final = (
    "Set group.protocol=consumer for that client if it belongs to the service, else give it a "
    "group id of its own."
)


@rule(
    "RB904",
    Severity.BLOCK,
    "A client was rejected, and would be rejected again",
    reference="Kafka protocol: INCONSISTENT_GROUP_PROTOCOL (23); KIP-429",
    applies=(stable,),
    traits={Trait.HISTORY},
)
def rejected(context: Context) -> Findings:
    """A log shows joins that the coordinator rejected for good (errors 23, 26, 81, 82).

    Why it matters: a rejected Java or kafka-python consumer stops after the first rejection.
    librdkafka and franz-go retry without end while their process looks alive. The broker logs
    nothing else about it, and describe does not show who is not in the group: a member may be
    consuming nothing.

    How to find out: JOIN_GROUP lines with errorCode 23 in the request log; in the client's log
    "InconsistentGroupProtocolException" or "Inconsistent group protocol".

    How to fix it: find the member that has nothing in common with the rejected list (RB102) and
    restart that one with both assignors; then start the rejected client again.

    It does not fire where today's members would admit the rejected list, nor where that very client
    (its instance id; else its client id and address) has joined since, nor where the group has all
    members that you counted (`--expect-members`) and no stopped member's entry can be one of them.
    """
    for item in still_out(context.snapshot):
        if _has_its_place(context, item):
            continue
        stranger = context.is_stranger(item.list)
        again = rejected_again(context.memory, item, stranger=stranger)
        answer = opposite(again.verdict) if item.error == INCONSISTENT else Tri.CANNOT_TELL
        if answer is Tri.NO:
            continue
        causes = [facts for facts in context.members if facts.member.member_id in again.blame]
        blame = ""
        if causes and answer is Tri.YES:
            verb = "supports" if len(causes) == 1 else "support"
            blame = f"; {context.named(causes)} {verb} none of it"
        count = "once" if item.times == 1 else f"{item.times} times"
        still = "and would be rejected again" if answer is Tri.YES else "and may be rejected again"
        who = label(item)
        apart = stranger or not context.classic
        migrates = (
            context.group.type is GroupType.CONSUMER and item.error == INCONSISTENT and not stranger
        )
        shown = f"[{', '.join(item.list)}]" if item.list else "an unknown list"
        yield found(
            f"{who} was rejected {count} ({item.error}) with {shown} {still}{blame}"
            f"{_stranger(context)}.",
            result=answer,
            members=causes if answer is Tri.YES else (),
            evidence=(item.evidence,),
            fix=(_LEFT_BEHIND if migrates else _OTHER_GROUP if apart else start_fix(context, [who]))
            + if_renamed(item.instance_id),
            before_step=narrowing_step(context) if context.classic else None,
            urgent=True,
        )


def _has_its_place(context: Context, one: Refusal) -> bool:
    """Return whether the group is complete by the user's count, and the rejection older than the
    session of any member that may have stopped.

    A rebalance begins a stopped static member's session anew (KIP-345): none may be as old.
    """
    if not context.counted or context.missing or one.at is None:
        return False
    members = context.snapshot.members
    known = None not in map(known_session, members)
    session = longest_session(members) if known else MOST_SESSION
    clocks = timedelta(seconds=5) if context.snapshot.clock_compared else timedelta(days=1)
    age = context.snapshot.captured_at - one.at
    old = (m for m in members if m.instance_id and (m.joined_at is None or m.joined_at <= one.at))
    return age > session + clocks and not any(old)


def _stranger(context: Context) -> str:
    """Return a clause that names the type of a group of other programs than consumers."""
    if context.group.protocol_type == "connect":
        return ": this is a group of Connect workers"
    return ": this is a Kafka Streams group" if context.streams else ""


@rule(
    "RB905",
    Severity.BLOCK,
    "A plan cannot start from this kind or state of group",
    reference="Kafka: group states and types; KIP-848; KIP-932; KIP-1071",
    applies=(planning,),
    traits={Trait.HISTORY, Trait.MISSING_MEMBERS},
)
def nothing_to_plan_from(context: Context) -> Findings:
    """Plans need a group of consumers or of Connect workers that is Stable and has members.

    Why it matters: during a rebalance the assignor and the members change while rebal reads them.
    An empty group shows no list, client or assignor. Share groups have no rebalance protocol, and
    other protocol types (schema registries) do not use consumer assignors. A plan from such a
    reading would be a guess.

    How to find out: rebal inspect shows type, protocol type and state.

    How to fix it: wait until the group is Stable, or start its members, and ask again.
    """
    group = context.group
    if group.type is GroupType.SHARE:
        yield found(
            "this is a share group, whose members keep no partitions: it has no rebalance protocol "
            "to change."
        )
    elif group.type in (GroupType.CONSUMER, GroupType.STREAMS):
        return
    elif group.protocol_type not in (None, "", "consumer", "connect"):
        yield found(
            f"the group's protocol type is {group.protocol_type}, which uses no consumer assignors "
            "and has no rebalance protocol to change.",
        )
    elif group.protocol_type == "connect" and context.goal == CONSUMER:
        return
    elif group.state in (GroupState.EMPTY, GroupState.DEAD) or not context.members:
        yield found(
            f"the group is {group.state} and has no members, so their number and their assignor "
            "lists are unknown.",
            result=Tri.CANNOT_TELL,
            fix=START_EMPTY,
        )
    elif group.state is not GroupState.STABLE:
        yield found(
            f"the group is {group.state}, not Stable: members and assignor may differ in a moment.",
            result=Tri.CANNOT_TELL,
            fix="Wait until it is Stable, and ask again.",
        )
    elif group.protocol_type not in ("consumer", "connect"):
        yield found(
            "the group's protocol type is unknown, so no path can be chosen.",
            result=Tri.CANNOT_TELL,
            fix="Take the snapshot again.",
            commands=[
                NamedCommand("take it", context.given.inspect(context.group.group_id, "--save"))
            ],
        )


@rule(
    "RB908",
    Severity.ASK,
    "The brokers' group settings were not read",
    reference="Kafka: group.max.size, group.consumer.max.size, group.consumer.migration.policy",
    applies=(planning, with_lists),
    traits=(Trait.ADMISSION,),
    accepts=Risk.UNREAD_SETTINGS,
)
def unread_settings(context: Context) -> Findings:
    """Limits that the brokers set can reject a restart, and nobody knows them here.

    Why it matters: a static member's old entry stays in the group until its session ends. If
    group.max.size equals the number of members, its return is rejected with GROUP_MAX_SIZE_REACHED
    and it stops. A move to KIP-848 needs room under group.consumer.max.size and a migration policy
    that allows it.

    How to find out: the right to DESCRIBE_CONFIGS on the cluster; for the first of these a probe
    is enough, which asks for a place. Or ask who runs the brokers.

    How to fix it: where the brokers keep Kafka's defaults (no limit of members; from 4.0 the policy
    is bidirectional), say so: --ignore RB908 --reason TEXT.
    """
    static = [facts for facts in ahead(context) if facts.static]
    full = static and not context.memory.room
    if context.asked and not context.snapshot.cluster.settings and (full or to_consumer(context)):
        yield found(
            "the brokers' limits of members were not read: a restart may find the group full.",
            result=Tri.CANNOT_TELL,
            members=static,
            fix=f"{read_brokers(context)} Or ask who runs the brokers, and state it.",
            commands=[context.accepting(Risk.UNREAD_SETTINGS, DEFAULTS)],
        )
