"""The order of restarts in a step, with notes on static members and Kubernetes workloads."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from rebal.groups.commands import Command, option
from rebal.groups.model import KubernetesWorkload
from rebal.planner.advice.wording import ONE_BY_ONE, in_order
from rebal.planner.commands import NamedCommand
from rebal.planner.context import Context, Facts
from rebal.planner.timeouts import in_words, of_family

_WORKLOADS: Final = 2


def order_of(
    context: Context, rest: Sequence[Facts], *, by_lists: bool = True
) -> Iterator[str | NamedCommand]:
    """Yield the instructions for restarting `rest` one by one, in order, and their commands;
    `by_lists` as of `how_of`.
    """
    if not rest:
        return
    static = [facts for facts in rest if facts.static]
    if context.unsure and len(static) < len(context.members):
        yield from request_log_hint(context)
    yield from in_order([facts.name for facts in rest])
    yield from static_lines(context, static if by_lists else ())
    yield from _kubernetes_lines(rest)


def how_of(context: Context, rest: Sequence[Facts], *, by_lists: bool = True) -> Iterator[str]:
    """Yield the instructions for restarting `rest` in short.

    `by_lists`: members choose by their assignor lists, so a static member's restart in time causes
    no rebalance.
    """
    if not rest:
        return
    yield ONE_BY_ONE
    static = [facts for facts in rest if facts.static]
    if static:
        in_time = by_lists and all(map(context.back_in_time, static))
        vote = "rebalances only if another assignor is elected, check its new id (RB109); "
        quiet = vote if in_time else ""
        yield f"static ({context.named(static, 3)}): {quiet}never two processes with one id"
    surges = _workloads(rest)
    for workload, surge in list(surges.items())[:_WORKLOADS]:
        limit = "" if surge in (None, "0", "0%") else f"; set maxSurge 0 (now {surge})"
        yield f"{workload.kind} {workload.name}: pause its autoscaler and GitOps sync{limit}"
    if len(surges) > _WORKLOADS:
        yield f"and {len(surges) - _WORKLOADS} more workloads in the same way"


def one_by_one(context: Context, rest: Sequence[Facts]) -> Iterator[str | NamedCommand]:
    """Yield the instructions for restarting `rest` where each restart changes that member's group
    protocol, and their commands.
    """
    if not rest:
        return
    yield from in_order([facts.name for facts in rest])
    static = [facts for facts in rest if facts.static]
    if static:
        yield (
            f"static ({context.named(static)}): it does not leave, and its restarted process takes "
            "its place at once; never run two processes with one instance id (no surge)"
        )
    yield from _kubernetes_lines(rest)


def request_log_hint(context: Context, *, to_the_end: bool = False) -> Iterator[str | NamedCommand]:
    """Yield the instruction to switch on the coordinator's request log, which shows every join's
    list (KIP-412), and its commands.

    `to_the_end`: each restart shows only the restarted member's list, so the log must stay on.
    """
    off = "the last one" if to_the_end else "it"
    shows = "each join shows its list" if to_the_end else "the rebalance shows every member's list"
    coordinator = context.group.coordinator
    yield (
        "before the first restart, switch the coordinator's request log on, and off after "
        f"{off}: {shows}"
    )
    yield from context.given.request_log(coordinator.broker_id if coordinator else None)


def static_lines(context: Context, static: Sequence[Facts]) -> Iterator[str]:
    """Yield the notes on the static members that restart in the step."""
    if not static:
        return
    named = context.named(static)
    yield (
        f"static ({named}): a restart within session.timeout.ms causes no rebalance, unless the "
        "vote itself changes: the new list is not used yet, no other member rejoins, and a new "
        "subscription is not served. Check its new member id and its list; do not wait for a "
        "rebalance (RB109)"
    )
    yield (
        "to make an unused list take effect: Consumer.enforceRebalance() where the application "
        f"exposes it (KIP-568, Java from 2.5; costs one rebalance{_stops(context)})"
    )
    own = in_words([of_family(facts.member, facts.family) for facts in static])
    yield (
        f"or keep one of them stopped for longer than session.timeout.ms ({own}; costs a rebalance "
        "when its session expires and one when it rejoins, and its partitions stop until the first)"
    )
    restart = context.speed.restart
    late = [facts for facts in static if not context.back_in_time(facts)]
    if late:
        yield (
            f"a restart of {restart:g} s is longer than the session of {context.named(late)}: the "
            "group rebalances when the session expires, and again when the member rejoins"
        )
    yield "never run two processes with one instance id (no surge): the newer fences the older"


def _stops(context: Context) -> str:
    if context.settled:
        return ", at which the members that run EAGER stop all they own"
    return ", at which every EAGER member stops all it owns"


def _kubernetes_lines(members: Sequence[Facts]) -> Iterator[str | NamedCommand]:
    """Yield the lines for each Kubernetes workload that these members come from."""
    for workload, surge in _workloads(members).items():
        yield from _workload(workload, surge)


def _workloads(members: Sequence[Facts]) -> dict[KubernetesWorkload, str | None]:
    """Return the Kubernetes workloads of these members, each with its maxSurge."""
    files = (facts.member.declared for facts in members)
    return {
        declared.evidence.workload: declared.max_surge
        for declared in files
        if declared is not None and declared.evidence.workload is not None
    }


def _workload(workload: KubernetesWorkload, surge: str | None) -> Iterator[str | NamedCommand]:
    kind = workload.kind
    space = option("-n", workload.namespace) if workload.namespace else ()
    target = f"{kind.lower()}/{workload.name}"

    def rollout(verb: str) -> NamedCommand:
        return NamedCommand(f"{verb} {target}", Command("kubectl", *space, "rollout", verb, target))

    where = f"Kubernetes {kind} {workload.name}"
    yield f"{where}: first pause its autoscaler and its GitOps sync, and undo that after the gate"
    if kind == "Deployment":
        if surge not in (None, "0", "0%"):
            yield (
                f"{where}: set maxSurge 0 and maxUnavailable 1 (now maxSurge {surge}: the new pod "
                "would join before the old one has left)"
            )
        yield (
            f"one canary pod of {target}: apply the change, then pause the roll-out as soon as the "
            "first new pod has started; when it is back and owns partitions, resume it"
        )
        yield from map(rollout, ("pause", "resume"))
    elif kind == "StatefulSet":
        yield (
            f"one canary pod of {target}: set spec.updateStrategy.rollingUpdate.partition to the "
            "number of the last pod, then apply the change; when that pod is back and owns "
            "partitions, set it to 0"
        )
        patch = '{"spec":{"updateStrategy":{"rollingUpdate":{"partition":0}}}}'
        yield NamedCommand(
            f"resume {target}", Command("kubectl", *space, "patch", target, "-p", patch)
        )
    else:
        yield f"one canary pod of {target} first, then the rest, as its controller does it"
    if kind in ("Deployment", "StatefulSet", "DaemonSet"):
        yield (
            f"to roll this step back, undo the roll-out of {target} once, if the list is in the "
            "pod template; twice would go straight back to the old list (RB108)"
        )
        yield rollout("undo")
