"""Histories that the search has found (found.yaml): none of them loses a member now."""

import pytest

from tests.search.histories import found
from tests.search.obey import End, rehearse

KNOWN = found()


def ended(why: str) -> End:
    """Return how this history ends; nothing is told wrongly in it."""
    outcome = rehearse(KNOWN[why].history)
    assert outcome is not None
    assert outcome.violations == []
    return outcome


@pytest.mark.parametrize("why", KNOWN)
def test_a_history_that_the_search_found_now_ends_as_expected(why: str) -> None:
    outcome = ended(why)
    assert outcome.ended.startswith(KNOWN[why].ends), outcome.told[-3:]


@pytest.mark.parametrize(
    ("why", "fragment"),
    [
        (
            "a static member was back with another id than when its rejection was seen",
            "start app-4, app-1 with [cooperative-sticky, range], if they are down",
        ),
        (
            "more rejected clients were started than the brokers have places for",
            "more-1 not yet, look again first: the group has 3 members and the brokers allow 3",
        ),
        (
            "a member that had left was forgotten in the move to KIP-848",
            "1 of 2 expected members is not in the group; if the service has no more members: "
            "--expect-members 1",
        ),
    ],
)
def test_advice_now_states_what_a_found_history_lacked(why: str, fragment: str) -> None:
    assert any(fragment in told for told in ended(why).told)


def test_a_plan_is_not_finished_while_a_partition_has_no_owner() -> None:
    outcome = ended("a static member restarted between the rounds of a rebalance left a partition")
    advice = [line for line in outcome.told if "advice: " in line]
    waits = [number for number, line in enumerate(advice) if "wait: orders-5 has no owner" in line]
    assert waits
    assert "with its CURRENT list" in advice[waits[-1] + 1]
    assert "the plan is carried out" in advice[waits[-1] + 2]


def test_a_wait_that_a_rebalance_restarts_is_not_taken_for_a_standstill() -> None:
    outcome = ended("a wait that a rebalance began anew was taken for standing still")
    waits = {line.rpartition(" after ")[2] for line in outcome.told if "may have stopped" in line}
    assert len(waits) == 2
