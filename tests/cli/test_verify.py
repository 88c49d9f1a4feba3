"""`rebal verify` as it is typed: its exit codes and journal, what people state, the way back."""

import getpass
import json
import shlex
import subprocess
import sys
from collections.abc import Callable
from datetime import timedelta
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from rebal.cli import app
from rebal.cli.errors import ReadError
from rebal.cli.output import render
from rebal.cli.render.verification import changes, verify_view
from rebal.cli.sources import watch
from rebal.cli.verifying import Until, blinded, reached
from rebal.groups.model import GroupSnapshot
from rebal.groups.snapshot.documents import dump_snapshot
from rebal.planner.commands import Given
from rebal.planner.goals import goal_back
from rebal.planner.paths import make_plan
from rebal.planner.plan import Aim, Plan, dump_plan, load_plan
from rebal.planner.verification.verify import Standing, verify
from tests.cli.conftest import Rebal, Said
from tests.planner.looks import look, pods

MIXED = ["cooperative-sticky", "range"]
KEY = "partition.assignment.strategy"
COOPERATIVE = "org.apache.kafka.clients.consumer.CooperativeStickyAssignor"
Capture = pytest.CaptureFixture[str]
Verify = Callable[..., Said]

FINAL = ["cooperative-sticky"]

BEFORE = look(0, pods(1, 1, list=["range"]))
HALF = look(1, [pods(2, 1, list=MIXED)[0], pods(2, 1, list=["range"])[1]])
READY = look(2, pods(2, 2, list=MIXED), elected=FINAL[0])
NARROWED = look(3, [pods(3, 2, list=FINAL)[0], pods(3, 2, list=MIXED)[1]], elected=FINAL[0])
FINISHED = look(4, pods(3, 3, list=FINAL), elected=FINAL[0])
LOOKS = {
    "before": BEFORE, "half": HALF, "ready": READY, "narrowed": NARROWED, "finished": FINISHED,
}  # fmt: skip


@pytest.fixture
def folder(here: Path, plan: Plan) -> Path:
    """A plan of two bounces, and the group at five moments of its roll-out."""
    (here / "plan.yaml").write_text(dump_plan(plan))
    for name, snapshot in LOOKS.items():
        (here / f"{name}.yaml").write_text(dump_snapshot(snapshot))
    return here


@pytest.fixture
def plan() -> Plan:
    return make_plan(BEFORE)


@pytest.fixture
def run(rebal: Rebal, folder: Path) -> Verify:
    """Verify the plan in the folder."""
    return lambda *words, code=0: rebal("verify", "plan.yaml", *words, code=code)


@pytest.mark.parametrize("torn", [0, 2])
def test_a_torn_journal_line_is_reported_and_skipped(folder: Path, torn: int, run: Verify) -> None:
    book = folder / "book.jsonl"
    for _ in range(2):
        run("--snapshot", "half.yaml", "--journal", "book.jsonl", code=4)
    lines = book.read_text().splitlines(keepends=True)
    book.write_text("".join([*lines[:torn], lines[0][:50] + "\n" * (torn < 2), *lines[torn:]]))
    said = run("--snapshot", "ready.yaml", "--journal", "book.jsonl")
    assert f"line {torn + 1} is incomplete" in said.err
    lines = book.read_text().splitlines()
    assert len(lines) == 4
    assert json.loads(lines[3])["gate"] == "yes"


