"""Who owns, gives and gets what, as the wide screen of `rebal simulate` lists it: long lines."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

from rich.cells import cell_len

from rebal.cli.render.common import GAP
from rebal.planner.rehearsal.whatif.holdings import Writer
from rebal.planner.rehearsal.whatif.simulation import MemberShift, Simulation

LABEL: Final = 11
"""Cells of the labels on the left of the screen."""
_MEMBER: Final = "MEMBER"
_WHEN: Final = 7


def round_lines(simulation: Simulation) -> Iterator[str]:
    """Of each round, what each member gives up and gets."""
    named = {shift.member_id: shift.name for shift in simulation.members}
    write = _writer()
    for made in simulation.rounds:
        for number, member in enumerate(made.members):
            label = "" if number else f"round {made.number}"
            parts = [named.get(member.member_id, member.member_id)]
            for word, some in (("gives", member.revoked), ("gets", member.assigned)):
                if words := write(some):
                    parts.append(f"{word} {_joined(words)}")
            yield f"{label:{LABEL + GAP}}{' · '.join(parts)}"


def owned_lines(simulation: Simulation) -> Iterator[str]:
    """Of each member what it owns now and then; the lines may be very long."""
    write = _writer()
    shifts = by_name(simulation)
    width = max(map(cell_len, (_MEMBER, *(shift.name for shift in shifts)))) + GAP
    yield f"{_MEMBER:{width}}OWNS"
    for shift in shifts:
        now, then = write(shift.now), write(shift.then)
        told = [("now", now), ("then", then)]
        if simulation.failure is not None or shift.change == "leaves":
            told = told[:1]
        elif shift.change == "joins":
            told = told[1:]
        elif now == then:
            told = [("still", now)]
        for when, words in told:
            name = shift.name + " " * (width - cell_len(shift.name))
            yield f"{name}{when:{_WHEN}}{_joined(words) if words else 'none'}"


def _writer() -> Writer:
    return Writer(lambda topic: f" · {topic} ", lambda partitions: partitions)


def _joined(words: Sequence[str]) -> str:
    """`orders 0-3,7 · payments 1`."""
    return "".join(words)[3:]


def by_name(simulation: Simulation) -> list[MemberShift]:
    """The members as people sort their names: `pod-2` before `pod-10`."""
    return sorted(simulation.members, key=lambda shift: (_natural(shift.name), shift.member_id))


def _natural(name: str) -> list[tuple[int, str]]:
    parts = re.split(r"([0-9]{1,18})", name)
    return [(int(part), "") if i % 2 else (0, part) for i, part in enumerate(parts)]
