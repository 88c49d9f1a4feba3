"""The errors that the pure rooms raise; each message is one sentence that says what to do."""

from __future__ import annotations


class RebalError(Exception):
    """Base of every error rebal raises on purpose; its text is shown to the operator as it is."""


class WireError(RebalError):
    """Bytes that are not what the protocol says they are."""


class DocumentError(RebalError):
    """A file that cannot be read as what it claims to be; names the field and the line or path."""
