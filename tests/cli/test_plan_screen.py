"""The short screen of `rebal plan-upgrade`: its length, and what it never folds."""

import re
from typing import Any

from msgspec.structs import replace

from rebal.cli.output import render
from rebal.cli.render.plans.screen import plan_view
from rebal.groups.model import (
    DeclaredAssignors,
    Evidence,
    KubernetesWorkload,
    Source,
)
from rebal.planner.commands import Given
from rebal.planner.paths import make_plan
from rebal.planner.plan import Plan
from tests.cli.conftest import flat
from tests.planner.builder import group_of
from tests.planner.every_path import java, pods
from tests.planner.plans import BOTH, RANGE, plan


def screen(made: Plan, width: int = 80, **more: Any) -> str:
    return render(plan_view(made, **more), width=width)


def steps_of(text: str) -> list[list[str]]:
    """The lines of each step, from its title to the blank line that follows."""
    parts = re.split(r"\n(?=\d  )", text)[1:]
    return [part.split("\n\n")[0].strip("\n").splitlines() for part in parts]


def test_a_step_names_as_many_members_as_there_is_room_for() -> None:
    members = [java(f"checkout-consumer-7d9f8b6c5d-{n:05}") for n in range(4)]
    lines = steps_of(screen(plan(members)))[0]
    assert lines[1].endswith("checkout-consumer-7d9f8b6c5d-00000 and 3 more")
    assert lines[2].startswith("   with ")
    wide = screen(plan(members), wide=True)
    assert all(f"7d9f8b6c5d-{n:05}" in wide for n in range(4))


def test_no_protocol_is_promised_of_a_custom_assignor_that_the_goal_names() -> None:
    lists = {"a": ["acme", "range"], "b": RANGE}
    made = plan([java(name, names) for name, names in lists.items()], "acme")
    assert screen(made).startswith("checkout: EAGER (range) → acme\n")


def test_a_surge_is_named_with_its_workload() -> None:
    workload = KubernetesWorkload(kind="Deployment", name="orders", namespace="shop")
    source = Evidence(source=Source.CONFIG_FILE, detail="k.yaml", workload=workload)
    declared = DeclaredAssignors(list=("range",), max_surge="25%", evidence=source)
    snapshot = group_of({"members": pods(2)})
    members = tuple(replace(member, declared=declared) for member in snapshot.members)
    text = flat(screen(make_plan(replace(snapshot, members=members))))
    assert "Deployment orders: pause autoscaler and GitOps sync; set maxSurge 0" in text
    assert "and maxUnavailable 1 (maxSurge is 25%)" in text


def test_three_blocking_findings_are_whole_and_the_others_are_counted() -> None:
    made = plan([java("a", None), java("c", None, family="sarama", declared=["x"])], elected="own")
    block = next(f for f in made.findings if f.rule == "RB101")
    blocks = [replace(block, message=f"cause {n} of what stands in the way") for n in range(5)]
    text = flat(screen(replace(made, findings=tuple(blocks))))
    assert "and 2 more: " in text
    assert sum(f.message in text for f in blocks) == 3


def test_the_hint_is_a_whole_command_where_the_plan_has_a_file(tmp_path: Any) -> None:
    file = tmp_path / "a plan.yaml"
    given = Given(plan=str(file))
    text = screen(make_plan(group_of({"members": pods(4)}), given=given), 40)
    assert f": rebal show '{file}' --details\n" in text


def test_a_member_that_left_is_named_on_the_first_screen_before_the_general_questions() -> None:
    members: dict[str, Any] = {"members": [java("a1", RANGE)]}
    plain = screen(make_plan(group_of(members)))
    assert "ask" not in plain
    assert "8 questions" in plain
    for names, line in (
        (RANGE, "step 2: cannot tell  RB121 a2 left 4 min ago with [range]: does it belong"),
        (BOTH, "ask                  RB120 a2 left 4 min ago with [cooperative-sticky, range]"),
    ):
        gone = [{"id": "a2", "list": names, "at": -4, "left": True}]
        text = screen(make_plan(group_of({**members, "departed": gone})), width=200)
        assert line.split("  ")[-1] in text
        assert line.split("  ")[0] in text
        assert "→ Add --expect-members 2 if it belongs to the service, --departed a2 if" in text
        assert text.index("a2 left") < text.index("8 questions")
