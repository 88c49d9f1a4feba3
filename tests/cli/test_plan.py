"""`rebal plan-upgrade` as it is typed, its short screen, and the plan of a redacted snapshot."""

import json
import re
from collections.abc import Callable
from importlib import resources
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from rebal.cli import files, planning
from rebal.cli.files import read_snapshot
from rebal.cli.output import render
from rebal.cli.render.plans.screen import plan_view
from rebal.groups.evidence.merge import merge
from rebal.groups.model import (
    DeclaredAssignors,
    Evidence,
    GroupSnapshot,
    KubernetesWorkload,
    Member,
    Source,
)
from rebal.groups.snapshot.documents import dump_snapshot
from rebal.groups.snapshot.redact import redact
from rebal.planner.commands import Given
from rebal.planner.paths import make_plan
from rebal.planner.plan import Plan, dump_plan, load_plan
from rebal.planner.rehearsal.costs import steps
from tests.cli.conftest import Rebal, Said, flat
from tests.planner import plans
from tests.planner.builder import group_of
from tests.planner.every_path import java, pods
from tests.planner.plans import BOTH, RANGE
from tests.planner.test_cost import sized

Make = Callable[..., GroupSnapshot]
Planned = Callable[..., Said]


@pytest.fixture
def plan(tmp_path: Path, rebal: Rebal) -> Planned:
    """Plan for a group, which is saved first."""

    def plan_for(snapshot: GroupSnapshot, *more: str, code: int = 0) -> Said:
        path = tmp_path / "group.yaml"
        path.write_text(dump_snapshot(snapshot))
        return rebal("plan-upgrade", "--snapshot", str(path), *more, code=code)

    return plan_for


def test_a_plan_from_a_snapshot_shows_times_and_never_just_now(group: Make, plan: Planned) -> None:
    said = plan(group(), "--details").out
    assert "just now" not in said
    assert re.search(r"based on the snapshot of (2026-11-20|Nov 20) 09:15Z\n", said)
    assert re.search(r"\(request log (2026-11-20|Nov 20) 09:12Z\)", said)


def test_a_blocked_plan_exits_3_unless_the_rule_is_ignored(
    group: Make, plan: Planned, librdkafka: tuple[Member, ...]
) -> None:
    blocked = group(members=librdkafka)
    plan(blocked, code=3)
    plan(blocked, "--exit-zero")
    why = "we stop everything on Sunday"
    body = plan(blocked, "--ignore", "rb104", "--reason", why, "-o", "json").body
    assert f"RB104 is ignored: {why}" in body["assumptions"]
    assert [f["ignored"] for f in body["findings"] if f["rule"] == "RB104"] == [why]


def test_fail_on_warning_makes_a_warning_exit_3(plan: Planned) -> None:
    old = group_of({"members": [{"id": "a", "list": ["range"], "version": "3.1.0"}]})
    plan(old)
    plan(old, "--fail-on", "warning", code=3)


@pytest.mark.parametrize("ending", ["yaml", "json"])
def test_out_writes_a_plan_that_reads_back_with_its_baseline(
    group: Make, plan: Planned, tmp_path: Path, ending: str
) -> None:
    out = tmp_path / f"checkout.plan.{ending}"
    assert f"wrote {out}" in plan(group(), "--out", str(out)).err
    read = load_plan(out.read_text(encoding="utf-8"), ending, out.name)
    assert read.baseline == merge(files.read_snapshot(tmp_path / "group.yaml"), ())
    assert read.baseline.group == group().group
    assert read.next_step == 1
    before = out.read_bytes()
    plan(group(), "--out", str(out))
    assert out.read_bytes() == before
    assert {step.gate.command for step in read.steps} == {f"rebal verify {out}"}


def test_markdown_output_of_a_plan_is_a_runbook(group: Make, plan: Planned) -> None:
    text = plan(group(), "-o", "markdown").out
    assert text.startswith("# checkout: EAGER (range) → COOPERATIVE (cooperative-sticky)\n")
    assert "\n```properties\n" in text
    assert "\n- [ ] Gate: `rebal plan-upgrade --snapshot" in text
    assert "\n## Not checked\n" in text


def test_assume_family_answers_a_question_on_an_unknown_client(group: Make, plan: Planned) -> None:
    *known, last = group().members
    unknown = group(members=(*known, replace(last, software=None, subscription=None)))
    assert "RB906 checkout-3 may not start" in flat(plan(unknown, code=4).out)
    said = plan(unknown, "--assume-family", "checkout-3=java").out
    assert re.search(r"assumed +client id checkout-3 is java", said)


def test_an_assignor_that_the_stated_client_lacks_is_answered_and_not_asked_again(
    plan: Planned,
) -> None:
    unknown = {"id": "a", "list": ["range"], "family": None, "bytes": None}
    group = group_of({"members": [unknown], "elected": "range"})
    assert "a runs librdkafka" in flat(plan(group, "--to", "sticky", code=4).out)
    said = plan(group, "--to", "sticky", "--assume-family", "librdkafka", code=3).out
    assert "question" not in said.splitlines()[3]
    assert "now:   first RB124: Plan roundrobin instead." in said
    assert "next:  rebal plan-upgrade --to roundrobin " in said


