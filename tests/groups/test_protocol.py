"""The protocol that members really run: single rules, and the captured groups against the truth."""

from __future__ import annotations

import base64
from datetime import UTC, datetime

import pytest

from rebal.groups.clients import family_of
from rebal.groups.compact import Partitions
from rebal.groups.evidence.merge import merge
from rebal.groups.evidence.observations import Joined
from rebal.groups.model import (
    AssignorList,
    Coordinator,
    Evidence,
    Group,
    GroupSnapshot,
    GroupState,
    GroupType,
    Knowledge,
    Member,
    Probe,
    ProbeAnswer,
    RebalanceProtocol,
    Software,
    Source,
    Subscription,
    Tri,
)
from rebal.groups.protocol import common_assignors, group_protocol, member_protocol
from rebal.groups.wire.consumer_protocol import decode_subscription
from rebal.groups.wire.offsets_topic import GroupMetadataKey, decode_group_metadata, decode_key
from tests.groups.stable import NOW, stable_group
from tests.software import family

COOP = "cooperative-sticky"
EAGER, COOPERATIVE = RebalanceProtocol.EAGER, RebalanceProtocol.COOPERATIVE
CANNOT_TELL, MIXED = RebalanceProtocol.CANNOT_TELL, RebalanceProtocol.MIXED
KEPT = Subscription(version=3, topics=("t",), owned_partitions={"t": Partitions([4])})


def software(family: str) -> Software:
    return Software(family=family, name=family, version="3.9.1")


def member(name: str, *names: str, family: str | None = None, **fields) -> Member:
    known = AssignorList(knowledge=Knowledge.EXACT, list=names) if names else AssignorList()
    told = software(family) if family else None
    return Member(**{"member_id": name, "assignors": known, "software": told, **fields})


def group(*members: Member, rebalanced: Tri = Tri.CANNOT_TELL, **fields) -> GroupSnapshot:
    coordinator = Coordinator(broker_id=1, rebalanced_since_load=rebalanced)
    return stable_group(*members, **{"assignor": COOP, "coordinator": coordinator, **fields})


def runs(one: Member, **fields) -> RebalanceProtocol:
    return member_protocol(one, group(one, **fields)).value


@pytest.mark.parametrize("family", ["java", "librdkafka", "franz-go", None])
def test_an_eager_only_elected_assignor_settles_it_for_every_client(family):
    assert runs(member("a", family=family), assignor="range") is EAGER


@pytest.mark.parametrize(
    ("family", "names", "elected", "value"),
    [
        ("java", (COOP, "range"), COOP, EAGER),
        ("java", (COOP, "range"), "range", EAGER),
        ("java", (COOP,), COOP, COOPERATIVE),
        ("java", (COOP, "com.acme.Mine"), COOP, CANNOT_TELL),
        ("franz-go", (COOP, "range"), COOP, COOPERATIVE),
        ("franz-go", (COOP, "range"), "range", EAGER),
        ("librdkafka", (COOP,), COOP, COOPERATIVE),
        (None, (COOP,), COOP, COOPERATIVE),
        (None, (COOP, "range"), COOP, CANNOT_TELL),
        (None, (COOP, "range"), "range", EAGER),
    ],
)
def test_exact_lists(family, names, elected, value):
    assert runs(member("a", *names, family=family), assignor=elected) is value


@pytest.mark.parametrize(
    ("names", "value"),
    [(("sticky", "range"), EAGER), ((COOP,), COOPERATIVE), ((COOP, "range"), CANNOT_TELL)],
)
def test_who_follows_the_vote_runs_what_all_of_its_list_runs_where_none_is_elected(names, value):
    classic = member("a", *names, family="franz-go", protocol_type="classic")
    assert runs(classic, type=GroupType.CONSUMER, assignor="uniform") is value


