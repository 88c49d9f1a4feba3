"""Snapshots of screens at 40, 80 and 140 columns: tests/data/screens.

`make screens` writes them again; read the difference before you commit it.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from difflib import unified_diff
from pathlib import Path

import pytest
from msgspec.structs import replace

from rebal.cli import app, output, rehearsing
from rebal.cli.output import View
from rebal.cli.overview import overview_of
from rebal.cli.render.difference import SideDocument, diff_view
from rebal.cli.render.doctor import doctor_view
from rebal.cli.render.documents import failures_of
from rebal.cli.render.inspection.screen import inspect_view
from rebal.cli.render.overview import overview_view
from rebal.cli.render.plans.screen import plan_view
from rebal.cli.render.simulation.rehearsal import comparison_view, rehearsal_view
from rebal.cli.render.verification import verify_view
from rebal.cli.report import make_report
from rebal.groups.commands import Command
from rebal.groups.model import Tri
from rebal.inspectors.connection.managed import SERVICES
from rebal.inspectors.connection.origins import Origins
from rebal.inspectors.kafka.doctor import DoctorReport, DoctorRow
from rebal.inspectors.kafka.listing import GroupFailure
from rebal.planner.commands import Given
from rebal.planner.difference import difference
from rebal.planner.paths import make_plan
from rebal.planner.rehearsal.script_file import load_script
from rebal.planner.rehearsal.scripts import READY
from tests import pages
from tests.planner.builder import group_of
from tests.planner.every_path import BOTH, DONE, PLANS, RANGE, java, pods
from tests.planner.looks import Story, look
from tests.planner.looks import pods as apps

KEPT = Path(__file__).parents[1] / "data" / "screens"
DEMO = Path(__file__).parents[2] / "cli" / "data" / "demo"
WIDTHS = (40, 80, 140)
REHEARSAL = "docs/rehearsal.md"
RENEW = os.environ.get("REBAL_SCREENS") == "renew"
NEXT = Command("rebal", "plan-upgrade", "checkout", "-b", "kafka-1:9092", "--probe")


def inspected(members: list[dict[str, object]], **more: object) -> View:
    report = make_report(group_of({"members": members, **more}))
    return inspect_view(output.shown(report), NEXT)


def half(number: int) -> list[dict[str, object]]:
    return [*pods(number - 1, BOTH), java("late", RANGE, version="2.8.2")]


def verified(*looks: tuple[float, list[dict[str, object]]], **more: object) -> View:
    story = Story(make_plan(look(0, apps(1, 1, 1, list=RANGE))))
    *_, last = [story(look(minutes, members, **more)) for minutes, members in looks]
    return verify_view(last)


def rejected() -> View:
    return verified(
        (5, apps(1, 1, list=RANGE)), refusals=[{"client": "app-2", "list": ["sticky"], "at": 4}]
    )


def examined() -> View:
    acl = (
        "kafka-acls.sh --bootstrap-server kafka-1:9092 --add --allow-principal User:me "
        "--operation Read --group checkout"
    )
    rows = (
        DoctorRow(source="members", available=Tri.YES, why="listed", adds="members"),
        DoctorRow(
            source="probe",
            available=Tri.NO,
            why="the user may not Read the group",
            adds="which assignors every member supports",
            grant=acl,
        ),
    )
    report = DoctorReport(
        bootstrap="kafka-1:9092", principal="User:me", group_id="checkout", rows=rows
    )
    settings = Origins(
        config_file="/home/me/.config/rebal/config.yaml",
        exists=True,
        profiles=("prod", "staging"),
        profile="prod",
        options=("--profile",),
        variables=("REBAL_X_SASL_PASSWORD",),
    )
    given = Given(connection=("-b", "kafka-1:9092"), brokers="kafka-1:9092")
    switch = tuple(given.request_log(2))
    return doctor_view(report, settings, SERVICES[0], NEXT, switch=switch)


def groups() -> View:
    """A list of three groups, one of them rejected clients', and one that cannot be read."""
    ready = group_of({"members": pods(3, list=RANGE)})
    done = group_of({"members": pods(2, list=DONE), "elected": DONE[0]})
    failure = GroupFailure(
        group_id="hidden", kind="authorization", message="hidden: no right to describe it."
    )
    snapshots = [
        replace(each, group=replace(each.group, group_id=name))
        for name, each in (("orders-10", ready), ("orders-9", ready), ("payments", done))
    ]
    overview = overview_of(
        snapshots, failures_of([failure]), (), to="cooperative", fail_on="block", exit_zero=False
    )
    return overview_view(overview, Given(connection=("-b", "kafka-1:9092")))


def diff() -> View:
    before = group_of({"members": pods(3, list=RANGE)})
    after = group_of({"members": pods(2, list=BOTH)})
    first, second = (
        SideDocument(
            source=source, name=name, group_id="checkout", captured_at=before.captured_at, members=3
        )
        for source, name in (("plan", "checkout.plan.yaml"), ("live", "checkout"))
    )
    found = difference(before, after)
    return diff_view(first, second, found, (), now=before.captured_at)


def finished() -> View:
    widened = apps(2, 2, 2, list=BOTH)
    narrowed = apps(3, 3, 3, list=DONE)
    return verified((5, widened), (9, narrowed), elected=DONE[0])


