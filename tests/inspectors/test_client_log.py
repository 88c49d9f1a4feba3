"""Logs of Java clients, in what wraps them too."""

import bz2
import csv
import gzip
import io
import itertools
import json
import os
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rebal.groups.errors import DocumentError
from rebal.groups.evidence.observations import Joined, Left, Rebalanced, Refused
from rebal.inspectors.logs.broker import read_broker_log
from rebal.inspectors.logs.client.reader import read_client_logs
from tests.inspectors.logs import COOP, DATA, RANGE, STAMP, Pod, lists, of_kind, read_clients
from tests.tables import table

LOGS = DATA / "client_logs"


@pytest.mark.parametrize(
    ("name", "version", "expected"),
    [
        ("java-2.8.2-joined", "2.8.2", ("cooperative-sticky", "range")),
        ("java-3.9.1-static", "3.9.1", ("range", "cooperative-sticky")),
        ("java-4.1.1-joined", "4.1.1", ("range", "cooperative-sticky")),
    ],
)
def test_a_java_clients_join_is_bound_to_the_member_id_that_it_logged(name, version, expected):
    path = LOGS / f"{name}.log"
    printed = re.findall(r"Successfully joined group.*memberId='([^']+)'", path.read_text())
    settings = dict(re.findall(r"\t(\S+\.ms) = (\d+)", path.read_text()))
    reading = read_client_logs([path])
    (seen,) = of_kind(reading, Joined)
    assert [seen.member_id] == printed
    assert seen.session_timeout_ms == int(settings["session.timeout.ms"])
    assert seen.rebalance_timeout_ms == int(settings["max.poll.interval.ms"])
    assert seen.list == expected
    assert (seen.software.family, seen.software.version) == ("java", version)
    assert seen.generation_id == 1
    assert seen.at.tzinfo is UTC
    assert seen.instance_id == ("i-0" if "static" in name else None)
    assert [(o.generation_id, o.assignor) for o in of_kind(reading, Rebalanced)] == [
        (1, expected[0])
    ]
    left = [(o.member_id, o.reason) for o in of_kind(reading, Left)]
    # A static member stays when it is closed.
    closed = [(seen.member_id, "the consumer is being closed")]
    assert left == ([] if "static" in name else closed)
    assert reading.notes == ()


def test_a_java_client_before_2_4_logs_no_member_id_which_a_note_reports():
    reading = read_client_logs([LOGS / "java-2.3.1-joined.log"])
    assert of_kind(reading, Joined) == []
    (note,) = reading.notes
    assert "'a-0'" in note
    assert "[range]" in note


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        ("2.3.1", ("roundrobin",)),
        ("2.8.2", ("cooperative-sticky",)),
        ("3.9.1", ("cooperative-sticky",)),
        ("4.1.1", ("cooperative-sticky",)),
    ],
)
def test_a_java_clients_rejection_is_read_with_its_assignor_list(version, expected):
    reading = read_client_logs([LOGS / f"java-{version}-refused.log"])
    (seen,) = reading.observations
    assert isinstance(seen, Refused)
    assert (seen.group_id, seen.client_id) == ("gref", f"ref-{version}")
    assert (seen.list, seen.software.version) == (expected, version)
    assert reading.notes == ()


def test_three_consumers_of_one_process_have_their_own_assignor_lists():
    reading = read_client_logs([LOGS / "java-3.9.1-three-consumers.log"])
    assert {o.client_id: o.list for o in of_kind(reading, Joined)} == {
        "w-0": ("range", "cooperative-sticky"),
        "w-1": ("cooperative-sticky", "range"),
        "consumer-gm-1": ("range",),
    }


def test_a_kip_848_consumer_has_no_assignor_list():
    reading = read_client_logs([LOGS / "java-4.1.1-kip848.log"])
    (joined,) = of_kind(reading, Joined)
    assert (joined.member_id, joined.list, joined.classes) == ("vI75cIeNRsysUlD4UFLnnQ", (), ())
    assert (joined.software.family, joined.software.version) == ("java", "4.1.1")
    assert [left.member_id for left in of_kind(reading, Left)] == ["vI75cIeNRsysUlD4UFLnnQ"]
    assert reading.notes == ()