@pytest.mark.parametrize(
    ("family", "value"),
    [
        ("java", CANNOT_TELL),
        (None, CANNOT_TELL),
        ("librdkafka", COOPERATIVE),
        ("kafka-python", COOPERATIVE),
        ("franz-go", COOPERATIVE),
    ],
)
def test_a_cooperative_vote_without_a_list_is_told_only_by_the_client(family, value):
    assert runs(member("a", family=family)) is value


def test_a_client_id_alone_is_not_a_client():
    guess = Software(
        family="librdkafka", evidence=(Evidence(source=Source.DESCRIBE, detail="client id"),)
    )
    assert runs(member("a", software=guess)) is CANNOT_TELL


def test_kept_partitions_prove_cooperative():
    one = member("a", subscription=KEPT)
    answer = member_protocol(one, group(one))
    assert answer.value is COOPERATIVE
    assert answer.evidence[0].source is Source.SUBSCRIPTION


def test_an_eager_assignor_that_the_probe_found_in_a_java_list_proves_eager():
    bounded = AssignorList(knowledge=Knowledge.BOUNDED, at_least=(COOP, "range"))
    assert runs(member("a", family="java", assignors=bounded)) is EAGER
    assert runs(member("a", family="franz-go", assignors=bounded)) is COOPERATIVE
    assert runs(member("a", assignors=bounded)) is CANNOT_TELL


@pytest.mark.parametrize("names", [(COOP, "range"), ("range",)])
def test_evidence_at_odds_is_cannot_tell(names):
    one = member("a", *names, family="java", subscription=KEPT)
    answer = member_protocol(one, group(one))
    assert answer.value is CANNOT_TELL
    assert "contradicts itself" in answer.why


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"state": GroupState.PREPARING_REBALANCE}, "PreparingRebalance"),
        ({"state": GroupState.EMPTY}, "no members"),
        ({"protocol_type": "connect"}, "Connect"),
        ({"type": GroupType.SHARE}, "share"),
        ({"assignor": None}, "no assignor"),
        ({"assignor": "com.acme.Mine"}, "com.acme.Mine is not known"),
        ({"assignor": "stream"}, "upgrade.from"),
    ],
)
def test_what_cannot_be_told_says_why(fields, why):
    answer = group_protocol(group(member("a"), **fields))
    assert answer.value is CANNOT_TELL
    assert why in answer.why


def test_streams_that_kept_partitions_are_cooperative():
    assert runs(member("a", subscription=KEPT), assignor="stream") is COOPERATIVE


def test_a_group_is_mixed_only_where_both_are_proven():
    eager = member("a", COOP, "range", family="java")
    cooperative = member("b", COOP, family="java")
    unknown = member("c")
    assert group_protocol(group(eager, eager)).value is EAGER
    assert group_protocol(group(cooperative)).value is COOPERATIVE
    assert group_protocol(group(eager, cooperative, unknown)).value is MIXED
    answer = group_protocol(group(cooperative, unknown))
    assert answer.value is CANNOT_TELL
    assert answer.why.startswith("1 of 2 members")


def test_a_kip848_group_is_incremental_and_its_classic_members_are_named():
    native = member("a", protocol_type="consumer")
    classic = member("b", protocol_type="classic")
    eager = member("c", "range", protocol_type="classic", family="java")
    snapshot = group(native, classic, type=GroupType.CONSUMER, assignor="uniform")
    answer = group_protocol(snapshot)
    assert answer.value is COOPERATIVE
    assert "1 of 2 members" in answer.why
    assert group_protocol(group(native, eager, type=GroupType.CONSUMER)).value is MIXED


@pytest.mark.parametrize(
    ("lists", "value"),
    [
        ((("range",), ("range", COOP)), EAGER),
        (((COOP,), (COOP,)), COOPERATIVE),
        (((COOP,), ("range",)), MIXED),
        (((), ()), CANNOT_TELL),
        (((COOP,), ()), CANNOT_TELL),
    ],
)
def test_a_consumer_group_of_classic_members_alone_runs_what_their_lists_say(lists, value):
    members = [
        member(name, *names, protocol_type="classic", family="java")
        for name, names in zip("ab", lists, strict=True)
    ]
    answer = group_protocol(group(*members, type=GroupType.CONSUMER, assignor="uniform"))
    assert answer.value is value
    assert answer.why.startswith(
        "the group's type is consumer, and every member speaks the classic protocol: "
    )


