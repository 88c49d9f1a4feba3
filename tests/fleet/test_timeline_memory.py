"""What the timeline keeps in memory is bounded by the members there are."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pyarrow as pa
import pytest

from rebal.inspectors.fleet.schemas import TIMELINE
from rebal.inspectors.fleet.timeline import rows as timeline_rows
from rebal.inspectors.fleet.timeline.facts import unpack_request
from rebal.inspectors.fleet.timeline.group import apply_record, apply_request, finish
from rebal.inspectors.fleet.timeline.rows import Rows
from rebal.inspectors.fleet.timeline.state import GroupState, encode
from rebal.inspectors.fleet.timeline.timeline import Options, make_tables
from tests.fleet.timeline_input import batches, in_order, record_of
from tests.fleet.timeline_story import M, Story


def told(story: Story, step: Callable[[Story, int], None], count: int) -> tuple[int, int]:
    """How large a state is after so many steps, and how many rebalances were told."""
    rows, state, found = Rows(), GroupState(group_id="g"), 0

    def taken() -> int:
        return sum(len(b) for name, b in rows.take(rest=True) if name.endswith("rebalances"))

    for number in range(1, count):
        step(story, number)
        for row in in_order(story.rows):
            if row["key"] is not None:
                apply_record(state, rows, record_of(row))
            else:
                apply_request(state, rows, row["at"], unpack_request(row["value"]))
        story.rows.clear()
        found += taken()
    size = len(encode(state))
    finish(state, rows)
    return size, found + taken()


def rebalance(story: Story, number: int) -> None:
    members = [M("a", (0,)), M(f"m{number}", (1,), client=f"c{number}")]
    story.round(number * 60, number, members)
    story.refuse(number * 60 + 5, f"r{number}", ("sticky",))
    story.generation(number * 60 + 0.05, number, members)


def heartbeats(story: Story, epoch: int) -> None:
    for member in ("a", "b", f"n{epoch}"):
        story.ask(
            epoch * 60,
            "CONSUMER_GROUP_HEARTBEAT",
            generation=0 if member.startswith("n") else epoch - 1,
            member_epoch=epoch,
            member_id=member,
            client_id=member,
            host="/h",
        )


@pytest.mark.parametrize(
    ("step", "count"),
    [pytest.param(rebalance, 200, marks=pytest.mark.slow), (heartbeats, 1_000)],
    ids=["records and requests", "heartbeats alone"],
)
def test_memory_does_not_grow_with_history(step: Callable[[Story, int], None], count: int) -> None:
    """What is kept is bounded by the members there are, not by how many there have been."""
    (few, _), (many, rebalances) = (told(Story(), step, n) for n in (count, 3 * count))
    assert many < 1.2 * few, (few, many)
    assert rebalances == 3 * count - 1


@pytest.mark.parametrize("table", ["rebalances", "errors"])
def test_rows_of_unchanged_members_are_handed_on_before_the_end(
    table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timeline_rows, "_AT_ONCE", 1_000)
    story = Story()
    for number in range(1, 3_500):
        if table == "rebalances":
            story.generation(number, number, [M("a", (0,))])
        else:
            row = {"at": number, "problem": "cut off", "source": "log", "position": number}
            story.rows.append(dict.fromkeys(TIMELINE.names) | row)
    given = 0

    def counted() -> Iterator[pa.RecordBatch]:
        nonlocal given
        for batch in batches(story.rows):
            given += len(batch)
            yield batch

    found = next(len(rows) for kind, rows in make_tables(counted(), Options()) if kind == table)
    assert found >= 1_000
    assert given < len(story.rows)
