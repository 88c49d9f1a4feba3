"""`rebal inspect` as it is typed, offline and live through stand-ins; what its screen says."""

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from rebal.cli import files, output
from rebal.cli.commands import inspect_cmd
from rebal.cli.render.inspection.screen import inspect_view, probe_helps
from rebal.cli.report import Report, make_report
from rebal.groups.model import (
    Coordinator,
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
from rebal.inspectors.kafka.listing import GroupFailure
from rebal.planner.plan import Finding, Severity
from tests.cli.conftest import NOW, Live, Rebal, exact
from tests.planner.builder import group_of

Make = Callable[..., GroupSnapshot]

BILLING = GroupFailure(
    group_id="billing", message="billing: no DESCRIBE right", kind="authorization"
)


def test_inspect_json_shows_how_well_each_assignor_list_is_known(saved: str, rebal: Rebal) -> None:
    said = rebal("inspect", "--snapshot", saved, "-o", "json")
    assert said.err == ""
    (found,) = said.body["groups"]
    assert found["rebalance_protocol"]["value"] == "EAGER"
    assert found["common_assignors"]["supported"] == ["range"]
    assert [m["assignors"]["knowledge"] for m in found["members"]] == ["exact", "exact", "bounded"]
    assert found["members"][0]["assignment"] == [{"topic": "orders", "partitions": [0, 1, 2, 3]}]


def test_groups_are_shown_when_another_could_not_be_read(
    live: Live, group: Make, rebal: Rebal
) -> None:
    live.show(group(), BILLING, group(group_id="ship ping"))
    words = ["inspect", "checkout", "billing", "ship ping", "-b", "127.0.0.1:1"]
    out, err = rebal(*words, code=1)
    assert err == "rebal: billing: no DESCRIBE right\n"
    assert [line for line in out.splitlines() if line.startswith("next:")] == [
        "next:  rebal inspect checkout --probe -b 127.0.0.1:1",
        "next:  rebal inspect 'ship ping' --probe -b 127.0.0.1:1",
    ]
    assert live.asked == [(words[1:4], {"probe": False, "assignors": ()})]
    body = rebal(*words, "-o", "json", code=1).body
    (failure,) = body["failures"]
    assert (failure["group_id"], failure["message"]) == ("billing", BILLING.message)
    assert [found["group_id"] for found in body["groups"]] == ["checkout", "ship ping"]
    (run,) = rebal(*words, "-o", "sarif", code=1).body["runs"]
    assert not run["invocations"][0]["executionSuccessful"]


def test_an_unreachable_broker_is_reported_and_the_other_brokers_groups_are_shown(
    live: Live, group: Make, rebal: Rebal
) -> None:
    why = "broker 2 at b2:9092 cannot be reached (no answer): the groups that it coordinates …"
    silent = GroupFailure(group_id=None, message=why, kind="network", broker_id=2)
    live.show(group())
    live.unlisted = (silent,)
    words = ["inspect", "--all", "-b", "127.0.0.1:1"]
    out, err = rebal(*words, code=1)
    assert out.startswith("checkout ")
    assert err == f"rebal: {why}\n"
    (failure,) = rebal(*words, "-o", "json", code=1).body["failures"]
    assert (failure["group_id"], failure["broker_id"]) == (None, 2)
    assert "broker 2" in rebal(*words, "-o", "github", code=1).out
    assert live.selected[-1] == ([], {"match": None, "all_groups": True})
    rebal("inspect", "--match", "check.*", "-b", "127.0.0.1:1", code=1)
    assert live.selected[-1] == ([], {"match": "check.*", "all_groups": False})


def test_the_probe_option_and_its_assignors_are_passed_to_the_cluster_reader(
    live: Live, group: Make, rebal: Rebal
) -> None:
    live.show(group())
    words = ["checkout", "-b", "h:1", "--probe", "--assignor", "a", "--assignor", "b"]
    *_, last = rebal("inspect", *words).out.splitlines()
    assert live.asked == [(["checkout"], {"probe": True, "assignors": ("a", "b")})]
    assert last == f"next:  rebal plan-upgrade {' '.join(words)}"


def test_screens_of_many_groups_equal_those_of_each(live: Live, group: Make, rebal: Rebal) -> None:
    """Several processes make the screens of many groups."""
    names = [f"g-{number:03}" for number in range(inspect_cmd._MANY + 7)]
    live.show(*(group(group_id=name) for name in names))
    together = rebal("inspect", "--all", "-b", "h:1").out
    assert together == "\n".join(rebal("inspect", name, "-b", "h:1").out for name in names)


def test_a_blocking_finding_exits_3_unless_exit_zero_is_given(
    saved: str, monkeypatch: pytest.MonkeyPatch, rebal: Rebal
) -> None:
    found = Finding(rule="RB113", severity=Severity.BLOCK, message="stop")
    monkeypatch.setattr("rebal.cli.report.evaluate", lambda _: (found,))
    words = ["inspect", "--snapshot", saved, "-o", "json"]
    rebal(*words, code=3)
    rebal(*words, "--exit-zero")
    found = replace(found, severity=Severity.WARN)
    rebal(*words)
    assert rebal(*words, "--fail-on", "warning", code=3).body["exit_code"] == 3


def test_save_writes_one_snapshot_for_each_group(
    live: Live, group: Make, here: Path, rebal: Rebal
) -> None:
    live.show(group(), group(group_id="../up"))
    both = ["inspect", "checkout", "../up", "-b", "h:1"]
    said = rebal(*both, "--save")
    assert sorted(p.name for p in here.iterdir()) == [
        "%2E.%2Fup.rebal.yaml", "checkout.rebal.yaml",
    ]  # fmt: skip
    assert f"rebal: saved {here}/checkout.rebal.yaml\n" in said.err
    read = files.read_snapshot(here / "checkout.rebal.yaml")
    assert read.members[0].client_id == "checkout-1"
    rebal("inspect", "checkout", "-b", "h:1", "--save-to", "one.json", "--redact")
    assert files.read_snapshot(here / "one.json").redacted
    said = rebal(*both, "--save-to", "two.yaml", code=2)
    assert "several groups need a folder" in said.err


@pytest.mark.usefixtures("here")
def test_a_shell_pattern_after_client_log_gives_files_not_group_names(
    live: Live, group: Make, monkeypatch: pytest.MonkeyPatch, rebal: Rebal
) -> None:
    given: list[list[str]] = []
    monkeypatch.setattr(
        "rebal.cli.sources.EvidenceFiles.observations",
        lambda files: given.append([str(path) for path in files.options.client_log]) or (),
    )
    for name in ("a.log", "b.log", "checkout"):
        Path(name).write_text("")
    live.show(group())
    rebal("inspect", "checkout", "-b", "h:1", "--client-log", "a.log", "b.log")
    rebal("inspect", "-b", "h:1", "--client-log=a.log", "checkout")
    assert given == [["a.log", "b.log"], ["a.log"]]
    assert live.selected[0][0] == ["checkout"]


RANGE = {"members": [{"id": "a", "list": ["range"]}, {"id": "b", "list": ["range"]}]}
REJECTED = {"client": "c", "list": ["cooperative-sticky"]}


@pytest.mark.parametrize(
    ("command", "refusals", "code", "times"),
    [
        (["inspect"], [REJECTED], 3, 1),
        (["inspect"], [{"client": "c", "list": []}], 4, 1),
        (["inspect"], [], 0, 0),
        (["plan-upgrade"], [REJECTED], 0, 1),
        (["plan-upgrade", "--details"], [REJECTED], 0, 2),
        (["plan-upgrade", "--ignore", "RB904", "--reason", "an old canary"], [REJECTED], 0, 0),
    ],
)
def test_a_rejected_client_leads_the_screen(
    command: list[str], refusals: list[Any], code: int, times: int, *, tmp_path: Path, rebal: Rebal
) -> None:
    """On `plan-upgrade` too; if its next join may be accepted, the exit code is 4."""
    file = str(files.save_snapshot(group_of({**RANGE, "refusals": refusals}), tmp_path))
    text = rebal(*command, "--snapshot", file, code=code).out
    assert text.startswith("REJECTED    RB904 c was rejected once") is bool(times)
    assert text.count("RB904 c was rejected once") == times
    if command == ["inspect"]:
        body = rebal(*command, "--snapshot", file, "-o", "json", code=code).body
        urgent = [one["rule"] for one in body["groups"][0]["findings"] if one["urgent"]]
        assert (body["exit_code"], urgent) == (code, ["RB904"] * times)


def report(snapshot: GroupSnapshot, **more: Any) -> Report:
    fields: dict[str, Any] = {"snapshot": snapshot, "runs": RebalanceProtocol.EAGER}
    return Report(**{**fields, **more})


def screen(made: Report, width: int = 100, wide: bool = False, next_: str = "rebal x") -> str:
    return output.render(inspect_view(output.shown(made), next_, wide=wide), width=width)


def test_questions_share_a_line_and_the_next_command_is_the_last(group: Make) -> None:
    asks = (Finding(rule=f"RB30{n}", severity=Severity.ASK, message="listener?") for n in (1, 2))
    lines = screen(report(group(), findings=tuple(asks)), next_="rebal plan").splitlines()
    assert lines[-4:-2] == [
        "ask         RB301 and RB302: look at your code first",
        "            rebal explain RB301",
    ]
    assert lines[-1] == "next:  rebal plan"
    assert "· lag 66 ·" in lines[0]


@pytest.mark.parametrize(
    ("since", "static", "said"),
    [
        (Tri.NO, None, "worth nothing: no rebalance completed since the coordinator was loaded"),
        (Tri.CANNOT_TELL, None, "worth nothing until a rebalance is seen since the coordinator"),
        (Tri.YES, "pod-1", "worth nothing yet: since the coordinator was loaded, a static member"),
    ],
)
def test_a_probes_no_after_a_coordinator_reload_is_reported_as_worth_nothing(
    group: Make, since: Tri, static: str | None, said: str
) -> None:
    first, *others = group().members
    no = ProbeAnswer(assignor="sticky", supported=Tri.NO, at=NOW)
    made = group(
        members=(replace(first, instance_id=static), *others),
        coordinator=Coordinator(broker_id=2, rebalanced_since_load=since, rebalanced_why="a load"),
        probe=Probe(answers=(no,)),
    )
    text = screen(report(made, common=common_assignors(made)), width=200)
    assert f"probe said no, just now: {said}" in " ".join(text.split())
    assert " sticky NOT all" not in " ".join(text.split())


def test_a_probe_without_an_answer_is_shown_with_its_reason(group: Make) -> None:
    refused = group(probe=Probe(refused="the group is Empty"))
    assert "not probed  the group is Empty" in screen(report(refused))
    full = {"supported": Tri.CANNOT_TELL, "error": "GROUP_MAX_SIZE_REACHED"}
    failed = group(probe=Probe(answers=(ProbeAnswer(assignor="sticky", at=NOW, **full),)))
    said = "sticky  cannot tell  probe: no answer (GROUP_MAX_SIZE_REACHED)"
    assert said in screen(report(failed))


def test_a_mixed_group_shows_the_protocol_of_each_member(group: Make) -> None:
    snapshot = group()
    kinds = (RebalanceProtocol.EAGER, RebalanceProtocol.COOPERATIVE, RebalanceProtocol.EAGER)
    runs = {m.member_id: kind for m, kind in zip(snapshot.members, kinds, strict=True)}
    made = screen(report(snapshot, runs=RebalanceProtocol.MIXED, member_runs=runs), width=120)
    assert "mixed, assignor range   every rebalance stops 8 partitions" in made
    assert "RUNS" in made


def test_a_kip_848_group_of_classic_members_alone_is_shown_as_eager(group: Make) -> None:
    one, *_ = group().members
    known, said = exact("range"), Evidence(source=Source.CONFIG_FILE)
    file = DeclaredAssignors(list=("range",), group_protocol="consumer", evidence=said)
    old = replace(one, protocol_type="classic", assignors=known, declared=file)
    snapshot = group(type=GroupType.CONSUMER, assignor="uniform", members=(old,))
    made = screen(make_report(snapshot), width=160)
    assert "runs        EAGER, assignor uniform   a member stops all its partitions" in made
    assert "every member speaks the classic protocol" in made
    assert "group.protocol=consumer)" not in made
    assert "range; next start: group.protocol=consumer" in made


def test_a_probe_helps_only_a_stable_group_with_an_unknown_assignor_list(group: Make) -> None:
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
def test_an_old_snapshot_shows_its_age(group: Make, later: timedelta, said: str | None) -> None:
    snapshot = group()
    view = inspect_view(report(snapshot), "rebal x", now=snapshot.captured_at + later)
    lines = output.render(view, width=120).splitlines()
    assert [line for line in lines if line.startswith("captured")] == ([said] if said else [])
    view = inspect_view(report(group(redacted=True)), "rebal x", now=snapshot.captured_at + later)
    assert ("names are pseudonyms" in output.render(view, width=120)) is (said is not None)
