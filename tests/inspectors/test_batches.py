"""Many groups in few requests, and what rebal takes of kafka-python for them."""

import importlib.metadata
import subprocess
import sys
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import kafka.errors
import pytest
from kafka.protocol.admin import cluster as clusters
from kafka.protocol.admin import configs, groups
from kafka.protocol.broker_version_data import BROKER_API_VERSIONS
from kafka.protocol.consumer import fetch, group, offsets
from msgspec.structs import replace

from rebal.groups.compact import NO_LAG
from rebal.groups.model import Cluster, GroupSnapshot, GroupState, GroupType, Member, Tri
from rebal.inspectors import clock
from rebal.inspectors.errors import JOIN_REJECTIONS, RequestError, error_code, error_name
from rebal.inspectors.kafka import describe, probe, read, wire
from rebal.inspectors.kafka.brokers import release_of
from rebal.inspectors.kafka.cluster import broker_version
from rebal.inspectors.kafka.describe import Described, GroupLook, look_at, offsets_of_many
from rebal.inspectors.kafka.listing import GroupFailure
from rebal.inspectors.kafka.reload import LATEST
from rebal.inspectors.kafka.session import Session
from rebal.inspectors.kafka.snapshots import snapshot_of
from rebal.inspectors.kafka.wire import Deadline, request_class

NAMES = [f"g-{number}" for number in range(120)]
SILENT = RequestError("TIMED_OUT", "no answer")


def cluster(*nodes: object) -> Any:
    """Stands for a `RawCluster`: one answer or error for each connection that is asked for."""
    return Mock(deadline=lambda: Deadline(1000), node=Mock(side_effect=nodes or None))


def looks(
    raw: Any, monkeypatch: pytest.MonkeyPatch, error: RequestError | None = None
) -> tuple[list[str], dict[str, GroupFailure], list[int]]:
    """The groups that are found and that fail, and the sizes of requests; `error` is of each."""
    sizes: list[int] = []

    def look_at(_: object, broker: int, some: list[str], *__: object) -> Any:
        sizes.append(len(some))
        return {name: error or GroupLook(described(name), {}) for name in some}

    monkeypatch.setattr(read, "look_at", look_at)
    found, failures = read._looks(raw, 1, NAMES)
    return [look.described.group_id for look in found], failures, sizes


def test_fifty_groups_share_a_request_and_a_silent_broker_is_asked_no_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert looks(cluster(), monkeypatch) == (NAMES, {}, [50, 50, 20])
    raw = cluster(object(), SILENT, object())
    found, failures, _ = looks(raw, monkeypatch)
    assert raw.node.call_count == 2
    assert found == NAMES[:50]
    assert list(failures) == NAMES[50:]
    assert {one.kind for one in failures.values()} == {"timeout"}


