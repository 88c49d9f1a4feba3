"""`counted_calls()`: the work of a block as a number of calls, the same on every machine."""

import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def counted_calls() -> Iterator[Counter[str]]:
    """Count the calls of this thread in the block, by the name of the Python function.

    A call of a built-in function counts for the function that makes it.
    """
    calls: Counter[str] = Counter()

    def count(frame: FrameType, event: str, _: object) -> None:
        if event in ("call", "c_call"):
            calls[frame.f_code.co_qualname] += 1

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        yield calls
    finally:
        sys.setprofile(before)
