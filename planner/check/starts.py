"""The next starts of consumers, as a version of a repository declares them, and their changes.

A `Start` combines a configuration file's settings with the client library that a lock, build or
image file names. A value that no file shows is None. An unknown assignor list contains a
placeholder name, which is equal only to itself, so that nothing unknown counts as common.

`snapshots_of` makes a group whose members run such starts. In a rolling restart new members meet
members of the earlier version, so a dynamic consumer counts as two members, however many its files
declare.
"""

import re
from collections import defaultdict
from collections.abc import Collection, Hashable, Iterator, Sequence
from datetime import UTC, datetime
from functools import cache
from itertools import product, zip_longest
from typing import Final, Self

from msgspec.structs import replace

from rebal.groups.clients import (
    Library,
    assignor_of,
    default_list,
    family,
    version_tuple,
)
from rebal.groups.coordinator import elect
from rebal.groups.evidence.observations import Declared
from rebal.groups.model import (
    AssignorList,
    CoordinatorKind,
    Evidence,
    Group,
    GroupSnapshot,
    GroupState,
    GroupType,
    Knowledge,
    Member,
    Record,
    Software,
    Source,
)
from rebal.planner.clients import custom
from rebal.planner.context import CLASSIC, CONSUMER, STREAMS
from rebal.planner.facts import in_pairs
from rebal.planner.plan import with_default_settings

# Families whose library is Java's.
PROGRAMS: Final = ("streams", "connect")
# Values of group.protocol under which the brokers assign: no list is compared.
BY_BROKERS: Final = {CONSUMER: "none (KIP-848)", STREAMS: "none (KIP-1071)"}
LIST: Final = "assignor list"
# The id of the first member of a group that starts make.
FIRST: Final = "0.0"
_OPEN: Final = "?"
# Behind so many signs, one counts where one consumer alone has it on each side.
_SURE: Final = 7
# Consumers whose stages are combined in every way; more are rolled out together.
_FREE: Final = 3


class Start(Record, frozen=True, kw_only=True):
    """The next start of one consumer.

    `file` is relative to the version's root, as is the location that `declared` names. `configured`
    is False if no configuration file declares the consumer, only its library is known.
    """

    file: str
    declared: Declared
    library: Library = Library()
    configured: bool = True

    @property
    def folder(self) -> str:
        """Return the folder of the start's file, `.` for the root."""
        return self.file.rpartition("/")[0] or "."

    @property
    def family(self) -> str | None:
        """Return the client family: `streams`, `connect`, the library's, or the declared one."""
        declared = self.declared.family
        return declared if declared in PROGRAMS else self.library.family or declared

    @property
    def client(self) -> str | None:
        """Return the client family, or the product if the family is not known."""
        return self.family or self.library.product or None

    def same_client(self, other: Self) -> bool:
        """Return whether `client` (the client family, else the product) is equal for both starts.

        True too if `client` of either start is None: nothing then shows a difference.
        """
        return None in (self.client, other.client) or self.client == other.client

    def same_list(self, other: Self) -> bool:
        """Return whether both starts have the same assignor list and group.protocol."""
        return (self.protocol, self.names) == (other.protocol, other.names)

    def is_apart(self, other: Self) -> bool:
        """Return whether both starts name bootstrap servers and have none in common."""
        first, second = self.declared.brokers, other.declared.brokers
        return bool(first and second and {*first.split(",")}.isdisjoint(second.split(",")))

    @property
    def ignores_protocol(self) -> bool:
        """Return whether the client is a Java version before 3.7, which ignores group.protocol."""
        have = version_tuple(self.library.version)
        # From 3.7 on, Java reads it (KAFKA-15679).
        return self.family == "java" and have is not None and have < (3, 7)

    @property
    def protocol(self) -> str | None:
        """Return group.protocol, or the client's default; None if neither is known."""
        if self.declared.group_protocol is not None and not self.ignores_protocol:
            return self.declared.group_protocol
        have = version_tuple(self.library.version) or ()
        # From 5 on, Java's default is consumer (KIP-1274).
        return None if self.family == "java" and have >= (5,) else CLASSIC

    @property
    def names(self) -> tuple[str, ...]:
        """Return the assignor list of the next start; a placeholder stands for an unknown part.

        It is empty if the brokers assign (KIP-848, KIP-1071).
        """
        if self.protocol in BY_BROKERS:
            return ()
        # Java takes classes, librdkafka its own names; one that is not known stays as written.
        spelled = self.declared.spelled
        java = tuple(
            (assignor_of(own) or own) if "." in own else f"class {own or '(empty)'}"
            for own in spelled
        )
        return (
            {"librdkafka": spelled, "java": java}.get(self.family or "")
            or self.declared.list
            or (self.library.default_list if self.library.family == self.family else None)
            or default_list(self.family, self.library.version)
            or _unknown_list(self)
        )

    @property
    def writes_list(self) -> bool:
        """Return whether the start does without the client's default assignor list.

        True if the configuration sets a list, or if the brokers assign (KIP-848, KIP-1071), so that
        the client sends none.
        """
        return bool(self.declared.list or self.declared.spelled) or self.protocol in BY_BROKERS

    @property
    def list_text(self) -> str:
        """Return the assignor list as text, with the library if it is the library's default list.

        The text says so if the list is not known.
        """
        if self.protocol in BY_BROKERS:
            return BY_BROKERS[self.protocol]
        if any(map(is_unset, self.names)):
            heads = [name for name in self.names if not is_unset(name)]
            return f"[{', '.join(heads)}, …], the rest not known" if heads else "not known"
        named = self.library.product_title or (self.library.where and self.library.title)
        default = "" if self.writes_list else f" (default of {named or self.family})"
        return f"[{', '.join(self.names)}]{default}"


