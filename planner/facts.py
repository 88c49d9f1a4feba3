"""Facts about one group and its members that hold for any goal.

`GroupFacts` holds the snapshot; `Facts` is one member. An answer is yes or no (`Tri`) only where
the evidence proves it; otherwise, and where evidence is contradictory, it is `cannot tell`.

`Bridge` is the assignor by which the members of two client libraries run in one group. While both
run, the leader's library assigns partitions to all; the leader is the member that joined first.
`range` and `roundrobin` need no user data, so each library reads the subscriptions and assignments
of the others. Sticky assignors send user data, and each library sends its own form. Under
cooperative-sticky, franz-go sends a member's partitions too (pkg/kgo/group_balancer.go,
JoinGroupMetadata), which an old Java leader misreads (RB117). kafkajs accepts an assigner of the
application under any name. It sends version 0 without user data (2.2.4,
src/consumer/assignerProtocol.js), which every library reads.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Final, TypeVar

from msgspec.structs import replace

from rebal.groups.clients import (
    assignors,
    consumer_libraries,
    family,
    fixes_protocol,
    named_families,
    older,
    proven_family,
)
from rebal.groups.coordinator import has_whole_lists
from rebal.groups.evidence.fingerprint import excluded_by_bytes
from rebal.groups.model import (
    Evidence,
    GroupSnapshot,
    GroupState,
    GroupType,
    Knowledge,
    Member,
    Record,
    Software,
    Source,
    Tri,
)
from rebal.groups.protocol import (
    ProtocolAnswer,
    borrowed_names,
    may_be_custom_class,
    member_protocol,
    undisputed,
)
from rebal.planner.clients import cooperative, is_mixed, refuted
from rebal.planner.timeouts import Speed, back_in_time, with_family
from rebal.planner.verdict import agreed, opposite

KEYS: Final = 4
STATELESS: Final = ("roundrobin", "range")
"""Assignors without user data, which every library has or takes from the application."""
_KAFKA_GO: Final = "segmentio"
# It marks version 0 as 1, and as a leader reads nothing newer than 0 (0.4.51, consumergroup.go,
# makeMemberProtocolMetadata; RB119).
_SEND_VERSION_0: Final = frozenset({_KAFKA_GO, "kafkajs", "aiokafka"})
_Thing = TypeVar("_Thing", bound=Hashable)


def natural(name: str) -> list[tuple[int, str]]:
    """Return the key that sorts names as people do: `pod-2` before `pod-10`."""
    return [
        (int(part), "") if number % 2 else (0, part)
        for number, part in enumerate(re.split(r"([0-9]{1,18})", name))
    ]


class Facts(Record, frozen=True, kw_only=True):
    """One member: its name for texts, and its client family (None: not known).

    `family_proven` is True if the client's handshake, its log or the user's statement names the
    family, and False if it is only inferred from the bytes that the member sent or from its client
    id. If an inference leaves several families, `family` is None and `candidates` names them.
    """

    member: Member
    name: str
    family: str | None = None
    family_proven: bool = False
    candidates: tuple[str, ...] = ()

    @property
    def guesses(self) -> tuple[str, ...]:
        """Return the client families still possible; empty if the evidence excludes none."""
        return self.candidates if self.family is None else (self.family,)

    @property
    def takes_mixed(self) -> Tri:
        """Return whether this member's client accepts lists of eager and cooperative assignors.

        The answer is cannot tell if the client families still possible for it differ, or if none is
        known. A family may be inferred here; `Context.takes_mixed` needs proof.
        """
        return agreed({family(key).mixed for key in self.guesses})

    @property
    def fixes_protocol(self) -> bool:
        """Return whether this member's client chooses its rebalance protocol when it is built.

        If several families are possible, all of them must do so.
        """
        return fixes_protocol(self.software)

    @property
    def software(self) -> Software | None:
        """Return this member's client software, with the family that the user states.

        The user's statement counts only if the software itself does not prove the family.
        """
        key, software = self.family, self.member.software
        if not self.family_proven or key is None or proven_family(software) is not None:
            return software
        known = software or Software()
        # The bounds of `java >= 2.4, < 3.4, franz-go or sarama` are those of the first.
        if (known.family or (*named_families(known.version_range), key)[0]) != key:
            known = replace(known, version=None, version_range=None)
        stated = Evidence(source=Source.ASSUMED)
        return replace(known, family=key, evidence=(*known.evidence, stated))

    def older_than(self, limit: str) -> Tri:
        """Return whether the client is older than the version `limit`, by its version or bounds."""
        return Tri.CANNOT_TELL if self.software is None else older(self.software, limit)

    @property
    def version(self) -> str | None:
        """Return the client's exact version; None if it is not known."""
        return self.software.version if self.software is not None else None

    @property
    def static(self) -> bool:
        """Return whether this is a static member: it has an instance id (KIP-345)."""
        return self.member.instance_id is not None

    def back_in_time(self, speed: Speed) -> bool:
        """Return whether this static member restarts within its session timeout."""
        return back_in_time(with_family(self.member, self.family), speed.restart)

    @property
    def surges(self) -> bool:
        """Return whether a manifest has new processes start before the old ones have stopped."""
        declared = self.member.declared
        return declared is not None and declared.max_surge not in (None, "", "0", "0%")

    @property
    def upgrade_from(self) -> str | None:
        """Return Streams' upgrade.from of its configuration; None if it is unset or unread."""
        return self.member.declared.upgrade_from if self.member.declared is not None else None


