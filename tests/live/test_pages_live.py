"""The examples of the pages on a broker: the numbered roll-out from the first line to the last."""

from __future__ import annotations

import re
import shlex
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from rebal.groups.clients import assignor_of
from tests import pages
from tests.kafka.broker import Broker
from tests.kafka.members import JAVA_ASSIGNORS, Member, Members, wait_assigned
from tests.live_support.rollout import LISTS
from tests.live_support.terminal import Terminal
from tests.pages import Example

GROUP, PARTITIONS = "checkout", 6
PODS = {"checkout-0": None, "checkout-1": "checkout-1"}
"""Each pod with its instance id; one is a dynamic member."""
RESTART = re.compile(r"^(?:now|next): +(?:begin step 2: )?restart (\S+) with \[", re.MULTILINE)
_LOOKS = 10


class Team:
    """The service of the pages: each pod has a configuration file, and is restarted with it."""

    def __init__(self, broker: Broker, members: Members, topic: str, folder: Path) -> None:
        self.broker = broker
        self.running: dict[str, Member] = {}
        self._members = members
        self._topic = broker.create_topic(topic, PARTITIONS)
        self._files, self._logs = folder / "conf", folder / "logs"
        for each in (self._files, self._logs):
            each.mkdir()
        for name in PODS:
            self._deploy(name, f"{LISTS}={JAVA_ASSIGNORS['range']}\n")
            self._start(name)

    def lists(self) -> dict[str, list[str | None]]:
        """The list that each pod runs, by the file that it was started with."""
        listed = {name: one.settings[LISTS].split(",") for name, one in self.running.items()}
        return {name: [assignor_of(each) for each in classes] for name, classes in listed.items()}

    def restart(self, name: str, settings: str | None = None) -> None:
        """Restart a pod, with these lines in its configuration file if there are any."""
        self.running[name].stop()
        if settings is not None:
            self._deploy(name, settings)
        self._start(name)

    def _deploy(self, name: str, settings: str) -> None:
        own = f"group.id={GROUP}\nclient.id={name}\nbootstrap.servers=b:1\n"
        own += f"group.instance.id={PODS[name]}\n" if PODS[name] else ""
        (self._files / f"{name}.properties").write_text(own + settings)

    def _start(self, name: str) -> None:
        text = (self._files / f"{name}.properties").read_text()
        lines = [line for line in text.splitlines() if line and not line.startswith("#")]
        settings = dict(line.split("=", 1) for line in lines)
        member = self._members.start(
            "java-3.9.1", self.broker, name, GROUP, topics=[self._topic], instance_id=PODS[name],
            session_timeout_ms=10_000, settings={LISTS: settings[LISTS]},
        )  # fmt: skip
        self.running[name] = member
        # A COOPERATIVE group is Stable for a moment before its follow-up rebalance.
        wait_assigned(list(self.running.values()), PARTITIONS, quiet=0.5)
        self.broker.wait_stable(GROUP, len(self.running))
        link = self._logs / member.host.log_path.name
        if not link.exists():
            link.symlink_to(member.host.log_path)


class Reader:
    """Somebody who types the lines of the pages: the brokers' address and paths are replaced."""

    def __init__(self, terminal: Terminal) -> None:
        self.terminal = terminal
        self.read: list[Example] = []
        self._replaced = {
            pages.BROKER: terminal.broker.bootstrap,
            "/var/log/kafka": shlex.quote(str(terminal.broker.request_log_path)),
        }

    def line(self, example: Example) -> str:
        """The line to type."""
        if example not in self.read:
            self.read.append(example)
        typed = example.line
        for old, new in self._replaced.items():
            typed = typed.replace(old, new)
        return typed

    def types(self, example: Example, *, codes: Sequence[int] = (0,)) -> str:
        """What a line prints; it ends with one of the exit codes."""
        done = self.terminal.run(self.line(example), COLUMNS="100")
        assert done.returncode in codes, f"{example.line}\n{done.stdout}\n{done.stderr}"
        return done.stdout


