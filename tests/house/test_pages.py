"""README.md and docs stay true: shell lines, screens, tables and the library example are run.

A live cluster is a stand-in here, which shows the bundled group `checkout` on its way through the
roll-out; tests/live/test_pages_live.py runs the same lines on a broker.
"""

from __future__ import annotations

import io
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any, Final

import pytest
from msgspec.structs import replace

from rebal.cli import app
from rebal.groups.model import GroupSnapshot, Probe, ProbeAnswer, Tri
from rebal.groups.snapshot.documents import dump_snapshot, load_snapshot
from rebal.inspectors.kafka.doctor import DoctorReport, DoctorRow
from rebal.planner.kinds import Action
from rebal.planner.paths import make_plan
from rebal.planner.plan import dump_plan
from rebal.planner.rules.registry import rules
from tests import pages
from tests.fleet.synthetic import fleet, group_named
from tests.fleet.tablefiles import write_tables
from tests.pages import PAGES, ROOT, Example, without_times
from tests.planner.builder import group_of

REBAL: Final = Path(sys.executable).with_name("rebal")
DEMO: Final = ROOT / "cli" / "data" / "demo"
MIXED, LAST = ("cooperative-sticky", "range"), ("cooperative-sticky",)
VALUES: Final = {
    "GROUP…": "checkout", "GROUP": "checkout", "[GROUP]": "checkout", "[RULE]": "RB102",
    "PLAN": "checkout.plan.yaml", "A": "before.yaml", "[B]": "after.yaml", "[NAME]": "plan",
    "SHELL": "bash", "NAME": "range",
}  # fmt: skip
"""What stands for the placeholders of the prose."""
NEEDED: Final = {"fleet scan": ["--out", "x"], "fleet report": ["x"], "fleet metrics": ["x"]}
"""What a command needs beside the options that the prose names."""
README, ROLL_OUT, FLEET = "README.md", "docs/roll-out.md", "docs/fleet.md"
CHECK: Final = "docs/check.md"
OTHER: Final = "docs/other-library.md"
CHECKED: Final = ("Compare", "Ask the live group", "In a pipeline")
STEPS: Final = "Step by step"
"""The section of the roll-out with numbered lines."""


@cache
def command(name: str) -> Any:
    """The real typer command: `fleet scan`."""
    found = app.build()
    for word in name.split():
        found = found.commands[word]
    return found.load()


def command_of(words: Sequence[str]) -> tuple[str, list[str]]:
    """The name of a command, and the words that follow it."""
    count = 2 if words[0] == "fleet" else 1
    return " ".join(words[:count]), list(words[count:])


def options_of(name: str) -> set[str]:
    return {option for param in command(name).params for option in (*param.opts, "--help")}


@dataclass
class Stand:
    """A cluster with the group `checkout` as `group`, and a shell in a folder with its logs."""

    capsys: pytest.CaptureFixture[str]
    group: GroupSnapshot

    def run(self, example: Example, *, stdin: str = "") -> tuple[int, str]:
        """The exit code of a line of the pages, and what it prints."""
        sys.stdin = io.TextIOWrapper(io.BytesIO(stdin.encode()))
        self.capsys.readouterr()
        code = app.run(example.words)
        said = self.capsys.readouterr()
        assert "fault of rebal" not in said.err
        return code, said.out

    def runs(self, *lists: Sequence[str] | None, elected: str) -> None:
        """Members rejoin with these lists, as the request log shows; None: it did not restart."""
        generation = (self.group.group.generation or 0) + 1
        members = [
            member
            if names is None
            else replace(
                member,
                member_id=f"{member.client_id}-generation-{generation}",
                assignors=replace(member.assignors, list=tuple(names)),
            )
            for member, names in zip(self.group.members, lists, strict=True)
        ]
        now = datetime.now(UTC)
        answers = tuple(
            ProbeAnswer(
                assignor=name,
                supported=Tri.YES if all(name in m.assignors.list for m in members) else Tri.NO,
                at=now,
            )
            for name in MIXED
        )
        self.group = replace(
            self.group,
            probe=Probe(answers=answers),
            group=replace(self.group.group, generation=generation, assignor=elected),
            members=tuple(members),
            captured_at=now,
        )


