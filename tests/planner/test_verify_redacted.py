"""Plans of a redacted snapshot, held against the live group: never called finished by mistake."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from rebal.groups.model import GroupSnapshot
from rebal.groups.snapshot.redact import redact
from rebal.planner.paths import make_plan
from rebal.planner.plan import Plan
from rebal.planner.verification.verify import verify
from tests.planner.builder import group_of
from tests.planner.looks import app, look
from tests.planner.plans import BOTH, DONE


def with_uuids(snapshot: GroupSnapshot) -> GroupSnapshot:
    """The same with member ids as Kafka makes them: a name, and a random end."""
    ends = {f"{n}": f"{n:08}-1111-4222-8333-444455556666" for n in range(10)}

    def real(member_id: str) -> str:
        name, _, start = member_id.removesuffix("-0f0f").partition(".")
        return f"{name}-{ends[start or '0']}"

    members = tuple(replace(one, member_id=real(one.member_id)) for one in snapshot.members)
    return replace(snapshot, members=members)


def redacted_plan(**group: Any) -> Plan:
    made = make_plan(redact(with_uuids(group_of({"reloaded": False, **group}))))
    assert made.baseline.redacted
    return made


def test_nobody_is_missing_by_a_pseudonym() -> None:
    made = redacted_plan(members=[app(n, list=BOTH) for n in range(3)])
    now = verify(made, [], with_uuids(look(1, [app(0, list=BOTH)])), expect_members=3)
    assert (now.outsiders, now.why[0]) == ((), "2 of 3 expected members are not in the group")


def test_rejected_client_of_a_redacted_plan_counts_when_its_log_is_rotated() -> None:
    """Another new member could be the rejected client's, or not: pseudonyms match nobody."""
    before = {"members": [app(0, list=BOTH), app(1, list=BOTH)]}
    out = {"client": "d", "list": ["range"], "at": -1}
    made = redacted_plan(**before, refusals=[out])
    grown = [app(0, 2, list=DONE), app(1, 2, list=DONE), app(5, list=DONE)]
    now = with_uuids(look(30, grown, elected="cooperative-sticky"))
    standing = verify(made, [], now)
    assert (standing.finished, standing.exit_code) == (False, 4)
    assert "--expect-members 3 if not" in standing.next
    assert verify(made, [], now, expect_members=3).finished
    assert verify(redacted_plan(**before), [], now).finished, "nobody was rejected"
    logged = look(30, grown, elected="cooperative-sticky", refusals=[out])
    said = verify(made, [], with_uuids(logged)).next
    assert "--expect-members 4 if it belongs" in said, "it is counted once"
