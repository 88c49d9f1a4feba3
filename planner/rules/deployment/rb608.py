"""RB608: two processes fence each other."""

from collections.abc import Iterator
from datetime import timedelta
from itertools import groupby
from typing import Final, NamedTuple

from rebal.groups.evidence.exact import when
from rebal.groups.model import Refusal
from rebal.planner.context import Facts
from rebal.planner.rules.registry import Context, Findings, Severity, Trait, found, rule

# A supervisor starts a process again after five minutes at most (Kubernetes' back-off).
_LASTS: Final = timedelta(minutes=10)


class Fenced(NamedTuple):
    """One instance id: the member that has it, the processes that lost it, the oldest first."""

    holder: Facts
    lost: tuple[Refusal, ...]
    again: bool

    @property
    def text(self) -> str:
        """Return who was fenced by whom, with both addresses."""
        last, member = self.lost[-1], self.holder.member
        at = "" if last.at is None else f" at {last.at:%H:%M:%SZ}"
        times = f", {len(self.lost)} times in all" if len(self.lost) > 1 else ""
        same = last.host.lstrip("/") == member.host.lstrip("/")
        port = f" (connection {last.connection})" if same and last.connection else ""
        where = f" at {last.host.lstrip('/')}{port}" if last.host else " (its own log)"
        return (
            f"{last.client_id}{where} was fenced{at}{times} by {member.client_id} at "
            f"{member.host.lstrip('/')}, which has the instance id {member.instance_id} now"
        )


def fenced(context: Context) -> Iterator[Fenced]:
    """Yield each instance id that a process lost to another one (FENCED_INSTANCE_ID).

    `again`: it was lost twice within ten minutes, the last time not longer ago.
    """
    holders = {facts.member.instance_id: facts for facts in context.members if facts.static}
    every = [one for one in context.snapshot.refusals if one.error == "FENCED_INSTANCE_ID"]
    every.sort(key=lambda one: (one.instance_id or "", when(one.at)))
    for instance, group in groupby(every, key=lambda one: one.instance_id):
        if instance in holders:
            lost = tuple(group)
            recent = [
                one
                for one in lost
                if one.at is not None and context.snapshot.captured_at - one.at <= _LASTS
            ]
            yield Fenced(holders[instance], lost, len(recent) > 1)


@rule(
    "RB608",
    Severity.BLOCK,
    "Two processes with one instance id fence each other",
    reference="KIP-345; Kafka protocol: FENCED_INSTANCE_ID (82)",
    traits={Trait.EVERY_LOOK},
)
def twice(context: Context) -> Findings:
    """Two processes run with one group.instance.id, and each takes the place of the other.

    Why it matters: the one that joins last fences the other, which stops; its supervisor starts it
    again, and it fences the first. One of them may never get the list of a step: it joins with its
    old list in the middle of the next bounce.

    How to find out: FENCED_INSTANCE_ID (errorCode 82) in heartbeats and commits of the request log,
    or "fenced" in the members' own logs.

    How to fix it: give each process a group.instance.id of its own, such as the name of its pod in
    a StatefulSet. The finding ends ten minutes after the last time.
    """
    for one in fenced(context):
        if one.again:
            yield found(
                f"{one.text}: two processes have one instance id.",
                members=[one.holder],
                evidence=[each.evidence for each in one.lost[-2:]],
                fix="Give each of the two processes a group.instance.id of its own.",
            )
