"""A group's timeline as bytes, so that the next scan goes on where this one stopped.

`freeze` writes all that a timeline has noted of its group; `thaw` makes the same timeline of it,
which takes the group's next rows as if there had been no break. What all groups share (rows,
decoded values, protocols, topics' names) is not in the bytes but is the reading scan's own.

The bytes are a pickle that names only classes of the timeline and of the records that it keeps:
any other name in it is refused, so a lake that others can write to runs no code of theirs. `FORM`
says by which version, and by which classes, it was written; a timeline of another form is told
anew from its records.
"""

from __future__ import annotations

import io
import pickle
import zlib
from functools import cache
from importlib import import_module
from typing import Any, Final

from rebal.groups import VERSION
from rebal.groups.errors import DocumentError
from rebal.inspectors.fleet.timeline.consumer import Topics
from rebal.inspectors.fleet.timeline.group import GroupTimeline, Shared
from rebal.inspectors.fleet.timeline.protocol import Profile, Protocols
from rebal.inspectors.fleet.timeline.reader import ValueReader
from rebal.inspectors.fleet.timeline.rows import Rows
from rebal.inspectors.fleet.timeline.values import ALIKE, Values

_PROTOCOL: Final = 5
_TIMELINE: Final = "rebal.inspectors.fleet.timeline."
_MODULES: Final = (
    *(
        f"{_TIMELINE}{name}"
        for name in (
            "consumer", "cost", "group", "history", "incidents", "lists", "log", "members",
            "metrics", "order", "protocol", "reader", "rebalances", "requests", "values",
        )
    ),
    "rebal.groups.model",
    "rebal.groups.wire.offsets_topic",
)  # fmt: skip
_PLAIN: Final = {
    "builtins": frozenset({"set", "frozenset"}),
    "collections": frozenset({"deque"}),
    # makes a record of one of the classes above
    "msgspec._utils": frozenset({"rebuild"}),
}
_SHARED: Final = (Shared, Rows, Values, ValueReader, Protocols, Topics)
_PROFILE: Final = "profile"
_ALIKE: Final = "alike"


@cache
def form() -> str:
    """Return what has to be the same where bytes are written and where they are read."""
    names = sorted(
        f"{module}.{name}:{getattr(one, '__slots__', getattr(one, '_fields', ()))}"
        for module in _MODULES
        for name, one in vars(import_module(module)).items()
        if isinstance(one, type)
    )
    return f"{VERSION}/{zlib.crc32(repr(names).encode()):08x}"


def freeze(group: GroupTimeline) -> bytes:
    """Return all that the timeline holds of its group; the timeline can go on."""
    out = io.BytesIO()
    _Pickler(out).dump(group)
    return out.getvalue()


def thaw(data: bytes, shared: Shared) -> GroupTimeline:
    """Return the timeline of these bytes, with what all groups of this scan share.

    Raises:
        DocumentError: the bytes are damaged, or name something that no timeline holds.
    """
    try:
        found = _Unpickler(io.BytesIO(data), shared).load()
    except DocumentError:
        raise
    except Exception as error:
        raise DocumentError(f"a group's state in the lake cannot be read ({error}).") from None
    if not isinstance(found, GroupTimeline):
        raise DocumentError("a group's state in the lake is not one.")
    return found


class _Pickler(pickle.Pickler):
    def __init__(self, out: io.BytesIO) -> None:
        super().__init__(out, _PROTOCOL)

    def persistent_id(self, obj: Any) -> Any:
        if isinstance(obj, Profile):
            return _PROFILE, obj.kind
        if isinstance(obj, _SHARED):
            return type(obj).__name__
        for number, one in enumerate(ALIKE):
            if obj is one:
                return _ALIKE, number
        return None


class _Unpickler(pickle.Unpickler):
    def __init__(self, data: io.BytesIO, shared: Shared) -> None:
        super().__init__(data)
        self._protocols = shared.protocols
        self._shared: dict[str, Any] = {
            type(one).__name__: one
            for one in (
                shared,
                shared.rows,
                shared.values,
                shared.reader,
                shared.protocols,
                shared.topics,
            )
        }

    def persistent_load(self, pid: Any) -> Any:
        if isinstance(pid, str):
            return self._shared[pid]
        what, which = pid
        return self._protocols.profile(which) if what == _PROFILE else ALIKE[which]

    def find_class(self, module: str, name: str) -> Any:
        if name in _PLAIN.get(module, ()):
            return super().find_class(module, name)
        if module in _MODULES:
            found = getattr(import_module(module), name, None)
            if isinstance(found, type) and found.__module__ == module:
                return found
        raise DocumentError(
            f"a group's state in the lake names {module}.{name}, which no timeline holds."
        )
