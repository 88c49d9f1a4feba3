"""`rebal check` on repositories: git, files, formats, hostile input, and what a change comes to."""

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from rebal.cli import sources
from rebal.cli.app import run
from rebal.groups.snapshot.documents import dump_snapshot
from tests.manifests.folders import write
from tests.pages import ROOT
from tests.planner.builder import group_of

JAVA = "org.apache.kafka.clients.consumer."
SPRING = """spring:
  kafka:
    consumer:
      group-id: {group}
      properties:
        partition.assignment.strategy: {names}
"""
FILE = "pay/src/main/resources/application.yaml"
Screen = Callable[..., tuple[int, str, str]]


def properties(group: str, names: str) -> str:
    return f"group.id={group}\npartition.assignment.strategy={names}\n"


def spring(group: str, *classes: str) -> str:
    return SPRING.format(group=group, names=",".join(f"{JAVA}{each}" for each in classes))


def git(folder: Path, *words: str) -> None:
    own = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
    for who in ("AUTHOR", "COMMITTER"):
        own |= {f"GIT_{who}_NAME": "x", f"GIT_{who}_EMAIL": "x"}
    command = ["git", "-C", str(folder), *words]
    subprocess.run(command, check=True, capture_output=True, env=os.environ | own)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Return a repository whose last commit runs range."""
    write(tmp_path, {FILE: spring("pay", "RangeAssignor")})
    git(tmp_path, "init", "-q", "-b", "main")
    git(tmp_path, "add", "-A")
    git(tmp_path, "commit", "-q", "-m", "one")
    return tmp_path


@pytest.fixture
def screen(capsys: pytest.CaptureFixture[str]) -> Screen:
    """Return a function that runs `rebal check` and returns its code, stdout and stderr."""

    def ran(*words: object) -> tuple[int, str, str]:
        code = run(["check", *map(str, words)])
        out, err = capsys.readouterr()
        return code, out, err

    return ran


def changed(repository: Path) -> None:
    write(repository, {FILE: spring("pay", "CooperativeStickyAssignor")})


def test_check_compares_a_working_tree_with_a_revision(repository: Path, screen: Screen) -> None:
    assert screen("--base", "HEAD", repository)[:2] == (
        0,
        "no group starts differently: 1 group declared\n",
    )
    changed(repository)
    code, out, _ = screen("--base", "HEAD", repository)
    assert code == 3
    assert (
        f"REJECTED      pay\nchange        assignor list  [range] → [cooperative-sticky]   {FILE}:6"
        in out
    )
    assert "two bounces" in out
    assert screen("--base", "HEAD", repository, "--exit-zero")[0] == 0


def test_check_of_a_folder_ignores_the_other_folders(repository: Path, screen: Screen) -> None:
    changed(repository)
    write(
        repository,
        {"bill/consumer.properties": "group.id=bill\npartition.assignment.strategy=range\n"},
    )
    code, out, _ = screen("--base", "HEAD", repository / "bill")
    assert (code, "pay" in out, "bill" in out) == (0, False, True)


def test_check_changes_no_file_of_the_repository(repository: Path, screen: Screen) -> None:
    changed(repository)

    def state() -> dict[str, tuple[float, bytes]]:
        files = (path for path in repository.rglob("*") if path.is_file())
        return {str(path): (path.stat().st_mtime, path.read_bytes()) for path in files}

    before = state()
    screen("--base", "HEAD", repository)
    assert state() == before


def test_check_skips_files_that_git_ignores(repository: Path, screen: Screen) -> None:
    write(
        repository, {".gitignore": "out/\n", "out/application.yaml": spring("x", "RangeAssignor")}
    )
    assert screen("--base", "HEAD", repository)[1].startswith("no group starts differently")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--base", "no-such", "REPO"], "has no such revision"),
        (["--base", "--output=x", "REPO"], "has no such revision"),
        (["--base", "HEAD", "OUTSIDE"], "not a git repository"),
        (["--base", "HEAD", "REPO/missing"], "git says: cannot change to"),
        (["REPO", "REPO/missing"], "there is no such file or folder"),
        (["REPO"], "give BEFORE and AFTER, or --base REV"),
        (["--base", "HEAD", "REPO", "REPO"], "give BEFORE and AFTER, or --base REV"),
        (["REPO", "REPO", "--probe"], "--probe is about live groups"),
    ],
)
def test_check_reports_a_missing_version_or_wrong_usage_in_one_sentence(
    repository: Path,
    tmp_path_factory: pytest.TempPathFactory,
    screen: Screen,
    words: list[str],
    said: str,
) -> None:
    outside = str(tmp_path_factory.mktemp("outside"))
    typed = [word.replace("REPO", str(repository)).replace("OUTSIDE", outside) for word in words]
    code, out, err = screen(*typed)
    usage = said.startswith(("give", "--probe"))
    assert (code, out, err.count("\n")) == (2 if usage else 1, "", 1)
    assert said in err


def test_check_of_a_partial_clone_fails_only_if_it_lacks_a_file_to_read(
    repository: Path, screen: Screen
) -> None:
    write(repository, {"src/Main.java": "class Main {}"})
    git(repository, "add", "-A")
    git(repository, "commit", "-q", "-m", "two")
    objects = repository / ".git" / "objects"

    def lose(name: str) -> None:
        asked = ["git", "-C", str(repository), "rev-parse", f"HEAD:{name}"]
        blob = subprocess.run(asked, check=True, capture_output=True, text=True).stdout.strip()
        (objects / blob[:2] / blob[2:]).unlink()

    lose("src/Main.java")
    assert screen("--base", "HEAD", repository)[0] == 0
    lose(FILE)
    code, _, err = screen("--base", "HEAD", repository)
    assert (code, "this clone lacks its contents" in err) == (1, True)


def test_check_reports_missing_git_in_one_sentence(
    repository: Path, screen: Screen, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    assert screen("--base", "HEAD", repository)[::2] == (
        1,
        "rebal: --base needs git, which is not installed here.\n",
    )


@pytest.mark.parametrize("data", [b"\0\1\2", b"a: [", b"\xff\xfea"])
def test_check_compares_two_files_and_reports_an_unreadable_one_in_one_sentence(
    tmp_path: Path, screen: Screen, data: bytes
) -> None:
    for name, names in (("old", "range"), ("new", "roundrobin")):
        write(tmp_path, {f"{name}.properties": properties("pay", names)})
    code, out, _ = screen(tmp_path / "old.properties", tmp_path / "new.properties")
    assert (code, "new.properties:2" in out) == (3, True)
    (tmp_path / "a.yaml").write_bytes(data)
    code, out, err = screen(tmp_path / "old.properties", tmp_path / "a.yaml")
    assert (code, out, err.count("\n")) == (1, "", 1)


def test_check_documents_name_the_group_file_and_line(repository: Path, screen: Screen) -> None:
    changed(repository)
    made = json.loads(screen("--base", "HEAD", repository, "-o", "json")[1])
    (group,) = made["groups"]
    assert (group["changes"][0]["file"], group["changes"][0]["line"]) == (FILE, 6)
    (run_,) = json.loads(screen("--base", "HEAD", repository, "-o", "sarif")[1])["runs"]
    (result,) = run_["results"]
    place = result["locations"][0]["physicalLocation"]
    assert (place["region"], place["artifactLocation"]["uri"]) == ({"startLine": 6}, FILE)
    (line,) = screen("--base", "HEAD", repository, "-o", "github")[1].splitlines()
    assert line.startswith(f"::error file={FILE},line=6,title=rebal pay%3A REJECTED::change: ")
    assert "%0A" in line
    assert "**REJECTED** pay" in screen("--base", "HEAD", repository, "-o", "markdown")[1]


@pytest.mark.parametrize("form", ["text", "markdown", "github", "sarif", "json", "yaml"])
def test_check_escapes_terminal_and_workflow_commands_in_names_from_files(
    tmp_path: Path, screen: Screen, form: str
) -> None:
    name = "a\x1b[31m,line=9::x.yaml"
    for folder, names in (("old", "RangeAssignor"), ("new", "StickyAssignor")):
        write(tmp_path / folder, {name: spring('"pay\\e[2J%0A\\n::error::x"', names)})
    code, out, err = screen(tmp_path / "old", tmp_path / "new", "-o", form)
    assert code == 3
    assert "\x1b" not in out + err
    if form == "github":
        (line,) = out.splitlines()
        assert line.startswith("::error file=a\\x1b[31m%2Cline=9%3A%3Ax.yaml,line=")
        assert "%250A" in line


def test_check_judges_a_change_by_a_snapshot_if_given(repository: Path, screen: Screen) -> None:
    changed(repository)
    both = ["range", "cooperative-sticky"]
    group = {"group_id": "pay", "members": [{"id": "a", "list": both}, {"id": "b", "list": both}]}
    saved = repository / "pay.rebal.yaml"
    for reloaded, expected in ((False, 0), (None, 4)):
        seen = dump_snapshot(group_of(group | {"reloaded": reloaded}), "yaml")
        saved.write_text(seen)
        code, out, _ = screen("--base", "HEAD", repository, "--snapshot", saved)
        assert (code, "live group" in out) == (expected, True)
    saved.write_text(dump_snapshot(group_of({"group_id": "bill"}), "yaml"))
    code, _, err = screen("--base", "HEAD", repository, "--snapshot", saved)
    assert (code, "its group bill does not start differently" in err) == (3, True)


def test_check_judges_a_group_that_the_fleet_scan_lacks_by_its_files(
    repository: Path, screen: Screen, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sources, "scan_snapshots", lambda *_, **given: [])
    words = ("--base", "HEAD", repository, "--evidence", repository / "lake")
    assert screen(*words)[0] == 0
    changed(repository)
    code, out, _ = screen(*words)
    assert (code, "live group" in out) == (3, False)


def test_the_example_pipelines_check_commands_run(
    repository: Path, screen: Screen, monkeypatch: pytest.MonkeyPatch
) -> None:
    changed(repository)
    workflow = yaml.safe_load((ROOT / "examples/ci/github.yml").read_text())
    steps = [step["run"] for step in workflow["jobs"]["rebal"]["steps"] if "run" in step]
    job = yaml.safe_load((ROOT / "examples/ci/gitlab.yml").read_text())["consumer-groups"]
    lines = [line for line in (*steps, *job["script"]) if line.startswith("rebal check")]
    assert len(lines) == 4
    monkeypatch.chdir(repository)
    for line in lines:
        words = line.partition(" >")[0].split()[2:]
        typed = ["HEAD" if word.startswith('"$') else word for word in words]
        assert screen(*typed)[0] == (0 if "--exit-zero" in typed else 3)


DATA = Path(__file__).parents[1] / "data/check"


def cases(file: str) -> list[Any]:
    """Return the cases of a file, each under its name."""
    found = yaml.safe_load((DATA / file).read_text())
    return [pytest.param(case, id=name) for name, case in found.items()]


def checked(case: dict[str, Any], folder: Path) -> tuple[Path, Path]:
    """Check the two versions of a case, and return them."""
    stays = case.get("stays", {})
    old, new = (write(folder / each, stays | case[each]) for each in ("before", "after"))
    assert run(["check", str(old), str(new)]) == case["code"]
    return old, new


@pytest.mark.parametrize("case", cases("field.yaml"))
def test_check_reports_upgrade_mistakes_from_public_threads(
    case: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    checked(case, tmp_path)
    out = capsys.readouterr().out
    assert [words for words in case["says"] if words not in out] == []
    # A move that cannot begin is not offered as an alternative.
    assert not ("without KIP-848 groups" in out and "instead       to KIP-848" in out)


@pytest.mark.parametrize("case", cases("files.yaml"))
def test_check_judges_changes_of_configuration_and_build_files(
    case: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, new = checked(case, tmp_path)
    out = capsys.readouterr().out
    assert [text for text in case.get("says", ()) if text not in out] == []
    assert [text for text in case.get("says_not", ()) if text in out] == []
    assert ("NOT VERIFIED" in out) is (case["code"] == 4)
    assert run(["check", str(new), str(new)]) == 0
