"""RB603: processes that are killed before they have left the group."""

from rebal.planner.rules.registry import Context, Findings, Severity, found, rule
from rebal.planner.rules.scope import ahead, classic, planning
from rebal.planner.timeouts import in_words, of_family


@rule(
    "RB603",
    Severity.ASK,
    "Is there time to close the consumer before the process is killed?",
    reference="Kubernetes: terminationGracePeriodSeconds; KafkaConsumer.close",
    applies=(planning, classic),
)
def grace_period(context: Context) -> Findings:
    """A consumer that closes finishes its batch, commits, and leaves the group.

    Why it matters: a process that is killed before that does not leave the group. Its partitions
    stop until session.timeout.ms has passed, its old list counts for as long (RB116), and what it
    had not committed is read again. In a roll-out this happens at every restart.

    How to find out: compare terminationGracePeriodSeconds (default 30 seconds) with how long a
    batch and close take, and look for a LeaveGroup of each stopped member in the broker's log.

    How to answer it: raise the grace period above the longest batch plus the close timeout, and
    stop polling when the signal comes.
    """
    dynamic = [facts for facts in ahead(context) if not facts.static]
    if dynamic:
        yield found(
            "does each process get enough time to finish its batch, commit and leave the group "
            "before it is killed? If not, partitions stop at every restart until the session "
            f"ends: {in_words([of_family(facts.member, facts.family) for facts in dynamic])}.",
            members=dynamic,
        )
