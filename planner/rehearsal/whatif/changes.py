"""Input of a simulation: the assignor by its name, and the changes of a what-if.

`find_assignor` returns the assignor: one of Kafka's own, the coordinator's, or a custom one.
`course` turns `Changes` (members, partitions and topics that are added or removed) into steps, each
of which makes the group rebalance. `assumes` returns the simulation's assumptions, and
`leader_time` estimates how long the leader computes.
"""

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final, NamedTuple

from msgspec.structs import replace

from rebal.groups.assignors import NAMES, Assignor, Spec, SpecMember, UnknownAssignorError, get
from rebal.groups.assignors.server import SERVER_NAMES, Undecided, server_assignor
from rebal.groups.clients import older
from rebal.groups.errors import RebalError
from rebal.groups.model import GroupSnapshot, GroupType, Member, RebalanceProtocol, Record, Tri
from rebal.planner.context import names
from rebal.planner.rehearsal.spec import subscribed_topics

CustomAssignors = Mapping[str, Assignor]
_PREFIX: Final = "consumer:"
SERVER_SIDE: Final = ("uniform", *(_PREFIX + name for name in SERVER_NAMES if name in NAMES))
"""Names of the server-side assignors, with a prefix if a client-side one has the same name."""


class Choice(NamedTuple):
    """An assignor and its properties.

    `name` is its name in the results. `server_side` is True if a KIP-848 coordinator runs it,
    `custom` if it is not one of Kafka's own.
    """

    name: str
    assignor: Assignor
    cooperative: bool
    server_side: bool = False
    custom: bool = False

    @property
    def protocol(self) -> RebalanceProtocol:
        """The rebalance protocol of members that have this assignor alone."""
        return RebalanceProtocol.COOPERATIVE if self.cooperative else RebalanceProtocol.EAGER


def find_assignor(name: str, snapshot: GroupSnapshot, custom: CustomAssignors) -> Choice:
    """Return the assignor called `name`; in a KIP-848 group `range` means the coordinator's.

    Raises:
        UnknownAssignorError: no assignor has this name; the message names those that exist.
    """
    bare = name.removeprefix(_PREFIX)
    kip848 = snapshot.group.type is GroupType.CONSUMER
    if bare in SERVER_NAMES and (bare not in NAMES or name != bare or kip848):
        ids = {t.name: t.topic_id for t in snapshot.topics if t.topic_id is not None}
        shown = bare if kip848 or bare not in NAMES else name
        return Choice(shown, server_assignor(bare, ids), cooperative=True, server_side=True)
    if name in (*NAMES, *custom):
        assignor = get(name) if name in NAMES else custom[name]
        cooperative = RebalanceProtocol.COOPERATIVE in assignor.supported_protocols
        return Choice(name, assignor, cooperative, custom=name not in NAMES)
    known = ", ".join((*NAMES, *SERVER_SIDE, *sorted(custom)))
    raise UnknownAssignorError(f"no assignor is called {name[:100]!r}; there are {known}.")


def assumes(
    snapshot: GroupSnapshot,
    choice: Choice,
    undecided: Undecided,
    changes: tuple[str, ...],
    spec: Spec,
) -> tuple[str, ...]:
    """Return the assumptions of one simulation as sentence parts, the most important first.

    `changes` are the assumptions of the simulated changes, and `spec` is the group after them.
    `undecided` names the topics and members whose order in the coordinator's tables is not known
    and could change the result.
    """
    if choice.server_side:
        made = _server_side(snapshot, choice, undecided)
    else:
        made = _client_side(snapshot, choice)
    made += changes
    if snapshot.redacted and (choice.server_side or "sticky" in choice.name):
        made.append(
            f"the snapshot is redacted: {choice.name} goes by hashes of the real member ids, "
            "so other, equally good partitions may move"
        )
    unknown = subscribed_topics(member.topics for member in spec.members) - spec.partitions.keys()
    if unknown:
        made.append(
            "there are no more topics than the snapshot describes: members also subscribe to "
            + _some(unknown)
        )
    return tuple(made)


def _client_side(snapshot: GroupSnapshot, choice: Choice) -> list[str]:
    made = [f"every member runs {choice.name}" + _memory(choice)]
    if not choice.custom:
        made.append(
            "members reach the leader in the order of the snapshot (the order in which they will "
            "join cannot be known; it rarely matters)"
        )
    others = sorted(
        {
            member.software.family
            for member in snapshot.members
            if member.software is not None and member.software.family not in (None, "java")
        }
    )
    if others and not choice.custom:
        made.append(
            f"the leader is a Java client; one of {', '.join(others)} may choose other partitions"
        )
    software = [member.software for member in snapshot.members if member.software is not None]
    java = [one for one in software if one.family == "java"]
    old = {one.version or one.version_range for one in java if older(one, "3.7.1") is Tri.YES}
    if "sticky" in choice.name and old and not choice.custom:
        made.append(
            "the leader is a Java client of 3.7.1 or later (KAFKA-16277); one of "
            f"{', '.join(sorted(map(str, old)))} may choose other partitions"
        )
    return made


