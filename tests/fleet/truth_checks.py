"""What a capture's truth says, fact by fact, held against the tables made of it."""

import gzip
import itertools
import json
import re
from pathlib import Path
from typing import Any

from rebal.groups.clients import family_of
from rebal.inspectors.clock import micros
from rebal.inspectors.fleet.timeline.rebalances import FENCED, RESTARTED
from tests.fleet.timeline_input import Row, Tables
from tests.fleet.truth import NO_LEAVE, Number, Run, Truth, partitions, protocol
from tests.software import JAVA

SOON = 2_500
"""Milliseconds in which what was done must have reached the broker."""
SLACK = 50
"""Milliseconds by which a client's clock, or what it prints, may be late or early."""
REPLACED = (RESTARTED, FENCED)
"""Why a static member's id went when another process took its instance id."""
TOPIC_ID = re.compile(r"[\w-]{22}")
BROKERS_SESSION = 45_000
"""Milliseconds without a heartbeat that a KIP-848 member is allowed at most, by Kafka's default."""
BY_LOG = (
    "ordered list of a run", "software of a run", "version of a run", "refused run",
    "refused joins", "refused_total", "rebalance protocol of a generation",
)  # fmt: skip
BY_TOPIC = (
    "stop", "crash", "group deleted", "partitions that a member printed",
    "state of a described group", "members of a described group", "assignor of a described group",
)  # fmt: skip
BY_EITHER = (
    "generation and its member count", "rebalance that was not completed",
    "members of a generation run", "members are all there",
)  # fmt: skip
"""What a source can always show, and so must."""


class Tally:
    """Kinds of facts, what is unknown of each, and what is wrong, word for word."""

    def __init__(self, mode: str, folder: Path) -> None:
        self.has_log, self.has_topic = "log" in mode, "topic" in mode
        self.folder = folder
        self.expected: set[str] = set()
        self.unknown: dict[str, list[object]] = {}
        self.wrong: list[str] = []

    def is_right(self, kind: str, what: object, found: object, wanted: object) -> None:
        """None found is unknown."""
        self.expected.add(kind)
        if found is None:
            self.unknown.setdefault(kind, []).append(what)
        elif found != wanted:
            self.wrong.append(f"{kind}: {what}: {found!r}, really {wanted!r}")

    def check(self) -> None:
        """Nothing is wrong, and what the source can show is not unknown either."""
        assert not self.wrong, "\n".join(self.wrong)
        kinds = [*BY_EITHER, *(BY_LOG if self.has_log else ())]
        kinds += BY_TOPIC if self.has_topic else ()
        missing = {kind: self.unknown[kind] for kind in kinds if kind in self.unknown}
        assert not missing, missing
        assert "members of a generation run" in self.expected


def ms(at: Any) -> int:
    """A time in milliseconds; one that is null is before all others."""
    return 0 if at is None else micros(at) // 1000


def of_run(rows: list[Row], run: Run, at: str = "joined_at") -> list[Row]:
    """The rows of a run's member ids: those that were first seen after its start.

    Records keep the client id of a static member whose place another process took.
    """
    return [
        row
        for row in rows
        if row["group_id"] == run.group
        and (run.is_client(row["client_id"]) or run.is_instance(row["instance_id"]))
        and run.start <= ms(row[at] or row["first_at"]) < run.next_start
    ]


def refusals(rows: list[Row], run: Run) -> list[Row]:
    """One row may speak of several runs."""
    return [
        row
        for row in rows
        if row["group_id"] == run.group
        and run.is_client(row["client_id"])
        and _names(row) == run.assignors
        and ms(row["at"]) < run.next_start
        and ms(row["last_at"]) >= run.start
    ]


def _names(row: Row) -> tuple[str, ...] | None:
    """The row's ordered list."""
    return None if row["assignors"] is None else tuple(row["assignors"])


def members_at(found: Tables, row: Row) -> list[Row]:
    """Who is in the generation when it is complete; a static member may just have been replaced."""
    return [
        member
        for member in found["members"]
        if member["group_id"] == row["group_id"]
        and member["incarnation"] == row["incarnation"]
        and (member["first_generation"] or 0) <= row["generation"]
        and row["generation"] <= (member["last_generation"] or 0)
        and ms(member["first_at"]) <= ms(row["ended_at"])
        and not (member["left_reason"] in REPLACED and ms(member["left_at"]) <= ms(row["ended_at"]))
    ]


