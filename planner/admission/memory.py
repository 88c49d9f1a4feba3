"""The coordinator's memory of a group's assignor lists, as far as evidence shows: `memory_of`.

When a coordinator loads a group (failover, restart), it remembers only [the elected assignor] for
each member, because the stored record has nothing else (GroupMetadataManager.replay of
GroupMetadataValue; Scala: GroupMetadataManager.readGroupMessageValue). It also starts the session
timers again. In the next rebalance every running member joins with its whole list. A static
member's restart sends that member's list alone, without a rebalance. A static member that is down
does not join: the coordinator keeps its shortened list until it returns, is removed, or its session
expires. Describe does not show which members are down, so after a load any static member may be
down. The records of a KIP-848 group hold whole lists, so a load does not shorten them. Seen on
4.1.1 and 3.9.1 (tests/live/test_admission_live.py).
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations
from typing import Final, TypeAlias

from rebal.groups.clients import assignors
from rebal.groups.coordinator import joined_since_load, never_loaded
from rebal.groups.model import (
    Cluster,
    GroupState,
    GroupType,
    Knowledge,
    Record,
    Source,
    Tri,
)
from rebal.planner.clients import cannot_hold, fault
from rebal.planner.facts import Facts, GroupFacts
from rebal.planner.verdict import opposite

INCONSISTENT: Final = "INCONSISTENT_GROUP_PROTOCOL"
POLICY: Final = "group.consumer.migration.policy"
_Names: TypeAlias = frozenset[str]
_Met: TypeAlias = tuple[_Names, _Names, _Names]


class Held(Record, frozen=True, kw_only=True):
    """One assignor list that the coordinator may remember, as far as it is known.

    `names` are assignors in the list, `lacks` are assignors not in it. `exact` is True if the list
    holds only `names`.
    """

    names: frozenset[str] = frozenset()
    lacks: frozenset[str] = frozenset()
    exact: bool = False

    def holds(self, name: str) -> Tri:
        """Return whether the list holds `name`."""
        if name in self.names:
            return Tri.YES
        return Tri.NO if self.exact or name in self.lacks else Tri.CANNOT_TELL


class Entry(Record, frozen=True, kw_only=True):
    """One member that the coordinator counts, with its possible assignor lists.

    The coordinator remembers one of `lists`. `whole` is the list that the member sends when it
    joins again, if a load may have shortened the remembered one (None: it sends the remembered
    list). `name` is the member's name for texts; `instance_id` is None for a dynamic member.
    """

    member_id: str
    lists: tuple[Held, ...]
    whole: Held | None = None
    instance_id: str | None = None
    name: str = ""


class CoordinatorMemory(Record, frozen=True, kw_only=True):
    """The coordinator's memory of one group, as far as the evidence shows it.

    `cases` are possible memories, of which one is real: the lists are as the members sent them, or
    as a coordinator load shortened them. A case has one entry for each member (in a KIP-848 group:
    for each classic member; `others` are the rest). An entry's list may be any of its `lists`.
    `in_all` are assignors that every list holds (elected, or a probe's yes), `not_in_all` are
    assignors that some list lacks (a probe's no).

    `max_size` is group.max.size (KIP-848: group.consumer.max.size), `session_ms` are the bounds of
    session.timeout.ms; None if not read. `room` is the number of further members that are known to
    fit: an answered probe shows room for one.

    The events after the group was read: `left` are the member ids that have left, `came` are the
    members that have joined, `settled` is True if a rebalance has completed.

    `classic_joins`: the KIP-848 group admits classic joins, also when its own members join again.
    `static_restarts_when_full`: a static member can restart when the group is full.
    """

    state: GroupState = GroupState.STABLE
    type: GroupType = GroupType.CLASSIC
    protocol_type: str | None = "consumer"
    elected: str | None = None
    cases: tuple[tuple[Entry, ...], ...] = ((),)
    others: tuple[Entry, ...] = ()
    in_all: frozenset[str] = frozenset()
    not_in_all: frozenset[str] = frozenset()
    max_size: int | None = None
    room: int = 0
    session_ms: tuple[int, int] | None = None
    left: frozenset[str] = frozenset()
    came: tuple[Entry, ...] = ()
    settled: bool = False
    classic_joins: Tri = Tri.YES
    static_restarts_when_full: Tri = Tri.NO

    @property
    def entries(self) -> tuple[Entry, ...]:
        """Return the counted members with assignor lists, as in the first of `cases`.

        All cases have the same members; only the lists differ.
        """
        return (*(e for e in self.cases[0] if e.member_id not in self.left), *self.came)

    @property
    def everybody(self) -> tuple[Entry, ...]:
        """Return every member that the coordinator counts, also those without an assignor list."""
        return (*self.entries, *(e for e in self.others if e.member_id not in self.left))

    @property
    def empty(self) -> bool:
        """Return whether the coordinator counts no member, so that the group is Empty."""
        return not self.everybody


def common_assignor_bounds(
    memory: CoordinatorMemory, names: Sequence[str]
) -> frozenset[tuple[_Names, _Names]] | None:
    """Return for each possible memory which of `names` every list in it holds: (least, most).

    `names` is the assignor list of a join. `least` are those that every list holds as it is
    remembered now; `most` are those that every list holds if the other members have joined again
    with their whole lists, as they may after a leave or a join. A memory is possible if its lists,
    as they were when the group was read, agree with `in_all` and `not_in_all`. None if none is.
    """
    mine = frozenset(names)
    # Names that nothing is asked or known of make no difference.
    said = mine | memory.in_all | memory.not_in_all
    left: set[_Met] = set()
    for case in memory.cases:
        choices = [
            frozenset(
                (look, said, said) if entry.member_id in memory.left else (look, least, most)
                for look, least, most in _choices(memory, entry, said)
            )
            for entry in case
        ]
        # In every fitting world each list of the look holds what `in_all` names.
        for whole, least, most in _meet({(said, said, said)}, choices):
            if not case or (whole >= memory.in_all and not whole & memory.not_in_all):
                left.add((said, least, most))
    if not left:
        return None
    came = [
        frozenset((said, one, one) for held in entry.lists for one in _options(held, said))
        for entry in memory.came
    ]
    return frozenset((least & mine, most & mine) for _, least, most in _meet(left, came))


def _meet(met: set[_Met], choices: Iterable[frozenset[_Met]]) -> set[_Met]:
    """Return what is left of the triples in `met` after one choice of each member.

    `choices` has one set of triples for each member. Every triple in `met` is intersected, part by
    part, with every choice of the first member, the results with those of the next, and so on.
    """
    for options, count in Counter(choices).items():
        for _ in range(count):
            more = {(a & x, b & y, c & z) for a, b, c in met for x, y, z in options}
            if more == met:
                break
            met = more
    return met


def _choices(memory: CoordinatorMemory, entry: Entry, said: _Names) -> Iterator[_Met]:
    """Yield (look, least, most) for each list that the coordinator may remember of `entry`.

    `look` is the list when the group was read. `least` and `most` are the lists that it may have at
    least and at most after members have left or joined. All three are limited to the names in
    `said`. After a completed rebalance a dynamic member has sent its whole list; a static member
    may have been down and kept the old one.
    """
    again = bool(memory.left or memory.came)
    for held in entry.lists:
        for look in _options(held, said, memory.in_all):
            wholes = [look]
            if again and entry.whole is not None and entry.whole != held:
                wholes = [
                    whole for whole in _options(entry.whole, said, memory.in_all) if look <= whole
                ]
            for whole in wholes:
                yield look, whole if memory.settled else look, whole
                if memory.settled and entry.instance_id is not None:
                    yield look, look, look


def _options(held: Held, said: _Names, must: _Names = frozenset()) -> list[_Names]:
    """Return the possible contents of a list, limited to the names in `said`.

    Each set contains `must`. The result is empty if the list cannot contain `must`.
    """
    base = (held.names & said) | must
    free = [] if held.exact else sorted(said - base - held.lacks)
    if base & held.lacks or (held.exact and not must <= held.names):
        return []
    return [base | {*more} for n in range(len(free) + 1) for more in combinations(free, n)]


def memory_of(context: GroupFacts, *, rejoined: bool = False) -> CoordinatorMemory:
    """Return what the coordinator may remember of the members' assignor lists.

    With `rejoined`, return what it would remember after every member of the group has joined again
    with its whole list.
    """
    snapshot, group = context.snapshot, context.group
    probe, stable = snapshot.probe, group.state is GroupState.STABLE and bool(snapshot.members)
    answers = () if probe is None or probe.refused else probe.answers
    known = {*assignors(), *(one.assignor for one in answers), context.target}.union(
        *((*one.assignors.list, *one.assignors.at_least) for one in snapshot.members)
    )
    online = group.type in (GroupType.CONSUMER, GroupType.STREAMS)
    elected = group.assignor if stable and not online else None
    counted = [f for f in context.members if not online or f.member.protocol_type == "classic"]
    others = [f for f in context.members if online and f.member.protocol_type != "classic"]
    cases = (
        (tuple(_entry(f, _converted(context, f)) for f in counted),)
        if online
        else _cases(context, counted, known, elected, rejoined=rejoined)
    )
    counts = () if online or rejoined else answers
    settings = snapshot.cluster.settings
    size = settings.get("group.consumer.max.size" if online else "group.max.size", "")
    low, high = (settings.get(f"group.{end}.session.timeout.ms", "") for end in ("min", "max"))
    return CoordinatorMemory(
        state=group.state,
        type=group.type,
        protocol_type="consumer" if online else group.protocol_type or None,
        elected=elected,
        cases=cases,
        others=tuple(_entry(facts, ()) for facts in others),
        in_all=frozenset(
            [*filter(None, [elected]), *(a.assignor for a in counts if a.supported is Tri.YES)]
        ),
        not_in_all=frozenset(a.assignor for a in counts if a.supported is Tri.NO),
        max_size=int(size) if size.isdigit() else (2**31 - 1 if settings else None),
        room=int(any(a.supported is not Tri.CANNOT_TELL for a in answers)),
        session_ms=(int(low), int(high)) if low.isdigit() and high.isdigit() else None,
        classic_joins=classic_joins(snapshot.cluster) if online else Tri.YES,
        static_restarts_when_full=static_restarts_when_full(snapshot.cluster) if online else Tri.NO,
    )


def classic_joins(cluster: Cluster) -> Tri:
    """Return whether these brokers admit classic joins to a KIP-848 group that has members.

    With the policy `disabled`, brokers with KAFKA-20640 reject all of them
    (GroupMetadataManager.throwIfClassicMemberCannotJoinConsumerGroup).
    """
    said = cluster.settings.get(POLICY)
    rejects = fault("KAFKA-20640").in_broker(cluster.version)
    if rejects is Tri.NO or (said is not None and said.strip().lower() != "disabled"):
        return Tri.YES
    return Tri.NO if said is not None and rejects is Tri.YES else Tri.CANNOT_TELL


def static_restarts_when_full(cluster: Cluster) -> Tri:
    """Return whether a static member can restart in a KIP-848 group that is full.

    GroupMetadataManager.throwIfConsumerGroupIsFull (KAFKA-20601).
    """
    return opposite(fault("KAFKA-20601").in_broker(cluster.version))


def _cases(
    context: GroupFacts,
    counted: list[Facts],
    names: set[str],
    elected: str | None,
    *,
    rejoined: bool,
) -> tuple[tuple[Entry, ...], ...]:
    """Return what the coordinator may now remember of the members `counted`, an entry for each.

    There is one case if the group was not loaded since its last rebalance, one if it was, and both
    if evidence does not decide that. An entry holds the assignors that the coordinator counts for
    the member: all names of its list, or after a load only the `elected` one. `names` are the
    assignors that are asked about. With `rejoined` the only case is that every member has joined
    again.
    """
    own = {f.member.member_id: _own(f, names, elected) for f in counted}
    if rejoined or context.remembers or never_loaded(context.snapshot):
        return (tuple(_entry(f, (own[f.member.member_id],)) for f in counted),)
    forgotten = Held(names=frozenset({elected}), exact=True) if elected else Held()
    rebalanced, loaded = [], []
    for facts in counted:
        mine = own[facts.member.member_id]
        # No history makes such a list one of this group: the contradiction must stay visible.
        at_odds = elected in mine.lacks or (mine.exact and elected not in mine.names)
        whole = _joined_since_load(context, facts) or (elected is not None and at_odds)
        left = (mine, forgotten) if facts.static else (forgotten,)
        rebalanced.append(_entry(facts, left if facts.static and not whole else (mine,), mine))
        loaded.append(_entry(facts, (mine,) if whole else left, mine))
    cases = {
        Tri.NO: (tuple(rebalanced),),
        Tri.YES: (tuple(loaded),),
        Tri.CANNOT_TELL: (tuple(rebalanced), tuple(loaded)),
    }
    refuted = context.reloaded is Tri.NO and _rejection_proves_load(context, counted)
    return cases[Tri.CANNOT_TELL if refuted else context.reloaded]


def _rejection_proves_load(context: GroupFacts, counted: list[Facts]) -> bool:
    """Return whether a rejection shows that the coordinator was reloaded.

    It does if the rejected list has an assignor that every member had sent in its join before.
    Error 23 (INCONSISTENT_GROUP_PROTOCOL) then shows that the coordinator remembered less than the
    members sent, even if other evidence shows no reload.
    """
    sent = [facts.member for facts in counted]
    if not all(m.joined_at and m.assignors.knowledge is Knowledge.EXACT for m in sent) or not sent:
        return False
    common = set.intersection(*(set(member.assignors.list) for member in sent))
    newest = max(member.joined_at for member in sent if member.joined_at)
    return any(
        one.error == INCONSISTENT
        and one.at is not None
        and one.at > newest
        and common & {*one.list}
        for one in context.snapshot.refusals
    )


def _joined_since_load(context: GroupFacts, facts: Facts) -> bool:
    """Return whether evidence shows that this member joined after the last coordinator load."""
    coordinator = context.group.coordinator
    in_epoch = coordinator is not None and coordinator.leader_epoch is not None
    # No clock is needed: an id that came after a look in this epoch came after its load.
    return (in_epoch and facts.member.member_id in context.restarted) or joined_since_load(
        context.snapshot, facts.member
    )


def _own(facts: Facts, names: set[str], elected: str | None) -> Held:
    """Return the assignor list that the member's last join sent, as far as it is known."""
    known = facts.member.assignors
    if known.knowledge is Knowledge.EXACT:
        return Held(names=frozenset(known.list), exact=True)
    lacks = set(known.lacks)
    if facts.family is not None and facts.family_proven:
        lacks |= {name for name in names if cannot_hold(facts.family, facts.version, name, elected)}
    return Held(
        names=frozenset([*known.at_least, *filter(None, [elected])]), lacks=frozenset(lacks)
    )


# The id that a classic join gets in a KIP-848 group: a bare UUID, in either spelling. In a classic
# group the client or instance id stands before it.
_BARE_ID: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|[A-Za-z0-9_-]{22}")


def _converted(context: GroupFacts, facts: Facts) -> tuple[Held, ...]:
    """Return the lists that the coordinator may hold for a classic member of a KIP-848 group.

    It holds the list that the member sent, if the member joined after the conversion of the group
    (its member id is a bare UUID) or a stored record shows the list. A conversion copies the list
    that the coordinator remembered, which an earlier load may have shortened to any one assignor of
    the list.
    """
    known = facts.member.assignors
    if known.knowledge is not Knowledge.EXACT:
        return (Held(lacks=frozenset(known.lacks)),)
    own = Held(names=frozenset(known.list), exact=True)
    recorded = any(item.source is Source.OFFSETS_TOPIC for item in known.evidence)
    if recorded or context.remembers or _BARE_ID.fullmatch(facts.member.member_id):
        return (own,)
    return (own, *(Held(names=frozenset({name}), exact=True) for name in known.list))


def _entry(facts: Facts, lists: tuple[Held, ...], whole: Held | None = None) -> Entry:
    return Entry(
        whole=None if lists == (whole,) else whole,
        member_id=facts.member.member_id,
        instance_id=facts.member.instance_id,
        name=facts.name,
        lists=lists,
    )
