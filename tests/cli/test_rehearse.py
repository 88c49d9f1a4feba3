"""`rebal rehearse`: what the screen says goes wrong, the documents, and the HTML page."""

import json
import re
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml
from msgspec.structs import replace

from rebal.cli import output
from rebal.cli.app import run
from rebal.cli.commands.completion_cmd import candidates
from rebal.cli.render.simulation.documents import RehearsalDocument, RunDocument, code_of
from rebal.cli.render.simulation.lanes import rehearsal_html
from rebal.cli.render.simulation.rehearsal import comparison_view, rehearsal_view
from rebal.groups.commands import Command
from rebal.groups.model import GroupSnapshot
from rebal.groups.snapshot.documents import dump_snapshot
from rebal.planner.paths import make_plan
from rebal.planner.plan import dump_plan
from rebal.planner.rehearsal import rehearse as engine
from rebal.planner.rehearsal.outcome import Ownership, Rehearsal
from rebal.planner.rehearsal.rehearse import rehearse_often
from rebal.planner.rehearsal.scene import PARAMETERS, VARIANTS
from rebal.planner.rehearsal.script_file import EVENTS
from rebal.planner.rehearsal.scripts import READY, Deed, Script, ScriptEvent
from tests.cli.conftest import Rebal, Said, flat
from tests.documents import checked, validator
from tests.pages import PAGES, ROOT
from tests.planner.builder import group_of
from tests.planner.every_path import java, pods
from tests.planner.rehearsal.scenes import BOTH, DONE, RANGE, play, restart, scene, with_processes
from tests.planner.worker_groups import workers

OLD_DEFAULT = ["range", "cooperative-sticky"]
EXAMPLES = ROOT / "examples" / "scripts"
DOCS = PAGES["docs/rehearsal.md"]
Rehearse = Callable[..., tuple[int, str]]
Captured = pytest.CaptureFixture[str]


