"""What a rehearsal says where one restart of each kind counts for the others."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from rebal.groups.model import GroupSnapshot
from rebal.groups.snapshot.documents import dump_snapshot
from rebal.planner.paths import make_plan
from rebal.planner.plan import dump_plan
from tests.cli.conftest import Rebal, Said, flat
from tests.planner.builder import group_of

Rehearse = Callable[..., Said]


def group_with(versions: list[str]) -> GroupSnapshot:
    """A member of each of these versions."""
    members = [
        {"id": f"m{n:02d}", "list": ["range"], "version": version}
        for n, version in enumerate(versions)
    ]
    return group_of({"members": members, "topics": {"orders": 60}})


@pytest.fixture
def rehearse(here: Path, monkeypatch: pytest.MonkeyPatch, rebal: Rebal) -> Rehearse:
    """Rehearse a plan of 30 members as if that took long."""
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


def test_the_screen_says_what_was_rehearsed_and_what_that_cannot_exclude(
    rehearse: Rehearse,
) -> None:
    said = flat(rehearse().out)
    assert "In one restart of each kind, no member is rejected, and no partition is" in said
    assert "A danger that comes by chance in one of the others" in said
    assert "No member is rejected" not in said
    assert re.search(r"step 2 1\d:\d\d 1\d min", said)


def test_the_document_has_the_number_of_restarts(
    rehearse: Rehearse, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = rehearse("-o", "json").body["runs"][0]["rehearsal"]
    found = one["sampled"]
    assert found["restarts"] == 60
    assert found["rehearsed"] < 30
    assert one["partitions"] == one["members"] == one["rebalances"] == []
    monkeypatch.setattr("rebal.planner.rehearsal.rehearse._TOO_LONG", 120.0)
    whole = rehearse("-o", "json").body["runs"][0]["rehearsal"]
    assert whole["sampled"] is None
    assert one["measures"]["unowned"] == pytest.approx(whole["measures"]["unowned"], rel=0.1)


def test_page_runs_and_comparisons_say_it_too(rehearse: Rehearse) -> None:
    page = rehearse("-o", "html").out
    assert re.search(r"<dt>about</dt><dd>one restart of each kind .* \(\d+ of 60\)", page)
    assert "<script" not in page
    assert "of 60) and counts" in flat(rehearse("--runs", "3").out)
    compared = flat(rehearse("--compare", "eager,plan").out)
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


def test_a_ready_roll_out_counts_one_of_each_kind_and_a_crash_does_not(
    rehearse: Rehearse,
) -> None:
    assert "of 30) and counts" in flat(rehearse("--script", "rolling", plan=False).out)
    assert "counts for the others" not in rehearse("--script", "crash", plan=False).out
