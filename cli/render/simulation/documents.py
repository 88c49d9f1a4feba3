"""Documents of rehearsals (`rebal.rehearsal/1`) and of several simulations (`rebal.simulate/1`).

Here are also the texts on a rehearsal's dangers and costs that the screen and the page share.
"""

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Final, NamedTuple

from rebal.cli.render.text import count, duration, listing, moment
from rebal.groups.model import Record
from rebal.groups.wire.consumer_protocol import CONNECTOR
from rebal.planner.rehearsal.outcome import (
    Distribution,
    Note,
    PartitionStory,
    Rebalance,
    Rehearsal,
    Sampled,
    endangered,
    overlaps,
)
from rebal.planner.rehearsal.scene import Used
from rebal.planner.rehearsal.whatif.changes import Changes
from rebal.planner.rehearsal.whatif.simulation import Simulation
from rebal.planner.verdict import BLOCKED, SAFE, UNPROVEN, worst_code

NEVER: Final = 1e-6
"""Downtime in partition-seconds below which it is a rounding error."""
_LATE: Final = ("past its poll timeout", "frozen")
_REJECTED: Final = "rejected"
_OUT: Final = {
    _REJECTED: "rejected",
    "did not start": "not started",
    "failed as leader": "leader fails",
    "callback failed": "listener",
}


class RunDocument(Record, frozen=True, kw_only=True, omit_defaults=False):
    """One rehearsal: of the plan, of the group as it runs now, or of another protocol (`name`).

    `rehearsal` is the run with the first seed. `distribution` covers the runs of all seeds (None:
    one seed).
    """

    name: str
    rehearsal: Rehearsal
    distribution: Distribution | None = None


class RehearsalDocument(Record, frozen=True, kw_only=True, omit_defaults=False):
    """The body of `rebal.rehearsal/1`.

    `script` is the name of a ready script or the file of one (None: no script), `plan` the file of
    the plan (None: no plan). `parameters` are the times that were used. `assumes` are assumptions
    made where evidence is missing, a sentence each. `partitions` counts what members can own, in
    the `unit` of the rehearsals.
    """

    group_id: str
    captured_at: datetime
    members: int
    partitions: int
    plan: str | None = None
    script: str | None = None
    about: str = ""
    seed: int = 0
    parameters: tuple[Used, ...] = ()
    assumes: tuple[str, ...] = ()
    runs: tuple[RunDocument, ...] = ()
    unit: str = "partition"


def code_of(runs: Sequence[RunDocument], *, exit_zero: bool) -> int:
    """Return the exit code: 3 with a danger in any run, 4 if a group does not come to rest, else 0.

    With `exit_zero` it is always 0.
    """
    return SAFE if exit_zero else worst_code(map(_code, runs))


def _code(one: RunDocument) -> int:
    spread = one.distribution
    if endangered(one.rehearsal) or (spread is not None and spread.endangered):
        return BLOCKED
    if not one.rehearsal.at_rest or (spread is not None and spread.restless):
        return UNPROVEN
    return SAFE


class SimulationsDocument(Record, frozen=True, kw_only=True, omit_defaults=False):
    """The body of `rebal.simulate/1` if several assignors were simulated."""

    group_id: str
    captured_at: datetime
    assignor_now: str | None
    changes: Changes
    simulations: list[Simulation]


class DangerNote(NamedTuple):
    """One thing that goes wrong in a rehearsal: a short label and a sentence.

    `severe` is False if a late client causes the danger and ends it at its next poll.
    """

    label: str
    text: str
    severe: bool = True


def dangers(run: Rehearsal, spread: Distribution | None = None) -> Iterator[DangerNote]:
    """Yield the dangers of a rehearsal, such as a rejected member or a partition with two owners.

    `spread` adds the dangers of the runs with other seeds. Names are not escaped.
    """
    alike: dict[tuple[str, str], list[Note]] = {}
    for note in run.notes:
        if note.what in _OUT:
            alike.setdefault((note.what, note.detail), []).append(note)
    found = [
        DangerNote(_OUT[what], _out(run, what, detail, notes))
        for (what, detail), notes in alike.items()
    ]
    measures = run.measures
    if measures.twice - measures.twice_past > NEVER:
        found.append(DangerNote("owned twice", _twice(run)))
    if spread is not None and spread.endangered and not found:
        text = (
            f"in {spread.endangered:,} of {count(spread.runs, 'run')} a member is rejected, or a "
            f"{run.unit} is owned twice"
        )
        found.append(DangerNote("danger", text))
    yield from found
    if measures.twice_past > NEVER:
        late = list(dict.fromkeys(note.who for note in run.notes if note.what in _LATE))
        goes, keeps = ("goes", "keeps its") if len(late) == 1 else ("go", "keep their")
        text = (
            f"{listing(late)} {goes} past a timeout and {keeps} {run.unit}s until the next poll: "
            f"{measures.twice_past:,.0f} {run.unit}-seconds with two owners"
        )
        yield DangerNote("late", text, severe=False)
    left = without_owner(run)
    if left:
        verb, some = ("has", "") if len(left) == 1 else ("have", "such as ")
        text = f"{count(len(left), run.unit)} {verb} no owner at the end, {some}"
        yield DangerNote("no owner", text + partition_name(left[0], run.unit))
    restless = spread.restless if spread is not None else int(not run.at_rest)
    if restless:
        of = f" in {restless:,} of {count(spread.runs, 'run')}" if spread is not None else ""
        yield DangerNote("restless", f"the group does not come to rest{of}")


