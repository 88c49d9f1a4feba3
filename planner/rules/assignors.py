"""Rules on custom assignors, on applications that rely on range, and on faulty assignor lists.

With a faulty list a member's next start is rejected, or its client does not start.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Literal

from rebal.groups.model import Knowledge
from rebal.groups.protocol import class_of, disproved
from rebal.planner.advice.steps import restart_fix
from rebal.planner.clients import (
    classes_of,
    cooperative,
    custom,
    runs_cooperative,
    stops_at_repeats,
)
from rebal.planner.context import COOPERATIVE_STICKY, EAGER
from rebal.planner.rules.registry import (
    Context,
    Facts,
    Finding,
    Findings,
    Risk,
    Severity,
    Trait,
    Tri,
    found,
    goal_needs_lists,
    planning,
    rule,
    unfinished,
    upgrade,
    with_lists,
)


@rule(
    "RB111",
    Severity.BLOCK,
    "A custom assignor keeps its name on both sides of the change",
    reference="KIP-429, compatibility and migration plan (custom assignors; why two bounces)",
    applies=(planning, upgrade),
    accepts=Risk.OWN_COOPERATIVE,
)
def same_name(context: Context) -> Findings:
    """The group's custom assignor is to become cooperative without a new name.

    Why it matters: while the members are restarted, old and new code share one name. A leader with
    old code ignores the partitions that members still own, and may assign them before they are
    revoked: two owners. The two bounces exist to prevent that. With one name there is no old
    assignor that the group could agree to drop.

    How to find out: the code that a member runs is not visible from outside. A member whose
    subscription contains no owned partitions (version 0) certainly runs a client from before
    KIP-429.

    How to fix it: give the cooperative code a new name, and do the two bounces between the names.
    The new code belongs in bounce 1 of an upgrade and in bounce 2 of a downgrade. Or stop all
    members and start them with the new code. The same holds for an application's own class that
    uses the name of one of Kafka's assignors, such as cooperative-sticky: Kafka's class must not
    replace it under that name one by one.

    Cannot tell: every member's client can send owned partitions, but only a rebalance shows whether
    the leader's assignor respects them: a member that keeps its partitions when it rejoins runs the
    new code. It does not fire where all members kept theirs, nor while two bounces to a new name
    are under way.
    """
    name = context.elected
    if name is None:
        return
    if context.target in context.borrowed:
        yield from _borrowed(context)
        return
    if name != context.target or not custom(name) or len(context.settled) < len(context.members):
        return
    open_ = [facts for facts in context.members if not runs_cooperative(facts.member)]
    old = [
        facts
        for facts in open_
        if facts.member.subscription is not None and facts.member.subscription.version == 0
    ]
    if old:
        yield found(
            f"partitions can have two owners when {context.named(old)} leads: this client does not "
            f"know owned partitions, so {name} assigns partitions that other members still own.",
            members=old,
            fix=f"Upgrade these clients first, and give the new code another name than {name}.",
        )
    elif open_:
        yield found(
            f"partitions may have two owners: it is not verified that the {name} code of "
            f"{context.named(open_)} respects owned partitions. Old and new code share that name.",
            result=Tri.CANNOT_TELL,
            members=open_,
            fix="Check again after the next rebalance: members that keep partitions prove it. Or "
            "give the new code its own name and plan to that name; or, if all members run it "
            "already, accept RB111.",
            commands=[context.accepting("RB111", "all members run the new code")],
        )


def _borrowed(context: Context) -> Findings:
    """Yield findings on members whose class behind the target's name may not be Kafka's own."""
    target = context.target
    named = [
        facts
        for facts in context.members
        if context.own_class(facts, target)
        and context.supports(facts, target) is Tri.YES
        and not runs_cooperative(facts.member)
    ]
    eager = [facts for facts in named if target in disproved(facts.member)]
    named = [facts for facts in named if facts not in eager]
    if eager:
        yield found(
            f"{context.named(eager)} {'runs' if len(eager) == 1 else 'run'} EAGER: "
            f"{'it' if len(eager) == 1 else 'each'} gave up all its partitions when it rejoined, "
            f"so the class behind {target} is not Kafka's own.",
            members=eager,
            evidence=[item for f in eager if f.member.ran for item in f.member.ran.evidence],
            fix="Give the cooperative code its own name and plan to that name.",
        )
    if not named:
        return
    shown = sorted(filter(None, {class_of(facts.member, target) for facts in named}))
    yield found(
        f"{context.named(named)} may not run COOPERATIVE: the class behind {target} is "
        f"{', '.join(shown) or 'unknown'}, not Kafka's own, and its name proves nothing.",
        result=Tri.CANNOT_TELL,
        members=named,
        fix="Check again after the next rebalance: members that keep their partitions prove it. Or "
        "read its supportedProtocols(): if it returns COOPERATIVE and all members run it, accept "
        "RB111. If it returns EAGER alone, give the cooperative code its own name and plan to that "
        "name.",
        commands=[context.accepting("RB111", "it supports COOPERATIVE and all members run it")],
    )


@rule(
    "RB112",
    Severity.BLOCK,
    "The plan depends on a custom assignor whose rebalance protocols are not known",
    reference="KIP-429: ConsumerPartitionAssignor.supportedProtocols; ConsumerCoordinator.java",
    applies=(planning, goal_needs_lists),
    accepts=Risk.OWN_EAGER,
)
def custom_assignor(context: Context) -> Findings:
    """The plan would use a custom assignor beside another one, or end on it in a downgrade.

    Why it matters: a consumer whose assignors have no rebalance protocol in common fails when it is
    built. A custom assignor supports what its supportedProtocols() returns: EAGER alone unless that
    was changed. If it returns COOPERATIVE alone, a client with [range, custom] does not start. A
    plan that ends on a custom assignor ends on EAGER only if the assignor supports nothing else. A
    class of the application's own that has the name of one of Kafka's, such as range, is a custom
    assignor too.

    An upgrade to cooperative-sticky does not depend on it: cooperative-sticky supports both
    protocols, so a list of it and any other assignor starts, and runs EAGER or COOPERATIVE as the
    other one allows. Nor does a plan depend on it where a member already runs such a list.

    How to find out: read supportedProtocols() of that class. Or look at a rebalance: members that
    keep their partitions when they rejoin run COOPERATIVE, and rebal inspect shows it.

    How to fix it: if it returns EAGER (to end on it: EAGER alone), accept it with --ignore RB112
    --reason "…", which the plan records. A change of the custom assignor's own code belongs in the
    first bounce of an upgrade, and in the second one of a downgrade.
    """
    ends = [name for name in (context.target, context.keep) if name is not None]
    names = [name for name in ends if custom(name) or name in context.borrowed]
    if context.goal == EAGER and context.target in names:
        yield found(
            f"members may not run EAGER at the end of this plan: it ends on {context.target}, "
            f"{_which(context, context.target)}, and its supportedProtocols() decides.",
            result=Tri.CANNOT_TELL,
            fix="If it supports EAGER alone, accept RB112.",
            commands=[context.accepting("RB112", "it supports EAGER alone")],
        )
    elif COOPERATIVE_STICKY in {*ends} - context.borrowed or not names:
        return
    elif (context.lacking or context.unsure) and not any(
        known.knowledge is Knowledge.EXACT and {*ends} <= {*known.list}
        for known in (facts.member.assignors for facts in context.members)
    ):
        yield found(
            f"a client with [{', '.join(ends)}] may not start: both must support EAGER, or both "
            f"COOPERATIVE, and {' or '.join(names)} is {_which(context, names[0])}.",
            result=Tri.CANNOT_TELL,
            commands=[context.accepting("RB112", "both support EAGER")],
            fix="If both support EAGER, accept RB112. "
            + restart_fix(
                context,
                (*context.lacking, *context.unsure)[:1],
                tuple(ends),
                change="Or test that list on one member first.",
            ),
        )


def _which(context: Context, name: str) -> str:
    if name in context.borrowed:
        shown = classes_of(context.snapshot).get(name)
        return f"here a class that is not Kafka's own{f' ({shown})' if shown else ''}"
    return "an assignor whose protocols are not known"


@rule(
    "RB115",
    Severity.ASK,
    "Does the application need equal partitions of two topics in one member?",
    reference="Kafka: RangeAssignor (co-partitioning of topics of equal size)",
    applies=(planning, goal_needs_lists, unfinished),
    traits=(Trait.REVIEW,),
)
def co_partitioning(context: Context) -> Findings:
    """range assigns equal partition numbers of topics of equal size to the same member.

    Why it matters: joins, caches and local state that expect orders-3 and payments-3 in one process
    work with range, by accident or by design. cooperative-sticky, sticky and roundrobin do not keep
    them together. Such an application gives wrong results silently from the moment the other
    assignor is elected, which is at the end of the first bounce, not of the second.

    How to find out: does a member subscribe to two topics of equal partition count, and does the
    code look up one by the key or partition of the other?

    How to answer it: if it does, stay on range, or change the application first.
    """
    if "range" not in (context.elected, context.keep) or context.target == "range":
        return
    counts = {topic.name: topic.partitions for topic in context.snapshot.topics}
    together: set[str] = set()
    unknown: set[str] = set()
    for facts in context.members:
        topics = _topics(context, facts.member.member_id)
        sizes = Counter(counts[topic] for topic in topics if topic in counts)
        together |= {topic for topic in topics if topic in counts and sizes[counts[topic]] > 1}
        unknown |= {topic for topic in topics if topic not in counts and len(topics) > 1}
    if together:
        yield found(
            f"equal partitions of {', '.join(sorted(together))} will no longer be in one member: "
            f"range keeps them together, {context.target} does not. Does the application rely on "
            "it?",
        )
    elif unknown:
        yield found(
            "equal partitions of two topics may no longer be in one member: the partition counts "
            f"of {', '.join(sorted(unknown))} are unknown. Does the application rely on range "
            "keeping them together?",
            result=Tri.CANNOT_TELL,
        )
    elif not any(_topics(context, facts.member.member_id) for facts in context.members):
        yield found(
            "equal partitions of two topics may no longer be in one member: no evidence shows the "
            "topics. Does the application rely on range keeping them together?",
            result=Tri.CANNOT_TELL,
        )


def _topics(context: Context, member_id: str) -> set[str]:
    member = next(m for m in context.snapshot.members if m.member_id == member_id)
    listed = member.subscription.topics if member.subscription else member.subscribed_topics
    return set(listed) or set(member.assignment)


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
    """Yield a finding on each member whose configured list has `mistake` and may be rejected.

    The message ends with `sure` if the rejection at the next start is certain, else with `unsure`.
    `fix` is called with the configured list and returns the finding's fix.
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
    """Return whether `declared` may be a custom class whose assignor name is not known."""
    met = {name for facts in context.members for name in facts.member.assignors.list}
    return custom(declared) and declared != context.elected and declared not in met


def will_not_start(context: Context, finding: Finding) -> bool:
    """Return whether all members of a finding are configured with eager and cooperative assignors.

    A client that rejects mixed lists does not start with such a list, whatever the path is.
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