def _memory(choice: Choice) -> str:
    if choice.custom:
        return ", an assignor that is not Kafka's own"
    tells = " and tells the leader what it owns now"
    return tells if "sticky" in choice.name else ", which does not ask what they own now"


def _server_side(snapshot: GroupSnapshot, choice: Choice, undecided: Undecided) -> list[str]:
    made = []
    if snapshot.group.type is not GroupType.CONSUMER:
        made.append(
            "the group has moved to KIP-848 (group.protocol=consumer) with what its members own now"
        )
    if any(one.target_assignment not in (None, one.assignment) for one in snapshot.members):
        made.append(
            "some members still move to the coordinator's target; the simulation begins as if "
            "they owned it"
        )
    # The other one gives each topic out by itself.
    if choice.name == "uniform" and any(topic.topic_id is None for topic in snapshot.topics):
        made.append(
            "the snapshot has no topic ids: the coordinator walks topics in the order of their "
            "ids, so other, equally good partitions may move"
        )
    if undecided.topics:
        made.append(
            f"{_some(undecided.topics)} share a place in the coordinator's table: which of them it "
            "walks first depends on its past, which no answer tells, so other, equally good "
            "partitions may move"
        )
    if undecided.members:
        made.append(
            f"members {_some(undecided.members)} share places in the coordinator's table: which of "
            "those at one place it serves first depends on its past, which no answer tells, so one "
            "may get what is predicted for another"
        )
    return made


def _some(names: Collection[str]) -> str:
    more = f" and {len(names) - 5:,} more" if len(names) > 5 else ""
    return ", ".join(sorted(names)[:5]) + more


_LEAST: Final = 2e-8
_MOST: Final = 1.8e-7
_WORTH_SAYING: Final = 5.0
_NEAR: Final = 0.5
DEFAULT_TIMEOUT: Final = 300.0
"""Default rebalance timeout in seconds: `max.poll.interval.ms` of a Java consumer."""


class LeaderTime(Record, frozen=True, kw_only=True):
    """Estimated range of the leader's computing time for one rebalance, in seconds.

    `near_timeout` is True if `at_most` is at least half the rebalance timeout.
    """

    at_least: float
    at_most: float
    rebalance_timeout: float
    near_timeout: bool


def leader_time(spec: Spec, assignor: str, rebalance_timeout: float) -> LeaderTime | None:
    """Return the estimated time that the leader computes in one rebalance; None if it is below 5 s.

    The estimate is for `sticky` and `cooperative-sticky` if subscriptions differ; None otherwise.
    Their general algorithm iterates over all partitions many times: its time grows with the square
    of the number of partitions, and hardly with the number of members. While the leader computes,
    the group waits; members that have not sent their SyncGroup by the rebalance timeout, such as
    this leader, are evicted.

    The figures are measured, with kafka-clients 4.1.1 on OpenJDK 17 on one core of a small server,
    on groups whose members each subscribe to a random half of the topics
    (bench/java/AssignorCase.java):

        partitions   members   topics   seconds (all start; one member joins)
             5,000        50      100     1.6;   2.4
             5,000       100      100     2.5;   4.3
            10,000        50      100     8.2;   7.9
            10,000       100       50    11.2;   7.9
            10,000       100      100     4.1;   5.6
            10,000       100      200     6.8;  13.4
            10,000       200      100     3.4;   7.1
            20,000       100      100    17.4;  26.7
            20,000       200      100    27.0;  23.1
            20,000       200      200     9.3
            40,000       100      100    82.6

    All lie between `_LEAST` and `_MOST` seconds per squared partition, a factor of nine apart. On a
    shared server the same case can take three times as long an hour later. Other subscriptions can
    lie outside this range, and a balanced group takes almost no time. The estimate is an order of
    magnitude.
    """
    subscriptions = {member.topics for member in spec.members}
    general = len(set(map(frozenset, subscriptions))) > 1
    if not general or assignor not in ("sticky", "cooperative-sticky"):
        return None
    partitions = sum(spec.partitions.get(topic, 0) for topic in subscribed_topics(subscriptions))
    most = _MOST * partitions**2
    if most < _WORTH_SAYING:
        return None
    return LeaderTime(
        at_least=round(_LEAST * partitions**2, 1),
        at_most=round(most, 1),
        rebalance_timeout=rebalance_timeout,
        near_timeout=most >= _NEAR * rebalance_timeout,
    )


