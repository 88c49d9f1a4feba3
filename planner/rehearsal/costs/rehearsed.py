"""Restarts of a group's members, rehearsed by the engine: what each pace costs.

As expected each member stops cleanly and is back when the restart is over. At worst it is killed
and counts until its session ends, and the others join a rebalance as late as they may. Of a large
group one restart of each kind is rehearsed and counts for the others.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import Final, NamedTuple

from msgspec.structs import replace

from rebal.groups.model import Member
from rebal.planner.facts import names
from rebal.planner.plan import Cost, Pace
from rebal.planner.rehearsal.costs.start import CostStart, Roll, batches
from rebal.planner.rehearsal.engine.world import HELD_BACK
from rebal.planner.rehearsal.outcome import Measures
from rebal.planner.rehearsal.rehearse import Chosen, chosen, effort, rehearse, restart_kinds, total
from rebal.planner.rehearsal.scripts import Deed, Scene, Script, ScriptEvent, processes
from rebal.planner.timeouts import (
    back_in_time,
    held_back_in_words,
    waits,
    with_brokers_sessions,
)


def shape_of(roll: Roll) -> Hashable:
    """Return what decides a roll-out's cost, but for names and the number of partitions.

    Where members own unequal shares that number counts too. Each group of Connect workers has a
    shape of its own, because connectors count by name.
    """
    snapshot = roll.snapshot
    group = snapshot.group
    step = (roll.target, roll.protocol, roll.server_side, roll.eager_after, roll.together)
    if group.protocol_type == "connect":
        return group.group_id, roll.order, step, roll.speed
    numbers = {topic.name: number for number, topic in enumerate(snapshot.topics)}
    order, eager = {id_: place for place, id_ in enumerate(roll.order)}, set(roll.eager)
    members = tuple(
        (order.get(member.member_id), member.member_id in eager, *_shape(member, numbers))
        for member in snapshot.members
    )
    shares = [sum(map(len, member.assignment.values())) for member in snapshot.members]
    even = min(shares) > 0 and max(shares) - min(shares) <= 1
    topics = None if even else (tuple(shares), tuple(t.partitions for t in snapshot.topics))
    settings = frozenset(snapshot.cluster.settings.items())
    kind = group.coordinator.kind if group.coordinator is not None else None
    return members, topics, group.assignor, group.type, settings, kind, step, roll.speed


def _shape(member: Member, numbers: Mapping[str, int]) -> tuple[Hashable, ...]:
    patience, software = waits(member), member.software
    read = member.subscription
    subscribed = read.topics if read is not None else member.subscribed_topics
    return (
        member.assignors.knowledge,
        member.assignors.list,
        None if software is None else (software.family, software.version),
        member.instance_id is not None,
        member.protocol_type,
        (patience.session, patience.rebalance),
        frozenset(numbers.get(topic, topic) for topic in subscribed),
    )


def size_of(roll: Roll) -> int:
    """Return how many partitions the group has."""
    return sum(topic.partitions for topic in roll.snapshot.topics)


_RESTS: Final = 86_400.0
# Work (`effort`) within which all restarts are rehearsed, about a fifth of a second.
_ENOUGH: Final = 30_000
_FEWEST: Final = 6
# In a KIP-848 group so many restarts of each kind are rehearsed: chance decides how much moves,
# because range goes by the restarted member's new id.
_EACH_KIP848: Final = 8
# Work of one batch of a KIP-848 group, about half a second.
_MOST: Final = 500_000


class Paced(NamedTuple):
    """One pace's cost, and the partitions that stopped, summed over all rebalances.

    `rehearsed` of `batches` batches were rehearsed, with members of which each stands for `share`.
    """

    pace: Pace
    stopped: int
    rehearsed: int = 1
    batches: int = 1
    share: int = 1

    def scaled(self, times: float) -> Paced:
        """Return the cost of a group with so many times the partitions."""
        pace = replace(
            self.pace,
            partition_seconds=round(times * self.pace.partition_seconds, 1),
            worst_partition_seconds=round(times * (self.pace.worst_partition_seconds or 0.0), 1),
            partitions_moved=round(times * self.pace.partitions_moved),
        )
        return self._replace(pace=pace, stopped=round(times * self.stopped))

    @property
    def left_out(self) -> str:
        """A sentence part on what was not rehearsed; empty where everything was."""
        what = "restarts" if self.pace.batch == 1 else "batches"
        unseen = self.pace.kinds_left_out
        parts = []
        if self.rehearsed < self.batches:
            kinds = f"all but {unseen:,} kinds" if unseen else "each kind"
            parts.append(f"{self.rehearsed:,} of {self.batches:,} {what}, {kinds} among them")
        if self.share > 1:
            parts.append(f"one member for {self.share}")
        return f"the figures are about right: rehearsed {', with '.join(parts)}" if parts else ""


class RehearsedRoll:
    """A roll-out with its stand-ins; `notes` name what stands in for what is not known."""

    def __init__(self, roll: Roll, *, rough: bool = False) -> None:
        members = with_brokers_sessions(roll.snapshot)
        roll = replace(roll, snapshot=replace(roll.snapshot, members=members))
        self._roll, self._rough, self._held_back = roll, rough, False
        self._start = CostStart(roll)
        called = names(members)
        self._order = [called[id_] for id_ in roll.order]
        self._units = processes(roll.snapshot, roll.order)
        # Some stay, so the others wait for nothing but the rebalance.
        self._stay = len(roll.order) < len(members)
        self._quiet = {
            called[m.member_id]: max(waits(m).session - self._start.heartbeat(m), 0.0)
            for m in members
            if back_in_time(m, roll.speed.restart)
        }

    @property
    def notes(self) -> list[str]:
        """Sentence parts on stand-ins for what is not known, and on work that is held back."""
        held_back = [held_back_in_words(self._roll.snapshot.members)] if self._held_back else []
        return held_back + self._start.notes

    def paces(self) -> list[Paced]:
        """Return the cost of each pace: one by one, in the batch asked for, all at once."""
        asked = list(batches(len(self._units), self._roll.speed.batch))
        if self._rough:
            asked = asked[-1:] if self._roll.together else asked[:1]
        return [self._paced(batch, name) for batch, name in asked]

    def _paced(self, batch: int, name: str) -> Paced:
        units = self._units
        cut = [tuple(chain(*units[at : at + batch])) for at in range(0, len(units), batch)]
        some = self._chosen(cut)
        share = self._share(batch, some.rehearsed)
        if share > 1:
            return self._by_fewer(share, batch, name)
        expected = self._sum(cut, some, killed=False)
        worst = expected if self._rough else self._sum(cut, some, killed=True)
        pace = Pace(
            name=name,
            batch=batch,
            seconds=round(expected.seconds, 1),
            partition_seconds=round(expected.unowned, 1),
            rebalances=expected.rebalances,
            partitions_moved=expected.moved,
            worst_seconds=round(max(worst.seconds, expected.seconds), 1),
            worst_partition_seconds=round(max(worst.unowned, expected.unowned), 1),
            longest_seconds=round(expected.longest, 1),
            about=not some.whole,
            kinds_left_out=some.left_out,
        )
        return Paced(pace, expected.stopped, some.rehearsed, len(cut))

    def _chosen(self, cut: Sequence[tuple[str, ...]]) -> Chosen:
        start, count = self._start, len(cut)
        most = max(_FEWEST, _ENOUGH // effort(len(start.lists), len(start.partitions)))
        if self._rough:
            return Chosen((count // 2,) * count) if count > 2 else Chosen(tuple(range(count)))
        if most >= count:
            return Chosen(tuple(range(count)))
        before = {name: start.process(name, done=False, killed=False) for name in start.lists}
        after = ({name: start.process(name, done=True, killed=False) for name in b} for b in cut)
        each = _EACH_KIP848 if self._roll.kip848 else 1
        return chosen(list(restart_kinds(before, after)), each=each, most=2 * most)

    def _share(self, batch: int, places: int) -> int:
        """Return how many members one stands for: each join of a KIP-848 group has a target made.

        With the classic protocol all that join together have one generation.
        """
        roll = self._roll
        if not roll.kip848 or (roll.protocol != "consumer" and batch == len(self._start.lists)):
            return 1
        work = places * batch * (len(self._start.lists) + len(self._start.partitions))
        return min(batch, math.ceil(work / _MOST))

    def _by_fewer(self, share: int, batch: int, name: str) -> Paced:
        rehearsed = RehearsedRoll(self._roll.shrunk(share), rough=self._rough)
        fewer = rehearsed._paced(math.ceil(batch / share), name)
        # Each that leaves or joins gives the group an epoch.
        rebalances = fewer.pace.rebalances * len(self._order) / len(rehearsed._order)
        pace = replace(fewer.pace, batch=batch, rebalances=round(rebalances), about=True)
        return fewer._replace(pace=pace, share=share * fewer.share)

    def _sum(self, cut: Sequence[tuple[str, ...]], some: Chosen, *, killed: bool) -> Measures:
        """Return the sum over all batches, of which `some` are rehearsed."""
        if some.whole:
            return self._run(self._start.scene((), killed), cut, 0, killed, seed=0, last=False)
        made = {place: self._at(place, cut, killed) for place in set(some.places)}
        return total([made[place] for place in some.places])

    def _at(self, place: int, cut: Sequence[tuple[str, ...]], killed: bool) -> Measures:
        # The restarts before let the members' heartbeats fall together as a rebalance does; those
        # of a KIP-848 group are less often.
        begin = max(0, place - (2 if self._roll.kip848 else 1))
        scene = self._start.scene([*chain(*cut[:begin])], killed)
        return self._run(scene, cut[begin : place + 1], begin, killed, seed=begin)

    def _run(
        self,
        scene: Scene,
        cut: Sequence[tuple[str, ...]],
        place: int,
        killed: bool,
        *,
        seed: int,
        last: bool = True,
    ) -> Measures:
        """Return the measures of the batches from `place` on, or of the last one alone."""
        together, all_stop = self._roll.together, not self._stay and len(cut[0]) == len(self._order)
        events: list[ScriptEvent] = []
        if together and not place:
            events += self._stop(self._order, killed)
            events[0] = replace(events[0], phase="stop" if self._stay else "")
        elif all_stop and not killed:
            events.append(ScriptEvent(do=Deed.STOP, members=tuple(self._order)))
        for number, some in enumerate(cut, place):
            if together:
                more = self._start_again(some, killed, empty=not (number or self._stay))
            else:
                more = self._each(some, killed, after=0.0 if all_stop else None)
            events += [replace(more[0], phase=str(number)), *more[1:]]
        script = Script(events=tuple(events), rests=_RESTS)
        made = rehearse(scene, script, seed=seed, keep=False, assignors=self._start.assignors)
        if not self._start.assignors and any(
            note.what == "failed as leader" for note in made.notes
        ):
            self._start.stand_in_for_leader()
            made = rehearse(scene, script, seed=seed, keep=False, assignors=self._start.assignors)
        self._held_back |= any(note.what == HELD_BACK for note in made.notes)
        if last and len(cut) > 1:
            return made.phases[-1].measures
        # Rebalances of members that stop, until none is left, depend on who is the quickest.
        return replace(made.measures, rebalances=sum(p.measures.rebalances for p in made.phases))

    def _stop(self, members: Sequence[str], killed: bool) -> list[ScriptEvent]:
        """Return the end of these; what comes next begins at the earliest after a restart."""
        return [
            ScriptEvent(do=Deed.KILL if killed else Deed.STOP, members=tuple(members)),
            ScriptEvent(do=Deed.WAIT, after=0.0, seconds=self._roll.speed.restart),
        ]

    def _start_again(self, some: Sequence[str], killed: bool, *, empty: bool) -> list[ScriptEvent]:
        takes = 0.0 if empty or some[0] == self._order[0] else self._roll.speed.restart
        return [
            ScriptEvent(
                do=Deed.START,
                seconds=takes,
                processes=tuple(
                    self._start.process(name, done=True, killed=killed) for name in each
                ),
            )
            for each in _stragglers(some, killed and empty)
        ]

    def _each(self, some: Sequence[str], killed: bool, after: float | None) -> list[ScriptEvent]:
        """Return the restart of these, so long `after` the event before."""
        if not killed:
            return [replace(self._back(some, self._roll.speed.restart), after=after)]
        quiet = [name for name in some if name in self._quiet]
        loud = [name for name in some if name not in self._quiet]
        events = []
        if quiet:
            # They are back just before their sessions end.
            events.append(self._back(quiet, max(self._quiet[name] for name in quiet)))
        if loud:
            events += self._stop(loud, killed=True)
            empty = len(loud) == len(self._start.lists)
            events += [self._back(each, 0.0) for each in _stragglers(loud, empty)]
        return events

    def _back(self, some: Sequence[str], takes: float) -> ScriptEvent:
        return ScriptEvent(
            do=Deed.RESTART,
            members=tuple(some),
            seconds=takes,
            assignors=self._start.then,
            protocol=self._roll.protocol,
        )


def priced(roll: Roll, text: str) -> Cost | None:
    """Return the cost of a roll-out; `text` says what its figures rest on.

    They are those of the slowest pace, or of all at once where all stop before the first starts.
    """
    if roll.pricing is None:
        return None
    unit = "task" if roll.snapshot.group.protocol_type == "connect" else "partition"
    if not roll.order:
        return Cost(
            rebalances=0,
            partitions_stopped=0,
            partitions_moved=0,
            unit=unit,
            text="nothing is restarted",
        )
    if roll.pricing.rough:
        made, notes, size = roll.pricing.once(shape_of(roll), partial(_roughly, roll))
        made = [one.scaled(size_of(roll) / size if size else 1.0) for one in made]
    else:
        rehearsed = RehearsedRoll(roll)
        made, notes = rehearsed.paces(), rehearsed.notes
    one = made[-1 if roll.together else 0]
    pace = one.pace
    return Cost(
        rebalances=pace.rebalances,
        partitions_stopped=one.stopped,
        partitions_moved=pace.partitions_moved,
        unit=unit,
        text="; ".join(filter(None, (text, one.left_out, *notes))),
        seconds=pace.seconds,
        partition_seconds=pace.partition_seconds,
        worst_seconds=pace.worst_seconds,
        worst_partition_seconds=pace.worst_partition_seconds,
        longest_seconds=pace.longest_seconds,
        about=pace.about,
        paces=tuple(each.pace for each in made),
    )


def _roughly(roll: Roll) -> tuple[list[Paced], list[str], int]:
    rehearsed = RehearsedRoll(roll, rough=True)
    return rehearsed.paces(), rehearsed.notes, size_of(roll)


def _stragglers(some: Sequence[str], apart: bool) -> list[Sequence[str]]:
    """Return these, or (`apart`) without the last one, which comes after the first rebalance."""
    return [some[:-1], some[-1:]] if apart and len(some) > 1 else [some]
