"""The next start of one consumer, as a version of a repository declares it.

`Start` joins what a configuration file declares and what a lock, build or image file says of the
client library. What neither says is None, and an assignor list that is not known has an `open_name`
in it: it is equal only to itself, so that nothing unknown counts as common.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from rebal.groups.clients import default_list, family, version_tuple
from rebal.groups.evidence.observations import Declared
from rebal.groups.libraries import Library
from rebal.groups.model import Evidence, Record, Source
from rebal.planner.clients import custom
from rebal.planner.context import CONSUMER, STREAMS

# Families whose library is Java's.
PROGRAMS: Final = ("streams", "connect")
# Values of group.protocol under which the brokers assign: no list is compared.
BY_BROKERS: Final = {CONSUMER: "none (KIP-848)", STREAMS: "none (KIP-1071)"}
_OPEN: Final = "?"
_PROFILE: Final = re.compile(r" \(profile (.+)\)\Z")
# From this version on, Java's default of group.protocol is consumer (KIP-1274).
_CONSUMER_BY_DEFAULT: Final = (5,)
# From this version on, Java reads group.protocol (KAFKA-15679), and before it ignores it.
_READS_PROTOCOL: Final = (3, 7)


class Start(Record, frozen=True, kw_only=True):
    """The next start of one consumer. `file` is relative to the version's root, `where` names the
    place in it. `configured`: a configuration file declares it, not its library alone.
    """

    file: str
    where: str
    declared: Declared
    library: Library = Library()
    configured: bool = True

    @property
    def group_id(self) -> str | None:
        """Return the group id; None where no file says it."""
        return self.declared.group_id

    @property
    def is_static(self) -> bool:
        """Return whether it starts with a group.instance.id."""
        return self.declared.instance_id is not None

    @property
    def folder(self) -> str:
        """Return the folder of its file."""
        return self.file.rpartition("/")[0] or "."

    @property
    def profile(self) -> str | None:
        """Return the profile that it is of: a name, or an expression of Spring."""
        found = _PROFILE.search(self.where)
        return found[1] if found else None

    @property
    def family(self) -> str | None:
        """Return the client family: a program's own, else the library's, else by its settings."""
        declared = self.declared.family
        return declared if declared in PROGRAMS else self.library.family or declared

    @property
    def client(self) -> str | None:
        """Return the client family, or the product where its library is not known."""
        return self.family or self.library.product or None

    def same_client(self, other: Start) -> bool:
        """Return whether both may be one client; where one is not known, nothing says otherwise."""
        return None in (self.client, other.client) or self.client == other.client

    def same_list(self, other: Start) -> bool:
        """Return whether both have one assignor list, and one group.protocol."""
        return (self.protocol, self.names) == (other.protocol, other.names)

    @property
    def ignores_protocol(self) -> bool:
        """Return whether the client is of a version that does not read group.protocol."""
        have = version_tuple(self.library.version)
        return self.family == "java" and have is not None and have < _READS_PROTOCOL

    @property
    def protocol(self) -> str | None:
        """Return group.protocol; None where it is unset and the default is not known."""
        if self.declared.group_protocol is not None:
            return "classic" if self.ignores_protocol else self.declared.group_protocol
        have = version_tuple(self.library.version)
        newer = have is not None and have >= _CONSUMER_BY_DEFAULT
        return None if newer and self.family == "java" else "classic"

    @property
    def names(self) -> tuple[str, ...]:
        """Return the assignor list of the next start, with an open name where it is not known."""
        if self.protocol in BY_BROKERS:
            return ()
        written = self.library.default_list if self.library.family == self.family else None
        by_family = default_list(self.family, self.library.version)
        return _taken(self) or written or by_family or (*_heads(self), open_name(self))

    @property
    def writes_list(self) -> bool:
        """Return whether its configuration sets the assignor list, or needs none."""
        return bool(self.declared.list) or self.protocol in BY_BROKERS

    @property
    def list_text(self) -> str:
        """Return the list for texts, with where it is from if no file writes it."""
        if self.protocol in BY_BROKERS:
            return BY_BROKERS[self.protocol]
        if any(map(is_unset, self.names)):
            heads = [name for name in self.names if not is_unset(name)]
            return f"[{', '.join(heads)}, …], the rest not known" if heads else "not known"
        named = self.library.product_title or (self.library.where and self.library.title)
        default = "" if self.writes_list else f" (default of {named or self.family})"
        return f"[{', '.join(self.names)}]{default}"


def start_of(file: str, library: Library) -> Start:
    """Return the start of a consumer of which a file names the library alone."""
    declared = Declared(where=file, evidence=Evidence(source=Source.ASSUMED, detail=file))
    return Start(file=file, where=file, declared=declared, library=library, configured=False)


def _taken(start: Start) -> tuple[str, ...]:
    """Return the list that a file writes; a name that this client does not know stays as written.

    Java takes classes, librdkafka its own names.
    """
    spelled, written = start.declared.spelled, start.declared.list
    both = zip(spelled, written, strict=False)
    java = tuple(name if "." in own else f"class {own}" for own, name in both)
    return {"librdkafka": spelled, "java": java}.get(start.family or "") or written


def _heads(start: Start) -> tuple[str, ...]:
    """Return the assignor that every version of the library has first by default, if one is."""
    known = family(start.family)
    hidden = start.library.product and start.library.own_list
    first = {default.list[0] for default in known.defaults} if known and not hidden else set()
    return tuple(first) if len(first) == 1 else ()


def open_name(start: Start) -> str:
    """Return the name that stands for a list that is not known: equal inputs give equal names."""
    library = start.library
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


def aspects(start: Start) -> dict[str, str]:
    """Return what decides how the consumer starts, by name and in words.

    The assignor list is not among them: where it is from may change while it stays the same.
    """
    declared, library = start.declared, start.library
    note = f" ({library.version} ignores it)" if start.ignores_protocol else ""
    unread = dict.fromkeys(declared.classic_only, "set")
    # Settings that a file leaves out, or takes from a placeholder.
    times = {
        name: unread.get(name, "not set") if own is None else str(own)
        for name, own in (
            ("heartbeat.interval.ms", declared.heartbeat_ms),
            ("session.timeout.ms", declared.session_timeout_ms),
            ("max.poll.interval.ms", declared.max_poll_interval_ms),
        )
    }
    several = f" ({declared.replicas} processes)" if (declared.replicas or 1) > 1 else ""
    return {
        "group.id": start.group_id or "not known",
        "bootstrap.servers": declared.brokers or "not known",
        "group.protocol": f"{declared.group_protocol}{note}"
        if declared.group_protocol
        else "not set",
        "group.instance.id": f"{declared.instance_id}{several}"
        if start.is_static
        else "not set (dynamic member)",
        **times,
        "upgrade.from": declared.upgrade_from or "not set",
        "library": library.title,
        "product": library.product_title or ("none" if library.family else "not known"),
    }


def of_profile(starts: Iterable[Start], profile: str | None) -> list[Start]:
    """Return the starts while `profile` is active: its own replace those of the same folder."""
    found = list(starts)
    own = [start for start in found if start.profile == profile]
    replaced = {start.folder for start in own}
    base = [s for s in found if s.profile is None and s.folder not in replaced]
    return own if profile is None else [*own, *base]