class GroupFacts:
    """The facts about one group and its members that do not depend on a plan's steps.

    `target` is the assignor that a plan ends on. `families` maps a client id, or `*` for every
    member whose family is not proven, to the family that the user states. `remembers`: the user
    vouches that the coordinator remembers every assignor list; a proven coordinator reload voids
    it.
    """

    def __init__(
        self,
        snapshot: GroupSnapshot,
        *,
        target: str,
        families: Mapping[str, str] | None = None,
        remembers: bool = False,
    ) -> None:
        self.snapshot = snapshot
        self.group = snapshot.group
        self.target = target
        # A load that is proven voids the user's word.
        self.remembers = remembers and self.reloaded is not Tri.YES
        self._assumed = families or {}

    @cached_property
    def members(self) -> tuple[Facts, ...]:
        """Return all members, in natural order of their names."""
        labels = names(self.snapshot.members)
        made = (self._facts(member, labels[member.member_id]) for member in self.snapshot.members)
        return tuple(sorted(made, key=lambda facts: (natural(facts.name), facts.member.member_id)))

    @cached_property
    def by_id(self) -> Mapping[str, Facts]:
        """Return member id → member."""
        return {facts.member.member_id: facts for facts in self.members}

    def _facts(self, member: Member, name: str) -> Facts:
        member, software = undisputed(member, self.snapshot), member.software
        family = software.family if software else None
        proven = proven_family(software) is not None
        assumed = None if proven else self.stated_family(member)
        if assumed and assumed not in excluded_by_bytes(member.subscription, self.group.assignor):
            family, proven = assumed, True
        if family is not None and not proven and refuted(family, self.names_held(member)):
            family = None
        # `java >= 3.4 or franz-go` are two.
        left = named_families(software.version_range) if software and family is None else ()
        return Facts(member=member, name=name, family=family, family_proven=proven, candidates=left)

    def stated_family(self, member: Member) -> str | None:
        """Return the client family that the user stated for this member; None if there is none."""
        return stated_in(self._assumed, member)

    def names_held(self, member: Member) -> frozenset[str]:
        """Return the names of assignors that are proven to be in this member's list."""
        known, group = member.assignors, self.group
        exact = known.list if known.knowledge is Knowledge.EXACT else ()
        # A KIP-848 group's assignor is its broker's: no list holds it.
        voted = self.snapshot.has_assignor_lists and group.state is GroupState.STABLE
        elected = (group.assignor,) if voted and group.assignor is not None else ()
        common = (
            answer.assignor
            for answer in self.snapshot.probe_answers
            if self.probed(answer.assignor) is Tri.YES
        )
        return frozenset({*exact, *known.at_least, *elected, *common})

    @property
    def restarted(self) -> frozenset[str]:
        """Return no ids, because there is no plan here.

        `PlanContext` returns the ids of the members that joined since its plan was made.
        """
        return frozenset()

    @cached_property
    def borrowed(self) -> frozenset[str]:
        """Return the names of Kafka's assignors under which some member has a custom class."""
        return borrowed_names(self.snapshot)

    @cached_property
    def unable(self) -> tuple[Facts, ...]:
        """Return the members whose client is proven not to start with the target."""
        return tuple(f for f in self.members if self.can_list(f, self.target) is Tri.NO)

    def can_list(self, facts: Facts, assignor: str) -> Tri:
        """Return whether this member's client starts with `assignor` in its list.

        An assignor that the library does not bring counts if a member of the same client is proven
        to list it: the application has it. Without proof of the client, the answer is yes only if
        it is yes for every library that the member's bytes allow, else cannot tell.
        """
        held = assignor in self.names_held(facts.member)
        if facts.family_proven and facts.family is not None and not held:
            return self._brings(facts.family, assignor)
        sent = excluded_by_bytes(facts.member.subscription, self.group.assignor)
        online = facts.member.protocol_type == "consumer"
        sure = held or all(
            self._brings(key, assignor) is Tri.YES
            for key in consumer_libraries()
            if key not in sent and not (online and family(key).kip848() is Tri.NO)
        )
        return Tri.YES if sure else Tri.CANNOT_TELL

    def _brings(self, key: str, assignor: str) -> Tri:
        said = family(key).starts_with(assignor)
        if said is not Tri.CANNOT_TELL:
            return said
        if any(assignor in self.names_held(f.member) for f in self.members if f.family == key):
            return Tri.YES
        # The application may bring it, if it is not the name of another library's assignor.
        foreign = assignor in assignors() and family("java").starts_with(assignor) is not Tri.YES
        return Tri.NO if foreign else Tri.CANNOT_TELL

    def own_class(self, facts: Facts, assignor: str) -> bool:
        """Return whether this name in the member's list is, or may be, that of a custom class."""
        return may_be_custom_class(facts.member, assignor, self.borrowed)

    def runs(self, facts: Facts) -> ProtocolAnswer:
        """Return the rebalance protocol that this member runs, with the reason.

        A family that the user states counts as proven. `rebal inspect` shows the same answer.
        """
        return member_protocol(
            replace(facts.member, software=facts.software), self.snapshot, self.borrowed
        )

    @cached_property
    def classic(self) -> bool:
        """Return whether this is a classic group of consumers with assignor lists of their own."""
        return (
            self.group.type in (GroupType.CLASSIC, GroupType.UNKNOWN)
            and self.group.protocol_type == "consumer"
            and not self.streams
        )

    @cached_property
    def streams(self) -> bool:
        """Return whether this is a Kafka Streams program on the classic protocol (`stream`)."""
        return self.group.protocol_type == "consumer" and (
            self.group.assignor == "stream"
            or any("stream" in facts.member.assignors.list for facts in self.members)
        )

    def is_stranger(self, names: Sequence[str]) -> bool:
        """Return whether the assignor list `names` is of another kind of program than the members.

        The kinds are consumers, Connect workers (`default`) and Streams instances (`stream`). False
        for an empty list.
        """
        workers = self.group.protocol_type == "connect"
        own = {"default"} if workers else {"stream"} if self.streams else set()
        # What every list of Connect's workers has, and of Streams' instances.
        return bool(names) and {"default", "stream"}.intersection(names) != own

    @cached_property
    def sink(self) -> str | None:
        """Return the name of the sink connector whose tasks are the members; None for others.

        It is the NAME of a group `connect-NAME`, if every client id begins with
        `connector-consumer-NAME-`.
        """
        name = self.group.group_id.removeprefix("connect-")
        ours = (
            name != self.group.group_id
            and self.classic
            and bool(self.members)
            and all(
                f.member.client_id.startswith(f"connector-consumer-{name}-") for f in self.members
            )
        )
        return name if ours else None

    @cached_property
    def stable(self) -> bool:
        """Return whether the group is Stable and has members."""
        return self.group.state is GroupState.STABLE and bool(self.members)

    @cached_property
    def common_list(self) -> tuple[str, ...]:
        """Return the assignor list that all members are proven to run; empty if there is none."""
        lists = {facts.member.assignors.list for facts in self.members}
        return lists.pop() if len(lists) == 1 and self.all_exact else ()

    @property
    def all_exact(self) -> bool:
        """Return whether evidence shows each member's list exactly."""
        return all(f.member.assignors.knowledge is Knowledge.EXACT for f in self.members)

    @cached_property
    def elected(self) -> str | None:
        """Return the elected assignor, which every member's list holds.

        None unless the group is a Stable classic group of consumers.
        """
        return self.group.assignor if self.classic and self.stable else None

    @cached_property
    def generation(self) -> int | None:
        """Return the group's generation; None if it is not known.

        It is the broker's stored value, or else one more than the newest generation in the members'
        subscriptions: each names the generation before its last join (subscription v2, KIP-792).
        """
        sent = (facts.member.subscription for facts in self.members if self.classic)
        known = [one.generation_id for one in sent if one and one.generation_id is not None]
        newest = max(known, default=-1)
        stored = self.group.generation
        return stored if stored is not None or newest < 0 else newest + 1

    @cached_property
    def asked(self) -> bool:
        """Return whether a broker was read; for a snapshot from a scan's tables none was."""
        cluster = self.snapshot.cluster
        return bool(self.group.coordinator or cluster.brokers or cluster.version)

    @cached_property
    def reloaded(self) -> Tri:
        """Return whether the coordinator was reloaded and no rebalance has completed since."""
        coordinator = self.group.coordinator
        return opposite(coordinator.rebalanced_since_load if coordinator else Tri.CANNOT_TELL)

    @property
    def can_probe(self) -> bool:
        """Return whether the group is Stable, classic, of consumers, and not probed yet."""
        return self.classic and self.stable and self.snapshot.probe is None

    def probed(self, assignor: str) -> Tri:
        """Return whether every list that the coordinator holds has `assignor`, as a probe showed.

        The answer is cannot tell if no probe asked for `assignor`. A "no" of the probe becomes
        cannot tell if the coordinator may hold shortened lists after a reload, because it then
        proves nothing about the members.
        """
        answers = {one.supported for one in self.snapshot.probe_answers if one.assignor == assignor}
        if answers == {Tri.YES}:
            return Tri.YES
        sure = answers == {Tri.NO} and has_whole_lists(self.snapshot)
        return Tri.NO if sure else Tri.CANNOT_TELL


