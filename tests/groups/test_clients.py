"""Client families, assignors, and the protocol that members really run.

Guesses are compared with who the captured members really were.
"""

import base64
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from rebal.groups import clients, data
from rebal.groups.clients import fixes_protocol, proven_family
from rebal.groups.evidence.fingerprint import identify
from rebal.groups.evidence.merge import merge
from rebal.groups.model import (
    AssignorList,
    Contradiction,
    Evidence,
    GroupState,
    GroupType,
    Knowledge,
    Member,
    RebalanceProtocol,
    Software,
    Source,
    Subscription,
    Tri,
)
from rebal.groups.protocol import (
    borrowed_names,
    class_of,
    common_assignors,
    group_protocol,
    may_be_custom_class,
    member_protocol,
)
from rebal.groups.wire.consumer_protocol import decode_subscription
from tests import software as real_software
from tests.groups import observed
from tests.groups.observed import COOP, KEPT, joined, member
from tests.planner.captured import BUNDLED, FOLDER, stories
from tests.planner.rehearsal.captures.capture import read
from tests.software import family
from tests.tables import table

EAGER, COOPERATIVE = RebalanceProtocol.EAGER, RebalanceProtocol.COOPERATIVE


def test_every_client_family_and_assignor_cites_its_sources():
    assert set(clients.families()) >= {"java", "librdkafka", "kafka-python", "franz-go", "kafkajs"}
    for one in clients.families().values():
        assert len(one.sources) == 8, one.key
        assert all(one.sources.values()), one.key
        for default in one.defaults:
            assert set(default.list) <= set(clients.assignors())
        for known in (one.defaults, one.timeouts):
            newest_first = [clients.version_tuple(default.since) for default in known]
            assert newest_first == sorted(newest_first, reverse=True)
        assert all(default.source for default in one.timeouts)
        assert one.timeouts[-1].since == "0", "every version has a default"
    assert all(known.source for known in clients.assignors().values())


def test_concurrent_threads_load_a_data_file_only_once(monkeypatch):
    """Two concurrent first conversions to one type crash the process (msgspec 0.22)."""
    convert, made = msgspec.convert, []

    def slow(*given):
        made.append(given)
        time.sleep(0.05)
        return convert(*given)

    monkeypatch.setattr(data.msgspec, "convert", slow)
    monkeypatch.setattr(data, "_LOADED", {})
    asked = [("clients.yaml", dict[str, tuple[clients.Family, ...]])] * 4
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda each: data.load_data(*each), asked))
    assert len(made) == 1
    assert all(each is found[0] for each in found)


def test_no_spelling_is_shared_by_two_assignors():
    seen: Counter[str] = Counter()
    for known in clients.assignors().values():
        seen.update({known.name, *known.spellings})
    assert seen.most_common(1)[0][1] == 1


@pytest.mark.parametrize(("name", "version", "key"), table("clients", "software"))
def test_software_names_and_versions_map_to_client_families(name, version, key):
    assert clients.family_of(name, version) == key


@pytest.mark.parametrize(("text", "expected"), table("clients", "versions"))
def test_client_version_texts_are_parsed_to_number_tuples(text, expected):
    assert clients.version_tuple(text) == expected


@pytest.mark.parametrize(
    ("key", "version", "expected"),
    [
        ("java", "2.8.2", ("range",)),
        ("java", "3.0.0", ("range", "cooperative-sticky")),
        ("java", None, None),
        ("librdkafka", None, ("range", "roundrobin")),
        ("connect", None, None),
        ("nobody", "1", None),
    ],
)
def test_the_default_assignor_list_depends_on_client_and_version(key, version, expected):
    assert clients.default_list(key, version) == expected


@pytest.mark.parametrize(
    ("key", "version", "cooperative", "kip848"),
    [
        ("java", "2.3.1", Tri.NO, Tri.NO),
        ("java", "2.4.0", Tri.YES, Tri.NO),
        ("java", "3.10.0", Tri.YES, Tri.NO),
        ("java", None, Tri.CANNOT_TELL, Tri.CANNOT_TELL),
        ("librdkafka", "2.16.1-rdkafka-2.11.0", Tri.YES, Tri.NO),
        ("librdkafka", "2.16.1-rdkafka-2.16.0", Tri.YES, Tri.YES),
        ("kafkajs", None, Tri.NO, Tri.NO),
        ("sarama", None, Tri.CANNOT_TELL, Tri.NO),
        ("franz-go", None, Tri.YES, Tri.CANNOT_TELL),
        ("franz-go", "v1.22.2", Tri.YES, Tri.YES),
    ],
)
def test_client_version_decides_cooperative_and_kip_848_support(key, version, cooperative, kip848):
    family = clients.family(key)
    assert family.cooperative(version) is cooperative
    assert family.kip848(version) is kip848


