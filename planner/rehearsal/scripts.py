"""Ready scripts: what usually happens to a consumer group, as functions of the group.

`READY` has each of them by the name that `--script` takes.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from msgspec.structs import replace

from rebal.groups.model import Record
from rebal.planner.rehearsal.engine.process import Process
from rebal.planner.rehearsal.rollout import restarts
from rebal.planner.rehearsal.script import Deed, Event, Scene, Script

_AT_A_TIME: Final = re.compile(r"([1-9][0-9]{0,5})-at-a-time")
_STORM: Final = 10
_STORM_EVERY: Final = 60.0
_BROKER_IS_BACK: Final = 300.0
_LOADING: Final = 1.0
_TOO_LATE: Final = 1.2


class Pace(Record, frozen=True, kw_only=True):
    """The group's hosts and processes, and how many processes a script takes at a time.

    `hosts` are names of members by host, `processes` the names of each process's members (empty:
    each member is one); `batch` None: as many as the script usually takes, 0: all.
    """

    hosts: Mapping[str, Sequence[str]] = {}
    processes: Sequence[tuple[str, ...]] = ()
    batch: int | None = None


class Ready(Record, frozen=True, kw_only=True):
    """One ready script: what it does in a sentence, and its events for a group with members."""

    about: str
    events: Callable[[Scene, Pace], Sequence[Event]]


def ready_script(name: str, scene: Scene, pace: Pace | None = None) -> Script | None:
    """Return the ready script of that name for the group of `scene`; None: there is none."""
    pace = pace or Pace()
    numbered = _AT_A_TIME.fullmatch(name)
    if numbered is not None:
        pace = replace(pace, batch=int(numbered[1]))
    found = READY.get("rolling" if numbered else name)
    if found is None:
        return None
    events = found.events(scene, pace) if scene.running else ()
    return Script(about=about(name), events=tuple(events))


def about(name: str) -> str:
    """Return what a ready script does, in a sentence; its name must be one of theirs."""
    numbered = _AT_A_TIME.fullmatch(name)
    return f"{numbered[1]} members restart at a time." if numbered else READY[name].about


def _names(scene: Scene) -> list[str]:
    return [one.process.name for one in scene.running]


def _largest(scene: Scene) -> Process:
    """Return the member that owns most partitions, the first of several."""
    return max(scene.running, key=lambda one: len(one.owned)).process


def _rolling(scene: Scene, pace: Pace) -> Sequence[Event]:
    batch = 1 if pace.batch is None else pace.batch
    alone = [(name,) for name in _names(scene)]
    return restarts("", (), pace.processes or alone, batch=batch)


def _all_at_once(scene: Scene, _: Pace) -> Sequence[Event]:
    return restarts("", (), [tuple(_names(scene))], batch=0)


def _by_host(scene: Scene, pace: Pace) -> Sequence[Event]:
    known = set(_names(scene))
    grouped = [
        (host, [name for name in names if name in known]) for host, names in pace.hosts.items()
    ]
    homeless = known - {name for _, names in grouped for name in names}
    grouped += [("", [name]) for name in _names(scene) if name in homeless]
    return [
        Event(
            do=Deed.RESTART,
            members=tuple(members),
            phase=f"host {host.lstrip('/')}" if host else members[0],
        )
        for host, members in grouped
        if members
    ]


def _blue_green(scene: Scene, _: Pace) -> Sequence[Event]:
    green = tuple(_copy(one.process, "green") for one in scene.running)
    return (
        Event(do=Deed.START, processes=green, seconds=scene.restart, at=0.0, phase="start green"),
        Event(do=Deed.STOP, members=tuple(_names(scene)), phase="stop blue"),
    )


def _crash(scene: Scene, _: Pace) -> Sequence[Event]:
    member = _largest(scene)
    return (
        Event(do=Deed.KILL, members=(member.name,), at=0.0),
        Event(do=Deed.RESTART, members=(member.name,), at=0.0),
    )


def _scale(scene: Scene, pace: Pace) -> Sequence[Event]:
    running = scene.running
    number = pace.batch or max(1, math.ceil(len(running) / 2))
    new = tuple(
        _copy(running[place % len(running)].process, f"new-{place + 1}") for place in range(number)
    )
    return (
        Event(do=Deed.START, processes=new, seconds=scene.restart, at=0.0, phase="scale out"),
        Event(do=Deed.STOP, members=tuple(one.name for one in new), phase="scale in"),
    )


def _broker_restart(_: Scene, __: Pace) -> Sequence[Event]:
    return (
        Event(do=Deed.COORDINATOR, seconds=_LOADING, at=0.0, phase="broker stops"),
        Event(do=Deed.COORDINATOR, seconds=_LOADING, at=_BROKER_IS_BACK, phase="broker is back"),
    )


def _rebalance_storm(scene: Scene, _: Pace) -> Sequence[Event]:
    member = _largest(scene)
    return [
        Event(
            do=Deed.RESTART,
            members=(member.name,),
            seconds=min(scene.restart, _STORM_EVERY / 2),
            at=_STORM_EVERY * number,
        )
        for number in range(_STORM)
    ]


def _slow_member(scene: Scene, _: Pace) -> Sequence[Event]:
    member = _largest(scene)
    late = member.rebalance * _TOO_LATE
    return (Event(do=Deed.BUSY, members=(member.name,), seconds=late, at=0.0),)


def _copy(process: Process, ending: str) -> Process:
    """Return another process with the same settings: a new name, and a new identity."""
    return replace(
        process,
        name=f"{process.name}-{ending}",
        client_id=f"{process.client_id}-{ending}" if process.client_id else "",
        instance_id=f"{process.instance_id}-{ending}" if process.instance_id else None,
    )


READY: Final[Mapping[str, Ready]] = {
    "rolling": Ready(
        about="Members restart one after another, each when the group is at rest.",
        events=_rolling,
    ),
    "all-at-once": Ready(about="All members restart at the same moment.", events=_all_at_once),
    "by-host": Ready(
        about="The members of one host restart together, host after host.", events=_by_host
    ),
    "blue-green": Ready(
        about="A second set of members starts, and the first set stops when the group is at rest.",
        events=_blue_green,
    ),
    "crash": Ready(
        about="The member with the most partitions crashes and is started again.", events=_crash
    ),
    "scale": Ready(about="The group grows by half its members, and shrinks again.", events=_scale),
    "broker-restart": Ready(
        about="The coordinator's broker restarts: another broker loads the group, and 5 minutes "
        "later it moves back.",
        events=_broker_restart,
    ),
    "rebalance-storm": Ready(
        about="One member restarts ten times, once a minute, whether or not the group is at rest.",
        events=_rebalance_storm,
    ),
    "slow-member": Ready(
        about="The member with the most partitions does not poll for longer than its "
        "max.poll.interval.ms.",
        events=_slow_member,
    ),
}
