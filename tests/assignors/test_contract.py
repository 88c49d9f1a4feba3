"""KIP-429's assignor contract, and what holds for any group beside the results that Java gave."""

import doctest
from collections import Counter
from collections.abc import Callable

import pytest
from hypothesis import event, given, reject
from hypothesis import strategies as st
from msgspec.structs import replace

from rebal.groups import assignors
from rebal.groups.assignors import (
    NAMES,
    Assignment,
    LeaderWouldFail,
    Spec,
    SpecMember,
    UnknownAssignorError,
    assign,
    get,
)
from rebal.groups.assignors.client.kafka import ASSIGNORS
from rebal.groups.assignors.client.problem import Problem
from rebal.groups.assignors.client.sticky import Memories
from rebal.groups.model import RebalanceProtocol
from rebal.groups.wire.consumer_protocol import (
    StickyUserData,
    decode_cooperative_sticky,
    decode_sticky,
    encode_sticky,
)
from tests.examples import examples

EAGER, COOPERATIVE = RebalanceProtocol.EAGER, RebalanceProtocol.COOPERATIVE
MEMBER = SpecMember(member_id="m", topics=("orders", "payments"))
OWNED = (("payments", 3), ("orders", 1), ("orders", 0))


def test_the_docstring_examples_of_assignors_are_true() -> None:
    tried = doctest.testmod(assignors)
    assert tried.attempted >= 5
    assert not tried.failed


def test_only_cooperative_sticky_runs_cooperative() -> None:
    assert [get(name).name for name in NAMES] == [*NAMES]
    protocols = {name: get(name).supported_protocols for name in NAMES}
    assert all(EAGER in each for each in protocols.values())
    cooperative = [name for name, each in protocols.items() if COOPERATIVE in each]
    assert cooperative == ["cooperative-sticky"]


def test_an_unknown_assignor_is_an_error_that_lists_the_known_ones() -> None:
    with pytest.raises(UnknownAssignorError, match="'uniform'; there are range, roundrobin"):
        assign("uniform", Spec(members=(MEMBER,), partitions={}))


def test_a_topic_named_twice_makes_subscriptions_differ_as_in_java() -> None:
    """Kafka's jar gives this; with equal subscriptions m0 gets 0, 3 and m1 gets 1, 4."""
    spec = Spec(
        members=(
            SpecMember(member_id="m0", topics=("t", "t")),
            SpecMember(member_id="m1", topics=("t", "t")),
            SpecMember(member_id="m2", topics=("t",), owned=(("t", 5),), generation=1),
        ),
        partitions={"t": 6},
    )
    made = assign("cooperative-sticky", spec)
    assert [[p for _, p in made[m.member_id]] for m in spec.members] == [[0, 2], [1, 3], [5, 4]]


@pytest.mark.parametrize("name", ["range", "roundrobin"])
def test_range_and_roundrobin_send_and_keep_no_user_data(name: str) -> None:
    assignor = get(name)
    assert assignor.subscription_user_data(MEMBER) is None
    assert assignor.on_assignment(MEMBER, OWNED, None, 4).user_data is None


def test_sticky_sends_its_partitions_and_generation_once_it_has_an_assignment() -> None:
    sticky = get("sticky")
    assert sticky.subscription_user_data(MEMBER) is None
    after = sticky.on_assignment(MEMBER, OWNED, None, 4)
    read = decode_sticky(after.user_data)
    assert read.generation == 4
    assert sorted(read.previous) == sorted(OWNED)
    assert [p for t, p in read.previous if t == "orders"] == [1, 0]


def test_cooperative_sticky_sends_its_generation_from_the_start() -> None:
    cooperative = get("cooperative-sticky")
    assert decode_cooperative_sticky(cooperative.subscription_user_data(MEMBER)) == -1
    after = cooperative.on_assignment(MEMBER, OWNED, None, 4)
    assert decode_cooperative_sticky(after.user_data) == 4
    assert (after.owned, after.generation) == (OWNED, 4)


