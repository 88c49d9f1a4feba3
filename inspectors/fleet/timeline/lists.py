"""Rows of `assignor_lists`: every list that a member was seen with, and every refused join.

Joins of one member id with one list are one row; refusals of one client with one list too, for a
refused join has no member id.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import Any, Final

from rebal.groups.wire.offsets_topic import ConsumerGroupMember
from rebal.inspectors.fleet.timeline.rebalances import LOG, TOPIC
from rebal.inspectors.fleet.timeline.rows import Rows

_SPARE: Final = 512


class _Open:
    """A row that may still be seen again."""

    __slots__ = ("at", "fields", "generation", "last_at", "times")

    def __init__(self, at: int | None, fields: tuple[Any, ...], generation: int | None) -> None:
        self.at = at
        self.last_at = at
        self.times = 1
        self.fields = fields
        self.generation = generation


class Lists:
    """The lists seen in one group that are not written yet."""

    def __init__(self, group_id: str, rows: Rows) -> None:
        self.group_id = group_id
        self.rows = rows
        self._open: dict[tuple[Any, ...], _Open] = {}
        # the newest record of a KIP-848 group's member: its id and its list
        self._stored: tuple[str, tuple[str, ...] | None] = ("", None)
        self._limit = _SPARE

    def joined(
        self,
        request: Mapping[str, Any],
        at: int | None,
        names: tuple[str, ...],
        replaced: str | None,
    ) -> None:
        """A join that was answered with a member id."""
        generation = request["generation"] if request["error"] == 0 else None
        self._saw((request["member_id"], names), request, at, generation, replaced)

    def refused(self, request: Mapping[str, Any], at: int | None, names: tuple[str, ...]) -> int:
        """A join that was refused (error 23); says how often this client was with this list."""
        key = (
            None,
            names,
            request["client_id"],
            request["instance_id"],
            request["host"],
            request["software_name"],
            request["software_version"],
        )
        return self._saw(key, request, at)

    def stored(
        self,
        member_id: str,
        member: ConsumerGroupMember,
        at: int,
        generation: int | None,
        again: bool,
    ) -> tuple[str, ...] | None:
        """The list of a member that speaks the classic protocol in a KIP-848 group, if it does.

        Who takes a static member's place is first written with that one's list, and with its own
        in the same write; `again` is whether that is still going on.
        """
        listed = member.supported_protocols
        names = None if listed is None else tuple(one.name for one in listed)
        before, self._stored = self._stored, (member_id, names)
        if again and before[0] == member_id and before[1] != names:
            copied = self._open.get((member_id, before[1]))
            if copied is not None and copied.times == 1:
                del self._open[member_id, before[1]]
        if names is None:
            return None
        known = self._open.get((member_id, names))
        if known is not None:
            _again(known, at, generation)
            return names
        fields = (
            member_id, member.instance_id, member.client_id, member.client_host, names, "consumer",
            False, None, None, None, None, member.session_timeout_ms, member.rebalance_timeout_ms,
            TOPIC, None,
        )  # fmt: skip
        self._open[member_id, names] = _Open(at, fields, generation)
        return names

    def _saw(
        self,
        key: tuple[Any, ...],
        request: Mapping[str, Any],
        at: int | None,
        generation: int | None = None,
        replaced: str | None = None,
    ) -> int:
        refused = key[0] is None
        known = self._open.get(key)
        if known is not None:
            _again(known, at, generation)
            return known.times
        fields = (
            None if refused else request["member_id"],
            request["instance_id"],
            request["client_id"],
            request["host"],
            key[1],
            request["protocol_type"],
            refused,
            replaced,
            request["software_name"],
            request["software_version"],
            request["reason"],
            request["session_timeout_ms"],
            request["rebalance_timeout_ms"],
            LOG,
            request["source"],
        )
        self._open[key] = _Open(at, fields, generation)
        return 1

    def forget(self, before: int, members: Container[str]) -> None:
        """Write what will hardly be seen again, once much is open."""
        if len(self._open) <= self._limit:
            return
        idle = [
            key
            for key, one in self._open.items()
            if key[0] not in members and (one.last_at is None or one.last_at < before)
        ]
        self._write(idle)
        self._limit = _SPARE + 2 * len(self._open)

    def close(self) -> None:
        """Write all."""
        self._write(list(self._open))

    def _write(self, keys: list[tuple[Any, ...]]) -> None:
        written = [(key, self._open.pop(key)) for key in keys]
        written.sort(key=lambda pair: (pair[1].at or 0, repr(pair[0])))
        for _, one in written:
            member_id, instance_id, client_id, host, names, kind, refused, replaced = one.fields[:8]
            name, version, reason, session, rebalance, evidence, source = one.fields[8:]
            self.rows.add(
                "assignor_lists",
                (
                    self.group_id, one.at, member_id, instance_id, client_id, host, names, kind,
                    one.generation, refused, replaced, name, version, reason, one.last_at,
                    one.times, session, rebalance, evidence, source,
                ),
            )  # fmt: skip


def _again(one: _Open, at: int | None, generation: int | None) -> None:
    one.times += 1
    if at is not None:
        one.last_at = at if one.last_at is None else max(at, one.last_at)
        one.at = at if one.at is None else min(at, one.at)
    if one.generation is None:
        one.generation = generation
