"""RB610: the brokers are not Apache Kafka's."""

from rebal.groups.brokers import other_brokers
from rebal.planner.context import CLASSIC, CONSUMER
from rebal.planner.rules.registry import Context, Findings, Severity, found, rule
from rebal.planner.rules.scope import planning


@rule(
    "RB610",
    Severity.WARN,
    "The brokers are not Apache Kafka's",
    reference="groups/data/brokers.yaml; docs/other-brokers.md",
    applies=(planning,),
)
def not_apache_kafka(context: Context) -> Findings:
    """Azure Event Hubs and Redpanda speak Kafka's protocol, and differ in consumer groups.

    Why it matters: the steps, gates and times of a plan are those of Apache Kafka's group
    coordinator. Another one may keep no Empty group, bound the timeouts, or have no KIP-848.

    How to find out: the bootstrap servers (….servicebus.windows.net; redpanda-0….), or the cluster
    id that the brokers report (redpanda.…). A service behind a name of your own is not recognised.

    How to fix it: read what differs before step 1, and try the plan on a group that matters less.
    These brokers were not run here: the facts are from their public sources.
    """
    cluster = context.snapshot.cluster
    other = other_brokers(context.given.brokers, cluster.cluster_id)
    if other is not None:
        differs = other.under(
            CONSUMER if context.goal == CONSUMER else CLASSIC,
            {facts.family for facts in context.members},
            static=any(facts.static for facts in context.members),
        )
        known = "; ".join(differs) or "nothing that differs is known for this group"
        yield found(
            f"the brokers look like {other.name}: {known}.",
            fix="Try the plan on a group that matters less.",
        )
