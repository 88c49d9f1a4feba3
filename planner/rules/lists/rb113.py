"""RB113: the coordinator was reloaded and has forgotten the assignor lists."""

from rebal.planner.advice.steps import cure_fix
from rebal.planner.rules.registry import Context, Findings, Risk, Severity, Trait, Tri, found, rule
from rebal.planner.rules.scope import by_lists, probing, stable


@rule(
    "RB113",
    Severity.BLOCK,
    "The coordinator was reloaded, and no rebalance has completed since",
    reference="Kafka: GroupMetadataManager, replay of GroupMetadataValue; seen on 4.1.1",
    applies=(by_lists, stable),
    traits={Trait.ADMISSION},
    accepts=Risk.FORGOTTEN_LISTS,
)
def reloaded(context: Context) -> Findings:
    """The coordinator may remember only the elected assignor for every member.

    Why it matters: the members' assignor lists exist in the coordinator's memory only. A
    coordinator reload (the broker restarts, or the group's partition of __consumer_offsets gets
    another leader) reduces every list to [the elected assignor] until that member has rejoined.
    Until then a member restarted with the target alone is rejected, although every configuration
    holds the target, and a "no" of the probe means nothing.

    How to find out: the start time of the coordinator's broker, the leader epoch of the group's
    offsets partition, a generation that has increased since; or --broker-log with the coordinator's
    own log up to now, which shows its loads and the rebalances since. A probe that answers yes for
    the target settles it: then the coordinator does remember.

    How to fix it: force one full rebalance before the bounce that drops the old assignor: restart
    one dynamic member with its CURRENT list, and wait until the group is Stable.

    It does not fire while the target itself is elected, which a reload keeps, nor for a dynamic
    member that is alone: the group is Empty when it has left.
    """
    if (
        context.elected == context.target
        or context.reloaded is Tri.NO
        or context.alone
        or context.probed(context.target) is Tri.YES
    ):
        return
    probe = context.snapshot.probe
    void = probe is not None and any(answer.supported is Tri.NO for answer in probe.answers)
    narrowing = context.planning and len(context.holding) == len(context.members)
    if not narrowing and not (void and context.under_way):
        return
    sure = context.reloaded is Tri.YES
    if narrowing:
        risk = (
            f"a member restarted with [{context.target}] {'will' if sure else 'may'} be rejected: "
            f"the coordinator {'remembers' if sure else 'may remember'} only {context.elected}, "
            f"because it {'was' if sure else 'may have been'} reloaded since the last rebalance."
        )
    else:
        risk = (
            'the probe\'s "no" proves nothing about the members: the coordinator '
            f"{'was' if sure else 'may have been'} reloaded since the last rebalance."
        )
    how = "" if sure else f"{_why_unknown(context)} If that settles nothing: "
    yield found(
        risk,
        result=context.reloaded,
        fix=f"{how}{cure_fix(context)} Wait until the group is Stable; then a probe shows what the "
        "coordinator remembers.",
        commands=[probing(context)],
        before_step=context.narrow_step,
    )


def _why_unknown(context: Context) -> str:
    """Return what would show whether the coordinator was reloaded."""
    coordinator = context.group.coordinator
    if not context.asked:
        return (
            "Probe the live group, which reads the leader epoch of the group's partition of "
            "__consumer_offsets and the records since."
        )
    if coordinator is not None and coordinator.rebalanced_why:
        return f"Not verified: {coordinator.rebalanced_why}."
    return "Add --probe to find out."
