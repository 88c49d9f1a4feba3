"""Prediction of the coordinator's answer to joins and restarts: `admitted(memory, action)`.

The answer is yes, no or cannot tell. `CoordinatorMemory` is what the coordinator may remember of
every member that it counts; an action is a sequence of `LeaveEvent`, `JoinEvent` and `Settle`. The
answer is yes or no only if every memory that fits the evidence gives that answer.

The coordinator checks a join in this order (in parentheses: Kafka's error codes). The order is
compared with 4.1.1 and 3.9.1 by tests/live/test_admission_live.py.

1. session timeout bounds (26): GroupCoordinatorService.joinGroup; Scala:
   GroupCoordinator.handleJoinGroup.
2. the migration policy (23), in a KIP-848 group: some brokers reject every classic join while it is
   disabled (KAFKA-20640). Each member that joins or leaves makes the group's classic members join
   again, so their joins are then rejected too.
3. group size (81): GroupMetadataManager.acceptJoiningMember, in a KIP-848 group
   throwIfConsumerGroupIsFull; Scala: GroupCoordinator.acceptJoiningMember. While a rebalance is
   prepared, only members that have joined again count. A new member may then take a place, and the
   old member that joins last is rejected.
4. a Dead group (15), then protocol type and assignor lists (23): ClassicGroup.supportsProtocols;
   Scala: GroupMetadata.supportsProtocols. An Empty group admits any list. Otherwise the protocol
   type must be equal, and one assignor of the join must be in every remembered list, including the
   old list of the joining member. A KIP-848 group counts its classic members only:
   ConsumerGroup.supportsClassicProtocols.
5. the member id (79): a dynamic client joins again with the id that it gets, and every check is
   done again; its list is stored by that second join. Then the instance id (82).

A rejected join stores nothing. A killed dynamic member counts until its session expires or a
rebalance ends without it, a static member until its session expires. After a leave or a join the
other members join again. A member whose list a coordinator load has shortened then sends its whole
list, so a join that is rejected at once may be admitted a moment later. The answer is no only if
both joins would be rejected.

`unresolved_rejections` returns one rejection for each rejected client that has not rejoined.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from enum import StrEnum
from functools import reduce
from itertools import chain
from typing import Final, TypeAlias

from msgspec.structs import replace

from rebal.groups.clients import is_default_client_id
from rebal.groups.evidence.absent import clocks_apart
from rebal.groups.evidence.exact import when
from rebal.groups.model import (
    Departed,
    GroupSnapshot,
    GroupState,
    GroupType,
    Member,
    Record,
    Refusal,
    Tri,
)
from rebal.planner.admission.memory import (
    INCONSISTENT,
    POLICY,
    CoordinatorMemory,
    Entry,
    Held,
    common_assignor_bounds,
)
from rebal.planner.facts import listed
from rebal.planner.verdict import agreed, first_reason

FULL: Final = "GROUP_MAX_SIZE_REACHED"
SESSION: Final = "INVALID_SESSION_TIMEOUT"


class LeaveEvent(Record, frozen=True, kw_only=True):
    """The event that a member leaves: by request, by removal, or because its session expired."""

    member_id: str


class JoinEvent(Record, frozen=True, kw_only=True):
    """A client's request to join the group with an assignor list.

    `assignors` is None if a member keeps its current list and that is not known; such a list holds
    at least the elected assignor. `instance_id` is set for a static member. `session_ms` is the
    session timeout (None: the brokers have accepted it before). `kip848` is True for a join to a
    KIP-848 group with group.protocol=consumer, which sends no assignor list.
    """

    assignors: tuple[str, ...] | None
    name: str = ""
    instance_id: str | None = None
    protocol_type: str = "consumer"
    session_ms: int | None = None
    kip848: bool = False


class Settle(Record, frozen=True, kw_only=True):
    """The event that a rebalance ends, in which every running member sends its whole list."""


Event: TypeAlias = LeaveEvent | JoinEvent | Settle


class Needs(StrEnum):
    """Kind of evidence that would turn `cannot tell` into yes or no, the cheapest first."""

    PROBE = "probe"
    LISTS = "lists"
    DECLARED = "declared lists"
    RELOAD = "reload"
    LOAD = "load"
    CLOCK = "clock"
    BROKER = "broker settings"
    CONFLICT = "conflict"


class Admission(Record, frozen=True, kw_only=True):
    """The coordinator's predicted answer to the joins of an action.

    `error` is Kafka's name of the rejection, or of the error that a Dead group returns (None: the
    joins are admitted, or it is not known whether or with which error they are rejected). `elected`
    is True if the join's list holds the elected assignor, so that a coordinator load before the
    join changes nothing. `blame` are the member ids whose lists cause the rejection. `needs` is the
    cheapest evidence that would decide a `cannot tell` (None: no evidence does, or another reading
    of the group does).
    """

    verdict: Tri
    reason: str = ""
    error: str | None = None
    elected: bool = False
    blame: tuple[str, ...] = ()
    needs: Needs | None = None


def admitted(memory: CoordinatorMemory, action: Sequence[Event]) -> Admission:
    """Return the predicted answer to the joins of `action`, which has at least one.

    It is yes if every join is admitted, and no classic member of a KIP-848 group is rejected in the
    rebalance that follows (`_ended`). The answer is that of the first join that is not admitted. If
    all are admitted, it is that of the last one, with `elected` True only if it is True for every
    join.
    """
    found = list(filter(None, [_ended(memory, action)]))
    for event in action:
        if found and found[-1].verdict is not Tri.YES:
            return found[-1]
        if isinstance(event, JoinEvent):
            found.append(_join(memory, event))
        memory = after(memory, event)
    return replace(found[-1], elected=all(one.elected for one in found))


def after(memory: CoordinatorMemory, event: Event) -> CoordinatorMemory:
    """Return the coordinator's memory after `event`; a join is assumed to be admitted."""
    if isinstance(event, LeaveEvent):
        return replace(
            memory,
            left=memory.left | {event.member_id},
            came=tuple(entry for entry in memory.came if entry.member_id != event.member_id),
        )
    if isinstance(event, Settle):
        return replace(memory, settled=True)
    same = _same_instance(memory, event)
    if same is not None:
        memory = after(memory, LeaveEvent(member_id=same.member_id))
    names = filter(None, [memory.elected]) if event.assignors is None else event.assignors
    entry = Entry(
        member_id=f"joined {len(memory.left) + len(memory.came) + len(memory.others)}",
        name=event.name,
        instance_id=event.instance_id,
        lists=(Held(names=frozenset(names), exact=event.assignors is not None),),
    )
    if event.kip848:
        return replace(memory, others=(*memory.others, entry))
    if memory.empty:
        # It is replaced by a classic group; ClassicGroup.add: its first member brings the type.
        memory = replace(
            memory,
            type=GroupType.CLASSIC,
            protocol_type=event.protocol_type,
            classic_joins=Tri.YES,
            static_restarts_when_full=Tri.NO,
        )
    return replace(memory, came=(*memory.came, entry))


