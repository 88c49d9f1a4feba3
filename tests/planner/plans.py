"""Plans of groups in the builder's shorthand."""

from typing import Any

from rebal.planner.admission.memory import Entry, Held
from rebal.planner.paths import make_plan
from rebal.planner.plan import Plan
from rebal.planner.verification.verify import Standing
from tests.planner.builder import group_of

RANGE = ["range"]
BOTH = ["cooperative-sticky", "range"]
DONE = ["cooperative-sticky"]
DEFAULT = ["range", "cooperative-sticky"]
COOP = {"elected": "cooperative-sticky"}
NO_LIMIT = {"settings": {"group.max.size": "2147483647"}}


def plan(members: list[dict[str, Any]], target: str = "cooperative", **more: Any) -> Plan:
    """`more` is of the group, or of how it is planned."""
    given = {
        key: more.pop(key)
        for key in ("expect_members", "families", "ignore", "made_at", "pricing")
        if key in more
    }
    return make_plan(group_of({"members": members, **more}), target, **given)


def m(name: str, names: list[str] | None = None, **more: Any) -> dict[str, Any]:
    """A member with this list, or with an unknown one that holds range."""
    return {"id": name, **({"list": names} if names else {"at_least": ["range"]}), **more}


def rules(made: Plan | Standing) -> set[str]:
    return {finding.rule for finding in made.findings}


def entry(name: str, *names: str, instance: str | None = None) -> Entry:
    """What the coordinator remembers of a member: this list, or nothing that is known."""
    lists = (Held(names=frozenset(names), exact=True),) if names else ()
    return Entry(member_id=name, name=name, lists=lists, instance_id=instance)
