"""Histories that the search has found, as they shrank: none of them loses a member now."""

from __future__ import annotations

import pytest

from tests.live.obey_stories import DEFAULT, FINAL, RANGE, WIDE
from tests.search.histories import Consumer, Event, Evidence, History
from tests.search.obey import rehearse

UNDATED = Evidence(kinds=frozenset({"probe", "request log"}), dated=False, late=True)

UNOWNED = History(
    seed=203_471,
    goal="cooperative",
    consumers=(
        Consumer("app-0", "java-3.9.1", DEFAULT, static=True),
        Consumer("app-1", "java-3.9.1", DEFAULT),
    ),
    evidence=Evidence(),
    events=(
        Event(0, "old image", 0),
        Event(0, "wrong list", 0),
        Event(1, "rejected pod", 0),
        Event(4, "wrong list", 2),
    ),
    session=300.0,
    epoch=0,
)

FULL = History(
    seed=2_088_125,
    goal="cooperative",
    consumers=(
        Consumer("app-0", "java-3.9.1", RANGE, static=True),
        Consumer("app-1", "java-3.9.1", RANGE, static=True),
        Consumer("app-2", "java-3.9.1", RANGE, static=True),
        Consumer("app-3", "java-3.9.1", WIDE, static=True),
        Consumer("app-4", "java-3.9.1", WIDE, static=True),
    ),
    evidence=Evidence(kinds=frozenset({"request log"}), dated=False, late=True),
    events=(
        Event(0, "leave", 3),
        Event(2, "reload", 0),
        Event(3, "leave", 0),
        Event(10, "reload", 0),
    ),
    counted=True,
    session=300.0,
    epoch=0,
    max_size=5,
)

