"""Fields of fixed size read from all values of a binary Arrow column at once, by numpy."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa

Ints = np.ndarray[Any, np.dtype[np.int64]]
Mask = np.ndarray[Any, np.dtype[np.bool_]]
Bytes = np.ndarray[Any, np.dtype[np.uint8]]

_WIDEST: Final = 8
"""Bytes of the widest field that can be read."""


def buffers(values: pa.Array) -> tuple[Ints, Bytes]:
    """Return the place at which each value begins (and the last one ends), and all bytes, which are
    not copied.
    """
    width = np.int64 if pa.types.is_large_binary(values.type) else np.int32
    _, offsets, data = values.buffers()
    if offsets is None or not len(values):
        bounds = np.zeros(len(values) + 1, np.int64)
    else:
        all_of_them = np.frombuffer(offsets, width)
        bounds = all_of_them[values.offset : values.offset + len(values) + 1].astype(np.int64)
    raw = np.frombuffer(b"" if data is None else data, np.uint8)
    if len(raw) < _WIDEST:
        raw = np.concatenate([raw, np.zeros(_WIDEST, np.uint8)])
    return bounds, raw


def numbers(data: Bytes, at: Ints, form: str) -> Ints:
    """Big-endian numbers of a numpy form (`i8`, `u1`) from each position.

    A position past the end gives some number: ask how long a value is before you believe it.
    """
    kind = np.dtype(f">{form}")
    places = len(data) - kind.itemsize + 1
    anywhere = np.ndarray((places,), kind, data, strides=(1,))
    found: Ints = anywhere[np.minimum(np.maximum(at, 0), places - 1)].astype(np.int64)
    return found