@pytest.fixture
def stand(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Stand:
    made = Stand(capsys, load_snapshot((DEMO / "checkout.rebal.yaml").read_text(), "yaml"))
    monkeypatch.chdir(tmp_path)
    shutil.copytree(ROOT / "tests" / "data" / "client_logs", "logs")

    def read_groups(config: Any, names: Sequence[str], **more: Any) -> list[GroupSnapshot]:
        assert config.bootstrap == pages.BROKER
        assert list(names) == [made.group.group.group_id]
        return [made.group]

    def examine(config: Any, group: str | None) -> DoctorReport:
        row = DoctorRow(source="login", available=Tri.YES, why="logged in", adds="all")
        return DoctorReport(bootstrap=config.bootstrap, principal="me", group_id=group, rows=(row,))

    for module, stub in (("read", read_groups), ("doctor", examine)):
        monkeypatch.setattr(f"rebal.inspectors.kafka.{module}.{stub.__name__}", stub)
    monkeypatch.setattr(sys, "stdin", sys.stdin)
    return made


def typed(line: str) -> Example:
    """A line that no page has."""
    return Example("", "", 0, line)


def section(page: str, name: str, *items: int) -> list[Example]:
    found = [one for one in pages.examples(page) if one.section == name]
    return [one for one in found if not items or one.item in items]


def steps(*items: int) -> list[Example]:
    return section(ROLL_OUT, STEPS, *items)


def test_every_example_has_a_test_that_runs_it() -> None:
    """A new section with examples needs a test below, and a line in the live test.

    tests/cli/test_screens.py compares the screen of the rehearsal; the lines of
    docs/fleet-on-spark.md need a cluster.
    """
    sections = {(one.page, one.section) for one in pages.every_example()}
    assert {one for one in sections if one[0] != "docs/fleet-on-spark.md"} == {
        (README, "A roll-out"),
        (README, "One screen"),
        (ROLL_OUT, STEPS),
        (ROLL_OUT, "Offline"),
        (FLEET, ""),
        ("docs/rehearsal.md", ""),
        *((CHECK, name) for name in CHECKED),
        (OTHER, ""),
    }
    assert {one.item for one in steps()} == {1, 2, 3, 4, 5, 6}
    assert sum("| rebal " in one.line for one in pages.every_example()) == 1


def test_the_six_commands_of_the_readme_are_lines_of_the_roll_out() -> None:
    six = [one.line for one in section(README, "A roll-out")]
    assert len(six) == 6
    assert [one.line for one in steps() if one.line in six] == six


def test_the_roll_out_runs_as_it_is_printed(stand: Stand) -> None:
    texts = {}
    for example in steps(1, 2):
        code, texts[example.words[0]] = stand.run(example)
        assert code == 0, example
    assert Path("checkout.plan.yaml").is_file()
    assert "now:   restart checkout-3 with" in texts["plan-upgrade"]
    assert "questions" in texts["plan-upgrade"]
    assert texts["show"].count("RB114 ") == 1, "--details has the questions"

    (settings,) = steps(3)
    code, text = stand.run(settings)
    assert (code, "CooperativeStickyAssignor," in text) == (0, True)

    (verify,) = steps(4)
    code, text = stand.run(verify)
    assert code == 4
    assert "restart checkout-3 with [cooperative-sticky, range]" in text
    stand.runs(None, None, None, MIXED, elected=LAST[0])
    code, text = stand.run(verify)
    assert (code, "holds for step 1" in text) == (0, True)

    last, watch = steps(5)
    code, text = stand.run(last)
    assert (code, text.count("Assignor")) == (0, 1)
    stand.runs(LAST, LAST, LAST, LAST, elected=LAST[0])
    code, text = stand.run(watch)
    assert code == 0
    ends, says = re.findall(
        r"`--watch` ends with `(.*?)` [^`]*`verify` then says\s+`(.*?)`", PAGES[ROLL_OUT]
    )[0]
    assert f"checkout: {ends}" in text
    code, text = stand.run(verify)
    assert (code, f"next:       {says}\n" in text) == (0, True)

    back, timeline = steps(6)
    code, text = stand.run(back)
    assert code == 0
    assert "now:   restart checkout-0 with [range, cooperative-sticky]" in text
    assert Path("back.plan.yaml").is_file()
    code, text = stand.run(timeline)
    assert (code, "checkout-3" in text) == (0, True)


def test_evidence_is_piped_and_a_snapshot_is_read_offline(stand: Stand) -> None:
    pipe, save, simulate = section(ROLL_OUT, "Offline")
    assert pipe.line.startswith("kubectl logs ")
    stand.group = replace(stand.group, group=replace(stand.group.group, group_id="checkout"))
    code, text = stand.run(pipe, stdin=Path("logs/java-4.1.1-joined.log").read_text())
    assert (code, "checkout-3" in text) == (0, True)
    assert stand.run(save)[0] == 0
    code, text = stand.run(simulate)
    assert code == 0
    assert "checkout-3" in text


@pytest.mark.parametrize("name", CHECKED)
def test_a_change_is_checked_as_the_page_says(stand: Stand, name: str) -> None:
    java = "org.apache.kafka.clients.consumer."
    for folder, names in (("old", "Range"), ("new", "Sticky"), (".", "Sticky")):
        Path(folder).mkdir(exist_ok=True)
        text = f"group.id=checkout\npartition.assignment.strategy={java}{names}Assignor\n"
        Path(folder, "consumer.properties").write_text(text)
    identity = ["-c", "user.name=x", "-c", "user.email=x"]
    for words in (["init", "-q"], ["add", "old"], [*identity, "commit", "-qm", "one"]):
        subprocess.run(["git", *words], check=True)
    subprocess.run(["git", "update-ref", "refs/remotes/origin/main", "HEAD"], check=True)
    for example in section(CHECK, name):
        words = [word for word in example.words if word not in (">", "rebal.sarif")]
        code, text = stand.run(typed(shlex.join(["rebal", *words])))
        assert (code, "checkout" in text) == (3, True), example


def test_the_screen_is_what_rebal_prints() -> None:
    example, shown = pages.screen_of(README)
    done = subprocess.run(
        [REBAL, *example.words], cwd=DEMO, capture_output=True, text=True, check=False,
        env=os.environ | {"COLUMNS": "130"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert without_times("\n".join(shown)) == without_times(done.stdout)


def test_a_screens_last_command_runs(stand: Stand) -> None:
    _, shown = pages.screen_of(README)
    following = typed(shown[-1].removeprefix("next:").strip())
    shutil.copy(DEMO / following.words[-1], following.words[-1])
    assert stand.run(following)[0] == 0


def test_the_advice_is_printed_for_static_members_after_a_reload(stand: Stand) -> None:
    (block,) = pages.blocks("docs/advice.md")
    names = ["range", "cooperative-sticky"]
    members = [{"id": name, "list": names, "instance": name} for name in "abc"]
    probe = {"cooperative-sticky": False, "range": True}
    stand.group = group_of({"members": members, "reloaded": True, "probe": probe})
    Path("checkout.rebal.yaml").write_text(dump_snapshot(stand.group))
    _, text = stand.run(typed("rebal plan-upgrade --snapshot checkout.rebal.yaml"))
    assert [line for line in block.lines if line not in text.splitlines()] == []


def test_another_library_is_planned_as_the_page_says(stand: Stand) -> None:
    plan, verify = section(OTHER, "")
    code, text = stand.run(plan)
    assert code == 0
    assert "with [range] and franz-go in place of the old library" in text
    code, text = stand.run(verify)
    assert (code, "restart checkout-" in text) == (4, True)


def test_the_cluster_is_read_from_the_tables_of_a_scan(stand: Stand) -> None:
    _, report, plan, metrics = section(FLEET, "")
    old = group_named("eager")
    tables = {
        name: [
            {**row, "group_id": "checkout"} if row.get("group_id") == old else row for row in rows
        ]
        for name, rows in fleet(20).items()
    }
    write_tables(Path("fleet"), tables)
    code, _ = stand.run(report)
    assert code == 3, "some group of this fleet is blocked"
    assert "checkout" in Path("fleet.html").read_text()
    code, text = stand.run(plan)
    assert code == 0
    assert text.startswith("checkout: ")
    assert stand.run(metrics)[0] == 0
    assert (
        'rebal_group_readiness{cluster="unnamed",goal="cooperative",group="checkout",'
        in Path("rebal.prom").read_text()
    )


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder with the plan that the lines name, which `verify` and `diff` read first."""
    monkeypatch.chdir(tmp_path)
    snapshot = load_snapshot((DEMO / "checkout.rebal.yaml").read_text(), "yaml")
    for name in ("checkout.plan.yaml", "before.yaml"):
        Path(name).write_text(dump_plan(make_plan(snapshot)))


@pytest.mark.parametrize("example", dict.fromkeys(pages.every_example()), ids=str)
def test_every_command_line_is_parsed_by_the_real_command(example: Example, kept: None) -> None:
    """Wrong options, values and missing arguments fail here, those for a broker too."""
    name, words = command_of(example.words)
    command(name).make_context(name, words)


@pytest.mark.parametrize("span", pages.spans())
def test_every_command_of_the_text_is_parsed_by_the_real_command(span: str, kept: None) -> None:
    (text,) = re.findall(r"rebal ([^|)]+)", span) or ["--help"]
    if text.startswith("-"):
        app.build().make_context("rebal", [text], resilient_parsing=True)
        return
    name, words = command_of(text.split())
    bare = not words or words[0].startswith("-")
    needed = NEEDED.get(name, []) if bare else []
    command(name).make_context(name, [*(VALUES.get(word, word) for word in words), *needed])


@pytest.mark.parametrize(("name", "says"), list(pages.rows()))
def test_options_in_the_table_are_those_of_their_command(name: str, says: str) -> None:
    named = set(
        re.findall(r"(?<![\w-])(--?[a-z][a-z-]*|-X)", " ".join(re.findall(r"`(.*?)`", says)))
    )
    assert named - options_of(name) == set()


def test_options_in_the_text_exist() -> None:
    commands = [name for name, _ in pages.rows()]
    known = set().union(*map(options_of, commands))
    code = [one for page in PAGES for one in pages.code(page)]
    ours = [one for one in code if one.startswith(("-", "rebal ", *commands))]
    named = set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", " ".join(ours)))
    assert len(named) > 50
    assert named - known == set()


def test_the_rules_in_the_text_exist() -> None:
    named = {rule for text in PAGES.values() for rule in re.findall(r"\bRB\d+\b", text)}
    assert named - rules().keys() == set()


def test_every_entry_of_troubleshooting_names_a_command_and_a_rule() -> None:
    _, *entries = PAGES["docs/troubleshooting.md"].split("\n## ")
    assert len(entries) > 10
    for entry in entries:
        title = entry.partition("\n")[0]
        assert re.search(r"^- Run: .*`rebal ", entry, re.MULTILINE), title
        assert "`rebal explain RB" in entry, title


def anchors(page: str) -> set[str]:
    """The anchors that GitHub gives to a page's headings."""
    headings = re.findall(r"^#+ (.*)$", PAGES[page], re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES)
def test_every_link_leads_to_a_file_and_a_heading(page: str) -> None:
    for link in re.findall(r"\]\((?!https?:)([^)]+)\)", PAGES[page]):
        path, _, anchor = link.partition("#")
        found = (ROOT / page).parent.joinpath(path).resolve() if path else ROOT / page
        assert found.exists(), link
        assert not anchor or anchor in anchors(str(found.relative_to(ROOT))), link


def test_every_page_is_in_the_index() -> None:
    def is_listed(page: Path) -> bool:
        index = page.parent.parent if page.name == "README.md" else page.parent
        link = page.relative_to(index).as_posix()
        return f"({link})" in PAGES[f"{index}/README.md"]

    below = (Path(page) for page in PAGES if page.startswith("docs/"))
    assert [page for page in below if page != Path("docs/README.md") and not is_listed(page)] == []


def test_the_readme_is_short() -> None:
    assert len(PAGES[README].split()) <= 1200


def test_the_formats_of_a_configuration_are_those_of_show(stand: Stand) -> None:
    assert stand.run(steps(2)[0])[0] == 0
    (says,) = re.findall(r"`--as` a format:([^.]*)\.", PAGES[ROLL_OUT])
    named = re.findall(r"`([a-z-]+)`", says)
    assert len(named) == 6
    for form in named:
        code, text = stand.run(typed(f"rebal show checkout.plan.yaml --set --as {form}"))
        assert (code, "CooperativeStickyAssignor" in text) == (0, True), form


def test_the_fields_of_advice_are_those_of_the_documents(stand: Stand) -> None:
    assert stand.run(steps(2)[0])[0] == 0
    verify = steps(4)[0]
    asked = verify._replace(line=f"{verify.line} -o json")
    made = json.loads(stand.run(asked)[1])
    row = re.compile(r"^\| (`(?:advice\.|withheld).*?) \| (.*) \|$", re.MULTILINE)
    cells = row.findall(PAGES["docs/advice.md"])
    fields = [name for cell, _ in cells for name in re.findall(r"`(?:advice\.)?([a-z_]+)`", cell)]
    assert len(fields) > 10
    assert set(fields) <= {*made["advice"], "withheld"}
    assert "withheld" in made
    actions = set(re.findall(r"`([a-z-]+)`", dict(cells)["`advice.action`"]))
    assert actions == set(Action)


def test_the_library_example_runs() -> None:
    (block,) = pages.blocks("docs/library.md")
    exec(compile("\n".join(block.lines), block.page, "exec"), {})


@pytest.mark.parametrize(
    "line", ["source <(rebal completion bash)", "rebal demo", "rebal schema", "rebal schema plan"]
)
def test_commands_of_the_text_that_need_nothing_run(line: str, tmp_path: Path) -> None:
    assert any(line.startswith(span) for span in pages.spans())
    path = f"{REBAL.parent}:{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-c", line], cwd=tmp_path, env=os.environ | {"PATH": path}, capture_output=True,
        text=True, check=False, timeout=60,
    )  # fmt: skip
    said = done.stderr.partition("rebal: no broker is named: reading checkout.rebal.yaml")[0]
    assert (done.returncode, said) == (0, "")
