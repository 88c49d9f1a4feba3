"""Kafka's compact forms, written apart from the readers under test, and values for properties."""

from __future__ import annotations

from hypothesis import strategies as st

short = st.text(st.characters(codec="utf-8"), max_size=200)
int32 = st.integers(-(2**31), 2**31 - 1)
int64 = st.integers(-(2**63), 2**63 - 1)


def varint(value: int) -> bytes:
    """An unsigned variable-length number (KIP-482)."""
    out = b""
    while value > 0x7F:
        out += bytes([value & 0x7F | 0x80])
        value >>= 7
    return out + bytes([value])


def compact(text: str | None) -> bytes:
    """Text of a flexible version."""
    if text is None:
        return varint(0)
    raw = text.encode()
    return varint(len(raw) + 1) + raw
