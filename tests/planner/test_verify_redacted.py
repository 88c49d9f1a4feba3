"""Plans of a redacted snapshot, held against the live group: never called finished by mistake."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from rebal.groups.model import GroupSnapshot
from rebal.groups.snapshot.redact import redact
from rebal.planner.paths import make_plan
from rebal.planner.plan import Plan
from rebal.planner.verification.journal import JournalEntry
from rebal.planner.verification.verify import Standing, entry_of, verify
from tests.planner.builder import group_of
from tests.planner.looks import app, look
from tests.planner.plans import BOTH, DONE, m

KEPT = m("s", DONE, client="s", instance="s", timeouts=[300_000, 60_000], joined=-20)


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
    assert not {"s", "d"} & {one.client_id for one in made.baseline.members}
    return made


@pytest.mark.parametrize("at", [-0.5, 1])
def test_stopped_static_member_holds_a_redacted_plan_up(at: float) -> None:
    made = redacted_plan(members=[KEPT, app(1, list=BOTH)])
    out = {"client": "d", "list": ["range"], "at": at}

    def held(minutes: float, static: dict[str, Any], *seen: JournalEntry, **more: Any) -> Standing:
        members = [static, app(1, 2, list=DONE)]
        refusals = [{**out, **more}]
        now = look(minutes, members, elected="cooperative-sticky", refusals=refusals)
        return verify(made, seen, with_uuids(now), expect_members=2)

    first = held(2.5, KEPT)
    assert (first.advice.action, first.exit_code, first.finished) == ("wait", 4, False)
    assert first.next.startswith("wait: d was rejected and no log shows that it rejoined; s may")
    seen = entry_of(made, first, with_uuids(look(2.5, [KEPT, app(1, 2)])))
    assert held(8, KEPT, seen).finished, "the static member's session is over: it runs"
    again = held(2.5, {**KEPT, "id": "s.2"})
    assert "s may have stopped" in again.next, "any member may be one of the pseudonyms"
    assert held(2.5, KEPT, at=-6).finished, "the rejection is a session older than the plan"


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
