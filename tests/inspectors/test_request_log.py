"""The broker's request log, and that of the captures against what its members wrote down."""

import gzip
import io
import json
import os
from collections import Counter
from datetime import UTC, datetime
from functools import cache
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from rebal.groups.evidence.observations import Introduced, Joined, Left, Rebalanced, Refused
from rebal.inspectors.errors import error_name
from rebal.inspectors.logs.lines import NO_OFFSET
from rebal.inspectors.logs.requests.lines import MARK, Request, is_cut_off, may_concern_group, parse
from rebal.inspectors.logs.requests.reader import read_request_log
from tests.fleet.truth import NO_LEAVE, Truth
from tests.inspectors.logs import DATA, of_kind
from tests.software import JAVA
from tests.tables import table

AT = datetime(2026, 11, 21, 2, 4, 44, 313000, tzinfo=UTC)
NO_JOIN = (
    "--request-log: none of the {} lines is a member's join. A stable group sends none; leave the "
    "log on while one member restarts."
)


def body(api="JOIN_GROUP", version=9, request=None, response=None, client_id="c-0", **more):
    line = {
        "isForwarded": False,
        "requestHeader": {
            "requestApiKey": 11,
            "requestApiVersion": version,
            "correlationId": 17,
            "clientId": client_id,
            "requestApiKeyName": api,
        },
        "request": {"groupId": "g", **(request or {})},
        "response": {"throttleTimeMs": 0, "errorCode": 0, **(response or {})},
        "connection": "10.0.0.9:9092-10.1.2.3:42052-2-2",
        "totalTimeMs": 17.3,
        "clientInformation": {"softwareName": "apache-kafka-java", "softwareVersion": "3.9.1"},
        **more,
    }
    return json.dumps(line, separators=(",", ":"))


def join(names=("range",), member_id="", answered="c-0-id", error=0, instance=None, **more):
    request = {
        "memberId": member_id,
        "groupInstanceId": instance,
        "protocolType": more.pop("protocol_type", "consumer"),
        "protocols": [{"name": n, "metadata": "AAEAAA=="} for n in names],
        "reason": "",
    }
    response = {
        "errorCode": error,
        "generationId": more.pop("generation", 3),
        "protocolName": names[0] if names else None,
        "memberId": answered,
        "members": more.pop("members", []),
        **more.pop("response", {}),
    }
    return body(request=request, response=response, **more)


def read(*lines, **options):
    text = "".join(f"{line}\n" for line in lines).encode()
    return read_request_log([io.BytesIO(text)], **options)


def line(json_text, layout="[2026-11-21 02:04:44,313] DEBUG {} (kafka.request.logger)"):
    return layout.format("Completed request:" + json_text)


@pytest.mark.parametrize("layout", table("request_log", "layouts"))
def test_a_join_is_read_in_any_log_layout_around_its_json(layout):
    reading = read(line(join(("cooperative-sticky", "range")), layout))
    (seen,) = reading.observations
    assert (seen.list, seen.member_id, seen.at) == (("cooperative-sticky", "range"), "c-0-id", AT)
    assert seen.host == "10.1.2.3"
    assert (seen.software.name, seen.software.version) == ("apache-kafka-java", "3.9.1")
    assert reading.notes == ()
    assert [log.last_at for log in reading.logs] == [AT]


def test_a_kip_848_members_heartbeats_show_its_software_once():
    said = {"clientInformation": {"softwareName": "kgo", "softwareVersion": "v1.22.2"}}

    def heartbeat(member_id, **more):
        asked, answered = {"memberId": member_id}, {"memberId": member_id, **more}
        return line(body("CONSUMER_GROUP_HEARTBEAT", 1, asked, answered, **said))

    fenced = heartbeat("m-2", errorCode=110)
    reading = read(heartbeat("m-1"), fenced, heartbeat("m-1"), heartbeat("m-3"))
    seen = [(one.member_id, one.software.family) for one in of_kind(reading, Introduced)]
    assert seen == [("m-1", "franz-go"), ("m-3", "franz-go")]


