"""Short texts that the terminal, Markdown and HTML forms of the fleet report share.

They describe a group's state and cost and its change since an earlier scan, and explain terms.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

from rebal.cli.fleet import CHANGES, GONE, FleetGroup, FleetReport, Measure, NoTrend, Trend
from rebal.cli.output import escape
from rebal.cli.render.plans.parts import before_text
from rebal.cli.render.text import Column, count, span_text
from rebal.groups.commands import Command
from rebal.groups.model import RebalanceProtocol
from rebal.inspectors.clock import moment
from rebal.inspectors.fleet.manifest import UNNAMED
from rebal.planner.commands import Given
from rebal.planner.plan import Verdict

HELD: Final = "held"
WAITS: Final = {
    Verdict.BLOCKED.value: "for the owners' clients or settings (blocked)",
    Verdict.UNPROVEN.value: "for evidence (unproven)",
    HELD: "for members that are down or rejected (held)",
}
"""Verdict of a group that cannot move now → text on what it waits for."""
_FEW: Final = 3
_LONG_ENOUGH: Final = timedelta(hours=1)
RULE_HEADINGS: Final = {
    "blocked by": "Blocked by",
    "later step": "In the way of a later step",
    "cannot tell": "Cannot tell",
}
"""Effect of a rule on a group → its heading, in the order of the report."""
GROUP_COLUMNS: Final = (
    Column("#", right=True),
    Column("VERDICT"),
    Column("GROUP"),
    Column("RUNS", rank=1),
    Column("PATH"),
    Column("MEMBERS", right=True, rank=3),
    Column("COSTS", right=True, rank=2),
    Column("SAVES/H", right=True, rank=2),
    Column("PAYS IN", right=True, rank=3),
    Column("IN THE WAY"),
)
"""Columns of `row_texts`."""
WORST_COLUMNS: Final = (
    Column("GROUP"),
    Column("INCIDENTS"),
    Column("TREND", rank=3),
    Column("REBALANCES/H", right=True),
    Column("EACH TAKES", rank=2),
    Column("FAILED", right=True, rank=1),
    Column("REJECTED", right=True, rank=1),
    Column("DOWNTIME/H", right=True),
    Column("EXTRAPOLATED"),
)
"""Columns of `worst_texts`."""
CHANGE_COLUMNS: Final = (
    Column("GROUP"),
    Column("VERDICT"),
    Column("TREND"),
    Column("REBALANCES/H", right=True),
    Column("DOWNTIME/H", right=True),
)
"""Columns of `change_rows`."""
MEANING: Final = (
    "worse, better: rebalances or downtime an hour before that scan → since; unclear: the "
    "difference may be chance"
)
# The meanings of terms: each form explains those that it shows.
VERDICTS: Final = {
    "ready": "the next step can start",
    "held": "ready, but a member is down or rejected and must be back first",
    "unproven": "evidence is missing",
    "blocked": "something must be done first",
}
PATHS: Final = {
    "two bounces": "two rolling restarts",
    "one bounce": "one rolling restart",
    "streams one bounce": "one rolling restart of a Streams application",
    "cut over": "all members stop together, which somebody must agree to",
}
PROTOCOLS: Final = {
    RebalanceProtocol.EAGER.value: "every rebalance stops all partitions",
    RebalanceProtocol.COOPERATIVE.value: "a rebalance stops only partitions that move",
}
INCIDENTS: Final = {
    "storm": "one rebalance after another",
    "crash loop": "a member joins and leaves again and again",
    "owns nothing": "a member without a partition",
    "hidden list": "a static member's new assignor list does not count yet",
    "session expired": "a member sent no heartbeat in time",
    "slow member": "a member passed max.poll.interval.ms",
    "duplicate instance id": "two processes with one group.instance.id",
    "recreated": "deleted and created again",
}
RATES: Final = {
    "downtime/h": "partition-seconds an hour not consumed",
    "failed": "rebalances that began and did not complete",
    "rejected": "joins rejected because no assignor is common (INCONSISTENT_GROUP_PROTOCOL)",
}
COSTS: Final = {
    "costs": "predicted downtime of the steps that are left, in partition-seconds",
    "saves/h": "downtime an hour that the change avoids",
    "pays in": "time until the savings exceed the cost",
    "RB901?": "a rule that is not verified",
}


def row_texts(group: FleetGroup) -> tuple[str, ...]:
    """Return the cells of one group's row, one for each column in `GROUP_COLUMNS`."""
    ready = group.readiness
    place = saves = pays_in = ""
    if ready is not None:
        place = "" if ready.place is None else str(ready.place)
        saves = "" if ready.saves is None else number_text(ready.saves)
        pays_in = "" if ready.pays_back is None else hours_text(ready.pays_back)
    return (
        *(place, verdict_text(group), group.group_id, runs_text(group), path_text(group)),
        *(number_text(group.history.members), cost_text(group), saves, pays_in),
        hindrance_text(group),
    )


