"""RB405: settings of the classic protocol that a KIP-848 client refuses."""

from __future__ import annotations

from collections.abc import Iterator

from rebal.planner.context import Context
from rebal.planner.plan import Finding, Severity
from rebal.planner.rules.registry import Trait, found, rule


@rule(
    "RB405",
    Severity.BLOCK,
    "A configuration with group.protocol=consumer still has classic settings",
    reference="KIP-848; Kafka: docs/operations/consumer-rebalance-protocol; Wolverine#3486",
    traits={Trait.NEXT_START},
)
def classic_settings(context: Context) -> Iterator[Finding]:
    """The client refuses to be built with group.protocol=consumer and any of three settings.

    Why it matters: partition.assignment.strategy, session.timeout.ms and heartbeat.interval.ms
    are the broker's business in KIP-848, and clients fail at start when they are set. A restart
    of such a member is a crash loop.

    How to find out: read the configuration of the next start (--inventory), and what frameworks
    and defaults of the service's own set beside it.

    How to fix it: remove the three settings in the same change that sets group.protocol=consumer.
    The list's place is taken by group.remote.assignor, the timeouts' by the broker's
    group.consumer.session.timeout.ms and group.consumer.heartbeat.interval.ms.

    Does not fire while the configuration does not say consumer: there the settings are right.
    """
    for facts in context.members:
        declared = facts.member.declared
        if declared is None or declared.group_protocol != "consumer":
            continue
        left = [
            *(["partition.assignment.strategy"] if declared.list else []),
            *declared.classic_only,
        ]
        if left:
            yield found(
                f"the next start of {facts.name} has group.protocol=consumer and still sets "
                f"{', '.join(left)}: the client will not start.",
                members=(facts,),
                evidence=(declared.evidence,),
                fix=f"Remove {', '.join(left)}.",
            )
