"""Short meanings of the report's terms; each form of it explains those that it shows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from rebal.cli.fleet import FleetGroup
from rebal.cli.render.fleet.words import path_name, verdict_text
from rebal.groups.model import RebalanceProtocol

VERDICTS: Final = {
    "ready": "the next step can start",
    "held": "ready, but a member is down or rejected and must be back first",
    "unproven": "evidence is missing",
    "blocked": "something must be done first",
}
PATHS: Final = {
    "two bounces": "two rolling restarts",
    "one bounce": "one rolling restart",
    "streams one bounce": "one rolling restart of a Streams application",
    "cut over": "all members stop together, which somebody must agree to",
}
PROTOCOLS: Final = {
    RebalanceProtocol.EAGER.value: "every rebalance stops all partitions",
    RebalanceProtocol.COOPERATIVE.value: "a rebalance stops only partitions that move",
}
INCIDENTS: Final = {
    "storm": "one rebalance after another",
    "crash loop": "a member joins and leaves again and again",
    "owns nothing": "a member without a partition",
    "hidden list": "a static member's new assignor list does not count yet",
    "session expired": "a member sent no heartbeat in time",
    "slow member": "a member passed max.poll.interval.ms",
    "duplicate instance id": "two processes with one group.instance.id",
    "recreated": "deleted and created again",
}
RATES: Final = {
    "downtime/h": "partition-seconds an hour not consumed",
    "failed": "rebalances that began and did not complete",
    "rejected": "joins rejected because no assignor is common (INCONSISTENT_GROUP_PROTOCOL)",
}
COSTS: Final = {
    "costs": "predicted downtime of the steps that are left, in partition-seconds",
    "saves/h": "downtime an hour that the change avoids",
    "pays in": "time until the savings exceed the cost",
    "RB901?": "a rule that is not verified",
}


def plan_terms(groups: Iterable[FleetGroup], *, protocols: bool) -> Mapping[str, str]:
    """Return the verdicts and paths of these groups, with `protocols` theirs too: term → meaning.

    They stand in the order of the constants above.
    """
    shown = list(groups)
    found = {name for group in shown for name in (verdict_text(group), path_name(group))}
    known = {**VERDICTS, **PATHS}
    if protocols:
        known |= PROTOCOLS
        found |= {one.readiness.plan.runs.value for one in shown if one.readiness is not None}
    return {term: meaning for term, meaning in known.items() if term in found}


def incident_terms(groups: Iterable[FleetGroup]) -> Mapping[str, str]:
    """Return the incidents of these groups: kind → meaning."""
    found = {one.kind for group in groups for one in group.history.incidents}
    return {kind: meaning for kind, meaning in INCIDENTS.items() if kind in found}


def terms_text(terms: Mapping[str, str]) -> str:
    """Return `ready: the next step can start; gone: deleted`."""
    return "; ".join(f"{term}: {meaning}" for term, meaning in terms.items())
