"""Kafka Streams: EAGER and COOPERATIVE are chosen by `upgrade.from`, never by an assignor list.

From 2.4 on Streams is COOPERATIVE unless upgrade.from is 0.10.0 to 2.3; its assignor takes members
of both kinds as long as all run 2.4 or later (KIP-429). Below 2.4 it knows nothing of COOPERATIVE.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from rebal.groups.model import Tri
from rebal.planner.context import EAGER, Context, Facts, ids, kept_partitions
from rebal.planner.cost import CostModel
from rebal.planner.plan import Step, StepKind
from rebal.planner.routes.rolling import cost_of, expected_line, gate_of
from rebal.planner.routes.way import Way
from rebal.planner.settings import program_settings

FIRST: Final = "2.4"
_EAGER_VALUES: Final = (
    "0.10.0", "0.10.1", "0.10.2", "0.11.0", "1.0", "1.1", "2.0", "2.1", "2.2", "2.3",
)  # fmt: skip
_BRIDGE: Final = (
    "from below 2.4 go to 3.9 first, and from there on: the upgrade guide of 4.2 no longer lists "
    "versions below 2.4 (KIP-1124)"
)


def streams(context: Context, cost: CostModel) -> Way:
    """The way by upgrade.from, up or down."""
    if context.goal == EAGER:
        return _down(context, cost)
    old = [facts for facts in context.members if facts.older_than(FIRST) is Tri.YES]
    unknown = [facts for facts in context.members if facts.older_than(FIRST) is Tri.CANNOT_TELL]
    kept = [facts for facts in context.members if kept_partitions(facts.member)]
    if old:
        return _up(context, cost, old, unknown, kept)
    if len(kept) == len(context.members):
        return Way(path="finished", answers=("RB501",))
    rest = [facts for facts in context.members if facts not in kept]
    reasons: tuple[str, ...] = ()
    if unknown:
        reasons = (
            f"the versions of {context.named(unknown)} are not known: below 2.4 upgrade.from must "
            "be set first (--request-log across a restart, or --client-log, shows them)",
        )
    return Way(
        path="streams_one_bounce",
        title="Streams, one bounce",
        progress=f"{len(kept)} of {len(context.members)} proven COOPERATIVE",
        steps=(_remove(context, cost, 1, rest, kept, blocked=bool(unknown)),),
        next_step=1,
        reasons=reasons,
        answers=("RB501",),
    )


def _up(
    context: Context,
    cost: CostModel,
    old: Sequence[Facts],
    unknown: Sequence[Facts],
    kept: Sequence[Facts],
) -> Way:
    values = sorted({_value(facts) for facts in old}, key=_EAGER_VALUES.index)
    new = [facts for facts in context.members if facts not in (*old, *unknown)]
    reasons = tuple(
        f"{context.named(kept)} runs COOPERATIVE already while {context.named(old)} cannot: set "
        "its upgrade.from at once, and restart it"
        for _ in kept[:1]
    )
    first = Step(
        id=1,
        title="Every instance gets the new version, with upgrade.from set to the old one",
        kind=StepKind.ROLLING,
        precondition="no instance of the new version runs without upgrade.from",
        precondition_holds=Tri.NO if kept else Tri.CANNOT_TELL if new else Tri.YES,
        config=program_settings(
            "streams",
            {"upgrade.from": values[0]},
            f"group {context.group.group_id}; new version: 2.4 or later",
        ),
        why=(
            "an instance below 2.4 that is the leader would give partitions away before their "
            "owners have given them up: upgrade.from keeps everybody EAGER until all run the new "
            "version (KIP-429)",
            f"upgrade.from is the version you come from: {', '.join(_EAGER_VALUES)}",
            _BRIDGE,
            "never set partition.assignment.strategy for Streams (RB501)",
        ),
        order=tuple(_order(context, [*old, *unknown])),
        to_do=ids(old),
        done=ids(new),
        unknown=ids(unknown),
        gate=gate_of(
            context,
            shows="exit code 0, and step 2 as the next step: every instance runs 2.4 or later",
            needs=("every instance's version", *expected_line(context)),
            holds=Tri.NO,
            aim="by-hand",
            by_hand="each instance runs the new version, and its log at its start names "
            f"upgrade.from={values[0]}",
        ),
        rollback="put the old version back, without upgrade.from, one instance at a time",
        cost=cost_of(context, [*old, *unknown], cost, ("stream",)),
        exit_code=3 if kept else 0,
    )
    second = _remove(context, cost, 2, context.members, (), blocked=True)
    return Way(
        path="streams_two_bounces",
        title="Streams, two bounces",
        progress=f"{len(new)} of {len(context.members)} on 2.4 or later",
        steps=(first, second),
        next_step=1,
        reasons=reasons,
        answers=("RB501",),
    )


def _remove(
    context: Context,
    cost: CostModel,
    number: int,
    rest: Sequence[Facts],
    done: Sequence[Facts],
    *,
    blocked: bool,
) -> Step:
    return Step(
        id=number,
        title="No instance sets upgrade.from to 2.3 or less",
        kind=StepKind.ROLLING,
        precondition="every instance runs 2.4 or later",
        precondition_holds=Tri.CANNOT_TELL if blocked else Tri.YES,
        config=program_settings(
            "streams", {}, f"group {context.group.group_id}: remove upgrade.from"
        ),
        why=(
            "upgrade.from 0.10.0 to 2.3 keeps an instance EAGER; 2.4 and later values do not "
            "(RB502)",
            "Streams' assignor takes EAGER and COOPERATIVE members together once all run 2.4 or "
            "later, so this is one bounce (KIP-429)",
        ),
        order=(
            "look at each instance's configuration: where upgrade.from is not set, or 2.4 or more, "
            "nothing is to be done",
            *_order(context, rest),
        ),
        done=ids(done),
        unknown=ids(rest),
        gate=gate_of(
            context,
            shows="exit code 0, and nothing left to do: every instance kept its partitions when "
            "it last joined",
            needs=("a rebalance since, at which each instance says what it still owns",),
            holds=Tri.CANNOT_TELL,
            aim="by-hand",
            by_hand="each instance's log at its start (StreamsConfig values) names no "
            "upgrade.from, or one of 2.4 and later",
        ),
        rollback="set upgrade.from back to what it was, one instance at a time",
        cost=cost_of(context, rest, cost, ("stream",)),
        exit_code=4 if blocked else 0,
    )


def _down(context: Context, cost: CostModel) -> Way:
    unknown = [facts for facts in context.members if facts.older_than(FIRST) is Tri.CANNOT_TELL]
    old = [facts for facts in context.members if facts.older_than(FIRST) is Tri.YES]
    if len(old) == len(context.members):
        return Way(path="finished", answers=("RB501",))
    kept = [facts for facts in context.members if kept_partitions(facts.member)]
    mixed = bool(old and kept)
    rest = [facts for facts in context.members if facts not in old]
    first = Step(
        id=1,
        title="Every instance gets upgrade.from=2.3",
        kind=StepKind.ROLLING,
        precondition="every instance runs 2.4 or later: its assignor takes EAGER and COOPERATIVE "
        "members together",
        precondition_holds=Tri.NO if mixed else Tri.CANNOT_TELL if unknown else Tri.YES,
        config=program_settings(
            "streams", {"upgrade.from": "2.3"}, f"group {context.group.group_id}"
        ),
        why=(
            "an instance with upgrade.from 2.3 or less runs EAGER (RB502)",
            "the byte code stays in this bounce: an instance below 2.4 that joins COOPERATIVE ones "
            "and leads them may give partitions away twice",
            "or put the version you go back to in place of 2.3; 4.2 and later: go down over 3.9 "
            "(KIP-1124)",
        ),
        order=tuple(_order(context, rest)),
        unknown=ids(rest),
        done=ids(old),
        gate=gate_of(
            context,
            shows="that no instance kept its partitions when it last joined",
            needs=("each instance's configuration", *expected_line(context)),
            holds=Tri.NO if kept else Tri.CANNOT_TELL,
            aim="by-hand",
            by_hand="each instance's log at its start (StreamsConfig values) names "
            "upgrade.from=2.3, or the version you go back to",
        ),
        rollback="remove upgrade.from again, one instance at a time",
        cost=cost_of(context, rest, cost, ("stream",)),
        exit_code=3 if mixed else 4 if unknown else 0,
    )
    second = Step(
        id=2,
        title="Every instance gets the old version (only to go below 2.4)",
        kind=StepKind.ROLLING,
        precondition="every instance runs with upgrade.from 2.3 or less",
        precondition_holds=Tri.NO if kept else Tri.CANNOT_TELL,
        config=program_settings(
            "streams", {}, f"group {context.group.group_id}: the old version, no upgrade.from"
        ),
        why=("to stay on this version and run EAGER, step 1 is all there is",),
        order=tuple(_order(context, rest)),
        unknown=ids(rest),
        gate=gate_of(
            context,
            shows="exit code 0, and nothing left to do",
            needs=expected_line(context),
            holds=Tri.NO,
            aim="by-hand",
            by_hand="each instance runs the old version, without upgrade.from",
        ),
        rollback="put the new version back with upgrade.from=2.3",
        cost=cost_of(context, rest, cost, ("stream",)),
        exit_code=3 if kept else 4,
    )
    reasons = (
        f"{context.named(old)} runs below 2.4 beside members that are COOPERATIVE"
        if mixed
        else f"the versions of {context.named(unknown)} are not known",
    )
    return Way(
        path="streams_down",
        title="Streams, down by upgrade.from",
        progress=f"{len(kept)} of {len(context.members)} proven COOPERATIVE",
        steps=(first, second),
        next_step=1,
        reasons=reasons if mixed or unknown else (),
        answers=("RB501",),
    )


def _order(context: Context, rest: Sequence[Facts]) -> Iterator[str]:
    if rest:
        yield (
            f"one instance at a time: {context.named(rest, 20)}; a clean stop of Streams sends no "
            "leave, so its partitions stand still until it is back or session.timeout.ms is over"
        )
        yield "after each: the group is Stable, the instance is RUNNING, lag goes down"


def _value(facts: Facts) -> str:
    """The upgrade.from that says where this instance comes from; 2.3 where that is not exact."""
    version = facts.version or ""
    fits = [value for value in _EAGER_VALUES if version == value or version.startswith(f"{value}.")]
    return fits[-1] if fits else _EAGER_VALUES[-1]
