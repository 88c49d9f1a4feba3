"""The fleet report as Markdown: for a wiki, a ticket, or a plan of the coming weeks."""

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import Final

from rebal.cli.fleet import FleetReport
from rebal.cli.output import escape
from rebal.cli.render.fleet.words import (
    CHANGE_COLUMNS,
    COSTS,
    GROUP_COLUMNS,
    MEANING,
    RATES,
    RULE_HEADINGS,
    WORST_COLUMNS,
    age_text,
    change_rows,
    costs_are,
    incident_terms,
    plan_terms,
    row_texts,
    rules_met,
    terms_text,
    trend_text,
    verdicts_text,
    worst_texts,
)
from rebal.cli.render.plans.markdown import plain
from rebal.cli.render.text import Column
from rebal.planner.rules import rules

_MOST: Final = 20


def fleet_markdown(report: FleetReport, code: int, now: datetime) -> str:
    """Return the whole report as Markdown; names from the cluster are never markup."""
    return "\n".join(_lines(report, code, now)) + "\n"


def _lines(report: FleetReport, code: int, now: datetime) -> Iterator[str]:
    yield from (f"# Fleet: {verdicts_text(report)}", "")
    yield from (f"{age_text(report, now)} (exit code {code}). Goal: {_text(report.to)}.", "")
    yield f"{_text(trend_text(report))}."
    sources = ", ".join(report.manifest.sources)
    yield f"Read from {_text(report.lake.text)}{f' ({_text(sources)})' if sources else ''}."
    yield from (
        f"\nHeld: {_text(one.group_id)}: {_text('; '.join(one.held))}." for one in report.to_hold
    )
    for label, met in rules_met(report.groups).items():
        yield from ("", f"## {RULE_HEADINGS[label]}", "")
        for rule, number in met.items():
            yield f"- **{rule}** in {number:,}: {_text(rules()[rule].title)}"
    changes = change_rows(report)
    if changes and report.earlier is not None:
        yield from ("", f"## Compared with scan {report.earlier.run}", "")
        yield from _table(CHANGE_COLUMNS, changes)
        yield from ("", f"{_text(MEANING)}.")
    worst = report.worst[:_MOST]
    if worst:
        yield from ("", "## Worst off now", "")
        yield from _table(WORST_COLUMNS, map(worst_texts, worst))
        yield from ("", f"{_text(terms_text({**incident_terms(worst), **RATES}))}.")
    yield from ("", "## All groups, in the order to take them", "")
    yield (
        "Ready before held before not proven before blocked; roll-outs under way first, then the "
        "shortest payback. Costs and gains are partition-seconds of downtime; `?` marks a rule "
        "that is not verified; "
        f"{costs_are(report)}."
    )
    yield ""
    yield from _table(GROUP_COLUMNS, map(row_texts, report.groups))
    yield from ("", f"{_text(terms_text({**plan_terms(report.groups, protocols=True), **COSTS}))}.")


def _table(columns: Sequence[Column], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    yield f"| {' | '.join(column.header.capitalize() for column in columns)} |"
    yield f"| {' | '.join('---' for _ in columns)} |"
    for row in rows:
        yield f"| {' | '.join(map(_text, row))} |"


def _text(text: str) -> str:
    return plain(escape(text))