class WhatIfError(RebalError):
    """Error for a what-if change that is not possible in this group; the message says why."""


class Changes(Record, frozen=True, kw_only=True):
    """Changes of the group that a what-if simulates, besides the assignor.

    Members are named by member id, instance id, client id or short name. Added members subscribe to
    `add_member_topics` (empty: to the topics of most members). `add_partitions` maps topics to the
    number of partitions to add, `add_topics` new topics to their number of partitions. `racks` maps
    members to racks; the key `new` means all added members.
    """

    add_members: int = 0
    add_member_topics: tuple[str, ...] = ()
    remove_members: tuple[str, ...] = ()
    restart_members: tuple[str, ...] = ()
    add_partitions: Mapping[str, int] = {}
    add_topics: Mapping[str, int] = {}
    racks: Mapping[str, str] = {}


class ChangeStep(NamedTuple):
    """One change that makes the group rebalance.

    `why` describes the change, and `apply` returns the group after it. `renamed` maps the new
    member id of a restarted member to its id in the snapshot.
    """

    why: str
    apply: Callable[[Spec], Spec]
    renamed: Mapping[str, str] = {}


class Course(NamedTuple):
    """The steps of a what-if, in order.

    `start` is the group before the first step, `added` maps the ids of added members to short
    names, and `notes` are assumptions of the steps.
    """

    start: Spec
    steps: tuple[ChangeStep, ...]
    added: Mapping[str, str]
    notes: tuple[str, ...]


def course(
    snapshot: GroupSnapshot, spec: Spec, changes: Changes, *, server_side: bool = False
) -> Course:
    """Return the steps of `changes`, in the order: topics, restarts one by one, leaves, joins.

    `server_side` is True if the coordinator assigns (KIP-848).

    Raises:
        WhatIfError: a member, topic or rack does not exist, changes contradict each other, or no
            member would be left.
    """
    find = Finder(snapshot)
    notes: list[str] = []
    steps: list[ChangeStep] = []
    added = {
        f"new-{n}-00000000-0000-4000-8000-{n:012}": f"new-{n}"
        for n in range(1, changes.add_members + 1)
    }
    spec = _with_racks(spec, changes, find)
    by_id = {member.member_id: member for member in spec.members}
    known = subscribed_topics(member.topics for member in spec.members)
    everybody = [name for name in changes.add_topics if name not in known]
    if changes.add_partitions or changes.add_topics:
        steps.append(_topics_step(spec, changes, everybody, notes))
    removed = tuple(dict.fromkeys(map(find, changes.remove_members)))
    for member_id in dict.fromkeys(map(find, changes.restart_members)):
        name = find.labels[member_id]
        if member_id in removed:
            raise WhatIfError(f"{name} cannot both be removed and restarted.")
        if by_id[member_id].instance_id:
            notes.append(
                f"{name} is static: when it is back within its session timeout, its restart makes "
                "nobody rebalance and moves nothing"
            )
            continue
        back = f"{member_id}-back"
        steps += [
            ChangeStep(f"{name} stops", _without(member_id)),
            ChangeStep(
                f"{name} is back", _back(by_id[member_id], back, everybody), {back: member_id}
            ),
        ]
        notes.append(
            f"{name} rejoins with a made-up member id: member ids decide ties, and the order in "
            "range and roundrobin, so more, fewer or other partitions may move"
        )
    if removed:
        if len(removed) == len(spec.members) and not added:
            raise WhatIfError("every member would be removed: nobody is left to assign to.")
        gone = [find.labels[member_id] for member_id in removed]
        steps.append(
            ChangeStep(
                f"{_listed(gone)} {'leaves' if len(gone) == 1 else 'leave'}", _without(*removed)
            )
        )
    if added:
        steps.append(_join_step(spec, changes, added, everybody, notes, server_side=server_side))
    if changes.add_member_topics and not added:
        raise WhatIfError("--topics says what added members subscribe to: add --add-member N.")
    if changes.restart_members and not steps:
        raise WhatIfError(f"{'; '.join(notes)}: leave --restart-member out.")
    return Course(spec, tuple(steps) or (ChangeStep("", lambda spec: spec),), added, tuple(notes))


class Finder:
    """Lookup of members by member id, instance id, short name or client id."""

    def __init__(self, snapshot: GroupSnapshot) -> None:
        self.labels, self._members = names(snapshot.members), snapshot.members

    def __call__(self, text: str) -> str:
        """Return the member id of the member that `text` names.

        Raises:
            WhatIfError: `text` names no member, or several.
        """
        ways: dict[str, Callable[[Member], str | None]] = {
            "member id": lambda member: member.member_id,
            "instance id": lambda member: member.instance_id,
            "name": lambda member: self.labels[member.member_id],
            "client id": lambda member: member.client_id,
        }
        for what, called in ways.items():
            found = [member.member_id for member in self._members if called(member) == text]
            if len(found) == 1:
                return found[0]
            if found:
                raise WhatIfError(
                    f"{text} is the {what} of {len(found)} members: name one by its member id, "
                    f"such as {found[0]}."
                )
        shown = sorted(self.labels.values())
        more = f", … ({len(shown) - 5} more)" if len(shown) > 5 else ""
        raise WhatIfError(
            f"no member is called {text[:100]}; there are {', '.join(shown[:5])}{more}."
        )


