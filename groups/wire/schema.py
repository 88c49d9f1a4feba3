"""Reader of Kafka's messages: bytes and a schema from groups/data/messages.yaml give fields.

Bytes are untrusted. Reading returns a value or raises `WireError`, and nothing else. A length is
checked against the bytes that are left before anything is allocated for it, so a wrong length costs
nothing. Numbers are big-endian. Bytes after the last field are allowed, as in Kafka's own readers.
The functions `plain_…` and `nullable_…` read without a schema and raise Python's own errors.
"""

import re
import struct
from base64 import urlsafe_b64encode
from collections.abc import Callable, Iterable, Sequence
from functools import cache, cached_property
from typing import Any, Final, Literal

import msgspec

from rebal.groups.data import load_data
from rebal.groups.errors import WireError

Read = Callable[["Cursor", str], Any]
"""A reader of one value; the text names the value in errors."""
_LEFT_OUT: Final = "-"
_UINT16: Final = struct.Struct(">H").unpack_from
_UINT32: Final = struct.Struct(">I").unpack_from


class Cursor:
    """Reading position in untrusted bytes.

    `at` is the position. With `lenient`, text that is not UTF-8 gets replacement characters, as in
    Java. `title` names the message in errors.
    """

    __slots__ = ("at", "data", "lenient", "title")

    def __init__(self, data: bytes, title: str, lenient: bool = False) -> None:
        self.data = data
        self.title = title
        self.lenient = lenient
        self.at = 0

    def error(self, problem: str) -> WireError:
        """Return the WireError for a `problem` at the current position."""
        return WireError(
            f"These bytes are not a {self.title}: {problem} at byte {self.at} of {len(self.data)}."
        )

    def take(self, size: int, about: str) -> bytes:
        """Return the next `size` bytes and move past them; `about` names them in errors.

        Raises:
            WireError: fewer bytes are left.
        """
        at = self.at
        raw = self.data[at : at + size]
        if len(raw) < size:
            raise self.error(f"{about} claims {size} bytes but {len(raw)} are left")
        self.at = at + size
        return raw


def _fixed(form: str) -> Read:
    unpack, size = struct.Struct(form).unpack_from, struct.calcsize(form)

    def read(cursor: Cursor, about: str) -> Any:
        try:
            (value,) = unpack(cursor.data, cursor.at)
        except struct.error:
            raise cursor.error(f"{about} is cut off") from None
        cursor.at += size
        return value

    return read


def plain_text(data: bytes, at: int) -> tuple[str, int]:
    """Return the UTF-8 text at position `at`, after its int16 length, and the position after it.

    If the text is cut off, the part that is there is returned, and the position lies beyond the
    last byte: the caller must check for that.

    Raises:
        struct.error: the length is cut off.
        UnicodeDecodeError: the text is not UTF-8.
    """
    (size,) = _UINT16(data, at)
    end = at + 2 + int(size)
    return data[at + 2 : end].decode(), end


def nullable_text(data: bytes, at: int) -> tuple[str | None, int]:
    """Return the text at position `at`, or None if it is null, and the position after it.

    Apart from null it behaves as `plain_text`.
    """
    return (None, at + 2) if data.startswith(b"\xff\xff", at) else plain_text(data, at)


def plain_bytes(data: bytes, at: int) -> tuple[bytes, int]:
    """Return the bytes at position `at`, after their int32 length, and the position after them.

    Raises:
        struct.error: the length is cut off.
        ValueError: the bytes are cut off or null.
    """
    (size,) = _UINT32(data, at)
    end = at + 4 + int(size)
    if end > len(data):
        raise ValueError(size)
    return data[at + 4 : end], end


def nullable_bytes(data: bytes, at: int) -> tuple[bytes | None, int]:
    """Return the bytes at position `at`, or None if they are null, and the position after them.

    Apart from null it behaves as `plain_bytes`.
    """
    return (None, at + 4) if data.startswith(b"\xff" * 4, at) else plain_bytes(data, at)


def _varint(cursor: Cursor, about: str) -> int:
    data, at, value = cursor.data, cursor.at, 0
    for shift in (0, 7, 14, 21, 28):
        if at >= len(data):
            raise cursor.error(f"{about} is cut off")
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value > 0xFFFFFFFF:
                break
            cursor.at = at
            return value
    raise cursor.error(f"{about} does not fit in 32 bits")


def uuid_text(raw: bytes) -> str:
    """Return an id of 16 bytes as Kafka prints it: 22 characters of URL-safe base64 (KIP-516)."""
    return urlsafe_b64encode(raw)[:22].decode("ascii")


_FIXED: Final[dict[str, tuple[Read, int]]] = {
    "int8": (_fixed(">b"), 1),
    "int16": (_fixed(">h"), 2),
    "int32": (_fixed(">i"), 4),
    "int64": (_fixed(">q"), 8),
    "uuid": (lambda cursor, about: uuid_text(cursor.take(16, about)), 16),
}
_LENGTHS: Final = {"string": struct.Struct(">h"), "bytes": struct.Struct(">i")}


