"""The difference between two snapshots of a group: the group, its members, topics and cluster.

Only what both snapshots show is compared: a list that one of them does not know is no difference,
and outside Stable a coordinator shows neither subscriptions nor owned partitions. Lag is left out.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Final

from rebal.groups.compact import Partitions
from rebal.groups.model import (
    GroupSnapshot,
    GroupState,
    GroupType,
    Knowledge,
    Member,
    RebalanceProtocol,
    Record,
    TopicPartitions,
    Tri,
)
from rebal.groups.protocol import group_protocol, member_protocol
from rebal.planner.facts import KEYS, identity_keys, names, natural
from rebal.planner.kinds import PathKind
from rebal.planner.plan import Plan

_ORDER: Final = ("came", "left", "restarted", "changed")
_LIMITS: Final = (
    "group.max.size",
    "group.consumer.max.size",
    "group.min.session.timeout.ms",
    "group.max.session.timeout.ms",
    "group.consumer.migration.policy",
)
_CHANGES: Final = {
    "partitions": "topic {subject} had {before} partitions and has {after} now: the plan's steps "
    "stay valid, its costs do not",
    "version": "the brokers ran {before} and run {after} now",
    **{key: f"the brokers' {key} was {{before}} and is {{after}} now" for key in _LIMITS},
}


class Changed(Record, frozen=True, kw_only=True, omit_defaults=False):
    """One fact that differs; `before` or `after` is None where it was not there.

    `subject` is the topic, for a number of partitions, and None otherwise.
    """

    what: str
    subject: str | None = None
    before: str | None = None
    after: str | None = None


class MemberEvent(StrEnum):
    """came and left: in one snapshot only; restarted: a new member id; changed: the same one."""

    CAME = "came"
    LEFT = "left"
    RESTARTED = "restarted"
    CHANGED = "changed"


class MemberChange(Record, frozen=True, kw_only=True, omit_defaults=False):
    """One member that differs; `was` and `now` are its member ids.

    Of a member that came or left, `changes` holds what is known of it.
    """

    name: str
    event: MemberEvent
    was: str | None = None
    now: str | None = None
    changes: tuple[Changed, ...] = ()


class Difference(Record, frozen=True, kw_only=True, omit_defaults=False):
    """Everything that differs between two snapshots of a group.

    `unchanged` counts the members that are the same in both, `not_compared` those in both of which
    one snapshot does not know the assignor list.
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
    """Return what differs between two snapshots of a group."""
    pairs, left, came = _paired(before.members, after.members)
    labels = {**names(before.members), **names(after.members)}
    found = [
        *_alone(left, MemberEvent.LEFT, labels),
        *_alone(came, MemberEvent.CAME, labels),
    ]
    shown = _shows_owned(before) and _shows_owned(after)
    for was, now in pairs:
        facts = tuple(_member_facts(was, now, before, after, shown=shown))
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
    return Difference(
        group=tuple(_group_facts(before, after)),
        members=tuple(sorted(found, key=lambda one: (_ORDER.index(one.event), natural(one.name)))),
        environment=tuple(environment(before, after)),
        unchanged=len(pairs) - sum(one.was is not None and one.now is not None for one in found),
        not_compared=sum(not _both_exact(was, now) for was, now in pairs),
    )


def environment(was: GroupSnapshot, now: GroupSnapshot) -> Iterator[Changed]:
    """Yield the topics, the broker version and the broker settings that differ.

    A setting or version that one snapshot does not know is left out.
    """
    counted = {topic.name: topic.partitions for topic in was.topics}
    for topic in now.topics:
        before = counted.pop(topic.name, None)
        yield from _differs("partitions", before, topic.partitions, subject=topic.name)
    for name, number in counted.items():
        yield Changed(what="partitions", subject=name, before=str(number))
    if was.cluster.version and now.cluster.version:
        yield from _differs("version", was.cluster.version, now.cluster.version)
    for key, old in was.cluster.settings.items():
        if key in now.cluster.settings:
            yield from _differs(key, old, now.cluster.settings[key])


class Change(Record, frozen=True, kw_only=True, omit_defaults=False):
    """One fact of a plan's baseline that has changed; `outdates`: the plan's lists no longer fit
    the group.
    """

    what: str
    text: str
    outdates: bool = False


