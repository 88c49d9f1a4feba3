"""Paths of a classic group whose members choose by assignor lists: one or two rolling restarts,
or a stop, to another assignor or to another client library.

Two bounces (KIP-429): first both assignors everywhere, then the target alone. One bounce is not
enough: a leader with old code ignores the partitions that members still own and may assign them to
others before they are revoked. The target stands first in the mixed list, in upgrades and
downgrades: a coordinator reload keeps only the elected assignor of each list, and with the target
elected the second bounce is still admitted. The order suits franz-go too, which runs the protocol
of the elected assignor.

One bounce (KIP-726): every list holds the target and the old assignor already, as by default in
Java 3.0 and later ([range, cooperative-sticky]). The old assignor comes first and is elected, so
after a reload the coordinator does not know the target until the next rebalance (RB113). The step
of `refresh` makes the coordinator learn every list again. Who must restart for it depends on the
members (planner/advice/steps.py, `cure_of`): a dynamic member's restart with its CURRENT list makes
all running members rejoin; a static member's restart shows its own list only.

Some clients reject a list of eager and cooperative assignors (librdkafka and its bindings,
kafka-python). Beside other clients, only they are stopped: once every other member lists both
assignors, they stop together, the others take over their partitions, and they start again with the
target alone, which every list then holds (MIXED_FAMILIES). Without others, every member stops
before one starts with the new list (CUT_OVER); nothing is consumed meanwhile, so such a plan is
never ready: the operator decides on the interruption.

Another client library under the same group id: members of two libraries run together by range or
roundrobin (planner/facts.py). Where the members lack that assignor, they get it first, as in the
first of two bounces; then the new library replaces them one by one with that assignor alone. Where
nothing bridges the two, all members stop once, or the new library takes a group id of its own, to
which the offsets are copied.
"""

from collections.abc import Sequence
from typing import Final

from rebal.groups.clients import WITHOUT_STATIC, family
from rebal.groups.coordinator import elect
from rebal.groups.model import Coordinator, Knowledge, Tri
from rebal.planner.advice.steps import cure_of
from rebal.planner.advice.wording import (
    BACK_FROM_STOP,
    IN_ITS_OWN_GROUP,
    STOP_SOME,
    STOP_THEN_START,
)
from rebal.planner.clients import cooperative, custom, speak_kip848, stays_eager
from rebal.planner.commands import NamedCommand
from rebal.planner.context import CONSUMER, COOPERATIVE, EAGER, Context, Facts, ids
from rebal.planner.facts import all_partitions, owned, topics_left
from rebal.planner.paths.parts import (
    PlannedPath,
    again,
    agreed,
    back_goal,
    commands_of,
    cost_of,
    everyone,
    follows_vote,
    gate_answer,
    gate_of,
    list_settings,
    order_of,
    over_a_stop,
    priced,
    stop_cost,
)
from rebal.planner.plan import Aim, Cost, Gate, PathKind, Risk, Step, StepKind
from rebal.planner.rehearsal.costs.start import Roll
from rebal.planner.rehearsal.costs.steps import stop_some
from rebal.planner.settings import settings_for
from rebal.planner.verdict import exit_code, first_reason, reasons, worst

_AT_ONCE: Final = (
    "; they then revoke all partitions at once and resume from the committed offsets, so records "
    "may be read twice"
)


