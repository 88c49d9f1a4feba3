"""What collectors and stores make of Java logs; each wraps two pods with one client id."""

from __future__ import annotations

import csv
import io
import itertools
import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest

from rebal.groups.evidence.observations import Joined
from rebal.inspectors.logs.broker import read_broker_log
from tests.inspectors.logs import DATA, STAMP, Pod, lists, of_kind, read_clients

REAL = (DATA / "client_logs/java-4.1.1-joined.log").read_text()
OURS = "[class org.apache.kafka.clients.consumer.CooperativeStickyAssignor]"
Wrap = Callable[[int, int, str], str]
_START = datetime(2026, 11, 24, 17, 10, 41, 893000, tzinfo=UTC)
_ODD = "0123456789abcdef"


def pods() -> tuple[dict[str, tuple[str, ...]], list[list[str]]]:
    """Return the truth, member id → list, and the lines of two pods of one client id."""
    member_id = REAL.partition("memberId='")[2].partition("'")[0]
    other = member_id[:-4] + "beef"
    strategy = next(line for line in REAL.splitlines() if "partition.assignment.strategy" in line)
    second = REAL.replace(member_id, other).replace(strategy.partition("= ")[2], OURS)
    truth = {member_id: ("range", "cooperative-sticky"), other: ("cooperative-sticky",)}
    return truth, [REAL.splitlines(), second.splitlines()]


def time(number: int) -> datetime:
    return _START + timedelta(milliseconds=number)


def as_json(pod: int, number: int, **fields: object) -> str:
    return json.dumps({"n": f"{number:032x}", **fields, "host": {"name": f"node-{pod}"}})


def k8s(pod: int) -> dict[str, object]:
    return {"kubernetes": {"pod": {"name": f"app-{pod}"}, "container": {"name": "app"}}}


LINE_BY_LINE: dict[str, Wrap] = {
    "stern with times": lambda p, n, s: f"app-6c9d-{p} app {time(n):%Y-%m-%dT%H:%M:%S.%f}999Z {s}",
    "kubectl --prefix --timestamps": lambda p, n, s: f"[pod/app-{p}/x] {time(n).isoformat()} {s}",
    "one name begins with another": lambda p, n, s: f"app{'-1' * p} | {s}",
    "compose with colours": lambda p, n, s: f"\x1b[3{p + 2}mapp-{p}  |\x1b[0m {s}",
    "compose pasted without escapes": lambda p, n, s: f"[3{p + 2}mapp-{p}  |[0m {s}",
    "aws logs, text": lambda p, n, s: f"EVENTS\t{n + 10**55}\tapp/{p}\t{s}\t{1795540241893 + n}",
    "heroku": lambda p, n, s: f"{time(n).isoformat()} app[worker.{p}]: {s}",
    "syslog": lambda p, n, s: f"<30>Nov 24 17:10:{41 + n % 9} node-{p} app[17]: {s}",
    "syslog with escaped tabs": lambda p, n, s: f"Nov  4 17:10:41 node-{p} app: {s}".replace(
        "\t", "#011"
    ),
    "syslog, RFC 5424": lambda p, n, s: f"<14>1 {time(n).isoformat()} node app {p + 100} - - {s}",
    "journalctl, monotonic": lambda p, n, s: f"[{n:5}.{n:06}] node app[{p + 1720}]: {s}",
    "logcli": lambda p, n, s: f'{time(n).isoformat()} {{pod="app-{p}", container="main"}} {s}',
    "CRI": lambda p, n, s: f"app-{p} {time(n).isoformat()} stderr F {s}",
    "without indentation": lambda p, n, s: f"app-{p} {s.lstrip()}",
    "cat -n": lambda p, n, s: f"{n + 1:6}\tapp-{p} {s}",
    "Docker's JSON": lambda p, n, s: as_json(p, n, log=f"{s}\n", stream="stderr"),
    "Docker's JSON with --prefix": lambda p, n, s: f"[pod/app-{p}/main] "
    + json.dumps({"log": f"{s}\n", "stream": "stderr", "time": time(n).isoformat()}),
    "journalctl -o json": lambda p, n, s: json.dumps(
        {"MESSAGE": s, "_PID": str(17 + p), "__REALTIME_TIMESTAMP": str(1795540241893000 + n)}
    ),
}  # fmt: skip


def blocks(lines: list[str]) -> list[str]:
    """Return the log events: a block of settings is one of several lines."""
    found: list[str] = []
    for line in lines:
        if line and line[0] != "\t":
            found.append(line)
        else:
            found[-1] += f"\n{line}"
    return found


# One event of several lines at a time, as agents send them that know Java's logs.
BY_EVENT: dict[str, Wrap] = {
    "Elasticsearch export": lambda p, n, s: json.dumps(
        {"_id": f"{n}", "_source": {"@timestamp": time(n).isoformat(), "message": s, **k8s(p)}}
    ),
    "log4j in Docker": lambda p, n, s: json.dumps(
        {
            "log": json.dumps({"instant": {"epochSecond": 1795540241 + n}, "message": s}) + "\n",
            "container_id": f"{p}{_ODD}",
        }
    ),
    "GELF": lambda p, n, s: json.dumps(
        {
            "host": f"node-{p}",
            "short_message": s.partition("\n")[0],
            "full_message": s,
            "timestamp": 1795540241.893 + n,
        }
    ),
    "Splunk JSON": lambda p, n, s: json.dumps(
        {"preview": False, "result": {"_raw": s, "_time": time(n).isoformat(), "host": f"h{p}"}}
    ),
}
# What puts an event of several lines into one.
GAPS = ["        ", " ", "\\n\\t", "#012#011", "\\r\\n\\t"]


