"""Kafka's primitive types on the wire (big-endian), read from untrusted bytes and written."""

from __future__ import annotations

import struct
from base64 import urlsafe_b64encode
from collections.abc import Collection
from typing import Final

from rebal.groups.errors import WireError

_INT8: Final = struct.Struct(">b")
_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")
_INT64: Final = struct.Struct(">q")
_STRING_MAX: Final = 2**15 - 1
_BYTES_MAX: Final = 2**31 - 1


class Reader:
    """A cursor over bytes; each read gives a value or raises `WireError`, never anything else.

    A length is checked against the bytes that are left before anything is allocated for it, so a
    lying length costs nothing. `what` names the thing being read, for the error's sentence.
    `lenient_text` replaces bytes that are not UTF-8, as Java does, instead of refusing them.
    """

    __slots__ = ("_data", "_text_errors", "_what", "offset")

    def __init__(self, data: bytes, what: str, lenient_text: bool = False) -> None:
        self._data = bytes(data)
        self._what = what
        self._text_errors = "replace" if lenient_text else "strict"
        self.offset = 0

    @property
    def remaining(self) -> int:
        """Bytes not read yet."""
        return len(self._data) - self.offset

    def error(self, problem: str) -> WireError:
        """The error to raise for `problem` at the current offset."""
        return WireError(
            f"These bytes are not a {self._what}: {problem} at byte {self.offset} "
            f"of {len(self._data)}."
        )

    def _fixed(self, form: struct.Struct, field: str) -> int:
        try:
            value: int = form.unpack_from(self._data, self.offset)[0]
        except struct.error:
            raise self.error(f"{field} is cut off") from None
        self.offset += form.size
        return value

    def int8(self, field: str) -> int:
        """A signed 8-bit number."""
        return self._fixed(_INT8, field)

    def int16(self, field: str) -> int:
        """A signed 16-bit number."""
        return self._fixed(_INT16, field)

    def int32(self, field: str) -> int:
        """A signed 32-bit number."""
        return self._fixed(_INT32, field)

    def int64(self, field: str) -> int:
        """A signed 64-bit number."""
        return self._fixed(_INT64, field)

    def version(self) -> int:
        """The version that a message of a client begins with: a 16-bit number, not negative."""
        version = self.int16("the version")
        if version < 0:
            raise self.error(f"the version is {version}")
        return version

    def int32_array(self, field: str) -> tuple[int, ...]:
        """Signed 32-bit numbers after a 32-bit count; null is an error."""
        return self.int32s(self.count(4, field), field)

    def int32s(self, count: int, field: str) -> tuple[int, ...]:
        """`count` signed 32-bit numbers; `count` comes from `count()` with an item size of 4."""
        if self.remaining < 4 * count:
            raise self.error(f"{field} is cut off")
        values = struct.unpack_from(f">{count}i", self._data, self.offset)
        self.offset += 4 * count
        return values

    def unsigned_varint(self, field: str) -> int:
        """An unsigned variable-length number of at most 32 bits (KIP-482)."""
        value = 0
        for shift in range(0, 35, 7):
            if self.remaining < 1:
                raise self.error(f"{field} is cut off")
            byte = self._data[self.offset]
            self.offset += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                if value > 0xFFFFFFFF:
                    break
                return value
        raise self.error(f"{field} does not fit in 32 bits")

    def count(self, item_size: int, field: str) -> int:
        """An array's length: non-negative, and its items of `item_size` bytes or more can fit."""
        return self.checked_count(self.int32(field), item_size, field)

    def compact_count(self, item_size: int, field: str) -> int:
        """As `count`, in the flexible versions' form (length + 1, 0 is null)."""
        return self.checked_count(self.unsigned_varint(field) - 1, item_size, field)

    def checked_count(self, count: int, item_size: int, field: str) -> int:
        """`count`, where it is non-negative and so many items of `item_size` bytes can follow."""
        if count < 0:
            raise self.error(f"{field} has the length {count}")
        if count * item_size > self.remaining:
            raise self.error(f"{field} claims {count} entries, more than its bytes can hold")
        return count

    def raw(self, size: int, field: str) -> bytes:
        """`size` bytes as they are."""
        taken = self._data[self.offset : self.offset + size]
        if len(taken) < size:
            raise self.error(f"{field} claims {size} bytes but {self.remaining} are left")
        self.offset += size
        return taken

    def _text(self, size: int, field: str) -> str:
        raw = self.raw(size, field)
        try:
            return raw.decode("utf-8", self._text_errors)
        except UnicodeDecodeError:
            raise self.error(f"{field} is not UTF-8 text") from None

    def nullable_string(self, field: str) -> str | None:
        """Text with a 16-bit length; any negative length is null, as in Kafka's own reader."""
        size = self.int16(field)
        return None if size < 0 else self._text(size, field)

    def string(self, field: str) -> str:
        """Text with a 16-bit length; null is an error."""
        value = self.nullable_string(field)
        if value is None:
            raise self.error(f"{field} is null")
        return value

    def nullable_bytes(self, field: str) -> bytes | None:
        """Bytes with a 32-bit length; any negative length is null, as in Kafka's own reader."""
        size = self.int32(field)
        return None if size < 0 else self.raw(size, field)

    def bytes_(self, field: str) -> bytes:
        """Bytes with a 32-bit length; null is an error."""
        value = self.nullable_bytes(field)
        if value is None:
            raise self.error(f"{field} is null")
        return value

    def compact_nullable_string(self, field: str) -> str | None:
        """Text in the flexible versions' form (length + 1, 0 is null)."""
        size = self.unsigned_varint(field) - 1
        return None if size < 0 else self._text(size, field)

    def compact_string(self, field: str) -> str:
        """Text in the flexible versions' form; null is an error."""
        value = self.compact_nullable_string(field)
        if value is None:
            raise self.error(f"{field} is null")
        return value

    def compact_bytes(self, field: str) -> bytes:
        """Bytes in the flexible versions' form; null is an error."""
        size = self.unsigned_varint(field) - 1
        if size < 0:
            raise self.error(f"{field} is null")
        return self.raw(size, field)

    def uuid(self, field: str) -> str:
        """A 16-byte id as Kafka prints it: 22 characters of URL-safe base64 (KIP-516)."""
        return urlsafe_b64encode(self.raw(16, field))[:22].decode("ascii")

    def tagged_fields(self, field: str) -> dict[int, bytes]:
        """The tagged fields that end a structure of a flexible version, by tag (KIP-482)."""
        found: dict[int, bytes] = {}
        for _ in range(self.unsigned_varint(field)):
            tag = self.unsigned_varint(field)
            found[tag] = self.raw(self.unsigned_varint(field), field)
        return found

    def skip_tagged_fields(self, field: str) -> None:
        """As `tagged_fields`, where none is known."""
        for _ in range(self.unsigned_varint(field)):
            self.unsigned_varint(field)
            self.raw(self.unsigned_varint(field), field)


