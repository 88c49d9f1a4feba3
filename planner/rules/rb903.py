"""RB903: the configuration was changed and the member was not restarted."""

from __future__ import annotations

from collections.abc import Iterator

from rebal.groups.clients import default_list
from rebal.groups.model import Knowledge, Tri
from rebal.planner.context import Context, Facts
from rebal.planner.plan import Finding, Severity
from rebal.planner.rules.next_start import unnamed
from rebal.planner.rules.registry import found, rule


@rule(
    "RB903",
    Severity.WARN,
    "The configuration was changed and the member was not restarted",
    reference="Kafka: ConsumerConfig is read once, when the consumer is built",
)
def changed_not_restarted(context: Context) -> Iterator[Finding]:
    """A member's configuration file and the list that it runs differ.

    Why it matters: the file says what the NEXT start will use, never what runs. A member that
    looks done in the repository is not done in the group; and a member that crashes takes the
    new list at a moment nobody chose.

    How to find out: --inventory beside --request-log or --client-log. Cannot tell: the file is
    there, and what runs is not known.

    How to fix it: restart the member when its step comes, not before; or set the file back until
    then.
    """
    unknown = []
    for facts in context.members:
        declared = _declared(facts)
        known = facts.member.assignors
        if declared is None:
            continue
        if any(unnamed(context, name) for name in declared):
            unknown.append(facts)
            continue
        if known.knowledge is Knowledge.EXACT:
            differs = known.list != declared
        else:
            differs = bool(set(declared) & set(known.lacks) or set(known.at_least) - set(declared))
            if not differs:
                unknown.append(facts)
        if differs:
            exact = known.knowledge is Knowledge.EXACT
            runs = f"[{', '.join(known.list)}]" if exact else "another list"
            yield found(
                f"{facts.name} runs {runs}, and its configuration says [{', '.join(declared)}]: "
                "changed, not restarted.",
                members=(facts,),
                evidence=known.evidence,
                fix=f"Restart {facts.name} when its step comes.",
            )
    if unknown:
        one = len(unknown) == 1
        yield found(
            f"{context.named(unknown)}: the configuration of the next start is known, but whether "
            f"{'it runs' if one else 'they run'} it already is not.",
            result=Tri.CANNOT_TELL,
            members=unknown,
            fix="--request-log or --client-log shows what runs.",
        )


def _declared(facts: Facts) -> tuple[str, ...] | None:
    declared = facts.member.declared
    if declared is None or declared.group_protocol == "consumer":
        return None
    return declared.list or default_list(facts.family, facts.version)
