"""What `rebal simulate --rollout` says where a sample stands for all restarts."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from rebal.cli.app import run
from rebal.groups.snapshot.documents import dump_snapshot
from rebal.planner.paths import make_plan
from rebal.planner.plan import dump_plan, load_plan
from rebal.planner.rehearsal.costs import sampled
from rebal.planner.rehearsal.costs.work import unpriced
from tests.documents import checked
from tests.planner.builder import group_of

Simulate = Callable[..., tuple[int, str]]
Said = pytest.CaptureFixture[str]


@pytest.fixture
def simulate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Said) -> Simulate:
    """Simulate a plan of 30 members as if that took long; return the code and what is printed."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setattr(sampled, "_TOO_LONG", 0.0)
    monkeypatch.setattr(sampled, "_SAMPLE", 0.0)
    members = [{"id": f"m{n:02d}", "list": ["range"], "version": "4.1.1"} for n in range(30)]
    group = group_of({"members": members, "elected": "range", "topics": {"orders": 60}})
    with unpriced():
        plan = make_plan(group)
    Path("g.rebal.yaml").write_text(dump_snapshot(group))
    Path("p.yaml").write_text(dump_plan(plan))

    def simulate_with(*words: str, plan: bool = True) -> tuple[int, str]:
        capsys.readouterr()
        given = ["--rollout", "p.yaml"] if plan else ["--snapshot", "g.rebal.yaml"]
        code = run(["simulate", *given, *words])
        return code, capsys.readouterr().out

    return simulate_with


def flat(text: str) -> str:
    return " ".join(text.split())


def test_the_screen_names_the_sample_its_bounds_and_what_it_cannot_exclude(
    simulate: Simulate,
) -> None:
    code, text = simulate()
    assert code == 0
    said = flat(text)
    found = re.search(r"In a sample of (\d+) of 60 restarts, no member is rejected, and no", said)
    assert found is not None
    assert int(found[1]) < 30
    assert f"sample {found[1]} of 60 restarts rehearsed, one of each kind." in said
    assert re.search(r"partition-seconds are within ±\d+ %, and no partition stops for more", said)
    assert "A sample cannot exclude a danger that comes by chance" in said
    assert "--rehearse-all rehearses every restart, in about" in said
    assert "No member is rejected" not in said
    assert re.search(r"step 1 +0:00 +1\d min", text)
    assert re.search(r"step 2 +1\d:\d\d +1\d min", text)


def test_all_restarts_are_rehearsed_where_that_is_asked_for(simulate: Simulate) -> None:
    code, text = simulate("--rehearse-all")
    assert code == 0
    assert "No member is rejected" in flat(text)
    assert "sample" not in text
    assert "m00" in text
    assert "p.yaml --rehearse-all --runs 100" in flat(text)


def test_the_document_has_the_sample(simulate: Simulate) -> None:
    code, text = simulate("-o", "json")
    assert code == 0
    one = checked(text)["runs"][0]["rehearsal"]
    found = one["sampled"]
    assert found["restarts"] == 60
    assert found["rehearsed"] < 30
    assert found["left_out"] == 0
    assert 0 < found["bound"] < 1
    assert found["longest_at_most"] > one["measures"]["longest"]
    assert one["partitions"] == one["members"] == one["rebalances"] == []
    whole = checked(simulate("-o", "json", "--rehearse-all")[1])["runs"][0]["rehearsal"]
    assert whole["sampled"] is None
    unowned = whole["measures"]["unowned"]
    assert one["measures"]["unowned"] == pytest.approx(unowned, rel=found["bound"])


def test_the_page_is_of_the_sample_and_draws_no_time(simulate: Simulate) -> None:
    code, page = simulate("-o", "html")
    assert code == 0
    assert re.search(r"<dt>sample</dt><dd>\d+ of 60 restarts rehearsed, one of each kind", page)
    assert "<script" not in page
    assert "<svg" not in page
    assert "<svg" in simulate("-o", "html", "--rehearse-all")[1]