def by_lists(context: Context) -> PlannedPath:
    """Return the path of a classic group whose members choose by partition.assignment.strategy.

    In each step the members that evidence proves done are `done`. If the coordinator may have
    forgotten the lists, a restart with the current list comes before the last bounce. Members stop
    only if their client is proven to reject mixed lists: no group is stopped for a guess.
    """
    if not context.ahead:
        return PlannedPath(name=PathKind.FINISHED)
    eager = any(stays_eager(facts.family) for facts in context.ahead)
    if context.unable or context.undecided or (eager and context.goal == COOPERATIVE):
        return PlannedPath(name=PathKind.NONE)
    if context.split:
        name = PathKind.MIXED_FAMILIES
        stops = _stop_and_start(context, 2)
        steps = [add_both(context, 1, left_out=context.unmixable), stops, drop_old(context, 3)]
        # While a member that accepts mixed lists may lack the target, the stop waits.
        number = 2 if stops.precondition_holds is Tri.YES else 1
    elif context.mixes_protocols and context.unmixable and not eager:
        name, steps, number = PathKind.CUT_OVER, [_cut_over(context)], 1
    else:
        name = PathKind.ONE_BOUNCE if context.one_bounce else PathKind.TWO_BOUNCES
        steps = [] if context.one_bounce else [add_both(context, 1)]
        steps += [refresh(context, len(steps) + 1)] if context.refresh else []
        steps.append(drop_old(context, context.narrow_step))
        number = 2 if not (context.lacking or context.one_bounce) and context.holding else 1
    return PlannedPath(
        name=name, progress=_progress(context, name), steps=tuple(steps), next_step=number
    )


def _progress(context: Context, path: PathKind) -> str:
    everybody, settled, holding = map(len, (context.members, context.settled, context.holding))
    stops = path is PathKind.CUT_OVER
    others = [facts for facts in context.lacking if facts not in context.unmixable]
    rows = (
        (stops and settled, f"{settled} of {everybody} done"),
        (stops, "not begun"),
        (path is PathKind.ONE_BOUNCE, "every list holds both assignors already"),
        (
            settled and not context.lacking and not context.unsure,
            f"bounce 1 is complete, bounce 2 is left for {everybody - settled} of {everybody}",
        ),
        (holding == everybody, "bounce 1 is complete"),
        (
            path is PathKind.MIXED_FAMILIES and holding and not others,
            f"bounce 1 is complete but for {context.named(context.unmixable, 3)}",
        ),
        (holding, f"{context.target} is in {holding} of {everybody} lists"),
        (context.unsure, "not begun, as far as is known"),
    )
    return first_reason(rows) or "not begun"


def add_both(context: Context, number: int, left_out: Sequence[Facts] = ()) -> Step:
    """Return the first bounce: every member gets the target and keeps the old assignor behind it.

    `left_out` are members whose client rejects such a list; another step covers them.
    """
    names = tuple(filter(None, [context.target, context.keep]))
    lacking = [facts for facts in context.lacking if facts not in left_out]
    unsure = [facts for facts in context.unsure if facts not in left_out]
    rest = [*lacking, *unsure]
    kinds = (
        "eager and cooperative assignors together" if context.mixes_protocols else "two assignors"
    )
    but = f" but {context.named(left_out, 3)}" if left_out else ""
    old = context.keep or "the old assignor"
    return Step(
        id=number,
        title=f"Every member{but} gets {context.target} before {old}",
        kind=StepKind.ROLLING,
        precondition=f"every client accepts {kinds}",
        precondition_holds=Tri.YES,
        config=list_settings(
            context, names, rest or [f for f in context.members if f not in left_out]
        ),
        target_list=names,
        why=_why_both(context),
        order=tuple(order_of(context, rest)),
        to_do=ids(lacking),
        done=ids(context.holding),
        unknown=ids(unsure),
        left_out=tuple(sorted({facts.family for facts in left_out if facts.family})),
        gate=gate_of(
            context,
            shows=f"{everyone(context)}{but} supports {context.target}",
            needs=(f"every member's list, or a probe that says yes for {context.target}",),
            holds=gate_answer(context, rest, lacking),
            aim=Aim.WIDEN,
        ),
        rollback=f"[{context.keep or 'the old assignor'}] while elected, then plan --to "
        f"{back_goal(context)}",
        commands=(*commands_of(context, rest), again(context)),
        cost=cost_of(context, rest, names),
    )


