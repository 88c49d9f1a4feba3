"""What a rehearsal says where one restart of each kind counts for the others."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from rebal.cli.app import run
from rebal.groups.snapshot.documents import dump_snapshot
from rebal.planner.paths import make_plan
from rebal.planner.plan import dump_plan
from rebal.planner.rehearsal import large
from tests.cli.conftest import flat
from tests.documents import checked
from tests.planner.builder import group_of

Rehearse = Callable[..., tuple[int, str]]
Said = pytest.CaptureFixture[str]


@pytest.fixture
def rehearse(here: Path, monkeypatch: pytest.MonkeyPatch, capsys: Said) -> Rehearse:
    """Rehearse a plan of 30 members as if that took long; return the code and what is printed."""
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setattr(large, "_TOO_LONG", 0.0)
    members = [{"id": f"m{n:02d}", "list": ["range"], "version": "4.1.1"} for n in range(30)]
    group = group_of({"members": members, "elected": "range", "topics": {"orders": 60}})
    plan = make_plan(group, pricing=None)
    Path("g.rebal.yaml").write_text(dump_snapshot(group))
    Path("p.yaml").write_text(dump_plan(plan))

    def rehearse_with(*words: str, plan: bool = True) -> tuple[int, str]:
        capsys.readouterr()
        given = ["p.yaml"] if plan else ["--snapshot", "g.rebal.yaml"]
        code = run(["rehearse", *given, *words])
        return code, capsys.readouterr().out

    return rehearse_with


def test_the_screen_says_what_was_rehearsed_and_what_that_cannot_exclude(
    rehearse: Rehearse,
) -> None:
    code, text = rehearse()
    assert code == 0
    said = flat(text)
    assert "In one restart of each kind, no member is rejected, and no partition is" in said
    assert "A danger that comes by chance in one of the others" in said
    assert "No member is rejected" not in said
    assert re.search(r"step 2 +1\d:\d\d +1\d min", text)


def test_the_document_has_the_number_of_restarts(
    rehearse: Rehearse, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = checked(rehearse("-o", "json")[1])["runs"][0]["rehearsal"]
    found = one["sampled"]
    assert found["restarts"] == 60
    assert found["rehearsed"] < 30
    assert one["partitions"] == one["members"] == one["rebalances"] == []
    monkeypatch.setattr(large, "_TOO_LONG", 120.0)
    whole = checked(rehearse("-o", "json")[1])["runs"][0]["rehearsal"]
    assert whole["sampled"] is None
    assert one["measures"]["unowned"] == pytest.approx(whole["measures"]["unowned"], rel=0.1)


def test_page_runs_and_comparisons_say_it_too(rehearse: Rehearse) -> None:
    page = rehearse("-o", "html")[1]
    assert re.search(r"<dt>about</dt><dd>one restart of each kind .* \(\d+ of 60\)", page)
    assert "<script" not in page
    assert "of 60) and counts" in flat(rehearse("--runs", "3")[1])
    compared = flat(rehearse("--compare", "eager,plan")[1])
    assert compared.count("of 60) and counts") == 2


def test_max_downtime_is_not_verified_where_kinds_of_restart_were_not_rehearsed(
    rehearse: Rehearse, monkeypatch: pytest.MonkeyPatch, capsys: Said
) -> None:
    del rehearse
    monkeypatch.setattr("rebal.planner.rehearsal.costs.rehearsed._ENOUGH", 0)
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
    assert re.search(r"about right: rehearsed \d+ of 60 restarts, each kind among them", out)
    assert (code, "--max-downtime" in err) == (0, False)
    code, out, err = said["apart"]
    assert re.search(r"restarts, all but \d+ kinds among them", out)
    assert code == 4
    assert re.search(r"--max-downtime 1 d: \d+ kinds of restart of step 1 were not rehearsed", err)


def test_a_ready_roll_out_counts_one_of_each_kind_and_a_crash_does_not(
    rehearse: Rehearse,
) -> None:
    assert "of 30) and counts" in flat(rehearse("--script", "rolling", plan=False)[1])
    assert "counts for the others" not in rehearse("--script", "crash", plan=False)[1]
