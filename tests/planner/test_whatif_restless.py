"""A group that comes to rest, and that the next rebalance stirs up again for nothing."""

from __future__ import annotations

import pytest

from rebal.cli.output import render
from rebal.cli.render.simulation.screen import simulate_view
from rebal.groups.assignors import NAMES, Assignment, Spec, assign
from rebal.groups.model import Broker, Cluster, GroupSnapshot, Member, Subscription, Topic
from rebal.planner.rehearsal.spec import Owners
from rebal.planner.rehearsal.whatif.changes import Changes
from rebal.planner.rehearsal.whatif.simulation import simulate
from tests.assignors.restless import restless
from tests.groups.stable import stable_group


def captured(spec: Spec, owners: Assignment) -> GroupSnapshot:
    owned = Owners(enumerate(owners[member.member_id] for member in spec.members)).shares
    return stable_group(
        *(
            Member(
                member_id=member.member_id,
                client_id=member.member_id,
                instance_id=member.instance_id,
                rack=member.rack,
                subscription=Subscription(version=3, topics=member.topics),
                assignment=dict(owned.get(number, {})),
            )
            for number, member in enumerate(spec.members)
        ),
        group_id="uneven",
        assignor="cooperative-sticky",
        topics=tuple(
            Topic(name=name, partitions=count, replicas=spec.replicas[name])
            for name, count in spec.partitions.items()
        ),
        cluster=Cluster(brokers=tuple(Broker(broker_id=b, rack=r) for b, r in spec.racks.items())),
    )


@pytest.fixture
def settled() -> GroupSnapshot:
    """As it is after its first rebalance, in which nobody had anything to give up."""
    return captured(restless(), assign("cooperative-sticky", restless()))


def test_it_rests_until_the_next_rebalance_and_the_screen_says_so(settled: GroupSnapshot) -> None:
    made = simulate(settled, "cooperative-sticky")
    assert [(one.revoked, one.assigned) for one in made.rounds] == [(3, 0), (0, 3)]
    assert (made.stable, made.moved, made.stays) == (True, 0, 17)
    assert made.again == 3
    out = render(simulate_view(made, "test", "rebal"), width=120)
    assert "2 rebalances until stable" in out
    assert "restless     the next rebalance takes 3 partitions from their owners though" in out


@pytest.mark.parametrize("assignor", [*NAMES, "uniform"])
def test_a_group_that_subscribes_alike_stays_as_it_is(
    settled: GroupSnapshot, assignor: str
) -> None:
    spec = restless()
    topics = tuple(spec.partitions)
    changes = Changes(remove_members=tuple(m.member_id for m in spec.members[1:]))
    assert simulate(settled, assignor, changes).again == 0
    alike = Spec(
        members=tuple(m.__class__(member_id=m.member_id, topics=topics) for m in spec.members),
        partitions=spec.partitions,
        replicas=spec.replicas,
    )
    made = simulate(captured(alike, assign("range", alike)), assignor)
    assert made.stable
    assert made.again == 0
    assert "restless" not in render(simulate_view(made, "test", "rebal"), width=120)