@pytest.mark.parametrize("only", ["", "follower", "leader"])
def test_the_leaders_log_line_gives_the_ids_of_members_that_log_none(only):
    """Two processes of kafka-clients 2.4.1 with one client id, and a static member."""
    reading = read_client_logs(sorted(LOGS.glob(f"java-2.4.1-*{only}.log")))
    leaders = {
        "consumer-g241-1-27d56628-8d52-40ee-ab20-3c389ebc9a43": ("cooperative-sticky", "range"),
        "consumer-g241-2-c64bbc0c-649a-42af-b4af-8b0610fa003c": ("range", "cooperative-sticky"),
    }
    others = {
        "consumer-g241-1-253c7a26-6999-41ac-ad30-9d93b06fc752": ("range",),
        "i-1-6618af85-e8ac-4d39-af47-300066d11cf6": ("range",),
    }
    assert lists(reading) == {"": leaders | others, "leader": leaders, "follower": {}}[only]
    assert len(reading.notes) == (2 if only == "follower" else 0)


@pytest.mark.parametrize(
    ("pattern", "changed"),
    [
        (r"Cluster ID: \S+", "Cluster ID: another"),
        (" 17:10:", " 17:11:"),
        (r"\)}", ""),
        ("at generation", "at generation 1"),
    ],
    ids=["another cluster", "another time", "cut off", "another generation"],
)
def test_a_leaders_log_line_of_another_cluster_or_time_gives_no_member_id(pattern, changed):
    leader, follower = ((LOGS / f"java-2.4.1-{name}.log").read_text()
                        for name in ("leader", "follower"))  # fmt: skip
    reading = read_clients(follower, re.sub(pattern, changed, leader))
    assert not [o for o in of_kind(reading, Joined) if o.log.endswith("0.log")]


@pytest.mark.parametrize(("said", "error"), table("client_log", "kip848"))
def test_a_consumer_of_kip_848_that_stops_for_good_is_reported(said, error):
    who = "12:00:00.1 [bg] INFO [Consumer clientId=k-0, groupId=g] "
    lines = [
        f"{who}ConsumerGroupHeartbeatRequest failed due to {said}",
        f"{who}Member gdoKIWoSQYq7mxs4BwiqtQ with epoch 0 transitioned from JOINING to FATAL.",
    ]
    (seen,) = of_kind(read_clients(lines), Refused)
    assert (seen.client_id, seen.error, seen.list) == ("k-0", error, ())


@pytest.mark.parametrize(
    "said",
    table("client_log", "fenced"),
    ids=["a join by 2.6", "a sync", "a heartbeat by 2.3", "a heartbeat"],
)  # fmt: skip
def test_a_fenced_static_member_is_one_rejection(said: list[str]) -> None:
    pod = Pod("a", RANGE, static="i-0")
    reading = read_clients([*pod.start(), *(f"{pod._who}{line}" for line in said)])
    (seen,) = of_kind(reading, Refused)
    assert (seen.error, seen.instance_id) == ("FENCED_INSTANCE_ID", "i-0")


def test_a_joins_time_is_read_from_kubectl_timestamps_or_with_a_utc_offset():
    lines = "\n".join(Pod("a", RANGE).start()).splitlines()
    stamped = [f"2026-11-21T02:00:09.5Z {line}" for line in lines]
    (seen,) = of_kind(read_clients(stamped), Joined)
    assert seen.at == datetime(2026, 11, 21, 2, 0, 9, 500000, tzinfo=UTC)
    (seen,) = of_kind(read_clients(lines, tz_offset=timedelta(hours=1)), Joined)
    assert seen.at == datetime(2026, 11, 21, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("line", "said"),
    table("client_log", "no_member"),
    ids=["no start", "a rejection without a group", "a rejection by a client before 1.0"],
)  # fmt: skip
def test_a_log_line_that_names_no_member_is_reported_in_a_note(line, said):
    reading = read_clients([line])
    assert reading.observations == ()
    assert said in reading.notes[0]


