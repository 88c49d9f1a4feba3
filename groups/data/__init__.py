"""Facts as data: client families, versions, assignor names and Kafka's messages, with sources."""

from importlib.resources import files
from threading import Lock
from typing import Any, Final, TypeVar

import msgspec
import yaml

_T = TypeVar("_T")

# Of two threads that first use a type at once, msgspec ends the process (0.22).
_LOCK: Final = Lock()
_LOADED: Final[dict[tuple[str, str], Any]] = {}


def load_data(name: str, kind: type[_T], package: str = __name__) -> _T:
    """Return the contents of the YAML file `name` in `package`, as an instance of `kind`.

    Each file is read once and then cached.
    """
    with _LOCK:
        if (package, name) not in _LOADED:
            text = files(package).joinpath(name).read_text(encoding="utf-8")
            read = yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
            _LOADED[package, name] = msgspec.convert(read, kind)
        found: _T = _LOADED[package, name]
    return found
