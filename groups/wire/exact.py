"""Records whose bytes come back as they were sent, also where their fields cannot express them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

from msgspec.structs import replace

from rebal.groups.model import Record


class _Sent(Protocol):
    @property
    def wire(self) -> bytes | None: ...


_R = TypeVar("_R", bound=Record)
_S = TypeVar("_S", bound=_Sent)


def keeping_wire(read: _R, data: bytes, write: Callable[[_R], bytes]) -> _R:
    """`read` from `data`; its field `wire` keeps them where `write` would give other bytes."""
    return read if write(read) == data else replace(read, wire=bytes(data))


def as_sent(record: _S, decode: Callable[[bytes], _S], write: Callable[[_S], bytes]) -> bytes:
    """The bytes kept in `wire` where they still say what the record says, else new ones."""
    wire = record.wire
    return wire if wire is not None and decode(wire) == record else write(record)
