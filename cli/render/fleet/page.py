"""The fleet report as one HTML page that needs nothing else: no network, no other file.

Every text of the cluster is escaped, and a content security policy lets nothing run but the page's
own script. The table, the lists and (in fleets of up to `INLINE` groups) each group's history stand
in the page itself; in a larger fleet the histories stand in it as deflated data, and are shown when
asked for, so that the page is small and opens at once.
"""

from __future__ import annotations

import json
import re
import zlib
from base64 import b64encode
from collections.abc import Iterator, Sequence
from datetime import datetime
from hashlib import sha256
from importlib.resources import files
from typing import Final

from rebal.cli.fleet import GONE, FleetGroup, FleetReport, hurts
from rebal.cli.render.fleet.page_group import group_html
from rebal.cli.render.fleet.words import (
    RULE_HEADINGS,
    age_text,
    cost_text,
    costs_are,
    hindrance_text,
    hours_text,
    number_text,
    path_text,
    rules_met,
    runs_text,
    text,
    troubles_text,
)
from rebal.planner.plan import Verdict
from rebal.planner.rules import rules

INLINE: Final = 100
_MARK: Final = re.compile(r"\{\{(\w+)\}\}")
_MOST: Final = 8
_NARROW: Final = 34
"""Characters up to which a name is not folded."""
_JOINED: Final = "\N{NO-BREAK SPACE}"
_MEANING: Final = {
    "ready": "the next step can start",
    "blocked": "something must be done first",
    "unproven": "evidence is missing",
    "done": "nothing is left to do",
    "gone": "deleted",
}
_COLUMNS: Final = (
    ("#", "n", "the order to take them in"),
    ("Verdict", "", ""),
    ("Group", "", ""),
    ("Runs", "", "rebalance protocol and elected assignor"),
    ("Path", "", "the path to the goal, and the next step of all"),
    ("Members", "n", ""),
    ("Rebalances/h", "n", "rebalance-rate-per-hour"),
    ("Downtime/h", "n", "downtime by rebalances, in partition-seconds an hour"),
    ("Costs", "n", "downtime of all remaining steps, in partition-seconds"),
    ("Pays in", "n", "the time after which the change has paid for itself"),
    ("In the way", "", "rules that block; ? marks a rule that is not verified"),
    ("Incidents", "", ""),
)


def fleet_html(report: FleetReport, now: datetime) -> str:
    """Return the page."""
    data = files("rebal.cli") / "data" / "fleet"
    page, style, script = (
        (data / name).read_text(encoding="utf-8") for name in ("page.html", "page.css", "page.js")
    )
    inline = len(report.groups) <= INLINE
    parts = {
        "policy": f"default-src 'none'; style-src {_hash(style)}; script-src {_hash(script)}; "
        "base-uri 'none'; form-action 'none'",
        "style": style,
        "script": script,
        "title": text(f"{_answer(report)} · rebal fleet report"),
        "answer": text(_answer(report)),
        "age": text(age_text(report, now)),
        "sources": text(", ".join(report.manifest.sources) or "no source is named"),
        "made": f"{now:%Y-%m-%d %H:%MZ}",
        "goal": text(report.to),
        "costs": text(costs_are(report)),
        "folder": text(report.folder),
        "tiles": "".join(_tiles(report)),
        "lists": "".join(_lists(report)),
        "rules": "".join(_rules(report)),
        "heads": "".join(_heads()),
        "rows": "".join(_row(n, group, report, inline) for n, group in enumerate(report.groups)),
        "total": f"{len(report.groups):,}",
        "details": "" if inline else _details(report),
        "without": "" if inline else "".join(_without(report)),
    }
    # In one pass: what the cluster says may hold anything, a mark of the template too.
    pieces = _MARK.split(page)
    return "".join(parts[piece] if n % 2 else piece for n, piece in enumerate(pieces))


def _hash(source: str) -> str:
    return f"'sha256-{b64encode(sha256(source.encode()).digest()).decode()}'"


def _answer(report: FleetReport) -> str:
    counts = report.counts
    alive = sum(number for verdict, number in counts.items() if verdict != GONE)
    ready, blocked = counts.get("ready", 0), counts.get("blocked", 0)
    if not alive:
        return "No consumer group is there"
    if counts.get("done", 0) == alive:
        return f"All {alive:,} groups are done"
    said = f"{ready:,} of {alive:,} groups can start now"
    return f"{said}, {blocked:,} are blocked" if blocked else said


def _tiles(report: FleetReport) -> Iterator[str]:
    for verdict, number in report.counts.items():
        yield (
            f'<li><button type="button" class="tile {verdict}" data-verdict="{verdict}" '
            f'aria-pressed="false"><b>{number:,}</b> <span>{verdict}</span> '
            f"<small>{_MEANING[verdict]}</small></button></li>"
        )