def test_the_last_line_points_to_the_question_about_the_next_step(plan: Planned) -> None:
    unknown = {"id": "a", "at_least": ["roundrobin"], "family": None, "bytes": None}
    said = plan(group_of({"members": [unknown], "elected": "roundrobin"}), code=4).out
    assert "RB901 a may lack cooperative-sticky" in flat(said)
    assert said.endswith("next:  run the command of the question above that is right\n")


def test_a_plan_explains_an_assignor_that_the_application_must_write(plan: Planned) -> None:
    own = {"id": "a", "list": ["RoundRobinAssigner"], "family": "kafkajs"}
    group = group_of({"members": [own], "elected": "RoundRobinAssigner"})
    said = plan(group, "--to-client", "java").out
    assert 'kafkajs has no range: assigners["range"] stands for an assigner of your own' in said
    assert "require(" not in said


def test_screens_list_members_in_natural_order(plan: Planned, rebal: Rebal, tmp_path: Path) -> None:
    order = ["worker-1", "worker-2", "worker-10", "worker-11"]
    members = [{"id": order[n], "list": ["range"]} for n in (2, 1, 0, 3)]
    out = str(tmp_path / "a.plan.yaml")
    said = plan(group_of({"members": members}), "--out", out, "--details").out
    assert f"to do        {', '.join(order[:-1])} and {order[-1]}" in said
    for words, code in (
        (["inspect"], 0),
        (["verify", out], 4),
        (["simulate", "--assignor", "sticky"], 0),
    ):
        said = rebal(*words, "--snapshot", str(tmp_path / "group.yaml"), code=code).out
        firsts = [line.split()[0] for line in said.splitlines() if line.startswith("worker-")]
        assert firsts[:4] == order, words


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (["--max-downtime", "10s"], 0, ""),
        (["--max-downtime", "1s"], 3, "--max-downtime 1 s: step 1 stops a partition for about 3 s"),
        (["--max-downtime", "10s", "--batch", "all"], 3, "step 2 stops a partition for about 36 s"),
        (["--max-downtime", "1s", "--exit-zero"], 0, "step 1 stops a partition"),
    ],
)
def test_max_downtime_blocks_a_plan_that_stops_a_partition_for_longer(
    words: list[str], code: int, says: str, *, saved: str, rebal: Rebal
) -> None:
    printed = rebal("plan-upgrade", "--snapshot", saved, *words, "-o", "json", code=code)
    assert printed.body["exit_code"] == code
    assert says in printed.err
    assert ("downtime" in printed.err) is bool(says)


@pytest.mark.parametrize(
    ("members", "to", "limit", "batch", "code", "says"),
    [
        (3, "consumer", 10, 1, 0, ""),
        (3, "consumer", 10, 0, 3, "step 1 stops a partition for about 30 s"),
        (3, "consumer", 1, 1, 3, "step 1 stops a partition for about"),
        (-3, "range", 10, 1, 0, ""),
        (-3, "range", 30, 0, 3, "step 1 stops a partition for about 36 s"),
        (0, "consumer", 10, 1, 4, "the downtime of step 1 is not predicted"),
    ],
)
def test_max_downtime_judges_moves_to_kip_848_and_back(
    members: int, to: str, limit: float, *, batch: int, code: int, says: str
) -> None:
    """A negative number stands for the members of a KIP-848 group."""
    kind = {"type": "consumer", "elected": "uniform"} if members < 0 else {}
    kind |= {} if members else {"state": "Empty"}
    own = {"protocol_type": "consumer"} if members < 0 else {"list": ["range"]}
    shown = [{"id": f"m{n}", "version": "4.1.1", **own} for n in range(abs(members))]
    plan = make_plan(group_of({"members": shown, **kind}), to)
    found, said = planning.too_long(plan, limit, batch, 0)
    assert found == code
    assert len(said) == bool(says)
    assert all(says in line for line in said)


def test_max_downtime_adds_half_to_the_prediction_if_restarts_were_not_rehearsed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    snapshot = sized(70, 350, "uniform")
    plan = make_plan(snapshot, "cooperative-sticky")
    cost = plan.steps[0].cost
    assert cost is not None
    assert cost.longest_seconds is not None
    code, said = planning.too_long(plan, cost.longest_seconds * 1.49, 1, 0)
    assert code == 3
    assert "half as much again counts: restarts were left out" in said[0]
    assert planning.too_long(plan, cost.longest_seconds * 1.51, 1, 0) == (0, [])
    monkeypatch.setattr(steps, "_ENOUGH", 10**9)
    whole = make_plan(snapshot, "cooperative-sticky").steps[0].cost
    assert whole is not None
    assert whole.longest_seconds is not None
    assert whole.longest_seconds < cost.longest_seconds * 1.5


