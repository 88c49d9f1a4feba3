"""The same group under another rebalance protocol, for rehearsals side by side."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from msgspec.structs import replace

from rebal.groups.assignors import Spec, SpecMember, get
from rebal.groups.assignors.server import server_assignor
from rebal.groups.clients import protocols_of
from rebal.groups.model import RebalanceProtocol
from rebal.planner.rehearsal.script import Deed, Event, Scene, Script

EAGER: Final = "eager"
COOPERATIVE: Final = "cooperative"
CONSUMER: Final = "consumer"
PLAN: Final = "plan"
NOW: Final = "now"
VARIANTS: Final[Mapping[str, str]] = {
    EAGER: "every member runs EAGER",
    COOPERATIVE: "every member runs COOPERATIVE, cooperative-sticky alone",
    CONSUMER: "every member uses KIP-848 (group.protocol=consumer)",
    PLAN: "the group as the plan changes it, step by step",
    NOW: "the group as it runs now",
}
"""Every variant that `--compare` takes, and what it is."""
_USUAL_EAGER: Final = "range"
_COOPERATIVE_ONE: Final = "cooperative-sticky"
_UNIFORM: Final = "uniform"


def variant(scene: Scene, name: str) -> Scene:
    """Return the group of `scene` as it would run under a variant, Stable and assigned anew.

    The eager one keeps today's assignor where that is eager, else it has range.
    """
    if name == EAGER:
        assignor = scene.assignor if _is_eager(scene.assignor) else _USUAL_EAGER
        return _running(scene, assignor, protocol="classic")
    if name == COOPERATIVE:
        return _running(scene, _COOPERATIVE_ONE, protocol="classic")
    if name == CONSUMER:
        return _running(scene, _UNIFORM, protocol="consumer")
    return scene


def without_lists(script: Script) -> Script:
    """Return the script with every restart on the list and protocol that the member has."""
    return replace(script, events=tuple(map(_without_list, script.events)))


def _without_list(event: Event) -> Event:
    if event.do is not Deed.RESTART:
        return event
    return replace(event, assignors=(), protocol="", remote_assignor="")


def _is_eager(name: str) -> bool:
    return protocols_of(name) == frozenset({RebalanceProtocol.EAGER})


def _running(scene: Scene, assignor: str, *, protocol: str) -> Scene:
    sent = tuple(
        SpecMember(
            member_id=one.member_id,
            topics=one.process.topics,
            instance_id=one.process.instance_id,
            rack=one.process.rack,
        )
        for one in scene.running
    )
    by = server_assignor(assignor, scene.topic_ids) if protocol == "consumer" else get(assignor)
    spec = Spec(members=sent, partitions=scene.topics, replicas=scene.replicas, racks=scene.racks)
    given = by.assign(spec)
    running = tuple(
        replace(
            one,
            process=replace(
                one.process,
                assignors=one.process.assignors if protocol == "consumer" else (assignor,),
                protocol=protocol,
            ),
            owned=tuple(given[one.member_id]),
        )
        for one in scene.running
    )
    return replace(scene, running=running, assignor=assignor)