def stated_in(families: Mapping[str, str], member: Member) -> str | None:
    """Return the client family that `families` (client id or `*` → family) states for this member.

    None if it states no family.
    """
    return families.get(member.client_id) or families.get("*")


def owned(member: Member) -> int:
    """Return the number of partitions that this member owns."""
    return sum(map(len, member.assignment.values()))


def topics_of(member: Member) -> set[str]:
    """Return the topics that this member is known to subscribe to; those it owns are among them."""
    return {
        *member.assignment,
        *member.subscribed_topics,
        *(member.subscription.topics if member.subscription else ()),
    }


def topics_left(stopped: Sequence[Facts], others: Sequence[Facts]) -> tuple[Tri, str]:
    """Return whether `others` subscribe to every topic of the members `stopped`, and the reason.

    The reason is a clause. The answer is cannot tell if a subscription that decides it is not
    known.
    """
    asked = {topic for facts in stopped for topic in topics_of(facts.member)}
    alone = listed(sorted(asked.difference(*(topics_of(facts.member) for facts in others))), 3)
    whole, all_asked = (
        all(f.member.subscription or f.member.subscribed_topics for f in found)
        for found in (others, stopped)
    )
    if alone and whole:
        return Tri.NO, f"nobody consumes {alone} meanwhile, because no other member subscribes"
    if alone or not all_asked:
        return (
            Tri.CANNOT_TELL,
            f"whether other members subscribe to {alone or 'all their topics'} is not known",
        )
    return Tri.YES, "the others keep running: only the partitions that move to them and back stop"


