"""Rows of `assignor_lists`: every list that a member was seen with, and every rejected join.

Joins of one member id with one list are one row; rejections of one client with one list too, for a
rejected join has no member id.
"""

from collections.abc import Container, Iterable
from operator import attrgetter
from typing import Any, Final, NamedTuple

from msgspec import Struct

from rebal.groups.wire.offsets_topic import ConsumerGroupMember
from rebal.inspectors.fleet.timeline.rebalances import LOG, TOPIC
from rebal.inspectors.fleet.timeline.rows import Rows
from rebal.inspectors.logs.requests.lines import Request

_SPARE: Final = 512
_CLIENT: Final = ("client_id", "instance_id", "host", "software_name", "software_version")
# The columns that a join says itself.
_SAID: Final = (
    *_CLIENT, "protocol_type", "reason", "session_timeout_ms", "rebalance_timeout_ms",
)  # fmt: skip


class ListKey(NamedTuple):
    """The key of a list: a member's, or a rejected client's, which has no member id."""

    member_id: str | None
    assignors: tuple[str, ...]
    client: tuple[str | None, ...] = ()


class ListRow(Struct, array_like=True):
    """A row that may still be seen again; `columns` are those that the first sight told."""

    columns: dict[str, str | int | None]
    at: int | None = None
    last_at: int | None = None
    generation: int | None = None
    times: int = 0

    def again(self, at: int | None, generation: int | None) -> None:
        """Note that it was seen, for the first time or once more."""
        self.times += 1
        if at is not None:
            self.last_at = at if self.last_at is None else max(at, self.last_at)
            self.at = at if self.at is None else min(at, self.at)
        if self.generation is None:
            self.generation = generation


class Lists(Struct, array_like=True):
    """The lists seen in one group that are not written yet.

    `stored` is the newest record of a KIP-848 group's member: its id and its list.
    """

    seen: dict[ListKey, ListRow] = {}
    stored: tuple[str, tuple[str, ...] | None] = ("", None)
    limit: int = _SPARE

    def joined(
        self,
        request: Request,
        at: int | None,
        names: tuple[str, ...],
        replaced: str | None,
    ) -> None:
        """Note a join that was answered with a member id."""
        row = ListRow({**_said(request), "replaced_member_id": replaced})
        generation = None if request.error else request.generation
        self.seen.setdefault(ListKey(request.member_id, names), row).again(at, generation)

    def rejected(self, request: Request, at: int | None, names: tuple[str, ...]) -> None:
        """Note a join that was rejected (error 23)."""
        key = ListKey(None, names, attrgetter(*_CLIENT)(request))
        self.seen.setdefault(key, ListRow(_said(request))).again(at, None)

    def record(
        self, member_id: str, member: ConsumerGroupMember, at: int, epoch: int | None, again: bool
    ) -> tuple[str, ...] | None:
        """Return the list of a KIP-848 group's member that speaks the classic protocol, if any.

        Who takes a static member's place is first written with that one's list, and with its own
        in the same write; `again` is whether that is still going on.
        """
        listed = member.supported_protocols
        names = None if listed is None else tuple(one.name for one in listed)
        before, self.stored = self.stored, (member_id, names)
        if again and before[0] == member_id and before[1] not in (None, names):
            copied = self.seen.get(ListKey(member_id, before[1]))
            if copied is not None and copied.times == 1:
                del self.seen[ListKey(member_id, before[1])]
        if names is None:
            return None
        columns = {
            "instance_id": member.instance_id,
            "client_id": member.client_id,
            "host": member.client_host,
            "protocol_type": "consumer",
            "session_timeout_ms": member.session_timeout_ms,
            "rebalance_timeout_ms": member.rebalance_timeout_ms,
            "evidence": TOPIC,
        }
        self.seen.setdefault(ListKey(member_id, names), ListRow(columns)).again(at, epoch)
        return names

    def forget(self, before: int, members: Container[str], rows: Rows) -> None:
        """Write what will hardly be seen again, once much is open."""
        if len(self.seen) <= self.limit:
            return
        self.write(
            [
                key
                for key, one in self.seen.items()
                if key.member_id not in members and (one.last_at is None or one.last_at < before)
            ],
            rows,
        )
        self.limit = _SPARE + 2 * len(self.seen)

    def write(self, keys: Iterable[ListKey], rows: Rows) -> None:
        """Write these lists."""
        written = [(key, self.seen.pop(key)) for key in keys]
        written.sort(key=lambda pair: (pair[1].at or 0, repr(pair[0])))
        for key, one in written:
            rows.add(
                "assignor_lists",
                at=one.at,
                member_id=key.member_id,
                assignors=key.assignors,
                generation=one.generation,
                refused=key.member_id is None,
                last_at=one.last_at,
                times=one.times,
                **one.columns,
            )


def _said(request: Request) -> dict[str, Any]:
    said = {name: getattr(request, name) for name in _SAID}
    return {**said, "source": request.log, "evidence": LOG}
