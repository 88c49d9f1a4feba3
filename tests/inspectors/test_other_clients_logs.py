"""Logs of clients that are not Java's, and of brokers."""

import gzip
import io
import json
import re
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from rebal.groups.evidence.observations import (
    Converted,
    Introduced,
    Joined,
    Left,
    Loaded,
    Rebalanced,
    Refused,
)
from rebal.inspectors.files import TextInput
from rebal.inspectors.logs.broker import read_broker_log
from rebal.inspectors.logs.families import OtherClients
from rebal.inspectors.logs.lines import LogReading
from tests.inspectors.logs import DATA, of_kind, read_clients
from tests.tables import table


def logged(name: str) -> str:
    return (DATA / f"other_logs/{name}.log").read_text()


def lists(reading: LogReading) -> set[tuple[str, ...]]:
    return {one.list for one in of_kind(reading, Joined) if one.list}


def families(reading: LogReading) -> set[str | None]:
    shown = of_kind(reading, Joined | Introduced | Refused)
    return {one.software.family for one in shown if one.software is not None}


@pytest.mark.parametrize(
    ("name", "family", "group", "generations", "exact"),
    [
        ("franz-go", "franz-go", "g-franz-go", [1, 2], set()),
        ("kafkajs", "kafkajs", "kjs", [None, None], set()),
        ("kafka-python", "kafka-python", "kp3", [1], {("range", "roundrobin")}),
        ("kafka-python-2", "kafka-python", "kp2", [1], {("range", "roundrobin")}),
        ("aiokafka", "aiokafka", "aio", [1], {("roundrobin",)}),
        ("librdkafka-conf", "librdkafka", "rdk", [1], {("cooperative-sticky",)}),
    ],
)
def test_a_client_log_shows_an_accepted_joins_member_family_and_assignor_list(
    name: str, family: str, group: str, generations: list[int | None], exact: set[tuple[str, ...]]
) -> None:
    reading = read_clients(logged(name))
    accepted = [one for one in of_kind(reading, Joined) if one.accepted]
    assert [one.generation_id for one in accepted] == generations
    assert {one.group_id for one in accepted} == {group}
    assert (families(reading), lists(reading)) == ({family}, exact)
    assert bool(reading.notes) is (not exact)
    (member_id,) = {one.member_id for one in accepted}
    (client_id,) = {one.client_id for one in accepted}
    assert member_id.startswith(f"{client_id}-")
    assert len(member_id) == len(client_id) + 37


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("franz-go", "it does so at no level: --request-log shows the list"),
        ("librdkafka-fenced", "debug=conf,cgrp, where each line names its consumer"),
    ],
)
def test_a_note_on_a_missing_assignor_list_gives_fitting_advice(name: str, advice: str) -> None:
    reading = read_clients(logged(name))
    assert lists(reading) == set()
    (note,) = reading.notes
    assert advice in note
    assert "INFO" not in note


def test_a_leave_group_line_of_kafka_python_is_read() -> None:
    reading = read_clients("kafka.coordinator Leaving consumer group g (member c-1).\n")
    (left,) = of_kind(reading, Left)
    assert (left.group_id, left.member_id, left.expired) == ("g", "c-1", False)


def test_a_sarama_log_shows_no_join_and_nothing_if_it_names_two_groups() -> None:
    # The time at which a session ended is not that of the join.
    reading = read_clients(logged("sarama"))
    assert {type(one) for one in reading.observations} == {Introduced}
    assert families(reading) == {"sarama"}
    assert {one.group_id for one in reading.observations} == {"g-sarama"}
    other = "[sarama] 2026/11/24 17:21:24.0 client/coordinator coordinator for b is #1 (x:1)\n"
    assert read_clients(other + logged("sarama")).observations == ()


@pytest.mark.parametrize(
    ("name", "family", "times", "client_id"), table("other_clients", "rejected")
)
def test_repeated_lines_about_a_rejected_join_are_one_rejection(
    name: str, family: str, times: int, client_id: str
) -> None:
    reading = read_clients(logged(name))
    (one,) = of_kind(reading, Refused)
    fenced = ("FENCED_INSTANCE_ID", "rdks")
    rejected = ("INCONSISTENT_GROUP_PROTOCOL", "rej")
    assert (one.error, one.group_id) == (fenced if "fenced" in name else rejected)
    assert (one.times, one.client_id, families(reading)) == (times, client_id, {family})