def all_partitions(number: int) -> str:
    """Return `number` partitions in words, such as `all 24 partitions` or `the only partition`.

    For zero the text says that no partition is assigned.
    """
    if number == 0:
        return "no partition (none is assigned now)"
    return "the only partition" if number == 1 else f"all {number:,} partitions"


def figure(value: float) -> str:
    """Return a figure as people read it: `1,234`, `3.5`."""
    return f"{value:,.0f}" if value >= 10 or value == int(value) else f"{value:.1f}"


def listed(labels: Sequence[str], most: int = 6) -> str:
    """Return the first `most` of `labels` as text: `a, b and 3 more`."""
    more = len(labels) - most
    return ", ".join(labels[:most]) + (f" and {more} more" if more > 0 else "")


def ids(found: Iterable[Facts]) -> tuple[str, ...]:
    """Return the members' member ids."""
    return tuple(facts.member.member_id for facts in found)


def names(members: Iterable[Member]) -> dict[str, str]:
    """Return member id → short name for texts: the instance id, else the client id.

    A client id that several members have is followed by the end of the member id.
    """
    found = tuple(members)
    often = Counter(member.client_id for member in found)
    return {
        member.member_id: member.instance_id
        or (
            member.client_id
            if member.client_id and often[member.client_id] == 1
            else f"{member.client_id or 'member'} …{member.member_id[-6:]}"
        )
        for member in found
    }


