"""A group as a test wants it, without a broker."""

import json
import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from msgspec.structs import replace

from rebal.cli import app, output
from rebal.cli.files import save_snapshot
from rebal.groups.compact import Lag, Partitions
from rebal.groups.model import (
    AssignorList,
    Coordinator,
    Evidence,
    GroupSnapshot,
    Knowledge,
    Member,
    Software,
    Source,
    Subscription,
    Topic,
)
from rebal.inspectors.kafka import read
from rebal.inspectors.kafka.listing import GroupFailure
from tests.documents import checked
from tests.groups.observed import stable_group

NOW = datetime(2026, 11, 20, 9, 15, tzinfo=UTC)
SEEN = datetime(2026, 11, 20, 9, 12, tzinfo=UTC)
# Rich markup, an emoji code, escape sequences, C1 and a bidi override.
HOSTILE = "[red]boss[/red] :boom: \x1b[2J\x1b]0;owned\x07\x9b31m\u202eevil|`x`"


def flat(text: str) -> str:
    """Return the text with each run of blanks and line ends as one blank."""
    return " ".join(text.split())


class Said(NamedTuple):
    """What a command printed."""

    out: str
    err: str

    @property
    def body(self) -> Any:
        """The JSON document."""
        return json.loads(self.out)


Rebal = Callable[..., Said]


@pytest.fixture
def rebal(capsys: pytest.CaptureFixture[str]) -> Rebal:
    """Run a command line, which ends with this exit code, and return what it printed."""

    def run(*words: str, code: int = 0) -> Said:
        capsys.readouterr()
        assert app.run([*words]) == code
        return Said(*capsys.readouterr())

    return run


class Live:
    """Stands for the readers of a cluster: it answers with `groups`, and keeps each question."""

    def __init__(self) -> None:
        self.groups: dict[str, GroupSnapshot | GroupFailure] = {}
        self.unlisted: tuple[GroupFailure, ...] = ()
        self.selected: list[tuple[list[str], dict[str, Any]]] = []
        self.connections: list[Any] = []
        self.asked: list[tuple[list[str], dict[str, Any]]] = []

    def show(self, *answers: GroupSnapshot | GroupFailure) -> None:
        """Answer with these, and with those of before that have another name."""
        for one in answers:
            name = one.group_id if isinstance(one, GroupFailure) else one.group.group_id
            self.groups[str(name)] = one

    def select_groups(
        self, config: object, names: Sequence[str], *, match: str | None, all_groups: bool
    ) -> read.Selection:
        self.selected.append((list(names), {"match": match, "all_groups": all_groups}))
        every = [name for name in self.groups if match is None or re.fullmatch(match, name)]
        return read.Selection(group_ids=tuple(names or every), unlisted=self.unlisted)

    def read_groups(
        self, config: object, names: Sequence[str], *, coordinators: object = None, **more: Any
    ) -> list[GroupSnapshot | GroupFailure]:
        self.connections.append(config)
        self.asked.append((list(names), more))
        return [self.groups[name] for name in names]


@pytest.fixture
def live(monkeypatch: pytest.MonkeyPatch) -> Live:
    """A cluster without a group."""
    made = Live()
    monkeypatch.setattr(read, "select_groups", made.select_groups)
    monkeypatch.setattr(read, "read_groups", made.read_groups)
    return made


def exact(*names: str) -> AssignorList:
    return AssignorList(
        knowledge=Knowledge.EXACT,
        list=names,
        evidence=(Evidence(source=Source.REQUEST_LOG, at=SEEN, detail="JOIN_GROUP v9"),),
    )


def member(number: int, assignors: AssignorList, owned: str, **more: object) -> Member:
    fields: dict[str, object] = {
        "member_id": f"checkout-{number}-0000000{number}-0000-4000-8000-00000000000{number}",
        "client_id": f"checkout-{number}",
        "host": f"/10.0.0.{number}",
        "software": Software(family="java", name="apache-kafka-java", version="3.9.1"),
        "assignors": assignors,
        "subscription": Subscription(version=3, topics=("orders",), owned_partitions={}),
        "assignment": {"orders": Partitions.parse(owned)},
    }
    return Member(**{**fields, **more})


@pytest.fixture
def group() -> Callable[..., GroupSnapshot]:
    """Three members on [range], of whom one is known by its bounds only.

    By keyword the fields of the snapshot and of its group.
    """

    def make(**more: object) -> GroupSnapshot:
        bounded = AssignorList(knowledge=Knowledge.BOUNDED, at_least=("range",))
        fields: dict[str, object] = {
            "group_id": "checkout",
            "assignor": "range",
            "generation": 7,
            "coordinator": Coordinator(broker_id=2, host="kafka-2", port=9092),
            "captured_at": NOW,
            "captured_by": "rebal 0.1.0",
            "evidence": (Evidence(source=Source.DESCRIBE, at=NOW),),
            "members": (
                member(1, exact("cooperative-sticky", "range"), "0-3"),
                member(2, exact("range"), "4-7"),
                member(3, bounded, "8-11"),
            ),
            "topics": (Topic(name="orders", partitions=12),),
            "lag": tuple(
                Lag(topic="orders", partition=n, committed=100, end=100 + n) for n in range(12)
            ),
        }
        return stable_group(**{**fields, **more})

    return make


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder, which is the current one."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def saved(tmp_path: Path, group: Callable[..., GroupSnapshot]) -> str:
    """The file of the usual group."""
    return str(save_snapshot(group(), tmp_path))


@pytest.fixture
def librdkafka(group: Callable[..., GroupSnapshot]) -> tuple[Member, ...]:
    """The same members as ones of librdkafka, which cannot hold both assignors."""
    software = Software(family="librdkafka", name="confluent-kafka-python", version="2.6.0")
    return tuple(replace(member, software=software) for member in group().members)


@pytest.fixture(autouse=True)
def _documents_fit_their_schemas(monkeypatch: pytest.MonkeyPatch) -> None:
    """Check each document that a command prints; simulate's is complete only when it is printed."""
    write = output.envelope

    def envelope(kind: str, *more: Any) -> str:
        text = write(kind, *more)
        return text if kind in ("simulate", "test") else check(text)

    def check(text: str) -> str:
        checked(text, "json" if text.startswith("{") else "yaml")
        return text

    monkeypatch.setattr(output, "envelope", envelope)


@pytest.fixture(autouse=True)
def _no_habits_of_this_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Screens are compared as they are off a terminal, whatever the tester's shell exports."""
    for name in ("COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
