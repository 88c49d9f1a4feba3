"""The sticky assignors: the claims that the leader accepts, and its two algorithms.

A claim is a member's statement that it owns a partition. The claims of `sticky` members are in
their user data, those of `cooperative-sticky` members in their subscriptions. Of several claims to
one partition the newest generation wins; claims of the same generation cancel each other (first
step of AbstractStickyAssignor). The leader reads the generation of the claim that it examines from
where the assignor keeps it, but the generation of a rival claim always from the rival's
subscription. With `sticky` the generation is in the user data, so the claim that is read later
usually wins.

When all members subscribe to the same topics (ConstrainedAssignmentBuilder), each keeps the
partitions it owns, up to its share. The remaining partitions go in turn to members below the
smaller share, then one each to members that may have one more. Where racks matter, members keep
only partitions with a replica on their rack, and a first round assigns the remaining partitions to
members on the racks of their replicas.

Otherwise (GeneralAssignmentBuilder) each member keeps the partitions it owns and still subscribes
to; each free partition goes to the subscriber with the fewest; then `Balancing` moves partitions
while that makes it fairer. If the outcome is not fairer than before the moves, they are undone.
"""

import heapq
import struct
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import chain
from typing import Final

from rebal.groups.assignors.client.balancing import Balancing
from rebal.groups.assignors.client.problem import Free, Problem, Racks
from rebal.groups.assignors.javatable import hash_order
from rebal.groups.assignors.spec import SpecMember, TopicPartition
from rebal.groups.wire.consumer_protocol import NO_GENERATION, decode_sticky

_INT32: Final = struct.Struct(">i")


def remembered(member: SpecMember) -> Iterator[TopicPartition]:
    """Return a member's `owned` partitions in the order in which its `sticky` user data lists them.

    The topics are in the iteration order of a Java HashMap.
    """
    by_topic: dict[str, list[TopicPartition]] = {}
    for pair in member.owned:
        by_topic.setdefault(pair[0], []).append(pair)
    return chain.from_iterable(map(by_topic.__getitem__, _hash_order(tuple(by_topic))))


# Members of a large group often own the same topics.
_hash_order: Final = lru_cache(maxsize=64)(hash_order)


class Memories:
    """Reader of `sticky` user data, which returns partitions as codes of one `Problem`.

    Topics that are left out of the problem are left out here.
    """

    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        self._plain = all(name.isascii() for name in problem.topics)
        self._topic_of = {name.encode(): t for name, t in problem.topic_of.items() if self._plain}
        self._entries: dict[int, struct.Struct] = {}

    def read(self, data: bytes | None) -> tuple[list[int], int]:
        """Return the codes in one member's user data, in the order sent, and the generation.

        The generation is -1 if there is none.
        """
        if data and self._plain:
            with suppress(struct.error):
                if (found := self._usual(data)) is not None:
                    return found
        read = decode_sticky(data)
        generation = NO_GENERATION if read.generation is None else read.generation
        return self._problem.codes(read.previous), generation

    def _usual(self, data: bytes) -> tuple[list[int], int] | None:
        topic_of, entries, step = self._topic_of, self._entries, len(self._problem.topics)
        codes: list[int] = []
        (topics,), end = _INT32.unpack_from(data), 4
        if topics < 0:
            return None
        size, last, entry = 0, -1, _INT32
        for _ in range(topics):
            # Neighbouring names are often of one length: tried first, if it fits into the bytes.
            if end > last or (row := entry.unpack_from(data, end))[0] != size:
                size = int.from_bytes(data[end : end + 2])
                known = entries.get(size)
                if known is None:
                    if size >= 0x8000:
                        return None
                    # A topic's name, how many partitions, and the first of them.
                    known = entries[size] = struct.Struct(f">h{size}sii")
                entry, last = known, len(data) - known.size
                row = entry.unpack_from(data, end)
            _, name, count, partition = row
            end += 6 + size
            topic = topic_of.get(name)
            if count == 1:
                if topic is not None:
                    codes.append(partition * step + topic)
            elif count < 0 or 4 * count > len(data):
                return None
            else:
                partitions = struct.unpack_from(f">{count}i", data, end)
                if topic is not None:
                    codes += [partition * step + topic for partition in partitions]
            end += 4 * count
        return codes, _INT32.unpack_from(data, end)[0]