def changes_since(plan: Plan, now: GroupSnapshot, elected: str | None) -> tuple[Change, ...]:
    """Return what has changed since the plan was made; what outdates the plan comes first."""
    other = elected_since(plan, elected)
    found = [other] if other is not None else []
    for one in environment(plan.baseline, now):
        said = _CHANGES.get(one.what)
        # A topic that came or went says nothing of the plan.
        if said and (one.what != "partitions" or (one.before and one.after)):
            text = said.format(subject=one.subject, before=one.before, after=one.after)
            found.append(Change(what=one.what, text=text))
    return tuple(found)


def elected_since(plan: Plan, elected: str | None) -> Change | None:
    """Return the change where another assignor is elected than when the plan was made, and a list
    of the plan does not hold it; else None.
    """
    was = plan.baseline.group.assignor
    lists = list(dict.fromkeys(step.target_list for step in plan.steps if step.target_list))
    # A cut-over leaves the group Empty, which admits any list.
    if None in (was, elected) or not lists or plan.path is PathKind.CUT_OVER:
        return None
    # A step elects what it prefers: that is the plan's own doing.
    if elected in {was, plan.target, *(names[0] for names in lists)}:
        return None
    lacking = [names for names in lists if elected not in names]
    shown = " and ".join(f"[{', '.join(names)}]" for names in lacking)
    return Change(
        what="assignor",
        text=f"the elected assignor was {was} when the plan was made and is {elected} now: the "
        f"plan's {shown} {'does' if len(lacking) == 1 else 'do'} not hold it, so a member that "
        "joins with it can be rejected",
        outdates=lacking == lists,
    )


def _group_facts(before: GroupSnapshot, after: GroupSnapshot) -> Iterator[Changed]:
    was, now = before.group, after.group
    yield from _differs("group", was.group_id, now.group_id)
    yield from _differs("cluster", before.cluster.cluster_id, after.cluster.cluster_id, known=True)
    yield from _differs("state", was.state, now.state)
    yield from _differs("type", was.type, now.type)
    yield from _differs("protocol type", was.protocol_type, now.protocol_type, known=True)
    if _shows_owned(before) and _shows_owned(after):
        yield from _differs("assignor", was.assignor, now.assignor)
        runs = group_protocol(before).value, group_protocol(after).value
        if RebalanceProtocol.CANNOT_TELL not in runs:
            yield from _differs("protocol", *runs)
    yield from _differs("generation", was.generation, now.generation, known=True)
    yield from _differs("group epoch", was.group_epoch, now.group_epoch, known=True)
    if was.coordinator is not None and now.coordinator is not None:
        here, there = was.coordinator.broker_id, now.coordinator.broker_id
        yield from _differs("coordinator", f"broker {here}", f"broker {there}")
        epochs = was.coordinator.leader_epoch, now.coordinator.leader_epoch
        yield from _differs("coordinator's leader epoch", *epochs, known=True)
        loads = was.coordinator.rebalanced_since_load, now.coordinator.rebalanced_since_load
        if Tri.CANNOT_TELL not in loads:
            yield from _differs("rebalanced since the coordinator's load", *loads)
    yield from _of_the_coordinator(before, after)


def _of_the_coordinator(before: GroupSnapshot, after: GroupSnapshot) -> Iterator[Changed]:
    """Yield what the coordinator answers otherwise, and whom it has rejected since."""
    answers = {one.assignor: one.supported for one in before.probe_answers}
    for one in after.probe_answers:
        both = answers.get(one.assignor, Tri.CANNOT_TELL), one.supported
        if Tri.CANNOT_TELL not in both:
            yield from _differs(f"probe: every list holds {one.assignor}", *both)
    for who in dict.fromkeys(
        f"{refusal.instance_id or refusal.client_id} {_list(refusal.list)}"
        for refusal in after.refusals
        if refusal.at is not None and refusal.at > before.captured_at
    ):
        yield Changed(what="rejected since", after=who)


