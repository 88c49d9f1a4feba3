"""The inspect screen: what it says, that it fits, and that it obeys nothing."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from rebal.cli import output
from rebal.cli.render.inspection.screen import inspect_view, probe_helps
from rebal.cli.report import Report, make_report
from rebal.groups.model import (
    DeclaredAssignors,
    Evidence,
    GroupSnapshot,
    GroupState,
    GroupType,
    Probe,
    ProbeAnswer,
    RebalanceProtocol,
    Source,
    Tri,
)
from rebal.groups.protocol import common_assignors
from rebal.planner.plan import Finding, Severity
from tests.cli.conftest import exact

Make = Callable[..., GroupSnapshot]


def report(snapshot: GroupSnapshot, **more: Any) -> Report:
    fields: dict[str, Any] = {"snapshot": snapshot, "runs": RebalanceProtocol.EAGER}
    return Report(**{**fields, **more})


def screen(made: Report, width: int = 100, wide: bool = False, next_: str = "rebal x") -> str:
    return output.render(inspect_view(output.shown(made), next_, wide=wide), width=width)


def probe(snapshot: GroupSnapshot, since: Tri, *answers: tuple[str, Tri]) -> GroupSnapshot:
    coordinator = msgspec.structs.replace(
        snapshot.group.coordinator, rebalanced_since_load=since, rebalanced_why="broker 2 restarted"
    )
    return msgspec.structs.replace(
        snapshot,
        group=msgspec.structs.replace(snapshot.group, coordinator=coordinator),
        probe=Probe(
            answers=tuple(
                ProbeAnswer(assignor=name, supported=said, at=snapshot.captured_at)
                for name, said in answers
            )
        ),
    )


def test_questions_share_a_line_and_the_next_command_is_the_last(group: Make) -> None:
    asks = (Finding(rule=f"RB30{n}", severity=Severity.ASK, message="listener?") for n in (1, 2))
    lines = screen(report(group(), findings=tuple(asks)), next_="rebal plan").splitlines()
    assert lines[-4:-2] == [
        "ask         RB301 and RB302: look at your code first",
        "            rebal explain RB301",
    ]
    assert lines[-1] == "next:  rebal plan"
    assert "· lag 66 ·" in lines[0]


def doubted(snapshot: GroupSnapshot) -> Report:
    return report(snapshot, common=common_assignors(snapshot))


@pytest.mark.parametrize(
    ("since", "static", "said"),
    [
        (Tri.NO, None, "worth nothing: no rebalance completed since the coordinator was loaded"),
        (Tri.CANNOT_TELL, None, "worth nothing until a rebalance is seen since the coordinator"),
        (Tri.YES, "pod-1", "worth nothing yet: since the coordinator was loaded, a static member"),
    ],
)
def test_a_no_that_may_not_be_the_members_own_says_so(
    group: Make, since: Tri, static: str | None, said: str
) -> None:
    made = probe(group(), since, ("sticky", Tri.NO))
    first, *others = made.members
    first = msgspec.structs.replace(first, instance_id=static)
    members = (first, *others)
    text = screen(doubted(msgspec.structs.replace(made, members=members)), width=200)
    assert f"probe said no, just now: {said}" in " ".join(text.split())
    assert " sticky NOT all" not in " ".join(text.split())


def test_a_probe_without_an_answer_says_why(group: Make) -> None:
    refused = msgspec.structs.replace(group(), probe=Probe(refused="the group is Empty"))
    assert "not probed  the group is Empty" in screen(report(refused))
    failed = probe(group(), Tri.YES, ("sticky", Tri.CANNOT_TELL))
    answer = msgspec.structs.replace(failed.probe.answers[0], error="GROUP_MAX_SIZE_REACHED")
    failed = msgspec.structs.replace(failed, probe=Probe(answers=(answer,)))
    assert "sticky  cannot tell  probe: no answer (GROUP_MAX_SIZE_REACHED)" in screen(
        report(failed)
    )


def test_mixed_groups_say_who_runs_what(group: Make) -> None:
    snapshot = group()
    kinds = (RebalanceProtocol.EAGER, RebalanceProtocol.COOPERATIVE, RebalanceProtocol.EAGER)
    runs = {m.member_id: kind for m, kind in zip(snapshot.members, kinds, strict=True)}
    made = screen(report(snapshot, runs=RebalanceProtocol.MIXED, member_runs=runs), width=120)
    assert "mixed, assignor range   every rebalance stops 8 partitions" in made
    assert "RUNS" in made


def test_a_consumer_group_of_classic_members_alone_is_not_said_to_run_kip_848(group: Make) -> None:
    one, *_ = group().members
    known, said = exact("range"), Evidence(source=Source.CONFIG_FILE)
    file = DeclaredAssignors(list=("range",), group_protocol="consumer", evidence=said)
    old = msgspec.structs.replace(one, protocol_type="classic", assignors=known, declared=file)
    snapshot = group(type=GroupType.CONSUMER, assignor="uniform", members=(old,))
    made = screen(make_report(snapshot), width=160)
    assert "runs        EAGER, assignor uniform   a member stops all its partitions" in made
    assert "every member speaks the classic protocol" in made
    assert "group.protocol=consumer)" not in made
    assert "range; next start: group.protocol=consumer" in made


def test_a_probe_helps_where_a_list_of_a_stable_group_is_not_known(group: Make) -> None:
    assert probe_helps(report(group()))
    assert not probe_helps(report(group(members=group().members[:2])))
    assert not probe_helps(report(group(state=GroupState.EMPTY)))


@pytest.mark.parametrize(
    ("later", "said"),
    [
        (timedelta(seconds=20), None),
        (timedelta(minutes=12), "captured    12 min ago by rebal 0.1.0"),
        (timedelta(days=2), "captured    Nov 20 09:15Z by rebal 0.1.0"),
        (timedelta(days=90), "captured    2026-11-20 09:15Z by rebal 0.1.0"),
    ],
)
def test_an_old_snapshot_says_its_age(group: Make, later: timedelta, said: str | None) -> None:
    snapshot = group()
    view = inspect_view(report(snapshot), "rebal x", now=snapshot.captured_at + later)
    lines = output.render(view, width=120).splitlines()
    assert [line for line in lines if line.startswith("captured")] == ([said] if said else [])
    view = inspect_view(report(group(redacted=True)), "rebal x", now=snapshot.captured_at + later)
    assert ("names are pseudonyms" in output.render(view, width=120)) is (said is not None)
