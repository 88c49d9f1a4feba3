"""The request log of the captures against the ground truth that its members wrote down."""

import json
import os
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

import pytest

from rebal.groups.observations import Joined, Left, Rebalanced, Refused
from rebal.inspectors.request_log import read_request_log

CAPTURES = Path(os.environ.get("REBAL_CAPTURES", Path(__file__).parents[1] / "data/captures"))
# What each client tells the broker of itself (KIP-511); kafkajs says nothing.
SOFTWARE = {
    "kafka-clients (Java)": lambda v: ("apache-kafka-java", v),
    "kafka-streams (Java)": lambda v: ("apache-kafka-java", v),
    "confluent-kafka (Python, librdkafka)": lambda v: ("confluent-kafka-python", f"{v}-rdkafka-"),
    "kafka-python": lambda v: ("kafka-python", v),
    "franz-go": lambda v: ("kgo", f"v{v}"),
    "kafkajs": lambda v: None,
}


@pytest.fixture(scope="module")
def reading():
    return read_request_log([CAPTURES / "kafka-request.log.gz"])


def _runs():
    """Each run of a classic member that reached the broker: (group, start, end in ms, how)."""
    truth = json.loads((CAPTURES / "truth.json").read_text())
    for group_id, group in truth["groups"].items():
        running = {}
        for event in group["timeline"]:
            client_id = event.get("client_id")
            if event["action"] == "start":
                running[client_id] = event
            elif event["action"] in ("stop", "kill", "died") and client_id in running:
                end = event.get("gone_ms", event["t_ms"])
                yield group_id, running.pop(client_id), end, event
        for start in running.values():
            yield group_id, start, truth["t_end_ms"], None


def _within(observations, kind, group_id, start, end):
    """Observations of one run; Streams puts its thread's name behind the client id."""
    begin = datetime.fromtimestamp(start["t_ms"] / 1000, UTC)
    until = datetime.fromtimestamp(end / 1000, UTC)
    client_id = start["client_id"]
    return [
        o
        for o in observations
        if isinstance(o, kind)
        and o.group_id == group_id
        and (o.client_id == client_id or o.client_id.startswith(client_id + "-"))
        and begin <= o.at <= until
    ]


def _never_joins(start, how):
    """KIP-848 members send no assignors; a mixed list may be refused by the client itself."""
    refused_itself = how is not None and any(
        text in how.get("error", "") for text in ("same protocol type", "common RebalanceProtocol")
    )
    return start["group_protocol"] == "consumer" or refused_itself


def _was_assigned(group_id, start, end):
    """Whether the member itself printed an assignment in this run."""
    printed = json.loads((CAPTURES / "truth.json").read_text())["groups"][group_id]
    return any(
        e["client_id"] == start["client_id"]
        and e["event"] == "ASSIGNED"
        and start["t_ms"] <= e["t_ms"] <= end
        for e in printed["seen_by_clients"]
    )


def test_every_member_has_its_list_software_and_instance(reading, capsys):
    facts = Counter()
    wrong = []
    for group_id, start, end, how in _runs():
        if _never_joins(start, how):
            found = _within(reading.observations, (Joined, Refused), group_id, start, end)
            facts["runs that reach no coordinator"] += 1
            assert not found, (group_id, start, found)
            continue
        found = _within(reading.observations, (Joined, Refused), group_id, start, end)
        facts["runs"] += 1
        if not found and not _was_assigned(group_id, start, end):
            facts["runs stopped before they joined"] += 1
            continue
        if not found:
            wrong.append(("no line", group_id, start))
            continue
        for seen in found:
            facts["lists"] += 1
            if seen.list != tuple(start["assignors"]):
                wrong.append(("list", group_id, start, seen))
            facts["instance ids"] += 1
            if seen.instance_id != start["instance_id"]:
                wrong.append(("instance", group_id, start, seen))
            facts["software"] += 1
            told = SOFTWARE[start["software"]](start["version"])
            if told is None:
                if seen.software is not None:
                    wrong.append(("software", group_id, start, seen))
            elif (
                seen.software is None
                or seen.software.name != told[0]
                or not (seen.software.version or "").startswith(told[1])
            ):
                wrong.append(("software", group_id, start, seen.software))
    with capsys.disabled():
        print("\nrequest log against the truth:", dict(facts), "wrong:", len(wrong))
    assert not wrong
    assert facts["runs"] > 80
    assert facts["runs stopped before they joined"] == 1


