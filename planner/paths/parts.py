"""Parts that the steps of every path are made of: gate, configuration text and cost."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from rebal.groups.clients import family, version_tuple
from rebal.groups.clients import family as known_family
from rebal.groups.model import GroupSnapshot, RebalanceProtocol, Record, Tri
from rebal.planner.clients import classes_of, cooperative
from rebal.planner.commands import NamedCommand
from rebal.planner.context import COOPERATIVE, EAGER, Context, Facts, ids
from rebal.planner.kinds import PathKind
from rebal.planner.plan import Aim, Cost, Gate, Setting, Step
from rebal.planner.rehearsal.costs.start import Roll
from rebal.planner.rehearsal.costs.steps import by_assignors, stop_and_start
from rebal.planner.settings import java_class, no_text, noted, plain, settings_for
from rebal.planner.timeouts import of_families

_KIP_429: Final = "rebalance-total, failed-rebalance-total and last-rebalance-seconds-ago"
_JAVA: Final = ("java", "streams")


class PlannedPath(Record, frozen=True, kw_only=True):
    """One path of a group to its goal.

    `progress` is a clause such as `bounce 1 is complete`. `reasons` say why the next step cannot
    start, for causes that no rule reports.
    """

    name: PathKind
    progress: str = ""
    steps: tuple[Step, ...] = ()
    next_step: int | None = None
    reasons: tuple[str, ...] = ()


def gate_of(
    context: Context,
    *,
    shows: str,
    needs: tuple[str, ...] = (),
    holds: Tri,
    aim: Aim,
    by_hand: str = "",
) -> Gate:
    """Return the command that shows whether a step's gate holds, and the state of the group that it
    `shows` then.

    With a plan file the command is `rebal verify`; otherwise it is `rebal plan-upgrade` on fresh
    evidence. `needs` is that evidence. `aim` is the step's change. `by_hand` is what the operator
    must check where no evidence shows it; `rebal verify` then accepts a confirmation. Each gate
    names the client metrics to watch.
    """
    needs = (*needs, *_metrics_lines(context))
    if by_hand:
        needs = (*needs, f"{by_hand}; then confirm it with --confirm")
    kept = context.given.plan is not None
    return Gate(
        command=context.given.verify() if kept else context.replan(),
        shows=shows,
        needs=needs,
        holds=holds,
        aim=aim,
        by_hand=by_hand,
    )


def _metrics_lines(context: Context) -> Iterator[str]:
    """Yield the metrics to watch, by the clients in the group (Java's for an unknown client)."""
    families = {context.client or facts.family for facts in context.members} or {None}
    if "connect" in families or context.group.protocol_type == "connect":
        yield (
            f"watch in each restarted worker: {_KIP_429} (connect-coordinator-metrics, KIP-429), "
            "and connect-protocol (connect-worker-rebalance-metrics)"
        )
        return
    if families & {*_JAVA, None}:
        yield f"watch in each restarted client: {_KIP_429} (consumer-coordinator-metrics, KIP-429)"
    if "librdkafka" in families:
        yield (
            "watch in each restarted librdkafka client, which has no KIP-429 metrics: "
            "rebalance_cnt and rebalance_age (cgrp in its statistics, statistics.interval.ms)"
        )
    others = sorted(filter(None, families - {*_JAVA, "librdkafka"}))
    if others:
        yield (
            f"{_KIP_429} (KIP-429) exist in Java clients only: for {' and '.join(others)} watch "
            "its own rebalance metrics, or the joins in --request-log"
        )


def again(context: Context) -> NamedCommand:
    """Return the command that plans the rollback to the old assignor."""
    return NamedCommand("plan the rollback", context.replan(to=back_goal(context)))


def everyone(context: Context) -> str:
    """Return `every member (4)`, with the number that a gate expects where it is known."""
    count = context.expected or len(context.members)
    return f"every member ({count})" if count else "every member"


def back_goal(context: Context) -> str:
    """Return the goal (`--to`) that plans the rollback to the old assignor, which the mixed list
    keeps; where it is not known, to its rebalance protocol.
    """
    return context.keep or (COOPERATIVE if context.goal == EAGER else EAGER)


def gate_answer(context: Context, rest: Sequence[Facts], refuted: Sequence[Facts]) -> Tri:
    """Return whether a gate holds today: `rest` are the members not proven done, `refuted` those
    proven not done.
    """
    if not context.missing and not rest:
        return Tri.YES
    return Tri.NO if refuted or context.missing else Tri.CANNOT_TELL


def list_settings(
    context: Context, names: Sequence[str], members: Iterable[Facts]
) -> tuple[Setting, ...]:
    """Return the configuration of this list for each client family; it names the members if only
    some are meant.
    """
    by_family: dict[str, list[Facts]] = defaultdict(list)
    ranks: dict[str, int] = {}
    for facts in members:
        for n, key in enumerate(facts.candidates if facts.family is None else (facts.family,)):
            by_family[key].append(facts)
            # A known client comes before a guess, and the likelier guess before the other.
            rank = 0 if facts.family is not None else n + 1
            ranks[key] = min(rank, ranks.get(key, rank))
    made: list[Setting] = []
    for key in sorted(by_family, key=lambda key: (ranks[key], key)):
        mine = by_family[key]
        whole = len(mine) == len(context.members)
        named = [facts.name for facts in mine]
        notes = tuple(_notes(context, names, key, mine))
        settings = settings_for(
            key,
            names,
            context.group.group_id,
            () if whole else named,
            connector=context.sink is not None,
            classes=classes_of(context.snapshot),
        )
        made += (noted(setting, notes) for setting in settings or no_text(key, names, named))
    return tuple(made)


def _notes(
    context: Context, names: Sequence[str], family: str, members: Sequence[Facts]
) -> Iterator[str]:
    """Yield the conditions under which the text works for these clients."""
    known = known_family(family)
    for name in names if family == "java" else ():
        if java_class(name) is None and name not in classes_of(context.snapshot):
            yield f"put the class you use today for {plain(name)} in place of THE-CLASS-OF-…"
    if context.sink is not None:
        yield (
            f"set this in the configuration of connector {plain(context.sink)}; the workers need "
            "connector.client.config.override.policy=All, the default since 3.0"
        )
    if known is None or not any(cooperative(name) is Tri.YES for name in names):
        return
    since = known.cooperative_since
    if version_tuple(since) not in (None, (0,)):
        title = "kafka-clients" if family == "java" else known.title
        old = [facts for facts in members if _older(facts, family, since) is Tri.YES]
        if old:
            now = ", ".join(f"{facts.name}: {_runs(facts)}" for facts in old[:6])
            yield f"needs {title} {since} or later: upgrade in this restart ({plain(now)})"
        elif any(_older(facts, family, since) is Tri.CANNOT_TELL for facts in members):
            yield f"needs {title} {since} or later; not every version is known"
    default = len(names) > 1 and "range" in names and family == "java"
    if default and any(facts.older_than("3.0") is not Tri.NO for facts in members):
        yield "name range explicitly: it was only the default of versions before 3.0"


def _older(facts: Facts, family: str, limit: str) -> Tri:
    """Return whether the client is older; of several candidates only the first one has known
    bounds.
    """
    bounded = facts.family is not None or facts.candidates[:1] == (family,)
    return facts.older_than(limit) if bounded else Tri.CANNOT_TELL


def _runs(facts: Facts) -> str:
    software = facts.software
    return (software.version or software.version_range or "") if software else ""


def cost_of(context: Context, rest: Sequence[Facts], names: Sequence[str]) -> Cost | None:
    """Return the cost of restarting `rest` with the list `names` (empty: each with its own list);
    None without a pricing.
    """
    eager_after = any(cooperative(name) is not Tri.YES for name in names) or not names
    eager = _eager(context, names, eager_after=eager_after)
    return roll_cost(context, rest, eager, names, after=eager_after)


def roll_cost(
    context: Context,
    rest: Sequence[Facts],
    eager: Sequence[Facts],
    names: Sequence[str],
    *,
    after: bool,
) -> Cost | None:
    """Return the cost of restarting `rest` with the list `names` while `eager` run EAGER; `after`:
    a restarted member does. None without a pricing.
    """
    return by_assignors(
        Roll(
            snapshot=priced(context),
            eager_after=after,
            order=ids(rest),
            eager=ids(eager),
            target=tuple(names),
            speed=context.speed,
            pricing=context.pricing,
        )
    )


def stop_cost(context: Context, server_side: str = "") -> Cost | None:
    """Return the cost of stopping all members and starting them with the target, or in a KIP-848
    group with the coordinator's assignor `server_side`; None without a pricing.
    """
    return stop_and_start(
        priced(context),
        server_side or context.target,
        kip848=bool(server_side),
        speed=context.speed,
        pricing=context.pricing,
    )


def _eager(context: Context, names: Sequence[str], *, eager_after: bool) -> list[Facts]:
    """Return the members that run EAGER when the restarts with `names` begin."""
    last = tuple(names) == (context.target,)
    if context.goal == EAGER and eager_after and not context.only_target:
        # Before the last restart another one gives every member an EAGER assignor: Java's client
        # then runs EAGER (KIP-429, downgrade).
        return [
            facts
            for facts in context.members
            if context.runs(facts).value is RebalanceProtocol.EAGER
            or (last and context.supports(facts, context.target) is not Tri.YES)
        ]
    narrows = last and not eager_after
    return [
        facts
        for facts in context.members
        if facts not in context.settled and not (narrows and follows_vote(facts))
    ]


def priced(context: Context) -> GroupSnapshot:
    """Return the snapshot with the client families that the user assumed, for its costs.

    A family decides the timeouts that a member has not set.
    """
    return of_families(
        context.snapshot, {facts.member.member_id: facts.family for facts in context.members}
    )


def follows_vote(facts: Facts) -> bool:
    """Return whether the client's rebalance protocol is that of the elected assignor."""
    return family(facts.family).follows_vote
