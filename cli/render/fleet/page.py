"""The fleet report as one self-contained HTML page: no network, no other file.

The templates in `data/fleet` escape every value, and a content security policy lets nothing run but
the page's own script. The page contains the table and the lists of groups. In fleets of up to
`INLINE` groups it also contains each group's history as HTML. In a larger fleet the histories are
embedded as deflated data and shown on request, so that the page is small and opens at once.
"""

import json
import zlib
from base64 import b64encode
from datetime import datetime
from functools import cache, lru_cache
from hashlib import sha256
from importlib.resources import files
from typing import Final

from jinja2 import Environment, StrictUndefined, Template
from markupsafe import Markup

from rebal.cli.fleet import FleetGroup, FleetReport, hurts
from rebal.cli.forked import mapped
from rebal.cli.output import escape
from rebal.cli.render.fleet.timeline import ticks_of, timeline
from rebal.cli.render.fleet.words import (
    COSTS,
    MEANING,
    RATES,
    RULE_HEADINGS,
    age_text,
    change_rows,
    cost_text,
    costs_are,
    extrapolated_text,
    group_trend_text,
    hindrance_text,
    hours_text,
    incident_terms,
    metrics_text,
    number_text,
    path_text,
    plan_command,
    plan_terms,
    rules_met,
    runs_text,
    shown_counts,
    time_text,
    trend_text,
    troubles_text,
    verdict_text,
    verdicts_text,
)
from rebal.planner.rules import rules

INLINE: Final = 100


def fleet_html(report: FleetReport, now: datetime) -> str:
    """Return the fleet report as one HTML page; ages are relative to `now`."""
    return _template("page.html").render(
        report=report,
        now=now,
        style=_source("page.css"),
        script=_source("page.js"),
        meanings={
            "ready": "the next step can start",
            "held": "a member must be back first",
            "blocked": "something must be done first",
            "unproven": "evidence is missing",
            "done": "nothing is left to do",
            "gone": "deleted",
        },
        terms={
            **plan_terms(report.groups, protocols=True),
            **incident_terms(report.groups),
            **COSTS,
            "downtime/h": RATES["downtime/h"],
            "trend": MEANING,
        },
        changes=change_rows(report),
        headings=RULE_HEADINGS,
        rules=rules(),
        rules_met=rules_met,
        take_text=_take_text,
        worst_text=_worst_text,
        places={group.group_id: n for n, group in enumerate(report.groups)},
        details="" if len(report.groups) <= INLINE else _details(report),
    )


def group_html(group: FleetGroup, report: FleetReport) -> str:
    """Return the HTML fragment with one group's details."""
    # Its template has no line break: the whole part is checked at once, which is quicker.
    return escape(_template("group.html").render(group=group, report=report))


@cache
def _template(name: str) -> Template:
    whole = name == "page.html"
    source = _source(name) if whole else "".join(_source(name).splitlines())
    made = Environment(
        autoescape=True,
        finalize=_visible if whole else None,
        lstrip_blocks=True,
        trim_blocks=True,
        undefined=StrictUndefined,
    )
    words = (
        *(extrapolated_text, group_trend_text, trend_text, verdict_text, shown_counts),
        *(age_text, cost_text, costs_are, hindrance_text, hours_text, metrics_text, number_text),
        *(path_text, plan_command, runs_text, time_text, troubles_text, verdicts_text),
        *(group_html, hurts, timeline),
    )
    made.filters |= {word.__name__: word for word in words}
    made.filters |= {"is_hurt": _is_hurt, "sha256_text": _sha256}
    made.globals["axis"] = _axis
    return made.from_string(source)


@lru_cache
def _axis(low: int, high: int) -> Markup:
    return Markup(_template("axis.html").render(ticks=ticks_of(low, high)))


def _source(name: str) -> str:
    return (files("rebal.cli") / "data" / "fleet" / name).read_text(encoding="utf-8")


def _visible(value: object) -> object:
    return escape(value) if value.__class__ is str and not value.isprintable() else value


def _sha256(source: str) -> str:
    return b64encode(sha256(source.encode()).digest()).decode()


def _take_text(group: FleetGroup) -> str:
    return f"{path_text(group)} · {_costs(group)}"


def _worst_text(group: FleetGroup) -> str:
    rate = number_text(group.history.metrics["rebalance-rate-per-hour"])
    said = f"{rate} rebalances/h stop {number_text(group.downtime_per_hour)} partition-s/h"
    return f"{troubles_text(group)} · {said}" if group.troubles else said


def _costs(group: FleetGroup) -> str:
    ready = group.readiness
    if ready is None or ready.outlay is None:
        return "its cost is not known"
    said = f"costs {cost_text(group)}{' partition-s' if ready.outlay.unit == 'partition' else ''}"
    back = (
        None
        if ready.pays_back is None
        else hours_text(ready.pays_back).replace(" ", "\N{NO-BREAK SPACE}")
    )
    return said if back is None else f"{said}, paid back in {back}"


def _is_hurt(group: FleetGroup) -> bool:
    return any(hurts(incident.kind) for incident in group.history.incidents)


def _details(report: FleetReport) -> str:
    """Return the HTML fragments of all groups, in the table's order, as base64 of deflated JSON."""
    found = mapped(lambda group: group_html(group, report), report.groups)
    made = json.dumps(found, ensure_ascii=False, separators=(",", ":"))
    return b64encode(zlib.compress(made.encode(), 6)).decode()
