"""Member ids of a log, each tied to the configuration of its client: `ProgramClients`.

Java gives its consumers equal client ids in every pod (`consumer-GROUP-1`), and logs of several
pods may be merged into one stream, one of them without its start. A client id therefore proves
nothing. A member id is tied to a configuration only if no other client of that name can have it:

- A dynamic member receives its id from the coordinator (KIP-394), and clients since 3.0 print a
  line about it. Such an id belongs to an earlier configuration that has no member yet. If several
  configurations match, they must have equal lists.
- Clients before 2.6.1 print no member id when they join; the leader's line names all members.
- Clients before 3.0, static members and Connect workers (WorkerCoordinator.requestRejoin) print no
  line about an id that they receive. Their first join counts if no line since the configuration
  shows that a client of that name was a member already. A dynamic member sends its first join
  twice, because it receives its id after the first one.
- A client that loses its id (session expired, poll timeout) receives another one.
- If one member's start is missing, or there are more members than configurations, all members of
  that name stay unknown.

After every client of a name has closed, later lines are judged on their own, so that restarts in
one file stay apart.

Clients before 2.6.1 print no member id when they join. The leader of a generation prints `Finished
assignment for group at generation N` with the member id of every member, between each member's
request to join and its answer (`LeaderMemberLists`). A member id is the client id, or a static
member's instance id, and a UUID. If several members have one client id, the member id of a client
that has just started is the one that no earlier generation had.
"""

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Final, Literal, NamedTuple, Self

from msgspec.structs import replace

from rebal.inspectors.logs.client.lines import GENERATED, ClientLine, Config, Lookup
from rebal.inspectors.logs.lines import Stamp

# The first release that prints the member id given by the coordinator.
_PRINTS_GIVEN: Final = (3, 0)
# A new dynamic member sends this many joins before it is a member (KIP-394).
_SENT_AT_FIRST: Final = 2
# Fields in which configurations with equal lists may differ; they are then not known.
_MAY_DIFFER: Final = (
    *("printed_at", "version", "session_timeout_ms", "rebalance_timeout_ms", "held_back_ms"),
    "upgrade_from",
)

# The member ids of one client id that a leader printed, and those that were new.
CandidateIds = tuple[frozenset[str], frozenset[str]]
_Track = tuple[str, str, str | None, bool]
_Answer = Config | Lookup


