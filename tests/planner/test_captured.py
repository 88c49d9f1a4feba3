"""What the planner says of really captured groups, at each point of their story.

The stories are the captures' own (truth.json tells what was done and what the members printed).
What must hold of any group is asked of the folder that REBAL_CAPTURES names, if it is set; what is
said of a group by name, of the bundled ones.
"""

from __future__ import annotations

from collections import Counter

import pytest
from msgspec.structs import replace

from rebal.groups.clients import assignors
from rebal.groups.evidence.merge import merge
from rebal.groups.model import Cluster, Evidence, GroupSnapshot, Knowledge, Source, Tri
from rebal.planner.paths import make_plan
from rebal.planner.plan import Plan, Verdict
from rebal.planner.rules import evaluate
from tests.planner.captured import BUNDLED, FOLDER, Story, stories
from tests.software import family

pytestmark = pytest.mark.usefixtures("no_costs")

COOPERATIVE = ["cooperative-sticky"]


@pytest.fixture(scope="module")
def any_told() -> dict[str, Story]:
    return stories(folder=FOLDER)


@pytest.fixture(scope="module")
def any_silent() -> dict[str, Story]:
    return stories(log=False, folder=FOLDER)


@pytest.fixture(scope="module")
def told() -> dict[str, Story]:
    return stories()


@pytest.fixture(scope="module")
def silent() -> dict[str, Story]:
    """The same groups with nothing but what describe shows."""
    return stories(log=False)


def last(found: dict[str, Story], name: str) -> GroupSnapshot:
    return found[name].snapshots[-1]


def _row(source: str, story: Story) -> str:
    verdicts = Counter(make_plan(s).verdict.value for s in story.snapshots)
    said = ", ".join(f"{count} {name}" for name, count in sorted(verdicts.items()))
    starts = list(story.starts())
    refused = sum(start["refused"] for start in starts)
    outcome = f"of {len(starts)} starts the group refused {refused}"
    failed = sum(start["will_not_start"] for start in starts)
    outcome += f", their own client {failed}" if failed else ""
    now = make_plan(story.snapshots[-1])
    return f"{story.name:14} {source:13} {said}; {outcome}; at the end: {now.summary}"


def by_client(plan: Plan, ids: tuple[str, ...]) -> set[str]:
    return {m.client_id for m in plan.baseline.members if m.member_id in ids}


def test_no_step_that_is_called_ready_was_refused(
    any_told: dict[str, Story], any_silent: dict[str, Story], capsys: pytest.CaptureFixture[str]
) -> None:
    refused = answered = 0
    rows = []
    for source, found in (("request log", any_told), ("describe only", any_silent)):
        for story in found.values():
            rows.append(_row(source, story))
            for snapshot in story.snapshots:
                start = story.next_start(snapshot.captured_at)
                if start is None:
                    continue
                for goal in ("cooperative", "eager", "range", "sticky", "consumer"):
                    plan = make_plan(snapshot, goal)
                    for step in plan.steps:
                        if step.target_list != tuple(start["assignors"]):
                            continue
                        if family(start["software"]) in step.left_out:
                            continue
                        answered += 1
                        refused += start["refused"]
                        # Of one that is not a member the client is not known.
                        member = start["client_id"] in {m.client_id for m in snapshot.members}
                        failed = start["refused"] or (start["will_not_start"] and member)
                        assert not (failed and step.exit_code == 0), (
                            story.name,
                            snapshot.captured_at,
                            start,
                            plan.summary,
                        )
    with capsys.disabled():
        print("", *rows, sep="\n")
        print(f"{answered} starts with a planned list, {refused} of them were refused")
    assert answered
    if FOLDER == BUNDLED:
        assert answered > 200
        assert refused >= 13, "the captures hold refusals that must have been foreseen"


def test_what_is_called_done_is_done(
    any_told: dict[str, Story], any_silent: dict[str, Story]
) -> None:
    called = 0
    for found in (any_told, any_silent):
        for story in found.values():
            for snapshot in story.snapshots:
                plan = make_plan(snapshot)
                if plan.verdict is not Verdict.DONE:
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


def test_nobody_who_is_called_done_or_left_is_wrong(any_told: dict[str, Story]) -> None:
    checked = 0
    for story in any_told.values():
        for snapshot in story.snapshots:
            plan = make_plan(snapshot)
            alive = story.running(snapshot.captured_at)
            if plan.path not in ("two_bounces", "one_bounce"):
                continue
            for step in plan.steps:
                for client in by_client(plan, step.done) & set(alive):
                    names = alive[client]["assignors"]
                    assert "cooperative-sticky" in names, (story.name, client, names)
                    if step.id == len(plan.steps):
                        assert names == COOPERATIVE, (story.name, client, names)
                    checked += 1
                for client in by_client(plan, step.to_do) & set(alive):
                    assert alive[client]["assignors"] != COOPERATIVE, (story.name, client)
                    checked += 1
    assert checked > (100 if FOLDER == BUNDLED else 0)


def test_inventory_has_bounce_one_behind_it(told: dict[str, Story]) -> None:
    plan = make_plan(last(told, "inventory"))
    assert (plan.path, plan.next_step, plan.exit_code) == ("two_bounces", 2, 0)
    assert by_client(plan, plan.steps[0].done) == {"stock-0", "stock-1", "stock-2"}
    assert {f.rule for f in plan.findings} >= {"RB106"}
    assert plan.runs.value == "EAGER"
    assert plan.assignor == "cooperative-sticky"


def test_shipping_is_half_way(told: dict[str, Story]) -> None:
    plan = make_plan(last(told, "shipping"))
    assert (plan.next_step, plan.exit_code) == (1, 0)
    assert by_client(plan, plan.steps[0].done) == {"ship-0", "ship-1"}
    assert by_client(plan, plan.steps[0].to_do) == {"ship-2", "ship-3"}
    assert plan.steps[1].exit_code == 3