def run_of(member: Row, runs: list[Run], at: int) -> Run | None:
    """The process that a member was at that time; of several with its client id, the likeliest."""
    modern = BROKERS_SESSION if member["protocol_type"] == "consumer" else 0
    latest = (member["session_timeout_ms"] or modern) + SOON
    alive = [run for run in runs if run.alive(at, latest)]
    could = [run for run in alive if run.is_client(member["client_id"])]
    joined = ms(member["joined_at"] or member["first_at"])
    began = [run for run in could if run.start <= joined < run.next_start]
    same = [run for run in alive if run.is_instance(member["instance_id"])]
    return (began or could or same or [None])[-1]


def check_lists(truth: Truth, found: Tables, tally: Tally) -> None:
    for run in truth.runs():
        if not run.joined or run.speaks != "classic":
            continue
        joins = [row for row in found["assignor_lists"] if not row["refused"]]
        seen = {_names(row) for row in of_run(joins, run, "at")}
        bound = {_names(row) for row in of_run(found["members"], run)}
        known = (seen | bound) - {None}
        tally.is_right("ordered list of a run", run, known or None, {run.assignors})
        rows = [*of_run(found["members"], run), *of_run(joins, run, "at")]
        told = {(r["software_name"], r["software_version"]) for r in rows} - {(None, None)}
        if not run.says_software:
            tally.is_right("software that does not say", run, told or None, None)
            continue
        families = {family_of(*one) for one in told}
        wanted = {"java" if run.family in JAVA else run.family}
        tally.is_right("software of a run", run, families or None, wanted)
        versions = {(version or "").split("-")[0].lstrip("v") for _, version in told}
        tally.is_right("version of a run", run, versions or None, {run.version})


def check_refusals(truth: Truth, found: Tables, tally: Tally) -> None:
    lists = [row for row in found["assignor_lists"] if row["refused"]]
    explained = set()
    for run in truth.runs():
        rows = refusals(lists, run)
        if truth.refused(run):
            tally.is_right(
                "refused run", run, bool(rows) or (None if not tally.has_log else False), True
            )
            explained |= {id(row) for row in rows}
    for row in lists:
        tally.is_right("refusal that was one", row, id(row) in explained, True)
    total = sum(row["times"] or 0 for row in lists)
    with gzip.open(tally.folder / "kafka-request.log.gz", "rb") as lines:
        raw = sum(b'"JOIN_GROUP"' in one and b'"errorCode":23' in one for one in lines)
    tally.is_right("refused joins", "all", total if tally.has_log else None, raw)
    counted = {row["group_id"]: row["refused_total"] for row in found["groups"]}
    known = sum(filter(None, counted.values()))
    tally.is_right("refused_total", "all", known if tally.has_log else None, raw)
    for name in sorted(name for name, count in counted.items() if count is None):
        tally.is_right("refused_total of a group without a log line", name, None, 0)
    tally.is_right("refusals told without a log", "all", known if not tally.has_log else 0, 0)


def check_generations(truth: Truth, found: Tables, tally: Tally) -> None:
    rows = {
        (row["group_id"], row["incarnation"], row["generation"]): row for row in found["rebalances"]
    }
    for key, count in truth.completed.items():
        row = rows.get(key)
        if row is not None and row["failed"] and not tally.has_topic:
            # its leader was told that the next rebalance had begun, and nobody else asked
            missed = _reached_nobody(truth, row, rows)
            tally.is_right("generation that reached nobody", key, missed, True)
            continue
        members = None if row is None or row["failed"] else row["members"]
        tally.is_right("generation and its member count", key, members, count)
    for key in truth.stabilized.keys() - truth.completed.keys():
        row = rows.get(key)
        tally.is_right("rebalance that was not completed", key, row and row["failed"], True)
    for row in found["rebalances"]:
        if row["failed"] or not row["members"]:
            continue
        at = ms(row["ended_at"])
        runs = truth.groups[row["group_id"]]
        there = [run_of(member, runs, at) for member in members_at(found, row)]
        name = (row["group_id"], row["generation"])
        tally.is_right("members of a generation run", name, None not in there, True)
        distinct = {id(run) for run in there if run}
        tally.is_right("members are all there", name, len(distinct), row["members"])
        elected = row["assignor"]
        classic = [run for run in there if run and run.speaks == "classic"]
        if elected and classic:
            common = all(elected in run.assignors for run in classic)
            tally.is_right("elected assignor is in every list", name, common, True)
        wanted = {protocol(run, elected) for run in there if run}
        if None in wanted:
            continue
        streams = any(run.family == "streams" for run in there if run)
        tally.is_right(
            "rebalance protocol (Streams)" if streams else "rebalance protocol of a generation",
            (name, elected, [run and run.assignors for run in there]),
            row["protocol"],
            wanted.pop() if len(wanted) == 1 else "mixed",
        )