class ProgramClients:
    """The clients that one program's log shows, and the configuration of each.

    `events` are the lines added so far; client ids and member ids that they do not print are filled
    in later. `resolve` binds configurations to member ids after the whole stream was read.
    `rejections` maps the number that `add` returned for a rejection → the rejected client's
    configuration, or the reason why it is not known.
    """

    def __init__(self) -> None:
        self.events: list[ClientLine] = []
        self._versions: set[str] = set()
        self._unversioned: list[int] = []
        self._version_of: dict[int, str] = {}
        self._unnamed: list[int] = []
        self._named: dict[str, list[int] | None] = {}
        self._members: dict[tuple[str, str], _Answer] = {}
        self.rejections: dict[int, _Answer] = {}

    def add(self, event: ClientLine) -> int:
        """Add an event; return its number, which is its index in `events`.

        An event of the kind `subscribed` only names a configuration: it is not added, and -1 is
        returned.
        """
        if event.kind == "joined" and not event.member_id:
            event = event._replace(member_id=_nameless(event.client_id))
        if event.kind == "subscribed":
            self._name(event)
            return -1
        if event.config is not None:
            self._unversioned.append(len(self.events))
            if not event.client_id and not event.worker:
                self._unnamed.append(len(self.events))
        self.events.append(event)
        return len(self.events) - 1

    def _name(self, event: ClientLine) -> None:
        """Give the group's newest configuration the client id that the event prints.

        Clients before 2.6 do not print an unset client id in the configuration. Once several
        configurations of the group wait for a client id, this method names none of the group's
        configurations any more, and takes back the client ids that it gave them before.
        """
        mine = [n for n in self._unnamed if self.events[n].group_id == event.group_id]
        named = self._named.setdefault(event.group_id, [])
        if len(mine) == 1 and named is not None:
            named += mine
            self._rename(mine, event.client_id)
            self._unnamed.remove(mine[0])
        elif mine:
            self._rename(named or (), "")
            self._named[event.group_id] = None

    def _rename(self, numbers: Sequence[int], client_id: str) -> None:
        for number in numbers:
            self.events[number] = self.events[number]._replace(client_id=client_id)

    def bind(self, candidates: Mapping[int, CandidateIds]) -> None:
        """Set the member id of each join logged without one, if only one member id is possible.

        `candidates` maps a join's number, which `add` returned, to the member ids that leaders
        printed and that may be its own: all of them, and the new ones. The first join after the
        client was configured or lost its member id gets a new one, and later joins keep it.
        """
        lives: dict[_Track, list[int]] = {}
        found: dict[int, frozenset[str]] = {}
        fresh: set[_Track] = set()
        for number, event in enumerate(self.events):
            track = (event.group_id, event.client_id, event.instance_id, event.worker)
            if event.kind in ("config", "lost", "reset"):
                fresh.add(track)
                lives.pop(track, None)
            elif event.kind == "joined" and is_nameless(event):
                life = lives.setdefault(track, [])
                life.append(number)
                if number in candidates:
                    everyone, new = candidates[number]
                    ids = new if track in fresh and len(life) == 1 else everyone
                    found[life[0]] = found.get(life[0], ids) & ids
                if life[0] in found:
                    found |= dict.fromkeys(life, found[life[0]])
        for number, ids in found.items():
            if len(ids) == 1:
                (name,) = ids
                self.events[number] = self.events[number]._replace(member_id=name)

    def add_version(self, version: str) -> None:
        """Record a printed version of the client library for the consumer configured just before.

        If several were configured since the last printed version, none of them gets it, unless
        the whole log prints only one version.
        """
        self._versions.add(version)
        if len(self._unversioned) == 1:
            self._version_of[self._unversioned[0]] = version
        self._unversioned.clear()

    def of_member(self, group_id: str, member_id: str, client_id: str) -> Config | Lookup:
        """Return the configuration of the member, or the reason why none is tied to it."""
        return self._members.get((group_id, member_id or _nameless(client_id)), Lookup.NONE)

    def joined(self, group_id: str, client_id: str) -> set[str]:
        """Return the member ids that joined with this client id."""
        return {
            e.member_id
            for e in self.events
            if (e.kind, e.group_id, e.client_id) == ("joined", group_id, client_id)
        }

    def resolve(self) -> None:
        """Find the configuration of each member and rejection; call it once, after all events."""
        only = next(iter(self._versions)) if len(self._versions) == 1 else None
        names = {(e.group_id, e.client_id, e.worker) for e in self.events if e.kind == "config"}
        keys = [_track(event, names) for event in self.events]
        states = {key: _TrackState() for key in keys if key[0]}
        for number, (key, recorded) in enumerate(zip(keys, self.events, strict=True)):
            event = recorded
            if event.config is not None:
                event = event._replace(
                    config=replace(event.config, version=self._version_of.get(number, only))
                )
            if event.kind == "spoiled":
                for state in states.values():
                    state.spoiled = True
            elif event.kind == "closed":
                for track, state in states.items():
                    if track[1] in (event.client_id, ""):
                        state.take(number, event)
            else:
                states[key].take(number, event)
        for key, state in states.items():
            state.finish()
            self._members |= {(key[0], name): answer for name, answer in state.members.items()}
            self.rejections |= state.rejections


def _nameless(client_id: str) -> str:
    """Return the stand-in for a member id that the client does not print.

    It begins with a zero byte, which no real member id contains.
    """
    return f"\0{client_id}"


def is_nameless(event: ClientLine) -> bool:
    """Return whether the member id of a join is the stand-in for one that is not known."""
    return event.member_id == _nameless(event.client_id)


def _track(event: ClientLine, names: set[tuple[str, str, bool]]) -> _Track:
    """Return the track of a line: group, client id, instance id, and True for a Connect worker.

    Clients with equal values share one track. `names` has the group, client id and worker flag of
    each configuration. Clients before 2.6 print an unset client id as empty in their configuration;
    the generated client id of their other lines, which is not in `names`, becomes empty too.
    """
    named = (event.group_id, event.client_id, event.worker) in names
    client_id = event.client_id if named or not GENERATED.fullmatch(event.client_id) else ""
    return event.group_id, client_id, event.instance_id, event.worker