def _sized(kind: str, compact: bool, nullable: bool) -> Read:
    unpack, width = _LENGTHS[kind].unpack_from, _LENGTHS[kind].size
    is_text = kind == "string"

    def read(cursor: Cursor, about: str) -> str | bytes | None:
        data, at = cursor.data, cursor.at
        if compact:
            size = _varint(cursor, about) - 1
            at = cursor.at
        else:
            try:
                (size,) = unpack(data, at)
            except struct.error:
                raise cursor.error(f"{about} is cut off") from None
            cursor.at = at = at + width
        if size < 0:
            # Any negative length is null, as in Kafka's own readers.
            if not nullable:
                raise cursor.error(f"{about} is null")
            return None
        end = at + size
        if end > len(data):
            raise cursor.error(f"{about} claims {size} bytes but {len(data) - at} are left")
        raw = data[at:end]
        cursor.at = end
        if not is_text:
            return raw
        try:
            return raw.decode()
        except UnicodeDecodeError:
            if cursor.lenient:
                return raw.decode("utf-8", "replace")
            raise cursor.error(f"{about} is not UTF-8 text") from None

    return read


def _array(
    item: Read | None, compact: bool, nullable: bool, smallest: int, prefix: str = ""
) -> Read:
    """Return a reader of arrays whose items are read by `item` (None: int32 numbers).

    `compact` arrays have a varint as length (KIP-482); `nullable` ones may be null, which is read
    as None. An item has at least `smallest` bytes: an array that claims more items than the bytes
    left can hold is rejected. `prefix` comes before the array's name in errors about an item.
    """
    int32 = _FIXED["int32"][0]

    def read(cursor: Cursor, about: str) -> Any:
        count = _varint(cursor, about) - 1 if compact else int32(cursor, about)
        if count < 0:
            if not nullable:
                raise cursor.error(f"{about} has the length {count}")
            return None
        if count * smallest > len(cursor.data) - cursor.at:
            raise cursor.error(f"{about} claims {count} entries, more than its bytes can hold")
        if item is None:
            at = cursor.at
            cursor.at += 4 * count
            return struct.unpack_from(f">{count}i", cursor.data, at)
        about = prefix + about
        return tuple([item(cursor, about) for _ in range(count)])

    return read


def _tagged_fields(cursor: Cursor) -> Iterable[tuple[int, bytes]]:
    """Read the tagged fields that end a structure of a flexible version (KIP-482).

    Returns pairs of tag number and raw bytes.
    """
    about = "the tagged fields"
    if cursor.data[cursor.at : cursor.at + 1] == b"\0":
        cursor.at += 1
        return ()
    return [
        (_varint(cursor, about), cursor.take(_varint(cursor, about), about))
        for _ in range(_varint(cursor, about))
    ]


class Field(
    msgspec.Struct,
    frozen=True,
    dict=True,
    forbid_unknown_fields=True,
    rename={"kind": "type", "own": "as"},
):
    """One field of a message; messages.yaml explains the keys."""

    name: str
    kind: str
    own: str = ""
    versions: str = "0+"
    nullable: str = ""
    optional: str = ""
    tag: int | None = None
    fields: "tuple[Field, ...]" = ()

    @cached_property
    def key(self) -> str:
        """Name of the field in rebal: `own` if given, else Kafka's name in snake case."""
        return self.own or re.sub(r"(?<=[a-z])(?=[A-Z])", "_", self.name).lower()

    @cached_property
    def about(self) -> str:
        """Name of the field in error messages, such as `the group id`."""
        return "the " + re.sub(r"(?<=[a-z])(?=[A-Z])", " ", self.name).lower()


