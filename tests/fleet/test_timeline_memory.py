"""What the timeline keeps in memory is bounded by the members there are."""

from __future__ import annotations

from collections.abc import Iterator

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


@pytest.mark.slow
def test_memory_does_not_grow_with_history() -> None:
    """What is kept is bounded by the members there are, not by how many there have been."""

    def kept(generations: int) -> int:
        rows = Rows()
        state = GroupState(group_id="g")
        story = Story()
        for number in range(1, generations):
            members = [M("a", (0,)), M(f"m{number}", (1,), client=f"c{number}")]
            story.round(number * 60, number, members)
            story.refuse(number * 60 + 5, f"r{number}", ("sticky",))
            story.generation(number * 60 + 0.05, number, members)
            for row in in_order(story.rows):
                if row["key"] is not None:
                    apply_record(state, rows, record_of(row))
                else:
                    apply_request(state, rows, row["at"], unpack_request(row["value"]))
            story.rows.clear()
            for _ in rows.take(rest=True):
                pass
        return len(encode(state))

    few, many = kept(200), kept(600)
    assert many < 1.2 * few, (few, many)


def test_memory_does_not_grow_where_only_heartbeats_tell() -> None:
    def kept(epochs: int) -> tuple[int, int]:
        rows, story, count = Rows(), Story(), 0
        state = GroupState(group_id="g")
        for epoch in range(1, epochs):
            for member in ("a", "b", f"n{epoch}"):
                asked = 0 if member.startswith("n") else epoch - 1
                who = {"member_id": member, "client_id": member, "host": "/h"}
                story.ask(
                    epoch * 60,
                    "CONSUMER_GROUP_HEARTBEAT",
                    generation=asked,
                    member_epoch=epoch,
                    **who,
                )
            for row in story.rows:
                apply_request(state, rows, row["at"], unpack_request(row["value"]))
            story.rows.clear()
            count += sum(len(b) for name, b in rows.take(rest=True) if name == "rebalances")
        size = len(encode(state))
        finish(state, rows)
        return size, count + sum(len(b) for name, b in rows.take(rest=True) if name == "rebalances")

    (few, _), (many, count) = kept(1_000), kept(3_000)
    assert many < 1.2 * few, (few, many)
    assert count == 2_999


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
