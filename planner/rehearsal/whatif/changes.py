"""Changes of a what-if: members, partitions and topics that are added or removed.

`steps` turns `Changes` into what the group goes through one after the other, each of which makes it
rebalance.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from rebal.groups.assignors import Spec, SpecMember
from rebal.groups.errors import RebalError
from rebal.groups.model import GroupSnapshot, Member, Record
from rebal.planner.context import names
from rebal.planner.rehearsal.spec import wanted


class WhatIfError(RebalError):
    """A change that this group cannot undergo; says why and what to type instead."""


class Changes(Record, frozen=True, kw_only=True):
    """Changes of the group besides the assignor.

    Members are named by member id, instance id, client id or short name; `add_member_topics` are
    what added members subscribe to (empty: what most members do). `add_partitions` are how many
    more by topic, `add_topics` how many by new topic. `racks` are by member; the key `new` stands
    for all added ones.
    """

    add_members: int = 0
    add_member_topics: tuple[str, ...] = ()
    remove_members: tuple[str, ...] = ()
    restart_members: tuple[str, ...] = ()
    add_partitions: Mapping[str, int] = {}
    add_topics: Mapping[str, int] = {}
    racks: Mapping[str, str] = {}


class ChangeStep(NamedTuple):
    """One thing that makes the group rebalance: what it is, and the group after it.

    `renamed` maps the new member id of a member that came back to the one it had in the snapshot.
    """

    why: str
    apply: Callable[[Spec], Spec]
    renamed: Mapping[str, str] = {}


class Course(NamedTuple):
    """The group before anything happens, what happens, short names of added members, and notes."""

    start: Spec
    steps: tuple[ChangeStep, ...]
    added: Mapping[str, str]
    notes: tuple[str, ...]


def course(snapshot: GroupSnapshot, spec: Spec, changes: Changes) -> Course:
    """Return the steps of `changes`, in the order: topics, restarts one by one, leave, join.

    Raises:
        WhatIfError: a member or topic that is not there, or nobody would be left.
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
    known = wanted(member.topics for member in spec.members)
    everybody = [name for name in changes.add_topics if name not in known]
    if changes.add_partitions or changes.add_topics:
        steps.append(_topics_step(spec, changes, everybody, notes))
    removed = tuple(dict.fromkeys(map(find, changes.remove_members)))
    for name in changes.restart_members:
        member_id = find(name)
        if member_id in removed:
            raise WhatIfError(f"{name} cannot both be removed and restarted.")
        label = find.labels[member_id]
        if by_id[member_id].instance_id:
            notes.append(
                f"{label} is static: when it is back within its session timeout, its restart makes "
                "nobody rebalance and moves nothing"
            )
            continue
        back = f"{member_id}-back"
        started = _back(by_id[member_id], back, everybody)
        steps += [
            ChangeStep(f"{label} stops", _without(member_id)),
            ChangeStep(f"{label} is back", started, {back: member_id}),
        ]
        notes.append(
            f"{label} rejoins with a made-up member id: where ties are broken by member id, "
            "other, equally good partitions may move"
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
        steps.append(_join_step(spec, changes, added, everybody, notes))
    if changes.add_member_topics and not added:
        raise WhatIfError("--topics says what added members subscribe to: add --add-member N.")
    return Course(spec, tuple(steps) or (ChangeStep("", lambda spec: spec),), added, tuple(notes))


class Finder:
    """Members by whatever a person calls them."""

    def __init__(self, snapshot: GroupSnapshot) -> None:
        self.labels, self._members = names(snapshot.members), snapshot.members

    def __call__(self, text: str) -> str:
        """Return the one member that is called so.

        Raises:
            WhatIfError: none is, or several are.
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
) -> ChangeStep:
    # The first among equals.
    ((usual, _),) = Counter(member.topics for member in spec.members).most_common(1)
    topics = changes.add_member_topics or (*usual, *everybody)
    for name in topics:
        if name not in spec.partitions and name not in changes.add_topics:
            raise WhatIfError(
                f"--topics {name}: the snapshot has no such topic; there are "
                f"{_listed(sorted(spec.partitions))}."
            )
    if not changes.add_member_topics and len({m.topics for m in spec.members}) > 1:
        notes.append(f"added members subscribe to what most members do: {_listed(topics)}")
    rack = changes.racks.get("new")
    fresh = tuple(SpecMember(member_id=new, topics=topics, rack=rack) for new in added)
    why = f"{_listed([*added.values()])} {'joins' if len(added) == 1 else 'join'}"
    return ChangeStep(why, lambda before: replace(before, members=(*before.members, *fresh)))