def _reached_nobody(truth: Truth, row: Row, rows: dict[Number, Row]) -> bool:
    """Did no member print an assignment from this generation to the next completed one."""
    name, incarnation = row["group_id"], row["incarnation"]
    later = [
        ms(one["ended_at"])
        for (group, era, number), one in rows.items()
        if (group, era) == (name, incarnation) and number > row["generation"] and not one["failed"]
    ]
    first, last = ms(row["started_at"]), min(later, default=truth.end)
    events = [event for run in truth.groups[name] for event in run.seen]
    return not any(e["event"] == "ASSIGNED" and first <= e["t_ms"] < last for e in events)


def check_ends(truth: Truth, found: Tables, tally: Tally) -> None:
    for run in truth.runs():
        if not run.joined or run.end is None or run.how == "died":
            continue
        rows = of_run(found["members"], run)
        kind = "stop" if run.how == "stop" else "crash"
        if not rows:
            got = [partitions(e["detail"]) for e in run.seen if e["event"] == "ASSIGNED"]
            # a KIP-848 member that was gone again before its first epoch was settled has no row
            if run.speaks == "classic" or any(got):
                tally.is_right(kind, run, None, True)
            continue
        last = max(rows, key=lambda row: (row["last_generation"] or 0, ms(row["first_at"])))
        left = last["left_at"]
        session = last["session_timeout_ms"] or 0
        rebalance = last["rebalance_timeout_ms"] or 0
        late = (run.gone or run.end) + session + rebalance + SOON
        if run.instance and run.next_start < truth.end:
            late = max(late, run.next_start + 10 * SOON)  # an old id goes when its next one comes
        timely = left and run.end - SLACK <= ms(left) <= late
        tally.is_right(kind, (run, last), None if left is None else bool(timely), True)
        if left is None:
            continue
        silent = run.instance is not None or run.family in NO_LEAVE or kind == "crash"
        reason = last["left_reason"]
        told = None if reason is None else (reason in ("session expired", *REPLACED)) is silent
        if not tally.has_log and reason in ("member left", "session expired", FENCED):
            told = False  # only a log shows it
        tally.is_right(f"why: {kind}", (run, reason), told, True)
    for name, at in truth.deleted:
        told = [row["deleted_at"] for row in found["groups"] if row["group_id"] == name]
        told += [
            row["started_at"]
            for row in found["incidents"]
            if row["group_id"] == name and row["kind"] == "deleted"
        ]
        near = [abs(ms(deleted) - at) < SOON for deleted in told if deleted is not None]
        tally.is_right("group deleted", name, any(near) if near else None, True)


