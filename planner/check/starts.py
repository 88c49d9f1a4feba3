"""The next start of one consumer, as a version of a repository declares it.

`Start` joins what a configuration file declares and what a lock, build or image file says of the
client library. What neither says is None, and an assignor list that is not known has an `open_name`
in it: it is equal only to itself, so that nothing unknown counts as common.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from rebal.groups.clients import default_list, family, version_tuple
from rebal.groups.evidence.observations import Declared
from rebal.groups.model import Record
from rebal.planner.clients import custom
from rebal.planner.context import CONSUMER, STREAMS

PROGRAMS: Final = ("streams", "connect")
"""Families whose library is Java's."""
BY_BROKERS: Final = {CONSUMER: "none (KIP-848)", STREAMS: "none (KIP-1071)"}
"""Values of group.protocol under which the brokers assign: no list is compared."""
_OPEN: Final = "?"
_PROFILE: Final = re.compile(r" \(profile ([\w-]+)\)\Z")
_CONSUMER_BY_DEFAULT: Final = (5,)
"""From this version on, Java's default of group.protocol is consumer (KIP-1274)."""
_READS_PROTOCOL: Final = (3, 7)
"""From this version on, Java reads group.protocol (KAFKA-15679), and before it ignores it."""


class Library(Record, frozen=True, kw_only=True):
    """The client library of a service, and the product that hides it (empty: none does).

    `default_list` is None where it is not known for this version. `group_protocol` is False for a
    product that joins no group. `list_key` is how its configuration spells the assignor list,
    `refuses` one sentence on the lists that it does not take, `source` where the facts are from.
    `own_list`: the product sets a list in some version. `ecosystem` is its package's, as in a
    package URL. `faults` are this version's: the protocol under which each shows, and what it does.
    `where` is the file that names the dependency.
    """

    family: str | None = None
    version: str | None = None
    product: str = ""
    product_version: str | None = None
    default_list: tuple[str, ...] | None = None
    group_protocol: bool = True
    list_key: str | None = None
    refuses: str | None = None
    source: str = ""
    own_list: bool = True
    ecosystem: str = ""
    faults: tuple[tuple[str, str], ...] = ()
    where: str = ""

    @property
    def title(self) -> str:
        """Return `java 3.9.0`, or `java` where the version is not known."""
        return f"{self.family or 'not known'} {self.version or ''}".rstrip()

    @property
    def product_title(self) -> str:
        """Return `Logstash 8.10.0`; empty where no product hides the library."""
        return f"{self.product} {self.product_version or ''}".rstrip() if self.product else ""


class Start(Record, frozen=True, kw_only=True):
    """The next start of one consumer. `file` is relative to the version's root, `where` names the
    place in it. Without a configuration file `declared` is None.
    """

    file: str
    where: str
    declared: Declared | None = None
    library: Library | None = None

    @property
    def group_id(self) -> str | None:
        """Return the group id; None where no file says it."""
        return self.declared.group_id if self.declared is not None else None

    @property
    def brokers(self) -> str | None:
        """Return the bootstrap servers; None where no file says them."""
        return self.declared.brokers if self.declared is not None else None

    @property
    def folder(self) -> str:
        """Return the folder of its file."""
        return self.file.rpartition("/")[0] or "."

    @property
    def profile(self) -> str | None:
        """Return the Spring profile that it is of."""
        found = _PROFILE.search(self.where)
        return found[1] if found else None

    @property
    def family(self) -> str | None:
        """Return the client family: a program's own, else the library's, else by its settings."""
        declared = self.declared.family if self.declared is not None else None
        library = self.library.family if self.library is not None else None
        return declared if declared in PROGRAMS else library or declared

    @property
    def client(self) -> str | None:
        """Return the client family, or the product where its library is not known."""
        return self.family or (self.library.product if self.library is not None else None)

    def same_client(self, other: Start) -> bool:
        """Return whether both may be one client; where one is not known, nothing says otherwise."""
        return None in (self.client, other.client) or self.client == other.client

    @property
    def version(self) -> str | None:
        """Return the library's version."""
        return self.library.version if self.library is not None else None

    @property
    def ignores_protocol(self) -> bool:
        """Return whether the client is of a version that does not read group.protocol."""
        have = version_tuple(self.version)
        return self.family == "java" and have is not None and have < _READS_PROTOCOL

    @property
    def protocol(self) -> str | None:
        """Return group.protocol; None where it is unset and the default is not known."""
        if self.declared is not None and self.declared.group_protocol is not None:
            return "classic" if self.ignores_protocol else self.declared.group_protocol
        have = version_tuple(self.version)
        newer = have is not None and have >= _CONSUMER_BY_DEFAULT
        return None if newer and self.family == "java" else "classic"

    @property
    def names(self) -> tuple[str, ...]:
        """Return the assignor list of the next start, with an open name where it is not known."""
        declared, library = self.declared, self.library
        if self.protocol in BY_BROKERS:
            return ()
        if declared is not None and declared.list:
            return declared.list
        same = library is not None and library.family == self.family
        written = library.default_list if library is not None and same else None
        by_family = default_list(self.family, self.version)
        return written or by_family or (*_heads(self), open_name(self))

    @property
    def writes_list(self) -> bool:
        """Return whether its configuration sets the assignor list, or needs none."""
        written = self.declared is not None and self.declared.list_set
        return written or self.protocol in BY_BROKERS

    @property
    def list_text(self) -> str:
        """Return the list for texts, with where it is from if no file writes it."""
        if self.protocol in BY_BROKERS:
            return BY_BROKERS[self.protocol]
        if any(map(is_unset, self.names)):
            heads = [name for name in self.names if not is_unset(name)]
            return f"[{', '.join(heads)}, …], the rest not known" if heads else "not known"
        shown = f"[{', '.join(self.names)}]"
        if self.writes_list:
            return shown
        if self.library is None:
            return f"{shown} (default of {self.family})"
        return f"{shown} (default of {self.library.product_title or self.library.title})"