def test_every_join_belongs_to_a_run(reading):
    explained = {
        id(o)
        for group_id, start, end, how in _runs()
        for o in _within(reading.observations, (Joined, Refused), group_id, start, end)
    }
    joins = [o for o in reading.observations if isinstance(o, Joined | Refused)]
    assert [o for o in joins if id(o) not in explained] == []


def test_every_refusal_is_a_run_that_was_refused(reading):
    expected = Counter()
    for group_id, start, _end, how in _runs():
        error = (how or {}).get("error", "")
        if "InconsistentGroupProtocol" in error:
            expected[group_id, start["client_id"], tuple(start["assignors"])] += 1
        elif "beside a range member" in start.get("note", "") and "Go" not in start["software"]:
            # librdkafka retries for ever: at least one refusal, no death.
            expected[group_id, start["client_id"], tuple(start["assignors"])] += 0
    seen = Counter(
        (o.group_id, o.client_id, o.list) for o in reading.observations if isinstance(o, Refused)
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
    for group_id, start, end, how in _runs():
        if (
            how is None
            or how["action"] != "stop"
            or start["instance_id"]
            or start["group_protocol"] == "consumer"
            or "streams" in start["software"]
        ):
            continue
        joined = _within(reading.observations, Joined, group_id, start, end)
        if joined and not ids & {o.member_id for o in joined}:
            missing.append((group_id, start))
    assert not missing


def test_static_restarts_name_the_member_they_replace(reading):
    joins = [
        o
        for o in reading.observations
        if isinstance(o, Joined) and o.group_id == "static-orders" and o.instance_id == "static-1"
    ]
    ids = list(dict.fromkeys(o.member_id for o in joins))
    assert len(ids) == 4
    replaced = [o.replaced_member_id for o in joins if o.replaced_member_id]
    assert replaced == ids[:-1]


def test_generations_rise_and_static_restarts_complete_no_rebalance(reading):
    by_group = {}
    for seen in reading.observations:
        if isinstance(seen, Rebalanced):
            by_group.setdefault(seen.group_id, []).append(seen)
    for group_id, seen in by_group.items():
        # A deleted group starts again; no other group's generation ever falls or repeats.
        numbers = [o.generation_id for o in seen]
        assert numbers == sorted(set(numbers)), group_id
    # so-1 restarted twice inside its session timeout between these: same generation, no rebalance.
    static = by_group["static-orders"]
    restarts = [
        o
        for o in reading.observations
        if isinstance(o, Joined) and o.group_id == "static-orders" and o.replaced_member_id
    ]
    assert restarts
    quiet = [o for o in restarts if o.at not in {r.at for r in static}]
    assert quiet


def test_reasons_hosts_and_generations_come_through(reading):
    joins = [o for o in reading.observations if isinstance(o, Joined)]
    assert {o.host for o in joins} == {"127.0.0.1"}
    assert any(o.reason == "group is already rebalancing" for o in joins)
    assert all(o.protocol_type == "consumer" for o in joins)
    succeeded = [o for o in joins if o.generation_id is not None]
    assert len(succeeded) > 200


def test_only_the_wanted_groups(reading):
    only = read_request_log([CAPTURES / "kafka-request.log.gz"], groups={"checkout"})
    assert {o.group_id for o in only.observations} == {"checkout"}
    assert list(only.observations) == [o for o in reading.observations if o.group_id == "checkout"]
