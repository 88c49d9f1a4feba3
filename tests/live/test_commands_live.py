"""The three commands as an operator types them, and the numbered roll-out of the pages.

They meet a real group with one forgotten member; the roll-out goes from its first line to its last.
"""

import json
import re
import shlex
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from rebal.groups.clients import assignor_of
from tests import pages
from tests.kafka.broker import Broker
from tests.kafka.members import Members, Rolling, properties_of
from tests.live.obey import Process
from tests.live.obey_world import LiveWorld
from tests.live_support.rollout import LISTS, REBAL, Shell, Terminal
from tests.pages import Example

MIXED = ["cooperative-sticky", "range"]


@pytest.fixture
def shell(tmp_path: Path, kafka41: Broker) -> Shell:
    return Shell(tmp_path, kafka41)


@pytest.fixture
def forgotten(kafka41: Broker, members: Members, group_id: str, topic_name: str) -> Rolling:
    """Bounce 1 done on two of three Java members; app-2 was forgotten. The log was on."""
    service = Rolling(kafka41, members, group_id, topic_name, partitions=8, software="java-2.8.2")
    with service.logged():
        service.begin(["app-0", "app-1", "app-2"], ["range"])
        for name in ("app-0", "app-1"):
            service.restart(name, MIXED)
    return service


def test_commands_on_a_live_group_or_a_saved_snapshot_leave_the_group_unchanged(
    shell: Shell, forgotten: Rolling, group_id: str, kafka41: Broker
) -> None:
    def seen() -> list[tuple[str | None, int | None, int]]:
        running = forgotten.running.values()
        return [(one.member_id, one.generation, len(one.events)) for one in running]

    before, quiet = seen(), kafka41.coordinator_log()
    for command, *probe in (("inspect", "--probe"), ("doctor",), ("plan-upgrade", "--probe")):
        assert shell(command, group_id, *probe, code=0)
    log = str(kafka41.request_log_path)
    live = shell.json("plan-upgrade", group_id, "--request-log", log, code=0)
    first, second = live["steps"]
    assert first["to_do"] == [forgotten.running["app-2"].member_id]
    assert set(first["done"]) == {forgotten.running[n].member_id for n in ("app-0", "app-1")}
    assert second["precondition_holds"] == "no"

    shell("inspect", group_id, "--request-log", log, "--save", code=0)
    (saved,) = shell.folder.glob("*.rebal.yaml")
    again = shell.json("plan-upgrade", code=0)
    assert [step["to_do"] for step in again["steps"]] == [first["to_do"], second["to_do"]]

    for words in (["--snapshot", saved.name], []):
        answer = shell.json("simulate", "--assignor", "cooperative-sticky", *words, code=0)
        assert answer["assignor"] == "cooperative-sticky"
    screen = shell("simulate", "--assignor", "cooperative-sticky", group_id, code=0)
    assert "app-2" in screen
    assert seen() == before
    log_lines = kafka41.coordinator_log().removeprefix(quiet)
    assert group_id not in log_lines


@pytest.fixture
def terminal(tmp_path: Path, kafka41: Broker) -> Terminal:
    return Terminal(tmp_path, kafka41)


@pytest.fixture
def hostile(kafka41: Broker, members: Members, group_id: str, topic_name: str) -> Rolling:
    """Two Java members of a group whose name is a trap for a shell; app-1 was forgotten."""
    name = f'-it\'s $HOME; `touch {group_id}` "{group_id}"'
    service = Rolling(kafka41, members, name, topic_name, partitions=4, software="java-3.9.1")
    service.place("app-0", MIXED)
    service.place("app-1", ["range"])
    service.settle()
    return service


def commands_of(plan: dict[str, Any]) -> Iterator[str]:
    """Every command of a plan in JSON, each once."""
    found = [step["gate"]["command"] for step in plan["steps"]]
    for part in (*plan["steps"], *plan["findings"]):
        found += [one["line"] for one in part["commands"]]
    found += [one["command"] for one in (plan["advice"], *plan["withheld"])]
    yield from dict.fromkeys(line for line in found if line)