@pytest.mark.parametrize(
    ("code", "failed"),
    [
        ("NOT_COORDINATOR", []), ("COORDINATOR_LOAD_IN_PROGRESS", []), ("GROUP_ID_NOT_FOUND", []),
        ("GROUP_AUTHORIZATION_FAILED", NAMES),
    ],
)  # fmt: skip
def test_groups_that_a_batch_does_not_describe_fail_only_if_access_is_denied(
    code: str, failed: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    found, failures, _ = looks(cluster(), monkeypatch, RequestError(code, code))
    assert (found, list(failures)) == ([], failed)


def test_a_group_is_described_although_offset_fetch_is_not_supported() -> None:
    groups = [
        SimpleNamespace(
            group_id=name, error_code=code, group_state="Stable", protocol_type="consumer",
            protocol_data="range", members=[], authorized_operations=None,
        )
        for name, code in (("g", 0), ("gone", 69))
    ]  # fmt: skip

    def version(_: Any, **limits: object) -> int:
        if limits:
            raise RequestError("UNSUPPORTED_VERSION", "the broker has no OffsetFetch")
        return 5

    connection: Any = SimpleNamespace(
        versions={}, version=version, supports=lambda _: False,
        exchange=lambda *_: SimpleNamespace(groups=groups),
    )  # fmt: skip
    deadline = Deadline(1000)
    found = look_at(connection, 1, ["g", "gone"], deadline, lambda: deadline)
    assert found["g"].described.assignor == "range"
    assert isinstance(found["g"].offsets, RequestError)
    assert found["gone"].name == "GROUP_ID_NOT_FOUND"


def test_brokers_before_kafka_3_0_are_asked_for_the_offsets_of_one_group_after_another() -> None:
    part = SimpleNamespace(partition_index=0, committed_offset=7, error_code=0)
    topics = [SimpleNamespace(name="t", partitions=[part])]
    asked: list[str] = []

    def exchange(request: Any, _: object) -> object:
        asked.append(request.group_id)
        return SimpleNamespace(error_code=16 * (request.group_id == "b"), topics=topics)

    connection: Any = SimpleNamespace(version=lambda *_, **__: 7, exchange=exchange)
    found = offsets_of_many(connection, ["a", "b"], Deadline(1000))
    assert asked == ["a", "b"]
    assert found["a"] == {("t", 0): 7}
    assert found["b"].name == "NOT_COORDINATOR"


def test_a_negative_offset_is_an_error_of_its_partition_alone() -> None:
    parts = [
        SimpleNamespace(partition_index=0, error_code=0, offset=-7, leader_id=1),
        SimpleNamespace(partition_index=1, error_code=0, offset=7, leader_id=1),
    ]
    answer = SimpleNamespace(topics=[SimpleNamespace(name="t", partitions=parts)])
    node = SimpleNamespace(send=lambda *_, **__: answer)
    raw: Any = SimpleNamespace(node=lambda *_: node)
    found = Session(raw)._of_leader(1, [("t", 0), ("t", 1)], LATEST, 0, Deadline(1000))
    assert found["t", 0].name == "CORRUPT_MESSAGE"
    assert found["t", 1] == 7


def described(name: str, *, members: bool = True) -> Described:
    return Described(
        group_id=name,
        type=GroupType.CLASSIC,
        state=GroupState.STABLE,
        at=clock.now(),
        coordinator_id=1,
        protocol_type="consumer",
        members=(Member(member_id="m", client_id="m", host="/h"),) if members else (),
    )


def seen(name: str, state: GroupState = GroupState.STABLE) -> GroupSnapshot:
    cluster, address = Cluster(), ("h", 1, None)
    look = replace(described(name), state=state)
    return snapshot_of(look, address=address, cluster=cluster, topics=(), lag=NO_LAG)


def test_groups_are_probed_in_batches_with_a_description_after_each_probe(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    errors = {"b": "INCONSISTENT_GROUP_PROTOCOL", "moved": "NOT_COORDINATOR"}
    left = {"left": 1, "later": 3}
    probes: list[list[tuple[str, str]]] = []

    def look(_: object, broker: int, names: list[str], __: Deadline, joins: Any) -> Any:
        """Answer a write with the probes' errors and with descriptions, turn by turn."""
        probes.append([(each.group_id, each.protocols[0].name) for each in joins])
        error_names = [errors.get(each.group_id, "UNKNOWN_MEMBER_ID") for each in joins]
        return [SimpleNamespace(error_code=error_code(name)) for name in error_names], {
            name: described(name, members=len(probes) < left.get(name, 99)) for name in names
        }

    monkeypatch.setattr(probe, "look_at_classic", look)
    connection = SimpleNamespace(versions={request_class("JoinGroup").API_KEY: (0, 9)})
    asked = [
        (seen("a"), ("range", "sticky")),
        (seen("b"), ("range", "range")),
        (seen("moved"), ("range",)),
        (seen("left"), ("range",)),
        (seen("later"), ("range", "sticky")),
        (seen("empty", GroupState.EMPTY), ("range",)),
    ]
    found = probe.probe_groups(cluster(*[connection] * 20), asked, 1)
    # Each group is described before its probe and after each answer. One that changed is not
    # probed again; it is left to be read alone, as is one whose coordinator moves.
    assert probes == [
        [],
        [("a", "range"), ("b", "range"), ("moved", "range"), ("later", "range")],
        [("a", "sticky"), ("later", "sticky")],
    ]
    assert {name: [each.supported for each in one.answers] for name, one in found.items()} == {
        "empty": [],
        "a": [Tri.YES, Tri.YES],
        "b": [Tri.NO],
    }
    assert found["empty"].refused == "it is Empty, not Stable: try again when it is"


def test_a_coordinator_that_does_not_answer_leaves_all_its_groups_unprobed() -> None:
    session: Any = SimpleNamespace(raw=cluster(SILENT))
    found = read._probed(session, 1, [seen("a"), seen("b")], ())
    assert {name: one.probe.refused for name, one in found.items()} == dict.fromkeys(
        "ab", "the group could not be described around the probe: no answer"
    )


@pytest.mark.parametrize(
    ("module", "name"),
    [
        (group, "JoinGroup"), (group, "OffsetFetch"), (fetch, "Fetch"), (groups, "ListGroups"),
        (offsets, "ListOffsets"), (offsets, "OffsetForLeaderEpoch"), (configs, "DescribeConfigs"),
        (clusters, "DescribeQuorum"),
    ],
)  # fmt: skip
def test_rebals_protocol_messages_equal_those_of_kafka_python(module: Any, name: str) -> None:
    ours, theirs = request_class(name), getattr(module, f"{name}Request")
    assert ours is not theirs
    assert (ours.API_KEY, ours.max_version) == (theirs.API_KEY, theirs.max_version)
    # kafka-python's clients read a response by the class that was defined last.
    made = {one.__name__: one for one in wire._REGISTERED}[f"{name}Response"]
    assert made.json == getattr(module, f"{name}Response").json


def test_describe_groups_uses_kafka_pythons_own_response_class() -> None:
    """kafka-python patches this response class, so rebal defines none of its own."""
    connection: Any = SimpleNamespace(version=lambda _: 5)
    request = describe._classic_request(connection, ["g"], operations=True)
    request.with_header()
    assert request.header.get_response_class()[None] is groups.DescribeGroupsResponse


def test_reading_a_group_imports_no_kafka_python_client_but_others_still_can() -> None:
    code = """
import sys
import rebal.inspectors.kafka.read
clients = {"kafka.admin", "kafka.consumer", "kafka.producer", "kafka.net.manager",
           "kafka.protocol.admin.acl", "kafka.protocol.broker_version_data",
           "asyncio.base_events", "urllib.request"}
print(sorted(clients & sys.modules.keys()))
from kafka import KafkaAdminClient, KafkaConsumer
from kafka.net import KafkaConnection
from kafka.protocol.admin import ListGroupsRequest
from kafka.protocol.admin.groups import ListGroupsRequest as same
import asyncio, kafka, urllib.request
from asyncio import events, Queue
asyncio.run(asyncio.sleep(0))
print(ListGroupsRequest is same, kafka.__version__, type(kafka).__name__, hasattr(kafka, "no"))
print(sorted(clients - sys.modules.keys()))
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    version = importlib.metadata.version("kafka-python")
    assert done.stdout.splitlines() == ["[]", f"True {version} module False", "[]"]


# kafka-python keeps names that Kafka has changed since.
RENAMED = {6: "NOT_LEADER_OR_FOLLOWER", 10: "MESSAGE_TOO_LARGE", 17: "INVALID_TOPIC_EXCEPTION"}


def test_every_error_code_of_kafka_python_has_its_name() -> None:
    known = {
        kind.errno: kind.message
        for kind in vars(kafka.errors).values()
        if isinstance(kind, type) and issubclass(kind, kafka.errors.BrokerResponseError)
        if isinstance(getattr(kind, "errno", None), int) and kind.errno > 0
    }
    assert len(known) > 100
    for code, name in known.items():
        assert error_name(code) == RENAMED.get(code, name)


@pytest.mark.parametrize(("code", "name"), [(0, "NONE"), (-1, "UNKNOWN_SERVER_ERROR")])
def test_codes_outside_the_table_have_names(code: int, name: str) -> None:
    assert error_name(code) == name
    assert error_name(9999) == "ERROR_9999"


def test_an_error_name_gives_its_code() -> None:
    assert [error_code(name) for name in JOIN_REJECTIONS] == [23, 26, 81, 82]
    assert error_name(error_code("MEMBER_ID_REQUIRED")) == "MEMBER_ID_REQUIRED"


def connection(release: tuple[int, int], metadata_version: int | None = None) -> Any:
    features = {} if metadata_version is None else {"metadata.version": metadata_version}
    versions = BROKER_API_VERSIONS[release]
    return SimpleNamespace(versions=versions, supported_features=features)


@pytest.mark.parametrize(
    ("requests", "metadata_version", "version", "release"),
    [
        ((3, 9), 21, "3.9", (3, 9)),
        ((4, 0), 25, "4.0", (4, 0)),
        ((4, 1), 33, "4.4", (4, 4)),
        # The metadata.version decides, whatever the requests say.
        ((3, 9), 27, "4.1", (4, 1)),
        # An unknown metadata.version, and a broker with ZooKeeper, which has none.
        ((4, 0), 9999, "4.0 or later", (4, 0)),
        ((2, 8), None, "2.8 or later", (2, 8)),
    ],
)
def test_the_broker_release_is_derived_from_metadata_version_or_api_versions(
    requests: tuple[int, int], metadata_version: int | None, version: str, release: tuple[int, ...]
) -> None:
    broker = connection(requests, metadata_version)
    assert broker_version(broker) == version
    assert release_of(version) == release
