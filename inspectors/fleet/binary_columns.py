"""Fields of fixed size read from all values of a binary Arrow column at once, by numpy."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa

Ints = np.ndarray[Any, np.dtype[np.int64]]
Mask = np.ndarray[Any, np.dtype[np.bool_]]
Bytes = np.ndarray[Any, np.dtype[np.uint8]]

_EXTRA: Final = 32
"""Bytes that may be read past a value before its checks say that they are not its own."""


def buffers(values: pa.Array) -> tuple[Ints, Bytes]:
    """Where each value begins (and the last one ends), and all bytes, with some padding."""
    width = np.int64 if pa.types.is_large_binary(values.type) else np.int32
    _, offsets, data = values.buffers()
    if offsets is None or not len(values):
        bounds = np.zeros(len(values) + 1, np.int64)
    else:
        all_of_them = np.frombuffer(offsets, width)
        bounds = all_of_them[values.offset : values.offset + len(values) + 1].astype(np.int64)
    first = int(bounds[0])
    raw = np.frombuffer(data, np.uint8)[first : int(bounds[-1])] if data is not None else None
    padded = np.zeros((0 if raw is None else len(raw)) + _EXTRA, np.uint8)
    if raw is not None:
        padded[: len(raw)] = raw
    return bounds - first, padded


def raw_bytes(data: Bytes, at: Ints, width: int) -> Bytes:
    """`width` bytes from each position; positions past the end read the padding."""
    places = np.minimum(at, len(data) - width)[:, None] + np.arange(width)
    found: Bytes = data[places]
    return found


def numbers(data: Bytes, at: Ints, form: str) -> Ints:
    """Big-endian numbers of a numpy form (`i8`, `u1`) from each position."""
    kind = np.dtype(f">{form}")
    found: Ints = raw_bytes(data, at, kind.itemsize).view(kind).ravel().astype(np.int64)
    return found
