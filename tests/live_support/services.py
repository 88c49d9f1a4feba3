"""What the tests of plans that a `Service` carries out share: the begin, the end, the truth."""

from collections.abc import Sequence
from typing import Any

import pytest

from tests.kafka.service import Service, gave_up

Places = set[tuple[str, int]]
BOTH_COORDINATORS = ["kafka41", pytest.param("kafka39", marks=pytest.mark.full)]
"""On the Java coordinator, and in `make test-full` on the Scala one, too."""


def steps_of(service: Service, path: str, *words: str) -> list[dict[str, Any]]:
    """Write a plan that has this path and begins with step 1; its steps."""
    plan = service.plan(*words, "--out", str(service.file))
    assert (plan["path"], plan["next_step"], plan["exit_code"]) == (path, 1, 0), plan["summary"]
    return list(plan["steps"])


def is_over(service: Service, *goal: str) -> None:
    """Assert that the plan is carried out, a new one has nothing to do, and no member failed."""
    assert service.verify()["finished"]
    assert service.plan(*goal)["verdict"] == "done"
    assert not service.errors()


def given_up(
    service: Service, newcomer: str, assignors: Sequence[str]
) -> dict[str, tuple[Places, Places]]:
    """Start one more member: what each other one owned before, and what of it it gave up.

    COOPERATIVE members give up a part at most, EAGER ones everything.
    """
    before = {name: (one.owned, len(one.events)) for name, one in service.running.items()}
    service.begin([newcomer], list(assignors))
    return {
        name: (owned, gave_up(service.running[name], since))
        for name, (owned, since) in before.items()
    }