def _why_both(context: Context) -> tuple[str, ...]:
    target, keep = context.target, context.keep or "the old assignor"
    down = context.goal == EAGER
    both_eager = down and cooperative(context.keep or "") is Tri.NO
    return reasons(
        (True, f"no list needs to be known: {keep} stays, which every member supports"),
        (
            True,
            f"{target} stands first because a coordinator reload keeps only the elected assignor "
            f"of every list: with {target} elected the next step is still admitted, with {keep} "
            "first its members would be rejected (RB107, RB113)",
        ),
        (
            any(map(follows_vote, context.members)),
            f"franz-go follows the vote: its members run {target}'s protocol as soon as it is "
            f"elected, which is when the last member holds both{_AT_ONCE if down else ''}",
        ),
        (
            both_eager,
            f"no member may go straight to [{target}]: it shares no assignor with members on "
            f"{keep} alone, is rejected and stops (RB101)",
        ),
        (
            down and not both_eager,
            f"no member may go straight to [{target}]: an eager-only member shares no assignor "
            "with members on a cooperative assignor alone, is rejected and stops (RB108); an "
            "automatic rollback of a deployment does exactly that",
        ),
        (
            down and not both_eager,
            "keep the client version in this bounce; deploy an older one in the second bounce",
        ),
        (
            not down,
            "two bounces, because a leader with old code ignores the partitions that members "
            "still own, and could assign them to others before they are revoked (KIP-429)",
        ),
        (
            not down,
            "deploy a new client version, or new code of a custom assignor, in this bounce, never "
            "in the second (RB111)",
        ),
    )


def refresh(context: Context, number: int) -> Step:
    """Return the step after which the coordinator holds every member's whole list again (RB113).

    A restart or a temporary member brings that about (`cure_of`). No list changes, so the step's
    `target_list` is empty.
    """
    cure = cure_of(context)
    chosen = [facts for facts in context.members if facts.member.member_id in cure.members]
    known = context.reloaded is Tri.YES
    return Step(
        id=number,
        title="The coordinator learns every CURRENT list again",
        kind=StepKind.ROLLING,
        precondition=f"nothing: {cure.reason}, so the join is admitted whatever else the "
        "coordinator remembers"
        if cure.recommended
        else cure.reason,
        precondition_holds=cure.verdict,
        why=(
            f"the coordinator {'has' if known else 'may have'} reloaded since the last rebalance "
            f"and then remembers only {context.elected} of every list: a member "
            f"restarted with [{context.target}] is rejected, although every list holds it (RB113)",
            "a static member that is down keeps its shortened list until it rejoins, is removed, "
            "or its session expires: look again afterwards",
        ),
        order=(cure.text, *cure.risks),
        to_do=ids(chosen),
        gate=gate_of(
            context,
            shows=f"the probe finds {context.target}, or a rebalance since the reload",
            holds=Tri.NO if known else Tri.CANNOT_TELL,
            aim=Aim.REFRESH,
        ),
        rollback="nothing to undo: no list has changed",
        cost=cost_of(context, chosen, ()),
        exit_code=exit_code(cure.verdict),
    )