def restart(
    memory: CoordinatorMemory,
    member_id: str,
    assignors: tuple[str, ...] | None,
    *,
    killed: bool = False,
    session_ms: int | None = None,
) -> tuple[Event, ...]:
    """Return the events of one member's restart with a list (None: its current list, not known).

    A dynamic member leaves first, unless it is `killed`: then its old entry counts until its
    session expires. A static member does not leave: its join replaces its entry.
    """
    entry = next(one for one in memory.everybody if one.member_id == member_id)
    leaves = entry.instance_id is None and not killed
    return (
        *([LeaveEvent(member_id=member_id)] if leaves else []),
        JoinEvent(
            assignors=assignors,
            name=entry.name,
            instance_id=entry.instance_id,
            protocol_type=memory.protocol_type or "consumer",
            session_ms=session_ms,
        ),
    )


def _join(memory: CoordinatorMemory, join: JoinEvent) -> Admission:
    if memory.state is GroupState.DEAD:
        return Admission(
            verdict=Tri.CANNOT_TELL,
            reason="the group is Dead: the coordinator asks the client to try again",
            error="COORDINATOR_NOT_AVAILABLE",
        )
    closed = not (join.kip848 or memory.empty or memory.classic_joins is Tri.YES)
    early = [
        one
        for one in (
            _out_of_bounds(memory, join),
            _rejects_classic(memory, "it joins with the classic protocol") if closed else None,
            _too_many(memory, join),
        )
        if one is not None
    ]
    sure = [one for one in early if one.verdict is Tri.NO]
    answer = sure[0] if sure else _by_lists(memory, join)
    if sure or not early:
        return answer
    # Rejected by its list in any case; with which error depends on what was not read.
    return replace(answer, error=None) if answer.verdict is Tri.NO else early[0]


