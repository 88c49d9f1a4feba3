"""The request log of the captures against the ground truth that its members wrote down."""

import os
from collections import Counter
from datetime import UTC, datetime
from functools import cache
from pathlib import Path

import pytest

from rebal.groups.evidence.observations import Joined, Left, Refused
from rebal.inspectors.logs.requests.reader import read_request_log
from tests.fleet.truth import NO_LEAVE, Truth
from tests.software import JAVA

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


def test_every_member_has_its_list_software_and_instance(reading):
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
            told = seen.software
            assert (told is not None) is bool(run.says_software), (run, seen)
            if told is not None:
                assert told.name == NAMES.get(run.family, run.family), (run, seen)
                assert (told.version or "").removeprefix("v").startswith(run.version), (run, seen)
    assert checked > (80 if CAPTURES == BUNDLED else 0)
    assert CAPTURES != BUNDLED or silent == 1


def test_every_join_belongs_to_a_run(reading):
    explained = {
        id(o)
        for run in _truth().runs()
        for o in _within(reading.observations, (Joined, Refused), run)
    }
    joins = [o for o in reading.observations if isinstance(o, Joined | Refused)]
    assert [o for o in joins if id(o) not in explained] == []


def test_every_refusal_is_a_run_that_was_refused(reading):
    expected = Counter()
    for run in _truth().runs():
        if _truth().refused(run):
            # who does not die of it asks again and again
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


def test_clean_stops_of_dynamic_members_leave(reading):
    left = [o for o in reading.observations if isinstance(o, Left)]
    ids = {o.member_id for o in left}
    missing = []
    for run in _truth().runs():
        if run.how != "stop" or run.instance or run.speaks != "classic" or run.family in NO_LEAVE:
            continue
        joined = _within(reading.observations, Joined, run)
        # Whom the coordinator has removed is no member that could leave.
        if joined and not (ids | _truth().removed) & {o.member_id for o in joined}:
            missing.append(run)
    assert not missing
