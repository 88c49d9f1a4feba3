"""RB904: clients were rejected."""

from datetime import timedelta
from typing import Final

from rebal.groups.model import GroupType, Refusal
from rebal.planner.admission.memory import INCONSISTENT
from rebal.planner.admission.rejected import if_renamed, label, rejected_again, still_out
from rebal.planner.advice.steps import start_fix
from rebal.planner.rules.registry import Context, Findings, Severity, Trait, Tri, found, rule
from rebal.planner.rules.scope import narrowing_step, stable
from rebal.planner.timeouts import MOST_SESSION, known_session, longest_session
from rebal.planner.verdict import opposite

_OTHER_GROUP: Final = "Give that client a group id of its own."
_LEFT_BEHIND: Final = (
    "Set group.protocol=consumer for that client if it belongs to the service, else give it a "
    "group id of its own."
)


@rule(
    "RB904",
    Severity.BLOCK,
    "A client was rejected, and would be rejected again",
    reference="Kafka protocol: INCONSISTENT_GROUP_PROTOCOL (23); KIP-429",
    applies=(stable,),
    traits={Trait.HISTORY},
)
def rejected(context: Context) -> Findings:
    """A log shows joins that the coordinator rejected for good (errors 23, 26, 81, 82).

    Why it matters: a rejected Java or kafka-python consumer stops after the first rejection.
    librdkafka and franz-go retry without end while their process looks alive. The broker logs
    nothing else about it, and describe does not show who is not in the group: a member may be
    consuming nothing.

    How to find out: JOIN_GROUP lines with errorCode 23 in the request log; in the client's log
    "InconsistentGroupProtocolException" or "Inconsistent group protocol".

    How to fix it: find the member that has nothing in common with the rejected list (RB102) and
    restart that one with both assignors; then start the rejected client again.

    It does not fire where today's members would admit the rejected list, nor where that very client
    (its instance id; else its client id and address) has joined since, nor where the group has all
    members that you counted (`--expect-members`) and no stopped member's entry can be one of them.
    """
    for item in still_out(context.snapshot):
        if _has_its_place(context, item):
            continue
        stranger = context.is_stranger(item.list)
        again = rejected_again(context.memory, item, stranger=stranger)
        answer = opposite(again.verdict) if item.error == INCONSISTENT else Tri.CANNOT_TELL
        if answer is Tri.NO:
            continue
        causes = [facts for facts in context.members if facts.member.member_id in again.blame]
        blame = ""
        if causes and answer is Tri.YES:
            verb = "supports" if len(causes) == 1 else "support"
            blame = f"; {context.named(causes)} {verb} none of it"
        count = "once" if item.times == 1 else f"{item.times} times"
        still = "and would be rejected again" if answer is Tri.YES else "and may be rejected again"
        who = label(item)
        apart = stranger or not context.classic
        migrates = (
            context.group.type is GroupType.CONSUMER and item.error == INCONSISTENT and not stranger
        )
        shown = f"[{', '.join(item.list)}]" if item.list else "an unknown list"
        yield found(
            f"{who} was rejected {count} ({item.error}) with {shown} {still}{blame}"
            f"{_stranger(context)}.",
            result=answer,
            members=causes if answer is Tri.YES else (),
            evidence=(item.evidence,),
            fix=(_LEFT_BEHIND if migrates else _OTHER_GROUP if apart else start_fix(context, [who]))
            + if_renamed(item.instance_id),
            before_step=narrowing_step(context) if context.classic else None,
            urgent=True,
        )


def _has_its_place(context: Context, one: Refusal) -> bool:
    """Return whether the group is complete by the user's count, and the rejection older than the
    session of any member that may have stopped.

    A rebalance begins a stopped static member's session anew (KIP-345): none may be as old.
    """
    if not context.counted or context.missing or one.at is None:
        return False
    members = context.snapshot.members
    known = None not in map(known_session, members)
    session = longest_session(members) if known else MOST_SESSION
    clocks = timedelta(seconds=5) if context.snapshot.clock_compared else timedelta(days=1)
    age = context.snapshot.captured_at - one.at
    old = (m for m in members if m.instance_id and (m.joined_at is None or m.joined_at <= one.at))
    return age > session + clocks and not any(old)


def _stranger(context: Context) -> str:
    """Return a clause that names the type of a group of other programs than consumers."""
    if context.group.protocol_type == "connect":
        return ": this is a group of Connect workers"
    return ": this is a Kafka Streams group" if context.streams else ""
