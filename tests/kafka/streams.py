"""Kafka Streams programs as members: `StreamsHost(version)` is a JVM with any number of them.

Each is a program of its own (application id, process id, state folder) with one stream thread, so
one member. Their events are those of members.py; `joined` comes from clients of 2.5 and later.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar

from tests.kafka import jars
from tests.kafka.administration import Administration
from tests.kafka.members import JavaHost, Member


class StreamsHost(JavaHost):
    """A JVM with Streams programs of one version."""

    program: ClassVar[str] = "StreamsMember"
    library: ClassVar[str] = "streams"
    oldest: ClassVar[str] = jars.STREAMS_VERSIONS[0]

    def __init__(self, version: str, folder: Path) -> None:
        self._folder = folder
        super().__init__(version, folder)

    def launch(
        self,
        broker: Administration,
        name: str,
        application: str,
        topics: Sequence[str],
        settings: Mapping[str, str] | None = None,
    ) -> Member:
        """Start one program; `settings` (upgrade.from, …) win. Returns before it has joined.

        The session timeout is short: a program that is stopped leaves only when it is over.
        """
        member = self.fresh(name)
        made = {
            "bootstrap.servers": broker.bootstrap,
            "application.id": application,
            "client.id": name,
            "topics": ",".join(topics),
            "state.dir": str(self._folder / f"state-{member}"),
            "auto.offset.reset": "earliest",
            "commit.interval.ms": "500",
            "session.timeout.ms": "1500",
            "heartbeat.interval.ms": "200",
            **(settings or {}),
        }
        self.begin(member, made)
        return Member(self, member, name, application, made, None)