@pytest.mark.parametrize("name", NAMES)
def test_assignors_accept_groups_without_members_topics_or_subscriptions(name: str) -> None:
    assert assign(name, Spec(members=(), partitions={"orders": 4})) == {}
    assert assign(name, Spec(members=(MEMBER,), partitions={})) == {"m": []}
    none = replace(MEMBER, topics=())
    assert assign(name, Spec(members=(none,), partitions={"orders": 4})) == {"m": []}


TOPICS = ("orders", "payments", "clicks", "audit.v1", "t-é")
ROUNDS = 50


@st.composite
def specs(draw: st.DrawFn, *, racks: bool = False) -> Spec:
    counts = {name: draw(st.integers(1, 9)) for name in TOPICS[: draw(st.integers(1, 5))]}
    some = st.lists(st.sampled_from(sorted(counts)), unique=True, min_size=1)
    ids = draw(st.lists(st.text(min_size=1, max_size=8), unique=True, min_size=1, max_size=7))
    rack = st.sampled_from([None, "", "a", "b"]) if racks else st.none()
    return Spec(
        members=tuple(
            SpecMember(
                member_id=name,
                topics=tuple(draw(some)),
                instance_id=draw(st.none() | st.sampled_from([f"i{n}", f"j{n}"])),
                rack=draw(rack),
            )
            for n, name in enumerate(ids)
        ),
        partitions=counts,
        replicas={name: [[p % 3, (p + 1) % 3] for p in range(n)] for name, n in counts.items()},
        racks={0: "a", 1: "b", 2: None},
    )


def settled(name: str, spec: Spec) -> tuple[Spec, Assignment]:
    """Rebalance until nothing changes hands any more."""
    assignor = get(name)
    for generation in range(1, ROUNDS):
        result = assignor.assign(spec)
        after = tuple(
            assignor.on_assignment(m, sorted(result[m.member_id]), None, generation)
            for m in spec.members
        )
        before = {m.member_id: sorted(m.owned) for m in spec.members}
        spec = replace(spec, members=after)
        if all(before[m.member_id] == sorted(m.owned) for m in after):
            return spec, result
    # One in some thousand groups with different topics: Java's leader too takes something away at
    # every other rebalance, whatever set it off (test_jar_live.py follows one for fifty rounds).
    alike = len({frozenset(member.topics) for member in spec.members}) == 1
    assert name == "cooperative-sticky", f"{name} does not come to rest"
    assert not alike, f"{name} does not come to rest though all subscribe alike"
    event(f"{name} does not come to rest")
    return reject()


def everything(spec: Spec) -> Counter:
    wanted = {topic for member in spec.members for topic in member.topics}
    return Counter((t, p) for t in wanted for p in range(spec.partitions[t]))


@pytest.mark.parametrize("name", NAMES)
@given(spec=specs(racks=True))
def test_each_partition_gets_one_subscribed_owner(name: str, spec: Spec) -> None:
    _, result = settled(name, spec)
    assert Counter(owned for list_ in result.values() for owned in list_) == everything(spec)
    topics = {member.member_id: member.topics for member in spec.members}
    assert all(t in topics[member] for member, list_ in result.items() for t, _ in list_)


@pytest.mark.parametrize("name", ["sticky", "cooperative-sticky"])
@examples(60)
@given(spec=specs(), data=st.data())
def test_sticky_members_that_stay_lose_nothing(name: str, spec: Spec, data: st.DataObject) -> None:
    """When other members leave and all subscriptions are equal."""
    common = spec.members[0].topics
    spec = replace(spec, members=tuple(replace(m, topics=common) for m in spec.members))
    before, result = settled(name, spec)
    stay = data.draw(
        st.lists(st.sampled_from(before.members), unique_by=lambda m: m.member_id, min_size=1)
    )
    _, after = settled(name, replace(before, members=tuple(stay)))
    for member in stay:
        assert set(result[member.member_id]) <= set(after[member.member_id])