def item(number: int) -> list[Example]:
    """The lines of one item of the roll-out; 0: those that follow it."""
    return [one for one in pages.examples("docs/roll-out.md") if one.item == number]


@pytest.fixture
def reader(tmp_path: Path, kafka41: Broker) -> Reader:
    return Reader(Terminal(tmp_path, kafka41))


@pytest.mark.story
@pytest.mark.timeout(240)
def test_the_roll_out_ends_by_the_printed_lines_alone(
    reader: Reader, kafka41: Broker, members: Members, topic_name: str, tmp_path: Path
) -> None:
    team = Team(kafka41, members, topic_name, tmp_path)
    for example in item(1):
        assert GROUP in reader.types(example)
    plan, show = item(2)
    text = reader.types(plan)
    assert "Check before you start: " in text
    assert "\nask " in reader.types(show)

    (settings,) = item(3)
    (verify,) = item(4)
    first = reader.types(settings)
    text = carries_out(reader, team, verify, text, first)
    assert "holds for step 1" in text
    assert team.lists() == {name: ["cooperative-sticky", "range"] for name in PODS}

    settings, watch = item(5)
    last = reader.types(settings)
    with subprocess.Popen(
        ["bash", "-c", reader.line(watch)], cwd=tmp_path, env=reader.terminal.env(),
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    ) as watching:  # fmt: skip
        try:
            text = carries_out(reader, team, verify, text, last)
            watched, _ = watching.communicate(timeout=30)
        finally:
            watching.kill()
    assert watching.returncode == 0, watched
    assert "roll-out finished" in watched
    assert "the plan is carried out" in text
    assert team.lists() == {name: ["cooperative-sticky"] for name in PODS}

    back, timeline = item(6)
    assert "restart " in reader.types(back)
    assert (tmp_path / "back.plan.yaml").is_file()
    assert "roll-out finished" in reader.types(timeline)
    offline(reader, team)
    elsewhere = ("docs/check.md", "docs/fleet-on-spark.md", "docs/other-library.md")
    lines = {one.line for one in pages.every_example() if one.page not in elsewhere}
    assert lines - {one.line for one in reader.read} == {
        "rebal inspect --snapshot checkout.rebal.yaml",
        "rebal rehearse checkout.plan.yaml",
    }, "tests/house/test_pages.py and tests/cli/test_screens.py run them"


def carries_out(reader: Reader, team: Team, verify: Example, text: str, settings: str) -> str:
    """Restart whom the text names with the settings of a step, until verify exits with 0."""
    for _ in range(_LOOKS):
        if found := RESTART.search(text):
            team.restart(found[1], settings)
        else:
            assert "next:       wait: " in text, text
            time.sleep(1)
        text = reader.types(verify, codes=(0, 4))
        if re.search("^gate +holds", text, re.MULTILINE):
            return text
    raise AssertionError(text)


def offline(reader: Reader, team: Team) -> None:
    """The lines that follow the roll-out: a piped log, a snapshot, and a scan of the cluster."""
    kubectl = reader.terminal.bin / "kubectl"
    prefixed = 'sed "s|^|[pod/$(basename "$log" .log)/app] |" "$log"'
    kubectl.write_text(f"#!/bin/sh\nfor log in logs/*; do {prefixed}; done\n")
    kubectl.chmod(0o755)
    pipe, save, simulate = item(0)
    assert "client log" in reader.types(pipe)
    reader.types(save)
    assert "checkout-0" in reader.types(simulate)
    team.broker.log_requests(True)
    team.restart("checkout-0")
    team.broker.log_requests(False)
    scan, report, plan, metrics = pages.examples("docs/fleet.md")
    reader.types(scan)
    reader.types(report, codes=(0, 3, 4))
    assert "checkout" in (reader.terminal.folder / "fleet.html").read_text()
    assert reader.types(plan, codes=(0, 3, 4)).startswith("checkout: ")
    reader.types(metrics)
    assert "rebal_group_readiness" in (reader.terminal.folder / "rebal.prom").read_text()
