"""Histories that the search has found: none of them loses a member now."""

from __future__ import annotations

import pytest

from tests.live.obey_stories import DEFAULT, FINAL, RANGE
from tests.search.found import FOUND, FULL, UNOWNED
from tests.search.found_clients import FOUND_CLIENTS, FULLER
from tests.search.histories import Consumer, Event, Evidence, History
from tests.search.obey import rehearse

EVERY = {**FOUND, **FOUND_CLIENTS}


@pytest.mark.parametrize("name", EVERY)
def test_a_history_that_was_found_ends_well(name: str) -> None:
    outcome = rehearse(EVERY[name])
    assert outcome is not None
    assert outcome.violations == []
    assert outcome.ended == "finished", outcome.told[-3:]


def test_the_advice_to_start_a_client_that_may_be_back_says_who_else_is_out() -> None:
    # Its own log has no address, so each rejection may be of another process with its client id.
    twice = "a client that its own log shows rejected twice was waited for after its return"
    outcome = rehearse(FOUND_CLIENTS[twice])
    assert outcome is not None
    said = "if it is back, 1 of 4 expected members is not in the group; if the service has no more"
    assert any(said in told for told in outcome.told)


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


def test_an_undated_rejection_is_asked_about_while_the_old_entry_may_count() -> None:
    history = History(
        seed=190_946,
        goal="cooperative",
        consumers=(
            Consumer("app-0", "java-3.9.1", DEFAULT),
            Consumer("app-1", "java-3.9.1", FINAL),
            Consumer("app-2", "java-3.9.1", FINAL),
        ),
        evidence=Evidence(dated=False),
        events=(Event(0, "old image", 0), Event(4, "crash", 0)),
        epoch=0,
        max_size=3,
    )
    outcome = rehearse(history)
    assert outcome is not None
    assert outcome.violations == []
    assert any("--log-timezone" in line for line in outcome.told)


def test_a_static_member_is_back_once_it_has_another_id_than_when_its_rejection_was_seen() -> None:
    outcome = rehearse(FULL)
    assert outcome is not None
    assert outcome.violations == []
    assert outcome.ended.startswith("blocked: the group has 5 members and the brokers allow 5")
    starts = [line.partition("advice: ")[2] for line in outcome.told if "advice: start" in line]
    assert starts == ["start app-4, app-1 with [cooperative-sticky, range], if they are down"]


def test_as_many_rejected_clients_start_as_the_brokers_have_places_for() -> None:
    outcome = rehearse(FULLER)
    assert outcome is not None
    assert outcome.violations == []
    starts = [line.partition("advice: ")[2] for line in outcome.told if "advice: start" in line]
    assert starts == [
        "start app-1 with [range], if it is down; the brokers allow 3 members, which leaves no "
        "place for more-1"
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


def test_a_wait_that_a_rebalance_begins_anew_is_no_standing_still() -> None:
    history = History(
        seed=125_246,
        goal="cooperative",
        consumers=tuple(
            Consumer(f"app-{number}", "java-3.9.1", RANGE, static=number > 0) for number in range(3)
        ),
        evidence=Evidence(kinds=frozenset()),
        events=(Event(5, "old image", 0), Event(6, "scale down", 5)),
        alike=True,
        counted=True,
        session=300.0,
        rebalance=15.0,
        epoch=0,
    )
    outcome = rehearse(history)
    assert outcome is not None
    assert outcome.violations == []
    waits = {line.rpartition(" after ")[2] for line in outcome.told if "may have stopped" in line}
    assert len(waits) == 2
