"""RB907: a member's client library is inferred, not proven."""

from rebal.planner.rules.registry import Context, Findings, Severity, Tri, found, rule
from rebal.planner.rules.scope import ahead, classic, planning


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
