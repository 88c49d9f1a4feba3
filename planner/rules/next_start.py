"""Lists with which a member's next start is rejected, or with which its client does not start."""

from collections.abc import Callable, Sequence
from typing import Literal

from rebal.planner.clients import cooperative, custom, stops_at_repeats
from rebal.planner.rules.registry import (
    Context,
    Facts,
    Finding,
    Findings,
    Severity,
    Trait,
    Tri,
    found,
    rule,
)
from rebal.planner.rules.scope import with_lists

# The mistake in a list that is rejected.
_Mistake = Literal["dropped default", "straight back", "nothing common"]


def _next_starts(
    context: Context,
    mistake: _Mistake,
    *,
    sure: str,
    unsure: str,
    fix: Callable[[Sequence[str]], str],
) -> Findings:
    """Yield a finding on each member whose configured list has this mistake and would be rejected
    today, or might be: what is said behind the list where it is `sure`, and where it is `unsure`.
    """
    if not context.classic or not context.stable:
        return
    for facts in context.members:
        declared = facts.member.declared
        if declared is None or not declared.list or declared.group_protocol == "consumer":
            continue
        rejected = _rejected(context, facts, declared.list)
        if rejected is not Tri.NO and _mistake(context, facts, declared.list) == mistake:
            yes = rejected is Tri.YES
            yield found(
                f"{facts.name} {'will' if yes else 'may'} be rejected at its next start: it is "
                f"configured with [{', '.join(declared.list)}]{sure if yes else unsure}.",
                result=rejected,
                members=(facts,),
                fix=fix(declared.list),
            )


def unnamed(context: Context, declared: str) -> bool:
    """Return whether `name` may be a custom class whose assignor name is unknown."""
    met = {name for facts in context.members for name in facts.member.assignors.list}
    return custom(declared) and declared != context.elected and declared not in met


def will_not_start(context: Context, finding: Finding) -> bool:
    """Return whether all members of a finding are configured with a mixed list that their clients
    reject.

    Such members do not start, whatever the path is.
    """
    declared = {
        member.member_id: set(map(cooperative, member.declared.list))
        for member in context.snapshot.members
        if member.declared is not None
    }
    return all({Tri.YES, Tri.NO} <= declared.get(id_, set()) for id_ in finding.members)


def _rejected(context: Context, facts: Facts, names: tuple[str, ...]) -> Tri:
    others = [other for other in context.members if other is not facts]
    if context.elected in names:
        return Tri.NO
    answers = [
        {Tri.CANNOT_TELL}
        if unnamed(context, name)
        else {context.supports(other, name) for other in others}
        for name in names
    ]
    if any(answer <= {Tri.YES} for answer in answers):
        return Tri.NO
    return Tri.YES if all(Tri.NO in answer for answer in answers) else Tri.CANNOT_TELL


def _mistake(context: Context, facts: Facts, names: tuple[str, ...]) -> _Mistake:
    elected = context.elected or ""
    if cooperative(elected) is Tri.YES and all(cooperative(name) is Tri.NO for name in names):
        return "straight back"
    old_java = facts.family == "java" and facts.older_than("3.0") is not Tri.NO
    default = elected == "range" and context.target in names and old_java
    return "dropped default" if default else "nothing common"


@rule(
    "RB101",
    Severity.BLOCK,
    "The next start of a member has no assignor in common with the group",
    reference="Kafka, group coordinator: ClassicGroup.supportsProtocols; IBM/sarama#2136",
    traits={Trait.NEXT_START},
)
def nothing_common(context: Context) -> Findings:
    """A member is configured with an assignor list that the group rejects today.

    Why it matters: the coordinator admits a member only if one of its assignors is in every other
    member's list. Otherwise it rejects the join with INCONSISTENT_GROUP_PROTOCOL. A Java consumer
    stops then; other clients retry without end while their process looks alive. A crash or a
    routine restart is enough to cause this.

    How to find out: compare the configuration of the next start (--inventory) with the lists that
    the members run (--request-log, --client-log, --probe).

    How to fix it: put the elected assignor back into that list until every member has another
    assignor in common.
    """
    return _next_starts(
        context,
        "nothing common",
        sure=", and none of these assignors is in every other member's list",
        unsure=", and it is unknown whether one of these assignors is in every other member's list",
        fix=lambda _: f"Add {context.elected} to that list before the member restarts.",
    )


