"""`rebal groups` on real brokers: its lines, its requests, and what it may not read."""

import json
from collections.abc import Iterator

import pytest

from rebal.cli import app
from tests.kafka.broker import Broker, free_ports
from tests.kafka.crowd import PARTITIONS, Crowd
from tests.kafka.rawwire import consumer_heartbeat
from tests.kafka.tunnel import Recorder

DESCRIBE_GROUPS, FIND_COORDINATOR, OFFSET_FETCH, LIST_OFFSETS = 15, 10, 9, 2
JOIN_GROUP, FETCH = 11, 1
KINDS = (("range",), ("cooperative-sticky",), ("range", "cooperative-sticky"))
MOST_IN_FLIGHT = 4
Said = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def recorder() -> Iterator[Recorder]:
    (port,) = free_ports(1)
    with Recorder(port) as made:
        yield made


@pytest.fixture(scope="module")
def broker(recorder: Recorder) -> Iterator[Broker]:
    """A broker of its own behind the recorder: every group on it is a test's."""
    settings = {"group.max.session.timeout.ms": "3600000"}
    with Broker(secure=False, settings=settings, tunnel=recorder.port) as made:
        recorder.target = made.ports["TUNNEL"]
        made.wait_coordinator("any")
        made.create_topic("orders", PARTITIONS)
        made.produce("orders", {0: 3})
        yield made


@pytest.fixture(scope="module")
def address(recorder: Recorder, broker: Broker) -> str:
    return f"127.0.0.1:{recorder.port}"


def listed(
    capsys: Said, *words: str
) -> tuple[int, dict[str, dict[str, object]], dict[str, object]]:
    """Run `rebal groups -o json`: the exit code, the lines by group, and the document."""
    capsys.readouterr()
    code = app.run(["groups", *words, "-o", "json"])
    body = json.loads(capsys.readouterr().out)
    assert body["exit_code"] == code
    return code, {line["group_id"]: line for line in body["groups"]}, body


def test_each_kind_of_group_has_its_line(broker: Broker, address: str, capsys: Said) -> None:
    with Crowd(broker, "orders") as crowd:
        crowd.add("kinds-eager", ["range"])
        crowd.add("kinds-cooperative", ["cooperative-sticky"])
        crowd.empty("kinds-left")
        online = consumer_heartbeat(broker, "kinds-online")
        try:
            code, lines, body = listed(capsys, "-b", address, "--match", "kinds-.*")
        finally:
            consumer_heartbeat(broker, "kinds-online", online)
    shown = {
        name: (line["state"], line["protocol"], line["assignor"], line["members"], line["lag"])
        for name, line in lines.items()
    }
    assert shown == {
        "kinds-eager": ("Stable", "EAGER", "range", 1, 3),
        "kinds-cooperative": ("Stable", "COOPERATIVE", "cooperative-sticky", 1, 3),
        "kinds-left": ("Empty", "none", None, 0, 3),
        "kinds-online": (lines["kinds-online"]["state"], "KIP-848", "uniform", 1, None),
    }
    assert lines["kinds-online"]["verdict"] == "done"
    assert body["failures"] == []
    assert code == max(int(str(line["exit_code"])) for line in lines.values())


def test_many_groups_are_read_in_few_requests(
    broker: Broker, recorder: Recorder, address: str, capsys: Said
) -> None:
    names = _crowded(broker, "some", 60)
    recorder.reset()
    _, lines, _ = listed(capsys, "-b", address, "--match", "some-.*")
    assert list(lines) == sorted(lines, key=lambda name: (_weight(lines[name]), int(name[5:])))
    assert set(lines) == set(names)
    assert {line["lag"] for line in lines.values()} == {3}
    assert recorder.most <= MOST_IN_FLIGHT
    # Fifty groups a request, and no request for any single group.
    assert recorder.requests[DESCRIBE_GROUPS] == 2
    assert recorder.requests[OFFSET_FETCH] == 2
    assert recorder.requests[LIST_OFFSETS] == 1
    assert recorder.requests[FIND_COORDINATOR] == 0


def test_groups_probed_side_by_side_are_asked_each_question_once(
    broker: Broker, recorder: Recorder, address: str, capsys: Said
) -> None:
    names = _crowded(broker, "probed", 60)
    recorder.reset()
    assert app.run(["inspect", "-b", address, "--match", "probed-.*", "--probe", "-o", "json"]) == 0
    groups = json.loads(capsys.readouterr().out)["groups"]
    answers = {each["group_id"]: each["probe"]["answers"] for each in groups}
    assert set(answers) == set(names)
    for number, name in enumerate(names):
        yes = {one["assignor"] for one in answers[name] if one["supported"] == "yes"}
        assert yes == set(KINDS[number % len(KINDS)])
    assert recorder.requests[JOIN_GROUP] == sum(map(len, answers.values()))
    # The broker that lists a group is its coordinator.
    assert recorder.requests[FIND_COORDINATOR] == 0
    # The groups of one partition of the offsets topic share what was fetched of it.
    assert recorder.requests[FETCH] < len(names)


def _crowded(broker: Broker, name: str, count: int) -> list[str]:
    names = [f"{name}-{number}" for number in range(count)]
    with Crowd(broker, "orders") as crowd:
        for number, group in enumerate(names):
            crowd.add(group, KINDS[number % len(KINDS)])
    return names


def _weight(line: dict[str, object]) -> int:
    return ["blocked", "unproven", "ready", "done"].index(str(line["verdict"]))
