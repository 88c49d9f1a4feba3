"""`rebal fleet report` as a command: its options, exit codes, forms and files."""

from __future__ import annotations

from pathlib import Path

import pytest

from rebal.cli import app
from rebal.cli.fleet import make_fleet_report
from tests.documents import checked
from tests.fleet.conftest import report_lines
from tests.fleet.synthetic import fleet
from tests.fleet.tablefiles import write_tables

Said = pytest.CaptureFixture[str]


def test_match_takes_whole_names(small_scan: Path, capsys: Said) -> None:
    assert report_lines(small_scan, capsys, "--match", ".*-eager-.*")[0] == "2 groups: 2 ready"
    for words, said in (
        (["--match", "eager"], "no group of the scan matches eager as a whole name"),
        (["--match", "("], "--match (: not a regular expression"),
        (["--group", "nobody"], "the scan saw no group nobody"),
        (["--group", "a", "--match", "b"], "--group is for one group"),
        (["--to", "moon"], "--to moon: expected"),
        (["--to", "franz-go"], "--to franz-go: that is a client library, a goal of plan-upgrade"),
        (["--out", "report.pdf"], "--out report.pdf: name the format with -o"),
    ):
        assert app.run(["fleet", "report", str(small_scan), *words]) == 2, words
        told = capsys.readouterr()
        assert said in told.err
        more = [f"  rebal fleet report {small_scan}"] if words[1] == "nobody" else []
        assert told.err.splitlines()[1:] == more
        assert told.out == ""


def test_a_folder_that_is_no_scan_fails_with_one_sentence(tmp_path: Path, capsys: Said) -> None:
    assert app.run(["fleet", "report", str(tmp_path)]) == 1
    assert app.run(["inspect", "any", "--evidence", str(tmp_path)]) == 1
    assert app.run(["plan-upgrade", "any", "--evidence", str(tmp_path / "no")]) == 1
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.count("\n") == 3
    assert told.err.count("rebal fleet scan --out") == 3


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["--exit-zero"], 0),
        (["--match", ".*-eager-.*"], 0),
        (["--match", ".*-(eager|empty)-.*"], 4),
        (["--match", ".*-(empty|librdkafka)-.*"], 3),
        (["--match", ".*-deleted-.*"], 0),
        (["--match", ".*-eager-.*", "--fail-on", "warning"], 3),
    ],
)
def test_the_exit_code_is_the_worst_of_all_next_steps(
    small_scan: Path, words: list[str], code: int, capsys: Said
) -> None:
    assert app.run(["fleet", "report", str(small_scan), *words]) == code
    assert app.run(["fleet", "report", str(small_scan), *words, "-o", "json"]) == code
    assert capsys.readouterr().out.rstrip().endswith(f'"exit_code": {code}\n}}')


def test_json_and_yaml_say_the_same_in_a_stable_order(small_scan: Path, capsys: Said) -> None:
    lines = report_lines(small_scan, capsys, "-o", "json")
    assert report_lines(small_scan, capsys, "-o", "json") == lines
    body = checked("\n".join(lines))
    assert checked("\n".join(report_lines(small_scan, capsys, "-o", "yaml")), "yaml") == body
    assert [name for name in body if name not in ("trend", "no_trend", "baseline")] == [
        *("schema", "scan", "to", "counts", "groups", "exit_code")
    ]
    assert body["schema"] == "rebal.fleet/1"
    assert body["counts"] == {"ready": 9, "blocked": 3, "unproven": 3, "done": 4, "gone": 1}
    for group in body["groups"]:
        assert list(group["metrics"])[:2] == ["rebalance-total", "rebalance-rate-per-hour"]
        assert ("place" in group) == (group["verdict"] != "gone")
        for missing in group.get("evidence_missing", ()):
            assert missing["how"]
    unknown = next(g for g in body["groups"] if "-half-unknown-" in g["group_id"])
    assert {one["rule"] for one in unknown["evidence_missing"]} == {"RB901"}
    assert {one["rule"] for one in unknown["blockers_later"]} == {"RB102"}
    assert unknown["blockers"] == []


def test_one_group_as_json_has_each_rebalance_and_list(small_scan: Path, capsys: Said) -> None:
    rows = fleet(20)
    name = rows["groups"][3]["group_id"]
    words = ("--group", name, "-o", "json")
    (group,) = checked("\n".join(report_lines(small_scan, capsys, *words)))["groups"]
    for table in ("rebalances", "assignor_lists"):
        assert len(group[table]) == sum(row["group_id"] == name for row in rows[table])
    assert group["rebalances"][-1]["ended_at"] > group["rebalances"][0]["ended_at"]


def test_out_writes_the_form_that_its_name_ends_in(
    small_scan: Path, tmp_path: Path, capsys: Said
) -> None:
    begins = {
        "a.json": "{\n",
        "a.yaml": "schema: rebal.fleet/1",
        "a.md": "# Fleet: 20 groups",
        "a.html": "<!doctype html>",
        "a.txt": "20 groups: 8 ready, 1 held",
    }
    for name, begin in begins.items():
        out = tmp_path / name
        assert app.run(["fleet", "report", str(small_scan), "--out", str(out)]) == 3
        assert out.read_text().startswith(begin)
        told = capsys.readouterr()
        assert (told.out, told.err) == ("", f"rebal: wrote {out}\n")
    odd = tmp_path / "page"
    assert app.run(["fleet", "report", str(small_scan), "-o", "html", "--out", str(odd)]) == 3
    assert odd.read_text().startswith("<!doctype html>")
    nowhere = str(tmp_path / "no" / "a.html")
    assert app.run(["fleet", "report", str(small_scan), "--out", nowhere]) == 1
    assert "cannot write" in capsys.readouterr().err
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([*begins, "page"])


def test_nothing_but_offsets_still_makes_a_report(tmp_path: Path, capsys: Said) -> None:
    """Without a request log latencies, lists and software are not known."""
    rows = fleet(20)
    for row in rows["groups"]:
        for name in list(row):
            if "latency" in name:
                row[name] = None
    for row in rows["rebalances"]:
        row |= {"latency_ms": None, "started_at": None, "cause": None}
    for row in rows["members"]:
        row |= {"assignors": None, "software_name": None, "software_version": None}
    rows["assignor_lists"] = []
    folder = write_tables(tmp_path, rows)
    for group in make_fleet_report(str(folder)).to_take:
        assert group.readiness.assumed == (group.readiness.saves is not None)
    for form in ("text", "json", "yaml", "markdown", "html"):
        app.run(["fleet", "report", str(folder), "-o", form])
    told = capsys.readouterr()
    assert told.err == ""
    assert "RB901" in told.out


def test_each_cluster_has_a_report_of_its_own(tmp_path: Path, capsys: Said) -> None:
    for cluster in ("east", "west", "east"):
        write_tables(tmp_path, fleet(4), cluster=cluster)
    west = Path(f"{tmp_path}#west")
    lines = report_lines(west, capsys)
    assert lines[1].startswith("cluster west, as seen until ")
    assert lines[2].startswith("no trend yet: the lake has one scan")
    assert f"--evidence '{west}'" in "\n".join(lines)
    body = checked("\n".join(report_lines(west, capsys, "-o", "json")))
    assert body["scan"]["cluster"] == "west"
    assert "since scan 1" in report_lines(Path(f"{tmp_path}#east"), capsys)[2]
