"""The differences between two snapshots of a group: the group, its members, topics and cluster.

Only facts that both snapshots show are compared. An assignor list that one snapshot does not know
is not a difference. Outside Stable, a coordinator shows neither subscriptions nor owned partitions.
Lag is not compared.
"""

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Final

from rebal.groups.compact import Partitions
from rebal.groups.model import (
    GroupSnapshot,
    GroupState,
    GroupType,
    Knowledge,
    Member,
    Record,
    Timeouts,
    TopicPartitions,
    Tri,
)
from rebal.groups.protocol import group_protocol, member_protocol
from rebal.planner.facts import identity_keys, in_pairs, names, natural
from rebal.planner.plan import PathKind, Plan

_CHANGES: Final = {
    "partitions": "topic {subject} had {before} partitions and has {after} now: the plan's steps "
    "stay valid, its costs do not",
    "version": "the brokers ran {before} and run {after} now",
    **{
        key: f"the brokers' {key} was {{before}} and is {{after}} now"
        for key in (
            "group.max.size",
            "group.consumer.max.size",
            "group.min.session.timeout.ms",
            "group.max.session.timeout.ms",
            "group.consumer.migration.policy",
        )
    },
}


class Changed(Record, frozen=True, kw_only=True, omit_defaults=False):
    """One fact that differs between two snapshots, with its value in each.

    A value is None if that snapshot does not have the fact. `what` names the fact. If it is a
    topic's number of partitions, `subject` is the topic, else None.
    """

    what: str
    subject: str | None = None
    before: str | None = None
    after: str | None = None


class MemberEvent(StrEnum):
    """The way in which a member differs between two snapshots.

    came: only in the second snapshot; left: only in the first; restarted: it has a new member id;
    changed: it has the same member id and other facts.
    """

    CAME = "came"
    LEFT = "left"
    RESTARTED = "restarted"
    CHANGED = "changed"


class MemberChange(Record, frozen=True, kw_only=True, omit_defaults=False):
    """One member that differs between two snapshots.

    `was` and `now` are its member ids in the first and the second snapshot. For a member that came
    or left, `changes` holds all that is known of it.
    """

    name: str
    event: MemberEvent
    was: str | None = None
    now: str | None = None
    changes: tuple[Changed, ...] = ()


class Difference(Record, frozen=True, kw_only=True, omit_defaults=False):
    """All differences between two snapshots of a group.

    `unchanged` counts the members that are the same in both. `not_compared` counts the members in
    both whose assignor list one snapshot does not know exactly.
    """

    group: tuple[Changed, ...] = ()
    members: tuple[MemberChange, ...] = ()
    environment: tuple[Changed, ...] = ()
    unchanged: int = 0
    not_compared: int = 0

    @property
    def found(self) -> bool:
        """Return whether anything differs."""
        return bool(self.group or self.members or self.environment)


def difference(before: GroupSnapshot, after: GroupSnapshot) -> Difference:
    """Return all differences between two snapshots of a group."""
    here, there = ({one.member_id: one for one in each.members} for each in (before, after))
    paired, left, came = in_pairs(_keys(before.members), _keys(after.members))
    pairs = [(here[was], there[now]) for was, now in paired]
    labels = {**names(before.members), **names(after.members)}
    found = [
        *_alone([here[one] for one in left], MemberEvent.LEFT, labels),
        *_alone([there[one] for one in came], MemberEvent.CAME, labels),
    ]
    for was, now in pairs:
        # Where one list is not known: one look may have had a probe and the other none.
        lists = () if _both_exact(was, now) else (was.assignors, now.assignors)
        asked = sorted({name for one in lists for name in (*one.list, *one.at_least)})
        facts = tuple(
            _compared(_member_facts(was, before, asked), _member_facts(now, after, asked))
        )
        same = was.member_id == now.member_id
        if facts or not same:
            found.append(
                MemberChange(
                    name=labels[now.member_id],
                    event=MemberEvent.CHANGED if same else MemberEvent.RESTARTED,
                    was=was.member_id,
                    now=now.member_id,
                    changes=facts,
                )
            )
    rejected = (
        f"{refusal.instance_id or refusal.client_id} {_list(refusal.list)}"
        for refusal in after.refusals
        if refusal.at is not None and refusal.at > before.captured_at
    )
    return Difference(
        group=(
            *_compared(_group_facts(before), _group_facts(after)),
            *(Changed(what="rejected since", after=who) for who in dict.fromkeys(rejected)),
        ),
        members=tuple(
            sorted(found, key=lambda one: (list(MemberEvent).index(one.event), natural(one.name)))
        ),
        environment=tuple(environment(before, after)),
        unchanged=len(pairs) - sum(one.was is not None and one.now is not None for one in found),
        not_compared=sum(not _both_exact(was, now) for was, now in pairs),
    )


