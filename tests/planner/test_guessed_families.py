"""Plans where circumstances (bytes, a client id) point to a member's client, and no proof does."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

from rebal.groups.model import Tri
from rebal.planner.plan import Plan, StepKind
from tests.planner.plans import BOTH, DONE, RANGE, m, plan

pytestmark = pytest.mark.usefixtures("no_costs")

REFUSING = ("librdkafka", "kafka-python")
EAGER_ONLY = ("kafkajs", "aiokafka", "segmentio")
MIXING = ("java", "franz-go", "sarama")


def guess(name: str, family: str, **more: Any) -> dict[str, Any]:
    return {"id": name, "family": family, "guess": True, **more}


def blocks(made: Plan) -> dict[str, Tri]:
    return {f.rule: f.result for f in made.findings if f.severity == "block" and not f.ignored}


def stops(made: Plan) -> bool:
    """Whether a step, or a finding's fix, tells the operator to stop members."""
    said = [finding.fix for finding in made.findings]
    return any(step.kind is StepKind.CUT_OVER for step in made.steps) or any(
        text.startswith("Stop every member") for text in said
    )


def test_who_must_stop_beside_a_proven_client_rests_on_proof_too() -> None:
    proven = m("rd", RANGE, family="librdkafka")
    split = plan([proven, m("j", RANGE)])
    assert (split.path, split.exit_code) == ("mixed_families", 0)
    for other in (guess("j", "java", list=RANGE), m("j", RANGE, family=None)):
        made = plan([proven, other])
        assert (made.path, made.steps, made.exit_code) == ("none", (), 4)
        assert blocks(made)["RB104"] is Tri.CANNOT_TELL
        assert not stops(made)
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


LISTS: tuple[dict[str, Any], ...] = (
    {}, {"list": RANGE}, {"list": DONE}, {"list": BOTH},
    {"at_least": RANGE}, {"at_least": DONE},
)  # fmt: skip


@pytest.mark.parametrize("goal", ["cooperative", "eager", "consumer"])
def test_no_guess_alone_gives_a_stop_a_block_or_a_done(goal: str) -> None:
    """Every family × list × kept partitions × elected assignor, alone and beside a proven member.

    A stop or exit code 3 must stand without the guess too: with the client not known at all.
    A "done" must hold for every family that the list allows.
    """
    asked = 0
    everybody = (*REFUSING, *EAGER_ONLY, *MIXING)
    for family, known, owned, elected in product(
        everybody, LISTS, (False, True), ("range", "cooperative-sticky", "sticky")
    ):
        if elected not in known.get("list", [elected]) or elected not in known.get(
            "at_least", [elected]
        ):
            continue
        for others in ([], [m("p", [elected])], [m("p", [elected], family="librdkafka")]):
            member = guess("a", family, owned=owned, **known)
            made = plan([member, *others], goal, elected=elected)
            unknown = plan([{**member, "family": None, "guess": False}, *others], goal,
                           elected=elected)  # fmt: skip
            case = (family, known, owned, elected, others, made.summary)
            if stops(made):
                assert stops(unknown), case
            if made.exit_code == 3:
                assert unknown.exit_code == 3, case
            if made.verdict == "done":
                assert unknown.verdict == "done", case
            asked += 1
    assert asked > 300