FOLDER = Path(str(resources.files("rebal.cli") / "data" / "demo"))
BUNDLED = sorted(path.name for path in FOLDER.iterdir())


def pair(name: str) -> tuple[GroupSnapshot, GroupSnapshot, dict[str, str]]:
    """The real one, the redacted one, and real name → pseudonym."""
    real = read_snapshot(FOLDER / name)
    made = redact(real)
    names: dict[str, str] = {}
    for before, after in zip(real.members, made.members, strict=True):
        names[before.member_id] = after.member_id
        names[before.client_id] = after.client_id
        if before.instance_id is not None and after.instance_id is not None:
            names[before.instance_id] = after.instance_id
    return real, made, names


def renamed(text: str, names: dict[str, str]) -> str:
    longest = sorted(names, key=len, reverse=True)
    pattern = "|".join(map(re.escape, longest))
    return re.sub(rf"(?<![\w-])(?:{pattern})(?!\w)", lambda found: names[found[0]], text)


def planned(snapshot: GroupSnapshot, to: str, names: dict[str, str]) -> object:
    body = json.loads(dump_plan(make_plan(snapshot, to), "json"))
    del body["baseline"], body["made_at"], body["checksum"]

    def without_details(value: object) -> object:
        # Where a fact was read (a file's name and line) is one of the things that redaction takes.
        if isinstance(value, dict):
            return {k: without_details(v) for k, v in value.items() if k != "detail"}
        return [without_details(v) for v in value] if isinstance(value, list) else value

    return json.loads(renamed(json.dumps(without_details(body)), names))


@pytest.mark.parametrize("to", ["cooperative", "eager"])
@pytest.mark.parametrize("name", BUNDLED)
def test_a_redacted_snapshot_gives_the_same_plan(name: str, to: str) -> None:
    real, made, names = pair(name)
    assert planned(made, to, {"no name": ""}) == planned(real, to, names)


def screen(made: Plan, width: int = 80, **more: Any) -> str:
    return render(plan_view(made, **more), width=width)


def steps_of(text: str) -> list[list[str]]:
    """The lines of each step, from its title to the blank line that follows."""
    parts = re.split(r"\n(?=\d  )", text)[1:]
    return [part.split("\n\n")[0].strip("\n").splitlines() for part in parts]


def test_a_step_names_as_many_members_as_there_is_room_for() -> None:
    members = [java(f"checkout-consumer-7d9f8b6c5d-{n:05}") for n in range(4)]
    lines = steps_of(screen(plans.plan(members)))[0]
    assert lines[1].endswith("checkout-consumer-7d9f8b6c5d-00000 and 3 more")
    assert lines[2].startswith("   with ")
    wide = screen(plans.plan(members), wide=True)
    assert all(f"7d9f8b6c5d-{n:05}" in wide for n in range(4))


def test_a_plan_to_a_custom_assignor_promises_no_protocol() -> None:
    lists = {"a": ["acme", "range"], "b": RANGE}
    made = plans.plan([java(name, names) for name, names in lists.items()], "acme")
    assert screen(made).startswith("checkout: EAGER (range) → acme\n")


def test_a_plan_names_the_deployment_whose_max_surge_must_be_0() -> None:
    workload = KubernetesWorkload(kind="Deployment", name="orders", namespace="shop")
    source = Evidence(source=Source.CONFIG_FILE, detail="k.yaml", workload=workload)
    declared = DeclaredAssignors(list=("range",), max_surge="25%", evidence=source)
    snapshot = group_of({"members": pods(2)})
    members = tuple(replace(member, declared=declared) for member in snapshot.members)
    text = flat(screen(make_plan(replace(snapshot, members=members))))
    assert "Deployment orders: pause autoscaler and GitOps sync; set maxSurge 0" in text
    assert "and maxUnavailable 1 (maxSurge is 25%)" in text


def test_a_plan_shows_three_blocking_findings_and_counts_the_others() -> None:
    made = plans.plan(
        [java("a", None), java("c", None, family="sarama", declared=["x"])], elected="own"
    )
    block = next(f for f in made.findings if f.rule == "RB101")
    blocks = [replace(block, message=f"cause {n} of what stands in the way") for n in range(5)]
    text = flat(screen(replace(made, findings=tuple(blocks))))
    assert "and 2 more: " in text
    assert sum(f.message in text for f in blocks) == 3


def test_the_hint_to_details_is_a_whole_command_if_the_plan_has_a_file(tmp_path: Any) -> None:
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
        departed = [{"id": "a2", "list": names, "at": -4, "left": True}]
        text = screen(make_plan(group_of({**members, "departed": departed})), width=200)
        assert line.split("  ")[-1] in text
        assert line.split("  ")[0] in text
        assert "→ Add --expect-members 2 if it belongs to the service, --departed a2 if" in text
        assert text.index("a2 left") < text.index("8 questions")
