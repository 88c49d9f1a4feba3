"""Parts of the steps of every path: gate, configuration text, cost, restart instructions.

`over_a_stop` makes a whole step in which every member stops before the first one starts again. An
Empty group is replaced, whatever its type, and admits any assignor list, so nothing is rejected;
committed offsets stay. Nothing is consumed meanwhile, so the operator must agree first. In a group
without members only the start is left, and there is nothing to agree on.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from rebal.groups.clients import family, version_tuple
from rebal.groups.commands import Command, option
from rebal.groups.model import (
    GroupSnapshot,
    KubernetesWorkload,
    Member,
    RebalanceProtocol,
    Record,
    Software,
    Tri,
)
from rebal.planner.advice.wording import (
    ALL_AT_ONCE,
    BACK_OVER_STOP,
    ONE_BY_ONE,
    STOP_THEN_START,
    start_all,
)
from rebal.planner.clients import classes_of, cooperative
from rebal.planner.commands import AGREED, NamedCommand
from rebal.planner.context import COOPERATIVE, EAGER, Context, Facts, ids
from rebal.planner.facts import listed
from rebal.planner.kip848 import Answer, allows, needed
from rebal.planner.plan import Aim, Cost, Gate, PathKind, Risk, Setting, Step, StepKind
from rebal.planner.rehearsal.costs.start import Roll
from rebal.planner.rehearsal.costs.steps import by_assignors, stop_and_start, wait_for_empty_text
from rebal.planner.settings import java_class, no_text, noted, plain, settings_for
from rebal.planner.timeouts import with_brokers_sessions, with_families
from rebal.planner.verdict import reasons

_KIP_429: Final = "rebalance-total, failed-rebalance-total and last-rebalance-seconds-ago"
_JAVA: Final = ("java", "streams")
_ALL_PODS: Final = '{"spec":{"updateStrategy":{"rollingUpdate":{"partition":0}}}}'


_STARTED: Final = Cost(
    rebalances=1,
    partitions_stopped=0,
    partitions_moved=0,
    text="nothing is consumed until the first members have joined",
)


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
    """Return a step's gate: the command that checks it, and the state that the command `shows`.

    The command is `rebal verify` if there is a plan file, else `rebal plan-upgrade` on fresh
    evidence. `needs` is the evidence that the gate needs. `holds` is whether it holds now and `aim`
    is the step's change. `by_hand` is what the operator must check if no evidence shows it; `rebal
    verify` then accepts a confirmation. Each gate names the client metrics to watch.
    """
    confirm = (f"{by_hand}; then confirm it with --confirm",) if by_hand else ()
    return Gate(
        command=context.given.verify() if context.given.plan is not None else context.replan(),
        shows=shows,
        needs=(*needs, *_metrics_lines(context), *confirm),
        holds=holds,
        aim=aim,
        by_hand=by_hand,
    )


def _metrics_lines(context: Context) -> tuple[str, ...]:
    """Return sentences on the metrics to watch, by client (Java's for an unknown client)."""
    families = {context.client or facts.family for facts in context.members} or {None}
    workers = "connect" in families or context.group.protocol_type == "connect"
    others = sorted(filter(None, families - {*_JAVA, "librdkafka"}))
    return reasons(
        (
            workers,
            f"watch in each restarted worker: {_KIP_429} (connect-coordinator-metrics, KIP-429), "
            "and connect-protocol (connect-worker-rebalance-metrics)",
        ),
        (
            not workers and families & {*_JAVA, None},
            f"watch in each restarted client: {_KIP_429} (consumer-coordinator-metrics, KIP-429)",
        ),
        (
            not workers and "librdkafka" in families,
            "watch in each restarted librdkafka client, which has no KIP-429 metrics: "
            "rebalance_cnt and rebalance_age (cgrp in its statistics, statistics.interval.ms)",
        ),
        (
            not workers and others,
            f"{_KIP_429} (KIP-429) exist in Java clients only: for {' and '.join(others)} watch "
            "its own rebalance metrics, or the joins in --request-log",
        ),
    )


def again(context: Context) -> NamedCommand:
    """Return the command that plans the rollback to the old assignor."""
    return NamedCommand("plan the rollback", context.replan(to=back_goal(context)))


def everyone(context: Context) -> str:
    """Return `every member (4)`, with the expected number of members, else the present number."""
    count = context.expected or len(context.members)
    return f"every member ({count})" if count else "every member"


def back_goal(context: Context) -> str:
    """Return the value of `--to` that plans the rollback.

    It is the old assignor or, if that is not known, its protocol.
    """
    return context.keep or (COOPERATIVE if context.goal == EAGER else EAGER)


def gate_answer(context: Context, rest: Sequence[Facts], refuted: Sequence[Facts]) -> Tri:
    """Return whether a step's gate holds now.

    `rest` are the members that are not proven done, `refuted` those that are proven not done. Yes
    if `rest` is empty and no expected member is missing. No if `refuted` is not empty or an
    expected member is missing. Otherwise cannot tell.
    """
    if not context.missing and not rest:
        return Tri.YES
    return Tri.NO if refuted or context.missing else Tri.CANNOT_TELL


def list_settings(
    context: Context, names: Sequence[str], members: Iterable[Facts], *, narrows: bool = False
) -> tuple[Setting, ...]:
    """Return the configuration of the assignor list `names` for each client family.

    A text names its members if it is not meant for all members of the group. `narrows` is True if
    `names` is the list of the second bounce, in which no client is upgraded (RB111).
    """
    by_family: dict[str, list[Facts]] = defaultdict(list)
    ranks: dict[str, int] = {}
    for facts in members:
        # A known client comes before a guess, and the likelier guess before the other.
        for rank, key in enumerate(facts.guesses, 0 if facts.family is not None else 1):
            by_family[key].append(facts)
            ranks[key] = min(rank, ranks.get(key, rank))
    made: list[Setting] = []
    for key in sorted(by_family, key=lambda key: (ranks[key], key)):
        mine = by_family[key]
        named = [facts.name for facts in mine]
        notes = tuple(_notes(context, names, key, mine, narrows=narrows))
        settings = settings_for(
            key,
            names,
            context.group.group_id,
            () if len(mine) == len(context.members) else named,
            connector=context.sink is not None,
            classes=classes_of(context.snapshot),
        )
        made += (noted(setting, notes) for setting in settings or no_text(key, names, named))
    return tuple(made)


def _notes(
    context: Context, names: Sequence[str], key: str, members: Sequence[Facts], *, narrows: bool
) -> Iterator[str]:
    """Yield notes for the configuration text: the client versions and settings that it needs.

    `key` is the client family. `narrows` is True for the second bounce: its notes ask for no
    upgrade, because an earlier step has upgraded the clients.
    """
    known = classes_of(context.snapshot)
    yield from (
        f"put the class you use today for {plain(name)} in place of THE-CLASS-OF-…"
        for name in names
        if key == "java" and java_class(name) is None and name not in known
    )
    if context.sink is not None:
        yield (
            f"set this in the configuration of connector {plain(context.sink)}; the workers need "
            "connector.client.config.override.policy=All, the default since 3.0"
        )
    if not any(cooperative(name) is Tri.YES for name in names):
        return
    since = family(key).cooperative_since
    if version_tuple(since) not in (None, (0,)):
        needs = f"needs {'kafka-clients' if key == 'java' else family(key).title} {since} or later"
        # Of several candidates only the first one has known bounds.
        bounded = [f for f in members if f.family is not None or f.candidates[:1] == (key,)]
        old = [facts for facts in bounded if facts.older_than(since) is Tri.YES]
        if old:
            runs = ((facts.name, facts.software or Software()) for facts in old[:6])
            now = ", ".join(f"{name}: {o.version or o.version_range or ''}" for name, o in runs)
            yield needs if narrows else f"{needs}: upgrade in this restart ({plain(now)})"
        elif not all(f in bounded and f.older_than(since) is Tri.NO for f in members):
            yield f"{needs}; not every version is known"
    if (
        len(names) > 1
        and "range" in names
        and key == "java"
        and any(facts.older_than("3.0") is not Tri.NO for facts in members)
    ):
        yield "name range explicitly: it was only the default of versions before 3.0"


def cost_of(context: Context, rest: Sequence[Facts], names: Sequence[str]) -> Cost | None:
    """Return the cost of restarting `rest` with the list `names`; None if costs are not computed.

    If `names` is empty, each member restarts with the list it has.
    """
    after = any(cooperative(name) is not Tri.YES for name in names) or not names
    return roll_cost(context, rest, _eager(context, names, eager_after=after), names, after=after)


def roll_cost(
    context: Context,
    rest: Sequence[Facts],
    eager: Sequence[Facts],
    names: Sequence[str],
    *,
    after: bool,
) -> Cost | None:
    """Return the cost of restarting `rest` with the list `names`; None if costs are not computed.

    `eager` are the members that run EAGER before their restart. `after` is True if the members that
    have been restarted run EAGER too.
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
    """Return the cost of stopping all members and starting them; None if costs are not computed.

    If `server_side` is empty, they start with the plan's target as their assignor. Otherwise they
    start in a KIP-848 group, where the coordinator assigns with `server_side`.
    """
    return stop_and_start(
        priced(context),
        server_side or context.target,
        kip848=bool(server_side),
        speed=context.speed,
        pricing=context.pricing,
    )


def _eager(context: Context, names: Sequence[str], *, eager_after: bool) -> list[Facts]:
    """Return the members that, in a step with the list `names`, run EAGER until they are restarted.

    `eager_after` says whether they run EAGER after their restart too. The last step is the one
    whose `names` is the target alone.

    In a change to EAGER that removes cooperative assignors only (not `context.only_target`), with
    `eager_after`: the members that run EAGER now, and for the last step also those that an earlier
    step gives the target. In any other case: the members that are not done, or all members if the
    target is not cooperative. Without `eager_after` the last step leaves out clients that follow
    the elected assignor and those that reject mixed lists: by then they no longer run EAGER.
    """
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
    cooperates = cooperative(context.target) is Tri.YES
    return [
        facts
        # Members that have an eager target already stop too.
        for facts in (context.ahead if cooperates else context.members)
        # Those that reject mixed lists were stopped, and run the target alone by then.
        if eager_after or not last or not (follows_vote(facts) or facts in context.unmixable)
    ]


def priced(context: Context) -> GroupSnapshot:
    """Return the snapshot with the client families that the user assumed, to compute costs from.

    A family decides the timeouts that a member has not set.
    """
    return with_families(
        context.snapshot, {facts.member.member_id: facts.family for facts in context.members}
    )


def follows_vote(facts: Facts) -> bool:
    """Return whether the client runs the protocol of the elected assignor, as franz-go does."""
    return family(facts.family).follows_vote


def order_of(context: Context, rest: Sequence[Facts], *, by_lists: bool = True) -> Iterator[str]:
    """Yield sentences on how to restart the members `rest` of a step, one by one.

    `by_lists` is True if the assignor is elected by the members' lists. If so, and if all static
    members can return within their sessions, a sentence says that a static member's restart causes
    a rebalance only if another assignor is elected.
    """
    if not rest:
        return
    yield ONE_BY_ONE
    static = [facts for facts in rest if facts.static]
    if static:
        quiet = ""
        if by_lists and all(facts.back_in_time(context.speed) for facts in static):
            quiet = "rebalances only if another assignor is elected, check its new id (RB109); "
        yield f"static ({context.named(static, 3)}): {quiet}never two processes with one id"
    by_limit: dict[str, list[str]] = defaultdict(list)
    for workload, surge in _workloads(rest).items():
        limit = f"; set maxSurge 0 and maxUnavailable 1 (maxSurge is {surge})"
        by_limit["" if surge in (None, "0", "0%") else limit].append(
            f"{workload.kind} {workload.name}"
        )
    for limit, named in by_limit.items():
        yield f"{listed(named, 2)}: pause autoscaler and GitOps sync{limit}"


def commands_of(context: Context, rest: Sequence[Facts]) -> Iterator[NamedCommand]:
    """Yield the commands for restarting `rest` in a group whose members choose by assignor lists.

    They switch the request log on and off if a restart can show an unknown list, and try the change
    on one pod of each Kubernetes workload.
    """
    if rest and context.unsure and not all(facts.static for facts in context.members):
        yield from context.given.request_log(context.group.coordinator_id)
    yield from of_workloads(rest)


def of_workloads(rest: Sequence[Facts]) -> Iterator[NamedCommand]:
    """Yield kubectl commands that try a change on one pod of each workload, and that undo it."""
    for workload in _workloads(rest):
        space = option("-n", workload.namespace) if workload.namespace else ()
        target = f"{workload.kind.lower()}/{workload.name}"
        undo = (
            f"to roll back, once (twice goes straight to the old list, RB108), undo {target}",
            ("rollout", "undo", target),
        )
        ways = {
            "Deployment": (
                (
                    f"one canary: as soon as its first new pod has started, pause {target}",
                    ("rollout", "pause", target),
                ),
                (f"when that pod owns partitions, resume {target}", ("rollout", "resume", target)),
                undo,
            ),
            "StatefulSet": (
                (
                    "one canary: before the change set rollingUpdate.partition to the number of "
                    f"its last pod; when that pod owns partitions, resume {target}",
                    ("patch", target, "-p", _ALL_PODS),
                ),
                undo,
            ),
            "DaemonSet": (undo,),
        }
        for use, words in ways.get(workload.kind, ()):
            yield NamedCommand(use, Command("kubectl", *space, *words))


def _workloads(members: Sequence[Facts]) -> dict[KubernetesWorkload, str | None]:
    return {
        declared.evidence.workload: declared.max_surge
        for declared in (facts.member.declared for facts in members)
        if declared is not None and declared.evidence.workload is not None
    }


def over_a_stop(
    context: Context,
    *,
    how: str,
    gate: Gate,
    back: str,
    config: tuple[Setting, ...],
    why: tuple[str, ...],
    risk: Risk = Risk.STOP,
    whom: str = "member",
    target_list: tuple[str, ...] = (),
    answers: Sequence[Answer] = (),
    closed: Sequence[Answer] = (),
    prepare: tuple[str, ...] = (),
    first: str = "",
    done: Sequence[Facts] = (),
    commands: Iterable[NamedCommand] = (),
    cost: Cost | None = None,
    exit_code: int = 0,
) -> Step:
    """Return the step that stops every member and starts all again; `how` names the change.

    `back` is the configuration that a rollback starts them with, `risk` the risk that the operator
    accepts. `answers` are further conditions of the step, `closed` the conditions that rule out the
    online path. `prepare` are instructions before the stop. `first` is the effect of a member that
    joins first with the wrong configuration. `whom` is the word for a member. `done` are members
    that need no change.
    """
    members = with_brokers_sessions(context.snapshot)
    online = f"the online path is closed: {'; '.join(each.why for each in closed)}"
    return Step(
        id=1,
        title=STOP_THEN_START.format(whom=whom, how=how)
        if members
        else f"The group has no members: {start_all(how)}",
        kind=StepKind.CUT_OVER,
        precondition=needed(answers, agreed(risk) if members else "the group is Empty"),
        precondition_holds=Tri.NO if members else allows(answers),
        config=config,
        target_list=target_list,
        why=(*((online,) if closed else ()), *why, *((first,) if first and members else ())),
        order=(*prepare, stop_all(members) if members else start_all(how, first)),
        to_do=ids(facts for facts in context.members if facts not in done),
        done=ids(done),
        gate=gate,
        rollback=BACK_OVER_STOP.format(change=back),
        commands=(*(stopping(context, risk) if members else ()), *commands),
        cost=cost if members else _STARTED,
        exit_code=exit_code,
    )


def stop_all(members: Sequence[Member]) -> str:
    """Return the instruction to stop all members of the group and then start them."""
    return ALL_AT_ONCE.format(empty=wait_for_empty_text(members))


def agreed(risk: Risk) -> str:
    """Return the precondition of a step that stops the whole group: an agreed interruption."""
    return f"an interruption is agreed (accepting {risk} records by whom)"


def stopping(context: Context, risk: Risk) -> tuple[NamedCommand, ...]:
    """Return the commands of a stop of all members.

    One command records that the operator accepts `risk`; the other shows whether the group is
    Empty.
    """
    return (
        context.accepting(risk, AGREED),
        NamedCommand("see the group's state", context.given.look(context.group.group_id)),
    )