def worst_texts(group: FleetGroup) -> tuple[str, ...]:
    """Return the cells of one group's row, one for each column in `WORST_COLUMNS`.

    The last cell says how long the rates were observed, if that is less than an hour.
    """
    metrics = group.history.metrics
    return (
        group.group_id,
        troubles_text(group),
        group.change or "·",
        number_text(metrics["rebalance-rate-per-hour"]),
        latency_text(group),
        number_text(metrics["failed-rebalance-total"]),
        number_text(group.history.refused_total),
        number_text(group.downtime_per_hour),
        extrapolated_text(group.observed_seconds).removeprefix("extrapolated "),
    )


def shown_counts(report: FleetReport) -> Mapping[str, int]:
    """Return verdict → number of groups; a ready group with a missing member counts as `held`."""
    found = Counter(map(verdict_text, report.groups))
    return {
        verdict: found[verdict]
        for verdict in dict.fromkeys((Verdict.READY.value, HELD, *report.counts))
        if found[verdict]
    }


def verdicts_text(report: FleetReport) -> str:
    """Return the number of groups by verdict: `12 groups: 4 ready, 1 held, 2 blocked, 5 done`."""
    said = ", ".join(f"{number:,} {verdict}" for verdict, number in shown_counts(report).items())
    return f"{count(len(report.groups), 'group')}: {said}" if said else "no group"


def answer_texts(report: FleetReport) -> Iterator[tuple[str, str]]:
    """Yield (label, text): groups that run EAGER, can move now, are in trouble, or must wait."""
    alive = [group.readiness.plan for group in report.groups if group.readiness is not None]
    runs = Counter(plan.runs for plan in alive)
    eager = f"{runs[RebalanceProtocol.EAGER]:,} of {count(len(alive), 'group')}"
    unknown = runs[RebalanceProtocol.CANNOT_TELL]
    yield "runs EAGER", f"{eager}; not known for {unknown:,}" if unknown else eager
    yield "can move now", _named(report.to_take)
    yield "hurt now", _named([group for group in report.worst if group.troubles])
    found = Counter(map(verdict_text, report.groups))
    waits = [f"{found[verdict]:,} {why}" for verdict, why in WAITS.items() if found[verdict]]
    yield "must wait", "; ".join(waits) or "none"


def _named(groups: Sequence[FleetGroup]) -> str:
    names = [escape(group.group_id) for group in groups[:_FEW]]
    more = f" and {len(groups) - _FEW:,} more" if len(groups) > _FEW else ""
    return f"{len(groups):,}: {', '.join(names)}{more}" if names else "none"


