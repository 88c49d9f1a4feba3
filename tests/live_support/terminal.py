"""Commands in a folder of their own, as an operator types them: `Shell` and `Terminal`."""

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.kafka import jars
from tests.kafka.broker import Broker

REBAL = str(Path(sys.executable).with_name("rebal"))
# Kafka's own tools, as its scripts start them.
TOOLS = {
    "kafka-configs.sh": ("broker-4.1.1", "kafka.admin.ConfigCommand"),
    "kafka-acls.sh": ("tools-4.1.1", "org.apache.kafka.tools.AclCommand"),
    "kafka-consumer-groups.sh": (
        "tools-4.1.1",
        "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
    ),
    "kafka-features.sh": ("tools-4.1.1", "org.apache.kafka.tools.FeatureCommand"),
}


class Shell:
    """Runs rebal in a folder of its own, without the environment's own settings."""

    def __init__(self, folder: Path, broker: Broker) -> None:
        self.folder = folder
        self.broker = broker

    def __call__(self, *words: str, code: int, **env: str) -> str:
        clean = {k: v for k, v in os.environ.items() if not k.startswith("REBAL_")}
        done = subprocess.run(
            [REBAL, *words],
            cwd=self.folder,
            env=clean | {"REBAL_BOOTSTRAP": self.broker.bootstrap} | env,
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        assert done.returncode == code, f"{words}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        assert "Traceback" not in done.stderr
        return done.stdout

    def json(self, *words: str, code: int) -> dict[str, Any]:
        answer: dict[str, Any] = json.loads(self(*words, "-o", "json", code=code))
        assert answer["exit_code"] == code
        return answer


class Terminal(Shell):
    """Runs printed lines as they stand, in bash, with rebal and Kafka's own tools on the PATH."""

    def __init__(self, folder: Path, broker: Broker) -> None:
        super().__init__(folder, broker)
        self.bin = folder / "bin"
        self.bin.mkdir()
        (self.bin / "rebal").symlink_to(REBAL)
        java = jars.tool("java")
        assert java is not None
        for name, (artifacts, tool) in TOOLS.items():
            script = self.bin / name
            words = shlex.join([java, "-Xmx96m", "-XX:TieredStopAtLevel=1", "-cp"])
            classes = shlex.quote(jars.classpath(artifacts))
            script.write_text(f'#!/bin/sh\nexec {words} {classes} {tool} "$@"\n')
            script.chmod(0o755)

    def env(self) -> dict[str, str]:
        """Its environment, in which nothing names a broker."""
        clean = {k: v for k, v in os.environ.items() if not k.startswith("REBAL_")}
        return clean | {"PATH": f"{self.bin}:{os.environ['PATH']}", "COLUMNS": "40"}

    def run(self, line: str, **env: str) -> subprocess.CompletedProcess[str]:
        """Run a printed line; rebal must not call it wrong, and Kafka's tools must take it."""
        done = subprocess.run(
            ["bash", "-c", line], cwd=self.folder, env=self.env() | env, capture_output=True,
            text=True, check=False, timeout=120,
        )  # fmt: skip
        good = (0, 3, 4) if line.startswith("rebal ") else (0,)
        assert done.returncode in good, f"{line}\n{done.returncode}\n{done.stdout}\n{done.stderr}"
        assert "Traceback" not in done.stderr
        return done

    def last(self, line: str, **env: str) -> str:
        """Run a line, and return the command on the last line of its screen."""
        screen = self.run(line, **env).stdout.rstrip().splitlines()
        return screen[-1].partition("rebal ")[1] + screen[-1].partition("rebal ")[2]
