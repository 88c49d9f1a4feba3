"""`rebal verify --watch`: look again and again, until the gate holds or a danger shows."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

import msgspec

from rebal.cli.errors import UsageError
from rebal.groups.errors import RebalError
from rebal.groups.model import Tri
from rebal.planner.verification.verify import NOT_YET, Standing

if TYPE_CHECKING:
    from rebal.groups.model import GroupSnapshot

_DURATION: Final = re.compile(r"(\d+(?:\.\d+)?)\s*([smh]?)\Z")
_UNITS: Final = {"": 1, "s": 1, "m": 60, "h": 3600}


def watch(
    look: Callable[[], GroupSnapshot],
    judge: Callable[[GroupSnapshot], Standing],
    show: Callable[[Standing], None],
    *,
    seconds: float,
    every: float,
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
    now: Callable[[], datetime] = lambda: datetime.now(UTC),
) -> Standing:
    """The last standing: of the look that decided, or of the last one within `seconds`.

    The first look must succeed: a wrong address is said at once. After it, a look that fails makes
    the watch blind, from the last look that saw something on, which is shown and is never taken for
    an answer; each look connects anew, so brokers may restart and tokens be replaced.

    Raises:
        RebalError: the first look failed.
    """
    end = clock() + seconds
    standing: Standing | None = None
    while True:
        try:
            standing = judge(look())
        except RebalError as error:
            if standing is None:
                raise
            standing = _blind(standing, str(error), now())
        show(standing)
        decided = standing.blind_since is None and standing.exit_code != NOT_YET
        left = end - clock()
        if decided or left <= 0:
            return standing
        sleep(min(every, left))


def _blind(standing: Standing, why: str, at: datetime) -> Standing:
    """What was known, with nothing of it an answer any more."""
    return msgspec.structs.replace(
        standing,
        at=at,
        gate=Tri.CANNOT_TELL,
        why=("the group cannot be read now",),
        next="wait, and restart nothing while nobody looks",
        finished=False,
        dangers=(),
        findings=(),
        blind_since=standing.blind_since or standing.at,
        blind_why=why,
        exit_code=NOT_YET,
    )


def duration(text: str) -> float:
    """`30m`, `90s`, `1h` or seconds, in seconds.

    Raises:
        UsageError: anything else.
    """
    match = _DURATION.match(text.strip().lower())
    if match is None:
        raise UsageError(f"--for {text}: expected a duration such as 90s, 30m or 2h.")
    return float(match[1]) * _UNITS[match[2]]
