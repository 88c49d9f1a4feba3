"""`memory_of(context)`: the coordinator's memory of a group, by the evidence of one look.

A coordinator load leaves [the elected assignor] of every list, because the stored record has
nothing else (GroupMetadataManager.replay of GroupMetadataValue; Scala:
GroupMetadataManager.readGroupMessageValue), and starts the session timers again. A rebalance after
it makes every member that runs join again with its whole list; a static member's restart sends its
own list alone, without a rebalance. A static member that is down does not join: the coordinator
keeps what the load left until it returns, is removed, or its session expires. Describe does not
show who is down, so after a load any static member may be. The records of a KIP-848 group hold
whole lists, so a load does not shorten those. Seen on 4.1.1 and 3.9.1
(tests/live/test_admission_live.py).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from rebal.groups.clients import assignors
from rebal.groups.model import (
    GroupSnapshot,
    GroupState,
    GroupType,
    Knowledge,
    ProbeAnswer,
    Source,
    Tri,
)
from rebal.planner.admission.check import INCONSISTENT
from rebal.planner.admission.remembered import CoordinatorMemory, Entry, Held
from rebal.planner.clients import able, cannot_hold

if TYPE_CHECKING:
    from rebal.planner.context import Context, Facts

_BOUNDS: Final = ("group.min.session.timeout.ms", "group.max.session.timeout.ms")


def memory_of(context: Context, *, rejoined: bool = False) -> CoordinatorMemory:
    """Return what the coordinator may remember of `context`'s group.

    `rejoined`: as it would be once every member has joined again.
    """
    snapshot, group = context.snapshot, context.group
    known = {*assignors(), *_named(snapshot), context.target}
    stable = group.state is GroupState.STABLE and bool(snapshot.members)
    online = group.type in (GroupType.CONSUMER, GroupType.STREAMS)
    elected = group.assignor if stable and not online else None
    cases: tuple[tuple[Entry, ...], ...]
    if online:
        counted = [f for f in context.members if f.member.protocol_type == "classic"]
        cases = (tuple(_entry(f, _converted(context, f)) for f in counted),)
    else:
        counted = list(context.members)
        cases = _cases(context, counted, known, elected, rejoined=rejoined)
    answers = [] if online or rejoined else _answers(snapshot)
    supported = {answer.assignor for answer in answers if answer.supported is Tri.YES}
    settings = snapshot.cluster.settings
    size = settings.get("group.consumer.max.size" if online else "group.max.size", "")
    low, high = (settings.get(key, "") for key in _BOUNDS)
    return CoordinatorMemory(
        state=group.state,
        type=group.type,
        protocol_type=group.protocol_type or ("consumer" if online else None),
        elected=elected,
        cases=cases,
        others=len(context.members) - len(counted),
        in_all=frozenset({*filter(None, [elected]), *supported}),
        not_in_all=frozenset(a.assignor for a in answers if a.supported is Tri.NO),
        max_size=int(size) if size.isdigit() else (2**31 - 1 if settings else None),
        room=int(any(a.supported is not Tri.CANNOT_TELL for a in _answers(snapshot))),
        session_ms=(int(low), int(high)) if low.isdigit() and high.isdigit() else None,
    )


def _answers(snapshot: GroupSnapshot) -> list[ProbeAnswer]:
    probe = snapshot.probe
    return [] if probe is None or probe.refused else list(probe.answers)


def _named(snapshot: GroupSnapshot) -> set[str]:
    found = {name for m in snapshot.members for name in (*m.assignors.list, *m.assignors.at_least)}
    return {*found, *(answer.assignor for answer in _answers(snapshot))}


def _cases(
    context: Context,
    counted: list[Facts],
    names: set[str],
    elected: str | None,
    *,
    rejoined: bool,
) -> tuple[tuple[Entry, ...], ...]:
    """The histories that fit what is known of the last load."""
    own = {f.member.member_id: _own(f, names, elected) for f in counted}
    if rejoined or context.remembers or _never_loaded(context):
        sent = tuple(_entry(f, (own[f.member.member_id],)) for f in counted)
        return (sent,)
    forgotten = Held(names=frozenset({elected}), exact=True) if elected else Held()
    rebalanced, loaded = [], []
    for facts in counted:
        mine = own[facts.member.member_id]
        static, since = facts.member.instance_id is not None, _joined_since(context, facts)
        if elected and (elected in mine.lacks or (mine.exact and elected not in mine.names)):
            # No history makes such a list one of this group: the contradiction must stay visible.
            rebalanced.append(_entry(facts, (mine,)))
            loaded.append(_entry(facts, (mine,)))
            continue
        both = (mine, forgotten)
        kept = both if static and since is not Tri.YES else (mine,)
        left = both if static else (forgotten,)
        rebalanced.append(_entry(facts, kept, mine))
        loaded.append(_entry(facts, (mine,) if since is Tri.YES else left, mine))
    cases = {
        Tri.NO: (tuple(rebalanced),),
        Tri.YES: (tuple(loaded),),
        Tri.CANNOT_TELL: (tuple(rebalanced), tuple(loaded)),
    }
    if context.reloaded is Tri.NO and _rejection_proves_load(context, counted):
        return cases[Tri.CANNOT_TELL]
    return cases[context.reloaded]


def _rejection_proves_load(context: Context, counted: list[Facts]) -> bool:
    """A list was rejected although every member had sent it one of its assignors before.

    Error 23 then shows that the coordinator had forgotten: a load came between, whatever else says
    that none did.
    """
    sent = [facts.member for facts in counted]
    if not all(m.joined_at and m.assignors.knowledge is Knowledge.EXACT for m in sent) or not sent:
        return False
    common = set.intersection(*(set(member.assignors.list) for member in sent))
    newest = max(member.joined_at for member in sent if member.joined_at)
    return any(
        one.error == INCONSISTENT
        and one.at is not None
        and one.at > newest
        and common & {*one.list}
        for one in context.snapshot.refusals
    )


def _never_loaded(context: Context) -> bool:
    """The coordinator has held the group since its partition was made (leader epoch 0)."""
    coordinator = context.group.coordinator
    return coordinator is not None and coordinator.leader_epoch == 0 and context.reloaded is Tri.NO


def _joined_since(context: Context, facts: Facts) -> Tri:
    """Was this member's own accepted join seen after the last load?"""
    coordinator = context.group.coordinator
    loaded = coordinator.loaded_at if coordinator is not None else None
    joined = facts.member.joined_at
    if loaded is None or joined is None:
        return Tri.CANNOT_TELL
    return Tri.YES if joined > loaded else Tri.CANNOT_TELL


