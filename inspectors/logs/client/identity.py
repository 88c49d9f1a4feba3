"""Which member ids of a log belong to which printed configuration: `Lives`.

Java names its consumers alike in every pod (`consumer-GROUP-1`), and logs of several pods are
merged into one stream, one of them without its start. A client id therefore proves nothing. A
member id is tied to a configuration only where no other client of that name can have it:

- A dynamic member is given its id (KIP-394), which clients since 3.0 print. An id that was given in
  the stream belongs to a configuration before it that has no member yet. Where several could be
  meant, they must have the same list.
- Older clients, static members and Connect's workers (WorkerCoordinator.requestRejoin) print no
  such line. Their first join counts where, since the
  configuration, no line says that a client of that name was a member already; a dynamic one sends
  its first join twice, for the coordinator gives it its id in between.
- A client that loses its id (session expired, poll timeout) is given another one.
- One member whose start is not in the stream, or more members than configurations, leave all of
  them unknown.

When every client of that name was seen to close, what follows is judged on its own: restarts within
one file stay told apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal, NamedTuple

from msgspec.structs import replace

from rebal.inspectors.logs.client.configs import GENERATED, Config, Lookup

# The first release that prints that it was given a member id.
_PRINTS_GIVEN: Final = (3, 0)
# How often a dynamic client that was not a member sends a join before it is one (KIP-394).
_SENT_AT_FIRST: Final = 2
# What configurations with one list may differ in; it is not known of the members then.
_MAY_DIFFER: Final = (
    *("printed_at", "version", "session_timeout_ms", "rebalance_timeout_ms", "held_back_ms"),
    "upgrade_from",
)

Kind = Literal[
    "config",
    "spoiled",
    "given",
    "joining",
    "joined",
    "rejected",
    "left",
    "lost",
    "member",
    "reset",
    "closed",
]


class Event(NamedTuple):
    """One line about a client; `config` is set for its own kind alone.

    The kinds: a configuration; one that was not printed whole (of whichever client); a member id
    was given (empty: releases 3.0 to 3.2 do not print it); a join is sent; a join; a rejection; a
    leave by closing;
    the named id was lost; a line that only a member of the group prints; one that says that a
    client lost its id and not which; a consumer was closed (its group is not printed: empty).
    """

    kind: Kind
    group_id: str = ""
    client_id: str = ""
    instance_id: str | None = None
    member_id: str = ""
    worker: bool = False
    config: Config | None = None


_Track = tuple[str, str, str | None, bool]
_Answer = Config | Lookup


class Lives:
    """The clients of one program of one stream, and what each was built with."""

    def __init__(self) -> None:
        self._events: list[Event] = []
        self._versions: set[str] = set()
        self._unversioned: list[int] = []
        self._resolved = False
        self._members: dict[tuple[str, str], _Answer] = {}
        self._rejections: dict[int, _Answer] = {}

    def add(self, event: Event) -> int:
        """Remember the event; the number names it for `of_rejection`."""
        if event.kind == "joined" and not event.member_id:
            event = event._replace(member_id=_nameless(event.client_id))
        if event.kind == "config":
            self._unversioned.append(len(self._events))
        self._resolved = False
        self._events.append(event)
        return len(self._events) - 1

    def add_version(self, version: str) -> None:
        """A client library's version: of the consumer that was built before it, if it is one."""
        self._versions.add(version)
        if len(self._unversioned) == 1:
            number = self._unversioned[0]
            config = self._events[number].config
            assert config is not None
            versioned = replace(config, version=version)
            self._events[number] = self._events[number]._replace(config=versioned)
        self._unversioned.clear()

    def of_member(self, group_id: str, member_id: str, client_id: str) -> Config | Lookup:
        """The configuration of the member, once the stream was read to its end."""
        self._resolve()
        return self._members.get((group_id, member_id or _nameless(client_id)), Lookup.NONE)

    def of_rejection(self, number: int) -> Config | Lookup:
        """The configuration of the client whose rejection is the event of this number."""
        self._resolve()
        return self._rejections.get(number, Lookup.NONE)

    def joined(self, group_id: str, client_id: str) -> int:
        """How many member ids joined with this client id."""
        return len({e.member_id for e in self._about(group_id, client_id) if e.kind == "joined"})

    def _about(self, group_id: str, client_id: str) -> Sequence[Event]:
        return [e for e in self._events if (e.group_id, e.client_id) == (group_id, client_id)]

    def _resolve(self) -> None:
        if self._resolved:
            return
        self._resolved = True
        self._members, self._rejections = {}, {}
        only = next(iter(self._versions)) if len(self._versions) == 1 else None
        names = {(e.group_id, e.client_id, e.worker) for e in self._events if e.kind == "config"}
        walks: dict[_Track, _Walk] = {}
        keys = [_track(event, names) for event in self._events]
        for key in keys:
            if key[0]:
                walks.setdefault(key, _Walk())
        for number, (key, seen) in enumerate(zip(keys, self._events, strict=True)):
            event = seen
            if event.config is not None and event.config.version is None:
                event = event._replace(config=replace(event.config, version=only))
            if event.kind == "spoiled":
                for walk in walks.values():
                    walk.spoiled = True
            elif event.kind == "closed":
                for track, walk in walks.items():
                    if track[1] in (event.client_id, ""):
                        walk.take(number, event)
            else:
                walks[key].take(number, event)
        for key, walk in walks.items():
            walk.end()
            self._members |= {(key[0], name): answer for name, answer in walk.members.items()}
            self._rejections |= walk.rejections