def environment(was: GroupSnapshot, now: GroupSnapshot) -> Iterator[Changed]:
    """Yield the differences in topics, broker version and broker settings.

    A setting or version that one snapshot does not know is left out.
    """
    sizes = [{topic.name: topic.partitions for topic in one.topics} for one in (was, now)]
    for name in dict.fromkeys((*sizes[1], *sizes[0])):
        before, after = (one.get(name) for one in sizes)
        if before != after:
            yield Changed(what="partitions", subject=name, before=_text(before), after=_text(after))
    yield from _compared(
        *({"version": o.cluster.version, **o.cluster.settings} for o in (was, now))
    )


class Change(Record, frozen=True, kw_only=True, omit_defaults=False):
    """One fact that has changed since a plan was made.

    `outdates` is True if no assignor list of the plan fits the group any more because of the
    change.
    """

    what: str
    text: str
    outdates: bool = False


def changes_since(plan: Plan, now: GroupSnapshot, elected: str | None) -> tuple[Change, ...]:
    """Return the facts that have changed since the plan was made.

    A change of the elected assignor that outdates the plan's lists comes first. `elected` is the
    assignor elected now.
    """
    found = [*filter(None, [elected_since(plan, elected)])]
    for one in environment(plan.baseline, now):
        said = _CHANGES.get(one.what)
        # A topic that came or went says nothing of the plan.
        if said and (one.what != "partitions" or (one.before and one.after)):
            found.append(
                Change(
                    what=one.what,
                    text=said.format(subject=one.subject, before=one.before, after=one.after),
                )
            )
    return tuple(found)


def elected_since(plan: Plan, elected: str | None) -> Change | None:
    """Return the change of the elected assignor since the plan was made, if it affects the plan.

    It affects the plan if some assignor list of the plan lacks the assignor `elected` now. Return
    None if the elected assignor is unchanged or not known, if the plan's own steps make the group
    elect it, or if the plan is a cut-over, whose Empty group admits any list.
    """
    was = plan.baseline.group.assignor
    lists = list(dict.fromkeys(step.target_list for step in plan.steps if step.target_list))
    lacking = [names for names in lists if elected not in names]
    if (
        None in (was, elected)
        or not lacking
        # A cut-over leaves the group Empty, which admits any list.
        or plan.path is PathKind.CUT_OVER
        # A step elects what it prefers: that is the plan's own doing.
        or elected in {was, plan.target, *(names[0] for names in lists)}
    ):
        return None
    shown = " and ".join(f"[{', '.join(names)}]" for names in lacking)
    return Change(
        what="assignor",
        text=f"the elected assignor was {was} when the plan was made and is {elected} now: the "
        f"plan's {shown} {'does' if len(lacking) == 1 else 'do'} not hold it, so a member that "
        "joins with it can be rejected",
        outdates=lacking == lists,
    )


# What one snapshot shows, by name: None is not known, and empty that there is none.
_Facts = Mapping[str, object]


def _group_facts(snapshot: GroupSnapshot) -> _Facts:
    group, held = snapshot.group, snapshot.group.coordinator
    shown = _shows_owned(snapshot)
    return {
        "group": group.group_id,
        "cluster": snapshot.cluster.cluster_id or None,
        "state": group.state,
        "type": group.type,
        "protocol type": group.protocol_type or None,
        "assignor": (group.assignor or "") if shown else None,
        "protocol": _certain(group_protocol(snapshot).value) if shown else None,
        "generation": group.generation,
        "group epoch": group.group_epoch,
        "coordinator": f"broker {held.broker_id}" if held else None,
        "coordinator's leader epoch": held.leader_epoch if held else None,
        "rebalanced since the coordinator's load": _certain(held.rebalanced_since_load)
        if held
        else None,
        **{
            f"probe: every list holds {one.assignor}": _certain(one.supported)
            for one in snapshot.probe_answers
        },
    }