JOINED = logged("franz-go").replace("g-franz-go", "rej")


def in_pod(name: str, text: str) -> str:
    """As Fluent Bit sends a pod's lines."""
    entry = {"time": "2026-11-24T17:25:41Z", "kubernetes": {"pod_name": name}}
    return "".join(f"{json.dumps({**entry, 'log': line})}\n" for line in text.splitlines())


@pytest.mark.parametrize(
    ("text", "reported"),
    [
        (logged("franz-go-rejected") + JOINED, 0),
        # Another client, which was a member before, joins again.
        (JOINED + logged("franz-go-rejected") + JOINED, 1),
        (in_pod("a", logged("franz-go-rejected")) + in_pod("b", JOINED), 1),
    ],
)
def test_a_client_that_joined_after_its_rejection_is_not_reported(text: str, reported: int) -> None:
    assert len(of_kind(read_clients(text), Refused)) == reported


@pytest.mark.parametrize(
    "line",
    table("other_clients", "printed_errors"),
    ids=["librdkafka", "librdkafka in Rust", "sarama", "ruby-kafka", "segmentio"],
)
def test_a_join_error_that_an_application_prints_is_a_rejection(line: str) -> None:
    reading = read_clients([line, line, line])
    assert sum("a member was rejected (INCONS" in note for note in reading.notes) == 1
    # Sarama's own lines show the group.
    group = "[sarama] 2026/11/24 17:21:24 client/coordinator coordinator for g is #1 (h:9092)"
    found = of_kind(read_clients([group, line]), Refused)
    assert [one.group_id for one in found] == ["g"] * ("provider" in line)


@pytest.mark.parametrize("message", ["joined", "join group failed"])
def test_ids_beside_the_message_of_a_go_loggers_json_are_read(message: str) -> None:
    ids = {"member_id": "a-1", "instance_id": None, "generation": 1}
    if message != "joined":
        ids = {"err": "INCONSISTENT_GROUP_PROTOCOL: The group member's supported protocols"}
    entry = {"level": "info", "ts": 1795540947.002, "msg": message, "group": "g", **ids}
    (one,) = read_clients(json.dumps(entry, separators=(",", ":"))).observations
    assert isinstance(one, Joined if message == "joined" else Refused)
    assert (one.group_id, one.local) == ("g", False)


def test_a_rejection_of_an_unknown_group_is_named_in_a_note() -> None:
    note, _ = read_clients(logged("aiokafka-rejected")).notes
    assert "a member was rejected (INCONSISTENT_GROUP_PROTOCOL)" in note
    fatal = next(line for line in logged("librdkafka-fenced").splitlines() if "FATAL" in line)
    notes = read_clients(fatal).notes
    assert any("a member was rejected (FENCED_INSTANCE_ID)" in each for each in notes)


def test_a_librdkafka_application_that_assigns_as_eager_gets_a_warning() -> None:
    warning, advice = read_clients(logged("librdkafka-assign")).notes
    assert "incremental_assign() and incremental_unassign()" in warning
    assert "debug=conf,cgrp" in advice


def test_a_member_of_the_consumer_protocol_has_no_assignor_list() -> None:
    reading = read_clients(logged("librdkafka-consumer"))
    (one,) = reading.observations
    assert isinstance(one, Introduced)
    assert (one.group_id, one.software.version) == ("rdkk", "2.16.1-rdkafka-2.16.0")
    assert reading.notes == ()