def in_pairs(
    before: Mapping[_Thing, Sequence[Hashable]],
    after: Mapping[_Thing, Sequence[Hashable]],
    sure: int = 0,
) -> tuple[list[tuple[_Thing, _Thing]], list[_Thing], list[_Thing]]:
    """Pair the things in `before` with those in `after` that have the same key.

    Both map a thing to its keys, the most reliable first (None: it has no such key), which are
    tried in this order. The result is the pairs, the things left in `before`, those in `after`.
    If several things on a side share one of the first `sure` keys, they are paired in their order.
    If they share a later key, none of them is paired by it.
    """
    left, right = dict(before), dict(after)
    pairs: list[tuple[_Thing, _Thing]] = []
    for number in range(max(map(len, before.values()), default=0)):
        by_key: dict[Hashable, tuple[list[_Thing], list[_Thing]]] = defaultdict(lambda: ([], []))
        for side, things in enumerate((left, right)):
            for one, keys in things.items():
                by_key[keys[number]][side].append(one)
        for key, (olds, news) in by_key.items():
            if key is not None and (number < sure or len(olds) == len(news) == 1):
                pairs += zip(olds, news, strict=False)
        for was, now in pairs:
            left.pop(was, None)
            right.pop(now, None)
    return pairs, list(left), list(right)


def identity_keys(member: Member) -> tuple[tuple[str, ...] | None, ...]:
    """Return the keys that identify a member after its restart, the most reliable first.

    They are the instance id; the client id with the host; the client id; the host (`KEYS` in all).
    A static member has only the first, a dynamic member only the others; a key that it does not
    have is None.
    """
    if member.instance_id:
        return (member.instance_id,), None, None, None
    return None, (member.client_id, member.host), (member.client_id,), (member.host,)


class Bridge(Record, frozen=True, kw_only=True):
    """The answer whether members of two client libraries can run in one group.

    `assignor` is the assignor that both use (empty: none). If `verdict` is not yes, `why` is the
    reason and `members` are the members that cause it.
    """

    verdict: Tri
    assignor: str = ""
    why: str = ""
    members: tuple[Facts, ...] = ()


def read_each_other(one: str, two: str) -> bool:
    """Return whether leaders of two client families read each other's subscriptions."""
    return _KAFKA_GO not in (one, two) or {one, two} <= _SEND_VERSION_0


def bridge_of(group: GroupFacts, client: str) -> Bridge:
    """Return whether, and by which assignor, the members run together with clients of `client`.

    It is the elected assignor if all members already run `client`. Otherwise it is range or
    roundrobin: first the elected one, then one that all lists hold, then a default of `client`. The
    verdict is no if some member's client cannot run beside `client`, and cannot tell if that is not
    known of some.
    """
    elected = group.elected or ""
    if all(facts.family_proven and facts.family == client for facts in group.members):
        return Bridge(verdict=Tri.YES, assignor=elected)
    unread = f"{client} and another client do not read each other's subscriptions (RB119)"
    unmixed = f"not every client starts with an eager assignor beside {elected} (RB104)"
    answers = [
        *((facts, _reads(facts, client), unread) for facts in group.members),
        *((facts, _takes_eager(group, facts, elected), unmixed) for facts in group.members),
    ]
    for verdict in (Tri.NO, Tri.CANNOT_TELL):
        found = [(facts, cause) for facts, answer, cause in answers if answer is verdict]
        if found:
            why = found[0][1]
            members = tuple(facts for facts, cause in found if cause == why)
            named = listed([facts.name for facts in members])
            who = named if verdict is Tri.NO else f"the client of {named} is not known"
            return Bridge(verdict=verdict, why=f"{why}: {who}", members=members)
    held = [group.names_held(facts.member) for facts in group.members]

    # A custom class under one of these names may need user data.
    known = [name for name in STATELESS if name not in group.borrowed]
    nearest = min(
        known or STATELESS,
        key=lambda name: (
            name != elected,
            not all(name in names for names in held),
            name not in family(client).defaults[0].list,
        ),
    )
    return Bridge(verdict=Tri.YES, assignor=nearest)


def _reads(facts: Facts, client: str) -> Tri:
    if not facts.guesses:
        # kafka-go shows by its bytes, where they were read.
        unread = facts.member.subscription is None and not read_each_other(_KAFKA_GO, client)
        return Tri.CANNOT_TELL if unread or client == _KAFKA_GO else Tri.YES
    return agreed(Tri.YES if read_each_other(key, client) else Tri.NO for key in facts.guesses)


def _takes_eager(group: GroupFacts, facts: Facts, elected: str) -> Tri:
    """Return whether the member's client starts with an eager assignor beside `elected`.

    Every client does if `elected` is not cooperative.
    """
    if cooperative(elected) is not Tri.YES or is_mixed(group.names_held(facts.member)):
        return Tri.YES
    return facts.takes_mixed if facts.family_proven else Tri.CANNOT_TELL