def _lists(report: FleetReport) -> Iterator[str]:
    places = {group.group_id: n for n, group in enumerate(report.groups)}
    ready = [(group, f"{path_text(group)} · {_costs(group)}") for group in report.to_take[:_MOST]]
    worst = [
        (
            group,
            (f"{troubles_text(group)} · " if group.troubles else "")
            + f"{_rate(group)} rebalances/h stop {number_text(group.stands_still)} partition-s/h",
        )
        for group in report.worst[:_MOST]
    ]
    for heading, found, total in (
        ("Take first", ready, len(report.to_take)),
        ("Worst off now", worst, len(report.worst)),
    ):
        if not found:
            continue
        of = f" <small>{len(found)} of {total:,}</small>" if len(found) < total else ""
        yield f"<section><h2>{heading}{of}</h2><ol>"
        for group, said in found:
            link = f'<a href="#g{places[group.group_id]}">{text(group.group_id)}</a>'
            yield f"<li>{link} <span>{text(said)}</span></li>"
        yield "</ol></section>"


def _costs(group: FleetGroup) -> str:
    ready = group.readiness
    if ready is None or ready.outlay is None:
        return "its cost is not known"
    unit = " partition-s" if ready.outlay.unit == "partition" else ""
    said = f"costs {cost_text(group)}{unit}"
    if ready.pays_back is None:
        return said
    return f"{said}, paid back in {hours_text(ready.pays_back).replace(' ', _JOINED)}"


def _rate(group: FleetGroup) -> str:
    return number_text(group.history.metrics["rebalance-rate-per-hour"])


def _rules(report: FleetReport) -> Iterator[str]:
    known = rules()
    for label, met in rules_met(report.groups).items():
        yield f"<section><h2>{RULE_HEADINGS[label]}</h2><ul>"
        for rule, number in met.items():
            yield (
                f'<li><button type="button" class="rule" data-rule="{rule}">{rule}</button> '
                f"<b>{number:,}</b> {'group' if number == 1 else 'groups'} "
                f"<span>{text(known[rule].title)}</span></li>"
            )
        yield "</ul></section>"


def _heads() -> Iterator[str]:
    for name, kind, meaning in _COLUMNS:
        title = f' title="{text(meaning)}"' if meaning else ""
        sort = ' aria-sort="ascending"' if name == "#" else ""
        yield f'<th scope="col" class="{kind}"{sort}{title}>{name}</th>'


def _row(number: int, group: FleetGroup, report: FleetReport, inline: bool) -> str:
    ready = group.readiness
    metrics = group.history.metrics
    cells = [
        _number(ready.place if ready is not None else None, ""),
        f'<td><span class="v {group.verdict}">{group.verdict}</span></td>',
        f'<th scope="row"{_narrow(group.group_id)}>{text(group.group_id)}</th>',
        f"<td>{text(runs_text(group))}</td>",
        f"<td>{text(path_text(group).replace(' of ', f'{_JOINED}of{_JOINED}'))}</td>",
        _number(group.history.members or 0),
        _number(metrics["rebalance-rate-per-hour"]),
        _number(group.stands_still),
        _cost(group),
        _hours(ready.pays_back if ready is not None else None),
        f"<td>{text(hindrance_text(group))}</td>",
        f"<td{_red(group)}>{text(troubles_text(group))}</td>",
    ]
    more = ""
    if inline:
        more = (
            f'<tr class="more"><td colspan="{len(_COLUMNS)}"><details><summary>History of '
            f"{text(group.group_id)}</summary>{group_html(group, report)}</details></td></tr>"
        )
    return (
        f'<tbody id="g{number}" data-v="{group.verdict}"><tr>{"".join(cells)}</tr>{more}</tbody>\n'
    )


def _red(group: FleetGroup) -> str:
    kinds = (incident.kind for incident in group.history.incidents)
    return ' class="t"' if any(map(hurts, kinds)) else ""


def _narrow(said: str) -> str:
    return ' class="w"' if len(said) <= _NARROW else ""


def _number(value: float | None, unknown: str = "·") -> str:
    if value is None:
        return f'<td class="n">{unknown}</td>'
    return f'<td class="n" data-k="{value:g}">{number_text(value)}</td>'


def _cost(group: FleetGroup) -> str:
    outlay = group.readiness.outlay if group.readiness is not None else None
    key = f' data-k="{outlay.partition_seconds:g}"' if outlay is not None else ""
    return f'<td class="n"{key}>{cost_text(group)}</td>'


def _hours(hours: float | None) -> str:
    return (
        '<td class="n"></td>'
        if hours is None
        else f'<td class="n" data-k="{hours:g}">{hours_text(hours)}</td>'
    )


def _details(report: FleetReport) -> str:
    """Return each group's part, in the order of the rows: JSON, deflated, in base64."""
    found: Sequence[str] = [group_html(group, report) for group in report.groups]
    made = json.dumps(found, ensure_ascii=False, separators=(",", ":"))
    return b64encode(zlib.compress(made.encode(), 6)).decode()


def _without(report: FleetReport) -> Iterator[str]:
    chosen = next((group for group in report.groups if group.verdict == Verdict.READY), None)
    name = chosen.group_id if chosen is not None else "GROUP"
    yield "<noscript><p>One group's history, without JavaScript: "
    yield f"<code>rebal fleet report {text(report.folder)} --group {text(name)} "
    yield "--out group.html</code></p></noscript>"