def start_of(file: str, library: Library) -> Start:
    """Return the start of a consumer that sets nothing, whose library `file` names.

    `file` is a dependency file. The list is the default list of the library.
    """
    declared = Declared(where=file, evidence=Evidence(source=Source.ASSUMED, detail=file))
    return Start(file=file, declared=declared, library=library, configured=False)


def _unknown_list(start: Start) -> tuple[str, ...]:
    """Return the assignor list of a client whose default list is not known.

    It has the assignor that is first in every version's default list, if there is one, and a
    placeholder name for the rest. Equal inputs give equal placeholders.
    """
    library = start.library
    defaults = () if library.product and library.own_list else family(start.family).defaults
    first = {default.list[0] for default in defaults}
    inputs = (start.family, library.version, library.product, library.product_version)
    return (*(first if len(first) == 1 else ()), _OPEN + "|".join(map(str, inputs)))


def is_open(name: str) -> bool:
    """Return whether `name` only stands for an assignor name that is not known.

    It is then the class of a custom assignor, or the placeholder for an unknown list.
    """
    return is_unset(name) or (custom(name) and ("." in name or not name.islower()))


def is_unset(name: str) -> bool:
    """Return whether `name` is the placeholder for the default list of an unknown client."""
    return name.startswith(_OPEN)


def aspects(start: Start) -> dict[str, str]:
    """Return setting → value as text, for everything that decides how the consumer starts."""
    declared, library = start.declared, start.library
    note = f" ({library.version} ignores it)" if start.ignores_protocol else ""
    # Settings that a file leaves out, or takes from a placeholder.
    unread = dict.fromkeys(declared.classic_only, "set")
    several = f" ({declared.replicas} processes)" if (declared.replicas or 1) > 1 else ""
    return {
        LIST: start.list_text,
        "group.id": declared.group_id or "not known",
        "bootstrap.servers": declared.brokers or "not known",
        "group.protocol": f"{declared.group_protocol}{note}"
        if declared.group_protocol
        else "not set",
        "group.instance.id": f"{declared.instance_id}{several}"
        if declared.instance_id is not None
        else ("the pod's name" if declared.by_pod else "not set (dynamic member)"),
        **{
            name: unread.get(name, "not set") if own is None else str(own)
            for name, own in (
                ("heartbeat.interval.ms", declared.heartbeat_ms),
                ("session.timeout.ms", declared.session_timeout_ms),
                ("max.poll.interval.ms", declared.max_poll_interval_ms),
            )
        },
        "upgrade.from": declared.upgrade_from or "not set",
        "library": library.title,
        "product": library.product_title or ("none" if library.family else "not known"),
    }


