"""Goals of plans, named by `--to` or `--to-client`.

A goal is a rebalance protocol with a target assignor, or another client library.
"""

from collections.abc import Mapping
from typing import Final

from rebal.groups.clients import consumer_libraries, family
from rebal.groups.errors import RebalError
from rebal.groups.model import (
    GroupSnapshot,
    GroupType,
    Knowledge,
    RebalanceProtocol,
    Record,
    Tri,
)
from rebal.groups.protocol import group_protocol, member_protocol
from rebal.planner.clients import cooperative, custom, runs_cooperative
from rebal.planner.context import (
    CLASSIC,
    CONSUMER,
    COOPERATIVE,
    COOPERATIVE_STICKY,
    EAGER,
    STREAMS,
)
from rebal.planner.facts import GroupFacts, bridge_of
from rebal.planner.plan import Plan

SHOWN: Final = {
    COOPERATIVE: "COOPERATIVE",
    EAGER: "EAGER",
    CONSUMER: "KIP-848",
    STREAMS: "KIP-1071",
    CLASSIC: "classic",
}
"""Kind of goal → the protocol that a plan's document names (`to`)."""


class NotPlannedError(RebalError):
    """A goal that rebal cannot plan for this group; the message says why, or which goals exist."""


class Goal(Record, frozen=True, kw_only=True):
    """The goal of one plan.

    `kind` is cooperative, eager, consumer, streams or classic; `target` is the assignor to end on.
    `only_target`: every other assignor is removed, eager or cooperative. `back`: a KIP-848 group
    returns to the classic protocol. `client` is the library that replaces the members' own.
    """

    kind: str
    target: str
    only_target: bool = False
    back: bool = False
    client: str | None = None


def goal_of(
    snapshot: GroupSnapshot,
    target: str,
    families: Mapping[str, str] | None = None,
    before: GroupSnapshot | None = None,
) -> Goal:
    """Return the goal that `--to target` names, or `--to-client target` for a client library.

    `families` are the client families that the user states. `before` is an earlier snapshot of the
    group, whose elected assignor is the target when a library change is undone.

    Raises:
        NotPlannedError: no such goal exists, or there is no path to it from this group.
    """
    if target in consumer_libraries():
        return _other_library(snapshot, target, families, before)
    kip848 = snapshot.group.type is GroupType.CONSUMER
    # Completing a change to KIP-848 that is under way is what ends the EAGER rebalances of its
    # classic members.
    left_behind = kip848 and any(
        member.protocol_type == "classic"
        and member_protocol(member, snapshot).value is not RebalanceProtocol.COOPERATIVE
        for member in snapshot.members
    )
    if target == CONSUMER or (target == COOPERATIVE and left_behind):
        return Goal(kind=CONSUMER, target=COOPERATIVE_STICKY)
    if target in (COOPERATIVE, COOPERATIVE_STICKY):
        back = kip848 and target == COOPERATIVE_STICKY
        own = _own_cooperative(snapshot) if target == COOPERATIVE else None
        return Goal(kind=COOPERATIVE, target=own or COOPERATIVE_STICKY, only_target=back, back=back)
    if target == STREAMS:
        return Goal(kind=STREAMS, target=STREAMS)
    if target == CLASSIC or (target == EAGER and snapshot.group.type is GroupType.STREAMS):
        return Goal(kind=CLASSIC, target="stream")
    if target == EAGER:
        return Goal(kind=EAGER, target=_old_one(snapshot), back=kip848)
    if custom(target) and target == _own_cooperative(snapshot):
        return Goal(kind=COOPERATIVE, target=target)
    if custom(target) and target == _old_one(snapshot):
        return Goal(kind=EAGER, target=target)
    if custom(target) and any(target in names for names in _lists(snapshot)):
        return Goal(kind=COOPERATIVE, target=target, only_target=True)
    if target in ("range", "roundrobin", "sticky", "RoundRobinAssigner"):
        elected = snapshot.group.assignor
        aside = elected not in (None, target) and (
            cooperative(str(elected)) is not Tri.YES or snapshot.group.protocol_type == "connect"
        )
        # Where an exact list holds another eager assignor, a change is under way.
        mixed = elected == target and any(
            name != target and cooperative(name) is Tri.NO
            for member in snapshot.members
            for name in member.assignors.list
        )
        return Goal(kind=EAGER, target=target, only_target=aside or mixed or kip848, back=kip848)
    raise NotPlannedError(
        f"--to {target}: expected cooperative, eager, consumer, streams, classic, or one of "
        "range, roundrobin, sticky, cooperative-sticky. A custom assignor can be named once "
        "evidence (--request-log, --client-log) shows a running member that lists it before the "
        "elected assignor."
    )


