"""The screens of `rebal simulate`: partitions that move and stop, and each member's counts.

For Connect workers there is a table of the protocols.
"""

from collections.abc import Iterator, Sequence
from typing import Final

from rich.cells import cell_len
from rich.text import Text

from rebal.cli.output import View
from rebal.cli.render.plans.parts import partition_seconds_text
from rebal.cli.render.text import (
    GAP,
    Column,
    FittingTable,
    Rows,
    WideTable,
    count,
    duration,
    facts,
    labelled,
    listing,
    partitions_text,
    to_paste,
)
from rebal.groups.commands import Command
from rebal.planner.facts import natural
from rebal.planner.plan import Pace
from rebal.planner.rehearsal.whatif.simulation import (
    Failure,
    MemberShift,
    Simulation,
    WorkersSimulation,
)

_BAR: Final = 24
_FOLD_FROM: Final = 25
_FOLD_ROWS: Final = 3
_MOST_ROWS: Final = 16


def simulate_view(
    simulation: Simulation, source: str, next_command: Command, *, wide: bool = False
) -> View:
    """Return the screen of one simulation; `source` says where and when the group was read.

    `wide` shows every member on a line of its own, then each one's partitions, and the balance of
    each topic.
    """
    view: View = [
        Text.assemble(
            (simulation.group_id, "bold"),
            f" ({source}): ",
            _change(simulation),
        )
    ]
    if simulation.failure is not None:
        view.append(facts(_failed(simulation, simulation.failure), label=LABEL))
    else:
        view += [_answer(simulation), facts(_cost(simulation), label=LABEL)]
        rounds = "\n".join(round_lines(simulation)) if wide else ""
        view += [to_paste(rounds, 0)] if rounds else []
    view += [Text(""), *_members(simulation, wide)]
    if wide:
        view += [Text(""), to_paste("\n".join(owned_lines(simulation)), 0)]
        view += [Text(""), _topics(simulation)] if simulation.failure is None else []
    last = [*labelled("assumes", simulation.assumes), (Text("next:", style="bold"), next_command)]
    return [*view, Text(""), facts(last, label=LABEL)]


def _change(simulation: Simulation) -> Text:
    now, then = simulation.assignor_now, simulation.assignor
    made = Text.assemble((then, "bold"))
    if simulation.server_side:
        made.append(" of the broker (KIP-848)")
    if now != then:
        made = Text.assemble(f"{now or 'no assignor'} → ", made)
    elif not simulation.what_if:
        made.append(" again")
    if simulation.what_if:
        made.append(f"; {', then '.join(simulation.what_if)}")
    return made


def _answer(simulation: Simulation) -> Text:
    balance = simulation.balance
    rebalances = count(simulation.rebalances, "rebalance")
    ends = f"{rebalances} until stable" if simulation.stable else f"NOT stable after {rebalances}"
    parts = (
        f"moves {simulation.moved:,} of {simulation.partitions:,}",
        f"stays {simulation.stays:,}",
        f"{simulation.started:,} without an owner now get one" if simulation.started else "",
        f"loses {simulation.lost:,}" if simulation.lost else "loses none",
        f"balance {range_text(balance.then_min, balance.then_max)} "
        f"(was {range_text(balance.now_min, balance.now_max)})",
        "no rebalance of the group" if simulation.server_side else ends,
    )
    return Text(" · ".join(filter(None, parts)), style="bold")


def _cost(simulation: Simulation) -> Iterator[tuple[str | Text, str]]:
    if simulation.server_side:
        yield (
            "KIP-848",
            f"{count(simulation.stops, 'partition')} {_stop(simulation.stops)}; each member "
            "moves by itself, and the others keep consuming",
        )
    else:
        eager = simulation.eager_rebalances
        yield (
            "EAGER",
            f"{count(simulation.eager_stops, 'partition')} {_stop(simulation.eager_stops)} in "
            f"{count(eager, 'rebalance')}: all partitions, each time",
        )
        if simulation.cooperative_stops is None:
            yield "COOPERATIVE", f"{simulation.assignor} does not support it"
        else:
            stops = simulation.cooperative_stops
            yield (
                "COOPERATIVE",
                f"{count(stops, 'partition')} {_stop(stops)} in "
                f"{count(simulation.rebalances, 'rebalance')}: only what moves",
            )
    if len(simulation.rounds) > 1:
        for made in simulation.rounds:
            parts = (
                made.why,
                f"{count(made.gone, 'partition')} without an owner" if made.gone else "",
                f"revoked {made.revoked:,}",
                f"assigned {made.assigned:,}",
                f"still owned {made.still_owned:,}",
            )
            yield f"round {made.number}", " · ".join(filter(None, parts))
    topics = apart(simulation, then=True)
    yield (
        "topics",
        f"the subscribers of one topic differ by at most {count(topics, 'partition')} of it"
        + (f" (was {apart(simulation, then=False):,})"),
    )
    yield from _warnings(simulation)