class Writer:
    """Bytes being written; a value that its type cannot hold raises `WireError`."""

    __slots__ = ("_parts",)

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def done(self) -> bytes:
        """All that was written."""
        return b"".join(self._parts)

    def _fixed(self, form: struct.Struct, value: int, field: str) -> None:
        try:
            self._parts.append(form.pack(value))
        except struct.error:
            raise WireError(f"{field} cannot be written: {value} is out of its range.") from None

    def int16(self, value: int, field: str) -> None:
        """A signed 16-bit number."""
        self._fixed(_INT16, value, field)

    def int32(self, value: int, field: str) -> None:
        """A signed 32-bit number."""
        self._fixed(_INT32, value, field)

    def int64(self, value: int, field: str) -> None:
        """A signed 64-bit number."""
        self._fixed(_INT64, value, field)

    def int32_array(self, values: Collection[int], field: str) -> None:
        """Signed 32-bit numbers after a 32-bit count."""
        self.int32(len(values), field)
        for value in values:
            self.int32(value, field)

    def raw(self, data: bytes) -> None:
        """Bytes as they are, without a length."""
        self._parts.append(data)

    def string(self, value: str | None, field: str) -> None:
        """Text with a 16-bit length, -1 for null."""
        if value is None:
            self.int16(-1, field)
            return
        try:
            raw = value.encode("utf-8")
        except UnicodeEncodeError:
            raise WireError(f"{field} cannot be written: it is not valid text.") from None
        if len(raw) > _STRING_MAX:
            raise WireError(f"{field} cannot be written: it is longer than {_STRING_MAX} bytes.")
        self.int16(len(raw), field)
        self._parts.append(raw)

    def bytes_(self, value: bytes | None, field: str) -> None:
        """Bytes with a 32-bit length, -1 for null."""
        if value is None:
            self.int32(-1, field)
            return
        if len(value) > _BYTES_MAX:
            raise WireError(f"{field} cannot be written: it is longer than {_BYTES_MAX} bytes.")
        self.int32(len(value), field)
        self._parts.append(value)
