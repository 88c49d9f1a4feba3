"""Plans where circumstances (bytes, a client id) point to a member's client, and no proof does."""

from __future__ import annotations

from typing import Any

import pytest

from rebal.groups.model import Tri
from rebal.planner.plan import Plan
from tests.planner.plans import BOTH, RANGE, m, plan

pytestmark = pytest.mark.usefixtures("no_costs")


def guess(name: str, family: str, **more: Any) -> dict[str, Any]:
    return {"id": name, "family": family, "guess": True, **more}


def blocks(made: Plan) -> dict[str, Tri]:
    return {f.rule: f.result for f in made.findings if f.severity == "block" and not f.ignored}


def test_who_must_stop_beside_a_proven_client_rests_on_proof_too() -> None:
    proven = m("rd", RANGE, family="librdkafka")
    split = plan([proven, m("j", RANGE)])
    assert (split.path, split.exit_code) == ("mixed_families", 0)
    for other in (guess("j", "java", list=RANGE), m("j", RANGE, family=None)):
        made = plan([proven, other])
        assert (made.path, made.steps, made.exit_code) == ("none", (), 4)
        assert blocks(made)["RB104"] is Tri.CANNOT_TELL
        assert not any(one.fix.startswith("Stop every member") for one in made.findings)
    # A list that holds both kinds is proof that its client takes one.
    shown = plan([proven, guess("j", "java", list=BOTH)])
    assert (shown.path, shown.next_step, shown.exit_code) == ("mixed_families", 2, 0)


def test_a_client_id_alone_does_not_permit_a_mixed_list() -> None:
    """The bytes of [sticky] exclude no client, and those of [range] do."""
    by_id = plan([guess("a", "java")], elected="sticky")
    assert (by_id.next_step, by_id.exit_code) == (1, 4)
    assert blocks(by_id)["RB906"] is Tri.CANNOT_TELL
    assert plan([guess("a", "java")], elected="sticky", families={"a": "java"}).exit_code == 0
    by_bytes = plan([guess("a", "java")])
    assert by_bytes.exit_code == 0
    assert "RB907" in {finding.rule for finding in by_bytes.findings}


@pytest.mark.parametrize("family", ["kafkajs", "kafka-python", "sarama"])
def test_a_guess_never_shuts_the_way_to_kip_848(family: str) -> None:
    ready = {"cluster": {"version": "4.1.1", "features": {"group.version": 1}}}
    proven = plan([m("a", RANGE, family=family)], "consumer", **ready)
    assert (proven.exit_code, blocks(proven)["RB412"]) == (3, Tri.YES)
    made = plan([guess("a", family)], "consumer", **ready)
    assert (made.exit_code, blocks(made)["RB412"]) == (4, Tri.CANNOT_TELL)


@pytest.mark.parametrize(("family", "bounded"), [("java", True), ("sarama", False)])
def test_bounds_of_one_client_are_not_those_of_the_one_that_the_user_states(
    family: str, bounded: bool
) -> None:
    left = "java >= 2.4, < 3.4, franz-go or sarama"
    made = plan([m("a", RANGE, family=None, left=left)], families={"a": family})
    (text, *_) = [setting.text for setting in made.steps[0].config]
    assert ("or later; not every version is known" in text) is not bounded
