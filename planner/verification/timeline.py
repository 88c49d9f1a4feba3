"""A roll-out as its journal shows it: who restarted when, the time of each step, the dangers.

A journal has looks, not events. A time here is that of the first look that shows a thing, so it may
have happened at any time since the look before.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise

from msgspec.structs import replace

from rebal.groups.model import Moment, Record, Tri
from rebal.planner.facts import KEYS, natural
from rebal.planner.plan import Plan
from rebal.planner.verification.journal import JournalEntry, SeenMember, looks_of, successors


class Made(Record, frozen=True, kw_only=True):
    """A step that a member has completed; `confirmed`: the operator said so, without evidence."""

    step: int
    at: Moment
    confirmed: bool = False


class Tenure(Record, frozen=True, kw_only=True):
    """The time for which one member id is in the group, from the first look with it to the last."""

    member_id: str
    since: Moment
    until: Moment
    made: tuple[Made, ...] = ()


class MemberTimeline(Record, frozen=True, kw_only=True):
    """One member of the service during the roll-out.

    `tenures` are its member ids, one after another: each but the first began with a restart.
    """

    name: str
    host: str
    tenures: tuple[Tenure, ...]

    @property
    def made(self) -> dict[int, Made]:
        """Return step → when the member first completed it, for the steps done by its last id."""
        now = {made.step for made in self.tenures[-1].made}
        return {
            made.step: made
            for tenure in reversed(self.tenures)
            for made in tenure.made
            if made.step in now
        }


class StepTimeline(Record, frozen=True, kw_only=True):
    """One step: the first look that was in it, and the first at which its gate held."""

    step: int
    title: str
    began: Moment | None = None
    held: Moment | None = None


class Event(Record, frozen=True, kw_only=True):
    """An event of the roll-out: a danger, a failed look, or a confirmation by the operator."""

    at: Moment
    kind: str
    text: str = ""


class Timeline(Record, frozen=True, kw_only=True, omit_defaults=False):
    """A whole roll-out, as its looks show it; None for what no look shows.

    `rebalances` is the growth of the group's generation between the looks.
    """

    group_id: str
    began: Moment | None = None
    ended: Moment | None = None
    looks: int = 0
    finished: bool = False
    rebalances: int | None = None
    steps: tuple[StepTimeline, ...] = ()
    members: tuple[MemberTimeline, ...] = ()
    events: tuple[Event, ...] = ()


def timeline_of(plan: Plan, entries: Sequence[JournalEntry]) -> Timeline:
    """Return the roll-out of `plan` as the journal's `entries` (oldest first) show it."""
    looks = [entry for entry in entries if entry.blind is None]
    # A restart before the first look shows against the group that was planned.
    planned = [replace(one, at=looks[0].at) for one in looks_of(plan, ())] if looks else []
    counts = [look.generation for look in looks if look.generation is not None]
    return Timeline(
        group_id=plan.group_id,
        began=looks[0].at if looks else None,
        ended=looks[-1].at if looks else None,
        looks=len(looks),
        finished=bool(looks) and looks[-1].finished,
        # A group whose members were all gone may begin again below.
        rebalances=sum(max(0, b - a) for a, b in pairwise(counts)) if counts else None,
        steps=tuple(_steps(plan, looks)),
        members=tuple(sorted(_members([*planned, *looks]), key=lambda one: natural(one.name))),
        events=tuple(_events(entries)),
    )


def _steps(plan: Plan, looks: Sequence[JournalEntry]) -> Iterator[StepTimeline]:
    for step in plan.steps:
        held = (
            look.at
            for look in looks
            if look.step > step.id or (look.step == step.id and look.gate is Tri.YES)
        )
        yield StepTimeline(
            step=step.id,
            title=step.title,
            began=next((look.at for look in looks if look.step == step.id), None),
            held=min(held, default=None),
        )


def _events(entries: Sequence[JournalEntry]) -> Iterator[Event]:
    """Yield the events; a danger that goes on from look to look is yielded once."""
    before: tuple[str, ...] = ()
    for entry in entries:
        word = entry.confirmed
        rows = (
            ("blind", entry.blind),
            *(("danger", kind) for kind in entry.dangers if kind not in before),
            ("confirmed", f"step {word.step}: {word.reason}" if word is not None else ""),
        )
        yield from (Event(at=entry.at, kind=kind, text=text) for kind, text in rows if text)
        before = entry.dangers


def _members(looks: Sequence[JournalEntry]) -> Iterator[MemberTimeline]:
    """Yield the timeline of each member of the service.

    A new member id continues the timeline of a member that has left and has the same identity.
    """
    places: dict[str, list[Tenure]] = {}
    known: dict[str, SeenMember] = {}
    for look in looks:
        gone = [known[id_].as_member for id_ in places if id_ not in look.ids]
        came = [one.as_member for one in look.members if one.member_id not in places]
        for was, now in successors(gone, came, KEYS - 1).items():
            places[now] = places.pop(was)
        for member in look.members:
            place = places.setdefault(member.member_id, [])
            if not place or place[-1].member_id != member.member_id:
                place.append(Tenure(member_id=member.member_id, since=look.at, until=look.at))
            place[-1] = replace(place[-1], until=look.at, made=_made(place[-1].made, member, look))
            known[member.member_id] = member
    for id_, place in places.items():
        yield MemberTimeline(
            name=known[place[0].member_id].name or id_, host=known[id_].host, tenures=tuple(place)
        )


def _made(before: Sequence[Made], member: SeenMember, look: JournalEntry) -> tuple[Made, ...]:
    """Return the steps that the member has completed: those in `before`, and those of this look.

    A step that the operator confirmed counts unless evidence contradicts it.
    """
    word = look.confirmed
    said = [word.step] if word is not None and member.member_id in word.members else []
    void = {*member.contradicted} - {*said}
    now = (
        *(Made(step=step, at=look.at, confirmed=True) for step in said),
        *(Made(step=step, at=look.at) for step in member.made),
        *(one for one in before if not (one.confirmed and one.step in void)),
    )
    return tuple({one.step: one for one in now}.values())
