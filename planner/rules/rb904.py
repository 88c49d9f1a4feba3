"""RB904: members were refused."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from rebal.groups.evidence_exact import when
from rebal.groups.model import Refusal, Tri
from rebal.planner.context import Context
from rebal.planner.plan import Finding, Severity
from rebal.planner.rules.ahead import narrowing_step
from rebal.planner.rules.registry import found, rule


@rule(
    "RB904",
    Severity.BLOCK,
    "A member was refused, and still would be",
    reference="Kafka protocol: INCONSISTENT_GROUP_PROTOCOL (23); KIP-429",
)
def refused(context: Context) -> Iterator[Finding]:
    """The request log shows joins that the coordinator refused with error 23.

    Why it matters: a refused Java or kafka-python consumer is dead after the first refusal;
    librdkafka and franz-go try again for ever while their process looks alive. The broker writes
    no other line about it, and describe does not show who is not in the group: somebody may be
    consuming nothing at all.

    How to find out: JOIN_GROUP lines with errorCode 23 in the request log; in the client's log
    "InconsistentGroupProtocolException" or "Inconsistent group protocol".

    How to fix it: find the member that has nothing in common with the refused list (RB102) and
    restart that one with both assignors; then start the refused one again.

    It does not fire where it is history: today's members would admit the refused list; or who was
    refused is in the group, having joined since. That is known of an instance id, and of a client
    id that one member alone has.
    """
    if not context.classic or not context.stable:
        return
    joins = defaultdict[tuple[str, str | None, tuple[str, ...]], list[Refusal]](list)
    for item in context.snapshot.refusals:
        joins[item.client_id, item.instance_id, item.list].append(item)
    for items in joins.values():
        item = max(items, key=lambda one: when(one.at))
        times = sum(one.times for one in items)
        answer = _still(context, item)
        if answer is Tri.NO or _is_back(context, item):
            continue
        causes = [
            facts
            for facts in context.members
            if item.list and all(context.supports(facts, name) is Tri.NO for name in item.list)
        ]
        verb = "supports" if len(causes) == 1 else "support"
        blame = f"; {context.named(causes)} {verb} none of it" if causes else ""
        count = "once" if times == 1 else f"{times} times"
        still = "and would be refused again" if answer is Tri.YES else "and may be refused again"
        who = item.instance_id or item.client_id or "a member"
        shown = f"[{', '.join(item.list)}]" if item.list else "a list that is not known"
        yield found(
            f"{who} was refused {count} with {shown} {still}{blame}.",
            result=answer,
            members=causes,
            evidence=(item.evidence,),
            fix=f"Start {who} again only with a list that holds {context.elected}.",
            before_step=narrowing_step(context),
        )


def _is_back(context: Context, item: Refusal) -> bool:
    """Has who was refused joined since?"""
    members = [facts.member for facts in context.members]
    if item.instance_id:
        same = [member for member in members if member.instance_id == item.instance_id]
    else:
        same = [member for member in members if member.client_id == item.client_id != ""]
    if len(same) != 1 or item.at is None:
        return False
    return same[0].joined_at is not None and same[0].joined_at > item.at


def _still(context: Context, item: Refusal) -> Tri:
    """Would today's members refuse this list?"""
    if not item.list:
        return Tri.CANNOT_TELL
    answers = [{context.supports(facts, name) for facts in context.members} for name in item.list]
    if any(answer == {Tri.YES} for answer in answers):
        return Tri.NO
    return Tri.YES if all(Tri.NO in answer for answer in answers) else Tri.CANNOT_TELL
