"""KIP-429's assignor contract, and the two public functions."""

from __future__ import annotations

import doctest

import pytest
from msgspec.structs import replace

from rebal.groups import assignors
from rebal.groups.assignors import NAMES, Spec, SpecMember, UnknownAssignorError, assign, get
from rebal.groups.model import RebalanceProtocol
from rebal.groups.wire.user_data import decode_cooperative_sticky, decode_sticky

EAGER, COOPERATIVE = RebalanceProtocol.EAGER, RebalanceProtocol.COOPERATIVE
MEMBER = SpecMember(member_id="m", topics=("orders", "payments"))
OWNED = (("payments", 3), ("orders", 1), ("orders", 0))


def test_the_example_in_the_documentation_is_true() -> None:
    tried = doctest.testmod(assignors)
    assert tried.attempted >= 5
    assert not tried.failed


@pytest.mark.parametrize(
    ("name", "protocols"),
    [
        ("range", {EAGER}),
        ("roundrobin", {EAGER}),
        ("sticky", {EAGER}),
        ("cooperative-sticky", {EAGER, COOPERATIVE}),
    ],
)
def test_an_assignor_is_that_of_the_java_client(
    name: str, protocols: set[RebalanceProtocol]
) -> None:
    assignor = get(name)
    assert (assignor.name, assignor.version, assignor.supported_protocols) == (name, 0, protocols)


def test_an_unknown_name_says_which_there_are() -> None:
    with pytest.raises(UnknownAssignorError, match="'uniform'; there are range, roundrobin"):
        assign("uniform", Spec(members=(MEMBER,), partitions={}))


def test_a_topic_named_twice_makes_subscriptions_differ_as_in_java() -> None:
    """The jar gives this; were they alike, the first two would get 0, 3 and 1, 4."""
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
def test_range_and_roundrobin_send_nothing_and_remember_nothing(name: str) -> None:
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
def test_the_input_is_left_as_it_was(name: str) -> None:
    members = (MEMBER, replace(MEMBER, member_id="n", owned=OWNED, generation=3))
    spec = Spec(members=members, partitions={"orders": 4, "payments": 4})
    assign(name, spec)
    assert spec == Spec(members=members, partitions={"orders": 4, "payments": 4})


@pytest.mark.parametrize("name", NAMES)
def test_nobody_and_nothing(name: str) -> None:
    assert assign(name, Spec(members=(), partitions={"orders": 4})) == {}
    assert assign(name, Spec(members=(MEMBER,), partitions={})) == {"m": []}
    none = replace(MEMBER, topics=())
    assert assign(name, Spec(members=(none,), partitions={"orders": 4})) == {"m": []}