@pytest.mark.parametrize(("spelling", "name"), table("clients", "spellings"))
def test_each_spelling_of_an_assignor_maps_to_its_kafka_name(spelling, name):
    assert clients.assignor_of(spelling) == name


def test_known_assignors_have_rebalance_protocols_and_custom_ones_have_none():
    assert clients.protocols_of("range") == {EAGER}
    assert clients.protocols_of("cooperative-sticky") == {COOPERATIVE, EAGER}
    assert clients.protocols_of("cooperative-sticky", "librdkafka") == {COOPERATIVE}
    assert clients.protocols_of("stream") is None
    assert clients.protocols_of("com.acme.Mine") is None
    assert clients.eager_only("sticky") is Tri.YES
    assert clients.eager_only("cooperative-sticky") is Tri.NO
    assert clients.eager_only("mine") is Tri.CANNOT_TELL


def test_a_guessed_client_family_of_a_captured_member_is_never_wrong():
    """The real client is the guessed one, or in the range that the bytes allow."""
    guessed = set()
    every = read(FOLDER).groups.values()
    for join, group in ((one, each) for each in every for one in each.joins()):
        if join.asked["protocolType"] != "consumer":
            continue
        real = real_software.family(group.start_of(join)["software"])
        for protocol in join.asked["protocols"]:
            sent = decode_subscription(base64.b64decode(protocol["metadata"]))
            guess = identify(join.client_id, join.answered["memberId"], sent, protocol["name"])
            if guess is None:
                continue
            assert guess.evidence
            assert guess.version is None
            guessed.add(guess.family)
            if guess.family is None:
                assert ("java" if real in real_software.JAVA else real) in guess.version_range
                continue
            assert guess.family == real
            if guess.version_range and join.version != "unknown":
                assert_within(join.version, guess.version_range)
    assert guessed >= ({"librdkafka", "kafkajs"} if FOLDER == BUNDLED else {None})


def assert_within(version: str, text: str) -> None:
    have = clients.version_tuple(version)
    for bound in text.split(","):
        sign, _, number = bound.strip().partition(" ")
        limit = clients.version_tuple(number)
        assert have >= limit if sign == ">=" else have < limit


def subscription(**fields) -> Subscription:
    return Subscription(**{"version": 3, "topics": ("t",), **fields})


UUID = "-0a1b2c3d-0000-4000-8000-000000000000"


@pytest.mark.parametrize(
    ("client_id", "key"),
    [
        ("consumer-shop-1", "java"),
        ("consumer-other-1", None),
        ("connector-consumer-sink-0", "java"),
        ("kgo", "franz-go"),
        ("sarama", "sarama"),
        ("rdkafka", None),
        ("checkout-1", None),
    ],
)
def test_a_default_client_id_only_suggests_a_client_that_the_bytes_can_refute(client_id, key):
    """The user data is null here, which librdkafka never sends."""
    sent = subscription()
    guess = identify(client_id, client_id + UUID, sent, "range", group_id="shop")
    assert (guess.family, proven_family(guess)) == (key, None)
    if key == "java":
        assert guess.version_range == ">= 3.4"
        assert any(
            e.source is Source.DESCRIBE and "looks like the default" in e.detail
            for e in guess.evidence
        )
    if key is None:
        assert guess.version_range == "java >= 3.4 or franz-go"


def test_v0_subscription_bytes_marked_as_v1_identify_segmentio_or_sarama_cluster():
    sent = subscription(version=1)
    guess = identify("app", "app" + UUID, sent, "range")
    assert (guess.family, guess.version_range) == (None, "segmentio or sarama-cluster")
    go = "worker@host (github.com/segmentio/kafka-go)"
    named = identify(go, go + UUID, sent, "range")
    assert named.family == "segmentio"


