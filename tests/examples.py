"""`examples(300)`: a number of Hypothesis examples that the profile `quick` divides by five."""

from hypothesis import settings

_WHOLE = 100


def examples(count: int) -> settings:
    """Return the settings of a test that needs `count` examples in the whole test run."""
    share = settings().max_examples / _WHOLE
    return settings(max_examples=max(1, round(count * share)))
