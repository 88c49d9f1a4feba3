"""Snapshots of screens at 40, 80 and 140 columns: tests/data/screens.

`make screens` writes them again; read the difference before you commit it.
"""

import os
import shutil
from collections.abc import Callable
from difflib import unified_diff
from itertools import accumulate, pairwise
from pathlib import Path

import pytest
from msgspec.structs import replace

from rebal.cli import app, output, rehearsing
from rebal.cli.difference import SideDocument, diff_view
from rebal.cli.output import View
from rebal.cli.overview import overview_of
from rebal.cli.render.doctor import doctor_view
from rebal.cli.render.documents import failures_of
from rebal.cli.render.inspection.screen import inspect_view
from rebal.cli.render.overview import overview_view
from rebal.cli.render.plans.screen import plan_view
from rebal.cli.render.simulation.rehearsal import comparison_view, rehearsal_view
from rebal.cli.render.simulation.screen import compare_view, simulate_view, workers_view
from rebal.cli.render.verification import verify_view
from rebal.cli.report import make_report
from rebal.groups.commands import Command
from rebal.groups.model import (
    Contradiction,
    Evidence,
    GroupSnapshot,
    Source,
    Topic,
    Unmatched,
)
from rebal.inspectors.connection.config import Origins
from rebal.inspectors.connection.managed import SERVICES
from rebal.inspectors.kafka.doctor import DoctorReport
from rebal.inspectors.kafka.listing import GroupFailure
from rebal.planner.commands import Given
from rebal.planner.difference import difference
from rebal.planner.paths import make_plan
from rebal.planner.rehearsal.script_file import load_script
from rebal.planner.rehearsal.scripts import READY
from rebal.planner.rehearsal.whatif.changes import Changes
from rebal.planner.rehearsal.whatif.simulation import simulate, simulate_workers
from tests import pages
from tests.cli.test_groups import ROWS
from tests.planner import owners
from tests.planner.builder import group_of
from tests.planner.every_path import BOTH, DONE, PLANS, RANGE, java, pods
from tests.planner.looks import Story, look
from tests.planner.looks import pods as apps
from tests.planner.worker_groups import workers

KEPT = Path(__file__).parents[1] / "data" / "screens"
DEMO = Path(__file__).parents[2] / "cli" / "data" / "demo"
WIDTHS = (40, 80, 140)
REHEARSAL = "docs/rehearsal.md"
RENEW = os.environ.get("REBAL_SCREENS") == "renew"
NEXT = Command("rebal", "plan-upgrade", "checkout", "-b", "kafka-1:9092", "--probe")


def of(members: list[dict[str, object]], **more: object) -> GroupSnapshot:
    return group_of({"members": members, **more})


def inspected(snapshot: GroupSnapshot) -> View:
    return inspect_view(output.shown(make_report(snapshot)), NEXT)


def conflicting() -> View:
    """A group whose evidence contradicts itself, fits nobody, or could not be read."""
    file = Evidence(source=Source.CONFIG_FILE, detail="a.properties")
    changed = Contradiction(what="changed, not restarted", evidence=(file,))
    loose = [Unmatched(what=f"file {n}", why="two members", evidence=file) for n in range(5)]
    group = of(pods(3, declared=DONE), protocol_type="connect", expected=4)
    return inspected(
        replace(
            group,
            notes=("lag: no READ on topic orders.",),
            contradictions=(changed,),
            unmatched=tuple(loose),
        )
    )


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
    report = DoctorReport(
        bootstrap="kafka-1:9092", principal="User:alice", group_id="checkout", rows=ROWS
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
    ready, done = of(pods(3, list=RANGE)), of(pods(2, list=DONE), elected=DONE[0])
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
    before, after = of(pods(3, list=RANGE)), of(pods(2, list=BOTH))
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
    group: GroupSnapshot, script: str = "", *, details: bool = False, **asked: object
) -> View:
    """A rehearsal of the plan for this group, or of a script."""
    ready = script in READY or script.endswith("-at-a-time")
    source = None if ready or not script else load_script(script, "yaml", "script.yaml")
    if not script:
        asked["plan"] = Path("checkout.plan.yaml")
    words = rehearsing.Asked(script=script if ready else source and source.name, **asked)
    plan = None if script else make_plan(group)
    document = rehearsing.rehearsed(group, words, plan, source, keep=False)
    if len(document.runs) > 1:
        return comparison_view(document, "as planned", NEXT)
    return rehearsal_view(document, "as planned", NEXT, details=details)


def wrong_order() -> View:
    file = Path(__file__).parents[2] / "examples" / "scripts" / "bounce-2-first.yaml"
    return rehearsed(of(pods(4)), file.read_text())


UNEVEN = owners.group(owners.member("a", orders="0-5"), owners.member("b", orders="6-7"))


