"""Times that no evidence shows, or that a rehearsal is to try: `--param NAME=TIME`."""

from collections.abc import Callable, Mapping
from typing import Final

from msgspec.structs import replace

from rebal.groups.durations import seconds_of, share_of
from rebal.groups.model import Record
from rebal.planner.rehearsal.engine.process import Process
from rebal.planner.rehearsal.script import Scene

METADATA_AGE: Final = 300.0
"""Seconds after which a leader notices new partitions, by default: metadata.max.age.ms."""
MOST_DAYS: Final = 7
"""The longest duration that a rehearsal takes, in days."""
_SHORTEST: Final = 0.01


class Parameter(Record, frozen=True, kw_only=True):
    """One time that can be set: what it is, and how it is read from a scene and put into one.

    `least` is the shortest value in seconds.
    """

    about: str
    values: Callable[[Scene], list[float]]
    put: Callable[[Scene, float], Scene]
    share: bool = False
    least: float = 0.0


class Used(Record, frozen=True, kw_only=True, omit_defaults=False):
    """One time as a rehearsal used it, in seconds (spread: a share): the members' least and most.

    `given`: the user set it; else it comes from the group's evidence, or is a default.
    """

    name: str
    least: float
    most: float
    given: bool


def value_of(name: str, text: str | float) -> float:
    """Return the value of the parameter `name`.

    Raises:
        ValueError: as `seconds_of` and `share_of` say, or it is less than the parameter's least.
    """
    parameter = PARAMETERS[name]
    value = share_of(text) if parameter.share else seconds_of(text, days=MOST_DAYS)
    if value < parameter.least:
        raise ValueError(f"expected at least {parameter.least:g} s")
    return value


def with_parameters(scene: Scene, given: Mapping[str, float]) -> Scene:
    """Return the scene with these values; a shorter session shortens the heartbeat interval."""
    for name, value in given.items():
        scene = PARAMETERS[name].put(scene, value)
    if "session" in given and "heartbeat" not in given:
        third = given["session"] / 3
        scene = _each(scene, lambda one: replace(one, heartbeat=min(one.heartbeat, third)))
    return scene


def used(scene: Scene, given: Mapping[str, float]) -> tuple[Used, ...]:
    """Return every parameter as the scene has it."""
    made = []
    for name, parameter in PARAMETERS.items():
        found = [given[name]] if name in given else parameter.values(scene)
        if found:
            made.append(Used(name=name, least=min(found), most=max(found), given=name in given))
    return tuple(made)


def _each(scene: Scene, change: Callable[[Process], Process]) -> Scene:
    running = tuple(replace(one, process=change(one.process)) for one in scene.running)
    return replace(scene, running=running)


def _of_members(field: str, about: str, *, least: float = 0.0) -> Parameter:
    return Parameter(
        about=about,
        least=least,
        values=lambda scene: [getattr(one.process, field) for one in scene.running],
        put=lambda scene, value: _each(scene, lambda one: replace(one, **{field: value})),
    )


PARAMETERS: Final[Mapping[str, Parameter]] = {
    "restart": Parameter(
        about="from the stop of a process until its consumer joins again",
        values=lambda scene: [scene.restart],
        put=lambda scene, value: replace(scene, restart=value),
    ),
    "spread": Parameter(
        about="the share by which the restart time varies, evenly, to both sides",
        values=lambda scene: [scene.spread],
        put=lambda scene, value: replace(scene, spread=value),
        share=True,
    ),
    "session": _of_members("session", "session.timeout.ms of each member", least=_SHORTEST),
    "max-poll": _of_members("rebalance", "max.poll.interval.ms of each member", least=_SHORTEST),
    "heartbeat": _of_members("heartbeat", "heartbeat.interval.ms of each member", least=_SHORTEST),
    "poll": _of_members("poll", "the longest time between two polls of a member"),
    "on-revoked": _of_members("on_revoked", "the time that onPartitionsRevoked takes"),
    "on-assigned": _of_members("on_assigned", "the time that onPartitionsAssigned takes"),
    "on-lost": _of_members("on_lost", "the time that onPartitionsLost takes"),
    "metadata": Parameter(
        about="until a leader notices new partitions or a deleted topic (metadata.max.age.ms)",
        values=lambda _: [METADATA_AGE],
        put=lambda scene, _: scene,
    ),
    "initial-delay": Parameter(
        about="group.initial.rebalance.delay.ms of the brokers",
        values=lambda scene: [scene.brokers.initial_delay],
        put=lambda scene, value: replace(
            scene, brokers=replace(scene.brokers, initial_delay=value)
        ),
    ),
}
"""Every parameter by its name."""
