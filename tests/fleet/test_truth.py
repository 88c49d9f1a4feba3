"""The tables of a captured story against what was really done (REBAL_CAPTURES names another one).

Each fact is right, or unknown (null) where the source cannot show it; none is wrong. The counts are
printed: matched / expected, and how many of the rest are unknown.
"""

from __future__ import annotations

import gzip
import os
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rebal.groups.clients import family_of
from rebal.inspectors.fleet.timeline_causes import EXPIRED, LEFT, RESTARTED
from tests.fleet.conftest import CAPTURES, OFFSETS, REQUEST_LOG, read_tables
from tests.fleet.timeline_input import (
    Row,
    Tables,
    captured_records,
    captured_requests,
    micros,
    tables,
)
from tests.fleet.truth import NO_LEAVE, SILENT, Run, Truth, partitions, protocol

FOLDER = Path(os.environ.get("REBAL_CAPTURES") or CAPTURES)
SOON = 2_500
"""Milliseconds in which what was done must have reached the broker."""
MODES = ("topic and log", "topic", "log")
BY_LOG = (
    "ordered list of a run",
    "software of a run",
    "version of a run",
    "refused run",
    "refused joins",
    "refused_total",
    "rebalance protocol of a generation",
)
BY_TOPIC = ("stop", "crash", "group deleted", "partitions that a member printed")
BY_EITHER = (
    "generation and its member count",
    "rebalance that was not completed",
    "members of a generation run",
    "members are all there",
)
"""What a source can always show, and so must."""


class Tally:
    """Matched, expected and unknown by kind of fact; what is wrong is kept word for word."""

    def __init__(self, mode: str) -> None:
        self.mode = mode
        self.matched: Counter[str] = Counter()
        self.expected: Counter[str] = Counter()
        self.unknown: Counter[str] = Counter()
        self.wrong: list[str] = []

    def is_right(self, kind: str, what: object, found: object, wanted: object) -> None:
        """None found is unknown."""
        self.expected[kind] += 1
        if found is None:
            self.unknown[kind] += 1
        elif found == wanted:
            self.matched[kind] += 1
        else:
            self.wrong.append(f"{kind}: {what}: {found!r}, really {wanted!r}")

    def check(self) -> None:
        """Nothing is wrong, and what the source can show is not unknown either."""
        assert not self.wrong, "\n".join(self.wrong)
        kinds = [*BY_EITHER, *(BY_LOG if "log" in self.mode else ())]
        kinds += BY_TOPIC if "topic" in self.mode else ()
        assert {kind: self.unknown[kind] for kind in kinds if self.unknown[kind]} == {}
        assert self.expected["members of a generation run"]

    def lines(self) -> Iterator[str]:
        yield f"\n{FOLDER.name}, {self.mode}:"
        for kind in self.expected:
            unknown = f", {self.unknown[kind]} unknown" if self.unknown[kind] else ""
            yield f"  {kind:34} {self.matched[kind]} / {self.expected[kind]}{unknown}"


@pytest.fixture(scope="module")
def truth() -> Truth:
    return Truth(FOLDER)


@pytest.fixture(scope="module")
def made() -> Callable[[str], Tables]:
    records, requests = list(captured_records(FOLDER)), list(captured_requests(FOLDER))
    known: dict[str, Tables] = {}

    def of(mode: str) -> Tables:
        if mode not in known:
            rows = records if "topic" in mode else []
            known[mode] = tables([*rows, *(requests if "log" in mode else [])])
        return known[mode]

    return of


def ms(at: Any) -> int:
    return micros(at) // 1000


def of_run(rows: list[Row], run: Run, at: str = "first_at") -> list[Row]:
    """The rows of a run's member ids: those that were first seen after its start."""
    return [
        row
        for row in rows
        if row["group_id"] == run.group
        and run.is_client(row["client_id"])
        and run.start <= ms(row[at]) < run.next_start
    ]


def refusals(rows: list[Row], run: Run) -> list[Row]:
    """One row may speak of several runs."""
    return [
        row
        for row in rows
        if row["group_id"] == run.group
        and run.is_client(row["client_id"])
        and tuple(row["assignors"]) == run.assignors
        and ms(row["at"]) < run.next_start
        and ms(row["last_at"]) >= run.start
    ]