def _out_of_bounds(memory: CoordinatorMemory, join: JoinEvent) -> Admission | None:
    asked, bounds = join.session_ms, memory.session_ms
    if asked is None or (bounds is not None and bounds[0] <= asked <= bounds[1]):
        return None
    if bounds is None:
        return Admission(
            verdict=Tri.CANNOT_TELL,
            needs=Needs.BROKER,
            reason="the brokers' bounds of session.timeout.ms were not read",
        )
    return Admission(
        verdict=Tri.NO,
        error=SESSION,
        reason=f"its session.timeout.ms is {asked}, and the brokers accept {bounds[0]} to "
        f"{bounds[1]} ({SESSION})",
    )


def _ended(memory: CoordinatorMemory, action: Sequence[Event]) -> Admission | None:
    """Return the rejection of classic members of a KIP-848 group that the action makes join again.

    The rebalance after `action` makes every classic member that stays join again, and some brokers
    reject that (KAFKA-20640). None if these brokers admit it, or if no classic member stays.
    """
    if memory.classic_joins is Tri.YES:
        return None
    later = reduce(after, action, memory)
    stay = _named([entry for entry in later.entries if entry not in later.came])
    return _rejects_classic(memory, f"the rebalance makes {stay} join again") if stay else None


def _rejects_classic(memory: CoordinatorMemory, why: str) -> Admission:
    sure = memory.classic_joins is Tri.NO
    return Admission(
        verdict=memory.classic_joins,
        error=INCONSISTENT if sure else None,
        needs=None if sure else Needs.BROKER,
        reason=f"{why}, and these brokers {'' if sure else 'may '}reject every classic join to a "
        f"KIP-848 group while {POLICY} is disabled (KAFKA-20640)",
    )


def _too_many(memory: CoordinatorMemory, join: JoinEvent) -> Admission | None:
    """Return the answer to a join that may find the group full (group.max.size); None if it fits.

    GroupMetadataManager.acceptJoiningMember: a join without a member id needs a free place. A
    static member's restart is such a join, although it replaces the member's own entry; only
    KIP-848 groups since Kafka 4.4.0 admit it when they are full (KAFKA-20601). While a rebalance
    gathers members, only those that have joined it count, so a group that is full by its entries
    may have room.
    """
    more, size = len(memory.came) - len(memory.left), len(memory.everybody)
    limit = memory.max_size
    returns = Tri.NO if _same_instance(memory, join) is None else memory.static_restarts_when_full
    fits = more < memory.room if limit is None else size < limit
    if memory.empty or more < 0 or fits or returns is Tri.YES:
        return None
    also = "; a static member that restarts needs a free place too" if join.instance_id else ""
    if limit is None:
        return Admission(
            verdict=Tri.CANNOT_TELL,
            needs=Needs.BROKER,
            reason=f"the brokers' limit of members was not read{also}",
        )
    sure = memory.state is not GroupState.PREPARING_REBALANCE and returns is Tri.NO
    return Admission(
        verdict=Tri.NO if sure else Tri.CANNOT_TELL,
        error=FULL if sure else None,
        needs=Needs.BROKER if returns is Tri.CANNOT_TELL else None,
        reason=f"the group has {size} member{'' if size == 1 else 's'} and the brokers allow "
        f"{limit} ({FULL}){also}"
        f"{': raise the limit, or let its session end first' if also else ''}",
    )