@pytest.mark.parametrize("name", ["librdkafka-conf", "kafka-python", "kafkajs", "franz-go"])
@pytest.mark.parametrize(
    "wrap",
    [
        lambda line: f"[pod/web-1/app] {line}",
        lambda line: f"2026-11-24T17:25:41.000000000Z stdout F {line}",
        lambda line: json.dumps({"log": f"{line}\n", "time": "2026-11-24T17:25:41Z"}),
        lambda line: json.dumps({"date": 1795541141.5, "log": line, "kubernetes": {"pod": "a"}}),
    ],
    ids=["kubectl --prefix", "cri", "docker", "fluent-bit"],
)
def test_log_lines_wrapped_by_collectors_are_read(name: str, wrap: Callable[[str], str]) -> None:
    plain = read_clients(logged(name))
    wrapped = read_clients("\n".join(map(wrap, logged(name).splitlines())))
    assert lists(wrapped) == lists(plain)
    ids = [[getattr(o, "member_id", "") for o in r.observations] for r in (wrapped, plain)]
    assert ids[0] == ids[1] != []


@pytest.mark.parametrize("layout", [*table("other_clients", "layouts").values()])
def test_librdkafka_lines_in_a_bindings_log_layout_are_read(layout: str) -> None:
    text = re.sub(r"(?m)^%(\d)\|[\d.]+\|(\w+)\|(\S+)\| (.*)$", layout, logged("librdkafka-conf"))
    assert lists(read_clients(text)) == {("cooperative-sticky",)}


COOPERATIVE = logged("librdkafka-conf")
# The same consumer name in another pod, with another list.
DEFAULT = logged("librdkafka-default").replace('"rdk2"', '"rdk"').replace("= rdk2", "= rdk")
LAST = next(n for n, line in enumerate(DEFAULT.splitlines()) if "Terminating" in line)
FIRST, *REST = COOPERATIVE.splitlines()


@pytest.mark.parametrize(
    "lines",
    [
        [x for pair in zip([FIRST, *REST], DEFAULT.splitlines(), strict=False) for x in pair],
        # The other process ran before this stream began, and got a new member id.
        [FIRST, *(line for line in DEFAULT.splitlines() if "CONF|" not in line), *REST],
        # Killed, so nothing shows that the two did not run at once.
        [*DEFAULT.replace('-> "(not-set)"', '-> "x"').splitlines()[:LAST], FIRST, *REST],
        # The start of the process is missing.
        REST,
    ],
    ids=["interleaved", "older", "killed", "no start"],
)
def test_an_assignor_list_of_a_possibly_other_process_is_not_used(lines: list[str]) -> None:
    reading = read_clients("\n".join(lines))
    assert lists(reading) == set()
    assert any("several processes print under its name" in note for note in reading.notes)


def test_a_client_restarted_in_one_log_stream_has_its_own_assignor_list() -> None:
    joins = of_kind(read_clients(DEFAULT + COOPERATIVE), Joined)
    shown = dict.fromkeys(one.list for one in joins if one.list)
    assert [*shown] == [("range", "roundrobin"), ("cooperative-sticky",)]


def test_spaces_and_empty_names_in_a_librdkafka_list_are_skipped() -> None:
    text = COOPERATIVE.replace("strategy = cooperative-sticky", "strategy = range, roundrobin,")
    assert lists(read_clients(text)) == {("range", "roundrobin")}


def test_an_incomplete_librdkafka_configuration_shows_no_assignor_list() -> None:
    text = "\n".join(line for line in DEFAULT.splitlines() if "Default topic" not in line)
    assert lists(read_clients(text)) == set()


