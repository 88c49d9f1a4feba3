"""A group with a member down or rejected is held: it never stands among those to take first."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from rebal.cli.fleet import FleetGroup, FleetReport, make_fleet_report
from tests.fleet.synthetic import Row, fleet, group_named
from tests.fleet.tablefiles import AT, write_tables

Rows = dict[str, list[Row]]
NAME = "orders-eager-0000"


def of(report: FleetReport, name: str = NAME) -> FleetGroup:
    """The group in a report."""
    (found,) = (group for group in report.groups if group.group_id == name)
    return found


def reported(folder: Path, rows: Rows, name: str = NAME) -> FleetGroup:
    """The group in the report of a lake of these rows."""
    return of(make_fleet_report(str(write_tables(folder, rows))), name)


def member_out(rows: Rows, reason: str | None, *, fewer: int = 1) -> Row:
    """The last member of the first group left before the last rebalance; its row."""
    group = rows["groups"][0]
    mine = [row for row in rows["members"] if row["group_id"] == NAME]
    lost = mine[-1]
    lost |= {
        "current": False,
        "left_at": AT - timedelta(minutes=30),
        "left_reason": reason,
        "last_generation": group["generation"] - 1,
    }
    group["members"] -= fewer
    (newest,) = (
        row
        for row in rows["rebalances"]
        if (row["group_id"], row["generation"]) == (NAME, group["generation"])
    )
    newest["members"] -= fewer
    return lost


def back(rows: Rows, lost: Row, **changes: object) -> None:
    """A new process in the place of the one that left."""
    generation = rows["groups"][0]["generation"]
    rows["members"].append(
        lost
        | {
            "member_id": "new-0001",
            "current": True,
            "left_at": None,
            "left_reason": None,
            "first_generation": generation,
            "last_generation": generation,
            "first_at": AT - timedelta(minutes=20),
            **changes,
        }
    )


@pytest.mark.parametrize(
    ("reason", "held"),
    [
        ("session expired", True),
        ("did not rejoin in time", True),
        ("poll timeout expired", True),
        ("consumer poll timeout has expired.", True),
        ("member left", False),
        ("the consumer is being closed", False),
        (None, False),
    ],
)
def test_a_member_that_timed_out_holds_its_group_and_one_that_left_does_not(
    tmp_path: Path, reason: str | None, held: bool
) -> None:
    rows = fleet(4)
    lost = member_out(rows, reason)
    report = make_fleet_report(str(write_tables(tmp_path, rows)))
    said = (f"{lost['client_id']} timed out and has not rejoined",)
    assert of(report).held == (said if held else ())
    assert (NAME in {group.group_id for group in report.to_take}) is not held
    assert of(report).verdict == "ready", "the plan's verdict is the same everywhere"


def test_a_rejected_client_that_would_be_admitted_now_is_still_out(tmp_path: Path) -> None:
    """RB904 is silent where its list is common again, and the client is down all the same."""
    rows = fleet(4)
    half = group_named("half-way")
    rows["assignor_lists"] = [
        row | {"assignors": ["range"]} if row["refused"] and row["group_id"] == half else row
        for row in rows["assignor_lists"]
    ]
    (held,) = reported(tmp_path, rows, half).held
    assert held.endswith("was rejected and has not rejoined")


@pytest.mark.parametrize(
    ("instance", "changes"),
    [
        (None, {}),
        ("orders-7", {"client_id": "another"}),
        (None, {"client_id": "orders-pod-x7"}),  # a pod's name; the group has as many as before
    ],
)
def test_a_member_that_was_replaced_is_not_down(
    tmp_path: Path, instance: str | None, changes: dict[str, str]
) -> None:
    rows = fleet(4)
    lost = member_out(rows, "session expired", fewer=0)
    lost["instance_id"] = instance
    back(rows, lost, **changes)
    assert reported(tmp_path, rows).held == ()


def test_one_new_process_replaces_one_member_of_its_client_id(tmp_path: Path) -> None:
    """All processes have one client id; two timed out, one came back."""
    rows = fleet(4)
    mine = [row for row in rows["members"] if row["group_id"] == NAME]
    assert len(mine) > 2
    for row in mine:
        row["client_id"] = "app"
    lost = member_out(rows, "session expired", fewer=1)
    mine[0] |= {key: lost[key] for key in ("current", "left_at", "left_reason", "last_generation")}
    back(rows, lost)
    assert reported(tmp_path, rows).held == ("app timed out and has not rejoined",)