class _TrackState:
    """The clients of one track (one group and client id), judged from its events in order.

    `members` maps member id → configuration, `rejections` event number → configuration. Both are
    complete after `finish()`.
    """

    def __init__(self) -> None:
        self.members: dict[str, _Answer] = {}
        self.rejections: dict[int, _Answer] = {}
        self.spoiled = False
        # The members that were tied to a configuration by the order of the lines alone.
        self._by_order: list[str] = []
        self._order = _LineOrder()
        self._begin()

    def _begin(self) -> None:
        """Reset the state: no client of this track is known to be open."""
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
        # True if a client appeared whose start is not in the stream.
        self._foreign = False
        # True if a client was a member already while a configuration (or an id that was given and
        # not printed) had no member yet.
        self._doubt = False
        self._given_doubt = False
        # True after an id that either a new client or one that lost its id may have received.
        self._unclear = False

    def finish(self) -> None:
        """Complete `members` and `rejections`; call it after the last event.

        A member that only the order of lines bound to a configuration becomes AMBIGUOUS if that
        order proves unreliable, or leaves the member in doubt.
        """
        self.end()
        self.members |= dict.fromkeys(
            self._by_order if self._order.is_mixed else self._order.unsure, Lookup.AMBIGUOUS
        )

    def end(self) -> None:
        """Add the members and rejections since the last reset to the results, then reset the state.

        All of them are unknown if a client's start is missing, or if there are more clients than
        configurations.
        """
        if not self._configs or self._foreign or self._clients() > self._configs:
            unknown = Lookup.AMBIGUOUS if self._configs else Lookup.NONE
            self._ids = dict.fromkeys(self._ids, unknown)
            self._rejected = dict.fromkeys(self._rejected, unknown)
        self.members |= self._ids
        self.rejections |= self._rejected
        self._begin()

    def _clients(self) -> int:
        """Return the smallest possible number of clients since the last reset."""
        return len(self._ids) - self._reborn + len(self._rejected)

    def take(self, number: int, event: ClientLine) -> None:
        """Process the next event of this track; `number` is what `ProgramClients.add` returned."""
        self._order.take(event)
        name = event.member_id
        match event.kind:
            case "config":
                assert event.config is not None
                self._configs += 1
                self._joining = self._joining if self._unused else 0
                self._unused.append(event.config)
            case "rejected":
                self._rejected[number] = self._answer()
            case "member" | "rejoining" | "reset":
                self._foreign = self._foreign or not self._joined
                self._doubt = self._doubt or bool(self._unused)
                self._given_doubt = self._given_doubt or self._given_unnamed > 0
                self._resets += event.kind == "reset"
            case "joining":
                self._joining += 1
            case "closed":
                # The line names neither the client nor whether it had joined.
                self._doubt = self._doubt or bool(self._unused)
                if not self._unused and self._clients() <= 1:
                    self.end()
            case _ if name in self.members:
                pass
            case "given" if not name:
                self._given_unnamed += 1
            case "given" if name not in self._ids:
                self._ids[name] = self._given()
            case "joined":
                self._joined = True
                if name not in self._ids:
                    self._first_join(name, event.instance_id is not None, worker=event.worker)
            case "left" | "lost":
                self._end_of(name, _nameless(event.client_id), closed=event.kind == "left")

    def _end_of(self, name: str, nameless: str, *, closed: bool) -> None:
        """Record that a client closed (`closed`) or lost its member id `name`.

        `nameless` is the stand-in for the id if the client's joins print no member id.
        """
        if name not in self._ids and nameless in self._ids:
            name = nameless
        elif name not in self._ids:
            self._foreign = True
            self._ids[name] = Lookup.AMBIGUOUS
        if not closed:
            self._lost.append(name)
            return
        self._closed.add(name)
        # Every member has closed, and every configuration has a member.
        open_ids = self._ids.keys() - self._closed - set(self._lost)
        if not open_ids and not self._unused and len(self._lost) == self._reborn:
            self.end()

    def _given(self) -> _Answer:
        """Return the configuration of the client that received a member id from the coordinator.

        That is a new client, or one that lost its earlier id. AMBIGUOUS: several clients with
        different lists may have received it, or the list of one is not known.
        """
        if max(len(self._lost), self._resets) <= self._reborn:
            return self._answer()
        # Not every line names the client that lost its id.
        before = [self._ids.get(each, Lookup.NONE) for each in self._lost]
        known = [each for each in before if isinstance(each, Config)]
        if self._resets > len(self._lost) or len(known) < len(before):
            return Lookup.AMBIGUOUS
        answer = _one_of([*self._unused, *known])
        self._unclear = self._unclear or not isinstance(answer, Config)
        self._reborn += 1
        return answer

    def _first_join(self, name: str, static: bool, *, worker: bool) -> None:
        if self._given_doubt:
            self._ids[name] = Lookup.AMBIGUOUS
        elif self._given_unnamed:
            self._given_unnamed -= 1
            self._ids[name] = self._given()
        elif not (static or worker) and any(_prints_given(config) for config in self._unused):
            self._ids[name] = Lookup.AMBIGUOUS
            self._foreign = True
        elif self._doubt or not (static or self._joining >= _SENT_AT_FIRST or name[0] == "\0"):
            self._ids[name] = Lookup.AMBIGUOUS
        else:
            self._ids[name] = answer = self._answer()
            self._by_order += [name] if isinstance(answer, Config) else []

    def _answer(self) -> _Answer:
        """Return a new client's configuration, removed from those that have no member yet.

        AMBIGUOUS: none is left, or it is not certain which of them is the client's.
        """
        if self._unclear or self.spoiled or not self._unused:
            self._foreign = self._foreign or not (self._unclear or self._unused)
            return Lookup.AMBIGUOUS
        found = _one_of(self._unused)
        if isinstance(found, Config):
            self._unused.pop(0)
        return found


