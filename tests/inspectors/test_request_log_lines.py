"""What the bytes of a request line tell before it is parsed, and the usual times."""

from __future__ import annotations

import gzip
import json
from datetime import UTC, datetime, timedelta

import pytest

from rebal.inspectors.logs.lines import NO_OFFSET, stamp_of
from rebal.inspectors.logs.requests.lines import MARK, Request, is_cut_off, may_concern_group, parse
from tests.inspectors.logs import DATA
from tests.inspectors.test_request_log import body

LOG = DATA / "captures" / "kafka-request.log.gz"
PREFIX = b"[2026-11-21 02:06:10,290] DEBUG "
OF_GROUPS = ("JOIN_GROUP", "SYNC_GROUP", "LEAVE_GROUP", "CONSUMER_GROUP_HEARTBEAT")


def request(api: str, error: int = 0, client: str = "c") -> str:
    return body(api, 4, {"memberId": "m"}, {"errorCode": error}, client)


def plain(api: str, error: int = 0, client: str = "c") -> bytes:
    return PREFIX + MARK + request(api, error, client).encode() + b" (kafka.request.logger)"


def wrapped(api: str, error: int = 0, client: str = "c") -> bytes:
    return json.dumps({"message": plain(api, error, client).decode()}).encode()


def spaced(api: str, error: int = 0, client: str = "c") -> bytes:
    return PREFIX + MARK + json.dumps(json.loads(request(api, error, client))).encode()


@pytest.mark.parametrize("layout", [plain, wrapped, spaced])
def test_only_group_requests_are_parsed(layout) -> None:
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
def test_a_client_id_does_not_hide_its_request(layout, client: str) -> None:
    found = parse(layout("JOIN_GROUP", client=client), "log", 1, NO_OFFSET)
    assert isinstance(found, Request)
    assert (found.api, found.client_id) == ("JOIN_GROUP", client)


def test_what_is_passed_over_in_the_captured_log_says_nothing() -> None:
    with gzip.open(LOG, "rb") as lines:
        captured = [line for line in lines if MARK in line]
    passed = [line for line in captured if not may_concern_group(line, heartbeats=True)]
    assert len(captured) > 4000
    assert len(passed) > 2000
    for line in passed:
        whole = json.loads(line[line.index(b"{") : line.rindex(b"}") + 1])
        api = whole["requestHeader"]["requestApiKeyName"]
        assert api not in OF_GROUPS
        assert api != "HEARTBEAT" or whole["response"]["errorCode"] == 0


def test_a_line_that_ends_before_its_name_is_cut_off() -> None:
    line = plain("FETCH")
    end = line.index(b"FETCH") + len(b'FETCH"')
    assert all(is_cut_off(line[:size]) for size in range(line.index(MARK), end))
    assert not any(is_cut_off(line[:size]) for size in range(end, len(line) + 1))
    assert not is_cut_off(PREFIX + MARK + b"RequestHeader(apiKey=FETCH, apiVersion=11) -- {")


@pytest.mark.parametrize(
    ("prefix", "seconds"),
    [
        (PREFIX, 10.29),
        (b"2026-11-21 02:06:10.290 DEBUG ", 10.29),
        (b"2026-11-21T02:06:10,290 TRACE", 10.29),
        (b"[2026-11-21 02:06:10,290] DEBUG [broker-1] ", 10.29),
        (b"2026-11-21T02:06:10.290123Z stdout F ", 10.290123),
        (b"[2026-13-21 02:06:10,290] DEBUG ", None),
        (b"DEBUG ", None),
    ],
)
def test_times_are_the_same_by_the_short_way(prefix: bytes, seconds: float | None) -> None:
    found = parse(prefix + MARK + body("JOIN_GROUP").encode(), "log", 1, timedelta(hours=1))
    assert isinstance(found, Request)
    stamp = stamp_of(prefix.decode(), timedelta(hours=1))
    assert found.at == (stamp and stamp.at)
    if seconds is None:
        assert found.at is None
    elif b"Z" not in prefix:
        assert found.at == datetime(2026, 11, 21, 1, 6, tzinfo=UTC) + timedelta(seconds=seconds)