def members_at(found: Tables, row: Row) -> list[Row]:
    return [
        member
        for member in found["members"]
        if member["group_id"] == row["group_id"]
        and member["incarnation"] == row["incarnation"]
        and member["first_generation"] <= row["generation"] <= member["last_generation"]
    ]


def check_lists(truth: Truth, found: Tables, tally: Tally) -> None:
    for run in truth.runs():
        if not run.joined or run.speaks != "classic":
            continue
        joins = [row for row in found["assignor_lists"] if not row["refused"]]
        seen = {tuple(row["assignors"]) for row in of_run(joins, run, "at")}
        bound = {r["assignors"] and tuple(r["assignors"]) for r in of_run(found["members"], run)}
        known = (seen | bound) - {None}
        tally.is_right("ordered list of a run", run, known or None, {run.assignors})
        told = {
            (r["software_name"], r["software_version"]) for r in of_run(found["members"], run)
        } - {(None, None)}
        if run.family in SILENT:
            tally.is_right("software that does not say", run, told or None, None)
            continue
        families = {family_of(*one) for one in told}
        wanted = {"java" if run.family == "streams" else run.family}
        tally.is_right("software of a run", run, families or None, wanted)
        versions = {(version or "").split("-")[0].lstrip("v") for _, version in told}
        tally.is_right("version of a run", run, versions or None, {run.version})


def check_refusals(truth: Truth, found: Tables, tally: Tally) -> None:
    log = "log" in tally.mode
    lists = [row for row in found["assignor_lists"] if row["refused"]]
    explained = set()
    for run in truth.runs():
        rows = refusals(lists, run)
        if truth.refused(run):
            tally.is_right("refused run", run, bool(rows) or (None if not log else False), True)
            explained |= {id(row) for row in rows}
    for row in lists:
        tally.is_right("refusal that was one", row, id(row) in explained, True)
    total = sum(row["times"] for row in lists)
    with gzip.open(FOLDER / "kafka-request.log.gz", "rb") as lines:
        raw = sum(b'"JOIN_GROUP"' in one and b'"errorCode":23' in one for one in lines)
    tally.is_right("refused joins", "all", total if log else None, raw)
    counted = [row["refused_total"] for row in found["groups"]]
    tally.is_right("refused_total", "all", sum(counted) if log else None, raw)
    assert log or set(counted) == {None}


def check_generations(truth: Truth, found: Tables, tally: Tally) -> None:
    rows = {
        (row["group_id"], row["generation"]): row
        for row in found["rebalances"]
        if row["incarnation"] == 1
    }
    for key, count in truth.completed.items():
        row = rows.get(key)
        members = None if row is None or row["failed"] else row["members"]
        tally.is_right("generation and its member count", key, members, count)
    for key in truth.stabilized.keys() - truth.completed.keys():
        row = rows.get(key)
        tally.is_right("rebalance that was not completed", key, row and row["failed"], True)
    for row in found["rebalances"]:
        if row["failed"] or not row["members"]:
            continue
        at = ms(row["ended_at"])
        there = []
        for member in members_at(found, row):
            session = member["session_timeout_ms"] or 0
            there.append(
                next(
                    (
                        run
                        for run in reversed(truth.groups[row["group_id"]])
                        if run.is_client(member["client_id"]) and run.alive(at, session + SOON)
                    ),
                    None,
                )
            )
        name = (row["group_id"], row["generation"])
        tally.is_right("members of a generation run", name, None not in there, True)
        distinct = {(r.client, r.instance) for r in there if r}
        tally.is_right("members are all there", name, len(distinct), row["members"])
        elected = row["assignor"]
        classic = [run for run in there if run and run.speaks == "classic"]
        if elected and classic:
            common = all(elected in run.assignors for run in classic)
            tally.is_right("elected assignor is in every list", name, common, True)
        wanted = {protocol(run, elected) for run in there if run}
        streams = any(run.family == "streams" for run in there if run)
        tally.is_right(
            "rebalance protocol (Streams)" if streams else "rebalance protocol of a generation",
            (name, elected, [run and run.assignors for run in there]),
            row["protocol"],
            wanted.pop() if len(wanted) == 1 else "mixed",
        )