def snapshot_of(
    starts: Sequence[Start], laters: Sequence[Start | None] = (), copies: int = 2
) -> GroupSnapshot:
    """Return the group whose members run `starts` now and `laters` after their next start.

    The elected assignor is None if the vote depends on the number of members, which is not known.
    `copies` is the number of members of a dynamic consumer.
    """
    first, *others = snapshots_of(starts, laters, copies)
    return replace(first, group=replace(first.group, assignor=None)) if others else first


def snapshots_of(
    starts: Sequence[Start], laters: Sequence[Start | None] = (), copies: int = 2
) -> list[GroupSnapshot]:
    """Return the group that `starts` make, once for each assignor that it may have elected.

    Its members start with `laters` next. If the lists have no assignor in common, there is one
    snapshot, without an elected assignor. The brokers' settings are Kafka's defaults. A dynamic
    consumer has `copies` members.
    """
    members = [
        member
        for number, (now, later) in enumerate(zip_longest(starts, laters))
        for member in _members(number, now, later, copies)
    ]
    kinds = [GroupType(now.protocol) for now in starts if now.protocol in BY_BROKERS]
    group = Group(
        group_id=next((now.declared.group_id for now in starts if now.declared.group_id), ""),
        state=GroupState.STABLE if members else GroupState.EMPTY,
        type=kinds[0] if kinds else GroupType.CLASSIC,
        protocol_type="connect" if "connect" in (now.family for now in starts) else "consumer",
    )
    # Declarations have no time.
    made = GroupSnapshot(
        group=group, captured_at=datetime(2000, 1, 1, tzinfo=UTC), members=tuple(members)
    )
    lists = [member.assignors.list for member in members if not kinds]
    return [
        with_default_settings(replace(made, group=replace(group, assignor=each)))
        for each in (elect(lists, CoordinatorKind.UNKNOWN).votes or [None])
    ]


def _members(number: int, now: Start, later: Start | None, copies: int) -> Iterator[Member]:
    said = Evidence(source=Source.ASSUMED, detail=now.declared.where)
    stays = later if later is not None and now.same_client(later) else now
    version = stays.library.version or now.library.version
    online = now.protocol in BY_BROKERS
    for copy in range(copies if now.declared.instance_id is None else 1):
        yield Member(
            member_id=f"{number}.{copy}",
            client_id=now.declared.where,
            instance_id=now.declared.instance_id,
            software=Software(family=now.family, version=version, evidence=(said,))
            if now.family is not None
            else None,
            assignors=AssignorList()
            if online
            else AssignorList(knowledge=Knowledge.EXACT, list=now.names, evidence=(said,)),
            # The list is the one by default where none is written.
            declared=replace(
                later.declared,
                list=later.declared.list or later.names,
                group_protocol=None if later.ignores_protocol else later.declared.group_protocol,
            )
            if later is not None
            else None,
            protocol_type=now.protocol if online else None,
        )


class StartChange(Record, frozen=True, kw_only=True):
    """One setting of a consumer's next start that changes from the text `before` to `after`.

    `what` is the setting's name; `file` and `line` (0: not known) show where it changes.
    """

    what: str
    before: str
    after: str
    file: str
    line: int = 0


class Pair(Record, frozen=True, kw_only=True):
    """One consumer, with its start before and after a change of the repository's files.

    `before` is its start with the files before the change (None: these do not declare it), `start`
    that with the files after the change. If `gone`, only the files before it declare the consumer,
    and `start` is that earlier start. `never_ran` is the reason why `before` cannot start (empty:
    it can).
    """

    start: Start
    before: Start | None = None
    gone: bool = False
    never_ran: str = ""

    @property
    def ran(self) -> Start | None:
        """Return `before`, if it is in the same group as `start` and can start; else None."""
        groups = {one.declared.group_id for one in (self.before, self.start) if one is not None}
        return self.before if len(groups) == 1 and not self.never_ran else None

    def changes(self) -> Iterator[StartChange]:
        """Yield the changes from the earlier start to the later one, the assignor list first."""
        own, none = {"consumer": self.start.list_text}, {"consumer": "not declared"}
        was, now = (none, own) if self.before is None else (own, none)
        if self.before is not None and not self.gone:
            was, now = aspects(self.before), aspects(self.start)
            if self.before.same_list(self.start):
                del was[LIST]
        of_library = ("library", "product", *(() if self.start.writes_list else (LIST,)))
        for what in (each for each in was if was[each] != now[each]):
            named = self.start.library.where if what in of_library else ""
            yield StartChange(
                what=what,
                before=was[what],
                after=now[what],
                file=named or self.start.file,
                line=self.start.library.line if named else 0,
            )