@pytest.mark.parametrize("part", table("other_clients", "hostile"))
def test_a_hostile_log_line_is_read_quickly_and_shows_nothing(part: str) -> None:
    line = (part * (16_000 // len(part))).encode()
    others = OtherClients(TextInput(io.BytesIO(line)), None)
    assert list(others.lines()) == [line]
    assert others.read()[0] == []
    assert read_broker_log([io.BytesIO(line)]).observations == ()


STICKY = table("other_clients", "sticky")


def test_topics_in_the_metadata_of_a_join_are_not_read_as_assignors() -> None:
    assert lists(read_clients(STICKY)) == {("sticky", "roundrobin")}


@pytest.mark.parametrize("name", ["kafka-python-2", "aiokafka", "sticky"])
def test_a_truncated_join_line_shows_no_wrong_assignor_list(name: str) -> None:
    text = STICKY if name == "sticky" else logged(name)
    whole = next(
        line for line in text.splitlines() if re.search(r"member_id='[^']+'.*protocols=\[", line)
    )
    (expected,) = lists(read_clients(whole))
    for end in range(len(whole)):
        assert lists(read_clients(whole[:end])) <= {expected}
    assert lists(read_clients(whole[: whole.index("protocols=[") + 80])) == set()


LOGS = DATA / "broker_logs"
VERSIONS = ("3.9.1", "4.4.0")


def read(*lines: str) -> LogReading:
    return read_broker_log([io.BytesIO("\n".join(lines).encode())])


def printed(text: str) -> str:
    return f"[2026-11-24 17:14:05,000] INFO {text} (kafka.coordinator.group.GroupCoordinator)"


@pytest.mark.parametrize("version", VERSIONS)
def test_a_broker_log_shows_each_members_join_and_the_reason_it_left(version: str) -> None:
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
def test_a_broker_log_shows_a_reload_between_two_generations(version: str) -> None:
    reading = read_broker_log([LOGS / f"{version}.log"])
    (reload,) = of_kind(reading, Loaded)
    generations = [(o.generation_id, o.line > reload.line) for o in of_kind(reading, Rebalanced)]
    assert generations[:9] == [(number, number > 7) for number in range(1, 10)]
    assert all(o.at is not None and o.group_id == "orders" for o in reading.observations)


def test_a_broker_log_shows_conversions_between_classic_and_consumer_groups() -> None:
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


def test_coordinator_log_lines_of_older_brokers_are_read() -> None:
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
def test_text_after_a_broker_log_line_hides_nothing_of_it(version: str, layout: str) -> None:
    lines = (LOGS / f"{version}.log").read_text().splitlines()
    shown, expected = (
        [(type(one), one.line, getattr(one, "reason", None)) for one in reading.observations]
        for reading in (read(*map(LAYOUTS[layout], lines)), read(*lines))
    )
    assert shown == expected


@pytest.mark.parametrize(("text", "kind", "instance_id"), table("broker_log", "wordings"))
def test_each_releases_wording_of_a_coordinator_log_line_is_read(
    text: str, kind: str | None, instance_id: str | None
) -> None:
    found = read(printed(f"[GroupCoordinator 0]: {text}")).observations
    assert [type(one).__name__ for one in found] == [kind] * bool(kind)
    assert all((o.group_id, o.member_id, o.instance_id) == ("g", "m", instance_id) for o in found)


def test_other_broker_log_lines_show_until_when_the_log_was_written() -> None:
    last = "[2026-11-24 18:00:00,000] INFO [SnapshotEmitter id=1] Done (org.apache.kafka.x)"
    reading = read(printed("[GroupCoordinator 1]: Stabilized group g generation 7"), last)
    assert reading.logs[0].last_at == datetime(2026, 11, 24, 18, tzinfo=UTC)
    assert reading.notes == ()
    (note,) = read(last, last).notes
    assert note.startswith("--broker-log: none of the 2 lines is the group coordinator's")


@pytest.mark.parametrize(("last", "broker_id"), [("Shutdown complete.", None), ("Starting up.", 1)])
def test_a_broker_that_shut_down_is_no_coordinator_now(last: str, broker_id: int | None) -> None:
    lines = map("[GroupCoordinator 1]: {}".format, ("Startup complete.", "Shutting down.", last))
    assert [log.broker_id for log in read(*map(printed, lines)).logs] == [broker_id]


@pytest.mark.parametrize(
    ("name", "same"),
    [
        ("server.log.2026-11-24-17", True),
        ("server.log.1.gz", True),
        # Another cluster has a broker of this id, too.
        ("staging-server.log", False),
    ],
)
def test_parts_of_a_rotated_log_belong_to_one_broker(tmp_path: Path, name: str, same: bool) -> None:
    for each in ("server.log", name):
        raw = printed("[GroupCoordinator 1]: Startup complete.").encode()
        tmp_path.joinpath(each).write_bytes(gzip.compress(raw) if each.endswith("gz") else raw)
    reading = read_broker_log([tmp_path / "server.log", tmp_path / name])
    assert (len({log.origin for log in reading.logs}) == 1) is same
