"""A roll-out as its journal tells it: who restarted when, what each step took, what stood still.

A journal has looks, not events. A moment here is the first look that shows a thing, so it may have
happened any time since the look before; spans are given with the least and the most they can be.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import datetime
from itertools import pairwise
from typing import Final

from msgspec.structs import replace

from rebal.groups.model import Moment, Record, Tri
from rebal.planner.facts import natural
from rebal.planner.plan import Plan
from rebal.planner.verification.journal import JournalEntry, SeenMember

_NOT_ALIKE: Final = 4


class Made(Record, frozen=True, kw_only=True):
    """A step that a member has completed; `confirmed`: by the operator's word alone."""

    step: int
    at: Moment
    confirmed: bool = False


class Tenure(Record, frozen=True, kw_only=True):
    """The time that one member id is in the group, from the first look with it to the last."""

    member_id: str
    since: Moment
    until: Moment
    made: tuple[Made, ...] = ()


class MemberTimeline(Record, frozen=True, kw_only=True):
    """One member of the service: its member ids one after another, each but the first a restart.

    `away_least` and `away_most` are seconds without a member id, over all its restarts.
    """

    name: str
    host: str
    tenures: tuple[Tenure, ...]
    away_least: float = 0
    away_most: float = 0

    @property
    def made(self) -> dict[int, Made]:
        """Return step → when it was first completed; only steps that the last id has completed."""
        now = {made.step for made in self.tenures[-1].made}
        every = [made for tenure in reversed(self.tenures) for made in tenure.made]
        return {made.step: made for made in every if made.step in now}


class StepTimeline(Record, frozen=True, kw_only=True):
    """One step: the first look that was in it, and the first at which its gate held."""

    step: int
    title: str
    began: Moment | None = None
    held: Moment | None = None


class Event(Record, frozen=True, kw_only=True):
    """Something that the roll-out must be remembered for: a danger, a blind time, a person's
    word.
    """

    at: Moment
    kind: str
    text: str = ""


class Timeline(Record, frozen=True, kw_only=True, omit_defaults=False):
    """A whole roll-out; `rebalances` is the growth of the generation between the looks.

    None stands for what no look shows.
    """

    group_id: str
    began: Moment | None = None
    ended: Moment | None = None
    looks: int = 0
    finished: bool = False
    rebalances: int | None = None
    highest_lag: int | None = None
    steps: tuple[StepTimeline, ...] = ()
    members: tuple[MemberTimeline, ...] = ()
    events: tuple[Event, ...] = ()


def timeline_of(plan: Plan, entries: Sequence[JournalEntry]) -> Timeline:
    """Return the roll-out of `plan` as the journal's `entries` (oldest first) show it."""
    looks = [entry for entry in entries if entry.blind is None]
    lags = [look.lag for look in looks if look.lag is not None]
    return Timeline(
        group_id=plan.group_id,
        began=looks[0].at if looks else None,
        ended=looks[-1].at if looks else None,
        looks=len(looks),
        finished=bool(looks) and looks[-1].finished,
        rebalances=_rebalances(looks),
        highest_lag=max(lags, default=None),
        steps=tuple(_steps(plan, looks)),
        members=tuple(sorted(_members(looks), key=lambda one: natural(one.name))),
        events=tuple(_events(entries)),
    )


def _steps(plan: Plan, looks: Sequence[JournalEntry]) -> Iterator[StepTimeline]:
    for step in plan.steps:
        within = [look for look in looks if look.step == step.id]
        after = [look.at for look in looks if look.step > step.id]
        held = [look.at for look in within if look.gate is Tri.YES]
        yield StepTimeline(
            step=step.id,
            title=step.title,
            began=within[0].at if within else None,
            held=min((*held, *after), default=None),
        )


def _events(entries: Sequence[JournalEntry]) -> Iterator[Event]:
    """Yield what happened, once where it goes on from look to look."""
    before: set[str] = set()
    for entry in entries:
        if entry.blind is not None:
            yield Event(at=entry.at, kind="blind", text=entry.blind)
        for kind in entry.dangers:
            if kind not in before:
                yield Event(at=entry.at, kind="danger", text=kind)
        before = set(entry.dangers)
        if entry.confirmed is not None:
            text = f"step {entry.confirmed.step}: {entry.confirmed.reason}"
            yield Event(at=entry.at, kind="confirmed", text=text)


