"""Members whose client library is not known, or only inferred."""

from rebal.planner.context import CONSUMER
from rebal.planner.rules.registry import Context, Facts, Findings, Severity, Trait, Tri, found, rule
from rebal.planner.rules.scope import ahead, classic, planning, stable


@rule(
    "RB906",
    Severity.BLOCK,
    "A member's client library is not known",
    reference="KIP-511 (client name and version); hazards RB104 and RB105",
    applies=(planning, classic, stable),
    traits={Trait.CLIENT_UNKNOWN},
)
def unknown_family(context: Context) -> Findings:
    """No evidence shows which client library a member uses.

    Why it matters: the steps differ by client. A Java consumer accepts eager and cooperative
    assignors together, librdkafka and kafka-python do not start with both, kafkajs and others have
    no cooperative assignor. So the first bounce can be planned without the members' assignor lists,
    but not without their clients. In a move to KIP-848 the client decides whether it starts with
    group.protocol=consumer, one by one as after a stop of all.

    How to find out: a Java member's own log names its software (--client-log), and so does
    the broker's request log for each member that joins (--request-log). Or ask its developers.

    How to fix it: add that evidence, or state what you know, which the plan records:
    --assume-family java, or for the client id app-3 alone --assume-family app-3=java.

    The client of a member whose list holds the target does not matter: the member has started with
    the list of the first bounce, or is past it. The same holds for any list with eager and
    cooperative assignors.

    A client id alone proves nothing, because anyone can set it. It counts (and RB907 warns) where
    the member's own bytes exclude the clients that do not accept such a list.
    """
    named = [facts for facts in ahead(context) if _matters(context, facts)]
    unknown = [facts for facts in named if facts.family is None]
    what = "the list of the first bounce"
    if context.goal == CONSUMER:
        what = "group.protocol=consumer"
    if unknown:
        one = len(unknown) == 1
        yield found(
            f"{context.named(unknown)} may not start with {what}: "
            f"{'its' if one else 'their'} client library, which decides whether it is accepted, is "
            "unknown.",
            result=Tri.CANNOT_TELL,
            members=unknown,
            fix=context.settle(unknown),
            commands=context.stating(unknown),
        )
    by_id = [facts for facts in named if facts.family is not None]
    if by_id:
        families = ", ".join(sorted({str(facts.family) for facts in by_id}))
        yield found(
            f"{context.named(by_id)} may not start with the list of the first bounce: the client "
            f"may be {families}, as its client id suggests, or one that does not accept eager and "
            "cooperative assignors together.",
            result=Tri.CANNOT_TELL,
            members=by_id,
            fix=context.settle(by_id),
            commands=context.stating(by_id),
        )


def _matters(context: Context, facts: Facts) -> bool:
    """Return whether the plan needs to know this member's client, and does not."""
    if context.goal == CONSUMER:
        return facts.family is None
    lacks = context.supports(facts, context.target) is not Tri.YES
    if facts.family is None:
        # The list that it runs may prove it, whatever its client is.
        return lacks and Tri.YES not in (facts.takes_mixed, context.takes_mixed(facts))
    # RB104 and RB105 speak of clients that take no list of both kinds.
    lacks = lacks and context.both_kinds
    mixes = facts.takes_mixed is Tri.YES
    return lacks and mixes and context.may_take_mixed(facts) is Tri.CANNOT_TELL


@rule(
    "RB907",
    Severity.WARN,
    "A member's client library is inferred, not proven",
    reference="KIP-511 (client name and version)",
    applies=(planning, classic),
)
def guessed_family(context: Context) -> Findings:
    """The client library follows from what a member sends; the member never named it.

    Why it matters: the shape of the subscription bytes, a default client id or an assignor's name
    point to a library, but others can look the same. If the inference is wrong, the plan's
    configuration text is for another client: that member will not start, or will ignore the
    setting. Nothing that rebal calls proven depends on it.

    How to find out: --client-log or --request-log names the software; or ask its developers.

    How to fix it: add that evidence, or answer with --assume-family. Without an answer the plan
    gives the text of each client; restart one member first and check it.
    """
    named = [
        facts
        for facts in ahead(context)
        if (facts.family or facts.takes_mixed is Tri.YES) and not facts.family_proven
    ]
    if named:
        guesses = {facts.family or " or ".join(facts.candidates) for facts in named}
        families = ", ".join(sorted(guesses))
        yield found(
            f"which client library {'does' if len(named) == 1 else 'do'} {context.named(named)} "
            f"use? It decides the configuration text, and {families} is inferred, not proven.",
            members=named,
            fix=context.settle(named),
            commands=context.stating(named),
        )