def rehearsed(
    members: list[dict[str, object]], script: str = "", *, details: bool = False, **more: object
) -> View:
    """A rehearsal of the plan for these members, or of a script."""
    asked: dict[str, object] = {key: more.pop(key) for key in ("compare", "runs") if key in more}
    group = group_of({"members": members, **more})
    ready = script in READY or script.endswith("-at-a-time")
    source = None if ready or not script else load_script(script, "yaml", "script.yaml")
    if not script:
        asked["plan"] = Path("checkout.plan.yaml")
    document = rehearsing.rehearsed(
        rehearsing.Story(
            found=group,
            asked=rehearsing.Asked(script=script if ready else source and source.name, **asked),
            plan=None if script else make_plan(group),
            source=source,
        )
    )
    if len(document.runs) > 1:
        return comparison_view(document, "as planned", NEXT)
    return rehearsal_view(document, "as planned", NEXT, details=details)


def wrong_order() -> View:
    file = Path(__file__).parents[2] / "examples" / "scripts" / "bounce-2-first.yaml"
    return rehearsed(pods(4), file.read_text())


SCREENS: dict[str, Callable[[], View]] = {
    **{f"plan {path}": lambda make=make: plan_view(make()) for path, make in PLANS.items()},
    **{
        f"plan {path} --details": lambda make=PLANS[path]: plan_view(make(), details=True)
        for path in ("two bounces", "cut-over", "to kip-848")
    },
    "plan of 200 members": lambda: plan_view(
        make_plan(group_of({"members": half(200), "topics": {"orders": 400}}))
    ),
    "inspect healthy": lambda: inspected(pods(4), probe={"range": True}),
    "inspect half-way": lambda: inspected(half(4), probe={"cooperative-sticky": False}),
    "inspect rejected": lambda: inspected(pods(3), refusals=[{"client": "c", "list": DONE}]),
    "inspect 200 members": lambda: inspected(half(200)),
    "inspect unknown lists": lambda: inspected(pods(4, None)),
    "verify not yet": lambda: verified((5, apps(2, 1, 1, list=RANGE))),
    "verify gate holds": lambda: verified((5, apps(2, 2, 2, list=BOTH)), elected=DONE[0]),
    "verify danger": rejected,
    "verify finished": finished,
    "rehearsal of two bounces": lambda: rehearsed(pods(4)),
    "rehearsal of two bounces --details": lambda: rehearsed(pods(2), details=True),
    "rehearsal of 20 runs": lambda: rehearsed(pods(4), runs=20),
    "rehearsal compared": lambda: rehearsed(pods(4), compare=("eager", "cooperative", "plan")),
    "rehearsal of a wrong order": wrong_order,
    "rehearsal of a slow member": lambda: rehearsed(pods(3), "slow-member"),
    "rehearsal of 200 members": lambda: rehearsed(
        pods(200), "20-at-a-time", topics={"orders": 200}
    ),
    "doctor": examined,
    "groups": groups,
    "diff": diff,
}


def compare(name: str, made: str) -> None:
    """Compare a screen with the kept one, or keep it."""
    file = KEPT / f"{name.replace(' ', '_').replace(',', '')}.txt"
    if RENEW:
        file.parent.mkdir(exist_ok=True)
        file.write_text(made)
    kept = file.read_text() if file.exists() else ""
    change = unified_diff(kept.splitlines(), made.splitlines(), "kept", "now", lineterm="")
    assert made == kept, "`make screens` keeps the new screen:\n" + "\n".join(change)


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", SCREENS)
def test_a_screen_is_as_it_was_kept(name: str, width: int) -> None:
    made = output.render(SCREENS[name](), width=width)
    compare(f"{name} {width}", made)
    for line in made.splitlines():
        whole = (
            "partition.assignment",
            "group.",
            "rebal ",
            "kafka-",
            "# ",
            "upgrade.from",
            "kgo.",
            "partitionAssigners",
        )
        assert len(line) <= width or any(word in line for word in whole), line


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("explain RB102", ["explain", "RB102"]),
        ("error no snapshot", ["inspect", "--snapshot", "absent.yaml"]),
        ("error no option", ["plan-upgrade", "--snapshots", "x.yaml"]),
        ("error no goal", ["plan-upgrade", "--snapshot", "shipping.rebal.yaml", "--to", "fastest"]),
        ("error no rule", ["explain", "RB999"]),
    ],
)
def test_a_printed_text_is_as_it_was_kept(
    name: str, words: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(DEMO)
    code = app.run(words)
    said = capsys.readouterr()
    compare(name, f"$ rebal {' '.join(words)}\n{said.out}{said.err}(exit code {code})\n")


def test_the_page_shows_the_rehearsal_that_rebal_prints(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    example, shown = pages.screen_of(REHEARSAL)
    shutil.copy(DEMO / "checkout.rebal.yaml", tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "90")
    kept = example.words[-1]
    assert app.run(["plan-upgrade", "--snapshot", "checkout.rebal.yaml", "--out", kept]) == 0
    capsys.readouterr()
    code = app.run(example.words)
    made = capsys.readouterr().out
    assert code == 0
    if RENEW:
        old, new = (
            "\n".join(f"    {line}".rstrip() for line in each)
            for each in (shown, ["", *made.splitlines()])
        )
        (pages.ROOT / REHEARSAL).write_text(pages.PAGES[REHEARSAL].replace(old, new))
        return
    assert pages.without_times(made) == pages.without_times("\n".join(shown))


def test_every_kept_screen_is_compared() -> None:
    names = {f"{name} {width}" for name in SCREENS for width in WIDTHS}
    files = {name.replace(" ", "_").replace(",", "") + ".txt" for name in names}
    kept = {file.name for file in KEPT.glob("*.txt")}
    assert {name for name in kept if not name.startswith(("error_", "explain_"))} == files
