"""The readiness of many groups for their change, and the order in which to change them.

`readiness` judges one group by its plan and its past rebalances. `in_order` sorts the groups:

1. ready, with a roll-out under way: a half-changed group is the most exposed;
2. ready: first the group whose change pays for itself soonest (cost divided by gain per hour),
   then the cheapest;
3. ready, but held: a member is down or rejected, and must rejoin before the roll-out;
4. not proven yet: first the group with the least missing evidence, then as in 2;
5. blocked, sorted as in 2: these groups need other work first;
6. nothing left to do: no place in the order.

Cost and gain are in partition-seconds: the sum over partitions of how long each is not consumed.
The cost is the plan's own, summed over the remaining steps. Rehearsing thousands of groups takes
long, so they can first be planned with rough pricing (planner/rehearsal/costs/start.py).
`to_rehearse` then names the groups to plan again with their exact cost.

The gain is the downtime per hour, at the observed rebalances, that COOPERATIVE or KIP-848 would
have avoided.
"""

from collections.abc import Iterable, Iterator, Sequence
from math import inf

from msgspec.structs import replace

from rebal.groups.model import RebalanceProtocol, Record, Tri
from rebal.planner.admission.check import label, unresolved_rejections
from rebal.planner.plan import Finding, Plan, Step, Verdict
from rebal.planner.rehearsal.rehearse import effort
from rebal.planner.rules.registry import Trait, has
from rebal.planner.timeouts import Speed
from rebal.planner.verdict import gating


class Pauses(Record, frozen=True, kw_only=True):
    """The observed downtime of one group's rebalances, in partition-seconds per hour.

    `avoidable` is the part on partitions that stopped but did not change owner. Both are None if
    not known. `is_assumed` is True if the length of no rebalance was observed.
    """

    downtime: float | None = None
    avoidable: float | None = None
    is_assumed: bool = False


class Outlay(Record, frozen=True, kw_only=True, omit_defaults=False):
    """The predicted cost of all remaining steps of a plan together.

    `estimated` is True if a step has more restarts than were rehearsed: the figures of the
    rehearsed restarts are then scaled up to all of them.
    `unit` is what the figures count: `partition`, or `task` for Connect workers.
    """

    steps: int
    rebalances: int
    partitions_stopped: int
    partitions_moved: int
    partition_seconds: float
    estimated: bool
    unit: str


class MissingEvidence(Record, frozen=True, kw_only=True, omit_defaults=False):
    """Evidence that a plan still needs: the rule that needs it, the open question, how to get it.

    `before_step` is the number of the step that needs it (None: any step); `members` is the number
    of members for which it is missing.
    """

    rule: str
    what: str
    how: str
    members: int
    before_step: int | None


class Blocker(Record, frozen=True, kw_only=True, omit_defaults=False):
    """A blocking finding: its rule, its message, and the step that it blocks (None: any step)."""

    rule: str
    what: str
    before_step: int | None


class Readiness(Record, frozen=True, kw_only=True, omit_defaults=False):
    """The readiness of one group of a fleet for its next step.

    `steps` is the number of the plan's steps. `blockers` block the next step, `later` a later step.
    `held` says which members are down or rejected; they must rejoin before a plan that is ready
    starts. `outlay` is the predicted cost. `saves` is the downtime that the change avoids, in
    partition-seconds per hour; `assumed` is True if no length of a rebalance was observed and one
    was assumed for `saves`. `pays_back` is the time, in hours, after which `saves` exceeds the cost
    (None: never, or not known). `place` in the order counts from 1 (None: nothing to do, or not
    sorted yet). `work` is the effort of rehearsing every restart (0 if the cost is exact).
    """

    plan: Plan
    steps: int = 0
    blockers: tuple[Blocker, ...] = ()
    later: tuple[Blocker, ...] = ()
    missing: tuple[MissingEvidence, ...] = ()
    held: tuple[str, ...] = ()
    under_way: bool = False
    outlay: Outlay | None = None
    saves: float | None = None
    assumed: bool = False
    pays_back: float | None = None
    place: int | None = None
    work: int = 0


