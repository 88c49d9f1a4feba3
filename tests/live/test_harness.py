"""The harness itself: what it starts ends, and what it runs is pinned."""

import os
import shutil
import signal
import subprocess
import sys

from tests.kafka import jars
from tests.kafka.broker import wait_for


def test_a_broker_does_not_outlive_a_killed_test_run():
    script = (
        "import os, signal\n"
        "from tests.kafka.broker import Broker\n"
        "broker = Broker(secure=False)\n"
        "broker.start()\n"
        "print(broker.process.pid, broker.folder, flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, cwd=jars.ROOT, check=False
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    pid, folder = done.stdout.split()
    try:
        wait_for("the broker to end", lambda: not _runs_broker(int(pid)), timeout=15)
    finally:
        shutil.rmtree(folder)


def _runs_broker(pid: int) -> bool:
    listed = subprocess.run(
        ["ps", "-o", "stat=,args=", "-p", str(pid)], capture_output=True, text=True, check=False
    ).stdout.strip()
    return "Launch" in listed and not listed.startswith("Z")


def test_the_maven_wrapper_runs_only_the_pinned_version(tmp_path):
    pinned = (jars.MAVEN / "maven-wrapper.properties").read_text()
    version = dict(line.split("=", 1) for line in pinned.splitlines())["version"]
    folder = tmp_path / "repository/org/apache/maven/apache-maven" / version
    fake = folder / f"apache-maven-{version}-bin.zip"
    fake.parent.mkdir(parents=True)
    fake.write_bytes(b"not Maven")
    home = tmp_path / "home"
    env = {
        **os.environ,
        "MVNW_REPOURL": (tmp_path / "repository").as_uri(),
        "MAVEN_USER_HOME": str(home),
    }
    done = subprocess.run(
        [str(jars.MAVEN / "mvnw"), "-v"], env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "is not the pinned file" in done.stderr
    assert list((home / "wrapper/dists").iterdir()) == []
