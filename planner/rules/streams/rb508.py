"""RB508: the brokers do not allow the move to the streams protocol, or back."""

from rebal.planner.kip1071 import crosses, of_brokers
from rebal.planner.rules.registry import Context, Findings, Severity, Trait, rule
from rebal.planner.rules.scope import planning, read_brokers, switching_on, unless_allowed


@rule(
    "RB508",
    Severity.BLOCK,
    "The brokers do not allow this move to the streams protocol, or back",
    reference="KIP-1071; KAFKA-20254; Kafka: docs/streams/developer-guide (rebalance protocol)",
    applies=(planning, crosses),
    traits=(Trait.STATED,),
)
def brokers_without_streams(context: Context) -> Findings:
    """The streams protocol needs brokers from 4.2 and the feature streams.version.

    Why it matters: without them an instance with group.protocol=streams fails at its first
    heartbeat, after every instance has stopped. Brokers of 4.2.0 take the group, and cannot load it
    again when the coordinator moves (KAFKA-20254). Brokers before 4.4 reject a static member
    (INVALID_REQUEST), which stops it. A group above group.streams.max.size (on the way back:
    group.max.size) rejects its last members.

    How to find out: the brokers' version, finalised features and settings, all of which a live
    snapshot holds; the patch release is in the broker's own log.

    How to fix it: upgrade the brokers to 4.2.1, 4.3 or later, then the feature streams.version to 1
    with kafka-features.sh (the finding has the command); a cluster that was upgraded from below 4.2
    has it at 0. Remove group.instance.id, or upgrade brokers and clients to 4.4. Where only the
    brokers' patch release is unknown, look and record it: --ignore RB508 --reason "brokers 4.2.2".

    Cannot tell: version, features or settings were not read, or 4.2 is known without its patch
    release.
    """
    fix = (
        "Upgrade the brokers to 4.2.1, 4.3 or later, then the feature streams.version to 1; remove "
        "group.instance.id before 4.4."
    )
    *protocol, size = of_brokers(context)
    for answer in protocol:
        read = fix if context.asked else read_brokers(context)
        yield from unless_allowed(answer, read, switching_on(context, "streams.version"))
    raised = "Raise that limit, or scale the program down during the change."
    known = context.snapshot.cluster.settings
    yield from unless_allowed(size, raised if known else read_brokers(context))
