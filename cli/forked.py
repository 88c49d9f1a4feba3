"""A parallel map: `mapped` forks up to four child processes on Linux."""

import os
import signal
import sys
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

_T = TypeVar("_T")
_R = TypeVar("_R")
_MOST: Final = 4
# Shares of a process: one that has easy items takes more of them.
_SHARES: Final = 4
_work: Callable[[Any], Any]
_items: Sequence[Any]


def mapped(work: Callable[[_T], _R], items: Sequence[_T], *, worth_it: bool = True) -> list[_R]:
    """Return `work` of each item, in order, computed in child processes if `worth_it`.

    The children inherit the data that was read so far and send back only the results, which must be
    picklable. If a child fails, this process computes everything again, so errors are raised as
    without a fork.
    """
    # Children inherit both: only numbers are sent to them.
    global _work, _items
    count = min(_processors(), len(items)) if worth_it else 1
    if count < 2:
        return list(map(work, items))
    from concurrent.futures import ProcessPoolExecutor
    from multiprocessing import get_context

    _work, _items = work, items
    share = -(-len(items) // (_SHARES * count))
    try:
        # A child that is interrupted ends without a word; this process says that it stopped.
        with ProcessPoolExecutor(
            count, get_context("fork"), signal.signal, (signal.SIGINT, signal.SIG_DFL)
        ) as pool:
            return list(pool.map(_worked, range(len(items)), chunksize=share))
    except Exception:  # What it was is raised here again.
        return list(map(work, items))


def _worked(number: int) -> Any:
    return _work(_items[number])


def _processors() -> int:
    # macOS has fork, and system libraries that do not survive it.
    return 1 if not sys.platform.startswith("linux") else min(_MOST, len(os.sched_getaffinity(0)))