def age_text(report: FleetReport, now: datetime) -> str:
    """Return a text on the age and the length of the scan's history, and on its gaps."""
    until, since = report.manifest.observed_until, report.manifest.observed_from
    if until is None:
        return "the scanned records have no time, so their age is not known"
    cluster = report.manifest.cluster
    said = f"cluster {cluster}, " if cluster != UNNAMED else ""
    said += f"as seen until {until.astimezone(UTC):%Y-%m-%d %H:%MZ}, {span_text(now - until)} ago"
    if since is not None:
        said += f"; {span_text(until - since)} of history"
        if until - since < _LONG_ENOUGH:
            said += ", from which rates an hour are extrapolated"
    if report.manifest.breaks:
        said += (
            f"; records between two scans are missing in "
            f"{count(len(report.manifest.breaks), 'partition')}, as after the log cleaner: their "
            "rebalances are not known, and groups and members that went away then still show "
            "(a scan with --full reads all anew)"
        )
    if report.unread:
        said += (
            f"; {count(report.unread, 'record')} could not be read, and their evidence is missing"
        )
    return said


def verdict_text(group: FleetGroup) -> str:
    """Return the verdict of the group's plan, or `held`.

    A group is `held` if it is ready, but a member is down or rejected and must return first.
    """
    return HELD if group.held else group.verdict


def runs_text(group: FleetGroup) -> str:
    """Return the rebalance protocol and assignor: `EAGER (range)`; empty for a deleted group."""
    if group.readiness is None:
        return ""
    plan = group.readiness.plan
    name = "not known" if plan.runs is RebalanceProtocol.CANNOT_TELL else plan.runs.value
    return f"{name} ({plan.assignor})" if plan.assignor else name


def path_name(group: FleetGroup) -> str:
    """Return the path of the group's plan in words: `two bounces`; empty for a deleted group."""
    path = "" if group.readiness is None else group.readiness.plan.path
    return "no path" if path == "none" else path.replace("_", " ").replace("kip", "KIP-")


def path_text(group: FleetGroup) -> str:
    """Return the path with the next step: `two bounces, 1 of 2`; empty for a deleted group."""
    ready, path = group.readiness, path_name(group)
    number = None if ready is None or not ready.steps else ready.plan.next_step
    return path if ready is None or number is None else f"{path}, {number} of {ready.steps}"


def number_text(value: float | None) -> str:
    """Return a number with about three digits: `0.04`, `3.5`, `120`, `12,000`; `·` if not known."""
    if value is None:
        return "·"
    if isinstance(value, int):
        return f"{value:,}"
    if value == round(value) or value >= 10:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 1 else f"{value:.2g}"


def cost_text(group: FleetGroup) -> str:
    """Return the predicted downtime of the remaining steps: `12`, `12 task-s`, `~12` (estimated).

    Without a unit it is in partition-seconds. It is empty if it is not known.
    """
    outlay = group.readiness.outlay if group.readiness is not None else None
    if outlay is None:
        return ""
    unit = "" if outlay.unit == "partition" else f" {outlay.unit}-s"
    return f"{'~' if outlay.estimated else ''}{number_text(outlay.partition_seconds)}{unit}"


def costs_are(report: FleetReport) -> str:
    """Return a note on how the costs were found.

    They are those of each group's own plan; if some are only estimated, the note says of how many.
    """
    but = f", but of {count(report.estimated, 'group')} only estimated (~): see --group NAME"
    return f"costs are those of each group's own plan{but if report.estimated else ''}"


def extrapolated_text(seconds: float | None) -> str:
    """Return `extrapolated from 2 min` if rates were observed for less than an hour; else empty."""
    seen = _LONG_ENOUGH if seconds is None else timedelta(seconds=seconds)
    return "" if seen >= _LONG_ENOUGH else f"extrapolated from {span_text(seen)}"


def hours_text(hours: float) -> str:
    """Return a number of hours as text in one unit: `12 min`, `5 h`, `9 days`."""
    return span_text(timedelta(hours=hours))


def latency_text(group: FleetGroup) -> str:
    """Return the average and the longest rebalance: `1.2 s, at most 9 s`; `·` if not known."""
    metrics = group.history.metrics
    average, longest = metrics["rebalance-latency-avg"], metrics["rebalance-latency-max"]
    if average is None or longest is None:
        return "·"
    return f"{number_text(average / 1000)} s, at most {number_text(longest / 1000)} s"


def time_text(micros: int | None, shape: str) -> str:
    """Return a time in UTC as text in the strftime format `shape`; empty for None.

    `micros` is in microseconds since 1970.
    """
    at = moment(micros)
    return f"{at:{shape}}" if at is not None else ""