def drop_old(context: Context, number: int) -> Step:
    """Return the last bounce: every member drops the old assignor and keeps the target alone.

    Members that an earlier stop starts with the target alone have nothing left to do.
    """
    names = (context.target,)
    rest = [facts for facts in context.ahead if not (context.split and facts in context.unmixable)]
    to_do = [facts for facts in rest if context.holds_old(facts) is Tri.YES]
    kind = "cooperative" if context.goal == EAGER else "eager"
    left = f"assignor but {context.target}" if context.only_target else f"{kind} assignor"
    old = context.keep or "the old assignor"
    straight_back = "straight back (RB101)" if context.only_target else "straight back (RB108)"
    return Step(
        id=number,
        title=f"Every member drops {context.keep or f'its {kind} assignors'}",
        kind=StepKind.ROLLING,
        precondition=f"every list holds {context.target}, and the coordinator remembers it",
        precondition_holds=Tri.YES,
        config=list_settings(context, names, rest or context.members, narrows=True),
        target_list=names,
        why=_why_narrow(context),
        order=tuple(order_of(context, rest)),
        to_do=ids(to_do),
        done=ids(context.settled),
        unknown=ids(facts for facts in rest if facts not in to_do),
        gate=gate_of(
            context,
            shows=f"{everyone(context)} is proven to have no {left}",
            needs=(
                f"do not rely on the probe for {old}: it turns negative after the first restart",
                "each member is proven by its own log (--client-log), by partitions that it owns "
                "after its restart (a Java client), or by the request log; without them it needs "
                "its configuration (--inventory) and your confirmation (--confirm)",
            ),
            holds=gate_answer(context, context.ahead, to_do),
            aim=Aim.NARROW,
        ),
        rollback=f"first [{context.target}, {old}], never {straight_back}",
        commands=tuple(commands_of(context, rest)),
        cost=cost_of(context, rest, names),
    )


def _why_narrow(context: Context) -> tuple[str, ...]:
    target = context.target
    down = context.goal == EAGER and cooperative(context.keep or "") is not Tri.NO
    up = context.goal != EAGER and not context.only_target
    votes = [follows_vote(facts) for facts in context.members]
    but = ", except those of franz-go" if any(votes) else ""
    own = f" (or what {context.keep} allows)" if custom(context.keep or "range") else ""
    return reasons(
        (
            True,
            f"while one list lacks {target}, each member restarted with [{target}] is rejected and "
            "stops, and the member that lacks it ends up owning every partition",
        ),
        (
            down,
            "an older client version, or old code of a custom assignor, may be deployed in this "
            "bounce: a member restarted with both assignors is no longer COOPERATIVE",
        ),
        (
            up and all(votes),
            f"franz-go members are COOPERATIVE as soon as {target} is elected; without the old "
            "assignor no vote can turn them back to EAGER",
        ),
        (
            up and not all(votes),
            "a restarted member is COOPERATIVE from here on, and those not restarted yet still "
            f"run EAGER{own}{but}: a leader with {target} accepts both protocols (KIP-429)",
        ),
    )


def _stop_and_start(context: Context, number: int) -> Step:
    stopped = context.unmixable
    clients = " and ".join(sorted({str(facts.family) for facts in stopped}))
    total = sum(map(owned, context.snapshot.members))
    others = [facts for facts in context.members if facts not in stopped]
    left = len(others)
    read, effect = topics_left(stopped, others)
    also = f"the {left} that stay can carry {all_partitions(total)} for a while" if total else ""
    if read is not Tri.YES:
        also = agreed(Risk.STOP)
    holds = worst(context.supports(facts, context.target) for facts in others)
    elects = _elect_target(context, others)
    turned = elects and cooperative(context.target) is Tri.YES
    return Step(
        id=number,
        title=STOP_THEN_START.format(whom=f"{clients} member", how=f"on {context.target}"),
        kind=StepKind.CUT_OVER,
        precondition=f"every other member's list holds {context.target}{also and f', and {also}'}",
        precondition_holds=holds,
        config=list_settings(context, (context.target,), stopped),
        target_list=(context.target,),
        why=(
            f"{clients} rejects a list of eager and cooperative assignors, and the coordinator "
            f"rejects [{context.target}] while one member lacks it (RB104): "
            f"so all of them stop before one starts with [{context.target}]",
            effect,
        ),
        order=(
            STOP_SOME.format(
                left=left,
                sees=f" and {context.target} elected"
                if elects
                else " (look again: after a coordinator reload "
                f"[{context.target}] may be rejected, RB113)",
            ),
        ),
        to_do=ids(stopped),
        gate=gate_of(
            context,
            shows=f"{everyone(context)} supports {context.target}",
            holds=Tri.NO,
            # The target in their list proves this step; the last step narrows.
            aim=Aim.WIDEN,
        ),
        rollback=BACK_FROM_STOP.format(keep=context.keep, goal=back_goal(context)),
        commands=(
            NamedCommand(
                "see that it is Stable",
                context.given.inspect(context.group.group_id, "--probe"),
            ),
            again(context),
        ),
        cost=stop_some(
            Roll(
                snapshot=priced(context),
                order=ids(stopped),
                eager=ids(
                    facts
                    for facts in others
                    if facts not in context.settled and not (turned and follows_vote(facts))
                ),
                target=(context.target,),
                speed=context.speed,
                pricing=context.pricing,
            )
        ),
        exit_code=exit_code(holds),
    )


