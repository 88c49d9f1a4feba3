"""A rehearsal as one HTML page that needs no other file: ownership over time, to scrub through."""

import json
from collections import defaultdict
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from msgspec.structs import replace

from rebal.cli.output import shown
from rebal.cli.render.pages import html_page, ticks
from rebal.cli.render.simulation.dangers import called, dangers, fine, sample_text, sums
from rebal.cli.render.text import count, duration
from rebal.planner.rehearsal.outcome import Doing, Rehearsal, Stretch, lanes

_WIDE: Final = 1000
_COLUMNS: Final = 1000
_FLAT_COLUMNS: Final = 400
_MOST_PARTITIONS: Final = 96
_MOST_SPANS: Final = 8_000
_TALL, _FLAT = 26, 7
_FEW: Final = 24
_AFTER: Final = 1.03
"""The drawn time in shares of the story's: what follows the last rebalance is seen too."""


class Row(NamedTuple):
    """One lane of the drawing: its name, its place from above, and its rectangles."""

    name: str
    top: float
    boxes: tuple["Box", ...]


class Box(NamedTuple):
    """One rectangle; `left` and `width` are in thousandths of the whole time."""

    left: float
    width: float
    kind: str
    title: str
    hue: int = 0
    share: float = 1.0


def rehearsal_html(run: Rehearsal, group: str) -> str:
    """Return the page; all names are escaped.

    The rehearsal must have been run with `keep`.

    Raises:
        UsageError: jinja2 is not installed.
    """
    tall = len(run.members) <= _FEW
    columns = _COLUMNS if tall else _FLAT_COLUMNS
    said, found = fine(run), list(dangers(run))
    about = [("about", sample_text(run.sampled))] if run.sampled is not None else []
    costs = [*about, *sums(run), ("ends", f"{run.state}, assignor {run.assignor or 'none'}")]
    if run.at_rest:
        run = replace(run, measures=replace(run.measures, seconds=run.measures.seconds * _AFTER))
    drawn = {shown(name): line for name, line in lanes(run, columns, usual=not tall).items()}
    gaps, total = _unowned(run), len(run.partitions)
    small = total <= _MOST_PARTITIONS and sum(len(p.owners) for p in run.partitions) <= _MOST_SPANS
    length = max(run.measures.seconds, 1e-9)
    run = shown(run if small else replace(run, partitions=()))
    return html_page(
        "rehearsal",
        run=run,
        group=str(shown(group)),
        verdict="" if found else said,
        dangers=shown([f"{one.label}: {one.text}" for one in found]),
        sums=shown(costs),
        total=total,
        members=list(_member_rows(run, drawn, columns, tall=tall)),
        row=_TALL if tall else _FLAT,
        partitions=list(_partition_rows(run)),
        hues=_hues(run) if tall else {},
        marks=list(_marks(run)),
        unowned=gaps,
        ticks=[(_WIDE * at / length, mark) for at, mark in ticks(length, length / 10)],
        notes=[note for note in run.notes if note.what != "ended"],
        clock=duration,
        data=_data(run, drawn, columns),
    )


def _member_rows(
    run: Rehearsal, drawn: dict[str, tuple[Stretch, ...]], columns: int, *, tall: bool
) -> Iterator[Row]:
    """Yield a row a member; flat ones leave the words to the program, which has them anyway."""
    most = max((one.partitions for line in drawn.values() for one in line), default=1) or 1
    length = run.measures.seconds
    for number, (name, line) in enumerate(drawn.items()):
        boxes = tuple(
            Box(
                left=one.start * _WIDE / columns,
                width=(one.end - one.start) * _WIDE / columns,
                kind=str(one.doing),
                title=_title(name, one.start * length / columns, one, run.unit) if tall else "",
                share=0.35 + 0.65 * one.partitions / most if one.partitions else 1.0,
            )
            for one in line
        )
        yield Row(name, number * (_TALL if tall else _FLAT), boxes)


def _title(name: str, at: float, one: Stretch, unit: str) -> str:
    owns = count(one.partitions, unit)
    does = {
        Doing.TWICE: f"a {unit} has a second owner; {owns}",
        Doing.REJECTED: "rejected",
        Doing.DOWN: "not running",
        Doing.IDLE: "runs" if unit == "none" else "runs, owns nothing",
        Doing.OWNS: owns,
    }
    return f"{name}, from {duration(at)}: {does[one.doing]}"


def _partition_rows(run: Rehearsal) -> Iterator[Row]:
    length = max(run.measures.seconds, 1e-9)
    hues = _hues(run)
    for number, story in enumerate(run.partitions):
        name = called(story, run.unit)
        boxes = tuple(
            Box(
                left=_WIDE * span.start / length,
                width=_WIDE * ((length if span.end is None else span.end) - span.start) / length,
                kind="of",
                title=f"{name}: {span.owner} from {duration(span.start)}",
                hue=hues.get(span.owner, 0),
            )
            for span in story.owners
        )
        yield Row(name, number * 10, boxes)


def _hues(run: Rehearsal) -> dict[str, int]:
    """Return each member's colour. No member is red: a partition without an owner is."""
    return {member.name: 40 + number * 117 % 280 for number, member in enumerate(run.members)}


def _marks(run: Rehearsal) -> Iterator[tuple[float, str]]:
    """Yield the places, in thousandths of the time, where steps begin and the last rebalance ends,
    each with its name.
    """
    length = max(run.measures.seconds, 1e-9)
    for phase in run.phases:
        yield _WIDE * phase.began / length, phase.name
    ended = [one.ended or 0.0 for one in run.rebalances]
    if ended and run.at_rest:
        yield _WIDE * max(ended) / length, "at rest"


def _unowned(run: Rehearsal) -> str:
    """Return the points of a polyline: how many partitions have no owner, over time."""
    length, total = max(run.measures.seconds, 1e-9), max(len(run.partitions), 1)
    steps: dict[float, int] = defaultdict(int)
    for story in run.partitions:
        for span in story.owners:
            steps[span.start] -= 1
            if span.end is not None:
                steps[span.end] += 1
    worst = [0] * (_WIDE + 1)
    now, before = total, 0
    for at in sorted(steps):
        column = min(int(_WIDE * at / length), _WIDE)
        for each in range(before, column + 1):
            worst[each] = max(worst[each], now) if at > 0 else worst[each]
        now, before = now + steps[at], column
    for each in range(before, _WIDE + 1):
        worst[each] = max(worst[each], now)
    points = [
        f"{column},{60 - 58 * max(value, 0) / total:.1f}" for column, value in enumerate(worst)
    ]
    return f"0,60 {' '.join(points)} {_WIDE},60"


def _data(run: Rehearsal, drawn: dict[str, tuple[Stretch, ...]], columns: int) -> str:
    """Return what the page's program reads: lanes, and moments to step through; safe in HTML."""
    marks = sorted(
        {
            0.0,
            run.measures.seconds,
            *(one.began for one in run.rebalances),
            *(one.ended for one in run.rebalances if one.ended is not None),
            *(note.at for note in run.notes),
        }
    )
    data: dict[str, Any] = {
        "seconds": run.measures.seconds,
        "columns": columns,
        "unit": run.unit,
        "marks": [round(mark, 3) for mark in marks],
        "lanes": [
            [[one.end, str(one.doing), one.partitions] for one in line] for line in drawn.values()
        ],
        "rebalances": [
            [one.began, one.ended, one.generation, one.assignor, one.why] for one in run.rebalances
        ],
        "notes": [[note.at, note.who, note.what, note.detail] for note in run.notes],
    }
    return json.dumps(data).replace("<", "\\u003c").replace("&", "\\u0026")