@pytest.mark.parametrize(
    "wrapper",
    [
        lambda text: json.dumps(
            {"log": text, "stream": "stdout", "time": "2026-11-21T02:04:44.313Z"}
        ),
        lambda text: json.dumps(
            {"instant": {"epochSecond": 1795226684, "nanoOfSecond": 313000000}, "message": text}
        ),
        lambda text: "[pod/kafka-0/kafka] " + json.dumps({"ts": 1795226684.313, "msg": text}),
        lambda text: "kafka[17]: " + json.dumps({"ts": 1795226684.313, "msg": text}),
        lambda text: '{pod="kafka-0"} ' + json.dumps({"ts": 1795226684.313, "msg": text}),
        lambda text: json.dumps({"events": [{"ts": 1795226684.313, "msg": text}]}, indent=2),
        lambda text: '"2026-11-21T02:04:44.313Z","{}"'.format(text.replace('"', '""')),
    ],
    ids=["docker", "log4j2", "kubectl --prefix", "syslog", "loki", "pretty", "csv"],
)
def test_a_request_log_line_in_a_json_wrapper_is_read(wrapper):
    (seen,) = read(wrapper("Completed request:" + join())).observations
    assert (seen.list, seen.at, seen.local) == (("range",), AT, False)
    # The wrapper's time, with its zone, has precedence over a time without one.
    (seen,) = read(wrapper(line(join(), "[2026-11-21 11:04:44,313] DEBUG {}"))).observations
    assert (seen.at, seen.local) == (AT, False)


@pytest.mark.parametrize("around", [list, lambda entries: {"events": entries}])
def test_several_log_entries_in_one_json_line_are_read(around):
    entries = [{"msg": "Completed request:" + join(answered=each)} for each in ("a-0", "b-0")]
    assert [one.member_id for one in read(json.dumps(around(entries))).observations] == [
        "a-0",
        "b-0",
    ]


@pytest.mark.parametrize("probe", [True, False], ids=["rebal's probe", "errors of a try"])
def test_joins_of_rebals_probe_and_retriable_join_errors_give_no_observation(probe):
    codes = (23, 25) if probe else (14, 16, 25)
    answers = [join(error=code, answered="", generation=-1) for code in codes]
    reading = read(
        *(line(each.replace("AAEAAA==", "" if probe else "AAEAAA==")) for each in answers)
    )
    assert reading.observations == ()
    assert reading.notes == (NO_JOIN.format(len(codes)),)


def leave(version, member_id, error=0, instance=None, reason=None):
    request = {"members": [{"memberId": member_id, "groupInstanceId": instance, "reason": reason}]}
    answer = {"members": [{"memberId": member_id, "groupInstanceId": instance, "errorCode": error}]}
    return line(body("LEAVE_GROUP", version, request, answer))


def test_leave_requests_of_every_version_are_read():
    reading = read(
        line(body("LEAVE_GROUP", 1, {"memberId": "a"})),
        leave(5, "b", reason="closed"),
        leave(4, "x", error=25),
        line(body("LEAVE_GROUP", 1, {"memberId": "y"}, {"errorCode": 25})),
        # An administrator removes a static member by its instance id.
        line(join(instance="i-1", answered="i-1-old")),
        leave(5, "", instance="i-1", reason="removed"),
    )
    assert [(o.member_id, o.reason) for o in of_kind(reading, Left)] == [
        ("a", None),
        ("b", "closed"),
        ("i-1-old", "removed"),
    ]


def test_a_static_restart_replaces_its_former_id_and_completes_no_rebalance():
    first = join(instance="i-1", answered="i-1-old", members=[{"memberId": "i-1-old"}])
    again = join(
        instance="i-1",
        answered="i-1-new",
        members=[{"memberId": "i-1-new"}],
        response={"skipAssignment": True},
    )
    before, set_back = line(first), line(again, "[2026-11-21 02:00:00,000] DEBUG {}")
    again = line(again, "[2026-11-21 02:05:00,000] DEBUG {}")
    newest = line(join(answered="c"), "[2026-11-21 02:06:00,000] DEBUG {}")
    # A store exports newest first; a log that ends with its newest line had its clock set back.
    for lines in ((before, again), (again, before), (before, set_back, newest)):
        reading = read(*lines)
        replaced = [o.replaced_member_id for o in of_kind(reading, Joined)]
        assert replaced[:2] == [None, "i-1-old"]
        assert [o.generation_id for o in of_kind(reading, Rebalanced)] == [3]


def test_a_followers_join_proves_no_rebalance_but_the_leaders_sync_does():
    follower = line(join(member_id="c-0-id", generation=7))
    asked = {"generationId": 7, "memberId": "l", "assignments": [{"memberId": "l"}]}
    sync = line(body("SYNC_GROUP", 5, asked, {"protocolName": "range"}))
    assert of_kind(read(follower), Rebalanced) == []
    rebalances = of_kind(read(follower, sync, sync), Rebalanced)
    assert [(o.generation_id, o.assignor, o.at) for o in rebalances] == [(7, "range", AT)]


