"""The operator's word for a member's assignor list, where no evidence shows the list.

It counts for a member that was restarted: its member id is new since the step began. A restart
proves nothing of the running process, so the gate waits for the operator, who confirms the list of
each member (`rebal verify --confirm`). A configuration file that names another list, or that was
written after the member was first seen, speaks against it.
The confirmation is bound to the member id, and evidence overrules it at every later look.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from types import MappingProxyType
from typing import Final

from rebal.groups.model import Knowledge, RebalanceProtocol, Tri
from rebal.planner.advice.actions import restart_of
from rebal.planner.clients import cooperative, is_mixed
from rebal.planner.context import Context, Facts
from rebal.planner.plan import Aim, Step
from rebal.planner.verdict import agreed
from rebal.planner.verification.journal import assumed

_PROTOCOLS: Final[Mapping[Tri, RebalanceProtocol]] = MappingProxyType(
    {Tri.YES: RebalanceProtocol.COOPERATIVE, Tri.NO: RebalanceProtocol.EAGER}
)


def confirmable_list(step: Step) -> tuple[str, ...]:
    """Return the list that the operator may confirm in `step`; empty for a step of another kind.

    The first bounce needs no confirmation: its list is elected once every member holds it.
    """
    return step.target_list if step.aim in (Aim.NARROW, Aim.CLASSIC) else ()


def not_confirmable(
    facts: Facts, step: Step, *, restarted: bool, opened: bool, newer: str | None
) -> str | None:
    """Return why the operator cannot confirm this member's list in `step`; None where they can.

    `restarted`: its member id is new. `opened`: a look at the beginning of the step shows which
    member ids are new since. `newer` is the answer of `written_later`.
    """
    names = confirmable_list(step)
    if not names:
        return "the step brings no list to confirm"
    if not restarted:
        return "not restarted since the step began: the same member id"
    if not opened:
        return "no earlier look shows the members that were there when the step began"
    declared = facts.member.declared
    if declared is None:
        return None
    if declared.group_protocol == "consumer":
        return f"{declared.evidence.detail} says group.protocol=consumer"
    if declared.list and declared.list != names:
        shown = ", ".join(declared.list) or "no list"
        return (
            f"{declared.evidence.detail} says [{shown}], and the step brings [{', '.join(names)}]"
        )
    return newer


def written_later(facts: Facts, first_seen: datetime) -> str | None:
    """Return the reason where the member's configuration file is newer than its process; else None.

    Both times are of whole seconds. In the same second the file came first: a process takes longer
    to start and to join than its file takes to be written.
    """
    declared = facts.member.declared
    if declared is None:
        return None
    times = ((declared.evidence.at, "written"), (declared.created_at, "created"))
    begun = first_seen.replace(microsecond=0)
    for at, what in times:
        if at is not None and at > begun:
            return (
                f"{declared.evidence.detail} was {what} at {at:%b %d %H:%M:%SZ}, after this member "
                f"was first seen at {first_seen:%b %d %H:%M:%SZ}: the file does not show what the "
                "process was started with"
            )
    return None


def contrary_evidence(
    context: Context, facts: Facts, names: Sequence[str], kept: datetime | None = None
) -> str | None:
    """Return the evidence against the statement that this member runs exactly `names`; None where
    there is none.

    `kept` is the time of an earlier look at which it had kept partitions: the list of a member id
    never changes, so that stays evidence.
    """
    return next(_contrary(context, facts, tuple(names), kept), None)


def _contrary(
    context: Context, facts: Facts, names: tuple[str, ...], kept_before: datetime | None
) -> Iterator[str]:
    member, known = facts.member, facts.member.assignors
    if any(one.member_id in (None, member.member_id) for one in context.snapshot.contradictions):
        yield "the evidence on it contradicts itself"
    if known.knowledge is Knowledge.EXACT and not assumed(member):
        yield f"evidence shows its list: [{', '.join(known.list)}]"
    for name in names:
        if name in known.lacks or context.supports(facts, name) is Tri.NO:
            yield f"evidence shows that its list has no {name}"
        if context.own_class(facts, name):
            yield f"the class behind {name} is not Kafka's own"
    for name in sorted(context.names_held(member) - set(names)):
        yield f"evidence shows that its list holds {name}"
    if is_mixed(names) and context.takes_mixed(facts) is Tri.NO:
        yield "its client does not start with eager and cooperative assignors in one list"
    told = context.runs(facts)
    wanted = _PROTOCOLS.get(agreed(map(cooperative, names)))
    if wanted is not None and told.value not in (wanted, RebalanceProtocol.CANNOT_TELL):
        yield f"it runs {told.value}: {told.why}"
    if wanted is RebalanceProtocol.EAGER and member.kept_partitions:
        kept = member.kept_partitions
        yield f"it kept {kept} partitions when it last joined, as no EAGER member does"
    if wanted is RebalanceProtocol.EAGER and kept_before is not None:
        at = f"{kept_before:%b %d %H:%MZ}"
        yield f"it had kept partitions when it joined, as no EAGER member does (the journal, {at})"
    admission = restart_of(context, facts, names)
    if admission.verdict is Tri.NO:
        yield f"the coordinator rejects this list now: {admission.reason}"
