"""Costs of a plan's steps: restarts of a group's members, rehearsed at several paces.

The expected cost assumes that each member stops cleanly and is back when its restart is over. The
worst case assumes that each member is killed and counts until its session ends, and that the other
members join a rebalance as late as they may. In a large group one restart of each kind is rehearsed
and stands for the others.

In batches (`by_assignors`, `by_workers`): each batch of members restarts after the one before.

Online, to KIP-848 or back (`move_online`). Upgrade: the first stop is a rebalance of the classic
group, and the first join converts the group. From then on each leave and each join gives the group
a new target, computed by the coordinator's assignor. Downgrade: the same, until the last member
with group.protocol=consumer leaves; the remaining members then rebalance as a classic group. A
static member that is back in time takes over its old assignment, and no new target is computed. All
of this was observed on 4.1.1 (tests/live/test_kip848_costs_live.py).

Together (`stop_and_start`, `stop_some`, `stop_workers`): the members stop together at every pace;
only the start has a pace. If the whole group stops, nothing is consumed until the first members
start; they own all partitions until the next members start. If some members stop, the others take
over their partitions in one rebalance, and give them back when those members start.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import chain
from typing import Final, NamedTuple

from msgspec.structs import replace

from rebal.groups.clients import older
from rebal.groups.model import GroupSnapshot, GroupType, Member, Tri
from rebal.planner.clients import cooperative
from rebal.planner.facts import all_partitions, figure, names, owned
from rebal.planner.plan import Cost, Pace
from rebal.planner.rehearsal.costs.start import (
    FULL,
    CostStart,
    Pricing,
    Roll,
    batches,
    shape_of,
    size_of,
)
from rebal.planner.rehearsal.engine.leaders import EAGER
from rebal.planner.rehearsal.engine.world import HELD_BACK
from rebal.planner.rehearsal.outcome import Measures
from rebal.planner.rehearsal.rehearse import (
    Chosen,
    choose_restarts,
    effort,
    rehearse,
    restart_kinds,
    total,
)
from rebal.planner.rehearsal.scene import default_server_side
from rebal.planner.rehearsal.scripts import Deed, Script, ScriptEvent, processes
from rebal.planner.rehearsal.spec import work_by_worker
from rebal.planner.timeouts import (
    FIRST_DELAY,
    RECONCILE_INTERVAL,
    Speed,
    at_worst,
    back_in_time,
    held_back_in_words,
    leaves,
    waits,
    with_brokers_sessions,
)

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
    """Cost of restarts at one pace, such as one by one.

    `stopped` counts the times that a partition loses its owner. Of the `batches` batches only
    `rehearsed` were simulated, and each simulated member stands for `share` members of the group.
    """

    pace: Pace
    stopped: int
    rehearsed: int = 1
    batches: int = 1
    share: int = 1

    def scaled(self, times: float) -> Paced:
        """Return the cost for a group that has `times` as many partitions."""
        pace = replace(
            self.pace,
            partition_seconds=round(times * self.pace.partition_seconds, 1),
            worst_partition_seconds=round(times * (self.pace.worst_partition_seconds or 0.0), 1),
            partitions_moved=round(times * self.pace.partitions_moved),
        )
        return self._replace(pace=pace, stopped=round(times * self.stopped))

    @property
    def left_out(self) -> str:
        """A sentence part on how much of the restarts was rehearsed; empty if all of them were."""
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
    """A roll-out that is rehearsed at each pace to compute its cost."""

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
        """Sentence parts on stand-ins for unknown facts, and on work a Connect leader delays."""
        held_back = [held_back_in_words(self._roll.snapshot.members)] if self._held_back else []
        return held_back + self._start.notes

    def paces(self) -> list[Paced]:
        """Return the cost at each pace: one by one, in batches of the given size, all at once."""
        asked = list(batches(len(self._units), self._roll.speed.batch))
        if self._rough:
            asked = asked[-1:] if self._roll.together else asked[:1]
        return [self._paced(batch, name) for batch, name in asked]

    def _paced(self, batch: int, name: str) -> Paced:
        units = self._units
        cut = [tuple(chain(*units[at : at + batch])) for at in range(0, len(units), batch)]
        some = self._chosen(cut)
        share = self._members_per_simulated(batch, some.rehearsed)
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
        return choose_restarts(list(restart_kinds(before, after)), each=each, most=2 * most)

    def _members_per_simulated(self, batch: int, places: int) -> int:
        """Return how many members one simulated member stands for, to limit the work.

        `batch` is the processes in a batch, `places` the batches to rehearse. The result exceeds 1
        only for large batches in KIP-848 groups, where each join computes a new target.
        """
        roll = self._roll
        if not roll.kip848 or (roll.protocol != "consumer" and batch == len(self._start.lists)):
            return 1
        work = places * batch * (len(self._start.lists) + len(self._start.partitions))
        return min(batch, math.ceil(work / _MOST))

    def _by_fewer(self, share: int, batch: int, name: str) -> Paced:
        rehearsed = RehearsedRoll(self._roll.scaled_down(share), rough=self._rough)
        fewer = rehearsed._paced(math.ceil(batch / share), name)
        # Each that leaves or joins gives the group an epoch.
        rebalances = fewer.pace.rebalances * len(self._order) / len(rehearsed._order)
        pace = replace(fewer.pace, batch=batch, rebalances=round(rebalances), about=True)
        return fewer._replace(pace=pace, share=share * fewer.share)

    def _sum(self, cut: Sequence[tuple[str, ...]], some: Chosen, *, killed: bool) -> Measures:
        """Return the sum of the measures of all batches `cut`; `some` says which to rehearse."""
        if some.whole:
            return self._run(cut, 0, killed, last=False)
        # The restarts before let the members' heartbeats fall together as a rebalance does; those
        # of a KIP-848 group are less often.
        more = 2 if self._roll.kip848 else 1
        made = {
            place: self._run(cut[: place + 1], max(0, place - more), killed)
            for place in set(some.places)
        }
        return total([made[place] for place in some.places])

    def _run(
        self, cut: Sequence[tuple[str, ...]], begin: int, killed: bool, *, last: bool = True
    ) -> Measures:
        """Rehearse `cut[begin:]`; return the measures of all (with `last`: of the last batch)."""
        scene = self._start.scene([*chain(*cut[:begin])], killed)
        together, all_stop = self._roll.together, not self._stay and len(cut[0]) == len(self._order)
        events: list[ScriptEvent] = []
        if together and not begin:
            stop, wait = self._stop(self._order, killed)
            events += [replace(stop, phase="stop" if self._stay else ""), replace(wait, after=None)]
        elif all_stop and not killed:
            events.append(ScriptEvent(do=Deed.STOP, members=tuple(self._order)))
        for number, some in enumerate(cut[begin:], begin):
            if together:
                more = self._start_again(some, killed, empty=not (number or self._stay))
            else:
                more = self._each(some, killed, after=0.0 if all_stop else None)
            events += [replace(more[0], phase=str(number)), *more[1:]]
        script = Script(events=tuple(events), rests=_RESTS)
        made = rehearse(scene, script, seed=begin, keep=False, assignors=self._start.assignors)
        if not self._start.assignors and any(
            note.what == "failed as leader" for note in made.notes
        ):
            self._start.stand_in_for_leader()
            made = rehearse(scene, script, seed=begin, keep=False, assignors=self._start.assignors)
        self._held_back |= any(note.what == HELD_BACK for note in made.notes)
        if last and len(cut) > begin + 1:
            return made.phases[-1].measures
        # Rebalances of members that stop, until none is left, depend on who is the quickest.
        return replace(made.measures, rebalances=sum(p.measures.rebalances for p in made.phases))

    def _stop(self, members: Sequence[str], killed: bool) -> list[ScriptEvent]:
        """Return the events that stop or kill `members`, then wait as long as a restart takes."""
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
        """Return the events that restart the members `some`.

        A clean restart begins `after` seconds after the event before (None: once the group is at
        rest). With `killed` static members that can be back in time return just before their
        sessions end, and the other members are killed.
        """
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
    """Return the cost of a roll-out; None if the roll-out has no pricing.

    The cost's own figures are those of the slowest pace, or of all at once if all members stop
    before the first starts; its `paces` has each pace. `text` says on what the figures depend.
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
    """Return `some` as one batch, or (`apart`) as two, with the last member alone in the second."""
    return [some[:-1], some[-1:]] if apart and len(some) > 1 else [some]