def test_truncated_lines_and_lines_of_old_brokers_are_counted_in_a_note():
    whole = line(join())
    old = (
        "[2026-11-21 02:04:44,313] DEBUG Completed request:RequestHeader(apiKey=JOIN_GROUP, "
        "apiVersion=5, clientId=c) -- {group_id=g},response:{} (kafka.request.logger)"
    )
    fetch = line(body("FETCH", 17))
    reading = read("java.lang.Exception: x", "\tat y", whole, whole[:400], "", old, fetch)
    assert len(reading.observations) == 1
    assert reading.notes == (
        "--request-log: 2 lines could not be read: they were cut off, or are in the format of "
        "brokers before 2.8. Their evidence is missing.",
    )
    assert read(fetch, "").notes == (NO_JOIN.format(2),)


def test_rotated_request_logs_are_read_in_any_order_and_with_a_truncated_gz(tmp_path: Path):
    text = "\n".join(line(join(instance="i", answered=f"id-{n}-{n * 7919}")) for n in range(2000))
    older, newer = tmp_path / "request.log.1.gz", tmp_path / "request.log"
    older.write_bytes(gzip.compress(text.encode())[:-2000])
    newer.write_text(line(join(instance="i", answered="new"), "[2026-11-21 03:00:00,000] DEBUG {}"))
    reading = read_request_log([newer, older])
    assert reading.notes == ("--request-log: gz data ends too early; fetch the file again, whole.",)
    *before, seen = reading.observations
    assert 100 < len(before) < 2000
    assert (seen.member_id, seen.replaced_member_id) == ("new", before[-1].member_id)
    assert str(older) in before[0].evidence.detail


_WHOLE = line(join(("cooperative-sticky", "range"), instance="i", members=[{"memberId": "x"}]))


@given(
    st.integers(min_value=0, max_value=len(_WHOLE)),
    st.lists(st.tuples(st.integers(0, len(_WHOLE) - 1), st.integers(0, 255)), max_size=4),
)
@example(389, [(379, 58)])
def test_truncated_and_mutated_request_log_lines_raise_no_error(length, changes):
    data = bytearray(_WHOLE.encode())
    for place, value in changes:
        data[place] = value
    reading = read_request_log([io.BytesIO(bytes(data[:length]))])
    assert len(of_kind(reading, Joined)) <= 1


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["memberId", "members", "protocols", "name", "metadata", "errorCode"]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=8,
)


@given(
    st.sampled_from(["JOIN_GROUP", "SYNC_GROUP", "LEAVE_GROUP", "CONSUMER_GROUP_HEARTBEAT"]),
    st.dictionaries(st.sampled_from(["memberId", "members", "protocols", "assignments"]), _JSON),
    st.dictionaries(st.sampled_from(["memberId", "members", "errorCode", "generationId"]), _JSON),
)
def test_valid_json_of_the_wrong_shape_raises_nothing(api, request, response):
    read(line(body(api, 5, request, response)))


@pytest.mark.parametrize(
    ("error", "kind"), [(23, "consumer"), (23, "connect"), (26, "other"), (81, "x"), (82, "x")]
)
def test_every_join_error_that_stops_the_client_is_a_rejection(error, kind):
    text = join(("range", "x"), error=error, instance="i-1", answered="", protocol_type=kind)
    reading = read(line(text))
    (seen,) = reading.observations
    assert isinstance(seen, Refused)
    assert (seen.error, seen.instance_id, seen.host) == (error_name(error), "i-1", "10.1.2.3")
    assert (seen.list, seen.client_id) == (("range", "x"), "c-0")
    assert reading.notes == ()
    assert seen.connection == "10.0.0.9:9092-10.1.2.3:42052-2-2"


def test_a_member_id_that_was_only_given_is_not_an_accepted_join():
    connection = "0:0:0:0:0:0:0:1:9092-fe80:0:0:0:1:2:3:4:42040-0-2"
    given = line(join(error=79, answered="m-1", connection=connection))
    accepted = line(join(member_id="m-1", answered="m-1", connection=connection))
    seen = [(o.accepted, o.new, o.host) for o in read(given, accepted).observations]
    ipv6 = "fe80:0:0:0:1:2:3:4"
    assert seen == [(False, True, ipv6), (True, False, ipv6)]


def test_a_request_log_shows_its_broker_and_the_groups_members():
    sent = {"generationId": 1, "memberId": "m-1", "groupInstanceId": None}
    for error, expected in ((0, {("g", "m-1")}), (25, set())):
        heartbeat = line(body("HEARTBEAT", 4, sent, {"errorCode": error}))
        (log,) = read(line(join()), heartbeat).logs
        assert (log.broker, log.local, log.last_at) == ("10.0.0.9:9092", True, AT)
        assert log.members == expected