def test_checkout_names_the_forgotten_member_before_anybody_dies_of_it(
    told: dict[str, Story],
) -> None:
    story = told["checkout"]
    died = next(e["t_ms"] for e in story.timeline if e["action"] == "died")
    before = [s for s in story.snapshots if s.captured_at.timestamp() * 1000 < died]
    complete = [s for s in before if len(s.members) == 4][-1]
    plan = make_plan(complete)
    assert (plan.next_step, plan.exit_code) == (1, 0)
    (finding,) = [f for f in plan.findings if f.rule == "RB102"]
    assert by_client(plan, finding.members) == {"checkout-3"}
    assert plan.steps[1].exit_code == 3


def test_checkout_while_members_are_down(told: dict[str, Story]) -> None:
    story = told["checkout"]
    broken = next(s for s in story.snapshots if s.refusals)
    plan = make_plan(broken, expect_members=4)
    rules = {f.rule for f in plan.findings}
    assert {"RB102", "RB904", "RB606"} <= rules
    assert plan.steps[1].exit_code == 3
    (refusal,) = [f for f in plan.findings if f.rule == "RB904"]
    assert "checkout-0 (127.0.0.1) was rejected" in refusal.message
    assert "checkout-3 supports none of it" in refusal.message


@pytest.mark.parametrize("name", ["checkout", "gosvc", "static-orders"])
def test_groups_that_were_finished(told: dict[str, Story], name: str) -> None:
    plan = make_plan(last(told, name))
    assert (plan.path, plan.verdict, plan.exit_code) == ("finished", Verdict.DONE, 0)
    assert evaluate(last(told, name)) == ()


@pytest.mark.parametrize("name", ["ml-features", "pyapp"])
def test_clients_that_refuse_mixed_lists(told: dict[str, Story], name: str) -> None:
    story = told[name]
    early = story.snapshots[0]
    plan = make_plan(early)
    assert (plan.path, plan.exit_code) == ("cut_over", 3)
    assert "RB104" in {f.rule for f in plan.findings}
    end = make_plan(last(told, name))
    assert (end.path, end.exit_code) == ("finished", 0)


def test_kafkajs_is_blocked_where_the_user_says_that_it_is_kafkajs(told: dict[str, Story]) -> None:
    node = make_plan(last(told, "web-node"))
    # It never says its name: only the elected assignor's name points to it.
    assert (node.path, node.exit_code) == ("none", 4)
    assert {f.rule: f.result for f in node.findings}["RB105"] is Tri.CANNOT_TELL
    said = {m.client_id: "kafkajs" for m in node.baseline.members}
    assert make_plan(last(told, "web-node"), families=said).exit_code == 3


def test_streams_of_today_has_at_most_upgrade_from_to_remove(told: dict[str, Story]) -> None:
    for snapshot in told["streams-agg"].snapshots:
        plan = make_plan(snapshot)
        assert plan.path in ("streams_one_bounce", "finished")
        assert not any(
            "partition.assignment.strategy" in setting.text
            for step in plan.steps
            for setting in step.config
        )
    end = make_plan(last(told, "streams-agg"))
    assert end.exit_code == 0


def test_what_was_moved_to_kip_848_is_called_ready_for_it(told: dict[str, Story]) -> None:
    story = told["migrating"]
    moved = [
        e for e in story.timeline if e["action"] == "start" and e["group_protocol"] == "consumer"
    ]
    assert moved
    assert not any(e["action"] == "died" for e in story.timeline)
    snapshot = story.snapshots[-1]
    # What the broker of the captures was set to (see their README).
    known = Cluster(
        version="4.1.1",
        features={"group.version": 1},
        settings={
            "group.consumer.migration.policy": "bidirectional",
            "group.consumer.max.size": "2147483647",
        },
    )
    evidence = (Evidence(source=Source.DESCRIBE, at=snapshot.captured_at),)
    plan = make_plan(replace(snapshot, cluster=known, evidence=evidence), "consumer")
    assert (plan.path, plan.next_step, plan.exit_code) == ("kip848_online", 1, 0)
    assert make_plan(snapshot, "consumer").exit_code == 4


def test_billing_begins_with_one_bounce_and_ends_with_a_downgrade(told: dict[str, Story]) -> None:
    story = told["billing"]
    full = [s for s in story.snapshots if len(s.members) == 3]
    first = next(
        s for s in full if all(m.assignors.knowledge is Knowledge.EXACT for m in s.members)
    )
    plan = make_plan(first)
    assert (plan.path, plan.next_step, plan.exit_code) == ("one_bounce", 1, 0)
    down = make_plan(last(told, "billing"), "eager")
    assert (down.path, down.verdict) == ("finished", Verdict.DONE)


def test_without_a_log_only_true_lists_are_claimed(
    silent: dict[str, Story], told: dict[str, Story]
) -> None:
    for name in ("inventory", "shipping", "checkout"):
        for snapshot, logged in zip(silent[name].snapshots, told[name].snapshots, strict=True):
            plan = make_plan(snapshot)
            lists = {member.assignors.list for member in logged.members}
            assert plan.verdict is not Verdict.DONE or lists == {(plan.target,)}
            if plan.next_step == 2:
                assert plan.exit_code != 0 or plan.assignor == "cooperative-sticky"


def test_a_group_is_merged_once_whatever_it_shows(
    any_told: dict[str, Story], any_silent: dict[str, Story]
) -> None:
    for story in (*any_told.values(), *any_silent.values()):
        for snapshot in story.snapshots:
            once = merge(snapshot, ())
            assert merge(once, ()) == once