def _member_facts(member: Member, snapshot: GroupSnapshot, names: Iterable[str]) -> _Facts:
    """Return name → value of the facts that the snapshot shows of one member.

    The value of a fact that is not known is None. `names` are assignors: for each of them, one fact
    says whether the member's list holds it.
    """
    software, known = member.software, member.assignors
    declared, timeouts = member.declared, member.timeouts or Timeouts()
    shown = _shows_owned(snapshot)
    return {
        "client id": member.client_id,
        "instance id": member.instance_id or "",
        "host": member.host.lstrip("/"),
        "client": (software and software.family) or None,
        "version": (software and software.version) or None,
        "assignor list": _list(known.list) if known.knowledge is Knowledge.EXACT else None,
        **{f"list holds {name}": _certain(known.holds(name)) for name in names},
        "next start": _list(declared.list) if declared is not None else None,
        "protocol": _certain(member_protocol(member, snapshot).value),
        "session timeout ms": timeouts.session_ms,
        "rebalance timeout ms": timeouts.rebalance_ms,
        "subscription": ", ".join(sorted(member.subscribed_topics)) if shown else None,
        "rack": (member.rack or "") if shown else None,
        "owned partitions": _owned(member.assignment) if shown else None,
    }


def _compared(was: _Facts, now: _Facts) -> Iterator[Changed]:
    """Yield each fact that both snapshots show with different values."""
    for what, after in now.items():
        before = was.get(what)
        if before != after and before is not None and after is not None:
            yield Changed(what=what, before=_text(before), after=_text(after))


def _text(value: object) -> str | None:
    return None if value in (None, "") else str(value)


def _certain(value: StrEnum) -> str | None:
    return None if value == Tri.CANNOT_TELL else value


def _alone(
    members: Iterable[Member], event: MemberEvent, labels: Mapping[str, str]
) -> Iterator[MemberChange]:
    """Yield a change for each of `members`, which only one snapshot has, with its known facts.

    `event` is `came` or `left` for all of them; `labels` is member id → name for texts.
    """
    came = event is MemberEvent.CAME
    for member in members:
        software, known = member.software, member.assignors
        facts = {
            "host": member.host.lstrip("/"),
            "client": f"{software.family or ''} {software.version or ''}".strip()
            if software
            else "",
            "assignor list": _list(known.list) if known.knowledge is Knowledge.EXACT else "",
            "owned partitions": _owned(member.assignment),
        }
        yield MemberChange(
            name=labels[member.member_id],
            event=event,
            was=None if came else member.member_id,
            now=member.member_id if came else None,
            changes=tuple(
                Changed(what=what, after=value) if came else Changed(what=what, before=value)
                for what, value in facts.items()
                if value
            ),
        )


def _keys(members: Iterable[Member]) -> dict[str, list[Hashable]]:
    """Return member id → the keys that identify the member in another snapshot.

    They are the member id, the instance id, the client id with the host, the client id, and the
    host, the most reliable first. A restarted member has a new member id, so the later keys
    identify it.
    """
    return {
        member.member_id: [
            member.member_id,
            *(key if key is not None and all(key) else None for key in identity_keys(member)),
        ]
        for member in members
    }


def _both_exact(was: Member, now: Member) -> bool:
    return was.assignors.knowledge is now.assignors.knowledge is Knowledge.EXACT


def _shows_owned(snapshot: GroupSnapshot) -> bool:
    return snapshot.group.state is GroupState.STABLE or snapshot.group.type is GroupType.CONSUMER


def _list(assignors: Sequence[str]) -> str:
    return f"[{', '.join(assignors)}]"


def _owned(owned: TopicPartitions) -> str:
    return "; ".join(f"{topic} {Partitions(sorted(owned[topic]))}" for topic in sorted(owned))
