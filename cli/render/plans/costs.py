"""A step's predicted cost in one line, and the table of its paces."""

from __future__ import annotations

from math import ceil

from rebal.cli.render.text import Column, FittingTable, count
from rebal.groups.model import GroupSnapshot
from rebal.planner.facts import all_partitions, owned
from rebal.planner.plan import Cost, Pace, Step, StepKind
from rebal.planner.rehearsal.costs.connect import work_of_all


def cost_text(step: Step, baseline: GroupSnapshot) -> str:
    """Return `about 2 min 24 s, 8 rebalances, each stops all 24 partitions; worst case 43 min`.

    A cost without a duration keeps the sentence that came with it.
    """
    return cost_forms(step, baseline)[0]


def cost_forms(step: Step, baseline: GroupSnapshot) -> tuple[str, ...]:
    """Return the sentence of `cost_text`, and shorter forms of it for narrow screens.

    In those `~` marks an estimate or an average, and the worst case is rounded up.
    """
    cost = step.cost
    if cost is None or not cost.seconds:
        return (cost.text if cost is not None else "not predicted",)
    everything = work_of_all(baseline) if cost.unit == "task" else sum(map(owned, baseline.members))
    worst = f"; worst case {duration(cost.worst_seconds)}" if cost.worst_seconds else ""
    everybody = len(step.to_do) + len(step.unknown) == len(baseline.members)
    if step.kind is StepKind.CUT_OVER and everybody:
        return (f"nothing is consumed for about {duration(cost.seconds)}{worst}",)
    rebalances = count(cost.rebalances, "rebalance") if cost.rebalances else "no rebalance"
    takes = f"about {duration(cost.seconds)}, {rebalances}"
    if not cost.partitions_stopped or not cost.rebalances:
        return (f"{takes}{worst}",)
    several = cost.rebalances > 1
    whole, short = _stopped(cost, everything)
    near = takes.replace("about ", "~", 1)
    rounded = f"; worst {_rounded_up(cost.worst_seconds)}" if cost.worst_seconds else ""
    return (
        f"{takes}, {'each stops' if several else 'which stops'} {whole}{worst}",
        f"{takes}{' each stop' if several else ' stops'} {short}{worst}",
        f"{near}{' each stop' if several else ' stops'} {short}{rounded}",
        f"{near}{' stop' if several else ' stops'} {short}{rounded}",
        f"{near}{' stop' if several else ' stops'} {short.partition(' connectors')[0]}{rounded}",
    )


def _stopped(cost: Cost, everything: int) -> tuple[str, str]:
    """Return what stops at each rebalance, in a whole and in a short form."""
    each = cost.partitions_stopped / cost.rebalances
    what = "connectors and tasks" if cost.unit == "task" else "partitions"
    if each >= everything:
        all_of_it = f"all {everything:,} {what}"
        whole = all_of_it if cost.unit == "task" else all_partitions(everything)
        return whole, whole
    part = f"{max(1, round(each)):,} of {everything:,} {what}"
    return f"{part} on average", f"~{part}"


def _rounded_up(seconds: float) -> str:
    """Return a duration with one unit where that is not coarse: `11 min` for 645 s."""
    unit = next((size for size in (86_400, 3600, 60) if seconds >= 2 * size), 1)
    return duration(ceil(seconds / unit) * unit)


def pace_table(cost: Cost) -> FittingTable:
    """Return the cost of each pace, side by side; narrow enough for 80 columns."""
    heads = ("pace", "takes", f"{cost.unit}-s", "rebalances", "worst case")
    rows = (
        (
            pace.name,
            duration(pace.seconds),
            partition_seconds_text(pace),
            str(pace.rebalances),
            "" if pace.worst_seconds is None else duration(pace.worst_seconds),
        )
        for pace in cost.paces
    )
    return FittingTable([Column(head) for head in heads], rows)


def partition_seconds_text(pace: Pace) -> str:
    """Return `17,306`, or `about 17,306` where some restarts count for the others."""
    return f"{'about ' if pace.about else ''}{pace.partition_seconds:,.0f}"


def duration(seconds: float) -> str:
    """`45 s`, `3 min 20 s`, `1 h 5 min`, `4 d 17 h`: two units at most."""
    left, words = round(seconds), []
    for name, size in (("d", 86_400), ("h", 3600), ("min", 60), ("s", 1)):
        number, left = divmod(left, size)
        if number:
            words.append(f"{number} {name}")
        if words and (len(words) == 2 or not number):
            break
    return " ".join(words) or "0 s"
