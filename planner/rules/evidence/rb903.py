"""RB903: a member runs another assignor list than its configuration says."""

from datetime import timedelta
from typing import Final

from rebal.groups.clients import default_list
from rebal.groups.model import Knowledge
from rebal.planner.advice.steps import restart_fix
from rebal.planner.rules.next_start import unnamed
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

_CLOCKS: Final = timedelta(minutes=1)


@rule(
    "RB903",
    Severity.WARN,
    "A member does not run the assignor list of its configuration",
    reference="Kafka: ConsumerConfig is read once, when the consumer is built; Spring for Apache "
    "Kafka: ConsumerFactory and @KafkaListener(properties) win over spring.kafka.*",
    traits={Trait.PASSING},
)
def changed_not_restarted(context: Context) -> Findings:
    """A member's configuration file and the assignor list that it runs differ.

    Why it matters: the file shows what the NEXT start will use, never what runs. A member that is
    changed in the repository is not changed in the group, and a member that crashes takes the new
    list at an unplanned moment.

    Or the list is set elsewhere: in code (a Spring ConsumerFactory with its own map,
    @KafkaListener(properties = …)) or in the environment, which win over the file. Then no restart
    brings the file's list, and the roll-out would change nothing. The rule reports that where a
    Java member's own log (ConsumerConfig values, with its time) shows that it was started after the
    file was last written.

    How to find out: --inventory beside --client-log or --request-log. Cannot tell: the file is
    there, and the running list is not known.

    How to fix it: restart the member when its step comes, not before; or change the file back until
    then. Where the list is set elsewhere, change it there.
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
        exact = known.knowledge is Knowledge.EXACT
        runs = f"[{', '.join(known.list)}]" if exact else "another list"
        if differs and _started_later(facts):
            yield _elsewhere(facts, runs, declared)
        elif differs:
            yield found(
                f"{facts.name} will change its list at its next start, planned or not: it runs "
                f"{runs}, and its configuration says [{', '.join(declared)}] (changed, not "
                "restarted).",
                members=(facts,),
                evidence=known.evidence,
                fix=restart_fix(context, (facts,), declared, then=" when its step comes")
                if context.target in declared
                else f"Set the file to the list of the plan's step before {facts.name} restarts: "
                f"[{', '.join(declared)}] has no {context.target}.",
            )
    if unknown:
        one = len(unknown) == 1
        yield found(
            f"{context.named(unknown)} may change {'its' if one else 'their'} list at the next "
            "start: the configuration is known, and the running list is not.",
            result=Tri.CANNOT_TELL,
            members=unknown,
            fix="Add --client-log or --request-log, which show what runs.",
        )


def _started_later(facts: Facts) -> bool:
    """Return whether its own log shows a start after its configuration file was written."""
    declared, since = facts.member.declared, facts.member.assignors.since
    written = declared.evidence.at if declared is not None else None
    # The file's time and the log's are of two clocks.
    return written is not None and since is not None and since - written > _CLOCKS


def _elsewhere(facts: Facts, runs: str, declared: tuple[str, ...]) -> Finding:
    known, file = facts.member.assignors, facts.member.declared
    assert file is not None
    assert known.since is not None
    return found(
        f"no restart will give {facts.name} the list of its file: {facts.name} was started at "
        f"{known.since:%b %d %H:%MZ} with {runs}, and {file.evidence.detail}, which is older, says "
        f"[{', '.join(declared)}]. Code or the environment overrides the file, or {facts.name} "
        "reads another file.",
        members=(facts,),
        evidence=(*known.evidence, file.evidence),
        fix=f"Find where {facts.name}'s list is really set (a Spring ConsumerFactory, "
        "@KafkaListener(properties = …), a variable) and change it there.",
    )


def _declared(facts: Facts) -> tuple[str, ...] | None:
    declared = facts.member.declared
    if declared is None or declared.group_protocol == "consumer":
        return None
    return declared.list or default_list(facts.family, facts.version)
