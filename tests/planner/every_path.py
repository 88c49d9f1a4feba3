"""A plan of a small healthy group for every path: `PLANS`."""

from typing import Any

from rebal.groups.model import GroupSnapshot
from rebal.planner.paths import make_plan
from tests.planner.builder import group_of
from tests.planner.plans import BOTH, DONE, RANGE, m, plan
from tests.planner.worker_groups import workers

JAVA = {"version": "4.1.1", "topics": ["orders"]}
SETTINGS = {"settings": {"group.max.size": "100"}}
ON_848 = {"cluster": {"version": "4.1", "settings": {"group.consumer.migration.policy": "upgrade"}}}


def java(name: str, names: list[str] | None = RANGE, **more: Any) -> dict[str, Any]:
    return m(name, names, **{**JAVA, **more})


def pods(number: int, names: list[str] | None = RANGE, **more: Any) -> list[dict[str, Any]]:
    return [java(f"shipping-{n}", names, **more) for n in range(number)]


def kip848(members: list[dict[str, Any]], **more: Any) -> GroupSnapshot:
    return group_of({"members": members, **ON_848, **more})


def streams(kind: str, names: list[str] | None, elected: str) -> GroupSnapshot:
    """A Streams program of four instances on the classic or the streams protocol."""
    members = pods(4, names, family="streams", version="4.4.0", epoch=None if names else 3)
    spoken = {"type": kind, "protocol_type": "consumer" if names else kind}
    cluster = {"version": "4.4", "features": {"streams.version": 1}, **SETTINGS}
    return group_of({"members": members, "elected": elected, "cluster": cluster, **spoken})


PLANS = {
    "two bounces": lambda: plan(pods(4)),
    "two bounces, half-way": lambda: plan([*pods(3, BOTH), java("late")]),
    "two bounces, second": lambda: plan(pods(4, BOTH), elected=DONE[0], reloaded=False),
    "two bounces down": lambda: plan(pods(4, DONE), "eager", elected=DONE[0]),
    "one bounce": lambda: plan(pods(4, ["range", "cooperative-sticky"]), reloaded=False),
    "one bounce, reloaded": lambda: plan(pods(4, ["range", "cooperative-sticky"]), reloaded=True),
    "static": lambda: plan([java(f"a-{n}", instance=f"a-{n}") for n in range(4)]),
    "unknown lists": lambda: plan(pods(4, None)),
    "cut-over": lambda: plan(pods(4, family="librdkafka", version="2.6.0")),
    "mixed families": lambda: plan([*pods(3), java("c", family="librdkafka", version="2.6.0")]),
    "streams": lambda: plan(pods(4, ["stream"], family="streams"), elected="stream"),
    "streams protocol": lambda: make_plan(streams("classic", ["stream"], "stream"), "streams"),
    "streams protocol, back": lambda: make_plan(streams("streams", None, "sticky"), "classic"),
    "connect": lambda: make_plan(workers("default"), "cooperative"),
    "connect down": lambda: make_plan(workers("sessioned"), "eager", ignore={"RB413": "agreed"}),
    "to kip-848": lambda: make_plan(kip848(pods(4)), "consumer"),
    "to kip-848, offline": lambda: make_plan(
        kip848(pods(4), cluster={"settings": {"group.consumer.migration.policy": "disabled"}}),
        "consumer",
    ),
    "library": lambda: plan(pods(4, family="sarama"), "franz-go"),
    "library, two steps": lambda: plan(pods(4, ["sticky"]), "librdkafka", elected="sticky"),
    "library, over a stop": lambda: plan(
        pods(4, DONE, family="librdkafka", version="2.6.0"), "franz-go", elected=DONE[0]
    ),
    "no path": lambda: plan(pods(4), state="PreparingRebalance"),
    "done": lambda: plan(pods(4, DONE), elected=DONE[0]),
}
