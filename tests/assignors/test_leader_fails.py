"""Inputs on which the real leader threw, or was still at it after 45 s (kafka-clients 4.1.1)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rebal.groups.assignors import LeaderWouldFail, assign
from tests.assignors.oracle import spec_of

RECORDED = Path(__file__).parent / "leader_fails.jsonl"
CASES = [json.loads(line) for line in RECORDED.read_text(encoding="utf-8").splitlines()]


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case['case']}: {case['java']}")
def test_what_kills_the_leader_is_said(case: dict) -> None:
    with pytest.raises(LeaderWouldFail) as caught:
        assign(case["assignor"], spec_of(case))
    error = caught.value
    assert error.never_ends == (case["java"] == "never ends")
    if not error.never_ends:
        assert case["java"] in str(error)
    assert error.members
    assert set(error.members) <= {member["member_id"] for member in case["members"]}
    assert error.topics
    assert set(error.topics) <= set(case["topics"])