FOUND = {
    "a member that left, and whose client nobody knows, got a mixed list": History(
        seed=201_073,
        goal="cooperative",
        consumers=(
            Consumer("app-0", "java-3.9.1", RANGE),
            Consumer("app-2", "kafka-python", RANGE),
        ),
        evidence=Evidence(),
        events=(Event(1, "leave", 0),),
        alike=True,
        counted=True,
        epoch=0,
    ),
    "static members were restarted for ever, for a cure that nothing could show": History(
        seed=436,
        goal="cooperative",
        consumers=(
            Consumer("app-0", "java-2.8.2", RANGE, static=True),
            Consumer("app-1", "java-3.9.1", RANGE, static=True),
            Consumer("app-2", "kafka-python", RANGE),
        ),
        evidence=UNDATED,
        counted=True,
        session=45.0,
        kind="scala",
    ),
    "more members were started for ever, for a cure that nothing could show": History(
        seed=190,
        goal="cooperative",
        consumers=(
            Consumer("app-0", "java-3.9.1", RANGE, static=True),
            Consumer("app-1", "java-3.9.1", RANGE, static=True),
            Consumer("app-2", "confluent-kafka", RANGE, static=True),
        ),
        evidence=Evidence(late=True, shift=-5),
        events=(Event(1, "leave", 0), Event(2, "merge", 5), Event(8, "crash", 6)),
        alike=True,
        kind="scala",
    ),
    "the entry of a rejected static member let the plan be finished": History(
        seed=200_018,
        goal="eager",
        consumers=(
            Consumer("app-0", "java-3.9.1", FINAL, static=True),
            Consumer("app-1", "java-3.9.1", DEFAULT, static=True),
            Consumer("app-2", "java-3.9.1", DEFAULT, static=True),
        ),
        evidence=Evidence(shift=2, dated=False),
        events=(Event(4, "roll back", 2),),
        alike=True,
        counted=True,
        session=45.0,
        kind="scala",
        epoch=0,
    ),
    "a load spoke against a restarted static member (the model was wrong)": History(
        seed=627,
        goal="eager",
        consumers=(
            Consumer("app-0", "java-3.9.1", FINAL, static=True),
            Consumer("app-1", "java-3.9.1", FINAL, static=True),
        ),
        evidence=Evidence(),
        events=(Event(2, "reload", 0),),
        counted=True,
        epoch=0,
    ),
    "two lists beside each other, each with a member that comes back": History(
        seed=401,
        goal="cooperative",
        consumers=(
            Consumer("app-0", "java-3.9.1", RANGE, static=True),
            Consumer("app-1", "java-3.9.1", RANGE, static=True),
            Consumer("app-2", "java-3.9.1", WIDE),
        ),
        evidence=Evidence(kinds=frozenset({"client log", "probe", "offsets topic"}), late=True),
        events=(Event(0, "reload", 4), Event(1, "old image", 3), Event(8, "old image", 6)),
        alike=True,
        counted=True,
    ),
    "a rejected client and its old entry were counted as two members": History(
        seed=4552,
        goal="eager",
        consumers=(
            Consumer("app-0", "java-3.9.1", FINAL),
            Consumer("app-1", "java-3.9.1", FINAL),
        ),
        evidence=Evidence(),
        events=(Event(0, "wrong list", 2), Event(1, "reload", 0)),
        epoch=0,
    ),
    "a load after the restarts of step 1 left the lists and the logs at odds": History(
        seed=4694,
        goal="cooperative",
        consumers=(Consumer("app-0", "java-3.9.1", DEFAULT),),
        evidence=Evidence(),
        events=(Event(1, "old image", 0), Event(2, "reload", 0)),
        counted=True,
        epoch=0,
    ),
    "a log that was added at the end showed a rejected pod, and the plan was finished": History(
        seed=200_168,
        goal="cooperative",
        consumers=(Consumer("app-0", "java-3.9.1", RANGE),),
        evidence=Evidence(),
        events=(Event(0, "rejected pod", 0),),
        epoch=0,
    ),
    "a restarted member was taken for the rejected pod with the same client id": History(
        seed=201_079,
        goal="cooperative",
        consumers=(Consumer("app-0", "java-3.9.1", RANGE),),
        evidence=Evidence(),
        events=(Event(0, "rejected pod", 0),),
        alike=True,
        epoch=0,
    ),
    "a pod that was back was to be started for ever": History(
        seed=1776,
        goal="cooperative",
        consumers=(
            Consumer("app-0", "java-3.9.1", RANGE),
            Consumer("app-1", "java-3.9.1", RANGE, static=True),
            Consumer("app-2", "java-3.9.1", RANGE),
        ),
        evidence=Evidence(kinds=frozenset({"client log"})),
        events=(
            Event(0, "roll back", 0),
            Event(2, "crash", 0),
            Event(4, "rejected pod", 0),
            Event(5, "roll back", 3),
        ),
        alike=True,
        epoch=0,
    ),
    "a rejection in the millisecond of the plan was one before it": History(
        seed=205_425,
        goal="cooperative",
        consumers=(
            Consumer("app-0", "java-3.9.1", DEFAULT),
            Consumer("app-1", "java-3.9.1", DEFAULT),
        ),
        evidence=Evidence(kinds=frozenset({"request log"})),
        events=(Event(0, "leave", 0), Event(0, "reload", 0), Event(1, "rejected pod", 0)),
        alike=True,
        epoch=0,
    ),
    "the clients that were to stop together had left, and nobody was to be stopped": History(
        seed=1_000_851,
        goal="cooperative",
        consumers=(
            Consumer("app-0", "java-3.9.1", RANGE),
            Consumer("app-1", "java-3.9.1", RANGE),
            Consumer("app-2", "kafka-python", RANGE),
        ),
        evidence=Evidence(kinds=frozenset({"probe"})),
        events=(Event(4, "scale down", 5),),
        counted=True,
        epoch=0,
    ),
    "each temporary member began the session of a static member anew that was down": History(
        seed=1_003_485,
        goal="cooperative",
        consumers=tuple(
            Consumer(f"app-{number}", "java-3.9.1", DEFAULT, static=True) for number in range(3)
        ),
        evidence=Evidence(kinds=frozenset({"request log"})),
        events=(Event(0, "scale down", 0), Event(0, "reload", 0)),
        counted=True,
        session=45.0,
        epoch=0,
    ),
    "the zone of logs that had been rotated away was asked for again and again": History(
        seed=2_003_769,
        goal="cooperative",
        consumers=tuple(
            Consumer(f"app-{number}", "java-3.9.1", DEFAULT, static=True) for number in range(3)
        ),
        evidence=Evidence(kinds=frozenset({"request log"})),
        events=(Event(0, "reload", 0), Event(1, "cut", 0)),
        counted=True,
        epoch=0,
    ),
    "the broker's assignor was the one to go back to from KIP-848": History(
        seed=70,
        goal="eager",
        consumers=(
            Consumer("app-0", "java-4.1.1", FINAL, static=True, protocol="consumer"),
            Consumer("app-1", "java-4.1.1", FINAL, protocol="consumer"),
        ),
        evidence=Evidence(),
        counted=True,
        epoch=0,
    ),
    "no evidence was named for a client that must speak KIP-848": History(
        seed=274,
        goal="consumer",
        consumers=(
            Consumer("app-0", "java-4.1.1", FINAL, static=True),
            Consumer("app-1", "java-4.1.1", FINAL, static=True, protocol="consumer"),
        ),
        evidence=Evidence(),
        counted=True,
        epoch=0,
    ),
    "a member that had left was forgotten in the move to KIP-848": History(
        seed=1_000_431,
        goal="consumer",
        consumers=(
            Consumer("app-0", "java-4.1.1", DEFAULT),
            Consumer("app-1", "java-4.1.1", DEFAULT),
        ),
        evidence=Evidence(),
        events=(Event(0, "leave", 0),),
        epoch=0,
    ),
    "a static member restarted between the rounds of a rebalance left a partition": UNOWNED,
    "a missing member's own list had been changed by the next step before a load": History(
        seed=2_062_656,
        goal="cooperative",
        consumers=tuple(Consumer(f"app-{n}", "java-3.9.1", DEFAULT) for n in range(4)),
        evidence=Evidence(
            kinds=frozenset({"client log", "offsets topic", "probe", "request log"}), merged=True
        ),
        events=(
            Event(0, "scale up", 7),
            Event(0, "reload", 7),
            Event(2, "leave", 3),
            Event(2, "crash", 0),
            Event(2, "reload", 7),
        ),
        session=8.0,
        epoch=0,
    ),
    "a classic member that had left was forgotten in a group of KIP-848": History(
        seed=114_187,
        goal="consumer",
        consumers=(
            Consumer("app-0", "java-4.1.1", FINAL),
            Consumer("app-1", "java-4.1.1", FINAL, protocol="consumer"),
        ),
        evidence=Evidence(kinds=frozenset({"client log", "request log"})),
        events=(Event(0, "leave", 2),),
        alike=True,
        session=300.0,
        epoch=0,
    ),
    "members were started beside a stopped one's entry (the operator did not look)": History(
        seed=2_087_992,
        goal="cooperative",
        consumers=(
            Consumer("app-0", "java-3.9.1", RANGE),
            Consumer("app-2", "confluent-kafka", RANGE, static=True),
        ),
        evidence=Evidence(),
        events=(Event(0, "scale up", 0), Event(0, "scale down", 0)),
        counted=True,
        session=45.0,
        epoch=0,
    ),
    "the next step began again and again, as its gate asked for one member alone": History(
        seed=2_052_577,
        goal="cooperative",
        consumers=(
            Consumer("app-0", "java-3.9.1", RANGE),
            Consumer("app-1", "java-3.9.1", RANGE, static=True),
            Consumer("app-2", "java-3.9.1", WIDE),
        ),
        evidence=Evidence(),
        events=(Event(1, "scale up", 0), Event(1, "leave", 4)),
        alike=True,
        counted=True,
        session=300.0,
        rebalance=60.0,
        epoch=0,
        max_size=4,
    ),
    "another pod made up the number after the log of a rejection was rotated": History(
        seed=2_031_302,
        goal="cooperative",
        consumers=(Consumer("app-0", "java-3.9.1", RANGE), Consumer("app-1", "java-3.9.1", RANGE)),
        evidence=Evidence(kinds=frozenset({"request log"})),
        events=(
            Event(0, "wrong list", 5),
            Event(1, "cut", 0),
            Event(1, "rejected pod", 0),
        ),
        epoch=0,
    ),
    "entries of crashed members were counted, and their start was only withheld": History(
        seed=2_056_947,
        goal="consumer",
        consumers=(Consumer("app-0", "java-4.1.1", RANGE), Consumer("app-1", "java-4.1.1", RANGE)),
        evidence=Evidence(),
        events=(Event(2, "crash", 0), Event(4, "crash", 0)),
        session=300.0,
        epoch=0,
    ),
    "a former coordinator's log may be another cluster's (the operator trusted it)": History(
        seed=2_081_398,
        goal="cooperative",
        consumers=(Consumer("app-0", "java-3.9.1", RANGE), Consumer("app-1", "java-3.9.1", RANGE)),
        evidence=Evidence(kinds=frozenset({"request log"})),
        events=(Event(0, "reload", 0), Event(0, "leave", 0), Event(0, "wrong list", 0)),
        epoch=0,
    ),
    "a client that was scaled away was started (the operator's fault)": History(
        seed=2_059_676,
        goal="cooperative",
        consumers=(
            Consumer("app-0", "java-3.9.1", RANGE),
            Consumer("app-1", "java-3.9.1", RANGE, static=True),
            Consumer("app-2", "kafka-python", RANGE),
        ),
        evidence=Evidence(kinds=frozenset({"client log"})),
        events=(
            Event(0, "scale down", 6),
            Event(0, "crash", 1),
            Event(0, "reload", 4),
            Event(1, "reload", 0),
        ),
        alike=True,
        counted=True,
        epoch=0,
    ),
    "a client got a mixed list that it refuses, again and again (the operator's fault)": History(
        seed=2_081_665,
        goal="cooperative",
        consumers=(
            Consumer("app-0", "java-3.9.1", RANGE),
            Consumer("app-1", "confluent-kafka", RANGE),
        ),
        evidence=Evidence(),
        events=(Event(0, "wrong list", 7), Event(1, "reload", 0)),
        counted=True,
        epoch=0,
    ),
    "a member rejected at an unknown time was forgotten beside a stopped static one": History(
        seed=4_002_429,
        goal="cooperative",
        consumers=(
            Consumer("app-0", "java-3.9.1", RANGE, static=True),
            Consumer("app-1", "java-3.1.2", RANGE),
            Consumer("app-2", "java-2.8.2", RANGE),
            Consumer("app-3", "java-3.1.2", RANGE),
            Consumer("app-4", "java-2.8.2", RANGE),
        ),
        evidence=Evidence(
            kinds=frozenset({"inventory", "offsets topic", "request log"}),
            shift=2,
            dated=False,
            late=True,
        ),
        events=(Event(3, "merge", 0), Event(6, "scale down", 2), Event(10, "roll back", 1)),
        counted=True,
        session=300.0,
        kind="scala",
        epoch=3,
    ),
    "a KIP-848 member got what an expired one had with its next heartbeat": History(
        seed=4_019_162,
        goal="consumer",
        consumers=(
            Consumer("app-0", "java-4.1.1", WIDE[::-1], static=True),
            Consumer("app-1", "java-4.1.1", WIDE[::-1], static=True),
            Consumer("app-2", "java-4.1.1", FINAL, static=True),
        ),
        evidence=Evidence(kinds=frozenset({"offsets topic"}), late=True),
        events=(Event(0, "scale down", 6), Event(2, "scale down", 2)),
        session=45.0,
        epoch=3,
    ),
    "a KIP-848 member got what another one gave up with its next heartbeat": History(
        seed=4_041_430,
        goal="consumer",
        consumers=(
            Consumer("app-0", "java-4.1.1", WIDE),
            Consumer("app-1", "java-4.1.1", FINAL),
        ),
        evidence=Evidence(
            kinds=frozenset({"client log", "request log", "offsets topic", "probe"}), shift=2
        ),
        events=(Event(0, "old image", 1), Event(1, "reload", 1), Event(4, "scale down", 6)),
        alike=True,
        session=8.0,
        epoch=0,
    ),
    "a member that left with the list of the goal was missed in a group that was done": History(
        seed=4_054_570,
        goal="cooperative",
        consumers=(
            Consumer("app-0", "java-4.1.1", DEFAULT),
            Consumer("app-1", "java-4.1.1", FINAL),
        ),
        evidence=Evidence(
            kinds=frozenset({"offsets topic", "request log"}), merged=True, prefixed=True
        ),
        events=(
            Event(0, "wrong list", 4),
            Event(1, "reload", 1),
            Event(2, "leave", 6),
            Event(5, "reload", 6),
            Event(5, "reload", 3),
        ),
        session=8.0,
        rebalance=60.0,
        epoch=0,
    ),
    "two clients that were to start joined an Empty group, whose type was not known": History(
        seed=4_018_642,
        goal="cooperative",
        consumers=(Consumer("app-0", "franz-go", RANGE, static=True),),
        evidence=Evidence(
            kinds=frozenset({"client log", "offsets topic"}), merged=True, prefixed=True
        ),
        events=(
            Event(0, "scale up", 6),
            Event(0, "merge", 2),
            Event(5, "roll back", 2),
            Event(6, "roll back", 6),
        ),
        counted=True,
    ),
    "a missing client got the mixed list of a rejected one with the same client id": History(
        seed=4_048_160,
        goal="cooperative",
        consumers=(
            Consumer("app-0", "java-3.9.1", RANGE),
            Consumer("app-1", "java-3.9.1", RANGE),
            Consumer("app-2", "kafka-python", RANGE),
        ),
        evidence=Evidence(),
        events=(Event(0, "crash", 6), Event(1, "old image", 0), Event(0, "wrong list", 5)),
        alike=True,
        counted=True,
        epoch=0,
    ),
    "a stopped member's entry made up the number of a plan made after a rejection": History(
        seed=2_020_478,
        goal="cooperative",
        consumers=(
            Consumer("app-0", "java-3.9.1", WIDE, static=True),
            Consumer("app-1", "java-3.9.1", WIDE, static=True),
            Consumer("app-2", "java-3.9.1", WIDE, static=True),
            Consumer("app-3", "java-3.9.1", FINAL, static=True),
            Consumer("app-4", "java-3.9.1", FINAL),
        ),
        evidence=Evidence(kinds=frozenset({"probe"})),
        events=(
            Event(0, "old image", 0),
            Event(0, "scale down", 0),
            Event(1, "wrong list", 2),
            Event(5, "reload", 0),
        ),
        counted=True,
        rebalance=60.0,
        epoch=0,
    ),
}