def _own(facts: Facts, names: set[str], elected: str | None) -> Held:
    """Return the list that its own last join sent, as far as it is known."""
    known = facts.member.assignors
    if known.knowledge is Knowledge.EXACT:
        return Held(names=frozenset(known.list), exact=True)
    lacks = set(known.lacks)
    if facts.family is not None and facts.family_proven:
        can = able(facts.family, facts.version)
        lacks |= {name for name in names if cannot_hold(can, name, elected)}
    at_least = {*known.at_least, *filter(None, [elected])}
    return Held(names=frozenset(at_least), lacks=frozenset(lacks))


# The id that a classic join gets in a KIP-848 group: a bare UUID, in either spelling. In a classic
# group the client or instance id stands before it.
_BARE_ID: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|[A-Za-z0-9_-]{22}")


def _converted(context: Context, facts: Facts) -> tuple[Held, ...]:
    """A classic member of a KIP-848 group: what the coordinator holds, which no load shortens.

    It is what the member sent, where it joined after the conversion (its id is of the new kind) or
    a record shows it; a conversion copies what the coordinator remembered then, which a load may
    have shortened to any one assignor of the list.
    """
    known = facts.member.assignors
    if known.knowledge is not Knowledge.EXACT:
        return (Held(lacks=frozenset(known.lacks)),)
    own = Held(names=frozenset(known.list), exact=True)
    recorded = any(item.source is Source.OFFSETS_TOPIC for item in known.evidence)
    if recorded or context.remembers or _BARE_ID.fullmatch(facts.member.member_id):
        return (own,)
    return (own, *(Held(names=frozenset({name}), exact=True) for name in known.list))


def _entry(facts: Facts, lists: tuple[Held, ...], whole: Held | None = None) -> Entry:
    return Entry(
        whole=None if lists == (whole,) else whole,
        member_id=facts.member.member_id,
        instance_id=facts.member.instance_id,
        name=facts.name,
        lists=lists,
    )
