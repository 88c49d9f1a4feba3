"""Lines of a Java client's log: events of members and programs, and configuration blocks.

`ClassNames` learns the names that custom assignor classes have in JoinGroup requests.
"""

import re
from collections.abc import Sequence
from datetime import datetime
from enum import Enum
from sys import intern
from typing import Final, Literal, NamedTuple

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

    `classes` are the class names in a consumer's assignor list, or the assignor names that a worker
    offers. Timeouts are in milliseconds; `held_back_ms` is scheduled.rebalance.max.delay.ms.
    `upgrade_from` is the upgrade.from of the Streams program that built the consumer (empty: not
    set; None: not printed). `version` is the client library's, if it is certain.
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
    """The reason why no configuration could be tied to a member.

    NONE: no configuration was printed for its client. AMBIGUOUS: several clients may be the member.
    """

    NONE = "none"
    AMBIGUOUS = "ambiguous"


class Configs:
    """The reader of the configuration blocks that one program printed, in order.

    `block` is the first line of the block that is being read (None: no block is). `spoiled` is True
    if the last block was incomplete; a member may run with that configuration.
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
        """Add one setting to the block.

        Kafka prints settings in alphabetical order. If the order breaks, two blocks were mixed, and
        the block is incomplete.
        """
        if key <= self._last_key:
            self._settings = None
        self._last_key = key
        if self._settings is not None and key in _KEPT:
            self._settings[key] = value

    def end(self) -> Config | None:
        """End the block that is being read, and return it as a configuration.

        None: the block is incomplete, is not that of a group member, or there is none.
        """
        begun, self.block = self.block, None
        block, self._settings = self._settings, None
        needed = NEEDED.get(begun.of) if begun is not None else None
        self.spoiled = needed is not None and (
            block is None
            or not block.keys() >= set(needed)
            # A list that was cut off looks like a shorter one.
            or not block.get("partition.assignment.strategy", "]").endswith("]")
        )
        if begun is None or block is None or needed is None or self.spoiled:
            return None
        if begun.of == "Streams":
            self._streams.append(block)
        if begun.of == "Streams" or block["group.id"] in _UNSET:
            return None
        instance_id = block.get("group.instance.id")
        worker = begun.of == "Distributed"
        listed = block[needed[1]].removeprefix("[").removesuffix("]")
        named = (worker_list(listed) or ()) if worker else listed.split(",")
        return Config(
            group_id=block["group.id"],
            client_id=block.get("client.id", ""),
            instance_id=None if instance_id in _UNSET else instance_id,
            classes=tuple(
                name for part in named if (name := part.strip().removeprefix("class ").strip())
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
        """Return the setting upgrade.from of the Streams program that built this consumer.

        Empty: not set. None: no such program printed its configuration. A Streams program builds
        its consumers right after it prints its own configuration, so the newest one with this
        client id counts.
        """
        # A thread's client id is made from the program's.
        thread = re.fullmatch(r"(.+)-StreamThread-\d+-consumer", client_id)
        name = thread[1] if thread is not None else ""
        for block in reversed(self._streams if name else ()):
            own = block.get("client.id", "")
            if block["application.id"] == group_id and (
                name == own or (not own and name.startswith(f"{group_id}-"))
            ):
                return "" if block["upgrade.from"] in _UNSET else block["upgrade.from"]
        return None


def _milliseconds(value: str | None) -> int | None:
    return int(value) if value and value.isdecimal() and len(value) < 11 else None


class ClassNames:
    """The names in JoinGroup of custom assignor classes; a class has one name in all logs.

    A configuration prints classes, and a join prints the name of the elected assignor. If the name
    of just one class in the list is unknown, and the elected name belongs to no other class of the
    list, it is the name of that class.
    """

    def __init__(self) -> None:
        self._learned: dict[str, set[str]] = {}

    def learn(self, classes: Sequence[str], elected: str | None) -> None:
        """Learn a custom class's name from a join at which the assignor `elected` was elected.

        `classes` is the assignor list of the member that joined, as its configuration prints it.
        """
        own = [each for each in classes if assignor_of(each) is None]
        if elected and len(own) == 1 and elected not in map(assignor_of, classes):
            self._learned.setdefault(own[0], set()).add(elected)

    def names(self, classes: Sequence[str]) -> tuple[str, ...] | None:
        """Return the assignor names of these classes, in order.

        None: the name of a class is unknown, or contradictory.
        """
        sure = {own: names for own, names in self._learned.items() if len(names) == 1}
        found = [assignor_of(each) or next(iter(sure.get(each, ())), None) for each in classes]
        return None if None in found else tuple(name for name in found if name is not None)


def own_classes(classes: Sequence[str]) -> tuple[str, ...]:
    """Return `classes` if one of them is a custom assignor class, else an empty tuple."""
    return tuple(classes) if any(assignor_of(each) is None for each in classes) else ()


_CONTEXT: Final = (
    r"\[(?:Consumer|(?P<worker>Worker)) (?:instanceId=(?P<instance_id>.*?), )?"
    r"clientId=(?P<client_id>.*?), groupId=(?P<group_id>.*?)\] "
)
WANTED_TEXT: Final = re.compile(
    r"Config values:|Kafka (?:version|startTimeMs)|groupId=|App info|Attempt to join group"
    r"|InconsistentGroupProtocolException|rebalancing (?:protocol is )?enabled now"
)
WANTED: Final = re.compile(WANTED_TEXT.pattern.encode())


Kind = Literal[
    "config",
    "spoiled",
    "given",
    "joining",
    "joined",
    "rejected",
    "left",
    "fatal",
    "failing",
    "lost",
    "member",
    "rejoining",
    "reset",
    "closed",
    "leader",
    "subscribed",
    "cluster",
    "built",
    "version",
    "started",
    "refused",
]

# The first row that matches decides. A named group is a field of `ClientLine`.
_OF_PROGRAMS: Final[tuple[tuple[Kind, str], ...]] = (
    # Printed since 2.4.
    (
        "built",
        r"\bstream-thread \[(?P<client_id>.*?)\] (?P<value>Eager|Cooperative) rebalancing "
        r"(?:protocol is )?enabled now(?: for upgrade from (?P<upgrade_from>\S+)\.x)?",
    ),
    ("version", r"\bKafka version ?: (?P<value>[\w.+-]+)"),
    ("started", r"\bKafka startTimeMs: (?P<value>\d{12,14})\b"),
    ("closed", r"App info kafka\.(?:consumer|connect) for (?P<client_id>.*) unregistered"),
)
# After `_CONTEXT`.
_OF_CLIENTS: Final[tuple[tuple[Kind, str], ...]] = (
    (
        "joined",
        r"Successfully joined group with generation .*?Generation\{"
        r"generationId=(?P<generation_id>-?\d+), memberId='(?P<member_id>.*)', "
        r"protocol='(?P<assignor>.*)'\}",
    ),
    # A static leader that rejoins prints no such line. One that is cut off names no member.
    (
        "leader",
        r"Finished assignment for group at generation (?P<generation_id>\d+): "
        r"(?:\{(?P<member_list>.*\))\})?",
    ),
    ("subscribed", r"Subscribed to (?:topic|pattern)"),
    (
        "left",
        r"Member (?P<member_id>\S.*?) sending LeaveGroup request to coordinator .*?"
        r"(?: due to (?P<reason>.*))?$",
    ),
    # A member of the consumer protocol (KIP-848) chooses its own id.
    ("given", r"Member (?P<member_id>\S+) with epoch -?\d+ transitioned from \w+ to JOINING"),
    (
        "joined",
        r"Member (?P<member_id>\S+) with epoch \d+ transitioned from JOINING to "
        r"(?P<value>RECONCILING|STABLE)",
    ),
    # Why it stops stands in an earlier line.
    ("left", r"Member (?P<member_id>\S+) with epoch -?\d+ transitioned from \w+ to LEAVING"),
    ("fatal", r"Member (?P<member_id>\S+) with epoch -?\d+ transitioned from \w+ to FATAL"),
    (
        "failing",
        r"\w+HeartbeatRequest failed due to (?:unexpected error )?(?P<reason>[A-Z_]+\b"
        r"|unsupported version|group authorization failed|unreleased instance id)",
    ),
    # The last named group is the error (`JOIN_REJECTIONS`).
    (
        "rejected",
        r"(?:JoinGroup|Attempt to join group) failed(?: due to fatal error)?: (?:"
        r"(?P<INCONSISTENT_GROUP_PROTOCOL>"
        r"The group member's supported protocols are incompatible)"
        r"|(?P<INVALID_SESSION_TIMEOUT>The session timeout is not)"
        r"|(?P<GROUP_MAX_SIZE_REACHED>"
        r"The (?:consumer )?group has reached its max(?:imum)? size))",
    ),
    # In the answer to a join, a sync or, by its last words, a heartbeat.
    (
        "rejected",
        r"(?P<FENCED_INSTANCE_ID>(?:JoinGroup|SyncGroup|Attempt to join group) .*?group instance "
        r"id .* fenced|Caught fenced group\.instance\.id)",
    ),
    ("cluster", r"Cluster ID: (?P<cluster_id>[\w-]+)"),
    (
        "given",
        r"Request joining group due to: need to re-join with the given member-id"
        r'(?:: (?P<member_id>[^\s"\\]+))?',
    ),
    # With both, the line names the member id that is no longer valid.
    (
        "lost",
        r"Attempt to heartbeat with Generation\{generationId=-?\d+, "
        r"memberId='(?P<member_id>.+?)', .*resetting generation",
    ),
    ("reset", r"Attempt to heartbeat failed for since member id .* is not valid"),
    ("reset", r"Resetting generation (?:and member id )?(?:due to: |after )encounter"),
    ("joining", r"\(Re-\)joining group"),
    # Only a client that is a member of the group prints one of these.
    (
        "rejoining",
        r"(?:Attempt to heartbeat failed since group is rebalancing"
        r"|Request joining group due to: (?:group is already rebalancing"
        r"|cached metadata has changed|need to revoke partitions|encountered )"
        r"|Requesting to re-join the group and trigger rebalance)",
    ),
    (
        "member",
        r"(?:(?:Revoke previously|Lost previously|Giving away all|Adding newly) assigned "
        r"partitions|Successfully synced group|Finished assignment for group"
        r"|Notifying assignor about)",
    ),
    # Clients before 2.6.1 (KAFKA-10134).
    ("joined", r"Successfully joined group with generation (?P<generation_id>\d+)\b"),
)
_WITHOUT_CONTEXT: Final[tuple[tuple[Kind, str], ...]] = (
    # Clients before 1.0 print no client id.
    (
        "refused",
        r"Attempt to join group (?P<group_id>\S+) failed due to fatal error: "
        r"The group member's supported protocols are incompatible",
    ),
    ("refused", r"InconsistentGroupProtocolException"),
)
_PATTERNS: Final = tuple(
    (kind, re.compile(pattern))
    for kind, pattern in (
        *_OF_PROGRAMS,
        *((kind, _CONTEXT + pattern) for kind, pattern in _OF_CLIENTS),
        *_WITHOUT_CONTEXT,
    )
)


class ClientLine(NamedTuple):
    """One line about a client of a group, or about the program that wrote it.

    `kind` is the meaning of the line. Kinds of lines about a client:

    - config: its configuration (`config`); spoiled: an incomplete one of an unknown client.
    - subscribed: its first line after its configuration.
    - cluster: the cluster that it is connected to.
    - given: the coordinator gave it a member id (empty: releases 3.0 to 3.2 do not print it); with
      KIP-848, it chose one.
    - joining: it sends a join; rejoining: it is about to rejoin.
    - joined: its join succeeded. Clients before 2.6.1 print no member id. With KIP-848, `value` is
      the new state of the member.
    - rejected: its join was rejected for good; `error` is Kafka's name of the error.
    - failing: a heartbeat of KIP-848 failed, for this `reason`; fatal: such a member stopped for
      good.
    - member: a line that only a member prints.
    - leader: the group leader's line about the assignment of a new generation; `member_list` has
      all member ids in it (empty: the line was cut off).
    - left: it left by request, for this `reason`. `ProgramClients` gets this event as lost, unless
      the reason is that the consumer was closed.
    - lost: this member id is no longer valid; reset: the same, but the id is not printed.
    - closed: a consumer object was closed; a later one with the same client id is another object.
      Its group is not printed (empty).

    Kinds of lines about the program:

    - version: the version of its client library (`value`).
    - built: a Streams consumer was built for the rebalance protocol `value` (Eager, Cooperative).
    - started: `value` is the time of the line in milliseconds since 1970.
    - refused: a client was rejected; the line names at most its group.
    """

    kind: Kind
    group_id: str = ""
    client_id: str = ""
    instance_id: str | None = None
    member_id: str = ""
    worker: bool = False
    config: Config | None = None
    generation_id: int | None = None
    assignor: str | None = None
    reason: str | None = None
    error: str = ""
    cluster_id: str = ""
    member_list: tuple[str, ...] = ()
    upgrade_from: str | None = None
    value: str = ""


def event_of(text: str) -> ClientLine | None:
    """Return the event that a log line shows; None for a line of a configuration, or any other."""
    for kind, pattern in _PATTERNS:
        if match := pattern.search(text):
            fields = match.groupdict()
            number = fields.get("generation_id") or ""
            return ClientLine(
                kind=kind,
                group_id=fields.get("group_id", ""),
                client_id=fields.get("client_id", ""),
                instance_id=fields.get("instance_id"),
                member_id=fields.get("member_id") or "",
                worker=fields.get("worker") is not None,
                generation_id=int(number) if 0 < len(number) < 12 else None,
                assignor=fields.get("assignor"),
                reason=fields.get("reason"),
                error=(match.lastgroup or "") if kind == "rejected" else "",
                cluster_id=fields.get("cluster_id", ""),
                # Each member of a leader's line, before its assignment.
                member_list=tuple(
                    map(
                        intern,
                        re.findall(
                            r"(?:^|\), )(.+?)=Assignment\(", fields.get("member_list") or ""
                        ),
                    )
                ),
                upgrade_from=fields.get("upgrade_from"),
                value=fields.get("value", ""),
            )
    return None
