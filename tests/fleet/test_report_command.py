"""`rebal fleet report` as a command: its options, exit codes, forms and files."""

from __future__ import annotations

from pathlib import Path

import pytest

from rebal.cli import app
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
    same = "no trend yet since scan 1 (2026-11-20 09:00Z): the scans end at the same time"
    assert report_lines(Path(f"{tmp_path}#east"), capsys)[2].startswith(same)
