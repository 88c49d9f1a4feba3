"""From KIP-848 back to the classic protocol, online.

Restarted members join as classic ones; when the last member with group.protocol=consumer has left,
the coordinator converts the group back, if its migration policy lets it.
"""

from __future__ import annotations

from collections.abc import Iterator

from rebal.groups.model import Tri
from rebal.planner.context import Context, ids
from rebal.planner.kip848 import Answer, policy, size, worst
from rebal.planner.plan import Cost, Step, StepKind
from rebal.planner.routes.rolling import expected_line, gate_of, order_of
from rebal.planner.routes.to_consumer import CODES
from rebal.planner.settings import classic_protocol_for


def from_consumer(context: Context) -> tuple[tuple[Step, ...], tuple[Answer, ...]]:
    """The one step, and what it was decided from."""
    answers = (
        policy(context, up=False),
        size(context, up=False),
        _families(context),
        *_lists(context),
    )
    done = [facts for facts in context.members if facts.member.protocol_type == "classic"]
    rest = [facts for facts in context.members if facts not in done]
    allows = worst(answers)
    owned = sum(len(n) for f in rest for n in f.member.assignment.values())
    known = {facts.family for facts in context.members if facts.family}
    families = sorted(known or {"java", "librdkafka"})
    step = Step(
        id=1,
        title=f"Every member moves back to group.protocol=classic with {context.target}",
        kind=StepKind.ROLLING,
        precondition="; ".join(answer.why for answer in answers),
        precondition_holds=allows,
        config=tuple(
            setting
            for key in families
            for setting in classic_protocol_for(key, [context.target], context.group.group_id)
        ),
        target_list=(context.target,),
        why=(
            "restarted members join as classic ones, all with the same list, so that they have an "
            "assignor in common; the group is converted back when the last member with "
            "group.protocol=consumer has left",
            "brokers before 4.0.2 have a fault on this way (KAFKA-19546), and static members one "
            "of their own (KAFKA-20434): RB410",
        ),
        order=tuple(order_of(context, rest)),
        to_do=ids(rest),
        done=ids(done),
        gate=gate_of(
            context,
            shows=f"exit code 0, the group's type is classic and {context.target} is elected",
            needs=expected_line(context),
            holds=Tri.NO if rest else Tri.CANNOT_TELL,
        ),
        rollback="restart the members with group.protocol=consumer again, one by one",
        cost=Cost(
            rebalances=2 * len(rest),
            partitions_stopped=2 * owned,
            partitions_moved=2 * owned,
            text=f"each restarted member's partitions move away and back ({owned} in all, twice)",
        ),
        exit_code=CODES[allows],
    )
    return (step,), answers


def _lists(context: Context) -> Iterator[Answer]:
    """The classic members in the group must hold the target, or who joins with it is refused."""
    classic = [facts for facts in context.members if facts.member.protocol_type == "classic"]
    for answer, says in ((Tri.NO, "lacks it"), (Tri.CANNOT_TELL, "is not known to hold it")):
        named = [facts for facts in classic if context.supports(facts, context.target) is answer]
        if named:
            yield Answer(
                allows=answer,
                why=f"classic members join only with {context.target} in every classic member's "
                f"list, and that of {context.named(named)} {says}",
            )


def _families(context: Context) -> Answer:
    """Every client that speaks KIP-848 has the classic protocol and these assignors, but one."""
    doubtful = [f for f in context.members if f.family not in ("java", *_without_sticky(context))]
    if doubtful:
        return Answer(
            allows=Tri.CANNOT_TELL,
            why=f"whether the client of {context.named(doubtful)} has {context.target} is not "
            "known (--assume-family)",
        )
    return Answer(allows=Tri.YES, why=f"the clients have the assignor {context.target}")


def _without_sticky(context: Context) -> tuple[str | None, ...]:
    return () if context.target == "sticky" else ("librdkafka", None)
