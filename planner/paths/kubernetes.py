"""How to roll a workload that the inventory shows in Kubernetes: pause, a canary, the rest."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

from rebal.planner.context import Facts

# As inspectors' inventory writes it: `FILE: Deployment shop/orders, container app`.
_WORKLOAD: Final = re.compile(
    r": (Deployment|StatefulSet|DaemonSet|Rollout) (?:([a-z0-9-]+)/)?([a-z0-9][a-z0-9.-]*),"
)


def kubernetes_lines(members: Sequence[Facts]) -> Iterator[str]:
    """Lines for the order of a rolling step, for each workload that these members come from."""
    found: dict[tuple[str, str, str], str | None] = {}
    for facts in members:
        declared = facts.member.declared
        match = _WORKLOAD.search(declared.evidence.detail) if declared else None
        if declared and match:
            found[match[1], match[2] or "", match[3]] = declared.max_surge
    for (kind, namespace, name), surge in found.items():
        yield from _workload(kind, namespace, name, surge)


def _workload(kind: str, namespace: str, name: str, surge: str | None) -> Iterator[str]:
    kubectl = f"kubectl -n {namespace}" if namespace else "kubectl"
    target = f"{kind.lower()}/{name}"
    where = f"Kubernetes {kind} {name}"
    yield f"{where}: first pause its autoscaler and its GitOps sync, and undo that after the gate"
    if kind == "Deployment":
        if surge not in (None, "0", "0%"):
            yield (
                f"{where}: set maxSurge 0 and maxUnavailable 1 (now maxSurge {surge}: the new pod "
                "would join before the old one has left)"
            )
        yield (
            f"one canary pod: apply the change, then {kubectl} rollout pause {target} as soon as "
            "the first new pod has started; when it is back and owns partitions, "
            f"{kubectl} rollout resume {target}"
        )
    elif kind == "StatefulSet":
        yield (
            f"one canary pod: {kubectl} patch {target} -p "
            '\'{"spec":{"updateStrategy":{"rollingUpdate":{"partition":LAST}}}}\' with the number '
            "of the last pod, then apply the change; when that pod is back and owns partitions, "
            "the same with 0"
        )
    else:
        yield f"one canary pod of {target} first, then the rest, as its controller does it"
    if kind in ("Deployment", "StatefulSet", "DaemonSet"):
        yield (
            f"to undo this step: {kubectl} rollout undo {target}, once, where the list stands in "
            "the pod's template; twice would be a direct way back (RB108)"
        )
