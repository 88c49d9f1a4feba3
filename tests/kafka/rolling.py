"""A group whose members are restarted one after the other, as a roll-out does it (`Rolling`), what
`rebal` says of it in JSON, and settings as its plans write them.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from typing import Any

import pytest

from rebal.cli import app
from tests.documents import checked
from tests.kafka.broker import Administration
from tests.kafka.members import Member, Members, wait_assigned


def answer(
    broker: Administration, capsys: pytest.CaptureFixture[str], command: str, *words: str
) -> dict[str, Any]:
    """What a command says of this broker's groups in JSON, whose exit code is the command's."""
    code = app.run([command, *words, "-b", broker.bootstrap, "-o", "json"])
    told = capsys.readouterr()
    assert told.out, told.err
    assert "fault of rebal" not in told.err
    body: dict[str, Any] = checked(told.out)
    assert body["exit_code"] == code
    return body


def inspect(broker: Administration, group: str, *options: str) -> dict[str, Any]:
    """The one group in `rebal inspect`'s JSON."""
    with redirect_stdout(io.StringIO()) as out, redirect_stderr(io.StringIO()) as err:
        code = app.run(["inspect", group, "-o", "json", "-b", broker.bootstrap, *options])
    assert code in (0, 3, 4), err.getvalue()
    answer = json.loads(out.getvalue())
    assert answer["schema"] == "rebal.inspect/1"
    (only,) = answer["groups"]
    return only


def named(body: dict[str, Any], word: str) -> set[str]:
    """The members of whom a verify says `word` (yes, no, cannot tell)."""
    return {member["name"] for member in body["members"] if member["done"] == word}


def properties_of(text: str) -> dict[str, str]:
    """The settings of a properties text, which may have comments."""
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return dict(line.split("=", 1) for line in lines)


class Rolling:
    """The running members of a new topic's group by client id, and the list of each.

    An empty list is the client's own default; `ever` has all that were started, in that order.
    `settle`, and what ends with it, waits until the group is at rest: all partitions have their
    owner, and the broker calls the group Stable.
    """

    quiet = 0.3
    """Seconds in which nobody says anything when the group is at rest."""

    def __init__(
        self,
        broker: Administration,
        members: Members,
        group: str,
        topic: str,
        *,
        partitions: int = 6,
        software: str | None = None,
    ) -> None:
        """`software` of all members; None: that in its name, `franz-go` in `franz-go-0`."""
        self.broker = broker
        self.group = group
        self.topic = broker.create_topic(topic, partitions)
        self.partitions = partitions
        self.running: dict[str, Member] = {}
        self.ever: list[tuple[str, Member]] = []
        self.lists: dict[str, list[str]] = {}
        self._members = members
        self._software = software
        self._options: dict[str, dict[str, Any]] = {}

    def start(
        self, name: str, assignors: Sequence[str], *, software: str | None = None, **options: Any
    ) -> Member:
        """One more process, which has no place among the running ones. Returns at once."""
        member = self._members.start(
            software or self._software or name.rpartition("-")[0],
            self.broker, name, self.group, topics=[self.topic], assignors=assignors or None,
            **options,
        )  # fmt: skip
        self.ever.append((name, member))
        return member

    def place(self, name: str, assignors: list[str], **options: Any) -> None:
        """Start `name` as one of the running ones. Returns at once."""
        self.running[name] = self.start(name, assignors, **options)
        self.lists[name] = assignors
        self._options[name] = options

    def begin(self, names: Iterable[str], assignors: list[str], **options: Any) -> None:
        """Start these, all with one list."""
        for name in names:
            self.place(name, assignors, **options)
        self.settle()

    def restart(self, name: str, assignors: list[str]) -> None:
        """Stop `name` and start it as it was placed, but with this list."""
        self.running[name].stop()
        self.begin([name], assignors, **self._options.get(name, {}))

    def stop(self, name: str) -> None:
        """Stop `name`, which has no place any more. Returns when it has left."""
        self.running.pop(name).stop()
        self.lists.pop(name)

    def settle(self) -> None:
        running = list(self.running.values())
        wait_assigned(running, self.partitions, quiet=self.quiet)
        self.broker.wait_stable(self.group, len(running))

    def refuses(self, name: str, assignors: list[str], saying: str, **options: Any) -> None:
        """A newcomer with this list dies with these words, and the group goes on as it was."""
        newcomer = self.start(name, assignors, **options)
        newcomer.wait_for("error")
        assert saying in str(newcomer.error)
        newcomer.stop()
        self.settle()

    def errors(self) -> dict[str, str]:
        """What running members said of their failures."""
        return {name: member.error for name, member in self.running.items() if member.error}

    @contextmanager
    def logged(self) -> Iterator[None]:
        """With the broker's request log on."""
        self.broker.log_requests(True)
        try:
            yield
        finally:
            self.broker.log_requests(False)
