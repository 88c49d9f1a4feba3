"""Looks at live groups, again and again: what `rebal groups` and `rebal verify` watch with."""

import time
from collections.abc import Callable
from datetime import timedelta
from typing import TypeVar

from rebal.cli import output
from rebal.groups.errors import RebalError

_Seen = TypeVar("_Seen")
_Made = TypeVar("_Made")


def watch(
    look: Callable[[], _Seen],
    judge: Callable[[_Seen], _Made],
    blind: Callable[[_Made, str, timedelta], _Made],
    show: Callable[[_Made], None],
    *,
    seconds: float,
    every: float,
    decided: Callable[[_Made], bool] = lambda _: False,
    watched: Callable[[], bool] = output.has_reader,
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> _Made:
    """Return what was made of the last look, within `seconds` or when it is `decided`.

    If the first look fails, its error is raised, so that a wrong address is reported at once. Of a
    later one that fails `blind` makes what is shown, out of what was made before, the error and the
    time since then. Each look opens new connections, so brokers may restart and tokens may be
    replaced. The watch ends when `watched` says that nobody reads what `show` prints any longer.

    Raises:
        RebalError: the first look failed, or one cannot be judged.
    """
    end, at = clock() + seconds, 0.0
    made: _Made | None = None
    while True:
        try:
            seen = look()
        except RebalError as error:
            if made is None:
                raise
            made = blind(made, str(error), timedelta(seconds=clock() - at))
        else:
            made = judge(seen)
        at = clock()
        show(made)
        left = end - at
        if decided(made) or left <= 0 or not watched():
            return made
        sleep(min(every, left))