def _rebalances(looks: Sequence[JournalEntry]) -> int | None:
    seen = [look.generation for look in looks if look.generation is not None]
    # A group whose members were all gone may begin again below.
    return sum(max(0, after - before) for before, after in pairwise(seen)) if seen else None


def _members(looks: Sequence[JournalEntry]) -> Iterator[MemberTimeline]:
    """Yield each place of the service; a new id takes the place of one that has left."""
    places: list[list[Tenure]] = []
    known: dict[str, SeenMember] = {}
    shared = _shared_clients(looks)
    for look in looks:
        here, word = {member.member_id: member for member in look.members}, look.confirmed
        taken = {place[-1].member_id: place for place in places}
        free = [place for id_, place in taken.items() if id_ not in here]
        for id_, member in here.items():
            place = taken.get(id_)
            if place is None:
                alike = [_likeness(known[each[-1].member_id], member, shared) for each in free]
                best = min(alike, default=_NOT_ALIKE)
                place = free.pop(alike.index(best)) if best < _NOT_ALIKE else []
                if not place:
                    places.append(place)
                place.append(Tenure(member_id=id_, since=look.at, until=look.at))
            said = word.step if word and id_ in word.members else None
            made = tuple(_made(place[-1].made, member, look.at, said))
            place[-1] = replace(place[-1], until=look.at, made=made)
        known |= here
    for place in places:
        first, last = known[place[0].member_id], known[place[-1].member_id]
        yield _timeline(first, last, place, [look.at for look in looks])


def _shared_clients(looks: Sequence[JournalEntry]) -> frozenset[str]:
    """Return the client ids that several members of one look have: they tell no member apart."""
    counts = (Counter(member.client_id for member in look.members) for look in looks)
    return frozenset(client for count in counts for client, times in count.items() if times > 1)


def _likeness(was: SeenMember, now: SeenMember, shared: frozenset[str]) -> int:
    """Return how surely a member that left has rejoined as `now`: 0 for an equal instance id, 1
    for an equal client id and host, 2 for an equal client id, `_NOT_ALIKE`.

    A member that became static, or dynamic, is known by a client id that no other member has (3).
    """
    instances = was.instance_id, now.instance_id
    rows = (
        (None not in instances, 0 if was.instance_id == now.instance_id else _NOT_ALIKE),
        (was.client_id != now.client_id, _NOT_ALIKE),
        (instances == (None, None), 1 if was.host == now.host else 2),
        (now.client_id and now.client_id not in shared, 3),
    )
    return next((rank for holds, rank in rows if holds), _NOT_ALIKE)


def _made(
    before: Sequence[Made], member: SeenMember, at: datetime, said: int | None
) -> Iterator[Made]:
    """Yield what the member has completed: what it had `before` and no evidence has voided since,
    what this look shows, and what the operator `said` at it.
    """
    left = [
        one
        for one in before
        if one.step == said or not (one.confirmed and one.step in member.contradicted)
    ]
    known = {one.step for one in left}
    yield from left
    yield from (Made(step=step, at=at) for step in member.made if step not in known)
    if said is not None and said not in {*known, *member.made}:
        yield Made(step=said, at=at, confirmed=True)


def _timeline(
    first: SeenMember, last: SeenMember, tenures: Sequence[Tenure], ends: Sequence[datetime]
) -> MemberTimeline:
    """Return one place's timeline; `ends` are all looks, so those without the member are known.

    `first` and `last` are its first and its last id as last seen.
    """
    left = [tenure.until for tenure in tenures]
    back = [*(tenure.since for tenure in tenures[1:]), None]
    least = most = 0.0
    for since, until in zip(left, back, strict=True):
        without = [at for at in ends if since < at and (until is None or at < until)]
        least += (without[-1] - without[0]).total_seconds() if without else 0
        most += ((until or ends[-1]) - since).total_seconds()
    return MemberTimeline(
        name=first.name or last.member_id,
        host=last.host,
        tenures=tuple(tenures),
        away_least=least,
        away_most=most,
    )