@pytest.mark.parametrize("name", FOUND)
def test_a_history_that_was_found_ends_well(name: str) -> None:
    outcome = rehearse(FOUND[name])
    assert outcome is not None
    assert outcome.violations == []
    assert outcome.ended == "finished", outcome.told[-3:]


def test_a_class_of_the_application_is_asked_about_once_its_list_is_seen() -> None:
    history = History(
        seed=1_004_703,
        goal="cooperative",
        consumers=(Consumer("app-0", "java-3.9.1", FINAL, static=True, own=True),),
        evidence=Evidence(kinds=frozenset({"client log"})),
        events=(Event(0, "wrong list", 5),),
        counted=True,
        session=300.0,
        epoch=0,
    )
    outcome = rehearse(history)
    assert outcome is not None
    assert outcome.violations == []
    assert outcome.ended == "asked: RB111"


@pytest.mark.parametrize(
    ("seed", "given", "events"),
    [
        (4_026_138, {"client log"}, (Event(0, "leave", 4),)),
        (
            4_052_380,
            {"client log", "request log"},
            (Event(0, "crash", 3), Event(0, "old image", 0)),
        ),
    ],
    ids=["left", "crashed"],
)
def test_a_departed_member_with_a_class_of_the_application_is_asked_about(
    seed: int, given: set[str], events: tuple[Event, ...]
) -> None:
    history = History(
        seed=seed,
        goal="cooperative",
        consumers=(
            Consumer("app-0", "java-3.9.1", FINAL, own=True),
            Consumer("app-1", "java-3.9.1", FINAL),
        ),
        evidence=Evidence(kinds=frozenset(given)),
        events=events,
        epoch=0,
    )
    outcome = rehearse(history)
    assert outcome is not None
    assert outcome.violations == []
    assert (outcome.answers, outcome.ended) == (["member count"], "asked: RB111")