@pytest.mark.parametrize(
    ("bytes_", "assignor", "proven", "fixed"),
    [
        ({"user_data": b"\0\0\0\7"}, "cooperative-sticky", "java", True),
        ({"user_data": b"\xff\xff\xff\xff"}, "cooperative-sticky", "java", True),
        ({"version": 1, "owned": {}, "user_data": b"\0\0\0\7"}, "cooperative-sticky", None, True),
        ({"version": 1, "owned": {}, "user_data": b""}, "cooperative-sticky", None, True),
        ({"rack_id": "", "user_data": b""}, "range", "librdkafka", True),
        ({"rack_id": "eu-1a", "user_data": b"", "owned": {}}, "range", "librdkafka", True),
        ({"user_data": b"\0\0\0\0\xff\xff\xff\xff"}, "cooperative-sticky", "franz-go", False),
        ({}, "range", None, False),
        ({"version": 1}, "range", None, False),
    ],
)
def test_subscription_bytes_of_only_one_client_prove_that_client(bytes_, assignor, proven, fixed):
    """Distinctive bytes: cooperative-sticky user data and the rack id."""
    sent = {"owned_partitions" if name == "owned" else name: bytes_[name] for name in bytes_}
    guess = identify("app", "app" + UUID, subscription(**sent), assignor)
    assert (proven_family(guess), fixes_protocol(guess)) == (proven, fixed)


@pytest.mark.parametrize(
    ("client_id", "member", "sent", "assignor"),
    [
        ("kgo", "elsewhere", None, None),
        ("app", "app", None, "range"),
        ("app", "app", subscription(version=0, user_data=b""), "range"),
        ("app", "app", subscription(rack_id="", user_data=b"\0\0\0\7"), "stream"),
    ],
    ids=["a member id of another name", "no bytes", "nothing in the bytes", "bytes at odds"],
)
def test_ambiguous_member_data_gives_no_guess_of_the_client(client_id, member, sent, assignor):
    assert identify(client_id, member + UUID, sent, assignor) is None


EAGER, COOPERATIVE = RebalanceProtocol.EAGER, RebalanceProtocol.COOPERATIVE
CANNOT_TELL, MIXED = RebalanceProtocol.CANNOT_TELL, RebalanceProtocol.MIXED
AT_ODDS = Contradiction(member_id="c-id", what="one member id joined with different lists")
group = partial(observed.group, assignor=COOP)


def runs(one: Member, **fields) -> RebalanceProtocol:
    return member_protocol(one, group(one, **fields)).value


@pytest.mark.parametrize(
    ("family", "names", "elected", "value"),
    [
        ("java", (COOP, "range"), COOP, EAGER),
        ("java", (COOP,), COOP, COOPERATIVE),
        ("java", (COOP, "com.acme.Mine"), COOP, CANNOT_TELL),
        ("franz-go", (COOP, "range"), COOP, COOPERATIVE),
        ("franz-go", (COOP, "range"), "range", EAGER),
        (None, (COOP,), COOP, COOPERATIVE),
        (None, (COOP, "range"), COOP, CANNOT_TELL),
        (None, (COOP, "range"), "range", EAGER),
        # Without a list: an elected eager-only assignor proves EAGER, COOP only for some clients.
        (None, (), "range", EAGER),
        ("java", (), COOP, CANNOT_TELL),
        (None, (), COOP, CANNOT_TELL),
        ("librdkafka", (), COOP, COOPERATIVE),
        ("franz-go", (), COOP, COOPERATIVE),
    ],
)
def test_assignor_list_client_and_vote_determine_a_members_protocol(family, names, elected, value):
    assert runs(member("a", *names, family=family), assignor=elected) is value


@pytest.mark.parametrize(
    ("names", "value"),
    [(("sticky", "range"), EAGER), ((COOP,), COOPERATIVE), ((COOP, "range"), CANNOT_TELL)],
)
def test_classic_franz_go_member_of_a_kip_848_group_runs_the_protocol_of_its_list(names, value):
    classic = member("a", *names, family="franz-go", protocol_type="classic")
    assert runs(classic, type=GroupType.CONSUMER, assignor="uniform") is value


def test_a_client_id_alone_does_not_prove_the_client():
    guess = Software(
        family="librdkafka", evidence=(Evidence(source=Source.DESCRIBE, detail="client id"),)
    )
    assert runs(member("a", software=guess)) is CANNOT_TELL