def mixed(streams: list[list[str]], wrap: Wrap) -> list[str]:
    """Return the lines of all pods in turn, each in its wrapper."""
    rows = itertools.zip_longest(*streams)
    every = [(pod, line) for row in rows for pod, line in enumerate(row) if line is not None]
    return [wrap(pod, number, line) for number, (pod, line) in enumerate(every)]


@pytest.mark.parametrize("name", [*LINE_BY_LINE, *BY_EVENT])
def test_two_pods_in_one_stream_are_told_apart(name: str) -> None:
    truth, streams = pods()
    if name in BY_EVENT:
        streams = [blocks(each) for each in streams]
    reading = read_clients(mixed(streams, (LINE_BY_LINE | BY_EVENT)[name]))
    assert lists(reading) == truth
    assert reading.notes == ()


@pytest.mark.parametrize("gap", GAPS)
def test_a_block_in_one_line(gap: str) -> None:
    truth, streams = pods()
    for (member_id, names), stream in zip(truth.items(), streams, strict=True):
        events = [each.replace("\n\t", gap).rstrip() for each in blocks(stream)]
        exported = [row(time(0).isoformat(), "node", each, "app") for each in events]
        assert lists(read_clients(events)) == lists(read_clients(exported)) == {member_id: names}


def test_a_table_with_blocks_of_several_lines() -> None:
    truth, (stream, _) = pods()
    exported = [row(time(0).isoformat(), each, "node-1", "app") for each in blocks(stream)]
    first_line_alone = [f"{time(0).isoformat()} app {each}" for each in blocks(stream)]
    for lines in (exported, first_line_alone):
        assert [*lists(read_clients(lines)).items()] == [*truth.items()][:1]


@pytest.mark.parametrize("indent", [None, 2, 4])
@pytest.mark.parametrize("wrapped", [True, False], ids=["in an object", "a list"])
def test_a_document_of_entries(*, indent: int | None, wrapped: bool) -> None:
    truth, streams = pods()
    lines = [(pod, line) for pod, stream in enumerate(streams) for line in stream]
    entries = [
        {"logStreamName": f"app/{pod}", "timestamp": 1795540241893 + n, "message": f"{line} "}
        for n, (pod, line) in enumerate(lines)
    ]
    document = {"events": entries, "nextForwardToken": "f/3"} if wrapped else entries
    reading = read_clients(json.dumps(document, indent=indent))
    assert lists(reading) == truth
    assert {join.at.year for join in of_kind(reading, Joined)} == {2026}


def test_a_block_that_cannot_be_read_is_named() -> None:
    _, (stream, _) = pods()
    without = [line for line in stream if not line.startswith("\t")]
    reading = read_clients([f"app-1 | {line}" for line in without])
    assert lists(reading) == {}
    assert "0.log:1: the settings of `ConsumerConfig values:` after 'app-1 | " in reading.notes[0]
    assert not [note for note in reading.notes if "no `ConsumerConfig" in note]
    other = stream[0].replace("ConsumerConfig", "ConnectorConfig")
    reading = read_clients([other, *stream, other])
    assert len(lists(reading)) == 1
    assert reading.notes == ()
    cut = [line for line in stream if "partition.assignment" not in line]
    assert "0.log:1: the settings of" in read_clients(cut).notes[0]


@pytest.mark.parametrize(
    ("own", "at"),
    [
        ({}, datetime(2026, 11, 21, 2, tzinfo=UTC)),
        ({"date": 1795540241.893}, _START),
        ({"TimeGenerated": "2026-11-24T17:10:41.893Z"}, _START),
        ({"asctime": "2026-11-24 17:10:41,893"}, datetime(2026, 11, 21, 2, tzinfo=UTC)),
    ],
    ids=["none", "Fluent Bit", "Azure", "Python"],
)
def test_a_time_in_the_metadata_is_not_that_of_the_line(
    own: dict[str, object], at: datetime
) -> None:
    pod = {"annotations": {"kubectl.kubernetes.io/restartedAt": "2026-11-01T08:00:00Z"}}
    lines = "\n".join(Pod("a", "range").start()).splitlines()
    (join,) = of_kind(read_clients(json.dumps({**pod, "log": s, **own}) for s in lines), Joined)
    entry = {**pod, "log": f"{STAMP} [GroupCoordinator 1]: Stabilized group g generation 1", **own}
    (one,) = read_broker_log([io.BytesIO(json.dumps(entry).encode())]).observations
    known = any(str(each).endswith("Z") or isinstance(each, float) for each in own.values())
    assert {(join.at, join.local), (one.at, one.local)} == {(at, not known)}


def row(*cells: str) -> str:
    out = io.StringIO()
    csv.writer(out, quoting=csv.QUOTE_ALL).writerow(cells)
    return out.getvalue().rstrip()