def _member_facts(
    was: Member, now: Member, before: GroupSnapshot, after: GroupSnapshot, *, shown: bool
) -> Iterator[Changed]:
    """Yield what differs of one member; `shown`: both snapshots show what it owns."""
    yield from _differs("client id", was.client_id, now.client_id)
    yield from _differs("instance id", was.instance_id, now.instance_id)
    yield from _differs("host", was.host.lstrip("/"), now.host.lstrip("/"))
    if was.software is not None and now.software is not None:
        yield from _differs("client", was.software.family, now.software.family, known=True)
        yield from _differs("version", was.software.version, now.software.version, known=True)
    if _both_exact(was, now):
        yield from _differs("assignor list", _list(was.assignors.list), _list(now.assignors.list))
    else:
        # Where one look had a probe and the other had none, only what both show is compared.
        known = (was.assignors, now.assignors)
        for name in sorted({name for one in known for name in (*one.list, *one.at_least)}):
            both = [one.holds(name) for one in known]
            if Tri.CANNOT_TELL not in both:
                yield from _differs(f"list holds {name}", *both)
    if was.declared is not None and now.declared is not None:
        yield from _differs("next start", _list(was.declared.list), _list(now.declared.list))
    runs = member_protocol(was, before).value, member_protocol(now, after).value
    if RebalanceProtocol.CANNOT_TELL not in runs:
        yield from _differs("protocol", *runs)
    if was.timeouts is not None and now.timeouts is not None:
        for what in ("session_ms", "rebalance_ms"):
            old, new = getattr(was.timeouts, what), getattr(now.timeouts, what)
            yield from _differs(what.replace("_ms", " timeout ms"), old, new, known=True)
    if shown:
        topics = (", ".join(sorted(one.subscribed_topics)) for one in (was, now))
        yield from _differs("subscription", *topics)
        yield from _differs("rack", was.rack, now.rack)
        yield from _differs("owned partitions", _owned(was.assignment), _owned(now.assignment))


def _differs(
    what: str,
    before: object,
    after: object,
    *,
    subject: str | None = None,
    known: bool = False,
) -> Iterator[Changed]:
    """Yield the change where both values differ; `known`: both must be known."""
    if before == after or (known and (before in (None, "") or after in (None, ""))):
        return
    texts = (None if value in (None, "") else str(value) for value in (before, after))
    yield Changed(what=what, subject=subject, **dict(zip(("before", "after"), texts, strict=True)))


def _alone(
    members: Iterable[Member], event: MemberEvent, labels: Mapping[str, str]
) -> Iterator[MemberChange]:
    """Yield the members of one side, with what is known of each."""
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


def _paired(
    before: Sequence[Member], after: Sequence[Member]
) -> tuple[list[tuple[Member, Member]], list[Member], list[Member]]:
    """Return the members of both sides in pairs, and those of one side only.

    A restarted member has a new id. It is recognised by instance id, then by client id and host,
    then by either alone, each only where one member of each side has it.
    """
    here = {member.member_id: member for member in after}
    pairs = [(was, here.pop(was.member_id)) for was in before if was.member_id in here]
    kept = {was.member_id for was, _ in pairs}
    left, came = [was for was in before if was.member_id not in kept], list(here.values())
    for key in range(KEYS):
        by_key = [_by_key(members, key) for members in (left, came)]
        both = by_key[0].keys() & by_key[1].keys()
        sure = [each for each in both if len(by_key[0][each]) == len(by_key[1][each]) == 1]
        found = [(by_key[0][each][0], by_key[1][each][0]) for each in sure]
        pairs += found
        done = {member.member_id for pair in found for member in pair}
        left = [member for member in left if member.member_id not in done]
        came = [member for member in came if member.member_id not in done]
    return pairs, left, came


def _by_key(members: Iterable[Member], key: int) -> dict[tuple[str, ...], list[Member]]:
    found: dict[tuple[str, ...], list[Member]] = defaultdict(list)
    for member in members:
        value = identity_keys(member)[key]
        if value is not None and all(value):
            found[value].append(member)
    return found


def _both_exact(was: Member, now: Member) -> bool:
    return was.assignors.knowledge is now.assignors.knowledge is Knowledge.EXACT


def _shows_owned(snapshot: GroupSnapshot) -> bool:
    return snapshot.group.state is GroupState.STABLE or snapshot.group.type is GroupType.CONSUMER


def _list(assignors: Sequence[str]) -> str:
    return f"[{', '.join(assignors)}]"


def _owned(owned: TopicPartitions) -> str:
    return "; ".join(f"{topic} {Partitions(sorted(owned[topic]))}" for topic in sorted(owned))