def _heads(start: Start) -> tuple[str, ...]:
    """Return the assignor that every version of the library has first by default, if one is."""
    known = family(start.family)
    library = start.library
    hidden = library is not None and library.product and library.own_list
    first = {default.list[0] for default in known.defaults} if known and not hidden else set()
    return tuple(first) if len(first) == 1 else ()


def open_name(start: Start) -> str:
    """Return the name that stands for a list that is not known: equal inputs give equal names."""
    library = start.library or Library()
    inputs = (start.family, library.version, library.product, library.product_version)
    return _OPEN + "|".join(map(str, inputs))


def is_open(name: str) -> bool:
    """Return whether an assignor's name on the wire is not known: a class of the application's own,
    or a list that is not known.
    """
    return is_unset(name) or (custom(name) and ("." in name or not name.islower()))


def is_unset(name: str) -> bool:
    """Return whether the name stands for the default list of a client that is not known."""
    return name.startswith(_OPEN)


def aspects(start: Start) -> Iterator[tuple[str, str]]:
    """Yield what decides how the consumer starts, each as its name and its value in words.

    The assignor list is not among them: where it is from may change while it stays the same.
    """
    declared, library = start.declared, start.library
    yield "group.id", start.group_id or "not known"
    if declared is not None:
        ignored = declared.group_protocol is not None and start.ignores_protocol
        note = f" ({start.version} ignores it)" if ignored else ""
        yield "group.protocol", f"{declared.group_protocol or 'not set'}{note}"
        yield "group.instance.id", declared.instance_id or "not set (dynamic member)"
        yield "session.timeout.ms", _shown(declared.session_timeout_ms)
        yield "max.poll.interval.ms", _shown(declared.max_poll_interval_ms)
        yield "upgrade.from", declared.upgrade_from or "not set"
        yield "classic settings", ", ".join(declared.classic_only) or "none"
    if library is not None:
        yield "library", library.title
        if library.product:
            yield "product", library.product_title


def _shown(value: int | None) -> str:
    return "not set" if value is None else f"{value}"


def of_profile(starts: Iterable[Start], profile: str | None) -> list[Start]:
    """Return the starts while `profile` is active: its own replace those of the same folder."""
    found = list(starts)
    own = [start for start in found if start.profile == profile]
    replaced = {start.folder for start in own}
    base = [s for s in found if s.profile is None and s.folder not in replaced]
    return own if profile is None else [*own, *base]


def profiles(*sides: Sequence[Start]) -> list[str | None]:
    """Return the profiles of these starts, none first."""
    return list(dict.fromkeys([None, *(start.profile for side in sides for start in side)]))
