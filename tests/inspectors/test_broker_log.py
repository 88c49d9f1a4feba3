"""The broker's own log: lines of the Scala coordinator (3.9.1) and of the Java one (4.4.0)."""

import gzip
import io
import json
import re
from datetime import UTC, datetime
from pathlib import Path

import pytest

from rebal.groups.evidence.observations import Converted, Joined, Left, Loaded, Rebalanced
from rebal.inspectors.logs.broker import read_broker_log
from rebal.inspectors.logs.lines import LogReading
from tests.inspectors.logs import DATA, of_kind
from tests.tables import table

LOGS = DATA / "broker_logs"
VERSIONS = ("3.9.1", "4.4.0")


def read(*lines: str) -> LogReading:
    return read_broker_log([io.BytesIO("\n".join(lines).encode())])


def printed(text: str) -> str:
    return f"[2026-11-24 17:14:05,000] INFO {text} (kafka.coordinator.group.GroupCoordinator)"


@pytest.mark.parametrize("version", VERSIONS)
def test_each_member_s_life_is_read(version: str) -> None:
    reading = read_broker_log([LOGS / f"{version}.log"])
    joins = of_kind(reading, Joined)
    ids = {o.client_id: o.member_id for o in joins if o.new}
    assert [*ids] == ["orders-1", "orders-2", "orders-4", "orders-6", "orders-7", "orders-9"]
    assert not any(o.list for o in joins)
    left = {
        re.sub(r"-\w{8}(-\w{4}){3}-\w{12}$", "", o.member_id): (o.reason, o.expired)
        for o in of_kind(reading, Left)
    }
    closed, killed = ("the consumer is being closed", False), ("session expired", True)
    expected = dict.fromkeys(("orders-1", "orders-2", "orders-9"), closed)
    expected |= {"orders-4": killed, "three": killed}
    expected |= {"orders-6": (None, False), "orders-7": (None, False)}
    assert {name: left[name] for name in expected} == expected
    assert {o.instance_id for o in joins} == {None, "three"}
    assert (reading.logs[0].broker_id, reading.logs[0].local) == (1, True)


@pytest.mark.parametrize("version", VERSIONS)
def test_the_load_stands_between_the_generations_before_and_after_it(version: str) -> None:
    reading = read_broker_log([LOGS / f"{version}.log"])
    (load,) = of_kind(reading, Loaded)
    generations = [(o.generation_id, o.line > load.line) for o in of_kind(reading, Rebalanced)]
    assert generations[:9] == [(number, number > 7) for number in range(1, 10)]
    assert all(o.at is not None and o.group_id == "orders" for o in reading.observations)


def test_conversions_are_read() -> None:
    reading = read_broker_log([LOGS / "4.4.0.log"])
    assert [o.what for o in of_kind(reading, Converted)] == [
        "Converted the classic group to a consumer group",
        "Converted the consumer group to a classic group",
    ]
    reading = read(
        printed(
            "[GroupCoordinator id=1 topic=__consumer_offsets partition=3] Cannot upgrade classic "
            "group orders to consumer group because online upgrade is disabled."
        )
    )
    (failed,) = of_kind(reading, Converted)
    assert failed.group_id == "orders"
    assert failed.what.endswith("because online upgrade is disabled")


def test_lines_of_older_brokers_are_read() -> None:
    reading = read(*map(printed, table("broker_log", "older")))
    join, generation, left = reading.observations
    assert [type(one) for one in reading.observations] == [Joined, Rebalanced, Left]
    assert generation.generation_id == 1
    assert {o.group_id for o in (join, generation, left)} == {"a b"}
    # kafka-go puts its own name behind the program's.
    assert (join.member_id, left.member_id) == ("c (x)-uuid", "c (x)-uuid")
    assert (join.instance_id, left.instance_id, join.reason) == ("one", "one", None)


# What stands behind a line, or around one that is not unwrapped.
LAYOUTS = {
    "strimzi": lambda text: f"{text} [data-plane-kafka-request-handler-3]",
    "line numbers": lambda text: f"{text[:-1]}:66) [main]",
    "json in docker": lambda text: json.dumps(
        {"log": json.dumps({"message": text.partition(" INFO ")[2], "thread": "x"}), "time": STAMP}
    ),
    "fluentd": lambda text: f"{STAMP}\tkube.log\t{json.dumps({'log': text, 'pod': 'kafka-1'})}",
    "csv": lambda text: f'"{STAMP}","{text}","info"',
}
STAMP = "2026-11-24T17:14:05Z"


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("version", VERSIONS)
def test_what_a_layout_puts_behind_a_line_hides_nothing(version: str, layout: str) -> None:
    lines = (LOGS / f"{version}.log").read_text().splitlines()
    shown, expected = (
        [(type(one), one.line, getattr(one, "reason", None)) for one in reading.observations]
        for reading in (read(*map(LAYOUTS[layout], lines)), read(*lines))
    )
    assert shown == expected


@pytest.mark.parametrize(("text", "kind", "instance_id"), table("broker_log", "wordings"))
def test_the_wording_of_a_release(text: str, kind: str | None, instance_id: str | None) -> None:
    found = read(printed(f"[GroupCoordinator 0]: {text}")).observations
    assert [type(one).__name__ for one in found] == [kind] * bool(kind)
    assert all((o.group_id, o.member_id, o.instance_id) == ("g", "m", instance_id) for o in found)


def test_other_lines_show_how_far_the_log_goes() -> None:
    last = "[2026-11-24 18:00:00,000] INFO [SnapshotEmitter id=1] Done (org.apache.kafka.x)"
    reading = read(printed("[GroupCoordinator 1]: Stabilized group g generation 7"), last)
    assert reading.logs[0].last_at == datetime(2026, 11, 24, 18, tzinfo=UTC)
    assert reading.notes == ()
    (note,) = read(last, last).notes
    assert note.startswith("--broker-log: none of the 2 lines is the group coordinator's")


@pytest.mark.parametrize(
    ("name", "same"),
    [
        ("server.log.2026-11-24-17", True),
        ("server.log.1.gz", True),
        # Another cluster has a broker of this id, too.
        ("staging-server.log", False),
    ],
)
def test_parts_of_a_rotated_log_are_one_broker_s(tmp_path: Path, name: str, same: bool) -> None:
    for each in ("server.log", name):
        raw = printed("[GroupCoordinator 1]: Startup complete.").encode()
        tmp_path.joinpath(each).write_bytes(gzip.compress(raw) if each.endswith("gz") else raw)
    reading = read_broker_log([tmp_path / "server.log", tmp_path / name])
    assert (len({log.origin for log in reading.logs}) == 1) is same