def _by_lists(memory: CoordinatorMemory, join: JoinEvent) -> Admission:
    classic = memory.type in (GroupType.CLASSIC, GroupType.UNKNOWN)
    rows = (
        (join.kip848, Tri.YES, "it is held against no list"),
        (join.assignors == (), Tri.NO, "it names no assignor"),
        (classic and memory.empty, Tri.YES, "the group is Empty then"),
        (
            classic and memory.protocol_type not in (None, "", join.protocol_type),
            Tri.NO,
            f"the group's protocol type is {memory.protocol_type}, the join's is "
            f"{join.protocol_type} ({INCONSISTENT})",
        ),
        (
            memory.type is GroupType.STREAMS and not memory.empty,
            Tri.NO,
            f"a streams group that has members admits no classic one ({INCONSISTENT})",
        ),
        (
            not classic and join.protocol_type != "consumer",
            Tri.NO,
            f"a KIP-848 group admits consumers only ({INCONSISTENT})",
        ),
        (
            not classic and not memory.entries,
            Tri.YES,
            "the group has no classic member whose list it would be held against",
        ),
        (not memory.protocol_type, Tri.CANNOT_TELL, "its protocol type is not known"),
    )
    for holds, verdict, reason in rows:
        if holds:
            return Admission(
                verdict=verdict,
                reason=reason,
                error=INCONSISTENT if verdict is Tri.NO else None,
                elected=verdict is Tri.YES,
            )
    return _common(memory, join)


def _common(memory: CoordinatorMemory, join: JoinEvent) -> Admission:
    """Return the answer to a join by the assignor lists that the coordinator remembers.

    It is yes if in every possible memory some assignor of the join is in all lists, no if that is
    so in none of them, and otherwise cannot tell.
    """
    came = [held.names for entry in memory.came for held in entry.lists]
    kept = [each for each in memory.in_all if all(each in names for names in came)]
    elected = memory.elected if memory.elected in kept else None
    # A list that is not known holds the elected assignor at least.
    names = (elected,) if join.assignors is None else join.assignors
    by = next((name for name in (elected, *names) if name in names and name in kept), None)
    if by is not None:
        # What the broker says itself stands, whatever a log says of a member.
        return Admission(
            verdict=Tri.YES, elected=by == elected, reason=_why_yes(memory, by, elected)
        )
    if join.assignors is None:
        return Admission(
            verdict=Tri.CANNOT_TELL, needs=Needs.LISTS, reason="its present list is not known"
        )
    bounds = common_assignor_bounds(memory, join.assignors)
    if bounds is None:
        return Admission(
            verdict=Tri.CANNOT_TELL,
            needs=Needs.CONFLICT,
            reason="the evidence about the members' lists contradicts itself",
        )
    shown = f"[{', '.join(join.assignors)}]"
    if all(least for least, _ in bounds):
        name = next(
            (each for each in join.assignors if all(each in least for least, _ in bounds)), None
        )
        return Admission(verdict=Tri.YES, reason=_why_yes(memory, name, elected))
    holding = list(_holding(memory, join.assignors))
    if not any(most for _, most in bounds):
        guilty = [entry for entry, says in holding if says == {Tri.NO}]
        return Admission(
            verdict=Tri.NO,
            error=INCONSISTENT,
            blame=tuple(entry.member_id for entry in guilty),
            reason=_why_no(memory, join.assignors, guilty) + f": {shown} is rejected "
            f"({INCONSISTENT})",
        )
    unsure = _named([e for e, says in holding if Tri.CANNOT_TELL in says] or memory.entries)
    if not any(least for least, _ in bounds):
        return Admission(
            verdict=Tri.CANNOT_TELL,
            needs=Needs.RELOAD,
            reason=f"a coordinator load has shortened the list of {unsure}: {shown} is "
            "rejected until the members have joined again with their whole lists",
        )
    return Admission(
        verdict=Tri.CANNOT_TELL,
        needs=_needs(memory, join.assignors),
        reason=f"it is not known whether the coordinator's list of {unsure} holds "
        f"{' or '.join(join.assignors)}",
    )