class _LineOrder:
    """A check of one track: does the order of its lines show which client has which list?

    `is_mixed` is True if it does not. The order is reliable if one client at a time prints its
    configuration, joins, may lose its id and join again, and closes. If clients did so in parallel,
    it is reliable only if all their assignor lists are equal. A line of a client whose start is
    missing makes it unreliable. `unsure` are the member ids whose configuration stays in doubt even
    if the order is reliable.
    """

    def __init__(self) -> None:
        self._lists: set[tuple[tuple[str, ...], str | None]] = set()
        self._starting = 0
        self._state: Literal["member", "lost", "closed"] = "member"
        self._names = [""]
        self._parallel = False
        self._foreign = False
        # True from a line that announces a rejoin to the join that is sent; a client that begins
        # in between need not be the one that this join is of.
        self._rejoining = False
        self._doubt = False
        self.unsure: set[str] = set()

    @property
    def is_mixed(self) -> bool:
        return self._foreign or (self._parallel and len(self._lists) > 1)

    def take(self, event: ClientLine) -> None:
        """Process the next event."""
        name = event.member_id
        closed = self._state == "closed" and not self._starting
        match event.kind:
            case "config":
                assert event.config is not None
                self._lists.add((event.config.classes, event.config.group_protocol))
                self._parallel = self._parallel or self._starting > 0
                self._starting += 1
                self._doubt = self._doubt or self._rejoining
                self._rejoining = False
            case "joining" | "given":
                self._foreign = self._foreign or closed
                self._rejoining = False
            case "rejected":
                self._foreign = self._foreign or closed
                self._starting = max(0, self._starting - 1)
                self._state = "closed"
            case "joined":
                if name in self._names:
                    self._parallel = self._parallel or name != self._names[-1]
                    self._foreign = self._foreign or closed
                elif self._starting:
                    # Or one that had lost its id has got the next one.
                    self._parallel = self._parallel or self._state == "lost"
                    self._starting -= 1
                    self.unsure.update((name,) if self._doubt else ())
                    self._doubt = False
                else:
                    again = self._state == "lost" or self._names == [""]
                    self._foreign = self._foreign or closed or not again
                self._state = "member"
                self._names.append(name)
            case kind:
                if self._starting:
                    self._parallel = True
                    self._foreign = self._foreign or self._state == "closed" or self._names == [""]
                if kind in ("left", "closed"):
                    self._state = "closed"
                else:
                    self._foreign = self._foreign or closed
                    self._state = "lost" if kind in ("lost", "reset") else self._state
                    self._rejoining = self._rejoining or kind == "rejoining"


def _one_of(candidates: Sequence[Config]) -> _Answer:
    """Return one configuration, with only the settings that all `candidates` share.

    AMBIGUOUS: their assignor lists or group protocols differ.
    """
    if len({(each.classes, each.group_protocol) for each in candidates}) > 1:
        return Lookup.AMBIGUOUS
    first = candidates[0]
    different = [
        name for name in _MAY_DIFFER if len({getattr(each, name) for each in candidates}) > 1
    ]
    return replace(first, **dict.fromkeys(different)) if different else first