@given(spec=specs())
def test_a_cooperative_round_assigns_no_partition_of_another_owner(spec: Spec) -> None:
    """KIP-429: a partition to be revoked is assigned to no member in the same round."""
    before, _ = settled("cooperative-sticky", spec)
    joined = SpecMember(member_id="a new one", topics=tuple(spec.partitions))
    if any(member.member_id == joined.member_id for member in before.members):
        return
    result = assign("cooperative-sticky", replace(before, members=(joined, *before.members)))
    owner = {owned: member.member_id for member in before.members for owned in member.owned}
    for member, list_ in result.items():
        assert all(owner.get(owned, member) == member for owned in list_)


SOME_TOPICS = ("orders", "payments", "a", "no-such-topic")
partitions = st.tuples(st.sampled_from(SOME_TOPICS), st.integers(-1, 12))
sent = st.builds(
    lambda previous, generation: encode_sticky(
        StickyUserData(previous=tuple(previous), generation=generation)
    ),
    st.lists(partitions, max_size=12),
    st.none() | st.integers(-1, 9),
)


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    data = bytearray(draw(sent))
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, len(data) - 1))
        data[at] = draw(st.integers(0, 255))
    end = draw(st.integers(0, len(data)))
    return bytes(data[:end]) if draw(st.booleans()) else bytes(data) + draw(st.binary(max_size=4))


def problem(*more: str) -> Problem:
    topics = (*SOME_TOPICS[:3], *more)
    member = SpecMember(member_id="m", topics=topics)
    return Problem(Spec(members=(member,), partitions=dict.fromkeys(topics, 12)))


def by_the_codec(problem: Problem, data: bytes | None) -> tuple[list[int], int]:
    read = decode_sticky(data)
    return problem.codes(read.previous), -1 if read.generation is None else read.generation


@examples(100, full=300)
@given(st.one_of(sent, damaged(), st.binary(max_size=40), st.none()))
def test_sticky_user_data_of_any_bytes_is_read_as_the_codec_reads_it(data: bytes | None) -> None:
    for some in (problem(), problem("t-é\ufffd")):
        assert Memories(some).read(data) == by_the_codec(some, data)


@st.composite
def claims(draw: st.DrawFn) -> Spec:
    """Members that claim what they like, of any generation, and their topics at random."""
    counts = {"orders": 5, "payments": 3, "a": 2, "é": 4}
    owned = st.tuples(st.sampled_from([*counts, "no-such-topic"]), st.integers(0, 6))
    alike = draw(st.booleans())
    some = st.lists(st.sampled_from(sorted(counts)), unique=True).map(tuple)
    return Spec(
        members=tuple(
            SpecMember(
                member_id=f"m{n}",
                topics=tuple(counts) if alike else draw(some),
                owned=tuple(draw(st.lists(owned, max_size=6, unique=draw(st.booleans())))),
                generation=draw(st.none() | st.integers(-1, 2)),
            )
            for n in range(draw(st.integers(1, 4)))
        ),
        partitions=counts,
    )


def outcome(assign: Callable[[Spec], Assignment], spec: Spec) -> object:
    try:
        return assign(spec)
    except LeaderWouldFail as error:
        return str(error), error.members, error.topics, error.never_ends


@pytest.mark.parametrize("name", NAMES)
@examples(60, full=200)
@given(spec=claims())
def test_remembered_user_data_gives_the_same_assignment_as_sent_data(name: str, spec: Spec) -> None:
    """Whatever partitions the members claim to own."""
    assignor = ASSIGNORS[name]
    sent = (replace(m, user_data=assignor.subscription_user_data(m)) for m in spec.members)
    over_the_wire = outcome(assignor.assign, replace(spec, members=tuple(sent)))
    assert outcome(assignor.assign_remembered, spec) == over_the_wire
