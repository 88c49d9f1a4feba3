"""The plan of most tests of `verify`, and checks on every advice that any test makes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from msgspec import json

from rebal.groups.snapshot.documents import dec_hook, enc_hook
from rebal.planner.kinds import Action
from rebal.planner.paths import choose, make_plan
from rebal.planner.plan import Advice, Plan
from rebal.planner.verification import verify
from tests.planner.looks import bare, look


@pytest.fixture(autouse=True)
def _every_advice_is_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each advice has the types of its fields, a reason and a text."""

    def checked(decide: Callable[..., Any]) -> Callable[..., Any]:
        def decided(*given: Any, **more: Any) -> Any:
            made, withheld = decide(*given, **more)
            for one in (made, *withheld):
                written = json.encode(one, enc_hook=enc_hook)
                assert json.decode(written, type=Advice, dec_hook=dec_hook) == one
                assert one.reason or one.action is Action.NONE, one
                assert one.text
            return made, withheld

        return decided

    monkeypatch.setattr(choose, "first_action", checked(choose.first_action))
    monkeypatch.setattr(verify, "next_action", checked(verify.next_action))


@pytest.fixture
def plan() -> Plan:
    """Three members on range, and nobody's list is known."""
    return make_plan(look(0, [bare(n) for n in range(3)]), expect_members=3)