def by_assignors(roll: Roll) -> Cost | None:
    """Return the cost of restarting the members in batches; None if `roll` has no pricing."""
    if roll.snapshot.group.protocol_type == "connect":
        return by_workers(roll)
    if roll.eager_after and len(roll.eager) == len(roll.snapshot.members):
        how = f"each rebalance stops {all_partitions(sum(map(owned, roll.snapshot.members)))}"
    elif roll.eager_after:
        how = "members that run EAGER stop all they own at each rebalance"
    elif roll.eager:
        how = "members that are not restarted yet stop all they own at each rebalance"
    else:
        how = "at each rebalance only what moves stops"
    return priced(
        roll,
        f"{how}{_counts_on(roll.snapshot.members)}, if a restart takes "
        f"{figure(roll.speed.restart)} s and members send a heartbeat every "
        f"{figure(roll.speed.rebalance)} s (the members' own, and what their listeners do, is "
        f"not visible); {at_worst(roll.snapshot.members)}",
    )


def _counts_on(members: Sequence[Member]) -> str:
    if any(member.instance_id is None and not leaves(member) for member in members):
        return (
            "; a member that is closed does not leave: it counts until its session ends, and its "
            "next join and its partitions wait for that"
        )
    if any(member.instance_id is not None for member in members):
        return "; the partitions of a static member that restarts in time wait for it"
    return ""