class Schema(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Schema of one message in groups/data/messages.yaml, whose top comment explains the fields."""

    title: str
    versions: str
    fields: tuple[Field, ...]
    form: Literal["int16", "int32", "none"] = "int16"
    newer: Literal["refused", "as-highest"] = "refused"
    flexible: str = ""

    def present(self, fields: Sequence[Field], version: int) -> list[Field]:
        """Return those of `fields` that the message has in this version, without tagged fields."""
        return [f for f in fields if f.tag is None and _within(version, f.versions)]


@cache
def _within(version: int, versions: str) -> bool:
    """Return whether `version` is one of `versions`, such as `0-3`, `2+` or `5,7-8`."""
    for part in versions.split(",") if versions else ():
        low, _, high = part.removesuffix("+").partition("-")
        if int(low) <= version and (part.endswith("+") or version <= int(high or low)):
            return True
    return False


class Message:
    """Reader of one type of Kafka message, by its schema in groups/data/messages.yaml.

    `parts` are the constructors of nested structures (array entries, tagged fields), by rebal's
    name of the field. A structure without a constructor becomes a tuple of its fields. The schema
    is loaded at the first use, and each version is compiled once.
    """

    def __init__(self, name: str, **parts: Callable[..., Any]) -> None:
        self._name = name
        self._parts = parts
        self._bodies: dict[int, Read] = {}

    @cached_property
    def _schema(self) -> Schema:
        return load_data("messages.yaml", dict[str, Schema])[self._name]

    def read(
        self, data: bytes, *, version: int | None = None, lenient: bool = False
    ) -> tuple[int, dict[str, Any], Cursor]:
        """Return the version of the message in `data`, its fields, and the cursor after the fields.

        The fields are by rebal's names. `version` is needed where the bytes hold none. With
        `lenient`, text that is not UTF-8 gets replacement characters, as in Java.

        Raises:
            WireError: a version that rebal does not know, a field that is cut off, a length that is
                negative or larger than the bytes left, or text that is null or not UTF-8.
        """
        cursor = Cursor(data, self._schema.title, lenient)
        if version is None:
            version = _FIXED[self._schema.form][0](cursor, "the version")
        body = self._bodies.get(version) or self._body(version, cursor)
        return version, body(cursor, ""), cursor

    def _body(self, version: int, cursor: Cursor) -> Read:
        low, high = map(int, self._schema.versions.split("-"))
        if version > high and self._schema.newer == "as-highest":
            version = high
        if not low <= version <= high:
            shown = f"one of {low} to {high}" if low < high else str(low)
            if self._schema.newer == "as-highest":
                raise cursor.error(f"the version is {version}")
            raise cursor.error(f"version {version} is not {shown}")
        if version not in self._bodies:
            flexible = _within(version, self._schema.flexible)
            body = self._struct(self._schema.fields, version, dict, flexible=flexible)
            self._bodies[version] = body
        return self._bodies[version]

    def _struct(
        self,
        fields: Sequence[Field],
        version: int,
        make: Callable[..., Any] | None,
        *,
        flexible: bool,
    ) -> Read:
        plain = tuple(
            (field.key, self._value(field, version, flexible), field.about)
            for field in self._schema.present(fields, version)
        )
        tags = {field.tag: field for field in fields if field.tag is not None}
        tagged = {tag: self._tagged(field, version) for tag, field in tags.items()}
        leaves_out = any(key == _LEFT_OUT for key, _, _ in plain)

        def read_entry(cursor: Cursor, _about: str) -> tuple[Any, ...]:
            values = [value(cursor, about) for _, value, about in plain]
            if flexible:
                _tagged_fields(cursor)
            return tuple(values)

        def read(cursor: Cursor, _about: str) -> Any:
            found = {key: value(cursor, about) for key, value, about in plain}
            for tag, raw in _tagged_fields(cursor) if flexible else ():
                if tag in tagged:
                    about = tags[tag].about
                    found[tags[tag].key] = tagged[tag](Cursor(raw, about[len("the ") :]), about)
            if leaves_out:
                del found[_LEFT_OUT]
            return make(**found) if make is not None and make is not dict else found

        return read_entry if make is None else read

    def _tagged(self, field: Field, version: int) -> Read:
        """Return a reader of the value of a tagged field.

        A structure follows a varint. If the varint is 0, there is no structure and the value is
        None.
        """
        if field.kind != "struct":
            return self._value(field, version, True)
        body = self._struct(field.fields, version, self._parts.get(field.key), flexible=True)
        return lambda cursor, about: body(cursor, about) if _varint(cursor, about) else None

    def _value(self, field: Field, version: int, flexible: bool) -> Read:
        read = self._plain_value(field, version, flexible)
        if not _within(version, field.optional):
            return read
        return lambda cursor, about: None if cursor.at == len(cursor.data) else read(cursor, about)

    def _plain_value(self, field: Field, version: int, flexible: bool) -> Read:
        if field.kind in _FIXED:
            return _FIXED[field.kind][0]
        nullable = _within(version, field.nullable)
        if field.kind in _LENGTHS:
            return _sized(field.kind, flexible, nullable)
        if field.kind == "[]int32":
            return _array(None, flexible, nullable, 4)
        if field.kind == "[]string":
            text = _sized("string", flexible, nullable=False)
            return _array(text, flexible, nullable, 1 if flexible else 2, "an entry of ")
        item = self._struct(field.fields, version, self._parts.get(field.key), flexible=flexible)
        fields = self._schema.present(field.fields, version)
        smallest = sum(_smallest(each, flexible) for each in fields) + flexible
        return _array(item, flexible, nullable, smallest)


def _smallest(field: Field, flexible: bool) -> int:
    size = 1 if flexible else 2 if field.kind == "string" else 4
    return _FIXED[field.kind][1] if field.kind in _FIXED else size
