"""The screens of `rebal rehearse`: dangers, costs, the members' lanes, rebalances."""

from collections.abc import Callable, Sequence
from itertools import groupby
from typing import Final

from msgspec.structs import replace
from rich.text import Text

from rebal.cli.output import View, shown
from rebal.cli.render.simulation.documents import (
    NEVER,
    RehearsalDocument,
    RunDocument,
    cost_rows,
    dangers,
    lasting,
    no_danger_text,
    sample_text,
    time_text,
    without_owner,
)
from rebal.cli.render.simulation.lanes import LanesView
from rebal.cli.render.text import (
    Column,
    FittingTable,
    Rows,
    count,
    duration,
    facts,
    labelled,
    moment,
    spread,
)
from rebal.groups.commands import Command
from rebal.planner.rehearsal.outcome import (
    Distribution,
    Measures,
    Range,
    Rebalance,
    Rehearsal,
)
from rebal.planner.rehearsal.scene import Used

_LABEL: Final = 11
_MOST_REBALANCES: Final = 10
_NONE: Final = "none"
_NO_LANES: Final = "Partitions change their owners too often here for a line for each member."


def rehearsal_view(
    document: RehearsalDocument,
    source: str,
    next_command: Command,
    *,
    details: bool = False,
) -> View:
    """Return the screen of one rehearsal; `source` says where the group was read.

    `details` adds every rebalance, and the members' metrics (KIP-429).
    """
    one = document.runs[0]
    # Partitions' owners, of which a large group has millions, show no name but in the lanes. Who
    # leaves last makes a generation without members, which counts as no rebalance.
    joined = tuple(each for each in one.rehearsal.rebalances if each.members or each.ended is None)
    whole = replace(one.rehearsal, rebalances=joined)
    run = shown(replace(whole, partitions=()))
    plain = shown(replace(document, runs=()))
    found = list(_dangers(whole, one.distribution))
    top: View = [_head(plain, source), facts(found, label=_LABEL) if found else _fine(plain, run)]
    parts: list[View] = [top]
    if one.distribution is None:
        top.append(facts(cost_rows(whole), label=_LABEL))
    else:
        parts.append([_figures(one.distribution, run.unit)])
        if details or len(run.phases) > 1 or run.unit != _NONE:
            parts.append([Text(f"The run with seed {run.seed}:")])
    if len(run.phases) > 1:
        parts.append([_phases(run)])
    if whole.members and (whole.partitions or run.unit == _NONE):
        parts.append([LanesView(whole)])
    elif whole.members:
        parts.append([Text(_NO_LANES)])
    if run.rebalances and (details or one.distribution is None):
        parts.append([_rebalances(run, whole=details)])
    if details:
        parts += [[_metrics(run)]] if run.members else []
        happened = (
            (moment(one.at), " ".join(filter(None, (one.who, one.what, one.detail))))
            for one in (note for note in run.notes if note.what != "ended")
        )
        parts.append([facts(happened, label=_LABEL)])
    parts.append([facts(_ending(plain, document.runs, next_command), label=_LABEL)])
    return [line for part in parts for line in (Text(""), *part)][1:]


def comparison_view(document: RehearsalDocument, source: str, next_command: Command) -> View:
    """Return the screen of several rehearsals side by side."""
    plain = shown(replace(document, runs=()))
    view: View = [_head(plain, source)]
    for one in document.runs:
        found = list(_dangers(one.rehearsal, one.distribution, f"{one.name}: "))
        view += [facts(found, label=_LABEL)] if found else []
    if len(view) == 1:
        runs = [one.rehearsal for one in document.runs]
        view.append(_fine(plain, next((run for run in runs if run.sampled), runs[0])))
    view += [Text(""), _compared(document.runs), Text(_how_to_read(document))]
    return [*view, Text(""), facts(_ending(plain, document.runs, next_command), label=_LABEL)]


def _how_to_read(document: RehearsalDocument) -> str:
    events = "Each line has the same events"
    if document.unit == _NONE:
        return f"{events}, and fewer rebalances are better."
    return (
        f"{events}; {document.unit.upper()}-S are the seconds without an owner of all "
        f"{document.unit}s together, and less is better in each column."
    )


def _head(document: RehearsalDocument, source: str) -> Text:
    script = f"script {_name(document.script)}" if document.script else ""
    return Text.assemble(
        (document.group_id, "bold"),
        f": {' with '.join(filter(None, [_name(document.plan), script]))} rehearsed ({source}; "
        f"{count(document.members, 'member')}{_size(document)})",
    )


