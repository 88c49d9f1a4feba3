"""RB108: an eager-only list in a group that runs a cooperative assignor."""

from __future__ import annotations

from collections.abc import Iterator

from rebal.groups.model import Tri
from rebal.planner.context import Context
from rebal.planner.plan import Finding, Severity
from rebal.planner.rules.next_start import Mistake, next_starts
from rebal.planner.rules.registry import Trait, found, rule


@rule(
    "RB108",
    Severity.BLOCK,
    "An eager-only list is about to join a cooperative group",
    reference="KIP-429, compatibility and migration plan (downgrade); twmb/franz-go#384, #1367",
    traits={Trait.NEXT_START},
)
def straight_back(context: Context) -> Iterator[Finding]:
    """A member's next start uses eager assignors only, while the group runs a cooperative one.

    Why it matters: this is what a hasty roll-back does. In groups of Java, librdkafka or
    kafka-python members that are on [cooperative-sticky] nothing is common with an eager-only
    list: the member is refused and stops. In franz-go groups of mixed lists the vote flips to the
    eager assignor instead, and for a while a partition can have two owners.

    How to find out: read the configuration of the next start (--inventory), and what an automatic
    roll-back of the deployment would bring back.

    How to fix it: a downgrade takes two bounces as well: first every member on
    [old, cooperative-sticky], and only then [old].
    """
    for start in next_starts(context, Mistake.STRAIGHT_BACK):
        yes = start.refused is Tri.YES
        why = "it will be refused" if yes else "whether all others still support one is not known"
        yield found(
            f"the next start of {start.facts.name} uses [{', '.join(start.list)}], eager only, "
            f"while the group runs {context.elected}: {why}.",
            result=start.refused,
            members=(start.facts,),
            fix=f"Use [{', '.join([*start.list, str(context.elected)])}] until every member has "
            "it.",
        )
