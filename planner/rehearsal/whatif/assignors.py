"""Assignors by name for a group: Kafka's own, the coordinator's, or a custom one.

What a simulation by one takes for granted, and how long the leader's client computes.
"""

from collections.abc import Collection, Mapping
from typing import Final, NamedTuple

from rebal.groups.assignors import NAMES, Assignor, Spec, UnknownAssignorError, get
from rebal.groups.assignors.server import SERVER_NAMES, Undecided, server_assignor
from rebal.groups.model import GroupSnapshot, GroupType, RebalanceProtocol, Record
from rebal.planner.rehearsal.spec import wanted

CustomAssignors = Mapping[str, Assignor]
_PREFIX: Final = "consumer:"
SERVER_SIDE: Final = ("uniform", *(_PREFIX + name for name in SERVER_NAMES if name in NAMES))
"""What the server-side assignors are called where a client-side one has the same name."""


class Choice(NamedTuple):
    """An assignor and what it is; `name` is how it is called here."""

    name: str
    assignor: Assignor
    cooperative: bool
    server_side: bool = False
    custom: bool = False

    @property
    def protocol(self) -> RebalanceProtocol:
        """The rebalance protocol of members that have this assignor alone."""
        return RebalanceProtocol.COOPERATIVE if self.cooperative else RebalanceProtocol.EAGER


def chosen(name: str, snapshot: GroupSnapshot, custom: CustomAssignors) -> Choice:
    """Return the assignor called `name`; in a KIP-848 group `range` means the coordinator's.

    Raises:
        UnknownAssignorError: nobody is called so; the message names those there are.
    """
    bare = name.removeprefix(_PREFIX)
    kip848 = snapshot.group.type is GroupType.CONSUMER
    if bare in SERVER_NAMES and (bare not in NAMES or name != bare or kip848):
        ids = {t.name: t.topic_id for t in snapshot.topics if t.topic_id is not None}
        shown = bare if kip848 or bare not in NAMES else name
        return Choice(shown, server_assignor(bare, ids), cooperative=True, server_side=True)
    if name in NAMES:
        return Choice(name, get(name), _cooperative(get(name)))
    if name in custom:
        return Choice(name, custom[name], _cooperative(custom[name]), custom=True)
    known = ", ".join((*NAMES, *SERVER_SIDE, *sorted(custom)))
    raise UnknownAssignorError(f"no assignor is called {name[:100]!r}; there are {known}.")


def _cooperative(assignor: Assignor) -> bool:
    return RebalanceProtocol.COOPERATIVE in assignor.supported_protocols


def assumes(
    snapshot: GroupSnapshot,
    choice: Choice,
    undecided: Undecided,
    changes: tuple[str, ...],
    spec: Spec,
) -> tuple[str, ...]:
    """Return the assumptions of one simulation, the most important first; `changes` have theirs.

    `spec` is the group when all has happened. `undecided` is whose order in the coordinator's
    tables matters and is not known; its members by name.
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
    unknown = wanted(member.topics for member in spec.members) - spec.partitions.keys()
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
"""Seconds: a Java consumer's rebalance timeout is its `max.poll.interval.ms`, by default 5 min."""


class LeaderTime(Record, frozen=True, kw_only=True):
    """Range of the leader's computing time in seconds; `near_timeout` from half of it on."""

    at_least: float
    at_most: float
    rebalance_timeout: float
    near_timeout: bool


def leader_time(spec: Spec, assignor: str, rebalance_timeout: float) -> LeaderTime | None:
    """Return the estimate for one rebalance of this group; None where it is not worth a word.

    The general algorithm of `sticky` and `cooperative-sticky` looks at all partitions again and
    again: its time grows with the square of their number, and hardly with the number of members.
    While the leader computes, the group waits; past the rebalance timeout its members are evicted.

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

    All lie between `_LEAST` and `_MOST` seconds a squared partition, which are a factor of nine
    apart: on a server that is shared the same case takes three times as long in one hour as in
    another. Other subscriptions can lie outside, and a group that is balanced already takes next to
    nothing: it is an estimate of the order of magnitude, no promise.
    """
    subscriptions = {member.topics for member in spec.members}
    general = len(set(map(frozenset, subscriptions))) > 1
    if not general or assignor not in ("sticky", "cooperative-sticky"):
        return None
    partitions = sum(spec.partitions.get(topic, 0) for topic in wanted(subscriptions))
    most = _MOST * partitions**2
    if most < _WORTH_SAYING:
        return None
    return LeaderTime(
        at_least=round(_LEAST * partitions**2, 1),
        at_most=round(most, 1),
        rebalance_timeout=rebalance_timeout,
        near_timeout=most >= _NEAR * rebalance_timeout,
    )
