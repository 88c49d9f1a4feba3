"""The request log of the captures against the ground truth that its members wrote down."""

import itertools
import os
from collections import Counter
from datetime import UTC, datetime
from functools import cache
from pathlib import Path

import pytest

from rebal.groups.evidence.observations import Joined, Left, Rebalanced, Refused
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


@pytest.fixture(scope="module")
def bundled():
    """The story that is known by its groups' names."""
    return read_request_log([BUNDLED / "kafka-request.log.gz"])


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


def test_every_member_has_its_list_software_and_instance(reading, capsys):
    facts = Counter()
    wrong = []
    for run in _truth().runs():
        found = _within(reading.observations, (Joined, Refused), run)
        if _never_joins(run):
            facts["runs that reach no coordinator"] += 1
            twins = [each for each in _truth().groups[run.group] if each.client == run.client]
            assert not found or len(twins) > 1, (run, found)
            continue
        facts["runs"] += 1
        if not found and not run.joined:
            facts["runs stopped before they joined"] += 1
            continue
        if not found:
            wrong.append(("no line", run))
            continue
        for seen in found:
            facts["lists"] += 1
            # A heartbeat that is fenced has no list.
            fenced = isinstance(seen, Refused) and seen.error == "FENCED_INSTANCE_ID"
            if seen.list != (() if fenced else run.assignors):
                wrong.append(("list", run, seen))
            facts["instance ids"] += 1
            if seen.instance_id != run.instance:
                wrong.append(("instance", run, seen))
            facts["software"] += 1
            told = seen.software
            if not run.says_software:
                if told is not None:
                    wrong.append(("software", run, seen))
            elif (
                told is None
                or told.name != NAMES.get(run.family, run.family)
                or not (told.version or "").removeprefix("v").startswith(run.version)
            ):
                wrong.append(("software", run, told))
    with capsys.disabled():
        print("\nrequest log against the truth:", dict(facts), "wrong:", len(wrong))
    assert not wrong
    assert facts["lists"]
    if CAPTURES == BUNDLED:
        assert facts["runs"] > 80
        assert facts["runs stopped before they joined"] == 1


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


def test_static_restarts_name_the_member_they_replace(bundled):
    joins = [
        o
        for o in bundled.observations
        if isinstance(o, Joined) and o.group_id == "static-orders" and o.instance_id == "static-1"
    ]
    ids = list(dict.fromkeys(o.member_id for o in joins))
    assert len(ids) == 4
    replaced = [o.replaced_member_id for o in joins if o.replaced_member_id]
    assert replaced == ids[:-1]


def test_generations_rise(reading):
    by_group = {}
    for seen in reading.observations:
        if isinstance(seen, Rebalanced):
            by_group.setdefault(seen.group_id, []).append(seen.generation_id)
    again = {group_id for group_id, _ in _truth().deleted}
    again |= {run.group for run in _truth().runs() if run.speaks == "consumer"}
    for group_id, numbers in by_group.items():
        # A deleted group starts again, and an empty one of the other protocol (KIP-848); no other
        # group's generation ever falls or repeats.
        ones = [n for n, number in enumerate(numbers) if number == 1] or [0]
        assert group_id in again or len(ones) == 1, group_id
        for first, last in itertools.pairwise([*ones, len(numbers)]):
            part = numbers[first:last]
            assert part == sorted(set(part)), group_id


def test_static_restarts_complete_no_rebalance(bundled):
    # so-1 restarted twice inside its session timeout between these: same generation, no rebalance.
    static = [
        o
        for o in bundled.observations
        if isinstance(o, Rebalanced) and o.group_id == "static-orders"
    ]
    restarts = [
        o
        for o in bundled.observations
        if isinstance(o, Joined) and o.group_id == "static-orders" and o.replaced_member_id
    ]
    assert restarts
    quiet = [o for o in restarts if o.at not in {r.at for r in static}]
    assert quiet


def test_reasons_hosts_and_generations_come_through(reading):
    joins = [o for o in reading.observations if isinstance(o, Joined)]
    assert {o.host for o in joins} == {"127.0.0.1"}
    assert any(o.reason == "group is already rebalancing" for o in joins)
    for o in joins:
        workers = any(r.family == "connect" and r.is_client(o.client_id) for r in _truth().runs())
        assert o.protocol_type == ("connect" if workers else "consumer")
    succeeded = [o for o in joins if o.generation_id is not None]
    assert len(succeeded) > (200 if CAPTURES == BUNDLED else 0)