def readiness(plan: Plan, pauses: Pauses, down: Sequence[str] = ()) -> Readiness:
    """Return how ready this plan's group is; `pauses` are its observed rebalances.

    `down` names the members that timed out and have been missing since.
    """
    # A step that has been reached asks for what lies before it too.
    number = inf if plan.next_step is None else plan.next_step
    heard = gating(plan.findings)
    hit = [finding for finding in heard if finding.result is Tri.YES]
    outlay = _outlay(plan)
    saves = _saves(plan, pauses)
    return Readiness(
        plan=plan,
        steps=len(plan.steps),
        blockers=tuple(_blocker(f) for f in hit if (f.before_step or 0) <= number),
        later=tuple(_blocker(f) for f in hit if (f.before_step or 0) > number),
        missing=tuple(
            MissingEvidence(
                rule=finding.rule,
                what=finding.message,
                how=finding.fix,
                members=len(finding.members),
                before_step=finding.before_step,
            )
            for finding in heard
            if finding.result is Tri.CANNOT_TELL
        ),
        held=tuple(_held(plan, down)) if plan.verdict is Verdict.READY else (),
        under_way=plan.next_step is not None and any(step.done for step in plan.steps),
        outlay=outlay,
        saves=saves,
        assumed=saves is not None and pauses.is_assumed,
        pays_back=outlay.partition_seconds / saves if outlay and saves else None,
        work=_work(plan) if outlay and outlay.estimated else 0,
    )


def in_order(found: Iterable[Readiness]) -> tuple[Readiness, ...]:
    """Return all groups in the order in which to change them, each with its place.

    Groups with nothing left to do come last and have no place.
    """
    return tuple(
        one if one.plan.verdict is Verdict.DONE else replace(one, place=place)
        for place, one in enumerate(sorted(found, key=_order), 1)
    )


def to_rehearse(ordered: Iterable[Readiness], most: int) -> tuple[str, ...]:
    """Return the ids of the groups to plan again with their exact cost, in the given order.

    `most` is the limit of the rehearsal effort of all chosen groups together. A group is skipped if
    its cost is exact already, or if its effort exceeds what is left of `most`.
    """
    chosen: list[str] = []
    for one in ordered:
        if 0 < one.work <= most:
            most -= one.work
            chosen.append(one.plan.group_id)
    return tuple(chosen)


def _order(one: Readiness) -> tuple[int, bool, bool, int, float, float, str]:
    verdict = one.plan.verdict
    asks = sum(max(1, missing.members) for missing in one.missing)
    return (
        {Verdict.READY: 1, Verdict.UNPROVEN: 2, Verdict.BLOCKED: 3, Verdict.DONE: 4}[verdict],
        bool(one.held),
        not (verdict is Verdict.READY and one.under_way),
        asks if verdict is Verdict.UNPROVEN else 0,
        inf if one.pays_back is None else one.pays_back,
        inf if one.outlay is None else one.outlay.partition_seconds,
        one.plan.group_id,
    )


def _held(plan: Plan, down: Sequence[str]) -> Iterator[str]:
    out = [label(one) for one in unresolved_rejections(plan.baseline)]
    yield from (f"{name} was rejected and has not rejoined" for name in out)
    yield from (f"{name} timed out and has not rejoined" for name in down)
    if not out and not down:
        yield from (one.message for one in plan.findings if has(one, Trait.MISSING_MEMBERS))


def _blocker(finding: Finding) -> Blocker:
    return Blocker(rule=finding.rule, what=finding.message, before_step=finding.before_step)


def _work(plan: Plan) -> int:
    """Return the effort of rehearsing every restart of the steps that are left."""
    group = plan.baseline
    restarts = sum(len(step.to_do) + len(step.unknown) for step in _left(plan))
    return restarts * effort(len(group.members), sum(t.partitions for t in group.topics))


def _left(plan: Plan) -> list[Step]:
    return [step for step in plan.steps if step.id >= (plan.next_step or 0)]


def _outlay(plan: Plan) -> Outlay | None:
    left = _left(plan)
    costs = [step.cost for step in left if step.cost is not None]
    if plan.next_step is None or not costs:
        return None
    return Outlay(
        steps=len(left),
        rebalances=sum(cost.rebalances for cost in costs),
        partitions_stopped=sum(cost.partitions_stopped for cost in costs),
        partitions_moved=sum(cost.partitions_moved for cost in costs),
        partition_seconds=round(
            sum(
                cost.partitions_stopped * Speed().rebalance
                if cost.partition_seconds is None
                else cost.partition_seconds
                for cost in costs
            ),
            1,
        ),
        estimated=any(cost.about for cost in costs),
        unit=costs[0].unit,
    )


def _saves(plan: Plan, pauses: Pauses) -> float | None:
    """Return the downtime, in partition-seconds per hour, that the change would have avoided.

    None if it is not known, or if the group runs COOPERATIVE already or needs no change.
    """
    none_left = plan.runs is RebalanceProtocol.COOPERATIVE or plan.verdict is Verdict.DONE
    return None if none_left or pauses.avoidable is None else round(pauses.avoidable, 2)
