"""The wheel, the sdist and the editable install hold the same rebal."""

import os
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from rebal.groups import VERSION
from tests.house.modules import ROOMS, ROOT, files

ENDINGS = {".py", ".yaml", ".json", ".html", ".css", ".js", ".bash", ".zsh", ".fish"}


def packages_in_folders() -> set[str]:
    return {
        "rebal." + ".".join(path.parent.relative_to(ROOT).parts)
        for room in ROOMS
        for path in files(room)
    }


def files_in_folders() -> set[str]:
    """Every module and data file, as its path inside the wheel."""
    return {
        "rebal/" + path.relative_to(ROOT).as_posix()
        for room in ROOMS
        for path in (ROOT / room).rglob("*")
        if path.name == "py.typed" or path.suffix in ENDINGS
    }


def test_the_package_list_names_every_folder() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert set(project["tool"]["setuptools"]["packages"]) == packages_in_folders()


def test_the_version_is_the_one_in_pyproject() -> None:
    assert tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"] == VERSION


def test_the_lock_pins_every_dependency_with_hashes() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = list(project["dependencies"])
    for extra in ("test", "lint"):
        wanted += project["optional-dependencies"][extra]
    lock = (ROOT / "requirements.lock").read_text()
    pinned = {
        canonicalize_name(line.split("==")[0])
        for line in lock.splitlines()
        if "==" in line and not line.startswith((" ", "#"))
    }
    assert {canonicalize_name(Requirement(each).name) for each in wanted} - pinned == set()
    assert lock.count("--hash=sha256:") >= len(pinned)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """(wheel, sdist), built from a copy of what git would ship, by the project's own backend."""
    out = tmp_path_factory.mktemp("dist")
    source = tmp_path_factory.mktemp("source")
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, capture_output=True, check=True, text=True,
    ).stdout.split("\0")  # fmt: skip
    for name in filter(None, listed):
        if (ROOT / name).is_file():
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            (source / name).write_bytes((ROOT / name).read_bytes())
    done = subprocess.run(
        [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(out), str(source)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    (wheel,) = out.glob("*.whl")
    (sdist,) = out.glob("*.tar.gz")
    return wheel, sdist


@pytest.fixture(scope="module")
def installed(built: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bin folder of a virtual environment that holds the wheel and no editable rebal."""
    env = tmp_path_factory.mktemp("env")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(env)], check=True)
    (site,) = env.glob("lib/python*/site-packages")
    # A path file's own path files are not followed, so the editable install stays out.
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    subprocess.run(
        [sys.executable, "-m", "pip", "--python", str(env / "bin" / "python"), "install",
         "--quiet", "--no-deps", "--no-index", "--force-reinstall", str(built[0])],
        check=True,
    )  # fmt: skip
    return env / "bin"


@pytest.mark.package
def test_the_wheel_holds_every_module_and_data_file(built: tuple[Path, Path]) -> None:
    names = set(zipfile.ZipFile(built[0]).namelist())
    assert {name for name in names if name.startswith("rebal/")} == files_in_folders()
    tops = {name.split("/")[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"rebal"}
    assert any(name.endswith("/licenses/LICENSE") for name in names)


@pytest.mark.package
def test_the_sdist_can_build_the_wheel_again(built: tuple[Path, Path]) -> None:
    with tarfile.open(built[1]) as sdist:
        names = {name.split("/", 1)[-1] for name in sdist.getnames()}
    wanted = {name.removeprefix("rebal/") for name in files_in_folders()}
    assert wanted | {"pyproject.toml", "README.md", "LICENSE"} <= names


@pytest.mark.package
def test_the_installed_wheel_runs_the_demo(installed: Path, tmp_path: Path) -> None:
    where = subprocess.run(
        [installed / "python", "-c", "import rebal.cli; print(rebal.cli.__file__)"],
        capture_output=True, text=True, check=True, cwd=tmp_path,
    ).stdout  # fmt: skip
    assert str(installed.parent) in where, "the wheel's modules, not the editable ones"
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("REBAL_", "PYTHONPATH"))}
    for words in (["--version"], ["demo"], ["explain"]):
        done = subprocess.run(
            [installed / "rebal", *words],
            capture_output=True, text=True, check=False, cwd=tmp_path, env=clean,
        )  # fmt: skip
        assert done.returncode == 0, f"rebal {' '.join(words)}: {done.stderr[-2000:]}"
        assert done.stdout.strip()
        assert "Traceback" not in done.stderr