Memory = Callable[[SpecMember], tuple[list[int], int]]


@dataclass(frozen=True, slots=True)
class Claims:
    """Accepted claims: `owned` are the partitions that each member may keep, by member number.

    `disputed` are the partitions that two members claimed with the same generation. `previous` is
    built from the claims with a generation older than the newest of the group: it maps a partition
    to the member with the newest of these claims.
    """

    owned: Sequence[Sequence[int]]
    disputed: frozenset[int]
    previous: dict[int, int]


def settle(problem: Problem, memory: Memory) -> Claims:
    """Return the claims that the leader accepts, from the claims of all members.

    `memory` is a function that returns a member's claimed codes and their generation (-1: none).
    """
    remembered = [memory(member) for member in problem.members]
    claimed = [codes for codes, _ in remembered]
    generations = [generation for _, generation in remembered]
    return Claims(*_settled(problem, claimed, generations), _previous(claimed, generations))


def all_alike(problem: Problem) -> bool:
    """Return whether the leader treats all members as subscribed to the same topics.

    It compares each later member with the first member that has topics; members before that one are
    ignored. A subscription is alike if it has as many entries as the first has topics and names no
    other topic, so a topic that it names twice counts twice.
    """
    topics: tuple[str, ...] = ()
    common: set[str] = set()
    for member in problem.members:
        if not common:
            topics, common = member.topics, set(member.topics)
        elif (member.topics != topics or len(topics) > len(common)) and (
            len(member.topics) != len(common) or not common.issuperset(member.topics)
        ):
            return False
    return True


def _settled(
    problem: Problem, claimed: list[list[int]], generations: list[int]
) -> tuple[Sequence[Sequence[int]], frozenset[int]]:
    seen: set[int] = set()
    for codes in claimed:
        before = len(seen)
        seen.update(codes)
        if len(seen) - before != len(codes):
            break
    else:
        return claimed, frozenset()
    kept: list[dict[int, None]] = [{} for _ in claimed]
    owner: dict[int, int] = {}
    disputed: set[int] = set()
    stated = [
        NO_GENERATION if m.generation is None or m.generation < 0 else m.generation
        for m in problem.members
    ]
    for member, codes in enumerate(claimed):
        mine = generations[member]
        for code in codes:
            rival = owner.get(code)
            if rival is not None:
                if mine < stated[rival]:
                    continue
                had = kept[rival].pop(code, 0) is None
                if rival == member and not had:
                    continue
                if mine == stated[rival]:
                    disputed.add(code)
                    owner[code] = member
                    continue
            kept[member][code] = None
            owner[code] = member
    return [list(codes) for codes in kept], frozenset(disputed)


def _previous(claimed: list[list[int]], generations: list[int]) -> dict[int, int]:
    previous: dict[int, int] = {}
    # A later member's equal generation does not overwrite an earlier one's: oldest first, each
    # generation's members from last to first.
    newest = max([NO_GENERATION, *generations])
    older = [m for m in reversed(range(len(claimed))) if generations[m] < newest]
    for member in sorted(older, key=generations.__getitem__):
        previous.update(dict.fromkeys(claimed[member], member))
    return previous


@dataclass(slots=True)
class Filling:
    """The growing assignment of the constrained algorithm, as partition codes by member number.

    Each member gets `low` or `high` partitions; the two are equal if no remainder is left. `extra`
    is the number of members that may have `high`, `at_high` the number that have it. `needy`
    members have fewer than `low`. `waiting` members have `low` and may get one more. `given_up`
    maps the code of each partition that its owner may not keep, for its share or its rack, to that
    owner.
    """

    low: int
    high: int
    extra: int
    lists: list[list[int]]
    at_high: int = 0
    needy: list[int] = field(default_factory=list)
    waiting: deque[int] = field(default_factory=deque)
    given_up: dict[int, int] = field(default_factory=dict)


