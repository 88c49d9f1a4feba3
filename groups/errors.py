"""Errors that rebal raises on purpose. Each message is one sentence that says what to do."""

from collections.abc import Sequence

from rebal.groups.commands import Command


class RebalError(Exception):
    """Base of all errors that rebal raises on purpose; the operator sees the message as it is.

    `commands` are commands that the operator can run next, printed below the message.
    """

    def __init__(self, message: str = "", *commands: Command) -> None:
        super().__init__(message)
        self.commands = commands


class WireError(RebalError):
    """Bytes that do not follow Kafka's wire format."""


class DocumentError(RebalError):
    """A document that cannot be read; the message names the field and its line or path."""


class AssumptionError(RebalError):
    """An assumption that cannot be read, matches no member, or contradicts evidence."""


class UnknownAssignorError(RebalError):
    """A name that is not the name of one of Kafka's own assignors."""


class CustomAssignorError(RebalError):
    """A custom assignor that cannot be used or failed; the message names the assignor and why."""


class LeaderWouldFail(RebalError):  # noqa: N818 - the real leader fails, not rebal
    """Input on which the real group leader throws or never ends, so that it sends no assignment.

    `never_ends` is True if the leader never ends. `members` (member ids) and `topics` are those
    that cause the failure.
    """

    def __init__(
        self, why: str, *, members: Sequence[str], topics: Sequence[str], never_ends: bool = False
    ) -> None:
        super().__init__(why)
        self.members = tuple(members)
        self.topics = tuple(topics)
        self.never_ends = never_ends
