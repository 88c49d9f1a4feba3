"""Risks that a user accepts with `--ignore RULE --reason TEXT`, each by the id of its rule.

This is the one table of rule ids outside planner/rules: the admission's answer for people needs to
know what was accepted, and the rules need that answer for their fixes.
"""

from enum import StrEnum
from typing import Final

from msgspec.structs import replace

from rebal.groups.model import GroupSnapshot
from rebal.planner.commands import EAGER
from rebal.planner.kinds import PathKind

# GroupCoordinatorConfig. Before 4.0 the policy's default was another one.
_DEFAULTS: Final = {
    "group.max.size": str(2**31 - 1),
    "group.consumer.max.size": str(2**31 - 1),
    "group.min.session.timeout.ms": "6000",
    "group.max.session.timeout.ms": "1800000",
}
_POLICY: Final = {"group.consumer.migration.policy": "bidirectional"}


class Risk(StrEnum):
    """A risk of a step; its value is the id of the rule that asks for it.

    A list lacks the target (RB102), lists are not known (RB901), or the coordinator may have
    forgotten them in a reload (RB113). The brokers' group settings were not read, and may not be
    Kafka's defaults (RB908). The brokers assign by another assignor than range, which the plan asks
    them for (RB408). A client may be too old for KIP-848 (RB412). The whole group is
    stopped: for a list (RB104), to change its protocol (RB413), to replace its client library
    (RB123). An assignor class of the application's own supports COOPERATIVE (RB111), or EAGER
    (RB112).
    """

    TARGET_MISSING = "RB102"
    UNKNOWN_LISTS = "RB901"
    FORGOTTEN_LISTS = "RB113"
    UNREAD_SETTINGS = "RB908"
    NOT_RANGE = "RB408"
    OLD_CLIENT = "RB412"
    STOP = "RB104"
    STOP_FOR_PROTOCOL = "RB413"
    STOP_FOR_CLIENT = "RB123"
    OWN_COOPERATIVE = "RB111"
    OWN_EAGER = "RB112"


def own_class_risk(goal: str) -> Risk:
    """Return the risk that the user takes for this goal by trusting a custom class's name."""
    return Risk.OWN_EAGER if goal == EAGER else Risk.OWN_COOPERATIVE


def stop_risk(path: PathKind) -> Risk | None:
    """Return the risk that the user takes with a path on which the whole group stops."""
    if not path.stops_the_group:
        return None
    own = {PathKind.CUT_OVER: Risk.STOP, PathKind.LIBRARY_STOP: Risk.STOP_FOR_CLIENT}
    return own.get(path, Risk.STOP_FOR_PROTOCOL)


def with_default_settings(snapshot: GroupSnapshot) -> GroupSnapshot:
    """Return the snapshot with Kafka's defaults, where no setting of the brokers was read."""
    cluster = snapshot.cluster
    if cluster.settings:
        return snapshot
    newer = (cluster.version or "").partition(".")[0] not in ("", "0", "1", "2", "3")
    return replace(
        snapshot, cluster=replace(cluster, settings=_DEFAULTS | (_POLICY if newer else {}))
    )
