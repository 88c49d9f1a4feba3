"""The plan that most tests of `verify` hold a look against."""

from __future__ import annotations

import pytest

from rebal.planner.paths import make_plan
from rebal.planner.plan import Plan
from tests.planner.looks import bare, look


@pytest.fixture
def plan() -> Plan:
    """Three members on range, and nobody's list is known."""
    return make_plan(look(0, [bare(n) for n in range(3)]), expect_members=3)