def _elect_target(context: Context, others: Sequence[Facts]) -> bool:
    """Return whether `others` will elect the target when those that lack it have got it.

    They get it in front of the old assignor. The answer is False if the list of a member that has
    the target already is not known exactly.
    """
    wide = tuple(filter(None, (context.target, context.keep)))
    # An empty list is not known, and the vote has no winner with it.
    lists = [
        (facts.member.assignors.list if facts.member.assignors.knowledge is Knowledge.EXACT else ())
        if facts in context.holding
        else wide
        for facts in others
    ]
    coordinator = context.group.coordinator or Coordinator(broker_id=-1)
    return elect(lists, coordinator.kind).assignor == context.target


def _cut_over(context: Context) -> Step:
    """Return the only step of a cut-over: all members stop, then start with the target alone.

    Its precondition is an agreed interruption.
    """
    without = NamedCommand(
        "or, without an interruption, on brokers 4.0 or later: plan the move to KIP-848",
        context.replan(to=CONSUMER),
    )
    speaks = {facts.family for facts in context.members} <= speak_kip848()
    return over_a_stop(
        context,
        how=f"on {context.target}",
        gate=gate_of(
            context,
            shows=f"{everyone(context)} uses {context.target} alone",
            holds=Tri.NO,
            aim=Aim.NARROW,
        ),
        back="the old list",
        config=list_settings(context, (context.target,), context.members),
        target_list=(context.target,),
        why=("an Empty group admits any list that all its members share",),
        done=context.settled,
        commands=(without,) if speaks else (),
        cost=stop_cost(context),
    )


_OFFSETS = "offsets.csv"


def library(context: Context, before: Context | None = None) -> PlannedPath:
    """Return the path on which another client library replaces the members' library.

    The group is Stable and classic. After a stop the new library starts with its default list. If
    old and new library share an assignor, the members end on that alone, and the plan names the
    command that brings the default list later. In a rollback `before` is the group as it was before
    the upgrade; the list that it ran then takes the place of the default list.
    """
    everybody, settled = len(context.members), len(context.settled)
    if settled == everybody:
        return PlannedPath(name=PathKind.FINISHED)
    bridge = context.bridge
    if bridge.verdict is Tri.CANNOT_TELL:
        return PlannedPath(name=PathKind.NONE, reasons=(bridge.why,))
    usual = family(context.client).defaults[0].list
    if before is not None and before.elected:
        usual = before.common_list or (before.elected,)
    if bridge.verdict is Tri.NO:
        name, steps = PathKind.LIBRARY_STOP, [_over_a_stop(context, usual)]
    else:
        name, steps = PathKind.LIBRARY, [_replace(context, context.narrow_step, usual)]
        if len(context.holding) < everybody:
            steps.insert(0, add_both(context, 1))
        elif context.refresh:
            steps.insert(0, refresh(context, 1))
    return PlannedPath(
        name=name,
        progress=f"{settled} of {everybody} replaced" if settled else "not begun",
        steps=tuple(steps),
        next_step=1,
    )


