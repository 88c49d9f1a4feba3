"""What a plan remembers of rejections and remedies, and what it must not make of that."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from rebal.groups.model import Coordinator, CoordinatorKind, GroupSnapshot
from rebal.planner.commands import Given
from rebal.planner.paths import make_plan
from rebal.planner.plan import Action
from rebal.planner.verification.journal import JournalEntry
from rebal.planner.verification.outsiders import OutsiderKind
from rebal.planner.verification.verify import verify
from tests.planner.builder import AT
from tests.planner.looks import Story, app, look
from tests.planner.plans import BOTH, DONE, NO_LIMIT

SESSION = {"timeouts": [600_000, 60_000]}


def final(*numbers: int) -> list[dict[str, Any]]:
    return [app(n, 2, list=DONE) for n in numbers]


def rejected(client: str, minutes: float | None) -> list[dict[str, Any]]:
    return [{"client": client, "list": ["roundrobin"], "at": minutes}]


def coop(minutes: float, members: list[dict[str, Any]], **more: Any) -> GroupSnapshot:
    return look(minutes, members, elected="cooperative-sticky", cluster=NO_LIMIT, **more)


def test_second_reload_is_cured_like_the_first() -> None:
    members = [app(n, list=BOTH) for n in range(3)]
    tell = Story(make_plan(look(0, members, cluster=NO_LIMIT)))
    first = tell(look(1, members, generation=5, cluster=NO_LIMIT, reloaded=True))
    assert first.advice.action is Action.RESTART
    members = [app(0, 2, list=BOTH), *members[1:]]
    cured = tell(look(2, members, generation=7, cluster=NO_LIMIT))
    assert cured.advice.assignors == ("cooperative-sticky",)
    second = tell(look(3, members, generation=7, cluster=NO_LIMIT, reloaded=True))
    assert second.advice.action is Action.RESTART
    assert "changed nothing" not in second.next


@pytest.mark.parametrize("threads", [1, 3])
def test_restart_of_a_process_that_changed_nothing_is_not_advised_again(threads: int) -> None:
    rest = {**app(9, list=BOTH), "instance": "app-9"}

    def at(minutes: float, start: int) -> GroupSnapshot:
        own = [
            {"id": f"m{n}.{start}", "client": f"consumer-checkout-{n}", "host": "/10.0.0.1",
             "list": BOTH}
            for n in range(threads)
        ]  # fmt: skip
        more = {"cluster": NO_LIMIT, "reloaded": bool(minutes), "generation": 4 + start}
        return look(minutes, [*own, rest], **more)

    tell = Story(make_plan(at(0, 1)))
    first = tell(at(1, 1))
    assert (first.advice.action, len(first.advice.members)) == (Action.RESTART, threads)
    assert "the rebalance changed nothing" in tell(at(2, 2)).next


def test_second_growth_of_a_topic_gets_an_owner_like_the_first() -> None:
    begun = [app(n, list=BOTH) for n in range(3)]
    tell = Story(make_plan(look(0, begun, cluster=NO_LIMIT), expect_members=3))

    def grown(minutes: float, start: int, generation: int, partitions: int) -> Any:
        members, topics = [app(0, start, list=DONE), *final(1, 2)], {"orders": partitions}
        seen = coop(minutes, members, generation=generation, topics=topics)
        asked = (replace(one, subscribed_topics=("orders",)) for one in seen.members)
        return replace(seen, members=tuple(asked))

    tell(grown(1, 2, 5, 13))
    assert tell(grown(2, 2, 5, 13)).advice.action is Action.RESTART
    assert tell(grown(3, 3, 7, 12)).finished, "each partition has an owner"
    tell(grown(60, 3, 7, 13))
    again = tell(grown(61, 3, 7, 13))
    assert again.advice.action is Action.RESTART, again.next


def test_rejected_stranger_hides_no_missing_member() -> None:
    """`audit` was rejected hours ago; app-1 restarts just now."""
    members = [app(n, list=BOTH) for n in range(4)]
    tell = Story(make_plan(look(0, members, cluster=NO_LIMIT)))
    tell(coop(2, [*final(0), *members[1:]], refusals=rejected("audit", 1)))
    now = tell(coop(180, [*final(0), *members[2:]]))
    assert "app-1" in [one.name for one in now.outsiders if one.kind is OutsiderKind.MISSING]
    assert "app-1" in now.why[0]
    assert "audit" not in now.why[0], "it was never a member"
    assert "app-1" in now.advice.names


def test_client_that_a_log_showed_back_stays_back_when_the_log_is_rotated() -> None:
    begun = [app(n, list=BOTH) for n in (0, 1)]
    tell = Story(make_plan(look(0, begun, cluster=NO_LIMIT)))
    tell(coop(2, begun[:1], refusals=rejected("app-1", 1.9)))
    back = coop(4, final(0, 1), refusals=rejected("app-1", 1.9))
    rejoined = {"rejoined_as": "app-1.2-0f0f", "rejoined_at": AT}
    back = replace(back, refusals=tuple(replace(one, **rejoined) for one in back.refusals))
    assert tell(back).finished
    assert tell(coop(6, final(0, 1))).finished


def test_remembered_list_that_this_look_contradicts_is_left_out() -> None:
    plan = make_plan(look(0, [app(n, list=BOTH) for n in (0, 1)]))
    (shown, hidden) = verify(plan, [], look(1, [app(0, lacks=["range"]), app(1)])).members
    assert (shown.list, hidden.list) == ((), tuple(BOTH))


def test_only_static_members_that_may_have_stopped_are_named() -> None:
    """s-1 joined after the rejection."""
    begun = [app(0, list=BOTH)]
    begun += [app(n, list=BOTH, instance=f"s-{n}", **SESSION) for n in (1, 2)]
    given = Given(connection=("-b", "h:9092"), brokers="h:9092", plan="p.yaml")
    tell = Story(make_plan(look(0, begun, cluster=NO_LIMIT), expect_members=3, given=given))
    two = app(2, 2, list=DONE, instance="s-2", joined=1, **SESSION)
    tell(coop(1.5, [*final(0), begun[1], two]))
    one = app(1, 2, list=DONE, instance="s-1", joined=5, **SESSION)
    seen = coop(6, [*final(0), one, two], refusals=rejected("app-9", 2))
    now = tell(seen, expect_members=3)
    assert "s-2 may have stopped" in now.next
    assert "s-1" not in now.next
    (removal,) = now.advice.commands
    assert removal.use == "only if s-2 is gone for good: remove its entry"
    assert removal.line.endswith(f"groups remove-members -g {seen.group.group_id} -i s-2")


def test_a_look_without_its_coordinator_tells_no_load() -> None:
    now = Coordinator(broker_id=1, kind=CoordinatorKind.JAVA, leader_epoch=4)
    before = JournalEntry(at=AT, plan="", group_id="g", broker_id=1, leader_epoch=3)
    assert before.is_before_load(now)
    assert not before.is_before_load(None)
    assert not replace(before, broker_id=None).is_before_load(now)
