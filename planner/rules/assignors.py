"""Custom assignors whose protocols no name shows, and applications that need what range does."""

from collections import defaultdict
from collections.abc import Sequence

from rebal.groups.classes import class_of, disproved
from rebal.groups.model import Knowledge
from rebal.planner.advice.steps import restart_fix
from rebal.planner.clients import classes_of, custom, runs_cooperative
from rebal.planner.context import COOPERATIVE_STICKY, EAGER
from rebal.planner.rules.registry import Context, Findings, Risk, Severity, Trait, Tri, found, rule
from rebal.planner.rules.scope import by_lists, planning, unfinished, upgrade


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
    done = len(context.settled) == len(context.members)
    if name != context.target or not custom(name) or not done:
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
    """Yield a finding on members whose target by name is a class that is not Kafka's own."""
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
    applies=(planning, by_lists),
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
    known = not custom(context.target) and context.target not in context.borrowed
    if context.goal == EAGER and not known:
        yield found(
            f"members may not run EAGER at the end of this plan: it ends on {context.target}, "
            f"{_which(context, context.target)}, and its supportedProtocols() decides.",
            result=Tri.CANNOT_TELL,
            fix="If it supports EAGER alone, accept RB112.",
            commands=[context.accepting("RB112", "it supports EAGER alone")],
        )
    elif COOPERATIVE_STICKY in {*ends} - context.borrowed or not _not_kafkas(context, ends):
        return
    elif (context.lacking or context.unsure) and not _runs_somewhere(context, ends):
        yield found(
            f"a client with [{', '.join(ends)}] may not start: both must support EAGER, or both "
            f"COOPERATIVE, and {_unknown(context, ends)}.",
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


def _not_kafkas(context: Context, ends: Sequence[str]) -> list[str]:
    return [name for name in ends if custom(name) or name in context.borrowed]


def _unknown(context: Context, ends: Sequence[str]) -> str:
    names = _not_kafkas(context, ends)
    return f"{' or '.join(names)} is {_which(context, names[0])}"


def _which(context: Context, name: str) -> str:
    if name in context.borrowed:
        shown = classes_of(context.snapshot).get(name)
        return f"here a class that is not Kafka's own{f' ({shown})' if shown else ''}"
    return "an assignor whose protocols are not known"


def _runs_somewhere(context: Context, ends: Sequence[str]) -> bool:
    """Return whether a member is known to run a list with all of these."""
    known = (facts.member.assignors for facts in context.members)
    return any(one.knowledge is Knowledge.EXACT and set(ends) <= set(one.list) for one in known)


@rule(
    "RB115",
    Severity.ASK,
    "Does the application need equal partitions of two topics in one member?",
    reference="Kafka: RangeAssignor (co-partitioning of topics of equal size)",
    applies=(planning, by_lists, unfinished),
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
    moving = "range" in (context.elected, context.keep) and context.target != "range"
    if not moving:
        return
    counts = {topic.name: topic.partitions for topic in context.snapshot.topics}
    together: set[str] = set()
    unknown: set[str] = set()
    for facts in context.members:
        by_size = defaultdict(set)
        for topic in _topics(context, facts.member.member_id):
            by_size[counts.get(topic)].add(topic)
        several = sum(map(len, by_size.values())) > 1
        unknown |= by_size.pop(None, set()) if several else set()
        for same in by_size.values():
            together |= same if len(same) > 1 else set()
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