def _nameless(client_id: str) -> str:
    """What stands for the member id of a client that prints none: no member id has a zero byte."""
    return f"\0{client_id}"


def _track(event: Event, names: set[tuple[str, str, bool]]) -> _Track:
    """The clients that lines cannot tell apart: one group, client id and instance id.

    Clients before 2.4 print a client id that is not set as empty.
    """
    client_id = event.client_id
    unnamed = (event.group_id, client_id, event.worker) not in names
    if unnamed and GENERATED.fullmatch(client_id):
        client_id = ""
    return event.group_id, client_id, event.instance_id, event.worker


class _Walk:
    """One track's events in order. `members` and `rejections` are complete after `end()`."""

    def __init__(self) -> None:
        self.members: dict[str, _Answer] = {}
        self.rejections: dict[int, _Answer] = {}
        self.spoiled = False
        self._begin()

    def _begin(self) -> None:
        """Start anew: no client of this name is known to be open."""
        self._configs = 0
        self._unused: list[Config] = []
        self._ids: dict[str, _Answer] = {}
        self._rejected: dict[int, _Answer] = {}
        self._closed: set[str] = set()
        self._lost: list[str] = []
        self._reborn = 0
        self._resets = 0
        self._given_unnamed = 0
        self._joining = 0
        self._joined = False
        # A client whose start is not in the stream was seen.
        self._foreign = False
        # A client was a member already while a configuration, or an id that was given and not
        # printed, had no member yet.
        self._doubt = False
        self._given_doubt = False

    def end(self) -> None:
        """Judge what was seen since the start, and start anew."""
        unknown = None
        if not self._configs:
            unknown = Lookup.NONE
        elif self._foreign or self._clients() > self._configs:
            unknown = Lookup.AMBIGUOUS
        for name, answer in self._ids.items():
            self.members[name] = unknown or answer
        for number, answer in self._rejected.items():
            self.rejections[number] = unknown or answer
        self._begin()

    def _clients(self) -> int:
        """At least so many clients there were."""
        return len(self._ids) - self._reborn + len(self._rejected)

    def take(self, number: int, event: Event) -> None:
        """The next event, and its number in the stream."""
        name = event.member_id
        if event.kind == "config":
            assert event.config is not None
            self._configs += 1
            self._joining = self._joining if self._unused else 0
            self._unused.append(event.config)
        elif event.kind == "rejected":
            self._rejected[number] = self._answer(self._unused)
        elif event.kind in ("member", "reset"):
            self._foreign = self._foreign or not self._joined
            self._doubt = self._doubt or bool(self._unused)
            self._given_doubt = self._given_doubt or self._given_unnamed > 0
            self._resets += event.kind == "reset"
        elif event.kind == "joining":
            self._joining += 1
        elif event.kind == "closed":
            # Which of several clients it was is not printed, nor whether it had joined.
            if not self._unused and self._clients() <= 1:
                self.end()
        elif name in self.members:
            return
        elif event.kind == "given":
            if not name:
                self._given_unnamed += 1
            elif name not in self._ids:
                self._given(name)
        elif event.kind == "joined":
            self._joined = True
            if name not in self._ids:
                self._first_join(name, event.instance_id is not None, worker=event.worker)
        elif event.kind in ("left", "lost"):
            nameless = _nameless(event.client_id)
            if name not in self._ids and nameless in self._ids:
                name = nameless
            elif name not in self._ids:
                self._foreign = True
                self._ids[name] = Lookup.AMBIGUOUS
            if event.kind == "lost":
                self._lost.append(name)
                return
            self._closed.add(name)
            self._end_if_closed()

    def _end_if_closed(self) -> None:
        """Start anew where every member has closed and no client is left that has not joined."""
        open_ids = self._ids.keys() - self._closed - set(self._lost)
        if not open_ids and not self._unused and len(self._lost) == self._reborn:
            self.end()

    def _given(self, name: str) -> None:
        """A new client's id, or a known client's next one."""
        lost = max(len(self._lost), self._resets) - self._reborn
        if lost <= 0:
            self._ids[name] = self._answer(self._unused)
            return
        # Which client lost its id is not printed each time.
        before = [self._ids.get(each, Lookup.NONE) for each in self._lost]
        known = [each for each in before if isinstance(each, Config)]
        if self._resets > len(self._lost) or len(known) < len(before):
            self._ids[name] = Lookup.AMBIGUOUS
            return
        self._ids[name] = _one_of([*self._unused, *known])
        self._reborn += 1

    def _first_join(self, name: str, static: bool, *, worker: bool) -> None:
        if self._given_doubt:
            self._ids[name] = Lookup.AMBIGUOUS
        elif self._given_unnamed:
            self._given_unnamed -= 1
            self._given(name)
        elif not (static or worker) and any(_prints_given(config) for config in self._unused):
            self._ids[name] = Lookup.AMBIGUOUS
            self._foreign = True
        elif self._doubt or not (static or self._joining >= _SENT_AT_FIRST or name[0] == "\0"):
            self._ids[name] = Lookup.AMBIGUOUS
        else:
            self._ids[name] = self._answer(self._unused)

    def _answer(self, candidates: list[Config]) -> _Answer:
        """What a new client was built with; one of the candidates is then no candidate any more."""
        if not candidates:
            self._foreign = True
            return Lookup.AMBIGUOUS
        if self.spoiled:
            return Lookup.AMBIGUOUS
        found = _one_of(candidates)
        if isinstance(found, Config):
            candidates.pop(0)
        return found


def _one_of(candidates: Sequence[Config]) -> _Answer:
    """What is the same in all of them, if the list is."""
    first = candidates[0]
    if any(
        (each.classes, each.group_protocol) != (first.classes, first.group_protocol)
        for each in candidates[1:]
    ):
        return Lookup.AMBIGUOUS
    different = [
        name
        for name in _MAY_DIFFER
        if any(getattr(each, name) != getattr(first, name) for each in candidates[1:])
    ]
    return replace(first, **dict.fromkeys(different)) if different else first


def _prints_given(config: Config) -> bool:
    """Whether the client prints that it was given a member id; one of no known version may."""
    numbers = (config.version or "").split(".")[:2]
    if len(numbers) < 2 or not all(each.isdecimal() for each in numbers):
        return True
    return (int(numbers[0]), int(numbers[1])) >= _PRINTS_GIVEN