def assign_constrained(problem: Problem, claims: Claims) -> tuple[list[list[int]], list[set[int]]]:
    """Assign with the constrained algorithm, for members that subscribe to the same topics.

    Returns two lists by member number: the codes that the member gets, in the leader's order, and
    those of them that another member must revoke first.

    Raises:
        LeaderWouldFail: the leader would throw.
    """
    low, extra = divmod(problem.total, len(problem.members))
    filling = Filling(
        low=low, high=low + (extra > 0), extra=extra, lists=[[] for _ in problem.members]
    )
    racks = Racks(problem)
    near = racks if racks.matters else None
    _keep_shares(claims, filling, near)
    kept = [len(codes) for codes in filling.lists]
    free, _ = problem.unassigned(range(len(problem.topics)), filling.lists)
    rest = list(chain.from_iterable(codes for _, codes in free))
    filling.needy.sort(key=problem.rank.__getitem__)
    filling.waiting = deque(sorted(filling.waiting, key=problem.rank.__getitem__))
    if any(racks.of_member):
        members_on = Counter(racks.of_member)
        # The partitions that have the fewest members on their racks first.
        rest.sort(key=lambda code: sum(members_on[rack] for rack in racks.of_code(code)))
    if near is not None:
        rest = _fill_near(filling, near, rest)
    done = _fill_needy(filling, rest)
    while done < len(rest) and filling.waiting:
        filling.lists[filling.waiting.popleft()].append(rest[done])
        done += 1
    if filling.needy or done < len(rest):
        strange = [
            (member, code)
            for member, codes in enumerate(claims.owned)
            for code in codes
            if not problem.exists(code)
        ]
        raise problem.failure(
            "the leader would throw IllegalStateException: members claim partitions that do not "
            "exist, so its shares do not add up",
            [member for member, _ in strange] or filling.needy,
            [code for _, code in strange],
        )
    return filling.lists, _transferred(claims, filling, kept)


def _keep_shares(claims: Claims, filling: Filling, near: Racks | None) -> None:
    for member, codes in enumerate(claims.owned):
        owned = sorted(codes)
        if near is not None and (rack := near.of_member[member]) is not None:
            filling.given_up |= {c: member for c in owned if rack not in near.of_code(c)}
            owned = [code for code in owned if code not in filling.given_up]
        if claims.disputed:
            owned = [code for code in owned if code not in claims.disputed]
        share = filling.low
        if len(owned) < filling.low:
            filling.needy.append(member)
        elif len(owned) >= filling.high and filling.at_high < filling.extra:
            share = filling.high
            filling.at_high += 1
            if filling.at_high == filling.extra:
                filling.waiting.clear()
        elif filling.at_high < filling.extra:
            filling.waiting.append(member)
        filling.lists[member] += owned[:share]
        filling.given_up.update(dict.fromkeys(owned[share:], member))


def _fill_needy(filling: Filling, rest: list[int]) -> int:
    """Deal `rest` in turn to the needy members until none is needy; return the number dealt.

    It ends earlier if `rest` is used up. Members that reach `filling.low` become waiting members.
    """
    done = 0
    while filling.needy and done < len(rest):
        needy = filling.needy
        rounds, odd = divmod(len(rest) - done, len(needy))
        missing = [filling.low - len(filling.lists[member]) for member in needy]
        if (full := min(missing)) <= rounds:
            rounds, odd = full, 0
        stop = done + rounds * len(needy)
        for i, member in enumerate(needy):
            filling.lists[member] += rest[done + i : stop : len(needy)]
            if i < odd:
                filling.lists[member].append(rest[stop + i])
        done = stop + odd
        filling.needy = [m for m in needy if len(filling.lists[m]) < filling.low]
        filling.waiting += (m for m in needy if len(filling.lists[m]) >= filling.low)
    return done


def _fill_near(filling: Filling, near: Racks, rest: list[int]) -> list[int]:
    """Give partitions to members on the rack of a replica, and return those that nobody got.

    The first needy member on such a rack gets the partition; the search begins after the member
    that got the previous one. If no needy member fits, the first waiting member that fits gets it.
    """
    circle, turn = filling.needy, 0
    left: list[int] = []
    for code in rest:
        racks = near.of_code(code)
        places = (place % len(circle) for place in range(turn, turn + len(circle)))
        place = next((n for n in places if near.of_member[circle[n]] in racks), None)
        if place is not None:
            member = circle[place]
            turn = place + 1
            size = len(filling.lists[member]) + 1
            if size >= filling.low:
                turn = place
                del circle[place]
                if size < filling.high and filling.at_high < filling.extra:
                    filling.waiting.append(member)
        else:
            found = next((m for m in filling.waiting if near.of_member[m] in racks), None)
            if found is None:
                left.append(code)
                continue
            member = found
            if len(filling.lists[member]) + 1 == filling.high:
                filling.waiting.remove(member)
                filling.at_high += 1
                if filling.at_high == filling.extra:
                    filling.waiting.clear()
        filling.lists[member].append(code)
    return left


