"""Each format of a manifest (tests/data/manifests): the names and versions in it."""

from pathlib import Path

import pytest
import yaml

from rebal.inspectors.manifests.products import Dependency
from rebal.inspectors.manifests.reader import read_manifests

FILES = Path(__file__).parents[1] / "data/manifests"
EXPECTED: dict[str, list[str]] = yaml.safe_load((FILES / "expected.yaml").read_text())
# Helm's chart gives the tag that its values leave out.
UNWRITTEN = {
    "chart/values.yaml": "values.yaml: the version of grafana/promtail is not written there."
}


def line(one: Dependency) -> str:
    return f"{one.ecosystem} {one.name} {one.version} {one.where}"


@pytest.mark.parametrize("name", EXPECTED)
def test_a_format_names_its_clients_and_products(name: str) -> None:
    file = FILES / name
    for root in (file, file.parent):
        reading = read_manifests(root)
        assert [line(one) for one in reading.dependencies] == EXPECTED[name]
        assert list(reading.notes) == [text for key, text in UNWRITTEN.items() if key == name]


def test_every_format_of_one_repository_is_read() -> None:
    reading = read_manifests(FILES)
    assert len(reading.dependencies) == sum(map(len, EXPECTED.values()))
    assert {one.where.partition("/")[0] for one in reading.dependencies} == {
        name.partition("/")[0] for name in EXPECTED
    }


def test_installed_packages_and_hidden_folders_are_passed_over(tmp_path: Path) -> None:
    for folder in ("node_modules/a", ".cache", "vendor/b"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "go.mod").write_text("require github.com/IBM/sarama v1.43.3\n")
    assert read_manifests(tmp_path).dependencies == ()


def test_beside_or_below_a_lock_file_a_python_project_gives_no_ranges(tmp_path: Path) -> None:
    (tmp_path / "service").mkdir()
    project = '[project]\ndependencies = ["aiokafka>=0.11"]\n'
    (tmp_path / "service/pyproject.toml").write_text(project)
    (tmp_path / "pyproject.toml").write_text(project)
    assert [one.version for one in read_manifests(tmp_path).dependencies] == [None, None]
    (tmp_path / "uv.lock").write_text('[[package]]\nname = "aiokafka"\nversion = "0.12.0"\n')
    (one,) = read_manifests(tmp_path).dependencies
    assert (one.version, one.where) == ("0.12.0", "uv.lock")
