"""A real Spark standalone cluster, and the code that is shipped to it."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from rebal.inspectors.fleet.spark.tasks import build_zip
from tests.kafka import jars
from tests.kafka.broker import free_ports
from tests.kafka.processes import ChildProcess, wait_for

_MASTER = "127.0.0.1"
_SCALA = {"SPARK_SCALA_VERSION": "2.13"}
_JVM = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")


def daemon(
    name: str,
    folder: Path,
    role: str,
    *arguments: str,
    host: str = _MASTER,
    within: Sequence[str] = (),
) -> ChildProcess:
    import pyspark

    java = jars.tool("java")
    assert java is not None
    classpath = str(Path(pyspark.__file__).parent / "jars" / "*")
    options = ["--host", host, "--webui-port", "0"]
    command = [*within, java, *_JVM, "-cp", classpath, f"org.apache.spark.deploy.{role}", *options]
    home = str(Path(pyspark.__file__).parent)
    env = os.environ | {"SPARK_LOCAL_IP": host, "SPARK_HOME": home} | _SCALA
    return ChildProcess(name, [*command, *arguments], folder / f"{name}.log", env=env)


@contextmanager
def cluster_of(
    folder: Path, within: Sequence[str] = (), hosts: Sequence[str] = (_MASTER, _MASTER)
) -> Iterator[str]:
    """The URL of a master with a worker of one core on each host, started by `within`."""
    (port,) = free_ports(1)
    url = f"spark://{_MASTER}:{port}"
    started = [daemon("master", folder, "master.Master", "--port", str(port))]
    try:
        for number, host in enumerate(hosts, 1):
            work = ("--cores", "1", "--memory", "1g", "--work-dir", str(folder / f"work{number}"))
            started.append(
                daemon(
                    f"worker{number}", folder, "worker.Worker", *work, url, host=host, within=within
                )
            )
        # Three JVMs start at once, on a machine that may have other work.
        wait_for(
            "the workers",
            lambda: started[0].log().count("Registering worker") == len(hosts),
            timeout=180,
            involved=lambda: started,
        )
        yield url
    finally:
        for child in reversed(started):
            child.terminate()


def test_the_shipped_code_is_whole(tmp_path: Path) -> None:
    made = build_zip(tmp_path)
    names = set(zipfile.ZipFile(made).namelist())
    assert {"rebal/", "rebal/groups/", "rebal/inspectors/fleet/"} <= names
    assert not [name for name in names if "__pycache__" in name]
    root = Path(__file__).parents[2]
    for room in ("groups", "inspectors"):
        for path in (root / room).rglob("*"):
            if path.suffix in (".py", ".yaml", ".typed") and "__pycache__" not in path.parts:
                assert f"rebal/{path.relative_to(root)}" in names