def _transferred(claims: Claims, filling: Filling, kept: list[int]) -> list[set[int]]:
    moving: list[set[int]] = [set() for _ in filling.lists]
    if filling.given_up or claims.disputed:
        for member, codes in enumerate(filling.lists):
            for code in codes[kept[member] :]:
                if filling.given_up.get(code, member) != member or code in claims.disputed:
                    moving[member].add(code)
    return moving


def assign_general(problem: Problem, claims: Claims) -> list[list[int]]:
    """Assign with the general algorithm, for members that subscribe to different topics.

    Returns each member's codes, in the leader's order.

    Raises:
        LeaderWouldFail: the leader would throw, or never end.
    """
    takers = problem.subscribers(range(len(problem.members)), once=False)
    racks = Racks(problem)
    near = racks if racks.matters else None
    lists, revoked = _keep_subscribed(problem, claims, near)
    owner = {code: member for member, codes in enumerate(claims.owned) for code in codes}
    topics = sorted(range(len(problem.topics)), key=lambda topic: (len(takers[topic]), topic))
    free, exact = problem.unassigned(topics, lists)
    fresh = not any(lists)
    _hand_out(problem, takers, lists, owner, free, racks=near)
    balancing = Balancing(problem, takers, lists, owner, claims.previous, simple=exact)
    before = [list(codes) for codes in lists]
    if not revoked:
        balancing.run([(topic, codes) for topic, codes in free if len(takers[topic]) > 1])
    moved = balancing.run([(t, problem.codes_of(t)) for t in topics if len(takers[t]) > 1])
    movable = balancing.movable
    worse = moved and not fresh and _unfairness(lists, movable) >= _unfairness(before, movable)
    return before if worse else lists


def _keep_subscribed(
    problem: Problem, claims: Claims, near: Racks | None
) -> tuple[list[list[int]], bool]:
    step, revoked = len(problem.topics), False
    lists: list[list[int]] = []
    for member, codes in enumerate(claims.owned):
        topics = set(problem.subscribed[member])
        kept = [code for code in codes if code % step in topics]
        if near is not None and (rack := near.of_member[member]) is not None:
            kept = [code for code in kept if rack in near.of_code(code)]
        revoked |= len(kept) < len(codes)
        lists.append(kept)
    return lists, revoked


def _hand_out(
    problem: Problem,
    takers: list[list[int]],
    lists: list[list[int]],
    owner: dict[int, int],
    free: Free,
    *,
    racks: Racks | None,
) -> None:
    """Assign each free partition to the topic's subscriber with the fewest partitions.

    If several have the fewest, the first by member id gets it. With `racks`, a first round
    considers only members without a rack or on the rack of a replica. `lists` and `owner` change in
    place.
    """
    rank = problem.rank
    everywhere: list[str | None] = [None] * len(lists)
    for near in (racks, None) if racks is not None else (None,):
        rack_of = everywhere if near is None else near.of_member
        left: Free = []
        for topic, codes in free:
            heaps = defaultdict[str | None, list[tuple[int, int, int]]](list)
            for member in set(takers[topic]):
                heaps[rack_of[member]].append((len(lists[member]), rank[member], member))
            for heap in heaps.values():
                heapq.heapify(heap)
            rest: list[int] = []
            for code in codes:
                on = () if near is None else near.of_code(code)
                found = min((heaps[rack] for rack in (None, *on) if rack in heaps), default=None)
                if found is None:
                    rest.append(code)
                    continue
                size, place, member = found[0]
                lists[member].append(code)
                owner[code] = member
                heapq.heapreplace(found, (size + 1, place, member))
            left.append((topic, rest))
        free = left


def _unfairness(lists: list[list[int]], members: list[int]) -> int:
    """Return the sum of the differences between the partition counts of all pairs of `members`.

    It is computed as a Java int, so it wraps around at 32 bits.
    """
    sizes = sorted(len(lists[member]) for member in members)
    total = sum((2 * i - len(sizes) + 1) * size for i, size in enumerate(sizes))
    return (total + 0x80000000) % 0x100000000 - 0x80000000
