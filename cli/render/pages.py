"""Self-contained HTML pages, and the labels of their time axes."""

from collections.abc import Iterator
from importlib.resources import files
from math import ceil
from typing import Any, Final

from rebal.cli.errors import UsageError
from rebal.cli.output import escape
from rebal.cli.render.text import duration

_DAY: Final = 86_400
# Seconds between the times of an axis that are round to a reader.
_STEPS: Final = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14_400, 43_200)


def html_page(name: str, **values: Any) -> str:
    """Return the HTML page of the templates in `data/NAME`, with its style and script inlined.

    All `values` are escaped.

    Raises:
        UsageError: jinja2 is not installed.
    """
    # Pages alone need jinja2, which comes with the extra `fleet`.
    try:
        from jinja2 import Environment, StrictUndefined
    except ImportError:
        raise UsageError("-o html needs jinja2: pip install 'rebal[fleet]'.") from None
    parts = files("rebal.cli").joinpath("data", name).iterdir()
    sources = {part.name.removeprefix("page."): part.read_text("utf-8") for part in parts}
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    made = environment.from_string(sources.pop("html")).render(**sources, **values)
    return "\n".join(map(escape, made.split("\n")))


def ticks(seconds: float, least: float) -> Iterator[tuple[int, str]]:
    """Yield round times from 0 to `seconds`, at least `least` seconds apart, each with its text."""
    step = next((one for one in _STEPS if one >= least), _DAY * max(1, ceil(least / _DAY)))
    yield from ((at, duration(at)) for at in range(0, int(seconds) + 1, step))
