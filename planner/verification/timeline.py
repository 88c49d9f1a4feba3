"""A roll-out as its journal tells it: who restarted when, what each step took, what stood still.

A journal has looks, not events. A moment here is the first look that shows a thing, so it may have
happened any time since the look before; spans are given with the least and the most they can be.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
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
    steps = tuple(_steps(plan, looks))
    found = Timeline(group_id=plan.group_id, steps=steps, events=tuple(_events(entries)))
    if not looks:
        return found
    lags = [look.lag for look in looks if look.lag is not None]
    return replace(
        found,
        began=looks[0].at,
        ended=looks[-1].at,
        looks=len(looks),
        finished=looks[-1].finished,
        rebalances=_rebalances(looks),
        highest_lag=max(lags, default=None),
        members=tuple(sorted(_members(looks), key=lambda one: natural(one.name))),
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
    shown: dict[str, list[tuple[JournalEntry, SeenMember]]] = defaultdict(list)
    for look in looks:
        for member in look.members:
            shown[member.member_id].append((look, member))
    last = {id_: seen[-1][1] for id_, seen in shown.items()}
    shared = _shared_clients(looks)
    places: list[list[str]] = []
    for id_, [(first, member), *_] in shown.items():
        free = [place for place in places if place[-1] not in first.ids]
        alike = [_likeness(last[place[-1]], member, shared) for place in free]
        best = min(alike, default=_NOT_ALIKE)
        if best < _NOT_ALIKE:
            free[alike.index(best)].append(id_)
        else:
            places.append([id_])
    for place in places:
        tenures = [_tenure(id_, shown[id_]) for id_ in place]
        away = _away(tenures, [look.at for look in looks])
        yield MemberTimeline(
            name=last[place[0]].name or place[-1],
            host=last[place[-1]].host,
            tenures=tuple(tenures),
            away_least=sum(least for least, _ in away),
            away_most=sum(most for _, most in away),
        )


def _shared_clients(looks: Sequence[JournalEntry]) -> frozenset[str]:
    """Return the client ids that several members of one look have: they tell no member apart."""
    counts = (Counter(member.client_id for member in look.members) for look in looks)
    return frozenset(client for count in counts for client, times in count.items() if times > 1)


def _likeness(was: SeenMember, now: SeenMember, shared: frozenset[str]) -> int:
    """Return how surely a member that left has rejoined as `now`: 0 for an equal instance id, 1
    for an equal client id and host, 2 for an equal client id, `_NOT_ALIKE`.

    A member that became static, or dynamic, is known by a client id that no other member has (3).
    """
    if was.instance_id is not None and now.instance_id is not None:
        return 0 if was.instance_id == now.instance_id else _NOT_ALIKE
    if was.client_id != now.client_id:
        return _NOT_ALIKE
    if was.instance_id == now.instance_id:
        return 1 if was.host == now.host else 2
    return _NOT_ALIKE if not now.client_id or now.client_id in shared else 3


def _tenure(member_id: str, seen: Sequence[tuple[JournalEntry, SeenMember]]) -> Tenure:
    """Return the time of one member id, by the looks that show it, with the steps that it made."""
    made: dict[int, Made] = {}
    for look, member in seen:
        word = look.confirmed
        said = {word.step} if word is not None and member_id in word.members else set[int]()
        for step in {*member.contradicted} - said:
            if step in made and made[step].confirmed:
                del made[step]
        for step in (*member.made, *said):
            confirmed = step not in member.made
            made.setdefault(step, Made(step=step, at=look.at, confirmed=confirmed))
    return Tenure(
        member_id=member_id,
        since=seen[0][0].at,
        until=seen[-1][0].at,
        made=tuple(made.values()),
    )


def _away(tenures: Sequence[Tenure], looks: Sequence[datetime]) -> list[tuple[float, float]]:
    """Return the least and the most seconds that it was away after each of its tenures."""
    back = [*(tenure.since for tenure in tenures[1:]), None]
    found = []
    for left, at in zip((tenure.until for tenure in tenures), back, strict=True):
        without = [look for look in looks if left < look and (at is None or look < at)]
        least = without[-1] - without[0] if without else timedelta()
        most = (at or looks[-1]) - left
        found.append((least.total_seconds(), most.total_seconds()))
    return found
