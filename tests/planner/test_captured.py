"""What the planner and verify say of really captured groups, at each point of their story.

The stories are the captures' own (truth.json tells what was done and what the members printed).
What must hold of any group is asked of the folder that REBAL_CAPTURES names, if it is set; what is
said of a group by name, of the bundled ones.
"""

from functools import cache

import pytest

from rebal.groups.clients import assignors
from rebal.groups.evidence.observations import Joined
from rebal.groups.model import Tri
from rebal.inspectors.logs.requests.reader import read_request_log
from rebal.planner.paths import make_plan
from rebal.planner.plan import Plan, Verdict
from rebal.planner.verification.dangers import decides
from rebal.planner.verification.verify import Standing
from tests.planner.captured import BUNDLED, FOLDER, Story, stories
from tests.planner.looks import Story as Looks
from tests.software import family

COOPERATIVE = ["cooperative-sticky"]


def every_story() -> list[Story]:
    """With the request log, and with nothing but what describe shows."""
    return [*stories(True, FOLDER).values(), *stories(False, FOLDER).values()]


@pytest.mark.usefixtures("no_costs")
def test_captured_restart_is_never_rejected_if_its_step_was_planned_as_ready() -> None:
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


@pytest.mark.usefixtures("no_costs")
def test_captured_group_is_planned_as_done_only_if_every_real_list_is_cooperative() -> None:
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


TARGET = "cooperative-sticky"
JAVA = ("billing", "checkout", "inventory", "shipping", "static-orders")


@cache
def truth() -> dict[str, tuple[str, ...]]:
    """Member id → its list, by the whole log: what nobody knew yet at the time of a look."""
    seen = read_request_log([BUNDLED / "kafka-request.log.gz"]).observations
    return {one.member_id: one.list for one in seen if isinstance(one, Joined) and one.member_id}


def told(story: Story, plan: Plan) -> list[Standing]:
    """Each look after the plan's own, with the journal of those before it."""
    tell = Looks(plan)
    later = (each for each in story.snapshots if each.captured_at > plan.baseline.captured_at)
    return [tell(snapshot) for snapshot in later]


def full(story: Story) -> int:
    """The first look at which as many members are there as there ever are."""
    sizes = [len(snapshot.members) for snapshot in story.snapshots]
    return sizes.index(max(sizes))


@pytest.mark.parametrize("log", [True, False], ids=["with the log", "without"])
@pytest.mark.parametrize("name", JAVA)
def test_verify_claims_no_more_than_the_whole_captured_log_proves(name: str, log: bool) -> None:
    story = stories(log)[name]
    base = story.snapshots[full(story)]
    plan = make_plan(base, expect_members=len(base.members))
    looks = told(story, plan)
    assert looks
    for standing in looks:
        lists = {m.member_id: truth()[m.member_id] for m in standing.members}
        made = {key for key, names in lists.items() if TARGET in names}
        settled = {key for key, names in lists.items() if names == (TARGET,)}
        for step in standing.steps:
            right = settled if step.id == plan.steps[-1].id else made
            assert set(step.done) <= right, (name, standing.at)
            assert not (set(step.to_do) - set(step.not_restarted)) & right, (name, standing.at)
        if standing.gate is Tri.YES:
            assert len(lists) >= len(base.members)
            assert set(lists) == (settled if standing.finished else made), (name, standing.at)
        if standing.exit_code == 0 and not standing.finished:
            coming = story.next_start(standing.at)
            assert coming is None or not coming["refused"], (name, standing.at)


def test_verify_names_the_member_left_on_range_before_the_first_captured_rejection() -> None:
    story = stories(True)["checkout"]
    base = story.snapshots[full(story)]
    looks = told(story, make_plan(base, expect_members=len(base.members)))
    refused = next(
        n for n, look in enumerate(looks) if any(d.kind == "rejected" for d in look.dangers)
    )
    last = [look for look in looks[:refused] if not look.outsiders][-1]
    (forgotten,) = [member for member in last.members if member.done is Tri.NO]
    assert (last.step, last.exit_code) == (1, 4)
    assert truth()[forgotten.member_id] == ("range",)
    assert looks[refused].exit_code == 3
    assert looks[refused].dangers[0].members == (forgotten.member_id,)


# What stopped a group, and truly was there: refusals in the log, and a way back without a step
# between. kafkajs (web-node) never says its name, so nothing of it is proven.
STOPPED = {
    True: {
        "checkout": {"rejected"},
        "billing": {"RB102"},
        "ml-features": {"rejected"},
        "pyapp": {"rejected"},
    },
    False: {},
}


@pytest.mark.parametrize("log", [True, False], ids=["with the log", "without"])
def test_verify_stops_only_endangered_captured_groups_and_permits_no_rejected_start(
    log: bool,
) -> None:
    stopped: dict[str, set[str]] = {}
    held = followed = 0
    for name, story in stories(log, FOLDER).items():
        base = story.snapshots[full(story)]
        # What a plan needs somebody to agree to is agreed.
        agreed = {"RB104": "agreed"} if make_plan(base).path == "cut_over" else {}
        plan = make_plan(base, expect_members=len(base.members), ignore=agreed)
        planned = {(plan.target,), *(step.target_list for step in plan.steps if step.target_list)}
        for standing in told(story, plan) if plan.steps else ():
            rules = {f.rule for f in standing.findings if decides(f, Tri.YES)}
            why = {danger.kind for danger in standing.dangers} | rules
            # So does a plan that no longer fits the group.
            assert (bool(why) or standing.advice.verdict is Tri.NO) is (standing.exit_code == 3)
            if why:
                stopped.setdefault(name, set()).update(why)
            if standing.exit_code == 0:
                coming = story.next_start(standing.at)
                # A plan speaks for those who come with a list of its own.
                if coming and tuple(coming["assignors"]) in planned:
                    assert not coming["refused"], (name, standing.at)
                    followed += 1
                held += 1
    if FOLDER == BUNDLED:
        assert held > followed > 0
        assert stopped == STOPPED[log]
