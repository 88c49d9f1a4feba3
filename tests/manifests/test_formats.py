"""Each format of a manifest (tests/data/manifests): the names and versions in it."""

import re
from pathlib import Path

import pytest
import yaml

from rebal.groups.clients import Library, default_list
from rebal.inspectors.manifests.products import products
from rebal.inspectors.manifests.reader import _FORMATS
from tests.manifests.folders import place, read_folder

FILES = Path(__file__).parents[1] / "data/manifests"
EXPECTED: dict[str, list[str]] = yaml.safe_load((FILES / "expected.yaml").read_text())
# Helm's chart gives the tag that its values leave out.
UNWRITTEN = {
    "chart/values.yaml": "values.yaml: the version of grafana/promtail is not written there."
}


def line(one: Library) -> str:
    return f"{one.ecosystem} {one.package} {one.product_version} {place(one)}"


@pytest.mark.parametrize("name", EXPECTED)
def test_a_format_names_its_clients_and_products(name: str) -> None:
    file = FILES / name
    for root in (file, file.parent):
        reading = read_folder(root)
        assert [line(one) for one in reading.libraries] == EXPECTED[name]
        assert list(reading.notes) == [text for key, text in UNWRITTEN.items() if key == name]


def test_every_format_of_one_repository_is_read() -> None:
    reading = read_folder(FILES)
    assert len(reading.libraries) == sum(map(len, EXPECTED.values()))
    assert {one.where.partition("/")[0] for one in reading.libraries} == {
        name.partition("/")[0] for name in EXPECTED
    }


def rows(text: str) -> list[list[str]]:
    """The cells of a page's table, without its head."""
    lines = [line for line in text.splitlines() if line.startswith("| ")]
    return [line.strip("| ").split(" | ") for line in lines[2:]]


PAGE = (FILES.parents[2] / "docs/manifests.md").read_text().partition("A version is taken")


def test_the_page_names_each_format() -> None:
    named = [pattern for row in rows(PAGE[0]) for pattern in re.findall("`(.*?)`", row[0])]
    assert sorted(named) == sorted({known.pattern for known in _FORMATS})


@pytest.mark.parametrize("row", rows(PAGE[2]), ids=lambda row: row[0])
def test_the_page_names_the_default_lists_of_the_table(row: list[str]) -> None:
    table = {one.product: one for one in products().values()}
    for name in re.sub(r" (to|from) .*| \(.*?\)", "", row[0]).split(", "):
        found = next(one for title, one in table.items() if name in title)
        release = found.releases[0 if " to " in row[0] else -1] if found.releases else None
        own = (release and release.list) or found.list
        own = own or default_list(found.library, release and release.inside)
        shown = re.findall("`(.*?)`", row[2])
        assert shown == (list(own or ()) if found.group_protocol else [])


def test_folders_of_packages_and_tests_and_hidden_ones_are_passed_over(tmp_path: Path) -> None:
    for folder in ("node_modules/a", ".cache", "vendor/b", "src/test/c", "tests/d", "testdata"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "go.mod").write_text("require github.com/IBM/sarama v1.43.3\n")
    assert read_folder(tmp_path).libraries == ()


def test_beside_or_below_a_lock_file_a_python_project_gives_no_ranges(tmp_path: Path) -> None:
    (tmp_path / "service").mkdir()
    project = '[project]\ndependencies = ["aiokafka>=0.11"]\n'
    (tmp_path / "service/pyproject.toml").write_text(project)
    (tmp_path / "pyproject.toml").write_text(project)
    assert [one.product_version for one in read_folder(tmp_path).libraries] == [None, None]
    (tmp_path / "uv.lock").write_text('[[package]]\nname = "aiokafka"\nversion = "0.12.0"\n')
    (one,) = read_folder(tmp_path).libraries
    assert (one.product_version, one.where) == ("0.12.0", "uv.lock")
