"""Changes on the live group since its plan was made, and which of them outdate the plan."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from rebal.groups.model import GroupSnapshot, Record
from rebal.planner.context import Context
from rebal.planner.plan import Plan

_LIMITS: Final = (
    "group.max.size",
    "group.consumer.max.size",
    "group.min.session.timeout.ms",
    "group.max.session.timeout.ms",
    "group.consumer.migration.policy",
)


class Change(Record, frozen=True, kw_only=True, omit_defaults=False):
    """One fact of the plan's baseline that is another one now. `outdates`: the plan's assignor
    lists no longer fit the group."""

    what: str
    text: str
    outdates: bool = False


def changes_since(plan: Plan, context: Context) -> tuple[Change, ...]:
    """Return what a plan rests on and is no longer so, what outdates the plan first."""
    found = [*_elected(plan, context), *_cluster(plan.baseline, context.snapshot)]
    return tuple(sorted(found, key=lambda change: not change.outdates))


def _elected(plan: Plan, context: Context) -> Iterator[Change]:
    was, now = plan.baseline.group.assignor, context.elected
    lists = [step.target_list for step in plan.steps if step.target_list]
    # A cut-over leaves the group Empty, which admits any list.
    if now is None or was is None or now == was or not lists or plan.path == "cut_over":
        return
    # A step elects what it prefers: that is the plan's own doing.
    if now == plan.target or now in {names[0] for names in lists}:
        return
    lacking = list(dict.fromkeys(names for names in lists if now not in names))
    shown = " and ".join(f"[{', '.join(names)}]" for names in lacking)
    yield Change(
        what="assignor",
        text=f"the elected assignor was {was} when the plan was made and is {now} now: "
        f"the plan's {shown} {'does' if len(lacking) == 1 else 'do'} not hold it",
        outdates=all(now not in names for names in lists),
    )


def _cluster(was: GroupSnapshot, now: GroupSnapshot) -> Iterator[Change]:
    counted = {topic.name: topic.partitions for topic in was.topics}
    for topic in now.topics:
        before = counted.get(topic.name)
        if before is not None and before != topic.partitions:
            yield Change(
                what="partitions",
                text=f"topic {topic.name} had {before} partitions and has {topic.partitions} now: "
                "the plan's steps stay, its costs are of then",
            )
    if was.cluster.version and now.cluster.version and was.cluster.version != now.cluster.version:
        yield Change(
            what="version",
            text=f"the brokers ran {was.cluster.version} and run {now.cluster.version} now",
        )
    for key in _LIMITS:
        old, new = was.cluster.settings.get(key), now.cluster.settings.get(key)
        if old is not None and new is not None and old != new:
            yield Change(what=key, text=f"the brokers' {key} was {old} and is {new} now")