@pytest.mark.parametrize("elected", [COOP, "stream"])
def test_partitions_kept_over_a_rebalance_prove_the_cooperative_protocol(elected):
    one = member("a", subscription=KEPT)
    answer = member_protocol(one, group(one, assignor=elected))
    assert answer.value is COOPERATIVE
    assert answer.evidence[0].source is Source.SUBSCRIPTION


def test_an_eager_assignor_found_by_the_probe_proves_eager_for_a_java_member():
    bounded = AssignorList(knowledge=Knowledge.BOUNDED, at_least=(COOP, "range"))
    assert runs(member("a", family="java", assignors=bounded)) is EAGER
    assert runs(member("a", family="franz-go", assignors=bounded)) is COOPERATIVE
    assert runs(member("a", assignors=bounded)) is CANNOT_TELL


@pytest.mark.parametrize("names", [(COOP, "range"), ("range",)])
def test_contradictory_evidence_leaves_the_protocol_unknown(names):
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
def test_an_unknown_group_protocol_is_reported_with_its_reason(fields, why):
    answer = group_protocol(group(member("a"), **fields))
    assert answer.value is CANNOT_TELL
    assert why in answer.why


def test_a_group_is_mixed_only_if_eager_and_cooperative_members_are_proven():
    eager = member("a", COOP, "range", family="java")
    cooperative = member("b", COOP, family="java")
    unknown = member("c")
    assert group_protocol(group(eager, eager)).value is EAGER
    assert group_protocol(group(cooperative)).value is COOPERATIVE
    assert group_protocol(group(eager, cooperative, unknown)).value is MIXED
    answer = group_protocol(group(cooperative, unknown))
    assert answer.value is CANNOT_TELL
    assert answer.why.startswith("1 of 2 members")


def test_a_kip_848_group_is_cooperative_and_its_classic_members_are_counted():
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
def test_a_kip_848_group_of_only_classic_members_runs_the_protocol_of_their_lists(lists, value):
    members = [
        member(name, *names, protocol_type="classic", family="java")
        for name, names in zip("ab", lists, strict=True)
    ]
    answer = group_protocol(group(*members, type=GroupType.CONSUMER, assignor="uniform"))
    assert answer.value is value
    assert answer.why.startswith(
        "the group's type is consumer, and every member speaks the classic protocol: "
    )


def test_common_assignors_are_derived_from_assignor_lists_and_the_vote():
    lists = member("a", COOP, "range"), member("b", "range", "sticky"), member("c", COOP)
    fields = {"probe": {"range": Tri.NO}, "rebalanced": Tri.NO, "contradictions": (AT_ODDS,)}
    common = common_assignors(group(*lists, assignor="range", **fields))
    assert common.supported == ("range",)
    assert set(common.unsupported) == {COOP, "sticky"}
    assert (common.doubtful, common.source) == ((), "elected")


def test_an_assignor_missing_from_one_list_is_unsupported_and_cites_its_evidence():
    proof = (Evidence(source=Source.BROKER_LOG),)
    bounded = AssignorList(knowledge=Knowledge.BOUNDED, lacks=("sticky",), evidence=proof)
    common = common_assignors(group(replace(member("a"), assignors=bounded), assignor="range"))
    assert (common.unsupported, common.source) == (("sticky",), "elected, broker log")


@pytest.mark.parametrize(
    ("rebalanced", "unsupported", "doubtful"),
    [(Tri.YES, ("sticky",), ()), (Tri.CANNOT_TELL, (), ("sticky",)), (Tri.NO, (), ("sticky",))],
)
def test_a_negative_probe_counts_only_after_a_rebalance(rebalanced, unsupported, doubtful):
    probe = {"range": Tri.YES, "sticky": Tri.NO, "mine": Tri.CANNOT_TELL}
    common = common_assignors(group(member("a"), probe=probe, rebalanced=rebalanced))
    assert common.supported == (COOP, "range")
    assert (common.unsupported, common.doubtful) == (unsupported, doubtful)
    assert common.source == "elected, probe"


def test_a_kip_848_or_empty_group_has_no_common_assignors():
    assert common_assignors(group(member("a"), type=GroupType.CONSUMER)).supported == ()
    assert common_assignors(group()).supported == ()