def _stop(number: int) -> str:
    return "stops" if number == 1 else "stop"


def _warnings(simulation: Simulation) -> Iterator[tuple[str | Text, str]]:
    named = {shift.member_id: shift.name for shift in simulation.members}
    for one in simulation.violations:
        example = f"{one.topic} {one.partition}"
        if one.member_id is not None:
            example += f", {named.get(one.member_id, one.member_id)}"
        yield (
            Text("contract", style="bold red"),
            f"{count(one.partitions, 'partition')} {one.rule} (such as {example})",
        )
    if simulation.again:
        yield (
            Text("restless", style="yellow"),
            f"the next rebalance takes {count(simulation.again, 'partition')} from their owners "
            "though nothing has changed, whatever sets it off: Java does not settle here",
        )
    leader = simulation.leader
    if leader is not None:
        said = (
            f"the leader may compute for {_seconds(leader.at_least)} to "
            f"{_seconds(leader.at_most)} at each rebalance (estimated from measurements: its time "
            "grows with the square of the partitions where subscriptions differ)"
        )
        if leader.near_timeout:
            said += (
                f"; the coordinator evicts it after {_seconds(leader.rebalance_timeout)} "
                "(max.poll.interval.ms): raise it, or make the subscriptions equal"
            )
        yield Text("leader", style="bold red" if leader.near_timeout else ""), said
    # A custom assignor's are violations; Kafka's own do it too, in rare cases.
    strange = [shift for shift in simulation.members if shift.not_subscribed]
    if strange and not simulation.violations:
        first = strange[0]
        yield (
            "odd",
            f"{listing([shift.name for shift in strange])} would get partitions of topics not "
            f"subscribed to, as the Java client does here: {partitions_text(first.not_subscribed)}",
        )


def _seconds(seconds: float) -> str:
    return f"{seconds:,.0f} s" if seconds < 120 else f"{seconds / 60:,.0f} min"


def _failed(simulation: Simulation, failure: Failure) -> Iterator[tuple[Text, str]]:
    yield Text("fails", style="bold red"), failure.message
    named = {shift.member_id: shift.name for shift in simulation.members}
    if failure.members:
        yield Text("members"), listing([named.get(one, one) for one in failure.members])
    if failure.topics:
        yield Text("topics"), listing(failure.topics)
    yield (
        Text("do"),
        "these members must be new when the group rebalances with this assignor: a member that "
        "has just started claims nothing",
    )


def _members(simulation: Simulation, wide: bool) -> View:
    shifts = by_name(simulation)
    scale = max(1, simulation.balance.now_max, simulation.balance.then_max)
    columns = [
        Column("MEMBER"),
        Column("NOW", right=True),
        Column("THEN", right=True),
        Column("KEEPS", right=True),
        Column("GIVES", right=True),
        Column("GETS", right=True),
        Column("█ keeps ▒ gives ░ gets", rank=1),
    ]
    if wide:
        return [WideTable(columns, [_row(shift.name, shift, scale) for shift in shifts])]
    named, more = _folded(shifts)
    view: View = [FittingTable(columns, [_row(name, shift, scale) for name, shift in named])]
    if more:
        view.append(Text(f"(and {count(more, 'member')} more with other counts: --wide)", "dim"))
    return view


def _folded(shifts: Sequence[MemberShift]) -> tuple[list[tuple[str, MemberShift]], int]:
    """Return the rows to show, each a label and a member, and the number of members left out.

    In a group of at least `_FOLD_FROM` members, `_FOLD_ROWS` or more with equal counts share a row,
    whose member is one of them, and only the first `_MOST_ROWS` rows are returned.
    """
    if len(shifts) < _FOLD_FROM:
        return [(shift.name, shift) for shift in shifts], 0
    alike: dict[tuple[object, ...], list[MemberShift]] = {}
    for shift in shifts:
        alike.setdefault((shift.keeps, shift.gives, shift.gets, shift.change), []).append(shift)
    rows: list[tuple[str, MemberShift]] = []
    shown = 0
    for same in sorted(alike.values(), key=len, reverse=True):
        together = len(same) >= _FOLD_ROWS
        for shift in same[:1] if together else same:
            if len(rows) < _MOST_ROWS:
                rows.append((f"{len(same):,} members" if together else shift.name, shift))
                shown += len(same) if together else 1
    return rows, len(shifts) - shown


