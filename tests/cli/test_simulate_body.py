"""Documents of a simulation are the same text as if they had been made in one piece."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from rich.text import Text

from rebal.cli import output
from rebal.cli.output import Lines, render
from rebal.cli.render.simulation.document import simulate_text
from rebal.cli.render.text import Column, FittingTable, WideTable
from rebal.groups.compact import Partitions
from rebal.groups.model import GroupSnapshot, Member, Subscription, Topic
from rebal.planner.rehearsal.holdings import Row, Share, Some, Writer
from rebal.planner.rehearsal.whatif.changes import Changes
from rebal.planner.rehearsal.whatif.simulation import Simulation, simulate

Make = Callable[..., GroupSnapshot]
ODD = (
    "orders",
    "-4611686018427387904",
    "a: -4611686018427387904",
    'q"\\',
    "é\u202e\x1b\n",
    "l" * 200,
)


def whole(one: Simulation, code: int, form: str) -> str:
    """The envelope with msgspec's own walk through every mapping."""
    body = {name: getattr(one, name) for name in one.__struct_fields__}
    return output.envelope("simulate", body, code, form)


def group_of(group: Make, topics: tuple[str, ...], dealt: list[int]) -> GroupSnapshot:
    """Members p, q and r; partition n of each topic belongs to member `dealt[n]`."""
    owned = [[n for n, owner in enumerate(dealt) if owner == m] for m in range(3)]
    return group(
        members=tuple(
            Member(
                member_id=f"{name}-id",
                client_id=name,
                subscription=Subscription(version=3, topics=topics),
                assignment={topic: Partitions(some) for topic in topics} if some else {},
            )
            for name, some in zip("pqr", owned, strict=True)
        ),
        topics=tuple(Topic(name=topic, partitions=len(dealt)) for topic in topics),
    )


@pytest.mark.parametrize("form", ["json", "yaml"])
@pytest.mark.parametrize("assignor", ["range", "cooperative-sticky", "uniform"])
@pytest.mark.parametrize("dealt", [[0, 0, 0, 1, 0, 1, 2, 2, 2, 2, 1], [2], [0, 1, 2]])
def test_piece_by_piece_is_the_same_text(
    group: Make, form: str, assignor: str, dealt: list[int]
) -> None:
    found = group_of(group, ODD, dealt)
    changes = Changes(add_members=1, remove_members=("q",))
    one = simulate(found, assignor, changes)
    assert "".join(simulate_text(found, [one], changes, 3, form)) == whole(one, 3, form)


@pytest.mark.parametrize("form", ["json", "yaml"])
def test_several_have_the_same_members_each(group: Make, form: str) -> None:
    found = group_of(group, ODD[:2], [0, 0, 0, 1, 2])
    made = [simulate(found, name) for name in ("range", "cooperative-sticky")]
    text = "".join(simulate_text(found, made, Changes(), 0, form))
    for one in made:
        lines = whole(one, 0, form).splitlines()
        begin = next(n for n, line in enumerate(lines) if "members" in line)
        deeper = "    " if form == "json" else "  "
        until = next(n for n, line in enumerate(lines) if "rounds" in line)
        assert "\n".join(deeper + line for line in lines[begin:until]) in text


@given(st.lists(st.integers(-1, 3), max_size=12), st.sets(st.integers(0, 20), min_size=12))
@example([0, 1, 2], {0, 1, 2, 4, 5, 6, 7, 8, 9, 10, 11, 12})
@example([0] * 12, {0, 2, 3, 4, 6, 8, 9, 12, 13, 15, 17, 18})
@example([1, 0, 0, 0], set(range(12)))
def test_written_partitions_equal_the_mapping(members: list[int], numbers: set[int]) -> None:
    partitions = sorted(numbers)[: len(members)]
    some = Some([Row("a", partitions, members), Row("b", partitions[:2], members[:2])])
    write = Writer(lambda topic: f"<{topic}>", lambda runs: f"{runs};")
    for number in range(4):
        share = Share(some, number)
        told = [word for topic, owned in share.items() for word in (f"<{topic}>", f"{owned};")]
        assert list(write(share)) == told == list(write(dict(share)))
        assert sum(map(len, share.values())) == some.counts[number]


def test_a_long_line_is_neither_folded_nor_obeyed() -> None:
    view = [Text("head"), Lines(["x" * 9000, "\x1b[31mred"]), Text("tail")]
    assert render(view, width=60) == "head\n" + "x" * 9000 + "\n\\x1b[31mred\ntail\n"


@pytest.mark.parametrize("colour", [False, True])
def test_a_table_with_room_for_all_looks_like_any_other(*, colour: bool) -> None:
    columns = [
        Column("NAME"),
        Column("N", right=True),
        Column("LONG HEAD", right=True),
        Column("x"),
    ]
    bar = Text.assemble("██", ("▒", "yellow"))
    rows = [["pod-1", "1", "5", bar], ["日本", "1,000", "", Text("")], ["", "22", "3", "end"]]
    wide = render([WideTable(columns, rows)], width=4000, colour=colour)
    plain = render([FittingTable(columns, rows)], width=4000, colour=colour)
    assert _seen(wide) == _seen(plain)
    assert ("\x1b[33m▒" in wide) == colour


def _seen(text: str) -> list[str]:
    """The lines without blanks at their end, as colours may stand before or after these."""
    return [Text.from_ansi(line).plain.rstrip() for line in text.splitlines()]