def _prints_given(config: Config) -> bool:
    """Return whether the client prints a line when the coordinator gives it a member id.

    That is so since 3.0. If the version is not known, the result is True.
    """
    numbers = re.match(r"(\d+)\.(\d+)(?:\.|$)", config.version or "")
    return numbers is None or (int(numbers[1]), int(numbers[2])) >= _PRINTS_GIVEN


_UUID: Final = r"-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
# Clocks of two hosts differ by less.
_SKEW: Final = timedelta(seconds=2)


class _Moment(NamedTuple):
    clients: ProgramClients
    line: int
    stamp: Stamp | None

    def is_before(self, other: Self, skew: timedelta = _SKEW) -> bool:
        """Return whether this line is older than `other`.

        Lines of one log are compared by position, lines of two logs by time. Because clocks differ,
        a line that is up to `skew` later counts as older too. Times that are missing, or of which
        one is local, cannot be compared: False.
        """
        if self.clients is other.clients:
            return self.line < other.line
        one, two = self.stamp, other.stamp
        return (
            one is not None
            and two is not None
            and one.local is two.local
            and one.at <= two.at + skew
        )


class _Join(NamedTuple):
    """A join that printed no member id, with the lines of its requests and of its answer.

    `begun` is the first request since the client's last answer, `sent` the last request.
    """

    number: int
    event: ClientLine
    begun: _Moment
    sent: _Moment
    answered: _Moment


class LeaderMemberLists:
    """Member ids that group leaders logged, to find those of joins logged without a member id."""

    def __init__(self) -> None:
        self._printed: dict[str, dict[int, list[tuple[_Moment, tuple[str, ...]]]]] = defaultdict(
            lambda: defaultdict(list)
        )
        # The first request since the client's last answer, and the last one.
        self._asked: dict[tuple[ProgramClients, str, str, str | None], tuple[_Moment, _Moment]] = {}
        self._joins: dict[ProgramClients, list[_Join]] = defaultdict(list)
        self._clusters: dict[ProgramClients, set[str]] = defaultdict(set)

    def take(
        self,
        number: int,
        event: ClientLine,
        clients: ProgramClients,
        line: int,
        stamp: Stamp | None,
    ) -> None:
        """Record a join request, its answer, a leader's list of member ids, or a cluster id.

        `number` is the event's number in `clients`, `line` and `stamp` are its position and time.
        """
        moment = _Moment(clients, line, stamp)
        client = (clients, event.group_id, event.client_id, event.instance_id)
        generation = event.generation_id
        match event.kind:
            case "cluster":
                self._clusters[clients].add(event.cluster_id)
            case "joining":
                begun, _ = self._asked.get(client, (moment, moment))
                self._asked[client] = begun, moment
            case "leader" if event.member_list and generation is not None:
                self._printed[event.group_id][generation].append((moment, event.member_list))
            case "joined" if not event.member_id and client in self._asked:
                self._joins[clients].append(_Join(number, event, *self._asked.pop(client), moment))

    def bind(self) -> None:
        """Pass the member ids that each join may have received to its program's clients."""
        for clients, joins in self._joins.items():
            found = ((join.number, self._candidate_ids(join)) for join in joins)
            clients.bind({number: ids for number, ids in found if ids is not None})

    def _candidate_ids(self, join: _Join) -> CandidateIds | None:
        """Return the member ids that the join may have received, and those of them that were new.

        New are those that no earlier generation had. None: no leader's list, or more than one, fits
        the join by generation, time and cluster.
        """
        event, clients = join.event, join.sent.clients
        clusters = self._clusters[clients]
        group = self._printed.get(event.group_id, {})
        everyone = {
            members
            for printed, members in group.get(event.generation_id or 0, ())
            if join.sent.is_before(printed) and printed.is_before(join.answered)
            and (printed.clients is clients or self._clusters[printed.clients] == clusters != set())
        }  # fmt: skip
        if len(everyone) != 1:
            return None
        (members,) = everyone
        earlier = {
            name
            for generation, all_printed in group.items()
            if generation < (event.generation_id or 0)
            for printed, before in all_printed
            # A generation that ended before the client had its answer may have its own id.
            if printed.is_before(join.begun, timedelta())
            for name in before
        }
        own = re.compile(re.escape(event.instance_id or event.client_id) + _UUID)
        ids = frozenset(name for name in members if own.fullmatch(name))
        return ids, ids - earlier