def _same_instance(memory: CoordinatorMemory, join: JoinEvent) -> Entry | None:
    same = (e for e in memory.everybody if e.instance_id == join.instance_id is not None)
    return next(same, None)


def _holding(memory: CoordinatorMemory, names: Sequence[str]) -> Iterator[tuple[Entry, set[Tri]]]:
    """Yield (member, answers) for each member whose assignor list the coordinator remembers.

    `answers` is the set of the answers for all `names` to: does the member's list hold this name?
    An answer is yes or no only if it is the same for every list that may be remembered.
    """
    again, came = memory.left or memory.came, {entry.member_id for entry in memory.came}
    lists: dict[str, set[Held]] = defaultdict(set)
    for entry in (*chain(*memory.cases), *memory.came):
        lists[entry.member_id].update(entry.lists, [entry.whole] if entry.whole and again else [])
    for entry in memory.entries:
        sure = memory.in_all if entry.member_id not in came else frozenset[str]()
        held = lists[entry.member_id]
        yield (
            entry,
            {Tri.YES if n in sure else agreed(one.holds(n) for one in held) for n in names},
        )


def _needs(memory: CoordinatorMemory, names: Sequence[str]) -> Needs:
    own = memory.type in (GroupType.CLASSIC, GroupType.UNKNOWN)
    if (
        own
        and memory.protocol_type == "consumer"
        and not ((memory.in_all | memory.not_in_all).intersection(names))
    ):
        return Needs.PROBE
    return Needs.RELOAD if len(memory.cases) > 1 else Needs.LISTS


def _why_yes(memory: CoordinatorMemory, name: str | None, elected: str | None) -> str:
    rows = (
        (name is None, "every list that the coordinator may remember holds one of its assignors"),
        (
            name == elected,
            f"{name} is elected, so every list that the coordinator remembers holds it",
        ),
    )
    return first_reason(rows) or (
        f"every list that the coordinator remembers holds {name}"
        f"{' (probe)' if name in memory.in_all else ''}"
    )


def _why_no(memory: CoordinatorMemory, names: Sequence[str], guilty: Sequence[Entry]) -> str:
    wanted = " or ".join(names)
    rows = (
        (guilty, f"the coordinator's list of {_named(guilty)} has no {wanted}"),
        (
            wanted in memory.not_in_all,
            f"some list that the coordinator remembers has no {wanted} (probe)",
        ),
    )
    return first_reason(rows) or (
        f"no assignor of {wanted} is in every list that the coordinator remembers"
    )


def _named(entries: Sequence[Entry]) -> str:
    return listed([entry.name or entry.member_id for entry in entries])


def unresolved_rejections(snapshot: GroupSnapshot) -> tuple[Refusal, ...]:
    """Return the newest rejection of each client that has not rejoined, the oldest first.

    `times` of a rejection includes the client's earlier ones with the same assignor list. Clients
    without an address (their own logs show none) count apart by their logs: one client with two
    logs counts twice, and two clients never count as one.
    """
    newest: dict[tuple[str, ...], Refusal] = {}
    for one in sorted(snapshot.refusals, key=lambda each: when(each.at)):
        before = newest.get(key := (*client_key(one), label(one)))
        often = before.times if before is not None and before.list == one.list else 0
        newest[key] = replace(one, times=one.times + often)
    return tuple(
        one
        for one in newest.values()
        if one.rejoined_as is None
        and joined_since_rejection(member_of(snapshot, one), one) is not Tri.YES
    )