def move_online(roll: Roll) -> Cost | None:
    """Return the cost of moving the group to KIP-848 or back while it runs; None without a pricing.

    The cost's own figures are those of restarts one by one.
    """
    up = roll.protocol == "consumer"
    members = with_brokers_sessions(roll.snapshot)
    static = sum(m.member_id in roll.order and back_in_time(m, roll.speed.restart) for m in members)
    parts = []
    if static < len(roll.order):
        parts.append(
            f"each leave and each join gives the group a new target ({roll.server_side}), and only "
            f"what moves stops"
        )
        if up and roll.snapshot.group.type is not GroupType.CONSUMER:
            parts.append("the first leave is a rebalance of the classic group")
        if not up:
            parts.append("what follows the last leave is a rebalance of the classic group")
        if roll.server_side == "range":
            parts.append(
                "range assigns by member id, and a restarted member has a new one: more or fewer "
                "partitions may move"
            )
        if roll.eager or roll.eager_after:
            parts.append(
                "classic members that run EAGER rejoin at each, revoke all partitions, and are "
                "assigned at once those that stay"
            )
    if static:
        parts.append(
            f"{static} static: their partitions wait for them, and no other member rejoins"
        )
    return priced(
        roll,
        f"{'; '.join(parts)}, if a restart takes {figure(roll.speed.restart)} s and what moves "
        f"stops for up to {figure(roll.speed.reconcile)} s ({_set(RECONCILE_INTERVAL, roll)}); "
        f"{at_worst(members)}",
    )


def empty_after(members: Sequence[Member], *, killed: bool = False) -> float:
    """Return the seconds from the last stop until the group is Empty.

    Static members and Kafka Streams members do not leave when they stop, and killed members cannot.
    The coordinator counts them until their sessions end.
    """
    return max((waits(m).session for m in members if killed or not leaves(m)), default=0)


def stop_and_start(
    snapshot: GroupSnapshot,
    assignor: str,
    *,
    kip848: bool = False,
    speed: Speed,
    pricing: Pricing | None = FULL,
) -> Cost | None:
    """Return the cost when all members stop together and then start; None without a pricing.

    The cost's own figures are those of all members starting at once; its `paces` has the other
    paces. With `kip848` they start with group.protocol=consumer, and `assignor` is the
    coordinator's. `rebalances` counts those of the start alone: those during the stops depend on
    the order in which members leave.
    """
    ids = tuple(member.member_id for member in snapshot.members)
    roll = Roll(
        snapshot=snapshot,
        order=ids,
        target=() if kip848 else (assignor,),
        protocol="consumer" if kip848 else "classic",
        server_side=assignor if kip848 else default_server_side(snapshot),
        eager=ids,
        eager_after=cooperative(assignor) is not Tri.YES,
        together=True,
        speed=speed,
        pricing=pricing,
    )
    return priced(roll, _stop_text(roll))


def stop_some(roll: Roll) -> Cost | None:
    """Return the cost when the members `order` stop together, then start; None without a pricing.

    The cost's own figures are those of all of them starting at once. In `roll`, `eager` must name
    those of the other members that run EAGER. `target` must be a single assignor, which the lists
    of all other members have: the members `order` start again with it alone.
    """
    how = "members that run EAGER stop all they own" if roll.eager else "only what moves stops"
    text = (
        "one rebalance when they stop together and the rest when they start; at each "
        f"{how}, if a restart takes {figure(roll.speed.restart)} s and a rebalance "
        f"{figure(roll.speed.rebalance)} s; they stop together at any pace, so the paces are those "
        f"of the start; {at_worst(roll.snapshot.members)}"
    )
    stopped = replace(
        roll,
        eager=(*roll.eager, *roll.order),
        eager_after=cooperative(roll.target[0]) is not Tri.YES,
        together=True,
    )
    return priced(stopped, text)