def check_ends(truth: Truth, found: Tables, tally: Tally) -> None:
    log = "log" in tally.mode
    for run in truth.runs():
        if not run.joined or run.end is None or run.how == "died":
            continue
        rows = of_run(found["members"], run)
        kind = "stop" if run.how == "stop" else "crash"
        if not rows:
            tally.is_right(kind, run, None, True)
            continue
        last = max(rows, key=lambda row: (row["last_generation"], row["first_at"]))
        left = last["left_at"]
        session = last["session_timeout_ms"] or 0
        rebalance = last["rebalance_timeout_ms"] or 0
        late = (run.gone or run.end) + session + rebalance + SOON
        if run.instance and run.next_start < truth.end:
            late = max(late, run.next_start + 10 * SOON)  # an old id goes when its next one comes
        timely = left and run.end - 50 <= ms(left) <= late
        tally.is_right(kind, (run, last), None if left is None else bool(timely), True)
        if left is None:
            continue
        silent = run.instance is not None or run.family in NO_LEAVE or kind == "crash"
        reason = last["left_reason"]
        if not silent:
            told = None if reason is None else reason not in (EXPIRED, RESTARTED)
        else:
            told = None if reason is None else reason in (EXPIRED, RESTARTED)
            assert log or reason in (None, RESTARTED)
        tally.is_right(f"why: {kind}", (run, reason), told, True)
        assert log or reason not in (LEFT, EXPIRED)
    for name, at in truth.deleted.items():
        row = next((row for row in found["groups"] if row["group_id"] == name), None)
        deleted = row and row["deleted_at"]
        near = None if deleted is None else abs(ms(deleted) - at) < SOON
        tally.is_right("group deleted", name, near, True)


def check_partitions(truth: Truth, found: Tables, tally: Tally) -> None:
    """What clients printed when they were assigned partitions, and when they had to stop some."""
    for run in truth.runs():
        rows = of_run(found["members"], run)
        for event in run.seen:
            printed = partitions(event["detail"]) if event["event"] == "ASSIGNED" else frozenset()
            if not printed:
                continue
            around = [
                row
                for row in rows
                if ms(row["first_at"]) <= event["t_ms"] + SOON
                and (row["left_at"] is None or ms(row["left_at"]) >= event["t_ms"] - SOON)
            ]
            owned = [_owned(row) for row in around if row["assignment"] is not None]
            held = any(printed <= one for one in owned) if owned else None
            tally.is_right("partitions that a member printed", (run, event), held, True)
    for name, runs in truth.groups.items():
        rows = [r for r in found["rebalances"] if r["group_id"] == name]
        if not rows:
            continue
        if any(run.family in ("kafkajs", "streams") for run in runs):
            continue  # they do not print what they stop
        stops = [row["stopped"] for row in rows if row["members"] != 0]
        printed = sum(
            len(partitions(event["detail"]))
            for run in runs
            for event in run.seen
            if event["event"] == "REVOKED" and not _closing(run, event["t_ms"])
        )
        # nobody tells what a rebalance that was not completed had stopped
        known = None if None in stops[1:] else sum(filter(None, stops))
        tally.is_right("partitions stopped in a group", name, known, printed)


def _owned(row: Row) -> frozenset[tuple[str, int]]:
    return frozenset((one["topic"], n) for one in row["assignment"] for n in one["partitions"])


def _closing(run: Run, at: int) -> bool:
    return run.end is not None and at >= run.end


CHECKS = (check_lists, check_refusals, check_generations, check_ends, check_partitions)


@pytest.mark.parametrize("mode", MODES)
def test_tables_tell_what_was_done(
    mode: str,
    truth: Truth,
    made: Callable[[str], Tables],
    capsys: pytest.CaptureFixture[str],
) -> None:
    found, tally = made(mode), Tally(mode)
    for check in CHECKS:
        check(truth, found, tally)
    with capsys.disabled():
        print("\n".join(tally.lines()))
    tally.check()
    assert not found["errors"]


@pytest.mark.live
def test_so_do_the_tables_that_spark_makes(
    truth: Truth, request: pytest.FixtureRequest, capsys: pytest.CaptureFixture[str]
) -> None:
    if FOLDER == CAPTURES:
        found = request.getfixturevalue("local_tables")
    else:
        out = request.getfixturevalue("tmp_path") / "out"
        words = ["--offsets", FOLDER / OFFSETS.name, "--request-log", FOLDER / REQUEST_LOG.name]
        request.getfixturevalue("scan")(*words, "--out", out)
        found = read_tables(out)
    tally = Tally("topic and log, through Spark")
    for check in CHECKS:
        check(truth, found, tally)
    with capsys.disabled():
        print("\n".join(tally.lines()))
    tally.check()
    assert not found["errors"]