@rule(
    "RB103",
    Severity.BLOCK,
    "The first bounce drops range, which was only the default until now",
    reference="Kafka upgrade notes for 2.4 and 3.0 (KIP-726)",
    traits={Trait.NEXT_START},
)
def dropped_default(context: Context) -> Findings:
    """A Java client below 3.0 gets an assignor list without `range`, which the others still need.

    Why it matters: these clients use [range] while partition.assignment.strategy is not set. Once
    it is set to [cooperative-sticky], range is no longer in the list. The restarted member has no
    assignor in common with the members that were not restarted yet, and it is rejected and stops.

    How to find out: read the configuration of the next start (--inventory).

    How to fix it: name range in the first bounce, behind the target, and drop it only in the second
    one:
    partition.assignment.strategy=org.apache.kafka.clients.consumer.CooperativeStickyAssignor,\\
    org.apache.kafka.clients.consumer.RangeAssignor
    """
    left_out = " without range, the default of Java clients before 3.0, and"
    return _next_starts(
        context,
        "dropped default",
        sure=f"{left_out} members on [range] have no assignor in common with it",
        unsure=f"{left_out} it is unknown whether every other member supports {context.target}",
        fix=lambda _: f"Use [{context.target}, range] until every member holds {context.target}.",
    )


@rule(
    "RB108",
    Severity.BLOCK,
    "An eager-only list is about to join a cooperative group",
    reference="KIP-429, compatibility and migration plan (downgrade); twmb/franz-go#384, #1367",
    traits={Trait.NEXT_START},
)
def straight_back(context: Context) -> Findings:
    """A member is configured with eager assignors only, while the group runs a cooperative one.

    Why it matters: this is what a hasty rollback does. In groups of Java, librdkafka or
    kafka-python members on [cooperative-sticky], an eager-only list has no assignor in common with
    them: the member is rejected and stops. In franz-go groups with mixed lists the group elects the
    eager assignor instead, and for a while a partition can have two owners.

    How to find out: read the configuration of the next start (--inventory), and what an automatic
    rollback of the deployment would restore.

    How to fix it: a downgrade takes two bounces too: first every member on [old,
    cooperative-sticky], and only then [old].
    """
    runs = f", eager only, while the group runs {context.elected}"
    return _next_starts(
        context,
        "straight back",
        sure=runs,
        unsure=f"{runs}, and it is unknown whether all other members still support one",
        fix=lambda names: (
            f"Configure [{', '.join([*names, str(context.elected)])}] until every member has it."
        ),
    )


@rule(
    "RB122",
    Severity.WARN,
    "A configured assignor list names an assignor twice",
    reference="KIP-1161; Kafka: ConsumerPartitionAssignor.getAssignorInstances",
    traits={Trait.NEXT_START},
    applies=(with_lists,),
)
def named_twice(context: Context) -> Findings:
    """A Java member of 3.1 to 4.1 does not start with a list that names an assignor twice.

    Why it matters: the restarted member stops with "The assignor name … is used in more than one
    assignor". Clients before 3.1 do not check it; those of 4.2 and later drop the second one with a
    warning.

    How to find out: partition.assignment.strategy in the member's configuration (--inventory).

    How to fix it: name each assignor once, before the next restart.
    """
    hit = [
        facts
        for facts in context.members
        if stops_at_repeats(facts.family, facts.software)
        and (declared := facts.member.declared) is not None
        and len(declared.list) > len(set(declared.list))
    ]
    if hit:
        yield found(
            f"{context.named(hit)} {'is' if len(hit) == 1 else 'are'} configured with an assignor "
            "list that names an assignor twice: Java of 3.1 to 4.1 does not start with it.",
            members=hit,
            fix="Name each assignor once in partition.assignment.strategy.",
        )
