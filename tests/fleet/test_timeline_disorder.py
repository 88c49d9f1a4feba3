"""Rows out of order, without a time, cut into batches or broken, and the timeline made of them."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest

from rebal.inspectors.fleet.timeline.timeline import Options, make_tables
from tests.fleet.conftest import CAPTURES
from tests.fleet.timeline_input import (
    Row,
    asked,
    asking,
    batches,
    captured_records,
    captured_requests,
    in_order,
    tables,
)
from tests.fleet.timeline_story import SECOND, M, Story, at, facts, only


def test_a_line_without_a_time_tells_its_list_alone() -> None:
    story = Story()
    story.generation(10, 1, [M("a", (0,))])
    story.join(0, "a", 1, ("sticky", "range"))
    story.rows[-1]["at"] = None
    made = tables(story.rows)
    listed = only(made["assignor_lists"])
    assert facts(listed, "at", "assignors", "generation") == (None, ["sticky", "range"], 1)
    member = only(made["members"])
    assert facts(member, "assignors") == (["sticky", "range"],)
    assert at(only(made["groups"])["first_seen"]) == 10


def test_two_brokers_logs_out_of_order_give_the_same_generations() -> None:
    story = Story()
    story.round(10, 1, [M("a", (0, 1))])
    story.round(14, 2, [M("a", (0,)), M("b", (1,))])
    story.round(18, 3, [M("b", (0, 1))])
    behind = [
        {**row, "at": row["at"] - 3 * SECOND} if asked(row).generation == 2 else row
        for row in story.rows
    ]
    for rows in (story.rows, behind):
        topic = Story()
        topic.generation(10.1, 1, [M("a", (0, 1))])
        topic.generation(14.1, 2, [M("a", (0,)), M("b", (1,))])
        topic.generation(18.1, 3, [M("b", (0, 1))])
        made = tables([*rows, *topic.rows])
        got = [facts(r, "generation", "joined", "left") for r in made["rebalances"]]
        assert got == [(1, ["a"], []), (2, ["b"], []), (3, [], ["a"])]
        assert {m["assignors"] and tuple(m["assignors"]) for m in made["members"]} == {("range",)}


def test_rows_that_are_not_sorted_by_effective_times_are_told() -> None:
    story = Story()
    for number in range(1, 6):
        story.generation(number * 100, number, [M("a", (number,))])
    whole = pa.Table.from_batches(batches(in_order(story.rows)))
    unsorted = whole.take([0, 2, 1, 3, 4]).combine_chunks().to_batches()
    errors = [
        row
        for name, made in make_tables(unsorted, Options())
        if name == "errors"
        for row in made.to_pylist()
    ]
    assert [row["offset"] for row in errors] == [1]
    assert "after newer records" in errors[0]["error"]


@pytest.fixture(scope="module")
def captured() -> list[Row]:
    return [*captured_records(CAPTURES), *captured_requests(CAPTURES)]


@pytest.mark.parametrize("size", [pytest.param(1, marks=pytest.mark.slow), 7, 100_000])
def test_batches_of_any_size_give_the_same_tables(captured: list[Row], size: int) -> None:
    assert tables(captured, size) == tables(captured, 500)


@pytest.mark.parametrize("mode", ["log", "topic", "both"])
@pytest.mark.parametrize("seed", [1, 2])
def test_clocks_that_differ_a_little_change_no_fact(
    captured: list[Row], seed: int, mode: str
) -> None:
    """Each line of the log, or each record, up to a second off: generations tell the order."""
    rand = random.Random(seed)

    shift: dict[object, int] = {}

    def off(row: Row) -> Row:
        is_record = row["key"] is not None
        if mode != "both" and is_record is (mode == "log"):
            return row
        one = (row["group_id"], row["offset"]) if is_record else (row["position"],)
        by = shift.setdefault(one, rand.randrange(-SECOND, SECOND))
        return {**row, "at": row["at"] + by}

    def of(rows: list[Row]) -> dict[str, Any]:
        made = tables(rows)
        return {
            "rebalances": sorted(
                facts(r, "group_id", "generation", "failed", "assignor", "members", "joined",
                      "left", "partitions", "moved")
                for r in made["rebalances"] if not r["failed"]
            ),
            "lists": sorted(
                (r["group_id"], r["member_id"] or "", r["client_id"], r["assignors"], r["times"])
                for r in made["assignor_lists"]
            ),
            "members": sorted(
                (m["group_id"], m["member_id"], m["first_generation"], m["assignors"] or [],
                 m["software_name"] or "", str(m["assignment"]), m["current"])
                for m in made["members"]
            ),
        }  # fmt: skip

    got, wanted = of([off(row) for row in captured]), of(captured)
    for name, rows in wanted.items():
        assert [row for row in got[name] if row not in rows] == [], name
        assert [row for row in rows if row not in got[name]] == [], name


@pytest.mark.parametrize("seed", range(4))
def test_broken_input_is_told_and_never_stops_the_rest(captured: list[Row], seed: int) -> None:
    rand = random.Random(seed)
    values = [row["value"] for row in captured if row["value"]]

    def spoilt(row: Row) -> Row:
        row, chance = dict(row), rand.random()
        if row["key"] and row["value"] and chance < 0.15:
            value = bytearray(row["value"])
            value[rand.randrange(len(value))] ^= rand.randrange(1, 256)
            row["value"] = bytes(value)
        elif row["key"] and chance < 0.25:
            row["value"] = rand.choice([None, b"", *values])
        elif chance < 0.1:
            row["at"] += rand.randrange(-30 * SECOND, 30 * SECOND)
        elif not row["key"] and chance < 0.2:
            nothing = {"generation": None, "member_id": "", "total_ms": None, "members": ()}
            nothing |= dict.fromkeys(("assignments", "protocols"), ())
            name = rand.choice(list(nothing))
            row = asking(row, **{name: nothing[name]})
        return row

    made = tables([spoilt(row) for row in captured if rand.random() > 0.05])
    assert {row["group_id"] for row in made["groups"]} == {row["group_id"] for row in captured}
    assert made["errors"]
    for row in made["members"]:
        assert row["first_generation"] <= row["last_generation"]