class Clock:
    """Time that passes only while somebody sleeps."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds

    def sleep(self, seconds: float) -> None:
        self.seconds += seconds


def watched(
    plan: Plan,
    looks: list[GroupSnapshot | ReadError],
    seconds: float = 60,
    until: Until = "gate",
    read: int = 99,
) -> tuple[Standing, list[str], list[Standing]]:
    """What a watch of these looks ends with, the lines it says, and each standing shown.

    Nobody reads it any longer after `read` standings.
    """
    clock, rest = Clock(), iter(looks)
    shown: list[Standing] = []
    said: list[str] = []

    def once() -> GroupSnapshot:
        found = next(rest)
        if isinstance(found, ReadError):
            raise found
        return found

    def show(standing: Standing) -> None:
        said.extend(changes(shown[-1] if shown else None, standing))
        shown.append(standing)

    last = watch(
        once,
        lambda snapshot: verify(plan, [], snapshot),
        blinded,
        show,
        seconds=seconds,
        every=10,
        decided=lambda one: reached(one, until) != 4,
        watched=lambda: len(shown) < read,
        sleep=clock.sleep,
        clock=clock,
    )
    return last, said, shown


def test_a_watch_ends_when_the_gate_holds_and_prints_only_changes(plan: Plan) -> None:
    last, said, shown = watched(plan, [BEFORE, BEFORE, HALF, HALF, READY, BEFORE])
    assert last.exit_code == 0
    assert len(shown) == 5
    assert said[0].endswith("not yet, 0 of 2 done")
    assert any(line.startswith("app-0 is back with a new member id: done") for line in said)
    assert said[-1].endswith("gate holds, 2 of 2 done")
    assert len(said) == len(set(said)) == 5, said


def test_a_watch_that_cannot_read_the_group_exits_4_and_shows_since_when(plan: Plan) -> None:
    unreachable = ReadError("cannot reach any of kafka:9092.")
    last, said, shown = watched(plan, [HALF, unreachable, unreachable, unreachable, READY])
    assert [standing.exit_code for standing in shown] == [4, 4, 4, 4, 0]
    assert [standing.gate for standing in shown[1:4]] == ["cannot tell"] * 3
    # Since the last look that read the group, not since the first that failed.
    assert {standing.blind_since for standing in shown[1:4]} == {HALF.captured_at}
    # By the brokers' clock, as at the look before: this machine's clock may differ.
    assert [standing.at for standing in shown[1:4]] == [
        HALF.captured_at + timedelta(seconds=seconds) for seconds in (10, 20, 30)
    ]
    # The advice of the last look that read the group is withdrawn.
    assert shown[0].advice.recommended
    for standing in shown[1:4]:
        assert (standing.advice.action, standing.withheld) == ("wait", ())
        assert standing.next == standing.advice.text
    assert last.blind_since is None
    assert sum(line.startswith("blind since 09:01:00Z") for line in said) == 1
    assert any(line.startswith("sees again") for line in said)
    view = render(verify_view(shown[1]), width=100)
    assert "blind" in view
    assert "cannot reach any of kafka:9092" in view


def test_a_watch_that_ends_blind_or_before_the_gate_holds_exits_4(plan: Plan) -> None:
    unreachable = ReadError("no answer.")
    last, _, shown = watched(plan, [HALF, *[unreachable] * 9], seconds=40)
    assert last.exit_code == 4
    assert last.blind_since is not None
    assert len(shown) == 5
    last, _, shown = watched(plan, [HALF] * 9, seconds=25)
    assert (last.exit_code, len(shown)) == (4, 4)


def test_watch_until_done_continues_past_a_gate_and_exits_4_at_its_end(plan: Plan) -> None:
    last, _, shown = watched(plan, [BEFORE, READY, READY], seconds=20, until="done")
    assert (len(shown), last.exit_code, last.finished) == (3, 0, False)
    assert (reached(last, "done"), reached(last, "gate")) == (4, 0)
    assert reached(replace(last, finished=True), "done") == 0
    assert reached(replace(shown[0], exit_code=3), "done") == 3


def test_a_watch_ends_when_no_reader_is_left_and_needs_a_first_look(plan: Plan) -> None:
    last, _, shown = watched(plan, [HALF] * 9, read=2)
    assert (last.exit_code, len(shown)) == (4, 2)
    with pytest.raises(ReadError, match="cannot reach"):
        watched(plan, [ReadError("cannot reach any of kafka:9092.")])


def test_verify_of_a_large_group_shows_unfinished_members_first(plan: Plan) -> None:
    many = [{"id": f"app-{n}.2", "client": f"app-{n}", "list": MIXED} for n in range(300)]
    many[250] = {"id": "app-250.1", "client": "app-250", "list": ["range"]}
    standing = verify(plan, [], look(5, many))
    text = render(verify_view(standing), width=120)
    assert "app-250" in text
    assert "and 280 more, 280 of them done" in text
    assert len(text.splitlines()) < 40


def feed(monkeypatch: pytest.MonkeyPatch, looks: list[GroupSnapshot]) -> None:
    """What the live group shows, look by look; the last one again and again."""
    rest = list(looks)

    def read(*_: object, **__: object) -> GroupSnapshot:
        return rest.pop(0) if len(rest) > 1 else rest[0]

    monkeypatch.setattr("rebal.cli.sources.GroupSource.read", read)


def test_a_watch_writes_a_json_line_for_each_change_and_its_journal(
    folder: Path, monkeypatch: pytest.MonkeyPatch, run: Verify
) -> None:
    feed(monkeypatch, [BEFORE, BEFORE, HALF, READY])
    said = run("--watch", "--every", "0.2", "-o", "jsonl")
    lines = [json.loads(line) for line in said.out.splitlines()]
    assert [line["exit_code"] for line in lines] == [4, 4, 0]
    assert {line["schema"] for line in lines} == {"rebal.verify/1"}
    assert all(line["changes"] for line in lines)
    book = (folder / "plan.yaml.journal.jsonl").read_text().splitlines()
    assert len(book) == 3


def test_a_watch_begun_after_the_first_gate_waits_for_the_second(
    monkeypatch: pytest.MonkeyPatch, run: Verify
) -> None:
    feed(monkeypatch, [READY])
    for _ in range(2):
        run()
    done = look(9, pods(3, 3, list=["cooperative-sticky"]), elected="cooperative-sticky")
    feed(monkeypatch, [look(8, pods(2, 2, list=MIXED), elected="cooperative-sticky"), done])
    said = run("--watch", "--every", "0.2").out.splitlines()
    assert "step 2 of 2" in said[0]
    assert "not yet, 0 of 2 done" in said[0]
    last = said.index("") - 1
    assert said[last].endswith("done, 2 of 2 done")
    assert "roll-out finished" in said[last + 2], "then the timeline"


def test_fail_on_warning_exits_3_and_exit_zero_changes_only_the_process_exit_code(
    folder: Path, monkeypatch: pytest.MonkeyPatch, run: Verify
) -> None:
    """More members than expected are a warning: the gate holds all the same."""
    more = look(2, pods(2, 2, 2, list=MIXED), elected="cooperative-sticky")
    (folder / "more.yaml").write_text(dump_snapshot(more))
    plain = ["--snapshot", "more.yaml", "-o", "json"]
    strict = [*plain, "--fail-on", "warning"]
    documents = [
        run(*words, code=code).body
        for words, code in ((plain, 0), (strict, 3), ([*strict, "--exit-zero"], 0))
    ]
    # The document holds the true exit code, whatever the process exits with.
    assert [body["gate"] for body in documents] == ["yes"] * 3
    assert [body["exit_code"] for body in documents] == [0, 3, 3]
    assert documents[0]["next"].startswith("begin step 2")
    assert documents[1]["next"].startswith("restart nothing: a warning stands")
    feed(monkeypatch, [BEFORE, more, BEFORE])
    watching = ["--watch", "--every", "0.2"]
    assert "restart nothing: a warning" in run(*watching, "--fail-on", "warning", code=3).err
    feed(monkeypatch, [BEFORE])
    said = run(*watching, "--for", "0.5s", "--exit-zero", "--journal", "other")
    assert "not yet" in said.out


def test_verify_prints_the_configuration_of_the_advised_step(run: Verify) -> None:
    text = run("--snapshot", "half.yaml", code=4).out
    assert "next:       restart" in text
    assert f"{KEY}={COOPERATIVE},org.apache.kafka.clients.consumer.RangeAssignor\n" in text
    assert f"{KEY}={COOPERATIVE}\n" in run("--snapshot", "ready.yaml").out


def test_verify_always_shows_the_agreement_that_a_cut_over_needs(here: Path, rebal: Rebal) -> None:
    demo = str(files("rebal.cli") / "data" / "demo" / "ml-features.rebal.yaml")
    rebal("plan-upgrade", "--snapshot", demo, "--out", "stop.yaml", code=3)
    words = ["verify", "stop.yaml", "--snapshot", demo]
    text = rebal(*words, code=3).out
    assert "restart nothing until the interruption is agreed (RB104)" in text
    assert "needed      → an interruption is agreed (accepting RB104 records by whom)" in text
    agreed = "rebal verify stop.yaml --ignore RB104 --reason 'the interruption is agreed'"
    assert agreed in text.splitlines()[-1]
    said = rebal(*words, "--ignore", "RB104", "--reason", "agreed", code=4)
    assert "needed" not in said.out


def back(capsys: Capture, name: str, *more: str) -> tuple[int, Plan]:
    words = ["verify", "plan.yaml", "--snapshot", f"{name}.yaml", "--abort"]
    code = app.run([*words, *more, "-o", "yaml"])
    return code, load_plan(capsys.readouterr().out, "yaml")


@pytest.mark.parametrize("name", LOOKS)
def test_the_rollback_is_a_plan_to_the_assignor_that_ran_before(
    folder: Path, capsys: Capture, name: str
) -> None:
    code, found = back(capsys, name)
    assert found == make_plan(LOOKS[name], "range", expect_members=2, given=found.given)
    assert (found.target, found.exit_code) == ("range", code)
    assert not any(folder.glob("*.jsonl")), "planning a rollback is no look of the roll-out"


def test_the_saved_rollback_plans_commands_name_its_file(folder: Path, capsys: Capture) -> None:
    words = ["verify", "plan.yaml", "--snapshot", "narrowed.yaml", "--abort", "--out", "b.yaml"]
    code = app.run([*words, "--journal", "a.jsonl"])
    said = capsys.readouterr()
    kept = load_plan(Path("b.yaml").read_text(), "yaml")
    assert kept.exit_code == code
    gates = [step.gate.command for step in kept.steps]
    assert all("verify b.yaml" in each and "a.jsonl" not in each for each in gates)
    assert "plan.yaml" not in said.out
    assert "the way back from COOPERATIVE to EAGER" in said.err
    Path("b.yaml.journal.jsonl").write_text("")
    assert app.run(words) == 2, "its roll-out is under way"


def test_the_rollback_goal_is_what_the_group_ran_when_the_plan_was_made() -> None:
    other = look(0, pods(1, 1, list=["range"]), elected="roundrobin")
    assert goal_back(make_plan(other)) == "roundrobin"
    ran = look(0, pods(1, 1, list=FINAL), elected="cooperative-sticky")
    assert goal_back(make_plan(ran, "eager")) == "cooperative-sticky"
    for version, before in (("2.3.1", "eager"), ("4.1.1", "cooperative")):
        instances = pods(1, 1, list=["stream"], family="streams", version=version)
        made = make_plan(look(0, instances, elected="stream"), "cooperative")
        assert goal_back(made) == before, "the assignor of Kafka Streams is no goal"
    empty = look(0, [], elected=None, state="Empty")
    assert goal_back(make_plan(empty)) == "eager"


def test_a_rollback_leads_to_an_eager_assignor_if_the_plan_began_at_bounce_2() -> None:
    """The mixed lists had already elected the target, while every member ran EAGER."""
    mixed = look(0, pods(1, 1, list=["cooperative-sticky", "sticky"]), elected=FINAL[0])
    made = make_plan(mixed)
    assert (made.next_step, goal_back(made)) == (2, "sticky")
    unknown = look(0, pods(1, 1, declared=MIXED), elected=FINAL[0])
    assert goal_back(make_plan(unknown)) == "range"
    assert goal_back(make_plan(mixed, "range")) == "sticky"


def test_a_rollback_checks_rb113_again_although_the_plan_ignored_it(
    folder: Path, capsys: Capture
) -> None:
    """The coordinator may hold [cooperative-sticky] alone: it would reject [range] (RB113)."""
    ignore = {"RB113": "restarts were timed", "RB115": "no joins"}
    Path("plan.yaml").write_text(dump_plan(make_plan(BEFORE, ignore=ignore)))
    loaded = look(2, pods(2, 2, list=MIXED), elected="cooperative-sticky", reloaded=True)
    Path("ready.yaml").write_text(dump_snapshot(loaded))
    _, found = back(capsys, "ready")
    assert found.accepted.ignore == {"RB115": "no joins"}
    first = found.step(found.next_step)
    assert first is not None
    assert first.aim is Aim.REFRESH
    _, again = back(capsys, "ready", "--ignore", "RB113", "--reason", "timed again")
    assert again.accepted.ignore == {"RB115": "no joins", "RB113": "timed again"}


def test_the_printed_abort_command_plans_the_same_rollback(folder: Path, capsys: Capture) -> None:
    """No list shows sticky any longer, so `--to eager` would lead to range."""
    before = look(0, pods(1, 1, list=["sticky"]), elected="sticky")
    Path("plan.yaml").write_text(dump_plan(make_plan(before, families={"app-1": "java"})))
    _, found = back(capsys, "finished")
    assert (found.target, found.given.wishes) == ("sticky", ("--assume-family", "app-1=java"))
    words = shlex.split(found.advice.command)[1:]
    assert words[:3] == ["verify", "plan.yaml", "--abort"]
    assert app.run([*words, "-o", "yaml"]) == found.exit_code
    assert load_plan(capsys.readouterr().out, "yaml").target == "sticky"
    assert make_plan(FINISHED, "eager").target == "range"


@pytest.fixture
def stated(here: Path) -> Path:
    """A plan that names its file, and looks at lists that nobody knows."""
    write("plan.yaml", look(0, pods(1, 1)))
    save("half.yaml", look(1, [pods(2, 1, list=MIXED)[0], pods(2, 1)[1]]))
    save("unknown.yaml", look(1, pods(2, 2)))
    return here


def write(name: str, snapshot: GroupSnapshot, goal: str = "cooperative") -> Plan:
    made = make_plan(snapshot, goal, expect_members=2, given=Given(plan=name))
    Path(name).write_text(dump_plan(made))
    return made


def save(name: str, snapshot: GroupSnapshot) -> None:
    Path(name).write_text(dump_snapshot(snapshot))


def looks() -> list[dict[str, Any]]:
    return [json.loads(line) for line in Path("book.jsonl").read_text().splitlines()]


def at(snapshot: str, plan: str = "plan") -> list[str]:
    """A look at a saved group that the journal keeps."""
    words = ["verify", f"{plan}.yaml", "--snapshot", f"{snapshot}.yaml"]
    return [*words, "--journal", "book.jsonl"]


UNKNOWN = at("unknown")


def test_verify_ignores_a_rule_and_the_journal_keeps_the_reason(stated: Path, rebal: Rebal) -> None:
    rebal(*UNKNOWN, code=4)
    screen = rebal(*UNKNOWN, "--ignore", "rb901", "--reason", "all from one image").out
    assert "your word" in screen
    assert "all from one image" in screen
    assert "RB901 is ignored: all from one image" in looks()[-1]["accepted"]
    rebal(*UNKNOWN, code=4)


def test_stated_assignor_lists_and_counts_hold_for_one_look(stated: Path, rebal: Rebal) -> None:
    words = [f"--assume=client-id=app-{n}:{','.join(MIXED)}" for n in range(2)]
    document = rebal(*UNKNOWN, *words, "-o", "json").body
    assert [member["vouched"] for member in document["members"]] == [True, True]
    # The journal keeps no statement of the operator as evidence.
    rebal(*UNKNOWN, code=4)
    words = ["--assume-family", "java", "--expect-members", "3", "--departed", "app-9"]
    rebal(*UNKNOWN, *words, code=4)
    assert looks()[-1]["accepted"] == [
        "app-9 left for good", "client id * is java", "3 members are expected",
    ]  # fmt: skip


def test_a_look_at_another_steps_gate_counts_no_restart_for_that_step(
    stated: Path, rebal: Rebal
) -> None:
    rebal(*at("half"), "--step", "2", code=4)
    rebal(*at("half"), code=4)
    assert [each.get("step", 1) for each in looks()] == [1, 1]
    mixed, final = pods(2, 2, list=MIXED), pods(3, 2)
    save("ready.yaml", look(2, mixed, elected="cooperative-sticky"))
    save("second.yaml", look(3, [final[0], mixed[1]], elected="cooperative-sticky"))
    rebal(*at("ready"))
    for more, code in (([], 4), (["--step", "1"], 0), ([], 4)):
        document = rebal(*at("second"), *more, "-o", "json", code=code).body
    assert document["step"] == 2
    restarted = {one["name"]: one["restarted"] for one in document["members"]}
    assert restarted == {"app-0": True, "app-1": False}, "app-0 restarted in step 2"


STREAMS = {"elected": "stream"}


@pytest.fixture
def streams(stated: Path) -> Path:
    """Two Streams instances whose versions and settings nothing shows."""
    bare = [{**pod, "family": None} for pod in pods(1, 1)]
    made = write("streams.yaml", look(0, bare, **STREAMS), "eager")
    assert all(step.gate.by_hand for step in made.steps)
    save("away.yaml", look(1, bare[:1], **STREAMS))
    save("back.yaml", look(2, [{**pod, "family": None} for pod in pods(2, 2)], **STREAMS))
    save("later.yaml", look(3, [{**pod, "family": None} for pod in pods(2, 3)], **STREAMS))
    return stated


def test_a_confirmation_proves_a_step_that_no_evidence_shows(streams: Path, rebal: Rebal) -> None:
    verify_restarted = at("back", plan="streams")
    words = ["--confirm", "1", "--reason", "read both logs: upgrade.from=2.3"]
    assert "--confirm 1" in rebal(*verify_restarted, code=4).out
    assert f"confirmed by {getpass.getuser()}, " in rebal(*verify_restarted, *words).out
    assert looks()[-1]["confirmed"]["reason"] == "read both logs: upgrade.from=2.3"
    rebal(*verify_restarted)
    # A later restart is not confirmed; without the journal, no restart is.
    rebal(*at("later", plan="streams"), "--step", "1", code=4)
    rebal(*verify_restarted[:4], code=4)


def test_verify_folds_findings_of_one_rule_into_one_line(stated: Path, rebal: Rebal) -> None:
    hasty = pods(2, 2, list=["range"], declared=["cooperative-sticky"])
    save("hasty.yaml", look(1, hasty))
    printed = rebal(*at("hasty"), code=3).out
    assert printed.split("next:")[0].count("RB101") == 1
    assert "(and 1 more of this rule)" in printed
    printed = rebal(*at("hasty"), "-o", "json", code=3).body
    assert [one["rule"] for one in printed["findings"]] == ["RB101", "RB101"]


APPEND = """
import sys
from pathlib import Path
from rebal.cli.files import append_line, locked
for number in range(60):
    with locked(Path(sys.argv[1]), appending=True) as file:
        append_line(file, sys.argv[2] * 30_000 + str(number))
"""


def test_two_processes_that_append_at_once_keep_every_line_whole(tmp_path: Path) -> None:
    path = tmp_path / "book.jsonl"
    both = [subprocess.Popen([sys.executable, "-c", APPEND, str(path), letter]) for letter in "ab"]
    assert [one.wait(60) for one in both] == [0, 0]
    lines = path.read_text().splitlines()
    assert sorted(lines) == sorted(
        letter * 30_000 + str(number) for letter in "ab" for number in range(60)
    )