def _listed(labels: Sequence[str]) -> str:
    if len(labels) > 4:
        return f"{', '.join(labels[:3])} and {len(labels) - 3:,} more"
    return " and ".join(filter(None, [", ".join(labels[:-1]), labels[-1]]))


def _with_racks(spec: Spec, changes: Changes, find: Finder) -> Spec:
    racks = {find(name): rack for name, rack in changes.racks.items() if name != "new"}
    if "new" in changes.racks and not changes.add_members:
        raise WhatIfError("--rack RACK is for added members: add --add-member N, or name a MEMBER.")
    known = {rack for rack in spec.racks.values() if rack}
    for rack in changes.racks.values():
        if rack not in known:
            raise WhatIfError(
                f"no broker in the snapshot is on rack {rack[:100]}"
                + (f"; there are {', '.join(sorted(known))}." if known else ": none has a rack.")
            )
    members = (replace(m, rack=racks.get(m.member_id, m.rack)) for m in spec.members)
    return replace(spec, members=tuple(members))


def _topics_step(
    spec: Spec, changes: Changes, everybody: Sequence[str], notes: list[str]
) -> ChangeStep:
    said = []
    counts = dict(spec.partitions)
    for name, more in changes.add_partitions.items():
        if name not in counts:
            raise WhatIfError(
                f"--add-partitions {name}: the snapshot has no such topic; there are "
                f"{_listed(sorted(counts))}; a new one comes with --add-topic."
            )
        counts[name] += more
        said.append(f"{name} gets {more:,} more partition{'' if more == 1 else 's'}")
    for name, partitions in changes.add_topics.items():
        if name in counts:
            raise WhatIfError(
                f"--add-topic {name}: it is there already; --add-partitions {name}=N adds to it."
            )
        counts[name] = partitions
        said.append(f"topic {name} appears")
    if everybody:
        notes.append(
            f"every member{' that is there already' * bool(changes.add_member_topics)} "
            f"subscribes to {_listed(everybody)}"
        )
    if spec.replicas and any(member.rack for member in spec.members):
        notes.append("added partitions have no known replicas, so no racks")

    def apply(before: Spec) -> Spec:
        members = (replace(m, topics=(*m.topics, *everybody)) for m in before.members)
        return replace(before, members=tuple(members), partitions=counts)

    return ChangeStep(_listed(said), apply)


def _without(*member_ids: str) -> Callable[[Spec], Spec]:
    gone = set(member_ids)
    return lambda spec: replace(
        spec, members=tuple(m for m in spec.members if m.member_id not in gone)
    )


def _back(member: SpecMember, new_id: str, more: Sequence[str]) -> Callable[[Spec], Spec]:
    started = SpecMember(member_id=new_id, topics=(*member.topics, *more), rack=member.rack)
    return lambda spec: replace(spec, members=(*spec.members, started))


def _join_step(
    spec: Spec,
    changes: Changes,
    added: Mapping[str, str],
    everybody: Sequence[str],
    notes: list[str],
    *,
    server_side: bool,
) -> ChangeStep:
    # The first among equals.
    ((usual, _),) = Counter(member.topics for member in spec.members).most_common(1)
    topics = tuple(dict.fromkeys(changes.add_member_topics or (*usual, *everybody)))
    if not topics:
        raise WhatIfError(
            "most members subscribe to no topic: name the added members' topics with --topics."
        )
    for name in topics:
        if name not in spec.partitions and name not in changes.add_topics:
            raise WhatIfError(
                f"--topics {name}: the snapshot has no such topic; there are "
                f"{_listed(sorted(spec.partitions))}."
            )
    if changes.add_members > 1 and server_side:
        notes.append(
            "the added members join at once; if they join one after another, some partitions may "
            "move twice"
        )
    if not changes.add_member_topics and len({m.topics for m in spec.members}) > 1:
        notes.append(f"added members subscribe to what most members do: {_listed(topics)}")
    fresh = tuple(
        SpecMember(member_id=new, topics=topics, rack=changes.racks.get("new")) for new in added
    )
    why = f"{_listed([*added.values()])} {'joins' if len(added) == 1 else 'join'}"
    return ChangeStep(why, lambda before: replace(before, members=(*before.members, *fresh)))
