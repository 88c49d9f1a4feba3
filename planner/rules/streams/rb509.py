"""RB509: a Kafka Streams version without the streams protocol."""

from rebal.planner.kip1071 import crosses, needed_version, of_clients
from rebal.planner.rules.registry import Context, Findings, Severity, Trait, Tri, rule
from rebal.planner.rules.scope import planning, unless_allowed


@rule(
    "RB509",
    Severity.BLOCK,
    "This Kafka Streams version has no streams protocol",
    reference="KIP-1071; Kafka: docs/streams/upgrade-guide, 4.2",
    applies=(planning, crosses),
    traits=(Trait.STATED,),
)
def streams_too_old(context: Context) -> Findings:
    """The streams protocol is ready for production in Kafka Streams 4.2 and later.

    Why it matters: an older version ignores group.protocol=streams or rejects it, and the instance
    that starts first with the classic protocol makes the group classic again. 4.1 has an early form
    of the protocol. A static member (group.instance.id) needs 4.4: earlier versions do not start
    with it.

    How to find out: the version is in the broker's request log and in the program's own start-up
    log (--request-log, --client-log). The bytes of a classic member show 3.4 or later at most.

    How to fix it: upgrade the library first, in a rolling restart that changes nothing else. Where
    no log can be had, look at the build and record it:
    --ignore RB509 --reason "every instance runs 4.3.1".

    Cannot tell: no evidence shows the exact version of an instance.
    """
    since = needed_version(context)
    word = context.accepting("RB509", f"every instance runs Kafka Streams {since} or later")
    for answer in of_clients(context):
        yield from unless_allowed(
            answer,
            f"Upgrade to Kafka Streams {since} or later first, in a rolling restart that changes "
            "nothing else. Where no log shows the version, look at the build and record it.",
            (word,) if answer.allows is Tri.CANNOT_TELL else (),
        )
