"""What static members do not do at a restart, and how to make an unused list take effect."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rebal.planner.context import Context, Facts
from rebal.planner.rehearsal.costs.timeouts import back_in_time, in_words, of_family


def static_lines(context: Context, static: Sequence[Facts]) -> Iterator[str]:
    """Lines for the order of a step in which these static members restart; none for none."""
    if not static:
        return
    named = context.named(static)
    yield (
        f"static ({named}): a restart within session.timeout.ms causes no rebalance, unless the "
        "vote itself changes: the new list lies unused, nobody else joins again, and a new "
        "subscription is not served. Look for its new member id and its list; do not wait for a "
        "rebalance (RB109)"
    )
    yield (
        "to make an unused list take effect: Consumer.enforceRebalance() where the application "
        f"exposes it (KIP-568, Java from 2.5; costs one rebalance{_stops(context)})"
    )
    own = in_words([of_family(facts.member, facts.family) for facts in static])
    yield (
        f"or keep one of them stopped for longer than session.timeout.ms ({own}; costs a rebalance "
        "when it is given up and one when it comes back, and its partitions stand still until the "
        "first)"
    )
    restart = context.speed.restart
    late = [
        facts
        for facts in static
        if not back_in_time(of_family(facts.member, facts.family), restart)
    ]
    if late:
        yield (
            f"a restart of {restart:g} s is longer than the session of {context.named(late)}: the "
            "group gives such a member up and rebalances, and again when it is back"
        )
    yield "never run two processes with one instance id (no surge): the newer fences the older"


def _stops(context: Context) -> str:
    if context.settled:
        return ", at which the members that run EAGER stop all they own"
    return ", at which every EAGER member stops all it owns"
