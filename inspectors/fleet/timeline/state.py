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

import copyreg
import io
import pickle
import zlib
from functools import cache
from importlib import import_module
from typing import Any, Final, NoReturn

from rebal.groups import VERSION
from rebal.groups.errors import DocumentError
from rebal.inspectors.fleet.timeline.consumer import Topics
from rebal.inspectors.fleet.timeline.group import GroupTimeline, Shared
from rebal.inspectors.fleet.timeline.protocol import Kind, Profile, Protocols
from rebal.inspectors.fleet.timeline.reader import ValueReader
from rebal.inspectors.fleet.timeline.rows import Rows
from rebal.inspectors.fleet.timeline.values import Values

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


def _part(name: str, kind: Kind | None = None) -> NoReturn:
    """Stand in the bytes for what all groups share: a part by its class, a profile by its kind."""
    raise DocumentError(f"{name} of {kind} is the reading scan's.")


class _Pickler(pickle.Pickler):
    def __init__(self, out: io.BytesIO) -> None:
        super().__init__(out, _PROTOCOL)
        # Asked for objects of these classes alone, which is a third of the time of persistent_id.
        self.dispatch_table = copyreg.dispatch_table.copy()
        for kind in _SHARED:
            self.dispatch_table[kind] = lambda one: (_part, (type(one).__name__,))
        self.dispatch_table[Profile] = lambda one: (_part, (_PROFILE, one.kind))


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

    def _found(self, name: str, kind: Kind | None = None) -> Any:
        return self._shared[name] if kind is None else self._protocols.profile(kind)

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == (_part.__module__, _part.__name__):
            return self._found
        if name in _PLAIN.get(module, ()):
            return super().find_class(module, name)
        if module in _MODULES:
            found = getattr(import_module(module), name, None)
            if isinstance(found, type) and found.__module__ == module:
                return found
        raise DocumentError(
            f"a group's state in the lake names {module}.{name}, which no timeline holds."
        )
