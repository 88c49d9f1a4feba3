"""RB102: a member's list lacks the target when the old assignor is dropped."""

from rebal.groups.model import Knowledge
from rebal.planner.advice.steps import cure_fix, restart_fix
from rebal.planner.rules.registry import (
    Context,
    Facts,
    Findings,
    Risk,
    Severity,
    Trait,
    Tri,
    found,
    rule,
)
from rebal.planner.rules.scope import by_lists, stable


@rule(
    "RB102",
    Severity.BLOCK,
    "A member lacks the target assignor while others are about to drop the old one",
    reference="Kafka upgrade notes for 2.4; KIP-429, compatibility and migration plan",
    applies=(by_lists, stable),
    traits={Trait.ADMISSION},
    accepts=Risk.TARGET_MISSING,
)
def forgotten_member(context: Context) -> Findings:
    """The first bounce left out a member: its assignor list lacks the target.

    Why it matters: the coordinator admits a member only if one assignor is in every list. While one
    member lacks cooperative-sticky, each member that restarts with [cooperative-sticky] alone is
    rejected (INCONSISTENT_GROUP_PROTOCOL) and stops for good. The member that lacks it keeps
    running and ends up owning every partition. Java clients below 2.4 have no cooperative assignor
    and must be upgraded in the first bounce.

    How to find out: the members' lists are in the broker's request log (JOIN_GROUP) and in the
    members' own start-up logs. The probe shows that some member lacks the target, but not which
    one.

    How to fix it: restart the member that is named with the list of the first bounce, and make the
    plan again before the second bounce. The coordinator counts a static member that is down, with
    its old list, until its session ends. If its process is gone for good,
    removeMembersFromConsumerGroup of Kafka's Admin API takes its entry out of a classic group
    (kafka-python: `groups remove-members`); a member that runs is fenced by it.

    Does not fire while no member has the target yet: then the first bounce has not begun, and its
    to-do list names every member. Cannot tell: the probe shows that some member lacks the target,
    but the coordinator may have been reloaded since the last rebalance (RB113).
    """
    named = context.lacking
    if named and len(named) < len(context.members):
        yield found(
            _who(context, named),
            members=named,
            evidence=(e for facts in named for e in facts.member.assignors.evidence),
            fix=restart_fix(
                context,
                named,
                tuple(filter(None, [context.target, context.keep])),
                then=f" before any member drops {context.keep or 'the old assignor'}",
            ),
            commands=context.removals(named),
            before_step=context.narrow_step,
        )
    elif not named and context.unsure and context.probed(context.target) is Tri.NO:
        yield found(
            f"each member restarted with [{context.target}] will be rejected and stop: the probe "
            f"shows that {'one or more of ' if len(context.unsure) > 1 else ''}"
            f"{context.named(context.unsure)} does not support it.",
            members=context.unsure,
            fix="Find out which: --client-log of their start, or --request-log across the next "
            "restart.",
            before_step=context.narrow_step,
        )
    elif not named and context.unsure and _void_no(context):
        yield found(
            f"it is not verified that {context.named(context.unsure)} "
            f"{'supports' if len(context.unsure) == 1 else 'support'} {context.target}: the probe "
            "said no, but a coordinator reload since the last rebalance would cause that answer "
            "too (RB113).",
            result=Tri.CANNOT_TELL,
            members=context.unsure,
            fix=f"{cure_fix(context)} Then probe again.",
            before_step=context.narrow_step,
        )


def _who(context: Context, named: tuple[Facts, ...]) -> str:
    target = context.target
    ready = [facts for facts in context.members if facts not in named]
    causes = ", ".join(f"{facts.name} ({_running(facts, target)})" for facts in named[:6])
    more = f" and {len(named) - 6} more" if len(named) > 6 else ""
    one = len(named) == 1
    return (
        f"{context.named(ready)} will be rejected and stop when restarted with [{target}], because "
        f"{causes}{more} {'does' if one else 'do'} not support it. "
        f"{context.named(named)} {'keeps' if one else 'keep'} running and "
        f"{'ends' if one else 'end'} up owning every partition."
    )


def _running(facts: Facts, target: str) -> str:
    known = facts.member.assignors
    if known.knowledge is Knowledge.EXACT:
        return f"[{', '.join(known.list)}]"
    return f"no {target}"


def _void_no(context: Context) -> bool:
    probe = context.snapshot.probe
    return (
        probe is not None
        and not probe.refused
        and any(a.assignor == context.target and a.supported is Tri.NO for a in probe.answers)
        and context.reloaded is not Tri.NO
    )