def check_partitions(truth: Truth, found: Tables, tally: Tally) -> None:
    """What clients printed when they were assigned partitions, and when they had to stop some."""
    begun = {
        (row["group_id"], row["incarnation"], row["generation"]): row["started_at"]
        for row in found["rebalances"]
    }

    def since(row: Row) -> int:
        """KIP-848 members get their partitions before all others have got theirs."""
        began = begun.get((row["group_id"], row["incarnation"], row["first_generation"]))
        return ms(began or row["first_at"])

    for run in truth.runs():
        rows = of_run(found["members"], run)
        for event in run.seen:
            printed = partitions(event["detail"]) if event["event"] == "ASSIGNED" else frozenset()
            if not printed:
                continue
            around = [
                row
                for row in rows
                if since(row) <= event["t_ms"] + SOON
                and (row["left_at"] is None or ms(row["left_at"]) >= event["t_ms"] - SOON)
            ]
            owned = [_owned(row) for row in around if row["assignment"] is not None]
            held = any(printed <= one for one in owned) if owned else None
            kind = "partitions that a member printed"
            if not held and _is_unseen(found, run, event["t_ms"]):
                held = None
            if not held and any(map(_has_ids, owned)):
                # no source tells these topics' names
                kind, held = "partitions of topics without names", None
            tally.is_right(kind, (run, event), held, True)
    for name, runs in truth.groups.items():
        rows = [r for r in found["rebalances"] if r["group_id"] == name]
        if not rows:
            continue
        if any(run.family in ("kafkajs", "streams", "connect") for run in runs):
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
        never = _never_taken_up(found, rows, runs)
        right = None if known is None else printed <= known <= printed + never
        what = (name, known, printed, never)
        tally.is_right("partitions stopped in a group", what, right, True)


def _never_taken_up(found: Tables, rows: list[Row], runs: list[Run]) -> int:
    """Partitions that a generation gave to members which rejoined before they had heard of it."""
    count = 0
    for row, after in itertools.pairwise(rows):
        if row["failed"] or after["failed"] or row["protocol"] == "COOPERATIVE":
            continue
        first, last = ms(row["ended_at"]) - SLACK, ms(after["ended_at"])
        for member in members_at(found, row):
            run = run_of(member, runs, last)
            heard = run is not None and any(
                event["event"] == "ASSIGNED" and first <= event["t_ms"] <= last
                for event in run.seen
            )
            if run is not None and not heard:
                count += len(_owned(member))
    return count


def _is_unseen(found: Tables, run: Run, at: int) -> bool:
    """Did the source show of a rebalance of the group about that time only that there was one."""
    return any(
        row["members"] is None and not row["failed"] and abs(ms(row["ended_at"]) - at) < SOON
        for row in found["rebalances"]
        if row["group_id"] == run.group
    )


def _has_ids(owned: frozenset[tuple[str, int]]) -> bool:
    """Do some topics stand by their ids."""
    return any(TOPIC_ID.fullmatch(topic) for topic, _ in owned)


def _owned(row: Row) -> frozenset[tuple[str, int]]:
    given = row["assignment"] or ()
    return frozenset((one["topic"], n) for one in given for n in one["partitions"])


def _closing(run: Run, at: int) -> bool:
    """Was it the process's last: it did not stay, and so its partitions were not stopped by others.

    A process that dies is seen to be dead a little later, and one that is told to stop in the
    middle of a rebalance may go through with it first, or not at all.
    """
    if run.end is None or at < run.end - SOON:
        return False
    return not any(event["event"] == "ASSIGNED" and event["t_ms"] > at for event in run.seen)


def check_described(_: Truth, found: Tables, tally: Tally) -> None:
    """What an admin client was told of each group just before the capture was taken."""
    told = json.loads((tally.folder / "describe.json").read_text(encoding="utf-8"))
    for one in told["groups"]:
        name = one["group"]
        group = next((row for row in found["groups"] if row["group_id"] == name), None)
        if group is None or not (one["members"] or group["members"]):
            continue  # nothing but commits, which are another table's
        now = [row for row in found["members"] if row["group_id"] == name and row["current"]]
        ids = None if group["members"] is None else {row["member_id"] for row in now}
        described = {member["member_id"]: member for member in one["members"]}
        tally.is_right("type of a described group", name, group["type"], one["type"].lower())
        tally.is_right("state of a described group", name, group["state"], one["state"].title())
        tally.is_right("members of a described group", name, ids, set(described))
        if one["partition_assignor"] and one["type"] == "CLASSIC":
            elected = one["partition_assignor"]
            tally.is_right("assignor of a described group", name, group["assignor"], elected)
        for row in now:
            owned = None if row["assignment"] is None else _owned(row)
            if owned is None or _has_ids(owned) or row["member_id"] not in described:
                continue
            listed = partitions(str(described[row["member_id"]]["partitions"]))
            tally.is_right("partitions of a described member", row, owned, listed)


CHECKS = (
    check_lists,
    check_refusals,
    check_generations,
    check_ends,
    check_partitions,
    check_described,
)
