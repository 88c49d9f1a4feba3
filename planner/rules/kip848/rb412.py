"""RB412: a client that does not support KIP-848."""

from rebal.groups.clients import NEVER, UNKNOWN, family
from rebal.planner.rules.registry import (
    Context,
    Facts,
    Findings,
    Risk,
    Severity,
    Trait,
    Tri,
    found,
    rule,
)
from rebal.planner.rules.scope import still_classic, to_consumer
from rebal.planner.versions import exact_version


@rule(
    "RB412",
    Severity.BLOCK,
    "This client cannot use group.protocol=consumer",
    reference="KIP-848; the clients' own change logs (groups/data/clients.yaml)",
    applies=(to_consumer,),
    traits=(Trait.STATED,),
    accepts=Risk.OLD_CLIENT,
)
def no_kip848_client(context: Context) -> Findings:
    """A member's client library, or this version of it, does not support KIP-848.

    Why it matters: the client ignores the setting or rejects it, and the member stays on the
    classic protocol or does not start. A group with classic and KIP-848 members works, but the move
    is not complete, and the broker keeps the classic members' lists and timeouts.

    How to find out: the client software in the broker's request log or in the members' own logs.

    How to fix it: upgrade the library first, in a rolling restart that changes nothing else (Java
    4.0, librdkafka 2.12, franz-go 1.22), or leave the group on the classic protocol.

    Cannot tell: the member's version, or the first version of its client that supports KIP-848, is
    not known. RB906 covers members whose client is unknown.
    """
    ahead = still_classic(context)
    for answer, what in (
        (Tri.NO, "cannot use group.protocol=consumer"),
        (Tri.CANNOT_TELL, "may be unable to use group.protocol=consumer"),
    ):
        named = [facts for facts in ahead if _can(facts) is answer]
        if named:
            clients = sorted(
                {" ".join(filter(None, [facts.family, facts.version])) for facts in named}
            )
            yield found(
                f"{context.named(named)} ({', '.join(clients)}) {what}.",
                result=Tri.YES if answer is Tri.NO else Tri.CANNOT_TELL,
                members=named,
                fix=_fix(named),
                commands=()
                if answer is Tri.NO
                else (
                    context.accepting(
                        Risk.OLD_CLIENT, "every client is of a version that supports it"
                    ),
                ),
            )


def _can(facts: Facts) -> Tri:
    known = family(facts.family)
    if not known.key:
        return Tri.YES
    if not facts.family_proven:
        return Tri.CANNOT_TELL
    if known.kip848_since == NEVER:
        return Tri.NO
    # The numbers of a vendor's build that rebal does not know are not Apache's.
    plain = exact_version(facts.version) is not None
    return known.kip848(facts.version) if plain else known.kip848(None)


def _fix(named: list[Facts]) -> str:
    first = {}
    for facts in named:
        known = family(facts.family)
        if known.kip848_since not in (NEVER, UNKNOWN):
            first[known.title] = known.kip848_since
    if not first:
        return (
            "Move these members to a client that supports it, or leave the group on the classic "
            "protocol."
        )
    wanted = ", ".join(f"{title} {since}" for title, since in sorted(first.items()))
    return f"First upgrade to {wanted} or later, in a rolling restart that changes nothing else."