def test_common_assignors_from_lists_and_the_vote():
    snapshot = group(member("a", COOP, "range"), member("b", "range", "sticky"), assignor="range")
    common = common_assignors(snapshot)
    assert common.supported == ("range",)
    assert set(common.unsupported) == {COOP, "sticky"}


@pytest.mark.parametrize(
    ("rebalanced", "unsupported", "doubtful"),
    [(Tri.YES, ("sticky",), ()), (Tri.CANNOT_TELL, (), ("sticky",)), (Tri.NO, (), ("sticky",))],
)
def test_the_probe_s_no_counts_only_after_a_rebalance(rebalanced, unsupported, doubtful):
    answers = tuple(
        ProbeAnswer(assignor=name, supported=said, at=NOW)
        for name, said in (("range", Tri.YES), ("sticky", Tri.NO), ("mine", Tri.CANNOT_TELL))
    )
    probe = Probe(answers=answers)
    common = common_assignors(group(member("a"), probe=probe, rebalanced=rebalanced))
    assert common.supported == (COOP, "range")
    assert (common.unsupported, common.doubtful) == (unsupported, doubtful)
    assert common.source == "elected, probe"


def test_common_assignors_of_a_group_without_lists():
    assert common_assignors(group(member("a"), type=GroupType.CONSUMER)).supported == ()
    assert common_assignors(group()).supported == ()


# --- the captured groups, as describe, the offsets topic and the request log show them at the end

EAGER_NAMES = {"range", "roundrobin", "sticky", "RoundRobinAssigner", "default"}


@pytest.fixture(scope="module")
def running(captures) -> dict[str, list[dict]]:
    """Group → the start of each member that still ran when describe was taken."""
    found: dict[str, list[dict]] = {}
    end = captures.document("describe.json")["t_ms"]
    for name, told in captures.document("truth.json")["groups"].items():
        alive: list[dict] = []
        for event in sorted(told["timeline"], key=lambda e: e["t_ms"]):
            if event["t_ms"] > end:
                continue
            if event["action"] == "start":
                alive.append(event)
            elif event["action"] in ("stop", "kill", "died"):
                # processes with one client id are alike
                alive.remove(next(e for e in alive if e["client_id"] == event["client_id"]))
        found[name] = alive
    return found


def start_of(member_: Member, alive: list[dict]) -> dict:
    """The member's process; one that took a static member's place keeps its client id."""
    name = member_.client_id.split("-StreamThread")[0]
    named = [event for event in alive if event["client_id"] == name]
    same = [e for e in alive if e["instance_id"] and e["instance_id"] == member_.instance_id]
    return (named or same)[0]


@pytest.fixture(scope="module")
def snapshots(captures) -> dict[str, GroupSnapshot]:
    described = captures.document("describe.json")
    stored: dict[str, dict[str, bytes]] = {}
    for record in captures.offsets_topic():
        key = decode_key(base64.b64decode(record["key"]))
        if isinstance(key, GroupMetadataKey) and record["value"]:
            value = decode_group_metadata(base64.b64decode(record["value"]))
            stored[key.group_id] = {m.member_id: m.subscription for m in value.members}
    made = {}
    for one in described["groups"]:
        subscriptions = stored.get(one["group"], {})
        classic = one["type"] == "CLASSIC"
        members = tuple(
            Member(
                member_id=m["member_id"],
                client_id=m["client_id"],
                instance_id=m["instance_id"],
                subscription=decode_subscription(subscriptions[m["member_id"]])
                if m["member_id"] in subscriptions and classic
                else None,
            )
            for m in one["members"]
        )
        made[one["group"]] = GroupSnapshot(
            group=Group(
                group_id=one["group"],
                state=GroupState(one["state"].title()),
                type=GroupType(one["type"].lower()),
                protocol_type="consumer",
                assignor=one["partition_assignor"] or None,
            ),
            captured_at=datetime.fromtimestamp(described["t_ms"] / 1000, UTC),
            members=members,
        )
    return made