def test_a_static_member_is_back_once_it_has_another_id_than_when_its_rejection_was_seen() -> None:
    outcome = rehearse(FULL)
    assert outcome is not None
    assert outcome.violations == []
    assert outcome.ended.startswith("blocked: the group has 5 members and the brokers allow 5")
    starts = [line.partition("advice: ")[2] for line in outcome.told if "advice: start" in line]
    assert starts == [
        f"start {name} with [cooperative-sticky, range], if it is down"
        for name in ("app-4", "app-1")
    ]


def test_the_advice_to_wait_names_the_option_that_corrects_the_count() -> None:
    outcome = rehearse(FOUND["a member that had left was forgotten in the move to KIP-848"])
    assert outcome is not None
    assert outcome.answers == ["member count"]
    waits = [line for line in outcome.told if "1 of 2 expected members is not in" in line]
    assert waits
    assert all("--expect-members 1" in line for line in waits)


def test_a_plan_is_not_finished_while_a_partition_has_no_owner() -> None:
    outcome = rehearse(UNOWNED)
    assert outcome is not None
    advice = [line for line in outcome.told if "advice: " in line]
    waits = [number for number, line in enumerate(advice) if "wait: orders-3 has no owner" in line]
    assert waits
    assert "with its CURRENT list" in advice[waits[-1] + 1]
    assert "the plan is carried out" in advice[waits[-1] + 2]
