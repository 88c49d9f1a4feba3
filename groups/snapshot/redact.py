"""`redact`: a snapshot without client ids, hosts and instance ids, with the same plan.

What stays: the group's id, topics, connectors, racks, broker ids, times, versions, partitions,
offsets, and the random end of each member id. What is replaced, everywhere it stands (also in notes
and in the details of evidence): client ids and instance ids by `id-1` …, member ids by
`member-1-<random>`, hosts by `host-1` …, any other network address by `address` and the names of
files by `file`.

The pseudonyms sort as the real names did, and assignors see members in that order, so a plan and a
simulation of range and roundrobin are the same before and after. The sticky assignors walk hash
maps whose order follows the member ids themselves: a simulation of those can put equally good
partitions elsewhere.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any, Final, TypeVar

import msgspec

from rebal.groups.model import (
    Departed,
    Evidence,
    GroupSnapshot,
    Member,
    Refusal,
    Source,
    Subscription,
    Unmatched,
)

_R = TypeVar("_R")
_RANDOM: Final = re.compile(r"-?([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|[A-Za-z0-9_-]{22})\Z")
_ADDRESS: Final = re.compile(
    r"(?<![\w.:])(?:\d{1,3}(?:\.\d{1,3}){3}|[0-9A-Fa-f]{0,4}(?::[0-9A-Fa-f]{0,4}){3,7})(?!\w)"
)
_WHERE: Final = re.compile(r"\A.*:(\d+)(?=\s|\Z)", re.DOTALL)
# These two put topics and partitions in their user data; others put what they like (Kafka Streams:
# the address of each instance).
_USER_DATA_IS_PARTITIONS: Final = frozenset({"sticky", "cooperative-sticky"})


def redact(snapshot: GroupSnapshot) -> GroupSnapshot:
    """Return `snapshot` with pseudonyms; the same snapshot gives the same pseudonyms."""
    names = _Names(snapshot)
    keep = snapshot.group.assignor in _USER_DATA_IS_PARTITIONS
    coordinator = snapshot.group.coordinator
    if coordinator is not None:
        coordinator = msgspec.structs.replace(
            coordinator,
            host=names.host(coordinator.host),
            rebalanced_why=names.text(coordinator.rebalanced_why),
        )
    return msgspec.structs.replace(
        names.in_texts(
            msgspec.structs.replace(snapshot, members=(), refusals=(), departed=(), unmatched=()),
            keep={"group", "topics", "lag", "cluster"},
        ),
        redacted=True,
        group=msgspec.structs.replace(snapshot.group, coordinator=coordinator),
        members=tuple(_member(member, names, keep) for member in snapshot.members),
        refusals=tuple(_refusal(refusal, names) for refusal in snapshot.refusals),
        departed=tuple(_departed(departed, names) for departed in snapshot.departed),
        unmatched=tuple(
            Unmatched(
                what="evidence of a client that is not named here",
                why="redacted",
                evidence=Evidence(source=found.evidence.source, at=found.evidence.at),
            )
            for found in snapshot.unmatched
        ),
    )


def _member(member: Member, names: _Names, keep_user_data: bool) -> Member:
    texts = names.in_texts(
        msgspec.structs.replace(member, member_id="", client_id="", host="", instance_id=None),
        keep={"subscription", "assignment", "target_assignment", "subscribed_topics", "rack"},
    )
    return msgspec.structs.replace(
        texts,
        member_id=names.member(member.member_id),
        client_id=names.id(member.client_id),
        host=names.host(member.host),
        instance_id=None if member.instance_id is None else names.id(member.instance_id),
        worker=None if member.worker is None else msgspec.structs.replace(member.worker, url=""),
        subscription=_subscription(member.subscription, keep_user_data),
        assignment_user_data=_blank(member.assignment_user_data, keep_user_data),
    )


def _subscription(sent: Subscription | None, keep_user_data: bool) -> Subscription | None:
    if sent is None or keep_user_data:
        return sent
    return msgspec.structs.replace(sent, user_data=_blank(sent.user_data, False), wire=None)


def _blank(user_data: bytes | None, keep: bool) -> bytes | None:
    """Return user data of the same length: a plan (to KIP-848) asks whether there is any."""
    return user_data if keep or user_data is None else bytes(len(user_data))


def _refusal(refusal: Refusal, names: _Names) -> Refusal:
    rejoined_as = refusal.rejoined_as
    return msgspec.structs.replace(
        names.in_texts(msgspec.structs.replace(refusal, connection="", rejoined_as=None)),
        client_id=names.id(refusal.client_id),
        host=names.host(refusal.host),
        instance_id=None if refusal.instance_id is None else names.id(refusal.instance_id),
        rejoined_as=None if rejoined_as is None else names.member(rejoined_as),
    )


def _departed(departed: Departed, names: _Names) -> Departed:
    return msgspec.structs.replace(
        names.in_texts(departed),
        member_id=names.member(departed.member_id),
        client_id=names.id(departed.client_id),
        host=names.host(departed.host),
        instance_id=None if departed.instance_id is None else names.id(departed.instance_id),
    )


class _Names:
    """The pseudonyms of one snapshot, numbered in the order of the real names."""

    def __init__(self, snapshot: GroupSnapshot) -> None:
        people: tuple[Member | Refusal | Departed, ...] = (
            *snapshot.members,
            *snapshot.refusals,
            *snapshot.departed,
        )
        member_ids = {member.member_id for member in snapshot.members}
        member_ids |= {one.member_id for one in snapshot.departed}
        member_ids |= {one.rejoined_as for one in snapshot.refusals if one.rejoined_as}
        coordinator = snapshot.group.coordinator
        ids = {person.client_id for person in people} | {
            person.instance_id for person in people if person.instance_id is not None
        }
        hosts = {person.host.removeprefix("/") for person in people}
        hosts |= {coordinator.host} if coordinator else set()
        self._ids = _numbered(ids, "id")
        self._hosts = _numbered(hosts, "host")
        self._members = {
            real: name + (f"-{found[1]}" if (found := _RANDOM.search(real)) else "")
            for real, name in _numbered(member_ids, "member").items()
        }
        known = {**self._hosts, **self._ids, **self._members}
        longest = sorted(known, key=len, reverse=True)
        self._known = known
        self._pattern = re.compile(
            rf"(?<!\w)(?:{'|'.join(map(re.escape, longest))})(?!\w)" if longest else r"(?!)"
        )

    def id(self, real: str) -> str:
        """Return the pseudonym of a client id or an instance id; none for none."""
        return self._ids.get(real, real)

    def host(self, real: str) -> str:
        """Return the pseudonym of a host, with the slash before it that Kafka writes."""
        slash = "/" if real.startswith("/") else ""
        return slash + self._hosts.get(real.removeprefix("/"), "")

    def member(self, real: str) -> str:
        """Return the pseudonym of a member id."""
        return self._members[real]

    def text(self, said: str) -> str:
        """Replace known names in free text by pseudonyms, other addresses by `address`."""
        made = self._pattern.sub(lambda found: self._known[found[0]], said)
        return _ADDRESS.sub("address", made)

    def in_texts(self, record: _R, keep: Iterable[str] = ()) -> _R:
        """Return `record` with all free text replaced, except in the fields of `keep`."""
        made: _R = _mapped(record, self.text, frozenset(keep))
        return made


# Fields that hold Kafka's own names and numbers, whatever a client calls itself.
_FACTS: Final = frozenset(
    {
        *("assignor", "at_least", "captured_by", "classes", "error", "family", "group_protocol"),
        *("lacks", "list", "name", "protocol_type", "subscribed_regex", "version", "version_range"),
    }
)


def _mapped(value: Any, change: Callable[[str], str], keep: frozenset[str]) -> Any:
    """Return a record tree with every text changed, except fields with Kafka's own names."""
    if type(value) is str:
        return change(value)
    if isinstance(value, tuple):
        return tuple(_mapped(item, change, frozenset()) for item in value)
    if isinstance(value, Evidence):
        return msgspec.structs.replace(value, detail=change(_without_path(value)))
    if isinstance(value, msgspec.Struct):
        fields = {
            name: found if name in keep or name in _FACTS else _mapped(found, change, frozenset())
            for name in value.__struct_fields__
            for found in (getattr(value, name),)
        }
        return type(value)(**fields)
    return value


def _without_path(evidence: Evidence) -> str:
    """Return the detail without the file's name, which is often that of the host."""
    if evidence.source is Source.CONFIG_FILE:
        return "file" if evidence.detail else ""
    return _WHERE.sub(r"file:\1", evidence.detail)


def _numbered(real: Iterable[str], kind: str) -> dict[str, str]:
    """Return real → `kind-7`, numbered with leading zeros in Java's string order, without ""."""
    found = sorted({text for text in real if text}, key=_java_order)
    width = len(str(len(found)))
    return {text: f"{kind}-{n:0{width}}" for n, text in enumerate(found, 1)}


def _java_order(text: str) -> bytes:
    return text.encode("utf-16-be", "surrogatepass")
