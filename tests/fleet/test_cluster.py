"""A real Spark standalone cluster, and the code that is shipped to it."""

import os
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from rebal.inspectors.fleet.spark.tasks import build_zip
from tests.kafka import jars
from tests.kafka.broker import ChildProcess, free_ports, wait_for

_MASTER = "127.0.0.1"
_SCALA = {"SPARK_SCALA_VERSION": "2.13"}
_JVM = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")


@contextmanager
def cluster_of(
    folder: Path, within: Sequence[str] = (), hosts: Sequence[str] = (_MASTER, _MASTER)
) -> Iterator[str]:
    """The URL of a master with a worker of one core on each host, started by `within`."""
    import pyspark

    java, home = jars.tool("java"), Path(pyspark.__file__).parent
    assert java is not None
    run = [java, *_JVM, "-cp", str(home / "jars" / "*")]
    (port,) = free_ports(1)
    url = f"spark://{_MASTER}:{port}"

    def daemon(name: str, host: str, command: Sequence[str], *words: str) -> ChildProcess:
        env = os.environ | {"SPARK_LOCAL_IP": host, "SPARK_HOME": str(home)} | _SCALA
        command = [*command, "--host", host, "--webui-port", "0", *words]
        return ChildProcess(name, command, folder / f"{name}.log", env=env)

    master = [*run, "org.apache.spark.deploy.master.Master"]
    started = [daemon("master", _MASTER, master, "--port", str(port))]
    try:
        worker = [*within, *run, "org.apache.spark.deploy.worker.Worker"]
        for number, host in enumerate(hosts, 1):
            work = ("--cores", "1", "--memory", "1g", "--work-dir", str(folder / f"work{number}"))
            started.append(daemon(f"worker{number}", host, worker, *work, url))
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