class GroupWorld(Record, frozen=True, kw_only=True):
    """The consumers of one group, each with its starts before and after the change of the files.

    `group_id` is None if no configuration file names the group; `name` then names its folder. An
    active Spring profile is part of `name`.
    """

    group_id: str | None
    name: str
    pairs: tuple[Pair, ...]

    @property
    def befores(self) -> list[Start]:
        """Return the starts that the group's consumers run before the change."""
        return [pair.ran for pair in self.pairs if pair.ran is not None]

    @property
    def afters(self) -> list[Start]:
        """Return the starts that the group's consumers run after the change."""
        return [pair.start for pair in self.pairs if not pair.gone]

    @property
    def changed(self) -> tuple[Pair, ...]:
        """Return the consumers whose start the change of the files alters, adds or removes."""
        return tuple(pair for pair in self.pairs if any(pair.changes()))

    @property
    def both(self) -> list[tuple[Start, Start]]:
        """Return (start before, start after) of each changed consumer that both versions have."""
        pairs = ((pair.ran, pair.start, pair.gone) for pair in self.changed)
        return [(one, two) for one, two, gone in pairs if one is not None and not gone]

    def planned(self, copies: int = 2) -> GroupSnapshot:
        """Return the group before the change, with the later declarations as its next starts.

        A member whose client stays the same has the library version of the later files at once,
        because any plan's restarts bring that version.
        """
        laters = [None if one.gone else one.start for one in self.pairs if one.ran is not None]
        return snapshot_of(self.befores, laters, copies)

    @property
    def is_version_alone(self) -> bool:
        """Return whether only a library or product version changes, and no file names its group.

        Such a library may be a producer's, or be inherited by a project without a consumer.
        """
        return (
            self.group_id is None
            and all(one.same_client(two) for one, two in self.both)
            and {change.what for pair in self.pairs for change in pair.changes()}
            <= {"library", "product"}
        )


def worlds(before: Sequence[Start], after: Sequence[Start]) -> Iterator[GroupWorld]:
    """Yield each changed group, once for each Spring profile under which its change differs."""
    found: dict[tuple[Pair, ...], GroupWorld] = {}
    for profile in dict.fromkeys([None, *(start.declared.profile for start in (*before, *after))]):
        groups: dict[str | Pair, list[Pair]] = defaultdict(list)
        for pair in pairs_of(of_profile(before, profile), of_profile(after, profile)):
            # Consumers whose groups no file names may be of different ones.
            groups[pair.start.declared.group_id or pair].append(pair)
        for pairs in groups.values():
            start = pairs[0].start
            name = start.declared.group_id or f"the groups of {start.folder}"
            world = GroupWorld(
                group_id=start.declared.group_id,
                name=f"{name} (profile {profile})" if profile else name,
                pairs=tuple(pairs),
            )
            found.setdefault(world.changed, world)
    return (world for changed, world in found.items() if changed)


def of_profile(starts: Sequence[Start], profile: str | None) -> list[Start]:
    """Return the starts that apply while the profile `profile` is active (None: no profile).

    A start that the profile's file configures replaces those that the base file configures for the
    same group. If the base file has none for this group, the profile changes the group: then the
    first start of the same client in the base file is replaced.
    """
    own = [one for one in starts if one.declared.profile == profile]
    plain = [one for one in starts if one.declared.profile is None and profile is not None]
    replaced = set[Start]()
    for new in own if plain else ():
        base = [one for one in plain if one.configured and _base(one.file) == _base(new.file)]
        same = [one for one in base if one.declared.group_id == new.declared.group_id]
        others = [one for one in base if one.client == new.client and one not in replaced]
        replaced.update(same or others[:1])
    return [*own, *(one for one in plain if one not in replaced)]


