"""Client logs that a test writes, and what is read from logs."""

from collections.abc import Iterable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

from rebal.groups.evidence.observations import Joined
from rebal.inspectors.logs.client.reader import read_client_logs
from rebal.inspectors.logs.lines import LogReading

DATA = Path(__file__).parents[1] / "data"
COOP, RANGE = "cooperative-sticky", "range"
CLASSES = {
    RANGE: "org.apache.kafka.clients.consumer.RangeAssignor",
    COOP: "org.apache.kafka.clients.consumer.CooperativeStickyAssignor",
}
STAMP = "[2026-11-21 02:00:00,000] INFO"
JOINING = "(Re-)joining group"
_T = TypeVar("_T")


def read_clients(*logs: str | Iterable[str], **options: Any) -> LogReading:
    """Read a folder with these client logs, each a text or its lines."""
    with TemporaryDirectory() as folder:
        for number, log in enumerate(logs):
            text = log if isinstance(log, str) else "".join(f"{line}\n" for line in log)
            Path(folder, f"{number}.log").write_text(text)
        return read_client_logs([Path(folder)], **options)


def of_kind(reading: LogReading, kind: type[_T]) -> list[_T]:
    return [one for one in reading.observations if isinstance(one, kind)]


def lists(reading: LogReading) -> dict[str, tuple[str, ...]]:
    """The list that is shown of each member id."""
    return {one.member_id: one.list for one in of_kind(reading, Joined)}


class Pod:
    """A client's lines, as kafka-clients 2.8.2, 3.1.2 and 3.9.1 print them.

    Its consumer is called `consumer-g-1`, as Java names that of each pod. An assignor that is not
    Kafka's is its class.
    """

    def __init__(
        self,
        name: str,
        *assignors: str,
        version: str = "3.9.1",
        static: str = "",
        elected: str = "range",
    ) -> None:
        self.name = name
        self.list = assignors
        self.version = version
        self.static = static
        self.elected = elected
        self.ids = 0
        instance = f"instanceId={static}, " if static else ""
        self._who = f"{STAMP} [Consumer {instance}clientId=consumer-g-1, groupId=g] "
        self._release = tuple(int(part) for part in version.split(".")[:2])

    @property
    def member_id(self) -> str:
        return f"{self.name}-{self.ids}"

    def config(self) -> str:
        classes = ", ".join(f"class {CLASSES.get(name, name)}" for name in self.list)
        return (
            f"{STAMP} ConsumerConfig values: \n\tclient.id = consumer-g-1\n\tgroup.id = g\n"
            f"\tgroup.instance.id = {self.static or 'null'}\n"
            f"\tpartition.assignment.strategy = [{classes}]\n\n"
            f"{STAMP} Kafka version: {self.version}"
        )

    def _said(self, *texts: str) -> list[str]:
        return [f"{self._who}{text}" for text in texts]

    def start(self) -> list[str]:
        return [self.config(), *self._said(JOINING), *self.given(), self.joined()]

    def given(self) -> list[str]:
        self.ids += 1
        if self.static:
            return []
        told = f": {self.member_id}" if self._release >= (3, 3) else ""
        reason = f"Request joining group due to: need to re-join with the given member-id{told}"
        return self._said(*([reason] if self._release >= (3, 0) else []), JOINING)

    def joined(self) -> str:
        return (
            f"{self._who}Successfully joined group with generation Generation{{generationId=7, "
            f"memberId='{self.member_id}', protocol='{self.elected}'}}"
        )

    def rejoin(self) -> list[str]:
        old = "Attempt to heartbeat failed since group is rebalancing"
        new = "Request joining group due to: group is already rebalancing"
        return [*self._said(new if self._release >= (3, 0) else old, JOINING), self.joined()]

    def lose(self) -> list[str]:
        """The session expired: the next id."""
        lost = (
            f"Attempt to heartbeat with Generation{{generationId=7, memberId='{self.member_id}', "
            "protocol='range'} and group instance id Optional.empty failed due to "
            "UNKNOWN_MEMBER_ID, resetting generation"
        )
        what = "UNKNOWN_MEMBER_ID from HEARTBEAT response"
        told = [f"Resetting generation after encountering {what} and requesting re-join"]
        if self._release >= (3, 0):
            new = ("Resetting generation and member id", "Request joining group")
            told = [f"{each} due to: encountered {what}" for each in new]
        return [*self._said(lost, *told), *self.given(), self.joined()]

    def close(self) -> list[str]:
        leave = (
            f"Member {self.member_id} sending LeaveGroup request to coordinator "
            "h:9092 (id: 2147483646 rack: null) due to the consumer is being closed"
        )
        new = "Resetting generation and member id due to: consumer pro-actively leaving the group"
        told = (*([] if self.static else [leave]), *([] if self._release < (3, 0) else [new]))
        end = f"{STAMP} App info kafka.consumer for consumer-g-1 unregistered"
        return [*self._said(*told), end]

    def rejected(self) -> list[str]:
        why = (
            "JoinGroup failed due to fatal error: The group member's supported protocols are "
            "incompatible with those of existing members"
        )
        return [self.config(), *self._said(JOINING, why)]