def plan_command(group: FleetGroup, report: FleetReport) -> Command:
    """Return the `rebal plan-upgrade` command that shows this group's whole plan."""
    return Given(evidence=report.lake.option_words).plan_upgrade(group.group_id, report.to)


def hindrance_text(group: FleetGroup) -> str:
    """Return the blocking rules: `RB104 · step 2: RB102, RB901?`; `?` marks one not verified.

    Members that are down come first. If no rule reports the obstacle, the text is `see its plan`.
    For a deleted group it is the time of the deletion.
    """
    ready = group.readiness
    if ready is None:
        at = moment(group.history.deleted_at)
        return f"deleted {at:%Y-%m-%d %H:%MZ}" if at is not None else "deleted"
    by_step: dict[int, dict[str, None]] = {}
    said = [(one.before_step or 0, one.rule) for one in (*ready.blockers, *ready.later)]
    down = f"down: {', '.join(group.history.down)}" if ready.held and group.history.down else ""
    said += [(one.before_step or 0, f"{one.rule}?") for one in ready.missing]
    if not said and ready.plan.verdict in (Verdict.BLOCKED, Verdict.UNPROVEN):
        return "see its plan"
    for step, rule in said:
        is_later = step > (ready.plan.next_step or 0)
        by_step.setdefault(step if is_later else 0, {})[rule] = None
    texts = (
        before_text(step or None, ready.steps) + ", ".join(found)
        for step, found in sorted(by_step.items())
    )
    return " · ".join((*([down] if down else []), *texts))


def metrics_text(group: FleetGroup) -> list[tuple[str, str]]:
    """Return (name, value with unit) for each known rebalance metric, by Kafka's names.

    A rate per hour that was observed for less than an hour is marked as extrapolated.
    """
    units = {"rebalance-latency": " ms", "last-rebalance": " s"}
    note = extrapolated_text(group.observed_seconds)
    return [
        (
            name,
            number_text(value)
            + units.get("-".join(name.split("-")[:2]), "")
            + (f" ({note})" if note and name.endswith("-per-hour") else ""),
        )
        for name, value in group.history.metrics.items()
        if value is not None
    ]


def troubles_text(group: FleetGroup) -> str:
    """Return the kinds of the group's incidents with their counts: `storm ×2, crash loop`."""
    return ", ".join(
        f"{kind} ×{n}" if n > 1 else kind
        for kind, n in Counter(one.kind for one in group.history.incidents).items()
    )


def rules_met(groups: Iterable[FleetGroup]) -> Mapping[str, Mapping[str, int]]:
    """Return effect → rule → number of groups, the most frequent rule first.

    The effects are the keys of `RULE_HEADINGS`; an effect without a rule is left out.
    """
    found: dict[str, Counter[str]] = {label: Counter() for label in RULE_HEADINGS}
    for ready in (group.readiness for group in groups):
        if ready is not None:
            found["blocked by"].update({one.rule for one in ready.blockers})
            found["later step"].update({one.rule for one in ready.later})
            found["cannot tell"].update({one.rule for one in ready.missing})
    return {
        label: dict(sorted(met.items(), key=lambda pair: (-pair[1], pair[0])))
        for label, met in found.items()
        if met
    }


def trend_text(report: FleetReport) -> str:
    """Return the fleet's trend in one sentence, or why there is none yet."""
    earlier = report.earlier
    if earlier is None:
        only = "the lake has one scan of this cluster"
        return f"no trend yet: {only if report.manifest.run == 1 else 'no earlier scan is left'}"
    until = earlier.observed_until
    at = "" if until is None else f" ({until.astimezone(UTC):%Y-%m-%d %H:%MZ})"
    since = f"since scan {earlier.run}{at}"
    trend = report.trend
    if trend is None:
        return f"no trend yet {since}: {_why(report)}"
    found = Counter(group.change for group in report.groups if group.change is not None)
    said = ", ".join(f"{found[change]:,} {change}" for change in CHANGES if found[change])
    alive = sum(group.verdict != GONE for group in report.groups)
    others = f", {alive - trend.groups:,} not comparable" if alive > trend.groups else ""
    return f"{since}: {_measures(trend)}; {count(trend.groups, 'group')}: {said}{others}"


