"""What proves the steps of Kafka Streams programs and of Connect workers, of one member.

Streams: its version by its own bytes (groups/streams.py) or a log; the rebalance protocol
it runs by its log, by what it kept or gave up when it rejoined, or by its version. Connect: the
list it was seen joining with, or the elected protocol, which every worker offers (KIP-415). Only
where none of these tells does a step leave anything to a person (`Proof.by_hand`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

from rebal.groups.model import GroupState, RebalanceProtocol, Source, Tri
from rebal.groups.protocol import member_protocol
from rebal.planner.aims import Aim, GateCheck, Proof
from rebal.planner.context import Context, Facts
from rebal.planner.plan import Step
from rebal.planner.programs import INCREMENTAL, above_eager, below_cooperative, offers, runs

_OPPOSITE: Final = {Tri.YES: Tri.NO, Tri.NO: Tri.YES, Tri.CANNOT_TELL: Tri.CANNOT_TELL}
_NOT_SHOWN: Final = (
    "which rebalance protocol it runs was not seen yet: --client-log of its start, or "
    "--request-log across the next rebalance"
)


def _new(context: Context, _: Step, facts: Facts) -> Proof:
    return _version(facts, _OPPOSITE[_below_cooperative(context, facts)])


def _old(context: Context, _: Step, facts: Facts) -> Proof:
    return _version(facts, _below_cooperative(context, facts))


def _bridge(context: Context, _: Step, facts: Facts) -> Proof:
    answer = above_eager(facts)
    if answer is Tri.CANNOT_TELL and runs(context, facts) is RebalanceProtocol.EAGER:
        answer = Tri.NO
    return _version(facts, _OPPOSITE[answer])


def _below_cooperative(context: Context, facts: Facts) -> Tri:
    """As `below_cooperative`; and whose log is bound to a member id is no older than 2.4."""
    answer = below_cooperative(context, facts)
    ran = facts.member.ran
    printed = ran is not None and any(e.source is Source.CLIENT_LOG for e in ran.evidence)
    return Tri.NO if answer is Tri.CANNOT_TELL and printed else answer


def _cooperative(context: Context, _: Step, facts: Facts) -> Proof:
    old = [f for f in context.members if below_cooperative(context, f) is Tri.YES]
    return _in_time(context, old, _runs(context, facts, RebalanceProtocol.COOPERATIVE))


def _eager(context: Context, _: Step, facts: Facts) -> Proof:
    new = [f for f in context.members if above_eager(f) is Tri.YES]
    return _in_time(context, new, _runs(context, facts, RebalanceProtocol.EAGER))


def _in_time(context: Context, others: Sequence[Facts], proof: Proof) -> Proof:
    """Who is on the step's protocol while `others` cannot be was too early: no step has begun."""
    if proof.done is not Tri.YES or not others:
        return proof
    why = f"{proof.why}, but {context.named(others)} cannot: the step before is not done"
    return Proof(done=Tri.CANNOT_TELL, why=why)


def _incremental(context: Context, _: Step, facts: Facts) -> Proof:
    return _worker(context, facts, _offers_incremental(context, facts))


def _workers_eager(context: Context, _: Step, facts: Facts) -> Proof:
    return _worker(context, facts, _OPPOSITE[_offers_incremental(context, facts)])


def _offers_incremental(context: Context, facts: Facts) -> Tri:
    """As `offers`; and where `default` is elected, the last one not known if all others offer it.

    Workers vote for the newest that all of them have, so somebody has none: also one that is alone.
    """
    answer = offers(context, facts, INCREMENTAL)
    elected = context.group.assignor if context.group.state is GroupState.STABLE else None
    if answer is not Tri.CANNOT_TELL or not elected:
        return answer
    others = (each for each in context.members if each is not facts)
    told = all(offers(context, each, INCREMENTAL) is Tri.YES for each in others)
    return Tri.NO if told else answer


def _version(facts: Facts, done: Tri) -> Proof:
    software = facts.member.software
    shown = (software.version or software.version_range) if software is not None else None
    ran = facts.member.ran
    if shown is None and ran is not None:
        shown = f"of a version that runs {ran.value}"
    if done is Tri.CANNOT_TELL:
        why = f"its version is not known well enough ({shown or 'nothing shows it'})"
        return Proof(done=done, why=f"{why}: --request-log or --client-log", by_hand=True)
    return Proof(done=done, why=f"runs Kafka Streams {shown}")


def _runs(context: Context, facts: Facts, wanted: RebalanceProtocol) -> Proof:
    told = member_protocol(facts.member, context.snapshot, context.borrowed)
    if told.value is RebalanceProtocol.CANNOT_TELL:
        return Proof(done=Tri.CANNOT_TELL, why=_NOT_SHOWN, by_hand=True)
    return Proof(done=Tri.YES if told.value is wanted else Tri.NO, why=told.why)


def _worker(context: Context, facts: Facts, done: Tri) -> Proof:
    known = facts.member.assignors.list
    if done is Tri.CANNOT_TELL:
        why = (
            f"which protocols it offers was not seen ({context.group.assignor} is elected, which "
            "every worker offers): --request-log across a rebalance, or its own --client-log"
        )
        return Proof(done=done, why=why, by_hand=True)
    shown = f"offers [{', '.join(known)}]" if known else f"{context.group.assignor} is elected"
    return Proof(done=done, why=shown)


PROGRAM_GATES: Final[Mapping[Aim, GateCheck]] = MappingProxyType(
    {
        Aim.STREAMS_NEW: _new,
        Aim.STREAMS_COOPERATIVE: _cooperative,
        Aim.STREAMS_BRIDGE: _bridge,
        Aim.STREAMS_EAGER: _eager,
        Aim.STREAMS_OLD: _old,
        Aim.CONNECT_INCREMENTAL: _incremental,
        Aim.CONNECT_EAGER: _workers_eager,
    }
)
