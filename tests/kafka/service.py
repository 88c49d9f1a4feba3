"""A service that is rolled out as a plan says, and what `rebal` says of it: `Service`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rebal.cli import app
from tests.documents import checked
from tests.kafka.broker import Broker
from tests.kafka.members import Member, Members
from tests.kafka.rolling import Rolling

PARTITIONS = 6
FAMILIES = {"java": "java", "confluent-kafka": "librdkafka", "kafka-python": "kafka-python"}
FORMATS = {
    "java": "Java properties",
    "librdkafka": "librdkafka properties",
    "kafka-python": "Python",
    "aiokafka": "Python",
    "kafkajs": "JS",
}


class Service(Rolling):
    """A group whose members are named after their client, and what rebal says of it."""

    def __init__(
        self,
        broker: Broker,
        members: Members,
        group: str,
        topic: str,
        *,
        folder: Path,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        super().__init__(broker, members, group, topic, partitions=PARTITIONS)
        self.file = folder / "plan.yaml"
        self.capsys = capsys

    def start_as(self, name: str, step: dict[str, Any]) -> None:
        """Start `name` with the step's own text for its client (Go's with the step's list)."""
        settings = settings_of(step, name)
        assignors = [] if settings else step["target_list"]
        self.running[name] = self.start(name, assignors, settings=settings)
        self.lists[name] = step["target_list"]

    def rebal(self, *words: str, log: bool = True) -> dict[str, Any]:
        more = ["--request-log", str(self.broker.request_log_path)] if log else []
        return answer(self.broker, self.capsys, *words, *more)

    def plan(self, *more: str, log: bool = True) -> dict[str, Any]:
        words = ["plan-upgrade", self.group, "--probe", "--expect-members", str(len(self.running))]
        return self.rebal(*words, *more, log=log)

    def inspect(self, *words: str, log: bool = True) -> dict[str, Any]:
        (group,) = self.rebal("inspect", self.group, *words, log=log)["groups"]
        return dict(group)

    def verify(self, *words: str) -> dict[str, Any]:
        return self.rebal("verify", str(self.file), "--probe", *words)

    def verify_unlogged(self, *words: str) -> dict[str, Any]:
        """With a journal of its own: it never learns what a log said."""
        journal = str(self.file.with_suffix(".unlogged.jsonl"))
        return self.rebal("verify", str(self.file), "--journal", journal, *words, log=False)

    def look_unlogged(self, done: set[str], gate: int) -> None:
        """Without the log verify says less of the step than this, and nothing else."""
        told = self.verify_unlogged()
        assert named(told, "yes") <= done
        assert not named(told, "no") & done
        assert told["exit_code"] in (gate, 4), told

    def runs(self) -> dict[str, str]:
        """What inspect says that each member runs."""
        return {m["client_id"]: m["rebalance_protocol"] for m in self.inspect()["members"]}

    def carry_out(self, step: dict[str, Any], order: list[str], *words: str) -> None:
        """Each member gets the step's list, by the step's own text where the client reads it.

        verify (with these further words) names the truth after each restart. Without the log it
        says less, and nothing else.
        """
        wanted = step["target_list"]
        for name in order:
            self.running[name].stop()
            self.start_as(name, step)
            self.settle()
            told = self.verify(*words)
            truth = {name for name, names in self.lists.items() if names == wanted}
            assert named(told, "yes") == truth
            assert named(told, "no") == set(self.lists) - truth
            assert (told["step"], told["dangers"]) == (step["id"], [])
            gate = 0 if len(truth) == len(self.lists) else 4
            assert told["exit_code"] == gate, told
            self.look_unlogged(truth, gate)


def answer(
    broker: Broker, capsys: pytest.CaptureFixture[str], command: str, *words: str
) -> dict[str, Any]:
    """What a command says of this broker's groups in JSON, whose exit code is the command's."""
    code = app.run([command, *words, "-b", broker.bootstrap, "-o", "json"])
    told = capsys.readouterr()
    assert told.out, told.err
    assert "fault of rebal" not in told.err
    body: dict[str, Any] = checked(told.out)
    assert body["exit_code"] == code
    return body


def named(body: dict[str, Any], word: str) -> set[str]:
    """The members of whom a verify says `word` (yes, no, cannot tell)."""
    return {member["name"] for member in body["members"] if member["done"] == word}


def gave_up(member: Member, since: int) -> set[tuple[str, int]]:
    """What it gave up from its event number `since` on."""
    events = [event for event in member.events[since:] if event.kind in ("revoked", "lost")]
    return set().union(*(event.partitions for event in events))


def texts(step: dict[str, Any], family: str) -> str:
    return "\n".join(one["text"] for one in step["config"] if one["family"] == family)


def settings_of(step: dict[str, Any], name: str) -> dict[str, str]:
    """What the step's own text sets for the client of the member `name`.

    Properties are read as they are, Python's and JavaScript's text is run by the member itself.
    Empty for Go, whose text would have to be compiled.
    """
    software = name.rpartition("-")[0]
    family = next((FAMILIES[key] for key in FAMILIES if software.startswith(key)), software)
    if family not in FORMATS:
        return {}
    (text,) = (
        one["text"]
        for one in step["config"]
        if (one["family"], one["format"]) == (family, FORMATS[family])
    )
    if not FORMATS[family].endswith("properties"):
        return {"plan.text": text.encode().hex()}
    return dict(line.split("=", 1) for line in text.splitlines() if not line.startswith("#"))
