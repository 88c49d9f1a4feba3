"""`rebal check` on two versions of files: what a change comes to, and what is said of it."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from rebal.cli.app import run
from tests.manifests.folders import write

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
def test_an_upgrade_of_the_field_is_found(
    case: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    checked(case, tmp_path)
    out = capsys.readouterr().out
    assert [words for words in case["says"] if words not in out] == []
    # A move that cannot begin is no way out.
    assert not ("without KIP-848 groups" in out and "instead       to KIP-848" in out)


@pytest.mark.parametrize("case", cases("files.yaml"))
def test_a_change_of_files_is_judged(
    case: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, new = checked(case, tmp_path)
    out = capsys.readouterr().out
    assert [text for text in case.get("says", ()) if text not in out] == []
    assert [text for text in case.get("says_not", ()) if text in out] == []
    assert ("NOT VERIFIED" in out) is (case["code"] == 4)
    assert run(["check", str(new), str(new)]) == 0