# As kafka-clients 2.3.1 and 4.1.1 print it at DEBUG.
SENT = table("client_log", "sent")


@pytest.mark.parametrize(
    ("instance", "end"), [("'null'", ""), ("null", ", reason='x'")], ids=["2.3", "3.2"]
)
def test_a_join_request_logged_at_debug_has_its_own_assignor_list(instance: str, end: str) -> None:
    a, b = Pod("a", RANGE), Pod("b", COOP)
    for pod in (a, b):
        pod.start()
    # The list of a alone is printed, in the stream of both.
    sent = f"{a._who}{SENT.format('a-1', instance, end)}"
    reading = read_clients([sent, a.joined(), b.joined()])
    assert lists(reading) == {"a-1": (RANGE, COOP)}
    (note,) = read_clients([sent, a.joined()], [b.joined()]).notes
    assert "1.log: client id" in note
    for end_of_line in range(len(sent)):
        assert set(lists(read_clients([sent[:end_of_line]])).values()) <= {(RANGE, COOP)}


MINE = "com.acme.Mine"


def test_a_custom_assignor_class_gets_the_name_that_was_elected():
    lines = Pod("a", MINE, elected="mine").start()
    # The name, once known from one member, is used in the assignor lists of the others.
    more = Pod("b", COOP, MINE, elected=COOP).start()
    one, other = of_kind(read_clients(lines, more), Joined)
    assert (one.list, one.classes) == (("mine",), (MINE,))
    assert (other.list, other.classes[1]) == ((COOP, "mine"), MINE)
    # One class with two names has none.
    more = Pod("b", MINE, elected="yours").start()
    assert lists(read_clients(lines, more)) == {"a-1": (), "b-1": ()}


@pytest.mark.parametrize(
    ("assignors", "elected"),
    [((COOP, MINE), COOP), ((MINE, "com.acme.Other"), "mine")],
)
def test_a_custom_assignor_class_whose_name_no_log_shows_gives_no_assignor_list(assignors, elected):
    reading = read_clients(Pod("a", *assignors, elected=elected).start())
    (joined,) = of_kind(reading, Joined)
    assert (joined.member_id, joined.software.version, joined.list) == ("a-1", "3.9.1", ())
    assert MINE in joined.classes
    (note,) = reading.notes
    assert f"has {MINE}" in note
    assert "--request-log" in note


def test_no_secret_of_a_logged_configuration_is_read():
    text = "\n".join(Pod("a", RANGE).start())
    secret = text.replace("\tgroup.id", "\tssl.keystore.passwords = hunter2\n\tgroup.id")
    assert "hunter2" not in repr(read_clients(secret))


_REAL = (LOGS / "java-3.9.1-static.log").read_bytes()


@given(
    st.integers(0, len(_REAL)),
    st.integers(0, len(_REAL)),
    st.lists(st.tuples(st.integers(0, len(_REAL) - 1), st.integers(0, 255)), max_size=5),
)
def test_cut_off_and_mutated_logs_never_raise(tmp_path_factory, start, end, changes):
    data = bytearray(_REAL)
    for place, value in changes:
        data[place] = value
    path = tmp_path_factory.getbasetemp() / "mutated.log"
    path.write_bytes(b"\n" + bytes(data[start:end]))
    for seen in of_kind(read_client_logs([path]), Joined):
        assert seen.generation_id is None or isinstance(seen.generation_id, int)


@pytest.mark.parametrize("content", ["", "GET / 200\n" * 50, "".join(map(chr, range(32))) * 1000])
def test_a_log_without_a_line_of_a_consumer_is_named(content: str) -> None:
    reading = read_clients(content)
    assert reading.observations == ()
    (note,) = reading.notes
    assert "0.log: no line is one that a consumer" in note


