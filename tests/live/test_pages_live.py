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
from tests.kafka.members import Members
from tests.kafka.service import properties_of
from tests.live.obey import Process
from tests.live.obey_world import LiveWorld
from tests.live_support.rollout import LISTS
from tests.live_support.terminal import Terminal
from tests.pages import Example

RESTART = re.compile(r"^(?:now|next): +(?:begin step 2: )?restart (\S+) with \[", re.MULTILINE)
_LOOKS = 10


def restart(world: LiveWorld, name: str, text: str | None = None) -> None:
    """Restart a pod, with these lines in its configuration file if there are any."""
    process = world.found("", name)
    assert process is not None
    world.stop(process)
    if text is not None:
        process.settings = properties_of(text)
    assert world.start(process) is None
    assert world.settle()


def lists(world: LiveWorld) -> list[list[str | None]]:
    """The list that each pod runs, by the file that it was started with."""
    files = [one.settings[LISTS].split(",") for one in world.processes]
    return [[assignor_of(each) for each in classes] for classes in files]


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
    pods = [
        Process(name, "java-3.9.1", ("range",), instance_id)
        for name, instance_id in (("checkout-0", None), ("checkout-1", "checkout-1"))
    ]
    world = LiveWorld(kafka41, members, "checkout", topic_name, folder=tmp_path, processes=pods)
    world.begin()
    for example in item(1):
        assert "checkout" in reader.types(example)
    plan, show = item(2)
    text = reader.types(plan)
    assert "Check before you start: " in text
    assert "\nask " in reader.types(show)

    (settings,) = item(3)
    (verify,) = item(4)
    first = reader.types(settings)
    text = carries_out(reader, world, verify, text, first)
    assert "holds for step 1" in text
    assert lists(world) == [["cooperative-sticky", "range"]] * 2

    settings, watch = item(5)
    last = reader.types(settings)
    with subprocess.Popen(
        ["bash", "-c", reader.line(watch)], cwd=tmp_path, env=reader.terminal.env(),
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    ) as watching:  # fmt: skip
        try:
            text = carries_out(reader, world, verify, text, last)
            watched, _ = watching.communicate(timeout=30)
        finally:
            watching.kill()
    assert watching.returncode == 0, watched
    assert "roll-out finished" in watched
    assert "the plan is carried out" in text
    assert lists(world) == [["cooperative-sticky"]] * 2

    back, timeline = item(6)
    assert "restart " in reader.types(back)
    assert (tmp_path / "back.plan.yaml").is_file()
    assert "roll-out finished" in reader.types(timeline)
    offline(reader, world)
    elsewhere = ("docs/check.md", "docs/fleet-on-spark.md", "docs/other-library.md")
    lines = {one.line for one in pages.every_example() if one.page not in elsewhere}
    assert lines - {one.line for one in reader.read} == {
        "rebal inspect --snapshot checkout.rebal.yaml",
        "rebal rehearse checkout.plan.yaml",
    }, "tests/house/test_pages.py and tests/cli/test_screens.py run them"


def carries_out(reader: Reader, world: LiveWorld, verify: Example, text: str, settings: str) -> str:
    """Restart whom the text names with the settings of a step, until verify exits with 0."""
    for _ in range(_LOOKS):
        if found := RESTART.search(text):
            restart(world, found[1], settings)
        else:
            assert "next:       wait: " in text, text
            time.sleep(1)
        text = reader.types(verify, codes=(0, 4))
        if re.search("^gate +holds", text, re.MULTILINE):
            return text
    raise AssertionError(text)


def offline(reader: Reader, world: LiveWorld) -> None:
    """The lines that follow the roll-out: a piped log, a snapshot, and a scan of the cluster."""
    kubectl = reader.terminal.bin / "kubectl"
    prefixed = 'sed "s|^|[pod/$(basename "$log" .log)/app] |" "$log"'
    kubectl.write_text(f"#!/bin/sh\nfor log in logs/*; do {prefixed}; done\n")
    kubectl.chmod(0o755)
    pipe, save, simulate = item(0)
    assert "client log" in reader.types(pipe)
    reader.types(save)
    assert "checkout-0" in reader.types(simulate)
    broker = reader.terminal.broker
    broker.log_requests(True)
    restart(world, "checkout-0")
    broker.log_requests(False)
    scan, report, plan, metrics = pages.examples("docs/fleet.md")
    reader.types(scan)
    reader.types(report, codes=(0, 3, 4))
    assert "checkout" in (reader.terminal.folder / "fleet.html").read_text()
    assert reader.types(plan, codes=(0, 3, 4)).startswith("checkout: ")
    reader.types(metrics)
    assert "rebal_group_readiness" in (reader.terminal.folder / "rebal.prom").read_text()