def pairs_of(before: Sequence[Start], after: Sequence[Start]) -> tuple[Pair, ...]:
    """Return the starts of both versions in pairs, one for each consumer.

    Consumers of one group are matched by their keys (`_signs`), or because they are the only ones
    left in both versions. The consumers of a group that only the later version has are then matched
    by location or file name, because the group may have been renamed.
    """
    groups = {_group(one) for one in before}
    ran, come = ({(_group(one), one.client) for one in each} for each in (before, after))
    stay = ran & come
    pairs, gone, new = in_pairs(
        {one: _signs(one, stay, moves=True, new=False) for one in before},
        {one: _signs(one, stay, moves=_group(one) not in groups, new=True) for one in after},
        _SURE,
    )
    return (
        *(Pair(before=one, start=two) for one, two in pairs),
        *(Pair(before=one, start=one, gone=True) for one in gone),
        *(Pair(start=one) for one in new),
    )


def _signs(one: Start, stay: Collection[object], *, moves: bool, new: bool) -> list[Hashable]:
    """Return the keys by which a consumer is recognised in the other version, the surest first.

    A key that does not apply is None. `stay` has the (group, client) pairs that both versions have:
    a manifest may name several libraries, and one that stays is not matched with another one. With
    `moves` the consumer may be in another group in the other version. `new` is True for a start of
    the later version. A start of a new Spring profile may match the start without a profile. A
    moved folder usually keeps its own name, or the names of its files.
    """
    group, client, where = _group(one), one.client, one.declared.where
    own = one.declared.client_id, one.declared.instance_id
    swaps = one.configured or (group, client) not in stay
    last, both = ((*one.file.split("/")[-names:],) for names in (1, 2))
    rows = (
        (True, (group, where, *own, *aspects(one).values())),
        (one.library.product, (group, where, one.library.product)),
        (True, (group, where, client)),
        (swaps, (group, where)),
        (any(own), (group, *own)),
        (one.configured, (group, _base(one.file))),
        (not one.configured, (group, client)),
        (swaps, group),
        (moves, (where, client)),
        (moves, where),
        (
            moves and one.configured,
            (client, _base(one.file), new is (one.declared.profile is None)),
        ),
        *(
            (moves and group[0] is None, key)
            for key in ((both, client), both, (last, client), last)
        ),
    )
    return [key if holds else None for holds, key in rows]


def _group(one: Start) -> tuple[str | None, str]:
    """Return the key of the start's group: (group id, empty), or (None, folder) without an id."""
    return one.declared.group_id, "" if one.declared.group_id is not None else one.folder


@cache
def _base(file: str) -> str:
    """Return the file's path without profile and extension: `app` of `app-dev.yml`."""
    return re.sub(r"[-.][^/]*\Z", "", file)


def runnings(world: GroupWorld, pair: Pair) -> Iterator[tuple[Start, ...]]:
    """Yield the combinations of starts that may run when a member of this consumer starts.

    The other consumers may be before, in the middle of, or after their change, because services are
    rolled out in any order. Each combination begins with the consumer's own starts: before its
    change, or in the middle of it.
    """
    own, stages = _stages(pair), [_stages(one) for one in world.pairs if one is not pair]
    free = sum(len(each) > 1 for each in stages)
    together = zip(*(each if len(each) > 1 else each * 3 for each in stages), strict=True)
    for running in product(*stages) if free <= _FREE else together:
        yield from (mine + tuple(start for each in running for start in each) for mine in own[:2])


def _stages(pair: Pair) -> list[tuple[Start, ...]]:
    """Return the stages of a consumer's change, each with the starts that its processes run then.

    The stages are the earlier start, both starts beside each other, and the later one. A static
    member is one process, so it runs the earlier start in the middle stage too. A consumer that
    does not change has one stage.
    """
    one = () if pair.ran is None else (pair.ran,)
    two = () if pair.gone else (pair.start,)
    # A static member is one process: it is never in the middle.
    middle = one if any(start.declared.instance_id is not None for start in one) else one + two
    return [one, middle, two] if any(pair.changes()) else [one]
