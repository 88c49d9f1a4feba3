"""The plan of most tests of `verify`, and checks on every advice that any test makes."""

import re
from collections.abc import Callable
from typing import Any, TypeVar

import pytest
from msgspec import json

# It makes a class of `Standing`, so it must be there before the name is replaced.
import rebal.cli.render.verification  # noqa: F401
from rebal.groups.snapshot.documents import dec_hook, enc_hook
from rebal.planner.advice.steps import Actions
from rebal.planner.paths import choose, make_plan
from rebal.planner.plan import Action, Plan
from rebal.planner.verification import verify
from rebal.planner.verification.next_action import Look
from tests.planner.looks import bare, look

T = TypeVar("T")


@pytest.fixture(autouse=True)
def _every_answer_is_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each advice and standing has the types of its fields, whole texts, and the step it is of."""

    def decided(given: Any, actions: Actions) -> Actions:
        step = given.step if isinstance(given, Look) and given.fresh is None else None
        for one in (actions[0], *actions[1]):
            whole(one)
            assert one.reason or one.action is Action.NONE, one
            assert one.text
            assert step is None or one.step is not None, one
        return actions

    def checked(decide: Callable[..., Any], check: Callable[[Any, Any], Any]) -> Callable[..., Any]:
        return lambda *given, **more: check(given[0] if given else None, decide(*given, **more))

    monkeypatch.setattr(choose, "first_action", checked(choose.first_action, decided))
    monkeypatch.setattr(verify, "next_action", checked(verify.next_action, decided))
    monkeypatch.setattr(verify, "Standing", checked(verify.Standing, lambda _, made: whole(made)))


def whole(made: T) -> T:
    """Return `made`, which is as its type says after it was written and read."""
    written = json.encode(made, enc_hook=enc_hook)
    assert json.decode(written, type=type(made), dec_hook=dec_hook) == made
    assert not re.search(rb"\bNone\b", written), written
    return made


@pytest.fixture
def plan() -> Plan:
    """Three members on range, and nobody's list is known."""
    return make_plan(look(0, [bare(n) for n in range(3)]), expect_members=3)
