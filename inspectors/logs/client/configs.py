"""Configuration blocks that one program printed, and the wire names of custom assignor classes."""

import re
from collections.abc import Sequence
from datetime import datetime
from enum import Enum
from typing import Final

from rebal.groups.clients import assignor_of, worker_list
from rebal.groups.model import Record
from rebal.inspectors.logs.lines import Block

# Other settings are dropped: they may contain secrets of custom components.
_KEPT: Final = (
    *("group.id", "client.id", "group.instance.id", "group.protocol", "connect.protocol"),
    *("partition.assignment.strategy", "application.id", "upgrade.from"),
    *("session.timeout.ms", "max.poll.interval.ms", "rebalance.timeout.ms"),
    "scheduled.rebalance.max.delay.ms",
)
_UNSET: Final = ("", "null")
# Kinds of a block: a consumer's, a Connect worker's, a Streams program's. With both settings it was
# printed to its end.
NEEDED: Final = {
    "Consumer": ("group.id", "partition.assignment.strategy"),
    "Distributed": ("group.id", "connect.protocol"),
    "Streams": ("application.id", "upgrade.from"),
}
# Clients before 2.6 print an unset client.id as empty and then use consumer-1, -2, …, since 2.4
# consumer-GROUP-1, …; Connect workers of any version use connect-1 or connect-HOST:PORT.
GENERATED: Final = re.compile(r"consumer-.+|connect-\S+")


class Config(Record, frozen=True, kw_only=True):
    """The configuration of one consumer or Connect worker, as its program printed it.

    `classes` are the assignors' class names, or the names that a worker offers. Timeouts are in
    milliseconds. `upgrade_from` is the upgrade.from of the Streams program that built the consumer
    (empty: not set; None: not printed). `version` is the client library's, if it is certain.
    """

    group_id: str
    client_id: str
    instance_id: str | None
    classes: tuple[str, ...]
    printed_at: datetime | None
    group_protocol: str | None
    session_timeout_ms: int | None = None
    rebalance_timeout_ms: int | None = None
    held_back_ms: int | None = None
    worker: bool = False
    upgrade_from: str | None = None
    version: str | None = None


class Lookup(Enum):
    """The reasons why no configuration could be tied to a member."""

    NONE = "none"
    AMBIGUOUS = "ambiguous"


class Configs:
    """The configuration blocks of one program, in order.

    `block` is the begin of the block that is being read. `spoiled` is True if the last one was
    incomplete: a member may have been built with it.
    """

    def __init__(self) -> None:
        self.spoiled = False
        self.block: Block | None = None
        self._settings: dict[str, str] | None = None
        self._streams: list[dict[str, str]] = []
        self._last_key = ""

    def begin(self, block: Block) -> None:
        """Start a new block; the next settings belong to it."""
        self.block, self._settings, self._last_key = block, {}, ""

    def add(self, key: str, value: str) -> None:
        """Add one setting to the block; if the order of settings breaks, two blocks were mixed."""
        if key <= self._last_key:
            self._settings = None
        self._last_key = key
        if self._settings is not None and key in _KEPT:
            self._settings[key] = value

    def end(self) -> Config | None:
        """Return the finished block as a configuration; None if it is incomplete or not of a group
        member.
        """
        begun, self.block = self.block, None
        block, self._settings = self._settings, None
        needed = NEEDED.get(begun.of) if begun is not None else None
        self.spoiled = needed is not None and (block is None or not block.keys() >= set(needed))
        if begun is None or block is None or needed is None or self.spoiled:
            return None
        if begun.of == "Streams":
            self._streams.append(block)
            return None
        if block["group.id"] in _UNSET:
            return None
        instance_id = block.get("group.instance.id")
        worker = begun.of == "Distributed"
        listed = block[needed[1]].removeprefix("[").removesuffix("]")
        if worker:
            listed = ",".join(worker_list(listed) or ())
        return Config(
            group_id=block["group.id"],
            client_id=block.get("client.id", ""),
            instance_id=None if instance_id in _UNSET else instance_id,
            classes=tuple(
                name
                for part in listed.split(",")
                if (name := part.strip().removeprefix("class ").strip())
            ),
            printed_at=begun.stamp.at if begun.stamp else None,
            group_protocol=block.get("group.protocol"),
            session_timeout_ms=_milliseconds(block.get("session.timeout.ms")),
            rebalance_timeout_ms=_milliseconds(
                block.get("rebalance.timeout.ms" if worker else "max.poll.interval.ms")
            ),
            held_back_ms=_milliseconds(block.get("scheduled.rebalance.max.delay.ms")),
            worker=worker,
            upgrade_from=self._upgrade_from(block["group.id"], block.get("client.id", "")),
        )

    def _upgrade_from(self, group_id: str, client_id: str) -> str | None:
        """Return the setting of the newest program whose threads have this client id.

        A Streams program builds its consumers right after it prints its own configuration.
        """
        # A thread's client id is made from the program's.
        thread = re.fullmatch(r"(.+)-StreamThread-\d+-consumer", client_id)
        name = thread[1] if thread is not None else ""
        for block in reversed(self._streams if name else ()):
            own = block.get("client.id", "")
            fits = name == own or (not own and name.startswith(f"{group_id}-"))
            if block["application.id"] == group_id and fits:
                return "" if block["upgrade.from"] in _UNSET else block["upgrade.from"]
        return None


def _milliseconds(value: str | None) -> int | None:
    return int(value) if value and value.isdecimal() and len(value) < 11 else None


class ClassNames:
    """The wire names of custom assignor classes; a class has one name in all logs.

    A configuration prints classes, and a join prints the name of the elected assignor. If the name
    of just one class in the list is unknown, and the elected name belongs to no other class of the
    list, it is the name of that class.
    """

    def __init__(self) -> None:
        self._learned: dict[str, set[str]] = {}

    def learn(self, classes: Sequence[str], elected: str | None) -> None:
        """Record a join of a member with these classes, and the assignor that was elected."""
        own = [each for each in classes if assignor_of(each) is None]
        if elected and len(own) == 1 and elected not in map(assignor_of, classes):
            self._learned.setdefault(own[0], set()).add(elected)

    def names(self, classes: Sequence[str]) -> tuple[str, ...] | None:
        """Return the assignor list on the wire; None if a class has no name, or two."""
        sure = {own: names for own, names in self._learned.items() if len(names) == 1}
        found = [assignor_of(each) or next(iter(sure.get(each, ())), None) for each in classes]
        return None if None in found else tuple(name for name in found if name is not None)


def own_classes(classes: Sequence[str]) -> tuple[str, ...]:
    """Return `classes` if one of them is custom, else an empty tuple, because names are enough
    then.
    """
    return tuple(classes) if any(assignor_of(each) is None for each in classes) else ()