def _stop_text(roll: Roll) -> str:
    members, kip848 = with_brokers_sessions(roll.snapshot), roll.protocol == "consumer"
    speed = roll.speed
    held = empty_after(members)
    parts = [f"the restart ({figure(speed.restart)} s)"]
    if held:
        parts.insert(0, f"the sessions of those that do not leave at a stop ({figure(held)} s)")
    if not kip848:
        if speed.first:
            parts.append(
                f"the coordinator's wait for more members ({figure(speed.first)} s, "
                f"{_set(FIRST_DELAY, roll)})"
            )
        parts.append("one rebalance")
    listed = " and ".join(filter(None, [", ".join(parts[:-1]), parts[-1]]))
    then = ""
    if kip848 and len(members) > 1:
        then = (
            "; the first that joins gets all of them at once, and those that the others get from "
            f"it stop for up to {figure(speed.reconcile)} s more ({_set(RECONCILE_INTERVAL, roll)})"
        )
    return (
        f"nothing is consumed for {listed}{then}; all stop together at any pace, so the paces are "
        "those of the start, and the first to start have everything until the next come; "
        f"{at_worst(members)}"
    )


def _set(setting: str, roll: Roll) -> str:
    """Return a broker setting's name, with ", by default" added if the snapshot lacks its value."""
    return setting + ("" if setting in roll.snapshot.cluster.settings else ", by default")


def wait_for_empty_text(members: Sequence[Member]) -> str:
    """Return the instruction to wait until the group has no members, and how long that takes."""
    held = empty_after(members)
    return f"see the group Empty{f' ({held:g} s later, when sessions end)' if held else ''}"


def by_workers(roll: Roll) -> Cost | None:
    """Return the cost of restarting Connect workers in batches; None without a pricing.

    Its unit is `task`, and a connector counts as one. If the snapshot does not show what every
    worker runs, only rebalances and times are predicted.
    """
    snapshot, speed = roll.snapshot, roll.speed
    now, then = snapshot.group.assignor == EAGER, roll.eager_after
    how = f"each rebalance stops all {work_of_all(snapshot):,} connectors and tasks"
    if now and roll.target and not then:
        how += " until no worker is eager any more, then only what moves"
    elif then and not now:
        how = f"once a worker is eager, {how}"
    elif not now:
        how = "at each rebalance only what moves stops"
    said = (
        f"{how} (a connector counts as a task), if a restart takes {figure(speed.restart)} s and "
        f"workers send a heartbeat every {figure(speed.rebalance)} s (how long tasks take to stop "
        f"and to start is not visible); {at_worst(snapshot.members)}"
    )
    cost = priced(roll, "; ".join([said, *_doubts(snapshot.members)]))
    if cost is None or work_by_worker(snapshot) is not None or not cost.paces:
        return cost
    return Cost(
        rebalances=cost.rebalances,
        partitions_stopped=0,
        partitions_moved=0,
        unit="task",
        seconds=cost.seconds,
        text=f"{cost.rebalances} rebalances of connectors and tasks; what the workers run is "
        "not known, so what stops and moves is not predicted",
    )


def stop_workers(roll: Roll) -> Cost | None:
    """Return the cost if all Connect workers of `order` stop before the first of them starts again.

    If the snapshot does not show what every worker runs, only the rebalance is predicted. None
    without a pricing.
    """
    text = "nothing runs from the first stop to the end of the one rebalance"
    if work_by_worker(roll.snapshot) is None:
        return Cost(
            rebalances=min(1, len(roll.order)),
            partitions_stopped=0,
            partitions_moved=0,
            unit="task",
            text=f"{text}; what the workers run is not known, so no more can be predicted",
        )
    told = (
        f"{text} (a connector counts as a task), if a restart takes "
        f"{figure(roll.speed.restart)} s and workers send a heartbeat every "
        f"{figure(roll.speed.rebalance)} s; {at_worst(roll.snapshot.members)}"
    )
    return priced(replace(roll, together=True), told)


def work_of_all(snapshot: GroupSnapshot) -> int:
    """Return the number of connectors and tasks that all Connect workers run; 0 if not known."""
    return sum(map(len, (work_by_worker(snapshot) or {}).values()))


def _doubts(members: Sequence[Member]) -> Iterator[str]:
    # What the figures leave out, or may have wrong.
    if any(m.worker is not None and m.worker.held_back_ms for m in members):
        yield "what a lost worker ran is held back right now, and not counted"
    old = [m for m in members if m.software is not None and older(m.software, "3.4") is Tri.YES]
    if old:
        yield (
            f"{len(old)} of the workers are older than 3.4 and share work out otherwise when they "
            "lead (KAFKA-12495): the figures are those of later releases"
        )
