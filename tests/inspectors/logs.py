"""Client logs that a test writes, and what is read from logs."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

from rebal.groups.evidence.observations import Joined
from rebal.inspectors.logs.client.reader import read_client_logs
from rebal.inspectors.logs.forms import LogReading

DATA = Path(__file__).parents[1] / "data"
_T = TypeVar("_T")


def read_clients(*logs: str | Iterable[str], **options: Any) -> LogReading:
    """Read a folder with these client logs, each a text or its lines."""
    with TemporaryDirectory() as folder:
        for number, log in enumerate(logs):
            text = log if isinstance(log, str) else "".join(f"{line}\n" for line in log)
            Path(folder, f"{number}.log").write_text(text)
        return read_client_logs([Path(folder)], **options)


def of_kind(reading: LogReading, kind: type[_T]) -> list[_T]:
    return [one for one in reading.observations if isinstance(one, kind)]


def lists(reading: LogReading) -> dict[str, tuple[str, ...]]:
    """The list that is shown of each member id."""
    return {one.member_id: one.list for one in of_kind(reading, Joined)}