def simulated(*assignors: str, **changes: object) -> View:
    """What one assignor does with an uneven group, or what several do side by side."""
    made = [simulate(UNEVEN, name, Changes(**changes)) for name in assignors]
    if len(made) > 1:
        return compare_view(made, "as planned", NEXT)
    return simulate_view(made[0], "as planned", NEXT)


def simulated_crowd() -> View:
    """80 members, of whom half own the same number, and each other one more than the one before."""
    bounds = list(accumulate([40] * 40 + list(range(1, 41)), initial=0))
    crowd = [
        owners.member(f"m{n}", orders=f"{first}-{end - 1}")
        for n, (first, end) in enumerate(pairwise(bounds))
    ]
    group = owners.group(*crowd, topics=(Topic(name="orders", partitions=bounds[-1]),))
    return simulate_view(simulate(group, "sticky"), "as planned", NEXT)


def simulated_failure() -> View:
    """A topic that was made anew with fewer partitions than its members still claim."""
    claimed = owners.group(owners.member("a", orders="0,7"))
    claimed = replace(claimed, topics=(Topic(name="orders", partitions=2),))
    return simulate_view(simulate(claimed, "cooperative-sticky"), "as planned", NEXT)


def simulated_workers() -> View:
    made = simulate_workers(workers("sessioned"), ["eager", "sessioned"], ["w1"])
    return workers_view(made, "as planned", NEXT)


SCREENS: dict[str, Callable[[], View]] = {
    **{f"plan {path}": lambda make=make: plan_view(make()) for path, make in PLANS.items()},
    **{
        f"plan {path} --details": lambda make=PLANS[path]: plan_view(make(), details=True)
        for path in ("two bounces", "cut-over", "to kip-848")
    },
    "plan of 200 members": lambda: plan_view(make_plan(of(half(200), topics={"orders": 400}))),
    "inspect healthy": lambda: inspected(of(pods(4), probe={"range": True})),
    "inspect half-way": lambda: inspected(of(half(4), probe={"cooperative-sticky": False})),
    "inspect rejected": lambda: inspected(of(pods(3), refusals=[{"client": "c", "list": DONE}])),
    "inspect 200 members": lambda: inspected(of(half(200))),
    "inspect kip-848": lambda: inspected(
        of(pods(2, None, protocol_type="consumer"), type="consumer", elected="uniform")
    ),
    "inspect empty": lambda: inspected(of([], state="Empty", elected=None)),
    "inspect conflicting evidence": conflicting,
    "inspect unknown lists": lambda: inspected(of(pods(4, None))),
    "verify not yet": lambda: verified((5, apps(2, 1, 1, list=RANGE))),
    "verify gate holds": lambda: verified((5, apps(2, 2, 2, list=BOTH)), elected=DONE[0]),
    "verify danger": rejected,
    "verify finished": finished,
    "rehearsal of two bounces": lambda: rehearsed(of(pods(4))),
    "rehearsal of two bounces --details": lambda: rehearsed(of(pods(2)), details=True),
    "rehearsal of 20 runs": lambda: rehearsed(of(pods(4)), runs=20),
    "rehearsal compared": lambda: rehearsed(of(pods(4)), compare=("eager", "cooperative", "plan")),
    "rehearsal of a wrong order": wrong_order,
    "rehearsal of a slow member": lambda: rehearsed(of(pods(3)), "slow-member"),
    "rehearsal of 200 members": lambda: rehearsed(
        of(pods(200), topics={"orders": 200}), "20-at-a-time"
    ),
    "rehearsal of workers": lambda: rehearsed(workers("default")),
    "rehearsal of streams": lambda: rehearsed(
        of(pods(3, ["stream"], family="streams", version="2.3.1"), elected="stream")
    ),
    "simulation": lambda: simulated(
        "cooperative-sticky", restart_members=("b",), add_members=1, add_partitions={"orders": 3}
    ),
    "simulation compared": lambda: simulated(
        "range", "cooperative-sticky", "consumer:range", add_members=1
    ),
    "simulation of 80 members": simulated_crowd,
    "simulation that fails": simulated_failure,
    "simulation of workers": simulated_workers,
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
def test_each_screen_equals_its_kept_text_at_each_width(name: str, width: int) -> None:
    made = output.render(SCREENS[name](), width=width)
    compare(f"{name} {width}", made)
    for line in made.splitlines():
        not_wrapped = (
            "partition.assignment",
            "group.",
            "rebal ",
            "kafka-",
            "# ",
            "upgrade.from",
            "kgo.",
            "partitionAssigners",
        )
        assert len(line) <= width or any(word in line for word in not_wrapped), line


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
def test_explanations_and_error_messages_equal_their_kept_texts(
    name: str, words: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(DEMO)
    code = app.run(words)
    said = capsys.readouterr()
    compare(name, f"$ rebal {' '.join(words)}\n{said.out}{said.err}(exit code {code})\n")


def test_docs_rehearsal_shows_the_screen_that_rebal_prints(
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