def _size(document: RehearsalDocument) -> str:
    if document.unit == _NONE:
        return ""
    if document.unit == "task":
        return f", {document.partitions:,} connectors and tasks"
    return f", {count(document.partitions, 'partition')}"


def _name(file: str | None) -> str:
    return (file or "").rpartition("/")[2]


# Dangers


def _fine(document: RehearsalDocument, run: Rehearsal) -> Text:
    said = no_danger_text(run)
    if document.assumes:
        return Text(f"{said}, if what is assumed below holds.", style="bold yellow")
    return Text(f"{said}.", style="bold green" if run.sampled is None else "bold yellow")


def _dangers(run: Rehearsal, spread_: Distribution | None, prefix: str = "") -> Rows:
    for one in dangers(run, spread_):
        style = "bold red" if one.severe else "yellow"
        yield Text(one.label, style=style), shown(prefix + one.text)


# What it costs


def _figures(found: Distribution, unit: str) -> FittingTable:
    rows = [
        ("takes", *_spanned(found.seconds, time_text)),
        ("rebalances", *_spanned(found.rebalances, _plain)),
    ]
    if unit != _NONE:
        rows += [
            (f"longest downtime of a {unit}", *_spanned(found.longest, time_text)),
            (f"{unit}-seconds", *_spanned(found.unowned, _plain)),
            ("moves", *_spanned(found.moved, _plain)),
        ]
    heads = [Column(head, right=True) for head in ("MEDIAN", "5 %", "95 %")]
    return FittingTable([Column(f"OVER {count(found.runs, 'RUN').upper()}"), *heads], rows)


def _spanned(found: Range, text: Callable[[float], str]) -> tuple[str, str, str]:
    return text(found.median), text(found.p5), text(found.p95)


def _plain(value: float) -> str:
    return f"{value:,.0f}"


def _phases(run: Rehearsal) -> FittingTable:
    columns = [
        Column("PHASE"),
        Column("BEGINS", right=True),
        Column("TAKES", right=True),
        Column("REBALANCES", right=True),
        *_downtime(run.unit, 1),
    ]
    rows = [(phase.name, moment(phase.began), *_cells(phase.measures)) for phase in run.phases]
    return FittingTable(columns, [row[: len(columns)] for row in rows])


def _downtime(unit: str, rank: int = 0) -> list[Column]:
    if unit == _NONE:
        return []
    return [
        Column("LONGEST STOP", right=True),
        Column(f"{unit.upper()}-S", right=True, rank=rank),
        Column("MOVES", right=True, rank=2 * rank),
    ]


def _cells(measures: Measures) -> tuple[str, ...]:
    return (
        duration(measures.seconds),
        f"{measures.rebalances:,}",
        time_text(measures.longest),
        f"{measures.unowned:,.0f}",
        f"{measures.moved:,}",
    )


def _compared(runs: Sequence[RunDocument]) -> FittingTable:
    unit = runs[0].rehearsal.unit
    columns = [
        Column("MEDIANS" if any(one.distribution is not None for one in runs) else "AS"),
        Column("TAKES", right=True),
        Column("REBALANCES", right=True),
        *_downtime(unit),
        Column("REJECTED", right=True, rank=1),
        *([] if unit == _NONE else [Column("OWNED TWICE", right=True, rank=2)]),
    ]
    return FittingTable(columns, [_compared_row(one, unit) for one in runs])


def _compared_row(one: RunDocument, unit: str) -> tuple[str, ...]:
    measures, found = one.rehearsal.measures, one.distribution
    cells = _cells(measures)
    if found is not None:
        cells = (
            duration(found.seconds.median),
            _plain(found.rebalances.median),
            time_text(found.longest.median),
            _plain(found.unowned.median),
            _plain(found.moved.median),
        )
    if unit != _NONE and without_owner(one.rehearsal):
        cells = (*cells[:2], "no end", "no end", cells[4])
    twice = measures.twice - measures.twice_past
    if unit == _NONE:
        return one.name, *cells[:2], f"{measures.rejected:,}"
    return (
        one.name,
        *cells,
        f"{measures.rejected:,}",
        f"{twice:,.0f} s" if twice > NEVER else "0",
    )


# Rebalances