@pytest.fixture
def rehearse(here: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> Rehearse:
    """Rehearse on a group of these members; return the exit code and the screen at 80 columns."""
    monkeypatch.setenv("COLUMNS", "80")

    def run_on(
        members: list[dict[str, Any]],
        *words: str,
        script: str = "",
        plan: bool = False,
        **more: Any,
    ) -> tuple[int, str]:
        group = group_of({"members": members, **more})
        Path("g.rebal.yaml").write_text(dump_snapshot(group))
        if script:
            Path("s.yaml").write_text(f"schema: rebal.script/1\nevents:\n{script}")
        if plan:
            Path("p.yaml").write_text(dump_plan(make_plan(group)))
        given = [
            *(["--script", "s.yaml"] if script else []),
            *(["p.yaml"] if plan else ["--snapshot", "g.rebal.yaml"]),
        ]
        capsys.readouterr()
        code = run(["rehearse", *given, *words])
        return code, capsys.readouterr().out

    return run_on


def static(names: list[str]) -> list[dict[str, Any]]:
    """Three static members with this list."""
    return [java(f"shipping-{n}", names, instance=f"shipping-{n}") for n in range(3)]


LIBRDKAFKA = pods(2, family="librdkafka", version="2.3.0")


def example(name: str) -> str:
    """The events of an example script, as a user would copy them."""
    return (EXAMPLES / f"{name}.yaml").read_text().partition("events:\n")[2]


THROWS = "  - {restart: all, batch: 1, fails-in: revoked}\n"


@pytest.mark.parametrize(
    ("script", "members", "elected", "said"),
    [
        (example("forgotten-member"), pods(4), "range", "shipping-3 owns all partitions at the en"),
        (
            example("direct-downgrade"),
            pods(3, [*DONE]),
            DONE[0],
            "shipping-0 and shipping-1 are reje",
        ),
        (example("librdkafka-mixed"), LIBRDKAFKA, "range", "not started shipping-0 and shipping-1"),
        (example("surge-after-reload"), pods(3, OLD_DEFAULT), "range", "surge is rejected"),
        (example("reload-between-bounces"), static(OLD_DEFAULT), "range", "shipping-0 is rejected"),
        (THROWS, pods(4), "range", "end, the first at 0:36: onPartitionsRevoked throws"),
    ],
    ids=["forgotten", "no mixed list", "librdkafka", "surge", "a reload", "a listener that throws"],
)
def test_a_rehearsed_rejection_or_other_failure_is_named_and_exits_with_3(
    rehearse: Rehearse, script: str, members: list[dict[str, Any]], elected: str, said: str
) -> None:
    code, text = rehearse(members, script=script, elected=elected)
    assert (code, said in flat(text)) == (3, True)


def test_a_rehearsed_group_that_does_not_come_to_rest_exits_4(rehearse: Rehearse) -> None:
    script = "  - {kill: shipping-0, at: 0}\nrests: 1s\n"
    assert rehearse(pods(2), script=script)[0] == 4


@pytest.mark.parametrize(
    ("features", "expected"),
    [
        ({"group.version": 0}, (3, True, False)),
        ({"group.version": 1}, (0, False, False)),
        ({}, (0, False, True)),
    ],
)
def test_a_move_to_kip848_is_rejected_by_brokers_that_do_not_support_it(
    rehearse: Rehearse, features: dict[str, int], expected: tuple[int, bool, bool]
) -> None:
    move = "  - {restart: all, batch: 1, protocol: consumer}\n"
    cluster = {"version": "4.1", "features": features}
    code, text = rehearse(pods(2, version="4.1.1"), script=move, cluster=cluster)
    rejected = "are rejected (UNSUPPORTED_VERSION), the first at 0:30, and stop" in flat(text)
    assumed = "assumed it is not verified that the brokers have the feature" in flat(text)
    assert (code, rejected, assumed) == expected


def test_a_compared_row_without_an_owner_at_the_end_shows_no_length(rehearse: Rehearse) -> None:
    words = ("--compare", "eager,now")
    _, text = rehearse(pods(2), *words, script="  - {stop: all, at: 10}\n")
    assert len(re.findall(r"no end +no end", text)) == 2


def test_the_steps_of_a_script_upgrade_old_clients_as_the_plan_does(rehearse: Rehearse) -> None:
    steps = "  - step: 1\n  - step: 2\n"
    code, text = rehearse(pods(2, version="2.3.1"), script=steps, plan=True)
    assert (code, "upgraded in the restart that brings the list" in flat(text)) == (0, True)


def test_a_rehearsed_cut_over_has_one_rebalance_in_table_and_total(rehearse: Rehearse) -> None:
    _, text = rehearse(LIBRDKAFKA, plan=True)
    assert ("36 s, 1 rebalance, " in text, text.count("  a member ")) == (True, 1)


def test_a_rehearsal_shows_that_it_assumes_unknown_assignor_lists(rehearse: Rehearse) -> None:
    _, text = rehearse(pods(3, None), plan=True)
    assert "no partition is owned twice, if what is assumed below holds." in flat(text)
    assert "assumed the assignor list of shipping-0, shipping-1, shipping-2 is not" in flat(text)


def twofold() -> Rehearsal:
    """A rehearsal in which orders-0 has two owners for 30 s, neither past a timeout."""
    where = scene(("range",), ("range",))
    run_ = play(where, ScriptEvent(do=Deed.WAIT, seconds=60.0))
    first, *others = run_.partitions
    both = (*first.owners, Ownership(owner="m1", start=10.0, end=40.0))
    return replace(
        run_,
        measures=replace(run_.measures, twice=30.0),
        partitions=(replace(first, owners=both), *others),
    )


def document(*runs: RunDocument) -> RehearsalDocument:
    at = datetime(2026, 11, 20, tzinfo=UTC)
    return RehearsalDocument(
        group_id="g", captured_at=at, members=2, partitions=12, script="x.yaml", runs=runs
    )


def test_a_partition_owned_twice_is_first_on_the_screen_and_exits_3() -> None:
    one = RunDocument(name="now", rehearsal=twofold())
    text = output.render(rehearsal_view(document(one), "live", Command("rebal")), width=80)
    assert text.splitlines()[1].startswith("owned twice  orders-0 by m0 and m1: 30 partition-seco")
    assert "in which records are processed twice" in flat(text)
    lanes = re.findall(r"^m[01] +(\S+)$", text, re.MULTILINE)
    assert [each[20] for each in lanes] == ["2", "2"]
    assert code_of([one], exit_zero=False) == 3
    assert code_of([one], exit_zero=True) == 0


def test_a_danger_in_one_of_many_rehearsal_runs_exits_3() -> None:
    where = scene(("range",), ("range",))
    script = Script(events=(ScriptEvent(do=Deed.WAIT, seconds=1.0),))
    often = rehearse_often(where, script, runs=4)
    one = RunDocument(
        name="now", rehearsal=play(where, *script.events), distribution=replace(often, endangered=1)
    )
    assert code_of([one], exit_zero=False) == 3
    text = output.render(rehearsal_view(document(one), "live", Command("rebal")), width=80)
    assert "in 1 of 4 runs a member is rejected, or a partition is owned twice" in flat(text)
    restless = replace(one, distribution=replace(often, restless=2))
    assert code_of([restless], exit_zero=False) == 4
    text = output.render(rehearsal_view(document(restless), "live", Command("rebal")), width=80)
    assert "the group does not come to rest in 2 of 4 runs" in flat(text)


def test_a_comparison_names_the_variant_with_a_danger() -> None:
    fine = RunDocument(name="now", rehearsal=play(scene(("range",)), ScriptEvent(do=Deed.WAIT)))
    both = document(fine, RunDocument(name="plan", rehearsal=twofold()))
    text = output.render(comparison_view(both, "live", Command("rebal")), width=100)
    assert "owned twice  plan: orders-0 by m0 and m1" in text
    assert "No member is rejected" not in text
    assert code_of(both.runs, exit_zero=False) == 3


def test_rehearsals_with_one_seed_are_the_same(rehearse: Rehearse) -> None:
    one, same, other = (
        rehearse(pods(3), "--runs", "5", "--seed", seed, "--script", "rolling") for seed in "778"
    )
    assert one == same
    assert (other[0], other != one) == (0, True)


def test_a_rehearsal_with_too_many_owner_changes_has_no_line_for_each_member(
    rehearse: Rehearse, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rebal.cli.rehearsing._MOST_KEPT", 10)
    code, text = rehearse(pods(3), "--script", "rolling")
    assert code == 0
    assert "change their owners too often here for a line for each member" in flat(text)
    assert re.search(r"^takes +1 min 3\d s, 6 rebalances", text, re.MULTILINE)


def test_a_rehearsal_parameter_changes_the_duration_and_is_marked(rehearse: Rehearse) -> None:
    _, text = rehearse(pods(3), "--script", "all-at-once", "--param", "restart=90s")
    assert re.search(r"^takes +1 min 3\d s", text, re.MULTILINE)
    assert "restart 1 min 30 s (set)" in flat(text)
    same = rehearse(pods(3), "--script", "all-at-once", "--restart-seconds", "90")[1]
    assert same.splitlines()[2:5] == text.splitlines()[2:5]


@pytest.mark.parametrize("words", [(), ("--runs", "3"), ("--compare", "eager,plan")])
def test_rehearsal_documents_fit_their_schema(rehearse: Rehearse, words: tuple[str, ...]) -> None:
    code, text = rehearse(pods(3), "-o", "json", *words, plan=True)
    body = checked(text)
    assert body["schema"] == "rebal.rehearsal/1"
    assert (body["exit_code"], code) == (0, 0)
    assert [one["name"] for one in body["runs"]] == (
        ["eager", "plan"] if "--compare" in words else ["plan"]
    )
    first = body["runs"][0]["rehearsal"]
    assert len(first["partitions"]) == 12
    assert (body["runs"][0]["distribution"] is None) == ("--runs" not in words)


def test_the_example_scripts_fit_the_schema() -> None:
    files = sorted(EXAMPLES.glob("*.yaml"))
    assert len(files) >= 6
    for file in files:
        body = yaml.safe_load(file.read_text())
        assert list(validator("script").iter_errors(body)) == [], file
        assert body["about"], file
    assert not validator("script").is_valid({"schema": "rebal.script/1", "events": [{"at": []}]})


def test_a_plan_is_rehearsed_with_the_members_of_another_snapshot(
    rehearse: Rehearse, capsys: Captured
) -> None:
    rehearse(pods(4), plan=True)
    Path("now.rebal.yaml").write_text(dump_snapshot(group_of({"members": pods(3)})))
    code = run(["rehearse", "p.yaml", "--snapshot", "now.rebal.yaml"])
    text = capsys.readouterr().out
    assert code == 0
    assert "3 members" in flat(text)
    assert "shipping-3" not in text


def test_completion_offers_rehearsal_scripts_parameters_and_variants(here: Path) -> None:
    Path("mine.yaml").write_text("schema: rebal.script/1\nevents: []\n")
    Path("other.yaml").write_text("schema: rebal.plan/1\n")

    def words(line: str) -> list[str]:
        return [one.value for one in candidates(line)]

    assert words("rebal rehearse --script ") == [*READY, "mine.yaml"]
    assert words("rebal rehearse --script b") == ["by-host", "blue-green", "broker-restart"]
    assert words("rebal rehearse ") == ["other.yaml"]
    assert words("rebal rehearse --compare eager,c") == ["eager,cooperative", "eager,consumer"]
    assert "heartbeat=" in words("rebal rehearse --param ")


def table(header: str) -> dict[str, str]:
    """The rows of a table in docs/rehearsal.md: the code of the first cell, and the second cell."""
    part = DOCS.partition(f"| {header} |")[2].partition("\n\n")[0]
    return dict(re.findall(r"^\| `([^`]*)`[^|]* \| ([^|]*) \|", part, re.MULTILINE))


def test_docs_rehearsal_lists_every_script_parameter_variant_and_event() -> None:
    listed = table("name | what happens")
    assert listed.pop("2-at-a-time")
    assert listed == {name: ready.about for name, ready in READY.items()}
    assert list(table("name | what it is | default")) == list(PARAMETERS)
    assert f"`--compare {','.join(VARIANTS)}`" in DOCS
    part = DOCS.partition("| event | what happens | with it |")[2].partition("\n\n")[0]
    rows = re.findall(r"^\| `([a-z-]+): [^|]* \| [^|]* \|(.*)\|$", part, re.MULTILINE)
    events = {
        name: set(re.findall(r"`([a-z-]+)`", re.sub(r"\(.*?\)", "", keys))) for name, keys in rows
    }
    assert events == {name: set(keys) for name, keys in EVENTS.items()}


def test_the_script_in_docs_rehearsal_runs_and_is_an_example(rehearse: Rehearse) -> None:
    (text,) = re.findall(r"```yaml\n(.*?)```", DOCS, re.DOTALL)
    assert text == (EXAMPLES / "a-bad-day.yaml").read_text()
    assert rehearse(pods(4), script=example("a-bad-day"))[0] == 0


def test_rehearse_html_writes_a_page_and_prints_the_screen(rehearse: Rehearse) -> None:
    code, text = rehearse(pods(2), "--script", "rolling", "--html", "r.html")
    assert (code, "takes  " in text) == (0, True)
    page = Path("r.html").read_text()
    assert "shipping-1" in page
    assert rehearse(pods(2), "--script", "rolling", "-o", "html")[1] == page


def test_tasks_of_a_lost_connect_worker_wait_for_the_delay_in_its_file(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    Path("w.yaml").write_text(dump_snapshot(workers("sessioned")))
    Path("files").mkdir()
    for name in ("w0", "w1", "w2"):
        Path(f"files/{name}.properties").write_text(
            f"group.id=workers\nclient.id={name}\nconnect.protocol=sessioned\n"
            "config.storage.topic=c\nscheduled.rebalance.max.delay.ms=60000\n"
        )
    Path("stop.yaml").write_text(
        "schema: rebal.script/1\nevents:\n  - {stop: w1, at: 5s}\n  - stop: [w0, w2]\n"
    )
    words = ["--snapshot", "w.yaml", "--inventory", "files"]
    assert run(["rehearse", *words, "--script", "stop.yaml", "--details"]) == 0
    text = capsys.readouterr().out
    assert "held back 60 s" in flat(text)
    # The group is at rest, and the others stop, when the delay is over.
    assert re.search(r"1:0[5-9] the leader joined again", flat(text))
    assert "no owner 15 tasks have no owner at the end, such as c0" in flat(text)
    assert text.endswith(" --inventory files\n")
    assert run(["simulate", *words, "--assignor", "sessioned", "--restart-member", "w1"]) == 0
    text = capsys.readouterr().out
    assert "scheduled.rebalance.max.delay.ms is over (60 s)" in flat(text)
    assert text.endswith(" --inventory files\n")


RehearseLarge = Callable[..., Said]


def group_with(versions: list[str]) -> GroupSnapshot:
    """A member of each of these versions."""
    members = [
        {"id": f"m{n:02d}", "list": ["range"], "version": version}
        for n, version in enumerate(versions)
    ]
    return group_of({"members": members, "topics": {"orders": 60}})


@pytest.fixture
def rehearse_large(here: Path, monkeypatch: pytest.MonkeyPatch, rebal: Rebal) -> RehearseLarge:
    """RehearseLarge a plan of 30 members as if that took long."""
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setattr("rebal.planner.rehearsal.rehearse._TOO_LONG", 0.0)
    group = group_with(["4.1.1"] * 30)
    plan = make_plan(group, pricing=None)
    Path("g.rebal.yaml").write_text(dump_snapshot(group))
    Path("p.yaml").write_text(dump_plan(plan))

    def rehearse_with(*words: str, plan: bool = True) -> Said:
        given = ["p.yaml"] if plan else ["--snapshot", "g.rebal.yaml"]
        return rebal("rehearse", *given, *words)

    return rehearse_with


def test_a_sampled_rehearsal_states_the_danger_that_it_cannot_exclude(
    rehearse_large: RehearseLarge,
) -> None:
    said = flat(rehearse_large().out)
    assert "In one restart of each kind, no member is rejected, and no partition is" in said
    assert "A danger that comes by chance in one of the others" in said
    assert "No member is rejected" not in said
    assert re.search(r"step 2 1\d:\d\d 1\d min", said)


def test_a_sampled_rehearsals_document_counts_all_and_rehearsed_restarts(
    rehearse_large: RehearseLarge, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = rehearse_large("-o", "json").body["runs"][0]["rehearsal"]
    found = one["sampled"]
    assert found["restarts"] == 60
    assert found["rehearsed"] < 30
    assert one["partitions"] == one["members"] == one["rebalances"] == []
    monkeypatch.setattr("rebal.planner.rehearsal.rehearse._TOO_LONG", 120.0)
    whole = rehearse_large("-o", "json").body["runs"][0]["rehearsal"]
    assert whole["sampled"] is None
    assert one["measures"]["unowned"] == pytest.approx(whole["measures"]["unowned"], rel=0.1)


def test_pages_runs_and_comparisons_show_the_sampling(rehearse_large: RehearseLarge) -> None:
    page = rehearse_large("-o", "html").out
    assert re.search(r"<dt>about</dt><dd>one restart of each kind .* \(\d+ of 60\)", page)
    assert "<script" not in page
    assert "of 60) and counts" in flat(rehearse_large("--runs", "3").out)
    compared = flat(rehearse_large("--compare", "eager,plan").out)
    assert compared.count("of 60) and counts") == 2


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize(
    ("versions", "code", "said"),
    [
        (["3.9.1"] * 60, 0, "each kind among them"),
        ([f"3.{n // 9}.{n % 9}" for n in range(60)], 4, r"all but \d+ kinds among them"),
    ],
    ids=["alike", "apart"],
)
def test_max_downtime_is_not_verified_where_kinds_of_restart_were_not_rehearsed(
    versions: list[str], code: int, said: str, *, monkeypatch: pytest.MonkeyPatch, rebal: Rebal
) -> None:
    monkeypatch.setattr("rebal.planner.rehearsal.costs.steps._ENOUGH", 0)
    Path("g.yaml").write_text(dump_snapshot(group_with(versions)))
    words = ["--snapshot", "g.yaml", "--max-downtime", "1d", "--details"]
    out, err = rebal("plan-upgrade", *words, code=code)
    assert re.search(f"restarts, {said}", flat(out))
    missing = r"--max-downtime 1 d: \d+ kinds of restart of step 1 were not rehearsed"
    assert bool(re.search(missing, flat(err))) is (code == 4)


def test_a_rolling_script_is_sampled_by_kind_of_restart_and_a_crash_is_not(
    rehearse_large: RehearseLarge,
) -> None:
    assert "of 30) and counts" in flat(rehearse_large("--script", "rolling", plan=False).out)
    assert "counts for the others" not in rehearse_large("--script", "crash", plan=False).out


HOSTILE = "</script><script>alert(1)</script>\x1b[2J\"'&"


def data(page: str) -> dict[str, list[list[object]]]:
    (text,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', page, re.S)
    made: dict[str, list[list[object]]] = json.loads(text)
    return made


def test_a_hostile_name_is_escaped_text_on_the_rehearsal_page() -> None:
    where = with_processes(scene(RANGE, RANGE), "m0", name=HOSTILE)
    page = rehearsal_html(play(where, restart(HOSTILE, to=DONE)), HOSTILE)
    assert "\x1b" not in page
    assert page.count("<script") == 2
    assert "&lt;script&gt;alert(1)" in page
    assert any("alert(1)" in str(note) for note in data(page)["notes"])


def test_the_rehearsal_page_shows_dangers_first_with_their_members() -> None:
    run = play(
        scene(BOTH, BOTH, RANGE, elected="range"),
        restart("m0", to=DONE),
    )
    page = rehearsal_html(run, "orders")
    danger = page.index("rejected: m0 is rejected (INCONSISTENT_GROUP_PROTOCOL) at 0:")
    assert danger < page.index("<dt>takes</dt>")
    assert "no owner: " not in page
    for at in (0, 10):
        stop = ScriptEvent(do=Deed.STOP, members=("m0", "m1", "m2"), at=at)
        page = rehearsal_html(play(scene(RANGE, RANGE, RANGE), stop), "orders")
        assert "no owner: 12 partitions have no owner at the end, such as orders-0" in page
        assert "has an owner all the time" not in page
    deleted = ScriptEvent(do=Deed.DELETE_TOPIC, topic="orders", at=10)
    page = rehearsal_html(play(scene(RANGE, RANGE, RANGE), deleted), "orders")
    assert 'class="danger"' not in page


def test_the_rehearsal_page_shows_its_verdict_first_and_draws_past_the_last_rebalance() -> None:
    run = play(scene(DONE, DONE), replace(restart("m0"), phase="step 1"))
    page = rehearsal_html(run, "orders")
    assert 'class="danger"' not in page
    verdict = page.index("No member is rejected, and no partition is owned twice.")
    assert verdict < page.index("<dt>takes</dt>")
    ended = max(one.ended for one in run.rebalances if one.ended is not None)
    drawn = float(re.findall(r'type="range" min="0" max="([\d.]+)"', page)[0])
    assert drawn > run.measures.seconds >= ended
    marks = re.findall(r'<span style="left:([\d.]+)%"[^>]*>(step 1|at rest)</span>', page)
    assert ("0.00", "step 1") in marks
    assert (f"{100 * ended / drawn:.2f}", "at rest") in marks


def test_a_group_that_does_not_come_to_rest_is_drawn_to_the_rehearsals_end() -> None:
    run = replace(play(scene(DONE, DONE), restart("m0")), at_rest=False)
    page = rehearsal_html(run, "orders")
    assert f'max="{run.measures.seconds}"' in page
    assert ">at rest</span>" not in page
    # A rebalance that takes no time ends at the first moment of the story.
    run = play(scene(DONE, DONE), ScriptEvent(do=Deed.STOP, members=("m0", "m1")))
    assert [one.ended for one in run.rebalances] == [0]
    assert ">at rest</span>" in rehearsal_html(run, "orders")


def test_the_rehearsal_page_of_kafka_streams_shows_downtime_as_not_modelled() -> None:
    where = with_processes(scene(RANGE, RANGE, family="streams"), assignors=("stream",))
    page = rehearsal_html(play(replace(where, assignor="stream"), restart("m0")), "g")
    assert "<dt>downtime</dt><dd>not modelled</dd>" in page
    assert "without an owner" not in page
    assert "<th>Stopped</th>" not in page
    assert '"unit": "none"' in page


def test_the_rehearsal_page_can_step_through_each_rebalance() -> None:
    run = play(scene(RANGE, RANGE), restart("m0"), restart("m1"))
    read_by_program = data(rehearsal_html(run, "orders"))
    assert len(read_by_program["lanes"]) == 2
    for one in run.rebalances:
        assert round(one.began, 3) in read_by_program["marks"]
    assert all(lane[-1][0] == read_by_program["columns"] for lane in read_by_program["lanes"])


def test_the_rehearsal_page_of_200_members_is_below_a_megabyte() -> None:
    where = scene(*[RANGE] * 200, partitions=400)
    events = tuple(restart(f"m{number}") for number in range(0, 200, 10))
    page = rehearsal_html(engine.rehearse(where, Script(events=events)), "orders")
    assert len(page) < 1_000_000
    assert page.count("<g transform") == 200