def group_trend_text(group: FleetGroup, report: FleetReport) -> str:
    """Return one group's trend in one sentence, or why there is none yet.

    Empty if no earlier scan can be read, or if the group was deleted.
    """
    if report.earlier is None or group.trend is None:
        return ""
    if isinstance(group.trend, NoTrend):
        return f"no trend yet since scan {report.earlier.run}: {group.trend.why}"
    before, since = (
        span_text(timedelta(seconds=seconds))
        for seconds in (group.trend.seconds_before, group.trend.seconds_since)
    )
    return (
        f"{group.trend.change}: {_measures(group.trend)}; {since} since scan {report.earlier.run}, "
        f"{before} before it"
    )


def change_rows(report: FleetReport) -> list[tuple[str, ...]]:
    """Return a row for each group that vanished, changed its verdict, or has a clear trend.

    Each row is group, verdicts (empty without a baseline), trend, rebalances/h and downtime/h.
    """
    rows: list[tuple[str, ...]] = [
        (name, "not there any more", "·", "·", "·") for name in report.vanished
    ]
    other = [one for one in report.groups if report.baseline and one.before != one.verdict]
    for group in (*other, *(one for one in report.changed if one not in other)):
        trend = group.trend if isinstance(group.trend, Trend) else None
        was = "" if group.before == group.verdict else f"{group.before or 'not there'} → "
        rows.append(
            (
                group.group_id,
                f"{was}{group.verdict}" if report.baseline else "",
                group.change or "·",
                rates_text(None if trend is None else trend.rebalances),
                rates_text(None if trend is None else trend.downtime),
            )
        )
    return rows


def rates_text(measure: Measure | None) -> str:
    """Return a rate per hour before the earlier scan and since: `2 → 3.1`; `·` if not known."""
    if measure is None:
        return "·"
    return f"{number_text(round(measure.before, 4))} → {number_text(round(measure.since, 4))}"


def _measures(trend: Trend) -> str:
    note = extrapolated_text(min(trend.seconds_before, trend.seconds_since))
    said = f"rebalances/h {rates_text(trend.rebalances)} ({trend.rebalances.change})"
    if trend.downtime is not None:
        said += f", downtime/h {rates_text(trend.downtime)} ({trend.downtime.change})"
    return f"{said}{f', {note}' if note else ''}"


def _why(report: FleetReport) -> str:
    found = Counter(one.trend.why for one in report.groups if isinstance(one.trend, NoTrend))
    if not found:
        return "no group is in both scans"
    (why, number), *others = found.most_common()
    return why if not others else f"{why} ({number:,} of {found.total():,} groups)"


def plan_terms(groups: Iterable[FleetGroup], *, protocols: bool) -> Mapping[str, str]:
    """Return term → meaning for the verdicts and paths of these groups.

    `protocols` adds their rebalance protocols.
    """
    shown = list(groups)
    found = {name for group in shown for name in (verdict_text(group), path_name(group))}
    found |= {one.readiness.plan.runs.value for one in shown if one.readiness is not None}
    known = {**VERDICTS, **PATHS, **(PROTOCOLS if protocols else {})}
    return {term: meaning for term, meaning in known.items() if term in found}


def incident_terms(groups: Iterable[FleetGroup]) -> Mapping[str, str]:
    """Return kind → meaning for the kinds of incidents that these groups had."""
    found = {one.kind for group in groups for one in group.history.incidents}
    return {kind: meaning for kind, meaning in INCIDENTS.items() if kind in found}


def terms_text(terms: Mapping[str, str]) -> str:
    """Return the terms and their meanings: `ready: the next step can start; blocked: …`."""
    return "; ".join(f"{term}: {meaning}" for term, meaning in terms.items())
