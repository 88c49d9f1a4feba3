"""RB111: new code of a custom assignor under its old name."""

from rebal.groups.classes import class_of, disproved
from rebal.planner.clients import custom, runs_cooperative
from rebal.planner.rules.registry import Context, Findings, Risk, Severity, Tri, found, rule
from rebal.planner.rules.scope import planning, upgrade


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
    if name != context.target or not custom(name):
        return
    if len(context.settled) < len(context.members):
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
