"""From the classic protocol to KIP-848 (group.protocol=consumer), online or over an empty group.

Online: the coordinator converts the group when the first member joins with the new protocol, and
classic members go on in it until they too are restarted. It refuses to where its migration policy
forbids it, and where an assignment carries user data. Over an empty group nothing of that counts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from rebal.groups.clients import family as known_family
from rebal.groups.model import GroupType, Tri
from rebal.planner.context import Context, Facts, ids
from rebal.planner.kip848 import Answer, brokers, clients, policy, size, too_old, user_data, worst
from rebal.planner.plan import Cost, Setting, Step, StepKind
from rebal.planner.routes.rolling import expected_line, gate_of, order_of
from rebal.planner.settings import consumer_protocol_for, noted

CODES: Final = {Tri.YES: 0, Tri.NO: 3, Tri.CANNOT_TELL: 4}


def to_consumer(context: Context) -> tuple[str, tuple[Step, ...], tuple[Answer, ...]]:
    """The path's name, its one step, and what it was decided from."""
    common = (brokers(context), *clients(context))
    online = (*common, policy(context, up=True), size(context, up=True), user_data(context))
    under_way = context.group.type is GroupType.CONSUMER
    if under_way or worst(common) is Tri.NO or worst(online) is not Tri.NO:
        answers = common if under_way else online
        return "kip848_online", (_online(context, answers),), answers
    return "kip848_offline", (_offline(context, common, online),), common


def _online(context: Context, answers: tuple[Answer, ...]) -> Step:
    done = [facts for facts in context.members if facts.member.protocol_type == "consumer"]
    rest = [facts for facts in context.members if facts not in done]
    allows = worst(answers)
    owned = sum(len(n) for f in rest for n in f.member.assignment.values())
    return Step(
        id=1,
        title="Every member moves to group.protocol=consumer",
        kind=StepKind.ROLLING,
        precondition="; ".join(answer.why for answer in answers),
        precondition_holds=allows,
        config=_settings(context, rest or context.members),
        why=(
            "the first member that joins with group.protocol=consumer has the coordinator convert "
            "the group; classic members go on in it until they are restarted",
            *_why(context),
        ),
        order=tuple(order_of(context, rest)),
        to_do=ids(rest),
        done=ids(done),
        gate=gate_of(
            context,
            shows="exit code 0, and nothing left to do",
            needs=(
                "the group's type is consumer, and every member's protocol is consumer",
                *expected_line(context),
            ),
            holds=Tri.NO if rest or context.missing else Tri.YES,
        ),
        rollback="restart the members with their old configuration, one by one: when the last one "
        "with group.protocol=consumer has left, the coordinator converts the group back, if its "
        "migration policy is downgrade or bidirectional (--to cooperative-sticky, or --to range, "
        "plans it)",
        cost=Cost(
            rebalances=2 * len(rest),
            partitions_stopped=2 * owned,
            partitions_moved=2 * owned,
            text=f"each restarted member's partitions move away and back ({owned} in all, twice); "
            "classic members that run EAGER stop all they own whenever their part changes",
        ),
        exit_code=CODES[allows],
    )


def _offline(context: Context, common: tuple[Answer, ...], online: tuple[Answer, ...]) -> Step:
    owned = sum(len(n) for f in context.members for n in f.member.assignment.values())
    against = [answer.why for answer in online if answer.allows is Tri.NO]
    allows = worst(common)
    pause = context.speed.restart + context.speed.rebalance
    return Step(
        id=1,
        title="Stop every member, then start all with group.protocol=consumer",
        kind=StepKind.CUT_OVER,
        precondition="an interruption is agreed; " + "; ".join(answer.why for answer in common),
        precondition_holds=Tri.NO,
        config=_settings(context, context.members),
        why=(
            f"the online way is shut: {'; '.join(against)}",
            "an empty classic group is converted whatever the migration policy says, and has no "
            "assignments",
            *_why(context),
        ),
        order=(
            "stop every member cleanly (all services and sites that use this group id)",
            f"see that the group is Empty: rebal inspect {context.group.group_id}",
            "start all members with group.protocol=consumer; committed offsets stay",
        ),
        to_do=ids(context.members),
        gate=gate_of(
            context,
            shows="exit code 0, and nothing left to do",
            needs=("every member's protocol is consumer", *expected_line(context)),
            holds=Tri.NO,
        ),
        rollback="stop every member, see the group Empty, start all with the old configuration",
        cost=Cost(
            rebalances=1,
            partitions_stopped=owned,
            partitions_moved=owned,
            text=f"nothing is consumed for about {pause:.0f} s: from the last stop until the "
            "members are back and have their partitions",
            seconds=pause,
            partition_seconds=pause * owned,
        ),
        # A person decides on an interruption: it is never called ready.
        exit_code=4 if allows is Tri.CANNOT_TELL else 3,
    )


def _why(context: Context) -> Iterator[str]:
    if context.elected == "range":
        yield (
            "nothing of partition.assignment.strategy is carried over: the broker's default is "
            "uniform; range is asked for here (group.remote.assignor), because joins may rely on "
            "co-partitioning: remove that if none does (RB408)"
        )
    static = [facts for facts in context.members if facts.member.instance_id is not None]
    if static:
        yield "a second process with the same instance id is now refused, not the first (RB407)"


def _settings(context: Context, members: Sequence[Facts]) -> tuple[Setting, ...]:
    made: list[Setting] = []
    for key in sorted({facts.family for facts in members if facts.family}):
        mine = [facts for facts in members if facts.family == key]
        known = known_family(key)
        old = [facts for facts in mine if too_old(facts) is Tri.YES]
        unsure = any(too_old(facts) is Tri.CANNOT_TELL for facts in mine)
        notes = []
        if known is not None and (old or unsure):
            title = "kafka-clients" if key == "java" else known.title
            more = f": upgrade first ({context.named(old)})" if old else ""
            notes.append(f"needs {title} {known.kip848_since} or later{more}")
        made += (
            noted(setting, notes)
            for setting in consumer_protocol_for(
                key,
                context.group.group_id,
                () if len(mine) == len(context.members) else [facts.name for facts in mine],
                remote_assignor="range" if context.elected == "range" else None,
                connector=context.sink is not None,
            )
        )
    return tuple(made)
