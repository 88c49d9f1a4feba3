"""What the planner says of really captured groups, at each point of their story.

The stories are the captures' own (truth.json tells what was done and what the members printed).
What must hold of any group is asked of the folder that REBAL_CAPTURES names, if it is set; what is
said of a group by name, of the bundled ones.
"""

from __future__ import annotations

import pytest

from rebal.groups.clients import assignors
from rebal.planner.paths import make_plan
from rebal.planner.plan import Verdict
from tests.planner.captured import BUNDLED, FOLDER, Story, stories
from tests.software import family

pytestmark = pytest.mark.usefixtures("no_costs")

COOPERATIVE = ["cooperative-sticky"]


def every_story() -> list[Story]:
    """With the request log, and with nothing but what describe shows."""
    return [*stories(True, FOLDER).values(), *stories(False, FOLDER).values()]


def test_no_step_that_is_called_ready_was_refused() -> None:
    refused = answered = 0
    for story in every_story():
        for snapshot in story.snapshots:
            start = story.next_start(snapshot.captured_at)
            if start is None:
                continue
            # Of one that is not a member the client is not known.
            member = start["client_id"] in {m.client_id for m in snapshot.members}
            failed = start["refused"] or (start["will_not_start"] and member)
            for goal in ("cooperative", "eager", "range", "sticky", "consumer"):
                plan = make_plan(snapshot, goal)
                for step in plan.steps:
                    if step.target_list != tuple(start["assignors"]):
                        continue
                    if family(start["software"]) in step.left_out:
                        continue
                    answered += 1
                    refused += start["refused"]
                    case = (story.name, snapshot.captured_at, start, plan.summary)
                    assert not (failed and step.exit_code == 0), case
    assert answered
    if FOLDER == BUNDLED:
        assert answered > 200
        assert refused >= 13, "the captures hold refusals that must have been foreseen"


def test_what_is_called_done_is_done() -> None:
    called = 0
    for story in every_story():
        for snapshot in story.snapshots:
            if make_plan(snapshot).verdict is not Verdict.DONE:
                continue
            called += 1
            alive = story.running(snapshot.captured_at)
            # A Streams program of 3.9.1 without upgrade.from is COOPERATIVE on [stream].
            programs = {m.client_id.partition("-StreamThread-")[0] for m in snapshot.members}
            lists = {name: alive[name]["assignors"] for name in programs if name in alive}
            streams = any("-StreamThread-" in m.client_id for m in snapshot.members)
            done = ["stream"] if streams else COOPERATIVE
            for names in lists.values():
                # assignors of the application's own may be cooperative, and prove it
                own = bool(names) and not set(names) & assignors().keys()
                assert names == done or own, (story.name, lists)
    assert FOLDER != BUNDLED or called > 5