def _rebalances(run: Rehearsal, *, whole: bool) -> FittingTable:
    bare = run.unit == _NONE
    columns = [
        Column("REBALANCE"),
        Column("WHY"),
        Column("LASTS", right=True),
        *([] if bare else [Column("STOPS", right=True), Column("MOVES", right=True, rank=1)]),
        Column("MEMBERS", right=True, rank=2),
        *([Column("ASSIGNOR", rank=3)] if whole else []),
    ]
    if whole or len(run.rebalances) <= _MOST_REBALANCES:
        groups = [[one] for one in run.rebalances]
    else:
        named = sorted(run.rebalances, key=lambda one: _order(run, one))
        groups = [list(same) for _, same in groupby(named, key=lambda one: _order(run, one))]
        groups.sort(key=lambda same: same[0].began)
    return FittingTable(columns, [_rebalance_row(same, bare)[: len(columns)] for same in groups])


def _order(run: Rehearsal, one: Rebalance) -> tuple[float, str, str]:
    """Return a key that is equal for rebalances that share a line.

    It is the begin of the rebalance's phase in seconds, the cause, and the assignor.
    """
    began = max((p.began for p in run.phases if p.began <= one.began), default=0.0)
    return began, one.why, one.assignor or ""


def _rebalance_row(same: Sequence[Rebalance], bare: bool) -> tuple[str, ...]:
    first, last = same[0], same[-1]
    until = f" to {moment(last.began)}" if len(same) > 1 else ""
    lasts = sorted(map(lasting, same))
    lasted = time_text(lasts[-1])
    if len(same) > 1 and time_text(lasts[0]) != lasted:
        lasted = f"{lasts[0]:.1f} to {lasted}"
    return (
        f"{moment(first.began)}{until}",
        f"{len(same):,} × {first.why}" if len(same) > 1 else first.why,
        "not ended" if any(one.ended is None for one in same) else lasted,
        *(() if bare else (spread(one.stopped for one in same), spread(one.moved for one in same))),
        spread(one.members for one in same),
        first.assignor or "none",
    )


# Details


def _metrics(run: Rehearsal) -> FittingTable:
    rows = [
        (
            one.name,
            one.state,
            one.protocol,
            f"{one.owned:,}",
            f"{one.rebalance_total:,} ({one.rebalance_rate_per_hour:,.0f}/h)",
            f"{one.rebalance_latency_avg:.1f}/{one.rebalance_latency_max:.1f} s",
            f"{one.failed_rebalance_total:,}",
            *(
                f"{each.average:.1f}/{each.longest:.1f} s" if each.count else "none"
                for each in (one.revoked, one.assigned, one.lost)
            ),
            ""
            if one.last_rebalance_seconds_ago is None
            else time_text(one.last_rebalance_seconds_ago),
        )
        for one in run.members
    ]
    return FittingTable(
        [
            Column("MEMBER"),
            Column("STATE"),
            Column("PROTOCOL"),
            Column("PARTS", right=True),
            Column("REBALANCES", right=True),
            Column("LATENCY avg/max", right=True),
            Column("FAILED", right=True, rank=1),
            Column("revoked avg/max", right=True, rank=2),
            Column("assigned avg/max", right=True, rank=2),
            Column("lost avg/max", right=True, rank=2),
            Column("last ago", right=True, rank=3),
        ],
        rows,
    )


# The end


def _ending(
    document: RehearsalDocument, runs: Sequence[RunDocument], next_command: Command
) -> Rows:
    for one in runs:
        if one.rehearsal.sampled is not None:
            prefix = f"{one.name}: " if len(runs) > 1 else ""
            yield "about", prefix + sample_text(one.rehearsal.sampled)
    if document.about:
        yield "script", document.about
    yield from labelled("assumed", document.assumes)
    yield "times", _times(document.parameters)
    yield Text("next:", style="bold"), next_command


def _times(found: Sequence[Used]) -> str:
    """Return the times that were used: `restart 30 s, session 45 s (set), …`.

    `(set)` marks a time that the user gave.
    """
    made = []
    for one in found:
        if not one.given and (not one.most or one.name == "metadata"):
            continue
        text = f"{one.most:.0%}" if one.name == "spread" else time_text(one.most)
        if one.least != one.most:
            text = f"{one.least:g} to {text}"
        made.append(f"{one.name} {text}{' (set)' if one.given else ''}")
    return f"{', '.join(made)}; change one: --param NAME=TIME"
