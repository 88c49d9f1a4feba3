"""The instructions for the restarts of a step, with notes on static members and on Kubernetes
workloads, and the commands for these.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Final

from rebal.groups.commands import Command, option
from rebal.groups.model import KubernetesWorkload
from rebal.planner.advice.wording import ONE_BY_ONE
from rebal.planner.commands import NamedCommand
from rebal.planner.context import Context, Facts
from rebal.planner.facts import listed

_WORKLOADS: Final = 2
_NO_SURGE: Final = (None, "0", "0%")


def order_of(context: Context, rest: Sequence[Facts], *, by_lists: bool = True) -> Iterator[str]:
    """Yield the instructions for restarting `rest` one by one.

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
    by_limit: dict[str, list[str]] = defaultdict(list)
    for workload, surge in _workloads(rest).items():
        limit = f"; set maxSurge 0 and maxUnavailable 1 (maxSurge is {surge})"
        by_limit["" if surge in _NO_SURGE else limit].append(f"{workload.kind} {workload.name}")
    for limit, named in by_limit.items():
        yield f"{listed(named, _WORKLOADS)}: pause autoscaler and GitOps sync{limit}"


def request_log(context: Context) -> tuple[NamedCommand, ...]:
    """Return the commands that switch the coordinator's request log on and off: it shows the list
    of every join (KIP-412).
    """
    coordinator = context.group.coordinator
    return tuple(context.given.request_log(coordinator.broker_id if coordinator else None))


def commands_of(context: Context, rest: Sequence[Facts]) -> Iterator[NamedCommand]:
    """Yield the commands for restarting `rest` where members choose by their lists: those of the
    request log where a restart shows a list that is not known, and those of their workloads.
    """
    if rest and context.unsure and not all(facts.static for facts in context.members):
        yield from request_log(context)
    yield from of_workloads(rest)


def of_workloads(rest: Sequence[Facts]) -> Iterator[NamedCommand]:
    """Yield the commands that try a change on one pod of each Kubernetes workload, and undo it."""
    for workload in _workloads(rest):
        space = option("-n", workload.namespace) if workload.namespace else ()
        target = f"{workload.kind.lower()}/{workload.name}"

        def kubectl(use: str, *words: str, space: tuple[str, ...] = space) -> NamedCommand:
            return NamedCommand(use, Command("kubectl", *space, *words))

        if workload.kind == "Deployment":
            yield kubectl(
                f"one canary: as soon as its first new pod has started, pause {target}",
                *("rollout", "pause", target),
            )
            yield kubectl(
                f"when that pod owns partitions, resume {target}", "rollout", "resume", target
            )
        elif workload.kind == "StatefulSet":
            patch = '{"spec":{"updateStrategy":{"rollingUpdate":{"partition":0}}}}'
            yield kubectl(
                "one canary: before the change set rollingUpdate.partition to the number of its "
                f"last pod; when that pod owns partitions, resume {target}",
                *("patch", target, "-p", patch),
            )
        if workload.kind in ("Deployment", "StatefulSet", "DaemonSet"):
            yield kubectl(
                f"to roll back, once (twice goes straight to the old list, RB108), undo {target}",
                *("rollout", "undo", target),
            )


def _workloads(members: Sequence[Facts]) -> dict[KubernetesWorkload, str | None]:
    """Return the Kubernetes workloads of these members, each with its maxSurge."""
    files = (facts.member.declared for facts in members)
    return {
        declared.evidence.workload: declared.max_surge
        for declared in files
        if declared is not None and declared.evidence.workload is not None
    }