def test_a_fenced_member_is_one_rejection_whatever_it_sends_afterwards():
    commit = {"topics": [{"name": "t", "partitions": [{"partitionIndex": 0, "errorCode": 82}]}]}
    sent = {"memberId": "old", "groupInstanceId": "i-0"}
    lines = [
        line(body("OFFSET_COMMIT", 9, sent, commit)),
        line(body("HEARTBEAT", 4, sent, {"errorCode": 82})),
        line(body("HEARTBEAT", 4, sent, {"errorCode": 27})),
        line(body("SYNC_GROUP", 5, {**sent, "memberId": "other"}, {"errorCode": 82})),
        line(body("HEARTBEAT", 4, {**sent, "groupInstanceId": None}, {"errorCode": 82})),
    ]
    found = read(*lines).observations
    assert {type(one) for one in found} == {Refused}
    assert {(o.error, o.instance_id, o.list) for o in found} == {("FENCED_INSTANCE_ID", "i-0", ())}
    assert {(o.client_id, o.host) for o in found} == {("c-0", "10.1.2.3")}
    assert [one.line for one in found] == [1, 4]


CAPTURED = DATA / "captures" / "kafka-request.log.gz"
PREFIX = b"[2026-11-21 02:06:10,290] DEBUG "
OF_GROUPS = ("JOIN_GROUP", "SYNC_GROUP", "LEAVE_GROUP", "CONSUMER_GROUP_HEARTBEAT")


def request_of(api: str, error: int = 0, client: str = "c") -> str:
    return body(api, 4, {"memberId": "m"}, {"errorCode": error}, client)


def plain(api: str, error: int = 0, client: str = "c") -> bytes:
    return PREFIX + MARK + request_of(api, error, client).encode() + b" (kafka.request.logger)"


def wrapped(api: str, error: int = 0, client: str = "c") -> bytes:
    return json.dumps({"message": plain(api, error, client).decode()}).encode()


def spaced(api: str, error: int = 0, client: str = "c") -> bytes:
    return PREFIX + MARK + json.dumps(json.loads(request_of(api, error, client))).encode()


@pytest.mark.parametrize("layout", [plain, wrapped, spaced])
def test_only_group_requests_are_parsed(layout):
    for api in OF_GROUPS:
        assert may_concern_group(layout(api))
        assert may_concern_group(layout(api), heartbeats=True)
    for api in ("FETCH", "OFFSET_COMMIT", "DESCRIBE_GROUPS", "CONSUMER_GROUP_DESCRIBE"):
        assert not may_concern_group(layout(api), heartbeats=True)
    assert not may_concern_group(layout("BROKER_HEARTBEAT"), heartbeats=True)
    assert not may_concern_group(layout("HEARTBEAT", 27))
    assert may_concern_group(layout("HEARTBEAT", 27), heartbeats=True)
    assert not may_concern_group(layout("HEARTBEAT"), heartbeats=True)


@pytest.mark.parametrize("layout", [plain, wrapped, spaced])
@pytest.mark.parametrize(
    "client",
    ['"requestApiKeyName":"FETCH"', 'x","requestApiKeyName":"FETCH","y":"', "requestApiKeyName"],
)
def test_a_client_id_that_looks_like_json_does_not_hide_its_request(layout, client):
    found = parse(layout("JOIN_GROUP", client=client), "log", 1, NO_OFFSET)
    assert isinstance(found, Request)
    assert (found.api, found.client_id) == ("JOIN_GROUP", client)


def test_skipped_lines_of_the_captured_log_concern_no_member():
    with gzip.open(CAPTURED, "rb") as lines:
        captured = [line for line in lines if MARK in line]
    passed = [line for line in captured if not may_concern_group(line, heartbeats=True)]
    assert len(captured) > 4000
    assert len(passed) > 2000
    for line in passed:
        whole = json.loads(line[line.index(b"{") : line.rindex(b"}") + 1])
        api = whole["requestHeader"]["requestApiKeyName"]
        assert api not in OF_GROUPS
        assert api != "HEARTBEAT" or whole["response"]["errorCode"] == 0


def test_a_line_that_ends_before_its_api_name_counts_as_truncated():
    line = plain("FETCH")
    end = line.index(b"FETCH") + len(b'FETCH"')
    assert all(is_cut_off(line[:size]) for size in range(line.index(MARK), end))
    assert not any(is_cut_off(line[:size]) for size in range(end, len(line) + 1))
    assert not is_cut_off(PREFIX + MARK + b"RequestHeader(apiKey=FETCH, apiVersion=11) -- {")


