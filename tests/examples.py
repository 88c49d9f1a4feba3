"""`examples(300)`: a number of Hypothesis examples that the profile `quick` divides by five."""

import os

from hypothesis import settings

_WHOLE = 100


def examples(count: int, full: int | None = None) -> settings:
    """Return the settings of a test with `count` examples in `make test`, `full` in test-full."""
    if full and os.environ.get("REBAL_FULL") == "1":
        count = full
    share = settings().max_examples / _WHOLE
    return settings(max_examples=max(1, round(count * share)))
