"""Client families and assignors; guesses are compared with who the captured members really were."""

from __future__ import annotations

import base64
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import msgspec
import pytest

from rebal.groups import clients, data
from rebal.groups.clients import fixes_protocol, proven_family
from rebal.groups.evidence.fingerprint import identify
from rebal.groups.model import RebalanceProtocol, Source, Subscription, Tri
from rebal.groups.wire.consumer_protocol import decode_subscription
from tests import software as real_software
from tests.planner.captured import BUNDLED, FOLDER
from tests.planner.rehearsal.captures.capture import read
from tests.tables import table

EAGER, COOPERATIVE = RebalanceProtocol.EAGER, RebalanceProtocol.COOPERATIVE


def test_every_family_and_assignor_has_its_sources():
    assert set(clients.families()) >= {"java", "librdkafka", "kafka-python", "franz-go", "kafkajs"}
    for family in clients.families().values():
        assert len(family.sources) == 7, family.key
        assert all(family.sources.values()), family.key
        for default in family.defaults:
            assert set(default.list) <= set(clients.assignors())
        for known in (family.defaults, family.timeouts):
            newest_first = [clients.version_tuple(default.since) for default in known]
            assert newest_first == sorted(newest_first, reverse=True)
        assert all(default.source for default in family.timeouts)
        assert family.timeouts[-1].since == "0", "every version has a default"
    assert all(known.source for known in clients.assignors().values())


def test_threads_that_need_the_facts_at_once_make_them_once(monkeypatch):
    """Two first conversions to one type at once end the process (msgspec 0.22)."""
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


def test_no_spelling_names_two_assignors():
    seen: Counter[str] = Counter()
    for known in clients.assignors().values():
        seen.update({known.name, *known.spellings})
    assert seen.most_common(1)[0][1] == 1


@pytest.mark.parametrize(("name", "version", "key"), table("clients", "software"))
def test_software_names(name, version, key):
    assert clients.family_of(name, version) == key


@pytest.mark.parametrize(("text", "expected"), table("clients", "versions"))
def test_version_tuple(text, expected):
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
def test_default_lists(key, version, expected):
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
def test_what_a_version_can_do(key, version, cooperative, kip848):
    family = clients.family(key)
    assert family.cooperative(version) is cooperative
    assert family.kip848(version) is kip848


@pytest.mark.parametrize(("spelling", "name"), table("clients", "spellings"))
def test_spellings(spelling, name):
    assert clients.assignor_of(spelling) == name


def test_protocols():
    assert clients.protocols_of("range") == {EAGER}
    assert clients.protocols_of("cooperative-sticky") == {COOPERATIVE, EAGER}
    assert clients.protocols_of("cooperative-sticky", "librdkafka") == {COOPERATIVE}
    assert clients.protocols_of("stream") is None
    assert clients.protocols_of("com.acme.Mine") is None
    assert clients.eager_only("sticky") is Tri.YES
    assert clients.eager_only("cooperative-sticky") is Tri.NO
    assert clients.eager_only("mine") is Tri.CANNOT_TELL


def test_no_guess_about_a_captured_member_is_wrong():
    """The real client is the guessed one, or among those that the bytes leave."""
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
def test_a_default_client_id_is_a_labelled_guess_that_the_bytes_can_refute(client_id, key):
    """Null user data, as here, was never sent by librdkafka."""
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


def test_v0_bytes_marked_as_v1():
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
def test_bytes_that_one_client_alone_sends_prove_it(bytes_, assignor, proven, fixed):
    """The user data of cooperative-sticky and the rack."""
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
def test_what_gives_no_guess(client_id, member, sent, assignor):
    assert identify(client_id, member + UUID, sent, assignor) is None
