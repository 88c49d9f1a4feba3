"""The errors of reading a live cluster; each message is one sentence that says what to do."""

from __future__ import annotations

from typing import Literal

from rebal.groups.errors import RebalError

ConnectKind = Literal["unreachable", "timeout", "authentication", "tls", "protocol", "token"]


class SettingError(RebalError):
    """A connection setting that is wrong, not known, or not supported; names the key."""


class ConnectError(RebalError):
    """The whole cluster cannot be read: `kind` tells the causes apart."""

    def __init__(self, message: str, kind: ConnectKind) -> None:
        super().__init__(message)
        self.kind: ConnectKind = kind


class RequestError(RebalError):
    """A broker answered one request with an error, or did not answer in time.

    `name` is Kafka's own error name (`GROUP_AUTHORIZATION_FAILED`), or `TIMED_OUT`,
    `DISCONNECTED`, `UNREACHABLE`, `UNSUPPORTED_VERSION` where no answer came.
    """

    def __init__(self, name: str, message: str) -> None:
        super().__init__(message)
        self.name = name


class SelectionError(RebalError):
    """A choice of groups that leaves none, or that cannot be understood."""
