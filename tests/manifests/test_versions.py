"""Where a build keeps a version, and which packages are of tests alone."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.manifests.folders import place, read_folder

DATA = Path(__file__).parents[1] / "data/check"
KEPT: dict[str, dict[str, Any]] = yaml.safe_load((DATA / "versions.yaml").read_text())
OF_TESTS: dict[str, dict[str, Any]] = yaml.safe_load((DATA / "of_tests.yaml").read_text())


@pytest.mark.parametrize("case", KEPT)
def test_a_version_is_found_where_a_build_keeps_it(case: str, tmp_path: Path) -> None:
    found = read_folder(tmp_path, KEPT[case]["files"])
    names = ((re.split("[:/]", one.package)[-1], one) for one in found.libraries)
    lines = sorted(f"{name} {one.product_version} {place(one)}" for name, one in names)
    notes = [note[note.rindex("(") : -1] for note in found.notes]
    assert "; ".join([*lines, *notes]) == KEPT[case]["finds"]


@pytest.mark.parametrize("case", OF_TESTS)
def test_a_package_of_tests_alone_is_none_of_the_service(case: str, tmp_path: Path) -> None:
    found = read_folder(tmp_path, OF_TESTS[case]["files"]).libraries
    assert sorted(one.package for one in found) == OF_TESTS[case]["finds"]
