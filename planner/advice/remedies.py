"""Remedies: what must come before a restart that the coordinator would not admit.

A remedy gives a member the list that others need, has the coordinator remember every list again,
adds the evidence that decides, or makes a new plan; it is an advice of actions.py itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Final

from rebal.groups.model import GroupState, Knowledge, Tri
from rebal.planner.admission.check import Admission, Needs, admitted, restart
from rebal.planner.admission.memory import INCONSISTENT, memory_of
from rebal.planner.advice.actions import (
    LISTED,
    TRIED,
    as_it_runs,
    cut_over_of,
    evidence,
    first,
    rebalance_of,
    replan,
    restart_of,
    show,
    starts_with,
    stated,
    stop,
    stop_and_start,
    wait,
)
from rebal.planner.context import Context, Facts
from rebal.planner.plan import Advice
from rebal.planner.risks import Risk

# Up to so many static members are restarted one by one, with no rebalance, to cure a reload.
_FEW: Final = 2
# The answers of one rebalance are logged together.
_TOGETHER: Final = timedelta(seconds=2)


def cutting_over(
    context: Context,
    stopped: Sequence[Facts],
    assignors: tuple[str, ...],
    wide: tuple[str, ...],
) -> tuple[Advice, tuple[Advice, ...]]:
    """Return the advice to stop `stopped` together, and the restarts that are withheld.

    Where the start is not admitted, the advice prepares it, as in `narrowing`.
    """
    made = cut_over_of(context, stopped, assignors)
    if made.verdict is Tri.YES:
        return made, ()
    sent = memory_of(context, rejoined=True)
    whole = [admitted(sent, stop_and_start(context, stopped, assignors))]
    others = [facts for facts in context.members if facts not in stopped]
    if (
        context.reloaded is Tri.CANNOT_TELL
        and not context.can_probe
        and whole[0].verdict is Tri.YES
    ):
        # A probe answers no while the stopped members are in the group: it shows no cure.
        return show(context, Needs.LOAD, made.reason), (made,)
    remedy = _remedy(context, others, assignors, wide=wide, barred=made, by_lists=whole)
    return remedy, (made,)


def cure_of(context: Context) -> Advice:
    """Return the cheapest way to have the coordinator remember every list again (RB113).

    A rebalance makes every running member join with its whole list. A dynamic member's restart
    starts one; a static member's restart does not, and shows the coordinator its own list only. So:
    a dynamic member's restart; where all are static, a temporary member that joins and leaves (two
    rebalances, whatever the size), or each one's restart where there are no more than two. If the
    coordinator still holds a shortened list after a rebalance, that list is of a static member that
    was down during the rebalance, and only its own restart helps. What was restarted since the plan
    was made is not restarted for it again: then the time of the load, or of the logs, is missing. A
    dynamic member is, where the probe itself shows that a load came after the restarts.
    """
    dynamic = [facts for facts in context.members if not facts.static]
    static = [facts for facts in context.members if facts.static]
    rested = not any(facts.member.member_id in context.restarted for facts in dynamic)
    open_ = rested or (not static and _shortened(context))
    if dynamic and (context.reloaded is Tri.YES or (context.reloaded is not Tri.NO and open_)):
        return rebalance_of(context, dynamic)
    suspects = _short(context, static)
    down = _left_behind(context, suspects)
    if suspects and (context.reloaded is Tri.NO or len(down or suspects) <= _FEW):
        suspects = down or suspects
        left = [f for f in suspects if f.member.member_id not in context.restarted]
        if left:
            return first(as_it_runs(context, facts) for facts in left[:TRIED])
        why = f"{context.named(suspects)} joined again, and whether a load came later is not known"
        return show(context, Needs.LOAD, why)
    if not static:
        why = "the coordinator's lists and the logs are at odds"
        return _or_not_loaded(context, show(context, Needs.CONFLICT, why))
    if context.reloaded is Tri.CANNOT_TELL and _undated(context):
        why = "the logs show every list, and not whether it was sent after the load"
        return show(context, Needs.CLOCK, why)
    return rebalance_of(context, ())


def _short(context: Context, static: Sequence[Facts]) -> list[Facts]:
    """Return the static members whose list the coordinator may still hold as a load left it."""
    open_ = {e.member_id for case in context.memory.cases for e in case if len(e.lists) > 1}
    return [facts for facts in static if facts.member.member_id in open_]


def _shortened(context: Context) -> bool:
    """Return whether a probe denies an assignor that every member sent: a load came later."""
    known = [facts.member.assignors for facts in context.members]
    exact = all(one.knowledge is Knowledge.EXACT for one in known)
    denied = context.memory.not_in_all
    return exact and any(all(name in one.list for one in known) for name in denied)


def _undated(context: Context) -> bool:
    """Return whether logs show each member's list, and their zone alone would show when."""
    members = [facts.member for facts in context.members]
    return context.snapshot.undated_logs and all(
        m.assignors.knowledge is Knowledge.EXACT and m.joined_at is None for m in members
    )


