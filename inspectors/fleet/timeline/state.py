"""A group's timeline as bytes, so that the next scan goes on where this one stopped.

`freeze` writes all that a timeline has noted of its group; `thaw` makes the same timeline of it,
which takes the group's next rows as if there had been no break. What all groups share (rows,
decoded values, protocols, topics' names) is not in the bytes: a timeline gets the reading scan's.

The bytes are a pickle of new objects of the timeline's classes and of the records that it keeps.
They can name one function, which makes such an object, and no class or other function: a lake that
others can write to runs no code of theirs, and changes nothing but the one group. `form` says by
which version, and of which classes, they were written; a timeline of another form is told anew from
its records.
"""

from __future__ import annotations

import copyreg
import io
import pickle
import zlib
from enum import Enum
from functools import cache
from importlib import import_module
from typing import Any, Final, NoReturn

from msgspec import Struct

from rebal.groups import VERSION
from rebal.groups.errors import DocumentError
from rebal.groups.model import GroupType
from rebal.inspectors.fleet.timeline.consumer import Topics
from rebal.inspectors.fleet.timeline.group import GroupTimeline, Shared
from rebal.inspectors.fleet.timeline.protocol import Profile, Protocols
from rebal.inspectors.fleet.timeline.reader import ValueReader
from rebal.inspectors.fleet.timeline.rows import Rows
from rebal.inspectors.fleet.timeline.values import PartitionList, Values

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
    "builtins": frozenset({"set", "frozenset", "str"}),
    "collections": frozenset({"deque"}),
}
_SHARED: Final = (Shared, Rows, Values, ValueReader, Protocols, Topics)


@cache
def _classes() -> dict[str, type]:
    """Return the classes of a timeline's objects by name."""
    return {
        f"{module}.{name}": one
        for module in _MODULES
        for name, one in vars(import_module(module)).items()
        if isinstance(one, type) and one.__module__ == module and one not in _SHARED
    }


@cache
def form() -> str:
    """Return what has to be the same where bytes are written and where they are read."""
    names = sorted(
        f"{name}:{getattr(one, '__slots__', getattr(one, '_fields', ()))}"
        for name, one in _classes().items()
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
        found = _Unpickler(io.BytesIO(data)).load()
        if not isinstance(found, GroupTimeline):
            raise DocumentError("a group's state in the lake is not one.")
        found.share(shared)
    except DocumentError:
        raise
    except Exception as error:
        raise DocumentError(f"a group's state in the lake cannot be read ({error}).") from None
    return found


def _make(name: str, *_: Any) -> NoReturn:
    """Stand in the bytes for the function that makes an object of the class `name`."""
    raise DocumentError(f"{name} is made by the reading scan.")


def _nothing(_: object) -> tuple[Any, ...]:
    return _make, ("",)


def _as_value(one: Any) -> tuple[Any, ...]:
    """What makes an object that is told by the arguments of its class."""
    kind = type(one)
    name = f"{kind.__module__}.{kind.__name__}"
    if isinstance(one, Struct):
        return _make, (name, {field: getattr(one, field) for field in kind.__struct_fields__})
    return _make, (name, *(one if isinstance(one, tuple) else one.__reduce__()[1]))


def _as_text(one: Enum) -> tuple[Any, ...]:
    """A member of an enumeration is everybody's: its text alone is in the bytes."""
    return str, (one.value,)


def _as_object(one: Any) -> tuple[Any, ...]:
    """What makes an object, and the attributes that it then gets."""
    kind = type(one)
    return _make, (f"{kind.__module__}.{kind.__name__}",), one.__reduce_ex__(2)[2]


def _is_value(kind: type) -> bool:
    return issubclass(kind, tuple | Struct | PartitionList)


class _Pickler(pickle.Pickler):
    def __init__(self, out: io.BytesIO) -> None:
        super().__init__(out, _PROTOCOL)
        self.dispatch_table = copyreg.dispatch_table.copy()
        for kind in _classes().values():
            self.dispatch_table[kind] = _as_value if _is_value(kind) else _as_object
        self.dispatch_table[GroupType] = _as_text
        for kind in _SHARED:
            self.dispatch_table[kind] = _nothing
        self.dispatch_table[Profile] = lambda one: _as_value(one.kind)


class _Unpickler(pickle.Unpickler):
    def _made(self, name: str, *given: Any) -> Any:
        if not name:
            return None
        kind = _classes().get(name)
        if kind is None:
            raise DocumentError(f"a group's state in the lake names {name}, which none holds.")
        if issubclass(kind, Struct):
            return kind(**given[0])
        return kind(*given) if _is_value(kind) else kind.__new__(kind)

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == (_make.__module__, _make.__name__):
            return self._made
        if name in _PLAIN.get(module, ()):
            return super().find_class(module, name)
        raise DocumentError(
            f"a group's state in the lake names {module}.{name}, which no timeline holds."
        )