def _other_library(
    snapshot: GroupSnapshot,
    client: str,
    families: Mapping[str, str] | None,
    before: GroupSnapshot | None,
) -> Goal:
    """Return the goal of replacing the members' client library with `client`.

    Its target is the assignor that both libraries have. If there is none, it is the assignor
    elected in the snapshot `before`, else the first of `client`'s default list.
    """
    group = GroupFacts(snapshot, target="", families=families)
    if not group.classic:
        raise NotPlannedError(
            f"--to-client {client}: only a classic group of consumers with assignor lists is "
            f"planned, and {group.group.group_id} is none."
        )
    if group.sink is not None:
        raise NotPlannedError(
            f"--to-client {client}: the members of {group.group.group_id} are tasks of the sink "
            f"connector {group.sink}, which run in Connect's workers with their Java client."
        )
    ran = before.group.assignor if before is not None else None
    target = bridge_of(group, client).assignor or ran or family(client).defaults[0].list[0]
    return Goal(kind=EAGER, target=target, client=client)


def goal_back(
    plan: Plan, now: GroupSnapshot | None = None, families: Mapping[str, str] | None = None
) -> str:
    """Return the goal of a plan that undoes `plan`.

    It is a value of `--to`, or of `--to-client` while members run the library that `plan` changes
    to. `now` is the group's current snapshot (None: the plan's baseline). `families` are the client
    families that the user states of its members.

    Raises:
        NotPlannedError: the library that `plan` replaces is not known.
    """
    before, now = plan.baseline.group, now or plan.baseline
    if now.members and plan.to in consumer_libraries():
        library = _library_before(plan)
        returned = all(
            facts.family_proven and facts.family == library
            for facts in GroupFacts(now, target="", families=families).members
        )
        if not returned or now.group.assignor == before.assignor:
            return library
    if before.type in (GroupType.CONSUMER, GroupType.STREAMS):
        return before.type.value
    if plan.to == SHOWN[STREAMS]:
        return CLASSIC
    if before.protocol_type == "consumer" and before.assignor not in (None, "stream"):
        return _old_one(plan.baseline) if _ran_eager_below(plan) else str(before.assignor)
    return COOPERATIVE if plan.runs is RebalanceProtocol.COOPERATIVE else EAGER


def _library_before(plan: Plan) -> str:
    """Return the client library that the members ran when a plan to replace it was made.

    Raises:
        NotPlannedError: it is not known, or the members ran several.
    """
    facts = GroupFacts(plan.baseline, target="", families=plan.accepted.families)
    ran = {one.family for one in facts.members if one.family_proven} - {plan.to}
    if len(ran) == 1:
        return str(ran.pop())
    raise NotPlannedError(
        "the library to go back to is not known, or is not one: plan it with --to-client."
    )


def _ran_eager_below(plan: Plan) -> bool:
    """Return whether members ran EAGER under a COOPERATIVE elected assignor when `plan` was made.

    An upgrade is in this state after its first bounce, with mixed lists. In a plan to COOPERATIVE,
    any protocol of the group but COOPERATIVE counts as EAGER.
    """
    elected = plan.baseline.group.assignor
    upward = plan.to == "COOPERATIVE" and plan.runs is not RebalanceProtocol.COOPERATIVE
    return (
        (upward or plan.runs is RebalanceProtocol.EAGER)
        and elected is not None
        and cooperative(elected) is Tri.YES
    )


def _elected(snapshot: GroupSnapshot) -> str | None:
    """Return the assignor that the members elected; None in a KIP-848 group.

    In a KIP-848 group the assignor runs in the broker.
    """
    return None if snapshot.group.type is GroupType.CONSUMER else snapshot.group.assignor


def _own_cooperative(snapshot: GroupSnapshot) -> str | None:
    """Return the elected custom assignor if a member proves that it is COOPERATIVE, else None.

    It is None too if the group runs EAGER, or EAGER and COOPERATIVE.
    """
    elected, runs = _elected(snapshot), group_protocol(snapshot).value
    if elected is None or not custom(elected) or not any(map(runs_cooperative, snapshot.members)):
        return None
    return None if runs in (RebalanceProtocol.EAGER, RebalanceProtocol.MIXED) else elected


def _lists(snapshot: GroupSnapshot) -> list[tuple[str, ...]]:
    return [
        member.assignors.list
        for member in snapshot.members
        if member.assignors.knowledge is Knowledge.EXACT
    ]


def _old_one(snapshot: GroupSnapshot) -> str:
    """Return the eager assignor to go back to.

    It is the elected one if it is eager, else one from the exact lists, else a custom one (rule
    RB112 asks whether it is eager), else range.
    """
    listed = (name for names in _lists(snapshot) for name in names)
    named = [name for name in (_elected(snapshot), *listed) if name]
    eager = (name for name in named if cooperative(name) is Tri.NO)
    own = None if _own_cooperative(snapshot) else next(filter(custom, named), None)
    return next(eager, own or "range")