def _gate(context: Context) -> Gate:
    return gate_of(
        context,
        shows=f"{everyone(context)} runs {context.client}",
        needs=("each member's handshake (--request-log), its log or its bytes show its library",),
        holds=gate_answer(context, context.ahead, context.ahead),
        aim=Aim.CLIENT,
        by_hand=f"check that each restarted process runs {context.client}",
    )


def _replace(context: Context, number: int, usual: Sequence[str]) -> Step:
    names, rest = (context.target,), context.ahead
    loses_ids = _loses_ids(context, rest)
    # The common assignor may not be in the list that the library has by default, or ran before.
    later = NamedCommand(
        f"afterwards, plan {context.client}'s usual [{', '.join(usual)}]",
        context.replan(to=COOPERATIVE if cooperative(usual[0]) is Tri.YES else usual[0]),
    )
    return Step(
        id=number,
        title=f"{context.client} replaces every member, on {context.target}",
        kind=StepKind.ROLLING,
        precondition=f"every list holds {context.target}, and the coordinator remembers it",
        precondition_holds=Tri.YES,
        config=settings_for(context.client or "", names, context.group.group_id),
        target_list=names,
        why=(
            f"the coordinator compares names: {context.target} is in both libraries' lists, so "
            "old and new members share the group; while one list lacks it, a new member is "
            "rejected",
            "while both run, the leader's library assigns for all: the member that joined first "
            f"leads, and when it leaves another one does. {context.target} needs no user data, so "
            "each reads what the other assigns; sticky assignors' user data differ by library",
            "two libraries may order members differently: when the leader changes, partitions may "
            "move",
            "a static member keeps its id only if the new library has static membership (KIP-345)",
        ),
        order=tuple(order_of(context, rest, by_lists=not loses_ids)),
        to_do=ids(rest),
        done=ids(context.settled),
        gate=_gate(context),
        rollback=f"the old library with [{context.target}], one by one",
        commands=(
            *commands_of(context, rest),
            *((later,) if context.target not in usual else ()),
        ),
        cost=loses_ids or cost_of(context, rest, names),
    )


def _loses_ids(context: Context, rest: Sequence[Facts]) -> Cost | None:
    """Return the cost of losing static membership to the new library; None if nothing is lost."""
    static = [facts for facts in rest if facts.static]
    if not static or context.client not in WITHOUT_STATIC:
        return None
    everything = sum(owned(facts.member) for facts in context.members)
    return Cost(
        rebalances=len(rest),
        partitions_stopped=len(rest) * everything,
        partitions_moved=0,
        text=f"{context.client} has no static members: each restart rebalances, and stops "
        f"{all_partitions(everything)} until the old entry's session ends "
        f"({context.named(static, 3)})",
    )


def _over_a_stop(context: Context, usual: tuple[str, ...]) -> Step:
    old = context.group.group_id
    apart, copies = f"{old}-{context.client}", ("--reset-offsets", "--from-file", _OFFSETS)
    return over_a_stop(
        context,
        how=f"as {context.client} on {context.target}",
        gate=_gate(context),
        back="the old library",
        config=settings_for(context.client or "", usual, old),
        target_list=usual,
        why=(
            f"nothing bridges the two libraries: {context.bridge.why}",
            "an Empty group admits any assignor list, and its committed offsets stay",
            IN_ITS_OWN_GROUP.format(group=apart, file=_OFFSETS),
        ),
        risk=Risk.STOP_FOR_CLIENT,
        done=context.settled,
        # Those of Kafka's own tool with which it consumes in a group of its own instead.
        commands=[
            NamedCommand(
                f"without a stop: {use}", context.given.kafka("kafka-consumer-groups.sh", *words)
            )
            for use, words in (
                ("see the offsets to copy", ("--describe", "--offsets", "--group", old)),
                ("try the copy", ("--group", apart, *copies, "--dry-run")),
                ("copy them", ("--group", apart, *copies, "--execute")),
                ("watch both lags", ("--describe", "--group", old, "--group", apart)),
            )
        ],
        cost=stop_cost(context),
    )