@pytest.fixture(scope="module")
def joins(captures) -> list[Joined]:
    found = []
    for request in captures.requests("JOIN_GROUP"):
        asked, answer = request["request"], request["response"]
        if answer["errorCode"] not in (0, 79) or not answer["memberId"]:
            continue
        at = datetime.strptime(request["stamp"], "%Y-%m-%d %H:%M:%S,%f").replace(tzinfo=UTC)
        told = request["clientInformation"]
        key = family_of(told["softwareName"], told["softwareVersion"])
        evidence = Evidence(source=Source.REQUEST_LOG, at=at)
        found.append(
            Joined(
                group_id=asked["groupId"],
                member_id=answer["memberId"],
                list=tuple(protocol["name"] for protocol in asked["protocols"]),
                at=at,
                client_id=request["requestHeader"]["clientId"],
                instance_id=asked.get("groupInstanceId"),
                software=Software(
                    family=key, name=told["softwareName"], version=told["softwareVersion"]
                )
                if key
                else None,
                evidence=evidence,
                protocol_type=asked["protocolType"],
            )
        )
    return found


def truth(start: dict, elected: str) -> RebalanceProtocol | None:
    """What Kafka's rules make of the list that was really configured (README of the captures).

    None: an assignor of the application's own decides it.
    """
    kind = family(start["software"])
    if kind in ("streams", "connect"):
        return EAGER if elected == "default" else COOPERATIVE
    names = {elected} if kind == "franz-go" else set(start["assignors"])
    if names & EAGER_NAMES:
        return EAGER
    return COOPERATIVE if names == {COOP} else None


@pytest.fixture(scope="module")
def bound(snapshots, joins) -> dict[bool, list[GroupSnapshot]]:
    """The snapshots without and with what the request log says."""
    return {
        with_log: [merge(one, joins if with_log else []) for one in snapshots.values()]
        for with_log in (False, True)
    }


def test_with_the_request_log_every_captured_list_is_the_one_that_was_configured(
    captures, bound, running
):
    checked = 0
    for merged in bound[True]:
        name = merged.group.group_id
        assert merged.contradictions == (), name
        for member_ in merged.members:
            start = start_of(member_, running[name])
            if start["group_protocol"] != "classic" or family(start["software"]) == "streams":
                continue
            assert member_.assignors.knowledge is Knowledge.EXACT, (name, member_.client_id)
            assert member_.assignors.list == tuple(start["assignors"]), (name, member_.client_id)
            checked += 1
    assert checked > (25 if captures.bundled else 0)


@pytest.mark.parametrize("with_log", [True, False])
def test_no_captured_member_is_said_to_run_what_it_does_not(
    captures, bound, running, with_log, capsys
):
    told = open_ = 0
    said = {}
    for merged in bound[with_log]:
        name = merged.group.group_id
        values = set()
        for one in merged.members:
            start = start_of(one, running[name])
            if merged.group.type is not GroupType.CLASSIC:
                continue
            expected = truth(start, merged.group.assignor or "")
            values.add(expected)
            answer = member_protocol(one, merged).value
            if expected is None:
                continue
            assert answer in (expected, CANNOT_TELL), (name, one.client_id)
            told += answer is expected
            open_ += answer is CANNOT_TELL
        whole = group_protocol(merged)
        said[name] = str(whole.value)
        if values - {None} and whole.value is not CANNOT_TELL:
            assert whole.value is (MIXED if len(values) > 1 else values.pop()), name
    assert told
    if captures.bundled:
        assert told > open_
        assert not with_log or open_ <= 2
    with capsys.disabled():
        kind = "with" if with_log else "without"
        print(f"\n{kind} the request log: {told} members told, {open_} left open; {said}")
