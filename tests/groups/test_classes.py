"""Classes of an application's own under the names of Kafka's assignors, from merged evidence."""

from __future__ import annotations

from functools import partial

from msgspec.structs import replace

from rebal.groups.classes import borrowed_names, class_of, not_by_name
from rebal.groups.evidence.merge import merge
from rebal.groups.model import Evidence, RebalanceProtocol, Source
from rebal.groups.protocol import member_protocol
from tests.groups.observed import COOP, KEPT, joined, member
from tests.groups.test_protocol import group

OWN = "com.acme.OwnAssignor"
RANGE = "org.apache.kafka.clients.consumer.RangeAssignor"
# A member's own log: its list, and the classes where one is not Kafka's.
printed = partial(joined, evidence=Evidence(source=Source.CLIENT_LOG))


def test_a_class_that_is_not_kafkas_borrows_the_name():
    seen = [printed("a", COOP, "range", classes=(OWN, RANGE)), printed("b", COOP)]
    merged = merge(group(member("a", family="java"), member("b", family="java")), seen)
    a, b = merged.members
    borrowed = borrowed_names(merged)
    assert borrowed == {COOP}
    assert class_of(a, COOP) == OWN
    assert (not_by_name(a, COOP, borrowed), not_by_name(a, "range", borrowed)) == (True, False)
    # The log of b was read, and its class is Kafka's own.
    assert not not_by_name(b, COOP, borrowed)
    unread = replace(b, assignors=replace(b.assignors, evidence=()))
    assert not_by_name(unread, COOP, borrowed)
    other = member("c", COOP, family="librdkafka")
    assert not not_by_name(other, COOP, borrowed)


def test_a_name_that_no_client_brings_is_not_borrowed():
    seen = [printed("a", "zone", classes=(OWN,))]
    assert borrowed_names(merge(group(member("a"), assignor="zone"), seen)) == frozenset()


def test_kept_partitions_exclude_no_eager_name_that_a_class_of_ones_own_has():
    kept = member("b", family="java", subscription=KEPT)
    seen = [printed("a", COOP, "range", classes=("org.apache.Coop", OWN))]
    merged = merge(group(member("a", family="java"), kept), seen)
    assert borrowed_names(merged) == {COOP, "range"}
    assert merged.members[1].assignors.lacks == ("roundrobin", "sticky")


def test_the_class_wins_over_the_name_and_kept_partitions_over_both():
    silent = merge(group(member("a", family="java")), [printed("a", COOP, classes=(OWN,))])
    answer = member_protocol(silent.members[0], silent)
    assert answer.value is RebalanceProtocol.CANNOT_TELL
    assert OWN in answer.why
    kept = member("a", family="java", subscription=KEPT)
    shown = merge(group(kept, assignor="range"), [printed("a", "range", classes=(OWN,))])
    assert member_protocol(shown.members[0], shown).value is RebalanceProtocol.COOPERATIVE
    assert shown.contradictions == ()
