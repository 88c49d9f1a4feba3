"""Durations and shares as people write them, in options, scripts and parameters of rehearsals.

A duration is `90s`, `5m`, `1.5h`, `7d`, `500ms` or a number of seconds. A share is `20%` or `0.2`.
Durations in the configuration files of products have other notations and are parsed elsewhere.
"""

import re
from typing import Final

_DAY: Final = 86_400.0
_UNITS: Final = {
    "ms": 0.001,
    "s": 1.0,
    "": 1.0,
    "m": 60.0,
    "min": 60.0,
    "h": 3600.0,
    "d": _DAY,
}


def seconds_of(text: str | float, *, days: float = 365) -> float:
    """Return the duration `text` in seconds.

    Raises:
        ValueError: `text` is not a duration, or is longer than `days` days; the message is a
            clause without a full stop.
    """
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(ms|s|m|min|h|d|)", str(text).strip().lower())
    if found is None:
        raise ValueError(f"expected a duration such as 90s, 30m or 2h, got {str(text)[:40]!r}")
    seconds = float(found[1]) * _UNITS[found[2]]
    if seconds > days * _DAY:
        raise ValueError(f"{str(text)[:40]} is longer than {days:g} days")
    return seconds


def share_of(text: str | float) -> float:
    """Return a share such as `20%` or `0.2` as a number from 0 to 1.

    Raises:
        ValueError: `text` is not a share from 0 to 1; the message is a clause.
    """
    plain = str(text).strip()
    number = plain.removesuffix("%")
    if re.fullmatch(r"\d+(?:\.\d+)?", number) is not None:
        value = float(number) / (100 if plain.endswith("%") else 1)
        if value <= 1:
            return value
    raise ValueError(f"expected a share such as 20%, got {plain[:40]!r}")
