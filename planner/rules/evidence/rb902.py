"""RB902: two pieces of evidence contradict each other."""

from rebal.planner.rules.registry import Context, Findings, Severity, Trait, Tri, found, rule
from rebal.planner.rules.scope import narrowing_step


@rule(
    "RB902",
    Severity.BLOCK,
    "Two pieces of evidence contradict each other",
    reference="rebal: how evidence is merged (groups/evidence/merge.py)",
    traits={Trait.PENDING},
)
def contradiction(context: Context) -> Findings:
    """Two sources say things about a member that cannot both be true.

    Why it matters: something is wrong: a log of another cluster, a wrong clock, two processes with
    one id, or a fault of rebal. To choose one side silently would be a guess, so the list in
    question counts as not known.

    How to find out: look at both sources, which are named with their times.

    How to fix it: leave out the file that belongs to another group or time, or collect the evidence
    again, and make the plan again.
    """
    for item in context.snapshot.contradictions:
        named = [facts for facts in context.members if facts.member.member_id == item.member_id]
        whose = f" for {named[0].name}" if named else ""
        yield found(
            f"the evidence{whose} is contradictory and proves nothing: {item.what.rstrip('.')}.",
            result=Tri.CANNOT_TELL,
            members=named,
            evidence=item.evidence,
            fix="Collect the evidence again, or leave out a file of another group or another time.",
            before_step=narrowing_step(context),
        )