def test_a_truncated_compressed_or_missing_client_log_is_named(tmp_path: Path) -> None:
    text = (LOGS / "java-4.1.1-joined.log").read_bytes()
    data = gzip.compress(text * 50)
    (tmp_path / "app.log.gz").write_bytes(data[: len(data) // 2])
    reading = read_client_logs([tmp_path / "app.log.gz"])
    assert reading.observations
    assert [note for note in reading.notes if "the gz data ends too early" in note]
    (tmp_path / "app.log").write_bytes("[Consumer clientId=a]".encode("utf-16"))
    (tmp_path / "app.log.bz2").write_bytes(bz2.compress(text))
    (tmp_path / "damaged.gz").write_bytes(b"\x1f\x8b\x08\x00" + b"no gz" * 20)
    (tmp_path / "empty").mkdir()
    for name, said in (
        ("damaged.gz", "damaged gz data; fetch the file again"),
        ("app.log", "is UTF-16 text; save it as UTF-8"),
        ("app.log.bz2", "is compressed (bz2); unpack it, or compress it as gz"),
        ("none.log", "no such file"),
        ("empty", "the directory holds no file"),
    ):
        with pytest.raises(DocumentError, match=re.escape(f"{tmp_path / name}: {said}")):
            read_client_logs([tmp_path / name])


def test_zero_bytes_before_a_log_are_skipped_and_endless_ones_are_an_error(tmp_path):
    log = tmp_path / "a.log"
    log.touch()
    os.truncate(log, 1 << 30)
    with log.open("ab") as end:
        end.write(b"\0" * 9 + (LOGS / "java-3.9.1-static.log").read_bytes())
    whole = read_client_logs([LOGS / "java-3.9.1-static.log"]).observations
    assert len(whole) == len(read_client_logs([log]).observations) > 0
    with pytest.raises(DocumentError, match=r"/dev/zero: holds no text"):
        read_client_logs([Path("/dev/zero")])


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
def test_two_pods_in_one_log_stream_are_distinguished(name: str) -> None:
    truth, streams = pods()
    if name in BY_EVENT:
        streams = [blocks(each) for each in streams]
    reading = read_clients(mixed(streams, (LINE_BY_LINE | BY_EVENT)[name]))
    assert lists(reading) == truth
    assert reading.notes == ()


@pytest.mark.parametrize("gap", GAPS)
def test_a_consumer_config_block_in_one_line_is_read(gap: str) -> None:
    truth, streams = pods()
    for (member_id, names), stream in zip(truth.items(), streams, strict=True):
        events = [each.replace("\n\t", gap).rstrip() for each in blocks(stream)]
        exported = [row(time(0).isoformat(), "node", each, "app") for each in events]
        assert lists(read_clients(events)) == lists(read_clients(exported)) == {member_id: names}


def test_a_table_of_log_entries_with_multi_line_config_blocks_is_read() -> None:
    truth, (stream, _) = pods()
    exported = [row(time(0).isoformat(), each, "node-1", "app") for each in blocks(stream)]
    first_line_alone = [f"{time(0).isoformat()} app {each}" for each in blocks(stream)]
    for lines in (exported, first_line_alone):
        assert [*lists(read_clients(lines)).items()] == [*truth.items()][:1]


@pytest.mark.parametrize("indent", [None, 2, 4])
@pytest.mark.parametrize("wrapped", [True, False], ids=["in an object", "a list"])
def test_a_json_document_of_log_entries_is_read(*, indent: int | None, wrapped: bool) -> None:
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


def test_an_unreadable_consumer_config_block_is_named_in_a_note() -> None:
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
    short = [line.partition("]")[0] if "partition.assignment" in line else line for line in stream]
    for reading in map(read_clients, (cut, short)):
        assert lists(reading) == {}
        assert "0.log:1: the settings of" in reading.notes[0]


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
def test_a_time_in_an_entrys_metadata_is_not_taken_for_the_lines_time(
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
