"""RB113: the coordinator was loaded again and has forgotten the lists."""

from __future__ import annotations

from collections.abc import Iterator

from rebal.groups.model import Tri
from rebal.planner.admission.advice import cure_fix
from rebal.planner.context import CONSUMER, Context
from rebal.planner.plan import Finding, Severity
from rebal.planner.rules.registry import Risk, Trait, found, rule


@rule(
    "RB113",
    Severity.BLOCK,
    "The coordinator was loaded again, and no rebalance has completed since",
    reference="Kafka: GroupMetadataManager, replay of GroupMetadataValue; seen on 4.1.1",
    traits={Trait.ADMISSION},
    accepts=Risk.FORGOTTEN_LISTS,
)
def reloaded(context: Context) -> Iterator[Finding]:
    """The coordinator's memory may hold nothing but the elected assignor for every member.

    Why it matters: the members' lists live in the coordinator's memory only. When it is loaded
    again (the broker restarts, or the group's partition of __consumer_offsets gets another
    leader), every list becomes just [the elected assignor], until each member has joined again.
    Until then a member that is restarted with the target alone is refused, although every
    configuration holds it, and the probe's "no" means nothing.

    How to find out: the start time of the coordinator's broker, the leader epoch of the group's
    offsets partition, a generation seen to rise since. A probe that says yes for the target
    settles it: then the coordinator does remember.

    How to fix it: force one full rebalance before the narrowing bounce: restart one dynamic
    member with its CURRENT list, and let the group become Stable.

    It does not fire while the target itself is elected: that is what a load leaves.
    """
    if (
        not context.classic
        or not context.stable
        or context.elected == context.target
        or context.goal == CONSUMER
    ):
        return
    if context.reloaded is Tri.NO or context.probed(context.target) is Tri.YES:
        return
    probe = context.snapshot.probe
    void = probe is not None and any(answer.supported is Tri.NO for answer in probe.answers)
    narrowing = context.planning and len(context.holding) == len(context.members)
    if not narrowing and not (void and context.under_way):
        return
    since = "has been loaded again" if context.reloaded is Tri.YES else "may have been loaded again"
    risk = (
        f"a member restarted with [{context.target}] is refused while only {context.elected} is "
        "remembered"
        if narrowing
        else 'the probe\'s "no" says nothing of the members'
    )
    how = ""
    if context.reloaded is Tri.CANNOT_TELL:
        how = f"{_why_unknown(context)} Where nothing else can be found out: "
    yield found(
        f"the coordinator {since} since the last rebalance: {risk}.",
        result=context.reloaded,
        fix=f"{how}{cure_fix(context)} Wait for Stable; then rebal inspect --probe shows what the "
        "coordinator remembers.",
        before_step=context.narrow_step,
    )


def _why_unknown(context: Context) -> str:
    """What would tell, of a group of which it is not known."""
    coordinator = context.group.coordinator
    if not context.asked:
        return (
            "No broker was asked: -b HOST:PORT --probe finds out, from the leader epoch of the "
            "group's partition of __consumer_offsets and the records since."
        )
    if coordinator is not None and coordinator.rebalanced_why:
        return f"Not known: {coordinator.rebalanced_why}."
    return "Not known: --probe finds out."