BUNDLED = Path(__file__).parents[1] / "data/captures"
CAPTURES = Path(os.environ.get("REBAL_CAPTURES") or BUNDLED)
# What each client tells the broker of itself (KIP-511), its version perhaps with a `v` before it or
# more behind it.
NAMES = {
    "librdkafka": "confluent-kafka-python",
    "franz-go": "kgo",
    **dict.fromkeys(JAVA, "apache-kafka-java"),
}
ANSWERED_LATE = 15_000
"""Milliseconds that a rebalance may take, of which a join waits for the end."""
OWN_FAULT = ("same protocol type", "common RebalanceProtocol", "Failed to construct")
"""What members die of when their own client refuses their settings."""


@pytest.fixture(scope="module")
def reading():
    return read_request_log([CAPTURES / "kafka-request.log.gz"])


@cache
def _truth():
    return Truth(CAPTURES)


def _within(observations, kind, run):
    """Observations of one run: a join may be answered when who asked has gone."""
    begin = datetime.fromtimestamp(run.start / 1000, UTC)
    end = (run.gone or run.end or _truth().end) + ANSWERED_LATE
    until = datetime.fromtimestamp(max(run.end or 0, min(end, run.next_start)) / 1000, UTC)
    return [
        o
        for o in observations
        if isinstance(o, kind)
        and o.group_id == run.group
        and run.is_client(o.client_id)
        and begin <= o.at <= until
    ]


def _never_joins(run):
    """KIP-848 members send no assignors; some settings are refused by the client itself."""
    return run.speaks == "consumer" or any(text in run.error for text in OWN_FAULT)


def test_the_captured_log_shows_every_members_assignor_list_software_and_instance(reading):
    checked = silent = 0
    for run in _truth().runs():
        found = _within(reading.observations, (Joined, Refused), run)
        if _never_joins(run):
            twins = [each for each in _truth().groups[run.group] if each.client == run.client]
            assert not found or len(twins) > 1, (run, found)
            continue
        assert found or not run.joined, run
        silent += not found
        for seen in found:
            checked += 1
            # A heartbeat that is fenced has no list.
            fenced = isinstance(seen, Refused) and seen.error == "FENCED_INSTANCE_ID"
            assert seen.list == (() if fenced else run.assignors), (run, seen)
            assert seen.instance_id == run.instance, (run, seen)
            shown = seen.software
            assert (shown is not None) is bool(run.says_software), (run, seen)
            if shown is not None:
                assert shown.name == NAMES.get(run.family, run.family), (run, seen)
                assert (shown.version or "").removeprefix("v").startswith(run.version), (run, seen)
    assert checked > (80 if CAPTURES == BUNDLED else 0)
    assert CAPTURES != BUNDLED or silent == 1


def test_every_join_in_the_captured_log_belongs_to_a_client_that_was_run(reading):
    explained = {
        id(o)
        for run in _truth().runs()
        for o in _within(reading.observations, (Joined, Refused), run)
    }
    joins = [o for o in reading.observations if isinstance(o, Joined | Refused)]
    assert [o for o in joins if id(o) not in explained] == []


def test_every_rejection_in_the_captured_log_is_of_a_client_that_was_rejected(reading):
    expected = Counter()
    for run in _truth().runs():
        if _truth().refused(run):
            # A client that a rejection does not stop joins again and again.
            expected[run.group, run.client, run.assignors] += run.how == "died"
    seen = Counter(
        (o.group_id, o.client_id, o.list)
        for o in reading.observations
        if isinstance(o, Refused) and o.error == "INCONSISTENT_GROUP_PROTOCOL"
    )
    assert set(seen) == set(expected)
    for key, times in expected.items():
        assert seen[key] >= max(times, 1), key
        if times:
            assert seen[key] == times, key


def test_dynamic_members_that_stop_cleanly_leave_in_the_captured_log(reading):
    left = [o for o in reading.observations if isinstance(o, Left)]
    ids = {o.member_id for o in left}
    missing = []
    for run in _truth().runs():
        if run.how != "stop" or run.instance or run.speaks != "classic" or run.family in NO_LEAVE:
            continue
        joined = _within(reading.observations, Joined, run)
        # A member that the coordinator has removed cannot leave.
        if joined and not (ids | _truth().removed) & {o.member_id for o in joined}:
            missing.append(run)
    assert not missing