def test_runs_and_comparisons_are_of_samples_too(simulate: Simulate) -> None:
    code, text = simulate("--runs", "3")
    assert code == 0
    assert "OVER 3 RUNS" in text
    assert "of 60 restarts rehearsed" in flat(text)
    code, text = simulate("--compare", "eager,plan")
    assert code == 0
    assert flat(text).count("of 60 restarts rehearsed") == 2
    assert "sample eager: " in flat(text)


def test_a_rejected_member_is_named_and_the_code_is_3(simulate: Simulate) -> None:
    plan = load_plan(Path("p.yaml").read_text(), "yaml")
    one, two = plan.steps
    skipped = replace(one, target_list=two.target_list)
    Path("p.yaml").write_text(dump_plan(replace(plan, steps=(skipped, two))))
    code, text = simulate()
    assert code == 3
    said = flat(text)
    assert re.search(r"rejected m00\b.* (is|are) rejected \(", said)
    assert "A restart of the sample goes wrong" in said
    assert "no error bound holds" in said
    assert "±" not in said
    document: dict[str, Any] = json.loads(simulate("-o", "json")[1])
    assert document["exit_code"] == 3
    assert document["runs"][0]["rehearsal"]["sampled"]["bound"] is None


def test_a_kind_of_restart_that_is_left_out_is_not_verified_and_the_code_is_4(
    simulate: Simulate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sampled, "_MOST_KINDS", 0)
    members = [
        {"id": f"m{n:02d}", "list": ["range"], "version": f"3.{n // 9}.{n % 9}"} for n in range(30)
    ]
    group = group_of({"members": members, "elected": "range", "topics": {"orders": 60}})
    with unpriced():
        Path("p.yaml").write_text(dump_plan(make_plan(group)))
    code, text = simulate()
    assert code == 4
    said = flat(text)
    assert "no member is rejected" in said
    assert re.search(r"none of \d+ kinds of restart: those are NOT verified", said)


def test_max_downtime_is_not_verified_where_kinds_of_restart_were_not_rehearsed(
    simulate: Simulate, monkeypatch: pytest.MonkeyPatch, capsys: Said
) -> None:
    del simulate
    monkeypatch.setattr("rebal.planner.rehearsal.costs.work._ENOUGH", 0)
    versions = {"alike": ["3.9.1"] * 60, "apart": [f"3.{n // 9}.{n % 9}" for n in range(60)]}
    said = {}
    for name, each in versions.items():
        members = [
            {"id": f"m{n:02d}", "list": ["range"], "version": version}
            for n, version in enumerate(each)
        ]
        group = group_of({"members": members, "elected": "range", "topics": {"orders": 60}})
        Path(f"{name}.yaml").write_text(dump_snapshot(group))
        words = ["--snapshot", f"{name}.yaml", "--max-downtime", "1d", "--details"]
        code = run(["plan-upgrade", *words])
        told = capsys.readouterr()
        said[name] = (code, flat(told.out), flat(told.err))
    code, out, err = said["alike"]
    assert "restarts rehearsed, so partition-seconds are within" in out
    assert (code, "--max-downtime" in err) == (0, False)
    code, out, err = said["apart"]
    assert re.search(r"within ±\d+ % if \d+ kinds that were not cost no more than these", out)
    assert code == 4
    assert re.search(r"--max-downtime 1 d: \d+ kinds of restart of step 1 were not rehearsed", err)


def test_a_ready_roll_out_is_sampled_and_a_crash_is_not(simulate: Simulate) -> None:
    assert "of 30 restarts rehearsed" in flat(simulate("--script", "rolling", plan=False)[1])
    assert "sample" not in simulate("--script", "crash", plan=False)[1]


def test_rehearse_all_is_for_a_rehearsal(capsys: Said) -> None:
    assert run(["simulate", "--assignor", "range", "--rehearse-all"]) == 2
    assert "--rehearse-all and --details are for a rehearsal" in flat(capsys.readouterr().err)