def without_owner(run: Rehearsal) -> list[PartitionStory]:
    """Return the partitions that no member owns at the end, without those of deleted topics."""
    deleted = {note.detail for note in run.notes if note.what == "topic deleted"}
    return [
        one
        for one in run.partitions
        if one.topic not in deleted and all(span.end is not None for span in one.owners)
    ]


def no_danger_text(run: Rehearsal) -> str:
    """Return the sentence for a rehearsal without dangers.

    It says that no member is rejected and no partition is owned twice. If only one restart of each
    kind was rehearsed, it says so.
    """
    said = "no member is rejected"
    if run.unit != "none":
        said += f", and no {run.unit} is owned twice"
    return said.capitalize() if run.sampled is None else f"In one restart of each kind, {said}"


def cost_rows(run: Rehearsal) -> Iterator[tuple[str, str]]:
    """Yield (label, text) for the duration of the rehearsal and for its downtime."""
    measures, left = run.measures, len(without_owner(run))
    longest = max(map(lasting, run.rebalances), default=0.0)
    rebalances = count(measures.rebalances, "rebalance") if measures.rebalances else "no rebalance"
    rebalances += f", the longest {time_text(longest)}" if longest else ""
    yield "takes", f"{duration(measures.seconds)}, {rebalances}"
    if run.unit == "none":
        yield "downtime", "not modelled"
    elif not measures.unowned and not left:
        yield "downtime", f"none: every {run.unit} has an owner all the time"
    else:
        most = f"at most {time_text(measures.longest)} for one {run.unit}"
        yield (
            "downtime",
            f"{f'no end for {count(left, run.unit)}' if left else most}; {measures.unowned:,.0f} "
            f"{run.unit}-seconds in {count(measures.stopped, 'stop')}; "
            f"{count(measures.moved, 'move')}",
        )


def lasting(one: Rebalance) -> float:
    """Return the seconds that a rebalance lasts; 0 if it does not end."""
    return 0.0 if one.ended is None else one.ended - one.began


def time_text(seconds: float) -> str:
    """Return `3.6 s` below a minute, else `4 min 12 s`."""
    return duration(seconds) if seconds >= 60 else f"{seconds:.1f} s".replace(".0 s", " s")


def sample_text(found: Sampled) -> str:
    """Return a note that one restart of each kind was rehearsed, and what that does not show."""
    return (
        f"one restart of each kind was rehearsed ({found.rehearsed:,} of {found.restarts:,}) and "
        "counts for the others, so all figures are about right. A danger that comes by chance in "
        "one of the others, or follows from one that goes wrong, is not shown"
    )


def partition_name(story: PartitionStory, unit: str) -> str:
    """Return the name of a partition or task: `orders-3`; of a connector the name alone."""
    itself = unit == "task" and story.partition == CONNECTOR
    return story.topic if itself else f"{story.topic}-{story.partition}"


def _out(run: Rehearsal, what: str, detail: str, notes: Sequence[Note]) -> str:
    who = listing(list(dict.fromkeys(note.who for note in notes)), 4)
    one = len({note.who for note in notes}) == 1
    first = "" if len({note.at for note in notes}) == 1 else ", the first"
    when = f"{first} at {moment(notes[0].at)}"
    if what == "did not start":
        return f"{who} {'does' if one else 'do'} not start{when}: {detail}"
    if what == "failed as leader":
        return f"{who} {'fails' if one else 'fail'} as leader{when}: {detail}"
    if what == "callback failed":
        return f"{who} {'ends' if one else 'end'}{when}: onPartitions{detail.capitalize()} throws"
    state = {member.name: member.state for member in run.members}
    ended = {note.who for note in run.notes if note.what == "ended" and note.at >= notes[0].at}
    after = "stops" if notes[0].who in ended else "retries"
    after = after if one else after.removesuffix("s") if after == "stops" else "retry"
    owners = [member.name for member in run.members if member.owned]
    stays = [note.who for note in notes if state.get(note.who) == _REJECTED]
    rest = ""
    if stays and owners and run.state != "Empty":
        has = "owns" if len(owners) == 1 else "own"
        rest = f"; {listing(owners, 3)} {has} all {run.unit}s at the end"
    verb = "is" if one else "are"
    return f"{who} {verb} rejected ({detail}){when}{first and ','} and {after}{rest}"


def _twice(run: Rehearsal) -> str:
    pairs: dict[str, None] = {}
    names: dict[str, None] = {}
    for story in run.partitions:
        for one, other in overlaps(story.owners, run.measures.seconds):
            pairs[f"{one.owner} and {other.owner}"] = None
            names[partition_name(story, run.unit)] = None
    lasts = run.measures.twice - run.measures.twice_past
    some = f"{listing(list(names), 3)} by {listing(list(pairs), 2)}: " if pairs else ""
    return f"{some}{lasts:,.0f} {run.unit}-seconds, in which records are processed twice"
