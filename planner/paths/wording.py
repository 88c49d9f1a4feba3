"""What a plan says in sentences: its summary, and what nobody looked at."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rebal.groups.model import GroupType, Source, Tri
from rebal.planner.context import EAGER, Context
from rebal.planner.paths.way import Way
from rebal.planner.plan import Finding, Severity
from rebal.planner.rules import Risk
from rebal.planner.rules.version_faults import unchecked_versions


def summary(context: Context, way: Way, code: int, findings: Sequence[Finding]) -> str:
    """One sentence on where the group stands and whether the next step can start."""
    number = way.next_step
    if way.path == "already_incremental":
        return _kip848(context)
    blocking = [
        finding
        for finding in findings
        if finding.severity is Severity.BLOCK
        and not finding.ignored
        and (code != 3 or finding.result is Tri.YES)
        and (number is None or finding.before_step is None or finding.before_step <= number)
    ]
    by = ", ".join(sorted({finding.rule for finding in blocking}))
    if way.path == "none":
        blocks = (finding for finding in findings if finding.severity is Severity.BLOCK)
        why = next(iter((*blocking, *blocks)), None)
        said = why.message if why else next(iter(way.reasons), "what the group is cannot be told.")
        rule = f" ({why.rule}{', ignored' if why.ignored else ''})" if why else ""
        return f"no step can be planned: {said.rstrip('.')}{rule}"
    if number is None:
        if code == 0:
            return "nothing left to do: every member is proven to be done"
        return f"every member that is here is done, but: {by or 'some are missing'}"
    here = f"{way.title} · {way.progress} · step {number} "
    if code == 0:
        return here + ("can start" if not _begun(context, way) else "can go on")
    why_not = next(iter(way.reasons), "")
    if code == 3:
        return here + f"is blocked: {by or why_not or Risk.TARGET_MISSING.rule}"
    count = len(context.unsure) or len(context.members) - len(context.settled)
    unknown = f"{count} member{'' if count == 1 else 's'} unknown"
    if why_not and not by:
        return here + f"cannot be proven yet: {why_not}"
    counted = not by or Risk.UNKNOWN_LISTS.rule in by
    return here + f"cannot be proven yet: {unknown if counted else by}"


def not_checked(context: Context) -> tuple[str, ...]:
    """What every reader of a plan must know it did not look at."""
    return tuple(_not_checked(context))


def _kip848(context: Context) -> str:
    name = "KIP-1071" if context.group.type is GroupType.STREAMS else "KIP-848"
    classic = [f for f in context.members if f.member.protocol_type == "classic"]
    if classic and len(classic) == len(context.members):
        return (
            "nothing to do: every member runs COOPERATIVE; the group's type is consumer, and its "
            "members speak the classic protocol"
        )
    rest = (
        f"; in the classic protocol, but COOPERATIVE: {context.named(classic)}" if classic else ""
    )
    return f"nothing to do: the group runs {name}, which moves single partitions only{rest}"


def _begun(context: Context, way: Way) -> bool:
    if not way.reads_lists:
        return any(step.done for step in way.steps if step.id == way.next_step)
    narrowing = way.path == "one_bounce" or way.next_step == context.narrow_step
    return bool(context.settled if narrowing else context.holding)


def progress(context: Context, path: str) -> str:
    """How far a way by assignor lists has come."""
    everybody, settled = len(context.members), len(context.settled)
    if path == "cut_over":
        return f"{settled} of {everybody} done" if settled else "not begun"
    if path == "one_bounce":
        return "every list holds both already"
    if settled and not context.lacking and not context.unsure:
        return f"half-way through bounce 2 ({settled} of {everybody} done)"
    if len(context.holding) == everybody:
        return "bounce 1 is complete"
    others = [facts for facts in context.lacking if facts not in context.unmixable]
    if path == "mixed_families" and not others and context.holding:
        return "bounce 1 is complete but for " + context.named(context.unmixable, 3)
    if context.holding:
        return f"half-way through bounce 1 ({len(context.holding)} of {everybody} done)"
    return "not begun, or not known to be" if context.unsure else "not begun"


def _not_checked(context: Context) -> Iterator[str]:
    yield "members that are not in the group now (scaled to zero, standby sites, scheduled jobs)"
    if context.expected is None:
        yield "how many members the service should have: say --expect-members N"
    yield "application code: rebalance listeners and callbacks, joins that rely on co-partitioning"
    yield "your deployment: restart order, surge, automatic roll-back, autoscaling"
    if not any(facts.member.declared for facts in context.members):
        yield "the configuration of the next start: no --inventory was given"
    # What a coordinator remembers of lists matters only where members choose by lists.
    by_lists = not context.streams and context.group.protocol_type != "connect"
    if by_lists and (context.snapshot.probe is None or context.snapshot.probe.refused):
        yield "what the coordinator remembers now: the group was not probed"
    if by_lists and context.reloaded is Tri.CANNOT_TELL:
        yield "whether the coordinator was loaded again since the last rebalance"
    sources = {item.source for facts in context.members for item in facts.member.assignors.evidence}
    if not sources & {Source.REQUEST_LOG, Source.CLIENT_LOG}:
        yield "the members' lists by any log: none was given, or none matched"
    yield from unchecked_versions(context)
    if context.goal == EAGER:
        yield "whether anything relies on partitions being kept across rebalances"
    yield from (f"not read: {note}" for note in context.snapshot.notes)