def _left_behind(context: Context, found: Sequence[Facts]) -> list[Facts]:
    """Return those of `found` that did not join in the newest rebalance that the logs show.

    A single join, such as a static member's restart, is no rebalance.
    """
    joined = [f.member.joined_at for f in context.members if f.member.joined_at is not None]
    newest = max(joined, default=None)
    if newest is None or sum(newest - at <= _TOGETHER for at in joined) < 2:
        return []
    return [
        facts
        for facts in found
        if facts.member.joined_at is None or newest - facts.member.joined_at > _TOGETHER
    ]


def narrowing(
    context: Context,
    to_do: Sequence[Facts],
    assignors: tuple[str, ...],
    wide: tuple[str, ...],
) -> tuple[Advice, tuple[Advice, ...]]:
    """Return the advice to restart one of `to_do` (not empty) with the list, and the restarts that
    are withheld.

    A member whose client does not start with the list, as its evidence has it, is left as it is.
    Where none is admitted, the advice prepares it: give the `wide` list to the members that lack
    the assignor, make the coordinator remember every list again, or add the evidence that decides.
    """
    able = [f for f in to_do if starts_with(context, f, assignors) is not Tri.NO]
    if not able:
        return _no_wide_list(context, to_do, assignors), ()
    tried = [restart_of(context, facts, assignors) for facts in able[:TRIED]]
    good = next((one for one in tried if one.verdict is Tri.YES), None)
    withheld = tuple(one for one in tried if one.verdict is not Tri.YES)[:LISTED]
    if good is not None:
        return good, withheld
    # Where some find the group full or their session out of bounds, the others may be admitted.
    by_list = [one for one in tried if one.error in (None, INCONSISTENT)] or tried
    barred = next((one for one in by_list if one.verdict is Tri.NO), by_list[0])
    sent = memory_of(context, rejoined=True)
    by_lists = [
        admitted(sent, restart(sent, facts.member.member_id, assignors)) for facts in able[:TRIED]
    ]
    made = _remedy(context, context.members, assignors, wide=wide, barred=barred, by_lists=by_lists)
    return made, withheld


def _remedy(
    context: Context,
    others: Sequence[Facts],
    assignors: tuple[str, ...],
    *,
    wide: tuple[str, ...],
    barred: Advice,
    by_lists: Sequence[Admission],
) -> Advice:
    """Return what must come before `barred`, which is not admitted.

    `others` are those that may get the `wide` list, `by_lists` the answers once every member has
    joined again with its whole list.
    """
    if context.group.state is not GroupState.STABLE:
        return wait(barred.reason)
    lacking = [f for f in others if {context.supports(f, name) for name in assignors} <= {Tri.NO}]
    able = [f for f in lacking if starts_with(context, f, wide) is Tri.YES]
    if able and wide:
        back = first(restart_of(context, f, wide) for f in able[:TRIED])
        if back.verdict is Tri.YES:
            return back
    elif lacking and wide:
        return _no_wide_list(context, lacking, wide)
    if barred.error not in (None, INCONSISTENT):
        return stop(barred.reason)
    if "broker settings" in barred.evidence_needed:
        return show(context, Needs.BROKER, barred.reason)
    asked = any(n in {*context.memory.in_all, *context.memory.not_in_all} for n in assignors)
    if any(one.verdict is Tri.YES for one in by_lists):
        if context.reloaded is not Tri.YES and not asked and context.can_probe:
            return _or_not_loaded(context, show(context, Needs.PROBE, barred.reason))
        return cure_of(context)
    if barred.verdict is Tri.NO:
        return replan(context, barred.reason)
    if asked and context.reloaded is not Tri.NO and _knows_nothing_more(context):
        return cure_of(context)
    return evidence(context, barred.evidence_needed, barred.reason)


def _or_not_loaded(context: Context, made: Advice) -> Advice:
    """Return the evidence to give, or else the operator's word that no load came since the newest
    rebalance that the logs show.
    """
    joined = [f.member.joined_at for f in context.members if f.member.joined_at is not None]
    if len(joined) < len(context.members) or not context.restarted:
        return made
    since = f"{max(joined):%H:%M:%SZ}"
    fact = f"no broker has stopped or moved since {since}, nor will until the plan is carried out"
    return stated(context, made, Risk.FORGOTTEN_LISTS, fact)


def _no_wide_list(context: Context, lacking: Sequence[Facts], wide: Sequence[str]) -> Advice:
    """Return the advice where no client of these members is known to start with the wide list."""
    open_ = [f for f in lacking if starts_with(context, f, wide) is Tri.CANNOT_TELL]
    if not open_:
        why = f"{context.named(lacking)} cannot start with [{', '.join(wide)}] (RB104)"
        return replan(context, why)
    why = f"the client of {context.named(open_)} is not known, and not every client starts with"
    return show(context, Needs.LISTS, f"{why} [{', '.join(wide)}] (RB906)")


def _knows_nothing_more(context: Context) -> bool:
    """No list is known, so that a rebalance (which shows every list) is the next evidence."""
    return not any(f.member.assignors.knowledge is Knowledge.EXACT for f in context.members)
