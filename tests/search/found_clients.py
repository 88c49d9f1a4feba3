"""Histories that were found with clients whose identity or software the evidence leaves open."""

from __future__ import annotations

from tests.live.obey_stories import DEFAULT, FINAL, RANGE
from tests.search.histories import Consumer, Event, Evidence, History

JAVA = "java-3.9.1"

# More clients are out than the brokers have places for.
FULLER = History(
    seed=912_634,
    goal="cooperative",
    consumers=tuple(Consumer(f"app-{number}", "confluent-kafka", RANGE) for number in range(3)),
    evidence=Evidence(kinds=frozenset(), dated=False),
    events=(Event(5, "scale up", 0), Event(0, "crash", 0)),
    session=8.0,
    rebalance=15.0,
    epoch=0,
    max_size=3,
)
FOUND_CLIENTS = {
    "a client that its own log shows rejected twice was waited for after its return": History(
        seed=709_606,
        goal="cooperative",
        consumers=(
            Consumer("app-0", JAVA, RANGE),
            Consumer("app-1", JAVA, RANGE),
            Consumer("app-2", "franz-go", RANGE),
        ),
        evidence=Evidence(kinds=frozenset()),
        events=(Event(0, "wrong list", 4), Event(0, "leave", 0), Event(0, "scale up", 4)),
        session=8.0,
        rebalance=15.0,
        epoch=0,
    ),
    "a static member was not started beside a stranger that was rejected": History(
        seed=770_929,
        goal="cooperative",
        consumers=(
            Consumer("app-0", JAVA, RANGE, static=True),
            Consumer("app-2", "franz-go", RANGE, static=True),
        ),
        evidence=Evidence(kinds=frozenset()),
        events=(Event(4, "old image", 2), Event(5, "wrong list", 5)),
        alike=True,
        counted=True,
        session=8.0,
        rebalance=15.0,
        epoch=0,
    ),
    "a client that may be of a family without mixed lists got one after its log was cut": History(
        seed=741_899,
        goal="cooperative",
        consumers=(
            Consumer("app-0", JAVA, RANGE),
            Consumer("app-1", JAVA, RANGE),
            Consumer("app-2", JAVA, RANGE, static=True),
            Consumer("app-3", JAVA, RANGE, static=True),
            Consumer("app-4", "confluent-kafka", RANGE),
        ),
        evidence=Evidence(kinds=frozenset({"offsets topic"})),
        events=(Event(5, "wrong list", 5), Event(6, "cut", 0)),
        counted=True,
        session=8.0,
        rebalance=15.0,
        epoch=0,
    ),
    "the own entry of a rejected static member made up the number after its log was cut": History(
        seed=741_189,
        goal="eager",
        consumers=(Consumer("app-0", JAVA, FINAL), Consumer("app-1", JAVA, FINAL, static=True)),
        evidence=Evidence(kinds=frozenset({"request log"}), dated=False),
        events=(Event(4, "roll back", 0), Event(5, "cut", 0)),
        counted=True,
        session=8.0,
        rebalance=15.0,
        epoch=0,
    ),
    "a missing client was started with the list that had been rejected": History(
        seed=796_184,
        goal="cooperative",
        consumers=tuple(Consumer(f"app-{number}", JAVA, DEFAULT) for number in range(3)),
        evidence=Evidence(kinds=frozenset({"probe", "request log"})),
        events=(Event(0, "scale down", 4), Event(0, "reload", 0), Event(0, "rejected pod", 0)),
        alike=True,
        counted=True,
        session=8.0,
        rebalance=15.0,
        epoch=0,
    ),
    "a plan with nothing to do for eager was judged by the assignor it found": History(
        seed=948_324,
        goal="eager",
        consumers=(Consumer("app-0", JAVA, (FINAL[0], RANGE[0])),),
        evidence=Evidence(kinds=frozenset({"request log"})),
        events=(Event(0, "rejected pod", 0), Event(1, "wrong list", 5)),
        alike=True,
        counted=True,
        session=8.0,
        rebalance=15.0,
        epoch=0,
    ),
    "the start of one of several clients with one id did not say how to count them": History(
        seed=1_156_149,
        goal="eager",
        consumers=tuple(
            Consumer(f"app-{number}", "java-4.1.1", FINAL, protocol="consumer")
            for number in range(2)
        ),
        evidence=Evidence(kinds=frozenset()),
        events=(Event(0, "crash", 0), Event(3, "reload", 0)),
        alike=True,
        session=300.0,
        rebalance=15.0,
        epoch=0,
    ),
}