def _row(name: str, shift: MemberShift, scale: int) -> list[str | Text]:
    counts = (
        shift.keeps + shift.gives,
        shift.keeps + shift.gets,
        shift.keeps,
        shift.gives,
        shift.gets,
    )
    label = f"{name} ({shift.change})" if shift.change else name
    return [label, *(f"{number:,}" for number in counts), _bar(shift, scale)]


def _bar(shift: MemberShift, scale: int) -> Text:
    """Return a bar of the partitions that a member keeps, gives and gets, in proportion to `scale`.

    A count above 0 gets at least one cell.
    """
    size = min(_BAR, scale)

    def cells(number: int) -> int:
        return max(1, round(number * size / scale)) if number else 0

    return Text.assemble(
        "█" * cells(shift.keeps),
        ("▒" * cells(shift.gives), "yellow"),
        ("░" * cells(shift.gets), "green"),
    )


def _topics(simulation: Simulation) -> WideTable:
    return WideTable(
        [
            Column("TOPIC"),
            Column("PARTITIONS", right=True),
            Column("EACH NOW", right=True),
            Column("EACH THEN", right=True),
        ],
        [
            [
                one.topic,
                f"{one.partitions:,}",
                range_text(one.balance.now_min, one.balance.now_max),
                range_text(one.balance.then_min, one.balance.then_max),
            ]
            for one in simulation.topics
        ],
    )


def range_text(low: int, high: int) -> str:
    """Return a range of counts: `4–8`."""
    return f"{low:,}–{high:,}"


def apart(simulation: Simulation, *, then: bool) -> int:
    """Return the largest difference in partitions of one topic between two of its subscribers.

    If `then` is True, the partitions after the simulation count, else those before it.
    """
    of = [topic.balance for topic in simulation.topics]
    return max((b.then_max - b.then_min if then else b.now_max - b.now_min for b in of), default=0)


def verdict(simulation: Simulation) -> Text:
    """Return a simulation's problem in a few words, such as `not at rest`; empty without one."""
    if simulation.violations:
        return Text("breaks its contract", "bold red")
    if not simulation.stable:
        return Text("not at rest", "yellow")
    if simulation.leader is not None and simulation.leader.near_timeout:
        return Text("slow leader", "yellow")
    return Text("")


def compare_view(simulations: Sequence[Simulation], source: str, next_command: Command) -> View:
    """Return the screen that compares assignors, a row for each.

    `source` says where the group was read.
    """
    first = simulations[0]
    columns = [
        Column("ASSIGNOR"),
        Column("MOVES", right=True),
        Column("LOST", right=True, rank=3),
        Column("EACH", right=True),
        Column("TOPIC", right=True, rank=2),
        Column("REBALANCES", right=True),
        Column("STOPS", right=True),
        Column("STOPS, ALL EAGER", right=True, rank=1),
        Column(""),
    ]
    now = f"{first.assignor_now or 'no assignor'} now"
    before = range_text(first.balance.now_min, first.balance.now_max)
    rows: list[list[str | Text]] = [
        [now, "", "", before, f"{apart(first, then=False)}", "", "", "", ""]
    ]
    rows += [_compared(one) for one in simulations]
    head = Text.assemble((first.group_id, "bold"), f" ({source}): {first.partitions:,} partitions")
    if first.what_if:
        head.append(f"; {', then '.join(first.what_if)}")
    view: View = [head, Text(""), FittingTable(columns, rows), Text("")]
    view.append(facts(_legend(simulations, next_command), label=7))
    return view


def _compared(one: Simulation) -> list[str | Text]:
    name = one.assignor
    if one.failure is not None:
        return [name, "", "", "", "", "", "", "", Text("the leader would fail", "bold red")]
    return [
        name,
        f"{one.moved:,}",
        f"{one.lost:,}",
        range_text(one.balance.then_min, one.balance.then_max),
        str(apart(one, then=True)),
        f"{one.rebalances:,}" if not one.server_side else "none",
        f"{one.stops:,}",
        f"{one.eager_stops:,}" if not one.server_side else "–",
        verdict(one),
    ]


