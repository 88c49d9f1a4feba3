"""Facts as data: client families, versions, assignor names and Kafka's messages, with sources."""

from __future__ import annotations

from importlib.resources import files
from typing import TypeVar

import msgspec
import yaml

_T = TypeVar("_T")


def load_data(name: str, kind: type[_T], package: str = __name__) -> _T:
    """Return the contents of a YAML file of `package` (by default of this one) as a `kind`."""
    text = files(package).joinpath(name).read_text(encoding="utf-8")
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    return msgspec.convert(yaml.load(text, Loader=loader), kind)