EAGER_NAMES = {"range", "roundrobin", "sticky", "RoundRobinAssigner"}


def truth(start: dict[str, Any], elected: str) -> RebalanceProtocol | None:
    """What Kafka's rules make of the list that was really configured (README of the captures).

    None: an assignor of the application's own decides it.
    """
    kind = family(start["software"])
    if kind == "streams":
        return COOPERATIVE
    names = {elected} if kind == "franz-go" else set(start["assignors"])
    if names & EAGER_NAMES:
        return EAGER
    return COOPERATIVE if names == {COOP} else None


@pytest.mark.parametrize("log", [True, False])
def test_no_captured_member_is_reported_with_a_wrong_protocol(log: bool) -> None:
    answers: Counter[RebalanceProtocol] = Counter()
    for story in stories(log, FOLDER).values():
        for snapshot in story.snapshots:
            alive = story.running(snapshot.captured_at)
            expected = {
                member_.member_id: truth(alive[name], snapshot.group.assignor or "")
                for member_ in snapshot.members
                if (name := member_.client_id.partition("-StreamThread-")[0]) in alive
            }
            for member_ in snapshot.members:
                answer = member_protocol(member_, snapshot).value
                answers[answer] += 1
                if (value := expected.get(member_.member_id)) is not None:
                    assert answer in (value, CANNOT_TELL), (story.name, member_.client_id)
            whole = group_protocol(snapshot).value
            if whole is not CANNOT_TELL and len(expected) == len(snapshot.members):
                values = set(expected.values())
                assert whole is MIXED or whole in values, story.name
                assert (whole is MIXED) == (len(values) > 1), story.name
    assert min(answers[EAGER], answers[COOPERATIVE]) > (10 if FOLDER == BUNDLED else 0)


OWN = "com.acme.OwnAssignor"
RANGE = "org.apache.kafka.clients.consumer.RangeAssignor"
# A member's own log: its list, and the classes where one is not Kafka's.
printed = partial(joined, evidence=Evidence(source=Source.CLIENT_LOG))


def test_a_custom_class_that_reuses_a_kafka_assignor_name_is_detected():
    seen = [printed("a", COOP, "range", classes=(OWN, RANGE)), printed("b", COOP)]
    merged = merge(group(member("a", family="java"), member("b", family="java")), seen)
    a, b = merged.members
    borrowed = borrowed_names(merged)
    assert borrowed == {COOP}
    assert class_of(a, COOP) == OWN
    assert (may_be_custom_class(a, COOP, borrowed), may_be_custom_class(a, "range", borrowed)) == (
        True,
        False,
    )
    # The log of b was read, and its class is Kafka's own.
    assert not may_be_custom_class(b, COOP, borrowed)
    unread = replace(b, assignors=replace(b.assignors, evidence=()))
    assert may_be_custom_class(unread, COOP, borrowed)
    other = member("c", COOP, family="librdkafka")
    assert not may_be_custom_class(other, COOP, borrowed)


def test_an_assignor_name_that_no_client_ships_is_not_a_reused_name():
    seen = [printed("a", "zone", classes=(OWN,))]
    assert borrowed_names(merge(group(member("a"), assignor="zone"), seen)) == frozenset()


def test_kept_partitions_do_not_exclude_an_eager_name_reused_by_a_custom_class():
    kept = member("b", family="java", subscription=KEPT)
    seen = [printed("a", COOP, "range", classes=("org.apache.Coop", OWN))]
    merged = merge(group(member("a", family="java"), kept), seen)
    assert borrowed_names(merged) == {COOP, "range"}
    assert merged.members[1].assignors.lacks == ("roundrobin", "sticky")


def test_a_custom_class_overrides_the_assignor_name_and_kept_partitions_override_both():
    silent = merge(group(member("a", family="java")), [printed("a", COOP, classes=(OWN,))])
    answer = member_protocol(silent.members[0], silent)
    assert answer.value is RebalanceProtocol.CANNOT_TELL
    assert OWN in answer.why
    kept = member("a", family="java", subscription=KEPT)
    shown = merge(group(kept, assignor="range"), [printed("a", "range", classes=(OWN,))])
    assert member_protocol(shown.members[0], shown).value is RebalanceProtocol.COOPERATIVE
    assert shown.contradictions == ()
