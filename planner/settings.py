"""The exact configuration text of a step, for each client family and format."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from rebal.groups.clients import assignors
from rebal.planner.plan import Setting

_KEY: Final = "partition.assignment.strategy"
_GO: Final = {
    "range": "kgo.RangeBalancer()",
    "roundrobin": "kgo.RoundRobinBalancer()",
    "sticky": "kgo.StickyBalancer()",
    "cooperative-sticky": "kgo.CooperativeStickyBalancer()",
}
_KAFKA_PYTHON: Final = {
    "range": ("range", "RangePartitionAssignor"),
    "roundrobin": ("roundrobin", "RoundRobinPartitionAssignor"),
    "sticky": ("sticky.sticky_assignor", "StickyPartitionAssignor"),
    "cooperative-sticky": ("cooperative_sticky", "CooperativeStickyAssignor"),
}


def settings_for(
    family: str, names: Sequence[str], group_id: str, members: Sequence[str] = ()
) -> tuple[Setting, ...]:
    """What to put into the configuration of clients of `family`, so that they use this list.

    `names` are assignors in order of preference. A comment names the group, and `members` where
    not all of the group are meant. Empty for a family whose configuration is not known here, and
    for a custom assignor whose class is not known.
    """
    names = [plain(name) for name in names]
    head = f"group {plain(group_id)}" + (f": {plain(', '.join(members))}" if members else "")
    if family == "java":
        return _java(names, head)
    if family == "librdkafka":
        return (_setting(family, "librdkafka properties", f"# {head}\n{_KEY}={','.join(names)}"),)
    if family == "franz-go" and all(name in _GO for name in names):
        calls = ", ".join(_GO[name] for name in names)
        return (_setting(family, "Go", f"// {head}\nkgo.Balancers({calls})"),)
    if family == "kafka-python" and all(name in _KAFKA_PYTHON for name in names):
        return (_setting(family, "Python", _python(names, head)),)
    return ()


def plain(text: str) -> str:
    """`text` on one line, with what is not printable written out: safe inside a comment."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def _java(names: Sequence[str], head: str) -> tuple[Setting, ...]:
    classes = [_class(name) for name in names]
    text = ",".join(classes)
    spring: Mapping[str, str] = {
        "properties": f"# {head}\n{_KEY}={text}",
        "YAML": f"# {head}\nspring:\n  kafka:\n    consumer:\n      properties:\n"
        f'        {_KEY}: "{text}"',
    }
    return (
        _setting("java", "Java properties", spring["properties"]),
        _setting("java", "Spring YAML", spring["YAML"]),
    )


def _class(name: str) -> str:
    """Java's class for an assignor's name; the name itself for a custom one (it says so)."""
    known = assignors().get(name)
    classes = known.spellings if known else ()
    return next((c for c in classes if c.startswith("org.apache.kafka.")), f"THE-CLASS-OF-{name}")


def _python(names: Sequence[str], head: str) -> str:
    lines = [f"# {head}"]
    lines += [
        f"from kafka.coordinator.assignors.{_KAFKA_PYTHON[name][0]} import {_KAFKA_PYTHON[name][1]}"
        for name in names
    ]
    classes = ", ".join(_KAFKA_PYTHON[name][1] for name in names)
    return "\n".join([*lines, f"KafkaConsumer(…, partition_assignment_strategy=[{classes}])"])


def _setting(family: str, form: str, text: str) -> Setting:
    return Setting(family=family, format=form, text=text)
