"""Readers of a live cluster: groups, brokers, the JoinGroup probe, `__consumer_offsets`.

The package also delays the `__init__` of kafka-python's packages. `import a.b.c` runs the
`__init__` of `a` and of `a.b` first, and those of kafka-python import all of its clients. rebal
uses none of these clients: the messages and logins that it needs are in submodules. Without the
clients, `rebal inspect GROUP --probe` takes a seventh less time.
"""

import sys
import threading
from importlib.util import find_spec, module_from_spec
from types import ModuleType
from typing import Any, Final

# One lock for all packages: each may import the others.
_LOCK: Final = threading.RLock()


class _Deferred(ModuleType):
    """A package whose `__init__` runs at the first access to a name that it does not have yet."""

    def __getattr__(self, name: str) -> Any:
        """Run the package's `__init__` at the first call, then return the attribute `name`."""
        with _LOCK:
            state = self.__dict__
            if state.get("_runs"):
                # Asked by its own `__init__`, which defines the name later or not at all.
                raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
            if type(self) is _Deferred:
                spec: Any = self.__spec__
                state["_runs"] = True
                try:
                    spec.loader.exec_module(self)
                    self.__class__ = ModuleType  # type: ignore[assignment]
                finally:
                    del state["_runs"]
        return getattr(self, name)


def defer(name: str) -> None:
    """Let the modules of the package `name` be imported without running its `__init__`.

    A package that is imported already, or is not installed, stays as it is.
    """
    if name in sys.modules:
        return
    spec = find_spec(name)
    if spec is None or spec.loader is None or spec.submodule_search_locations is None:
        return
    made = module_from_spec(spec)
    made.__class__ = _Deferred
    sys.modules[name] = made
    parent, _, child = name.rpartition(".")
    if parent:
        setattr(sys.modules[parent], child, made)


for _package in ("kafka", "kafka.net", "kafka.protocol", "kafka.protocol.admin"):
    defer(_package)
