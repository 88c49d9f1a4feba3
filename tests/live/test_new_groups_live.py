"""`rebal groups` on real brokers: its lines, its requests, and what it may not read.

The groups are of the newest protocols too: Streams (KIP-1071) and share (KIP-932).
"""

import json
from collections.abc import Iterator
from typing import NamedTuple

import pytest

from rebal.cli import app
from rebal.groups.model import GroupSnapshot, Tri
from rebal.inspectors.connection.config import ClusterConfig
from rebal.inspectors.kafka.cluster import RawCluster, broker_version
from rebal.inspectors.kafka.doctor import DoctorReport, examine
from rebal.inspectors.kafka.read import read_groups
from tests.kafka import jars
from tests.kafka.broker import Broker, free_ports, wait_for
from tests.kafka.members import JavaHost, StreamsHost, answer
from tests.kafka.rawgroup import PARTITIONS, Crowd, consumer_heartbeat
from tests.kafka.tunnel import Recorder
from tests.live_support import read_group, wait_state

Said = pytest.CaptureFixture[str]


class ShareHost(JavaHost):
    """A JVM with share consumers, which only the newest clients have."""

    program = "ShareMember"
    oldest = jars.NEWEST


class Site(NamedTuple):
    """A broker with a Streams program of two members, and a share group of one.

    `fresh` is what doctor read before any group was there.
    """

    broker: Broker
    streams: StreamsHost
    share: ShareHost
    fresh: DoctorReport

    def run(self, capsys: Said, *words: str) -> tuple[int, str]:
        capsys.readouterr()
        code = app.run([*words, "-b", self.broker.bootstrap])
        return code, capsys.readouterr().out


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("hosts")
    settings = {
        "group.streams.initial.rebalance.delay.ms": "0",
        "share.coordinator.state.topic.replication.factor": "1",
        "share.coordinator.state.topic.min.isr": "1",
    }
    with Broker(jars.NEWEST, secure=False, settings=settings) as broker:
        config = ClusterConfig(bootstrap=broker.bootstrap)
        fresh = examine(config)
        broker.create_topic("orders", 6)
        broker.create_topic("payments", 3)
        broker.produce("orders", {0: 3})
        hosts = StreamsHost(jars.NEWEST, folder), ShareHost(jars.NEWEST, folder)
        made = Site(broker, *hosts, fresh)
        own = {"group.protocol": "streams"}
        for name in ("one", "two"):
            made.streams.start(broker, name, "app", topics=["orders", "payments"], settings=own)
        share = {"bootstrap.servers": broker.bootstrap, "group.id": "shared", "client.id": "sc"}
        made.share.begin(made.share.fresh("sc"), share | {"topics": "orders"})

        def settled() -> bool:
            owns = [
                [bool(member.assignment) for member in each.members]
                for each in read_groups(config, ["app", "shared"])
                if isinstance(each, GroupSnapshot)
            ]
            return owns == [[True, True], [True]]

        wait_for("both groups to settle", settled, timeout=60)
        yield made
        made.streams.kill()
        made.share.kill()


def test_streams_and_share_groups_show_their_members_and_protocol(site: Site, capsys: Said) -> None:
    lines = {line["group_id"]: line for line in answer(site.broker, capsys, "groups")["groups"]}
    assert {
        name: (line["type"], line["protocol"], line["assignor"], line["members"], line["verdict"])
        for name, line in lines.items()
    } == {
        "app": ("streams", "KIP-1071", "sticky", 2, "done"),
        "shared": ("share", "KIP-932", "simple", 1, "blocked"),
    }
    for name, runs in (("app", "KIP-1071, assignor sticky"), ("shared", "KIP-932")):
        code, out = site.run(capsys, "inspect", name)
        assert code == 0
        assert f"runs        {runs}" in out
        assert "0 members" not in out


def test_a_streams_member_owns_only_partitions_that_exist(site: Site, capsys: Said) -> None:
    (group,) = answer(site.broker, capsys, "inspect", "app")["groups"]
    owned = sorted(
        (topic["topic"], number)
        for member in group["members"]
        for topic in member["assignment"]
        for number in topic["partitions"]
    )
    # Tasks 3 to 5 read no partition of payments, which has three.
    assert owned == [("orders", n) for n in range(6)] + [("payments", n) for n in range(3)]
    assert all(member["subscribed_topics"] for member in group["members"])


def test_doctor_gives_no_false_alarm_on_streams_and_share_groups(site: Site, capsys: Said) -> None:
    for name, count in (("app", "2 members"), ("shared", "1 member")):
        rows = {row["source"]: row for row in answer(site.broker, capsys, "doctor", name)["rows"]}
        assert rows["describe the group"]["why"] == f"Stable, {count}"
        assert rows["offsets and lag"]["available"] == "yes"
        assert rows["probe"]["available"] == "no"
        assert "only classic groups have assignor lists" in rows["probe"]["why"]
        assert [row["source"] for row in rows.values() if row["grant"]] == []


def test_doctor_reports_no_missing_acl_on_a_broker_without_groups(site: Site) -> None:
    rows = {row.source: row for row in site.fresh.rows}
    assert rows["offsets topic"].available is Tri.CANNOT_TELL
    assert rows["offsets topic"].why.startswith("there is no __consumer_offsets yet")
    assert rows["brokers' clock"].available is Tri.YES
    assert [row.source for row in site.fresh.rows if row.grant] == []


def test_the_probe_sends_no_join_to_streams_and_share_groups(site: Site) -> None:
    """Since Kafka 4.2 a JoinGroup turns an empty Streams group into a classic one."""
    site.broker.log_requests(True)
    own = {"group.protocol": "streams"}
    done = site.streams.start(site.broker, "gone", "emptied", topics=["orders"], settings=own)
    wait_state(site.broker, "emptied", "Stable", 1)
    done.stop()
    wait_state(site.broker, "emptied", "Empty", 0)
    for name in ("app", "shared", "emptied"):
        snapshot = read_group(site.broker, name, probe=True)
        kind = "share" if name == "shared" else "streams"
        assert snapshot.group.type.value == kind
        assert snapshot.probe is not None
        assert snapshot.probe.refused == f"it is a {kind} group, which has no assignor lists"
    site.broker.log_requests(False)
    log = site.broker.request_log_path.read_text()
    assert '"STREAMS_GROUP_DESCRIBE"' in log
    assert '"JOIN_GROUP"' not in log
    after = read_group(site.broker, "emptied")
    assert (after.group.type.value, after.group.state.value) == ("streams", "Empty")


def test_the_newest_broker_is_identified_by_its_release_version(site: Site) -> None:
    """A release with a newer metadata.version needs one more entry in the table of releases."""
    with RawCluster(ClusterConfig(bootstrap=site.broker.bootstrap)) as raw:
        connection = raw.any(raw.deadline())
        assert broker_version(connection) == ".".join(jars.NEWEST.split(".")[:2])


DESCRIBE_GROUPS, FIND_COORDINATOR, OFFSET_FETCH, LIST_OFFSETS = 15, 10, 9, 2
JOIN_GROUP, FETCH = 11, 1
KINDS = (("range",), ("cooperative-sticky",), ("range", "cooperative-sticky"))
MOST_IN_FLIGHT = 4


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


def test_groups_prints_one_line_per_group_type(broker: Broker, address: str, capsys: Said) -> None:
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


def test_groups_probed_concurrently_receive_each_probe_only_once(
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
