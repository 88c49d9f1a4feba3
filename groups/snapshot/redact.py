"""`redact`: a snapshot with client ids, hosts and instance ids replaced, which gives the same plan.

Kept: the group's id, topics, connectors, racks, broker ids, times, versions, partitions, offsets,
and the random end of each member id. Replaced, wherever they occur (also in notes and in the
details of evidence): client ids and instance ids by `id-1` …, member ids by `member-1-<random>`,
hosts by `host-1` …, any other network address by `address`, and the names of files by `file`.

The pseudonyms sort as the real names did, and assignors see members in that order, so a plan and a
simulation of range and roundrobin are the same before and after. The sticky assignors walk hash
maps whose order follows the member ids themselves: a simulation of those can put equally good
partitions elsewhere.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import msgspec
from msgspec.structs import asdict, replace

from rebal.groups.jvmhash import utf16
from rebal.groups.model import (
    Departed,
    Evidence,
    GroupSnapshot,
    Member,
    Refusal,
    Source,
    Unmatched,
)

_RANDOM: Final = re.compile(r"-?([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|[A-Za-z0-9_-]{22})\Z")
_ADDRESS: Final = re.compile(
    r"(?<![\w.:])(?:\d{1,3}(?:\.\d{1,3}){3}|[0-9A-Fa-f]{0,4}(?::[0-9A-Fa-f]{0,4}){3,7})(?!\w)"
)
_WHERE: Final = re.compile(r"\A.*:(\d+)(?=\s|\Z)", re.DOTALL)
# Fields that stay: Kafka's own names and numbers, whatever a client calls itself.
_FACTS: Final = frozenset(
    {
        *("assignor", "at_least", "captured_by", "classes", "error", "family", "group_protocol"),
        *("lacks", "list", "name", "protocol_type", "subscribed_regex", "version", "version_range"),
        *("group_id", "topics", "lag", "cluster", "rack", "running"),
        *("assignment", "target_assignment", "subscribed_topics"),
    }
)


def redact(snapshot: GroupSnapshot) -> GroupSnapshot:
    """Return `snapshot` with its ids and hosts replaced by pseudonyms.

    The same snapshot always gives the same pseudonyms.
    """
    made: GroupSnapshot = _Redaction(snapshot).of(snapshot)
    return replace(made, redacted=True)


def random_end(member_id: str) -> str | None:
    """Return the random end of a member id, which `redact` keeps; None if it has none."""
    return found[1] if (found := _RANDOM.search(member_id)) else None


class _Redaction:
    def __init__(self, snapshot: GroupSnapshot) -> None:
        people: tuple[Member | Refusal | Departed, ...] = (
            *snapshot.members,
            *snapshot.refusals,
            *snapshot.departed,
        )
        member_ids = {
            *(member.member_id for member in snapshot.members),
            *(one.member_id for one in snapshot.departed),
            *(one.rejoined_as for one in snapshot.refusals if one.rejoined_as),
        }
        coordinator = snapshot.group.coordinator
        ids = {person.client_id for person in people} | {
            person.instance_id for person in people if person.instance_id is not None
        }
        hosts = {person.host.removeprefix("/") for person in people}
        hosts.add(coordinator.host if coordinator else "")
        self._ids = _numbered(ids, "id")
        self._hosts = _numbered(hosts, "host")
        self._members = {
            real: name + (f"-{end}" if (end := random_end(real)) else "")
            for real, name in _numbered(member_ids, "member").items()
        }
        self._known = {**self._hosts, **self._ids, **self._members}
        longest = sorted(self._known, key=len, reverse=True)
        self._pattern = re.compile(
            rf"(?<!\w)(?:{'|'.join(map(re.escape, longest))})(?!\w)" if longest else r"(?!)"
        )
        # These two put topics and partitions in their user data; others put what they like (Kafka
        # Streams: the address of each instance).
        self._keeps_user_data = snapshot.group.assignor in ("sticky", "cooperative-sticky")
        self._by_field: Mapping[str, Callable[[Any], object]] = {
            "client_id": lambda real: self._ids.get(real, real),
            "instance_id": lambda real: self._ids.get(real, real),
            "member_id": lambda real: self._members.get(real) or self._text(real),
            "rejoined_as": self._members.__getitem__,
            "host": lambda real: (
                real[: real.startswith("/")] + self._hosts.get(real.removeprefix("/"), "")
            ),
            "connection": lambda _: "",
            "url": lambda _: "",
            "subscription": lambda sent: replace(sent, user_data=self._user_data(sent.user_data)),
            "assignment_user_data": self._user_data,
            "unmatched": lambda found: tuple(map(_unmatched, found)),
        }

    def of(self, value: Any, field: str = "") -> Any:
        """Return `value` redacted; `field` is the name of the record field that contains it."""
        if value is None or field in _FACTS:
            return value
        if field in self._by_field:
            return self._by_field[field](value)
        if type(value) is str:
            return self._text(value)
        if isinstance(value, tuple):
            return tuple(map(self.of, value))
        if isinstance(value, Evidence):
            # The name of its file is often that of the host.
            detail = _WHERE.sub(r"file:\1", value.detail)
            if value.source is Source.CONFIG_FILE and detail:
                detail = "file"
            return replace(value, detail=self._text(detail), workload=None)
        if isinstance(value, msgspec.Struct):
            return type(value)(**{name: self.of(one, name) for name, one in asdict(value).items()})
        return value

    def _text(self, said: str) -> str:
        return _ADDRESS.sub("address", self._pattern.sub(lambda m: self._known[m[0]], said))

    def _user_data(self, data: bytes | None) -> bytes | None:
        """Return user data as zeros of the same length; that of the sticky assignors is kept.

        A plan to KIP-848 checks whether a member sends user data, so it must not become empty.
        """
        return data if data is None or self._keeps_user_data else bytes(len(data))


def _unmatched(found: Unmatched) -> Unmatched:
    return Unmatched(
        what="evidence of a client that is not named here",
        why="redacted",
        evidence=Evidence(source=found.evidence.source, at=found.evidence.at),
        may_start=found.may_start,
    )


def _numbered(real: Iterable[str], kind: str) -> dict[str, str]:
    """Return real name → pseudonym: `kind` and a number, such as `id-07`.

    The numbers follow the order of the names as Java compares strings, and have leading zeros, so
    that the pseudonyms sort like the names. Empty names are left out.
    """
    found = sorted({text for text in real if text}, key=utf16)
    return {text: f"{kind}-{n:0{len(str(len(found)))}}" for n, text in enumerate(found, 1)}