def _legend(simulations: Sequence[Simulation], next_command: Command) -> Rows:
    yield Text("EACH"), "fewest–most partitions of a member; TOPIC: largest difference in one topic"
    yield (
        Text("STOPS"),
        "partitions that stop, counted at each rebalance; COOPERATIVE if supported",
    )
    if any(one.server_side for one in simulations):
        names = [one.assignor for one in simulations if one.server_side]
        yield (
            Text("KIP-848"),
            f"{listing(names)}: the broker's assignors; members move one by one, without waiting "
            "for another",
        )
    for one in simulations:
        if one.failure is not None:
            yield Text("fails", style="bold red"), f"{one.assignor}: {one.failure.message}"
    # What concerns one assignor alone stands in its row.
    shared = [
        note
        for one in simulations
        for note in one.assumes
        if not note.startswith(f"every member runs {one.assignor}")
    ]
    yield from labelled("assumes", dict.fromkeys(shared))
    yield Text("next:", style="bold"), next_command


LABEL: Final = 11
"""Width of the label column, in cells."""
_MEMBER: Final = "MEMBER"
_WHEN: Final = 7


def round_lines(simulation: Simulation) -> Iterator[str]:
    """Yield a line for each member and rebalance round: the revoked and the assigned partitions."""
    named = {shift.member_id: shift.name for shift in simulation.members}
    for made in simulation.rounds:
        for number, member in enumerate(made.members):
            label = "" if number else f"round {made.number}"
            told = (("gives", member.revoked), ("gets", member.assigned))
            parts = [named.get(member.member_id, member.member_id)]
            parts += [f"{word} {partitions_text(some)}" for word, some in told if some]
            yield f"{label:{LABEL + GAP}}{' · '.join(parts)}"


def owned_lines(simulation: Simulation) -> Iterator[str]:
    """Yield lines with each member's partitions before and after the simulation.

    The lines may be very long.
    """
    shifts = by_name(simulation)
    width = max(map(cell_len, (_MEMBER, *(shift.name for shift in shifts)))) + GAP
    yield f"{_MEMBER:{width}}OWNS"
    for shift in shifts:
        told = [("now", shift.now), ("then", shift.then)]
        if simulation.failure is not None or shift.change == "leaves":
            told = told[:1]
        elif shift.change == "joins":
            told = told[1:]
        elif shift.now == shift.then:
            told = [("still", shift.now)]
        for when, owned in told:
            name = shift.name + " " * (width - cell_len(shift.name))
            yield f"{name}{when:{_WHEN}}{partitions_text(owned) or 'none'}"


def by_name(simulation: Simulation) -> list[MemberShift]:
    """Return the members in natural order of their names."""
    return sorted(simulation.members, key=lambda shift: (natural(shift.name), shift.member_id))


def workers_view(made: WorkersSimulation, source: str, next_command: Command) -> View:
    """Return the screen of simulated Connect workers: a row for each protocol and pace.

    `source` says where the group was read.
    """
    columns = [
        Column("PROTOCOL"),
        Column("RESTARTS"),
        Column("REBALANCES", right=True),
        Column("MOVES", right=True),
        Column("TASK-SECONDS", right=True),
        Column("TAKES", right=True),
        Column("AT WORST", right=True, rank=1),
    ]
    rows = [
        _worker_row(run.protocol if first else "", pace)
        for run in made.runs
        for first, pace in ((pace is run.cost.paces[0], pace) for pace in run.cost.paces)
    ]
    legend = ((run.protocol, run.cost.text) for run in made.runs)
    return [
        Text.assemble(
            (made.group_id, "bold"),
            f" ({source}): {count(made.workers, 'worker')}, {count(made.connectors, 'connector')}, "
            f"{count(made.tasks, 'task')}; {made.assignor_now or 'no protocol'} now",
        ),
        Text(f"restart: {listing(made.restarted, 12)}"),
        Text(""),
        FittingTable(columns, rows),
        Text(""),
        facts([*legend, (Text("next:", style="bold"), next_command)], label=10),
    ]


def _worker_row(protocol: str, pace: Pace) -> list[str | Text]:
    return [
        protocol,
        pace.name,
        f"{pace.rebalances:,}",
        f"{pace.partitions_moved:,}",
        partition_seconds_text(pace),
        duration(pace.seconds),
        "" if pace.worst_seconds is None else duration(pace.worst_seconds),
    ]
