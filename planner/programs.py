"""Facts about Kafka Streams programs and Connect workers, for their paths and gates.

Their assignor lists show little: Streams always has [stream], and every worker offers `default`.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from rebal.groups.model import GroupState, Knowledge, RebalanceProtocol, Source, Tri
from rebal.groups.streams import (
    COOPERATIVE_SINCE,
    EAGER_UNTIL,
    EAGER_VALUES,
    user_data_of,
)
from rebal.planner.context import EAGER, Context, Facts
from rebal.planner.plan import Aim, Step
from rebal.planner.verdict import opposite

INCREMENTAL: Final = ("compatible", "sessioned")
"""Connect's incremental protocols; below them is `default`, which every worker offers."""


def running(
    context: Context, protocol: RebalanceProtocol, members: Iterable[Facts] | None = None
) -> list[Facts]:
    """Return the `members` (default: all) that run `protocol`."""
    asked = context.members if members is None else members
    return [facts for facts in asked if context.runs(facts).value is protocol]


def below_cooperative(context: Context, facts: Facts) -> Tri:
    """Return whether this instance is older than 2.4, the first release with COOPERATIVE.

    One whose own log is bound to its member id is not: earlier releases print no such line.
    """
    if context.runs(facts).value is RebalanceProtocol.COOPERATIVE:
        return Tri.NO
    answer, ran = facts.older_than(COOPERATIVE_SINCE), facts.member.ran
    printed = ran is not None and any(e.source is Source.CLIENT_LOG for e in ran.evidence)
    return Tri.NO if answer is Tri.CANNOT_TELL and printed else answer


def above_eager(context: Context, facts: Facts) -> Tri:
    """Return whether this instance is 4.0 or later, which no instance that runs EAGER is.

    Those do not start with an upgrade.from of 2.3 or less.
    """
    answer = opposite(facts.older_than(EAGER_UNTIL))
    eager = context.runs(facts).value is RebalanceProtocol.EAGER
    return Tri.NO if answer is Tri.CANNOT_TELL and eager else answer


def _is_cooperative(context: Context, facts: Facts) -> Tri:
    return Tri.YES if context.runs(facts).value is RebalanceProtocol.COOPERATIVE else Tri.NO


_EXCLUDED: Final[Mapping[Aim, tuple[Callable[[Context, Facts], Tri], str]]] = {
    Aim.STREAMS_COOPERATIVE: (below_cooperative, "versions below 2.4 have no COOPERATIVE"),
    Aim.STREAMS_EAGER: (above_eager, "versions from 4.0 on have no EAGER"),
    Aim.STREAMS_OLD: (_is_cooperative, "no version below 2.4 may run beside COOPERATIVE members"),
}


def excluded(context: Context, aim: Aim) -> dict[Tri, list[Facts]]:
    """Return the members of a version or a protocol that a step of `aim` excludes, by answer."""
    asked, _ = _EXCLUDED.get(aim, (None, ""))
    answers = [(asked(context, each) if asked else Tri.NO, each) for each in context.members]
    return {answer: [facts for each, facts in answers if each is answer] for answer in Tri}


def hindered(context: Context, step: Step, *, first: bool) -> tuple[Tri, str]:
    """Return whether a member excludes a restart of `step`, and why; a version that nothing shows
    counts in the `first` step alone, since what follows is of its versions.
    """
    by = excluded(context, step.aim)
    if by[Tri.YES]:
        return Tri.YES, f"{_EXCLUDED[step.aim][1]}: {context.named(by[Tri.YES])}"
    if by[Tri.CANNOT_TELL] and first:
        return Tri.CANNOT_TELL, f"the version of {context.named(by[Tri.CANNOT_TELL])} is not known"
    return Tri.NO, ""


def comes_from(facts: Facts) -> str:
    """Return the value of upgrade.from for an upgrade from this instance's version.

    The version is known exactly or from the user data. 2.0 to 2.3 have the same effect.
    """
    version = facts.version or ""
    fits = [value for value in EAGER_VALUES if version == value or version.startswith(f"{value}.")]
    if fits:
        return fits[-1]
    data = user_data_of(facts.member.subscription)
    form = data.version if data is not None and data.latest is None else 0
    return {1: EAGER_VALUES[0], 2: "1.1"}.get(form, EAGER_VALUES[-1])


def offers(context: Context, facts: Facts, protocols: Sequence[str]) -> Tri:
    """Return whether this Connect worker offers one of `protocols`: its join or the election shows
    it.
    """
    known = facts.member.assignors
    if known.knowledge is Knowledge.EXACT:
        return Tri.YES if set(known.list) & set(protocols) else Tri.NO
    elected = context.group.assignor if context.group.state is GroupState.STABLE else None
    return Tri.YES if elected in protocols else Tri.CANNOT_TELL


def turns_eager(context: Context) -> bool:
    """Return whether all workers must stop before one starts: the group turns eager (RB507)."""
    return context.goal == EAGER and context.group.assignor in INCREMENTAL