def test_every_printed_command_runs_as_it_is_printed(terminal: Terminal, hostile: Rolling) -> None:
    group, at = shlex.quote(hostile.group), terminal.broker.bootstrap
    first = terminal.last(f"rebal inspect -b {at} -X client.rack='a b' -- {group}")
    assert "--probe" in first
    second = terminal.last(first)
    assert second.startswith("rebal plan-upgrade ")
    made = json.loads(terminal.run(f"rebal plan-upgrade -b {at} --probe -o json -- {group}").stdout)
    assert made["group_id"] == hostile.group
    kept = json.loads(
        terminal.run(
            f"rebal plan-upgrade -b {at} --out 'my plan.yaml' --probe -o json -- {group}"
        ).stdout
    )
    lines = list(dict.fromkeys([second, *commands_of(made), *commands_of(kept)]))
    kinds = {tuple(line.split()[:2]) for line in lines}
    assert {("rebal", w) for w in ("verify", "plan-upgrade", "explain")} <= kinds
    assert any(line.startswith("kafka-configs.sh ") for line in lines)
    # A plan that has a journal is not planned anew over it.
    for line in sorted(lines, key=lambda each: each.startswith("rebal verify ")):
        terminal.run(line)
    # What verify, show and simulate print leads on, and so do the commands of an error.
    for begin in (
        "rebal verify 'my plan.yaml' --probe -b " + at,
        "rebal show 'my plan.yaml'",
        f"rebal simulate --assignor sticky -b {at} -- {group}",
        f"rebal doctor -b {at} -- {group}",
    ):
        following = terminal.last(begin)
        assert following.startswith("rebal "), begin
        terminal.run(following)
    anew = subprocess.run(
        [REBAL, "plan-upgrade", "-b", at, "--out", "my plan.yaml", "--", hostile.group],
        cwd=terminal.folder, capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert anew.returncode == 2
    terminal.run(anew.stderr.splitlines()[-1].strip())
    assert not [path for path in terminal.folder.iterdir() if path.name.startswith("rebal-")]
    assert sorted(path.name for path in terminal.folder.iterdir()) == [
        "bin", "my plan.yaml", "my plan.yaml.journal.jsonl",
    ], "no name was run as a command"  # fmt: skip


@pytest.mark.usefixtures("without_rights")
def test_printed_acl_commands_grant_access_and_secrets_come_from_the_environment(
    terminal: Terminal, hostile: Rolling
) -> None:
    broker, group = terminal.broker, shlex.quote(hostile.group)
    settings = broker.client_properties("SCRAM-SHA-256", "limited")
    variable, value = "REBAL_X_SASL_JAAS_CONFIG", settings.pop("sasl.jaas.config")
    given = [f"{key}={text}" for key, text in settings.items()] + [f"sasl.jaas.config={value}"]
    typed = f"{shlex.join(word for each in given for word in ('-X', each))} -- {group}"
    asked = terminal.run(f"rebal doctor -o json {typed}")
    assert value not in asked.stdout
    admin = broker.write_properties(
        "printed.properties", broker.client_properties("SCRAM-SHA-512", "admin")
    )
    granted = [row["grant"] for row in json.loads(asked.stdout)["rows"] if row["grant"]]
    described = [line for line in granted if "Describe " in line and "--group" in line]
    assert described
    # Whoever may grant has a file of their own.
    terminal.run(described[0].replace("ADMIN.properties", shlex.quote(str(admin))))
    screen = terminal.run(f"rebal doctor {typed}")
    assert f"set {variable}" in screen.stderr
    assert value not in screen.stdout + screen.stderr
    following = screen.stdout.rstrip().splitlines()[-1]
    line = following[following.index("rebal ") :]
    found = terminal.run(line, **{variable: value})
    assert "app-0" in found.stdout


@pytest.mark.story
def test_check_compares_a_change_of_configuration_files_with_the_live_group(
    shell: Shell, forgotten: Rolling, group_id: str, tmp_path: Path, kafka41: Broker
) -> None:
    """Only the live group, not the files, shows the forgotten member."""
    java = "org.apache.kafka.clients.consumer."
    classes = {name: f"{java}{name}Assignor" for name in ("CooperativeSticky", "Range")}
    for folder, names in (("old", classes), ("new", ["CooperativeSticky"])):
        (tmp_path / folder).mkdir()
        listed = ",".join(classes[name] for name in names)
        text = f"group.id={group_id}\npartition.assignment.strategy={listed}\n"
        (tmp_path / folder / "app.properties").write_text(text)
    assert "safe" in shell("check", "old", "new", code=0, REBAL_BOOTSTRAP="")
    assert "app-1, app-2" in shell("check", "old", "new", "--probe", code=4)
    log = str(kafka41.request_log_path)
    out = shell("check", "old", "new", "--request-log", log, code=3)
    assert "live group    the coordinator's list of app-2 has no cooperative-sticky" in out
    assert "safe" in shell("check", "new", "old", "--probe", code=0)


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
def test_the_documented_roll_out_finishes_by_the_printed_lines_alone(
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

    rollback, timeline = item(6)
    assert "restart " in reader.types(rollback)
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