def answer_if_repeated(
    memory: CoordinatorMemory, one: Refusal, *, stranger: bool = False
) -> Admission:
    """Return the predicted answer if the rejected client repeated its join now.

    `stranger` is True if the client is another kind of program than the members, such as a consumer
    in a group of Connect workers; it then joins with the protocol type `consumer`.
    """
    if not one.list:
        return Admission(verdict=Tri.CANNOT_TELL, reason="its list is not known")
    # Error 23 comes after the check of the group's size (81): there was room for it.
    return admitted(
        replace(memory, room=max(memory.room, 1)),
        [
            JoinEvent(
                assignors=one.list,
                instance_id=one.instance_id,
                protocol_type="consumer" if stranger else memory.protocol_type or "consumer",
            )
        ],
    )


def label(one: Refusal) -> str:
    """Return a rejected client's name in texts: its instance id, else client id and address.

    Its log stands for an address that is not known.
    """
    name = one.instance_id or one.client_id or "a client"
    where = one.host.lstrip("/") or one.evidence.detail.rpartition(":")[0]
    return f"{name} ({where})" if where and not one.instance_id else name


def departed_hint(instance_id: str | None) -> str:
    """Return the sentence that offers --departed for a static client; empty for a dynamic one.

    --departed states that the instance id left for good or was renamed.
    """
    said = f" If {instance_id} left for good, or was renamed: --departed {instance_id}."
    return said if instance_id else ""


def client_key(one: Refusal | Departed) -> tuple[str, ...]:
    """Return the key that identifies a client: its instance id, else its client id and address."""
    # A client in a crash loop comes from a new connection each time: its address stays.
    return (one.instance_id,) if one.instance_id else (one.client_id, one.host)


def member_of(snapshot: GroupSnapshot, one: Refusal) -> Member | None:
    """Return the one member with the rejected client's instance id, else client id and address.

    None if there is no such member or more than one. A rejection from a client's own log has no
    address: then the client id decides alone, and the result is None also if several rejected
    clients have that id, or if it is a client library's default id.
    """
    same = [each for each in snapshot.members if each.instance_id == (one.instance_id or None)]
    if not one.instance_id:
        named = [member for member in same if member.client_id == one.client_id != ""]
        same = [member for member in named if address(member.host) in ("", address(one.host))]
        alike = (each for each in snapshot.refusals if each.client_id == one.client_id)
        # A client's own log has no address; each of its rejections stands on a line of that log.
        several = len({(o.host, o.evidence.detail.rpartition(":")[0]) for o in alike}) > 1
        if not one.host:
            same = (
                []
                if several or is_default_client_id(snapshot.group.group_id, one.client_id)
                else named
            )
    return same[0] if len(same) == 1 else None


def joined_since_rejection(member: Member | None, one: Refusal) -> Tri:
    """Return whether the rejected client's member (`member_of`) joined after the rejection `one`.

    No if `member` is None, or if it joined before: it is then another process with the same client
    id, or the client's own old entry. Cannot tell if a time is not known, or if the member's join
    is later by no more than the clocks of the two sources may differ.
    """
    if member is None:
        return Tri.NO
    came = member.joined_at if one.instance_id is not None else member.first_joined_at
    if came is None or one.at is None:
        return Tri.CANNOT_TELL
    if came <= one.at:
        return Tri.NO
    return Tri.YES if came - one.at > clocks_apart(one) else Tri.CANNOT_TELL


def address(host: str) -> str:
    """Return `host` without the slash that Java prints before an address."""
    return host.removeprefix("/")
