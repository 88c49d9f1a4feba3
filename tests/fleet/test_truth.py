"""The tables of captured stories against what was really done (REBAL_CAPTURES names another one).

Each fact is right, or unknown (null) where the source cannot show it; none is wrong. What else the
tables say is in tests/data/timelines: REBAL_SCREENS=renew writes it again.

What the log cleaner leaves of the offsets topic makes no failed rebalances of what it took away. In
the cleaned part of a partition each key has its newest record only; after it everything is there.
"""

import json
import os
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.fleet.conftest import CAPTURES, OFFSETS, TIMEOUTS, check_kept, lines_in, read_tables
from tests.fleet.synthetic import last_scan
from tests.fleet.timeline_input import Row, Tables, captured_records, captured_requests, tables
from tests.fleet.truth import Truth
from tests.fleet.truth_checks import CHECKS, Tally

GIVEN = os.environ.get("REBAL_CAPTURES")


FOLDERS = [Path(GIVEN)] if GIVEN else [CAPTURES, TIMEOUTS]


KEPT = Path(__file__).parents[1] / "data" / "timelines"


_REST_OF_ID = re.compile(r"(?<=-[0-9a-f]{4})[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f-]{22}")


def check(folder: Path, mode: str, found: Tables) -> None:
    truth, tally = Truth(folder), Tally(mode, folder)
    for one in CHECKS:
        one(truth, found, tally)
    tally.check()
    assert not found["errors"]


def told(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, list):
        return f"[{', '.join(map(told, value))}]"
    if isinstance(value, dict):
        return " ".join(map(told, value.values()))
    return str(value).removeprefix("2026-").removesuffix("+00:00")


def lines_of(found: Tables, names: Iterable[str]) -> Iterator[str]:
    """Yield a line for each row of these tables: its columns that are not null."""
    for name in names:
        for row in found[name]:
            said = (f"{column} {told(value)}" for column, value in row.items() if value is not None)
            yield _REST_OF_ID.sub("", f"{name}: {', '.join(said)}")


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
@pytest.mark.parametrize("mode", ["topic and log", "topic", "log"])
def test_tables_of_captured_histories_match_what_was_really_done(mode: str, folder: Path) -> None:
    records = captured_records(folder) if "topic" in mode else ()
    requests = captured_requests(folder) if "log" in mode else ()
    found = tables([*records, *requests])
    check(folder, mode, found)
    if GIVEN:
        return
    file = KEPT / f"{folder.name}_{mode.replace(' ', '_')}.txt"
    made = list(lines_of(found, found if mode == "topic and log" else ("rebalances", "incidents")))
    check_kept(file, "\n".join(made) + "\n")


@pytest.mark.live
def test_the_tables_written_by_spark_match_what_was_really_done(local_tables: Tables) -> None:
    check(CAPTURES, "topic and log, through Spark", local_tables)


def cleaned(records: Iterable[Row], until: float) -> list[Row]:
    """The records with those before the time `until` compacted, as the log cleaner does it."""
    newest = {(row["partition"], row["key"]): row["offset"] for row in records if row["at"] < until}
    return [
        row
        for row in records
        if row["at"] >= until or newest[row["partition"], row["key"]] == row["offset"]
    ]


def failures(rows: Iterable[Row]) -> set[tuple[str, int]]:
    made = tables(rows)
    found = {(r["group_id"], r["generation"]) for r in made["rebalances"] if r["failed"]}
    counted = {g["group_id"]: g["failed_rebalance_total"] for g in made["groups"]}
    assert sum(counted.values()) == len(found)
    return found


@pytest.mark.parametrize("log", [False, True])
def test_no_completed_generation_counts_as_failed_after_log_compaction(log: bool) -> None:
    records = captured_records(CAPTURES)
    requests = captured_requests(CAPTURES) if log else ()
    really = failures([*records, *requests])
    assert really
    completed = {
        (r["group_id"], r["generation"]) for r in tables(records)["rebalances"] if not r["failed"]
    }
    times = sorted(row["at"] for row in records)
    for part in range(1, 12, 3):
        kept = cleaned(records, times[len(times) * part // 12])
        assert len(kept) < len(records)
        found = failures([*kept, *requests])
        assert found <= really, part
        assert not found & completed


def test_a_fully_compacted_offsets_topic_shows_no_failed_rebalance() -> None:
    records = captured_records(CAPTURES)
    kept = cleaned(records, float("inf"))
    assert len(kept) < len(records) / 2
    made = tables(kept)
    assert not any(row["failed"] for row in made["rebalances"])
    wanted = ("group_id", "type", "state", "generation", "members", "deleted_at")
    assert {tuple(g[name] for name in wanted) for g in made["groups"]} == {
        tuple(g[name] for name in wanted) for g in tables(records)["groups"]
    }


def test_generations_compacted_away_between_two_scans_do_not_count_as_failed() -> None:
    """The first scan read everything up to a time; the next scan found the rest compacted."""
    records = captured_records(CAPTURES)
    really = failures(records)
    times = sorted(row["at"] for row in records)
    for part in range(1, 8, 3):
        first, second = times[len(times) * part // 12], times[len(times) * (part + 4) // 12]
        before = [row for row in records if row["at"] < first]
        after = cleaned([row for row in records if row["at"] >= first], second)
        ends = {row["partition"]: row["offset"] for row in before}
        broken = tables([*before, *after], breaks={p: (end,) for p, end in ends.items()})
        found = {(r["group_id"], r["generation"]) for r in broken["rebalances"] if r["failed"]}
        assert found <= really, part
        assert failures([*before, *after]) - really, "without the breaks they count as failed"


def write_lines(path: Path, lines: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


@pytest.mark.live
@pytest.mark.timeout(300)
def test_an_incremental_scan_marks_where_offsets_are_missing(
    scan: Callable[..., str], tmp_path: Path
) -> None:
    lines = sorted(map(json.loads, lines_in(OFFSETS)), key=lambda line: line["timestamp"])
    half, later = lines[: len(lines) // 4], lines[len(lines) // 4 :]
    newest = {(line["partition"], line["key"]): line["offset"] for line in later}
    kept = [line for line in later if newest[line["partition"], line["key"]] == line["offset"]]
    assert len(kept) < len(later)
    out = tmp_path / "out"
    scan("--offsets", write_lines(tmp_path / "1.jsonl", half), "--out", out)
    first = last_scan(out)
    assert first.breaks == {}
    scan("--offsets", write_lines(tmp_path / "2.jsonl", kept), "--out", out)
    second = last_scan(out)
    assert second.breaks
    assert all(ends == (first.offsets[p],) for p, ends in second.breaks.items())
    failed = [row for row in read_tables(out)["rebalances"] if row["failed"]]
    really = failures(captured_records(CAPTURES))
    assert {(row["group_id"], row["generation"]) for row in failed} <= really
