"""Ready scripts, script files and parameters: what they make of a group."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from msgspec.structs import replace

from rebal.groups.durations import seconds_of, share_of
from rebal.groups.errors import DocumentError
from rebal.planner.paths import make_plan
from rebal.planner.rehearsal.rehearse import rehearse
from rebal.planner.rehearsal.scene import (
    PARAMETERS,
    VARIANTS,
    parameter_values,
    scene_of,
    variant,
)
from rebal.planner.rehearsal.scene import with_parameters as with_
from rebal.planner.rehearsal.script_file import ScriptError, load_script, script_of
from rebal.planner.rehearsal.scripts import (
    READY,
    Deed,
    Script,
    ScriptEvent,
    ScriptPace,
    ready_script,
    rollout,
    too_old,
    upgraded,
)
from tests.planner.builder import group_of
from tests.planner.every_path import BOTH as MIXED
from tests.planner.every_path import pods
from tests.planner.rehearsal.scenes import BOTH, DONE, RANGE, scene, told

FOUR = scene(RANGE, RANGE, RANGE, RANGE)
HEAD = "schema: rebal.script/1\nevents:\n"


def read(text: str, **more: Any) -> list[ScriptEvent]:
    return list(script_of(load_script(HEAD + text, "yaml", "x.yaml"), FOUR, **more).events)


def error(text: str, **more: Any) -> ScriptError:
    with pytest.raises(ScriptError) as caught:
        read(text, **more)
    return caught.value


def restarted(script: Script | None) -> list[tuple[str, ...]]:
    return [event.members for event in script.events if event.do is Deed.RESTART]


def test_rolling_takes_one_member_at_a_time_and_more_where_a_batch_says_so() -> None:
    names = ("m0", "m1", "m2", "m3")
    assert restarted(ready_script("rolling", FOUR)) == [(name,) for name in names]
    pairs = [names[:2], names[2:]]
    assert restarted(ready_script("rolling", FOUR, ScriptPace(batch=2))) == pairs
    assert restarted(ready_script("2-at-a-time", FOUR)) == pairs
    assert restarted(ready_script("all-at-once", FOUR)) == [names]
    assert ready_script("0-at-a-time", FOUR) is None
    assert ready_script("sideways", FOUR) is None


@pytest.mark.parametrize(("batch", "new"), [(None, 2), (3, 3), (0, 4)])
def test_scale_script_adds_half_the_members_or_a_batch(batch: int | None, new: int) -> None:
    grown, shrunk = ready_script("scale", FOUR, ScriptPace(batch=batch)).events
    assert (len(grown.processes), len(shrunk.members)) == (new, new)


def test_members_of_one_host_restart_together_and_those_without_one_alone() -> None:
    made = ready_script("by-host", FOUR, ScriptPace(hosts={"a": ["m0", "m2"], "b": ["m1", "gone"]}))
    assert restarted(made) == [("m0", "m2"), ("m1",), ("m3",)]
    assert [event.phase for event in made.events] == ["host a", "host b", "m3"]


@pytest.mark.parametrize("name", READY)
def test_every_ready_script_comes_to_rest_without_a_danger(name: str) -> None:
    script = ready_script(name, FOUR)
    run = rehearse(FOUR, script)
    assert (run.at_rest, run.state) == (True, "Stable")
    assert run.measures.rejected == 0
    assert run.measures.twice == run.measures.twice_past
    assert sum(member.owned for member in run.members) == 12
    assert script.about == READY[name].about
    if name == "slow-member":
        assert run.measures.twice_past > 0


@pytest.mark.parametrize("static", [False, True])
def test_blue_green_ends_with_the_new_members_alone(static: bool) -> None:
    where = scene(RANGE, RANGE, RANGE, RANGE, static=static)
    script = ready_script("blue-green", where)
    run = rehearse(where, script)
    # Copies of static members have instance ids of their own.
    assert told(run, "rejected") == []
    assert {one.name for one in run.members if one.owned} == {f"m{n}-green" for n in range(4)}


def test_an_event_names_members_by_name_pattern_list_and_all() -> None:
    (one, some, several, all_members) = read(
        "  - kill: m1\n"
        "  - restart: m[12]\n"
        "  - restart: [m3, m0, m3]\n"
        "    assignors: [org.apache.kafka.clients.consumer.CooperativeStickyAssignor, range]\n"
        "    takes: 5s\n"
        "  - stop: all\n"
    )
    assert (one.do, one.members, one.at) == (Deed.KILL, ("m1",), None)
    assert some.members == ("m1", "m2")
    assert (several.members, several.assignors, several.seconds) == (("m3", "m0"), BOTH, 5.0)
    assert all_members.members == ("m0", "m1", "m2", "m3")


def test_times_are_since_the_start_or_after_the_event_before() -> None:
    first, second, third = read(
        "  - {at: 90, kill: m0}\n  - {after: 500ms, start: m0}\n  - {at: 5m, wait: 1h}\n"
    )
    assert (first.at, second.after, third.at, third.seconds) == (90.0, 0.5, 300.0, 3600.0)
    assert (second.do, second.seconds) == (Deed.RESTART, 0.0)


def test_batch_splits_a_restart_event_into_several_restarts() -> None:
    made = read("  - {restart: all, batch: 3, at: 10s, phase: bounce 1}\n")
    assert [len(event.members) for event in made] == [3, 1]
    assert [event.at for event in made] == [10.0, None]
    assert [event.phase for event in made] == ["bounce 1", ""]


def test_a_new_member_starts_like_one_that_is_there_and_can_be_named_from_then_on() -> None:
    start, kill = read(
        "  - {start: surge, like: m0, assignors: cooperative-sticky}\n  - kill: surge\n"
    )
    (process,) = start.processes
    assert (process.name, process.client_id) == ("surge", "surge")
    assert (process.assignors, process.topics) == (DONE, ("orders",))
    assert kill.members == ("surge",)


def test_fails_in_makes_rebalance_callbacks_throw_until_a_later_restart_clears_it() -> None:
    made = read(
        "  - {restart: m0, fails-in: [revoked]}\n"
        "  - {restart: m1, takes: 5s}\n"
        "  - {restart: m0, fails-in: []}\n"
        "  - {start: surge, like: m1, fails-in: assigned}\n"
    )
    assert [event.fails_in for event in made] == [("revoked",), None, (), None]
    assert made[-1].processes[0].fails_in == ("assigned",)
    run = rehearse(FOUR, Script(events=tuple(made)))
    # Four range members prepare for m1's rebalance, and m0's listener throws.
    assert told(run, "callback failed") == [("m0", "revoked"), ("surge", "assigned")]
    assert [member.state for member in run.members] == ["running"] * 4 + ["stopped"]


def test_topics_change_and_leaders_notice_after_the_metadata_age() -> None:
    grown, deleted = read(
        "  - partitions: {orders: 20}\n  - {delete-topic: orders, noticed: 1s}\n", metadata=60.0
    )
    assert (grown.topic, grown.count, grown.seconds) == ("orders", 20, 60.0)
    assert (deleted.do, deleted.seconds) == (Deed.DELETE_TOPIC, 1.0)


@pytest.mark.parametrize(
    ("text", "do"),
    [
        ("busy: m0\n    for: 6m", Deed.BUSY),
        ("freeze: m0\n    for: 1m", Deed.FREEZE),
        ("coordinator: moves\n    takes: 2s", Deed.COORDINATOR),
        ("enforce-rebalance: m0", Deed.ENFORCE_REBALANCE),
        ("commit: all", Deed.COMMIT),
        ("subscribe: m0\n    topics: orders", Deed.SUBSCRIBE),
    ],
)
def test_every_other_script_event_is_parsed_and_runs(text: str, do: Deed) -> None:
    (event,) = read(f"  - {text}\n")
    assert event.do is do
    assert rehearse(FOUR, Script(events=(event,))).at_rest


@pytest.mark.parametrize(
    ("text", "says"),
    yaml.safe_load((Path(__file__).parents[2] / "data/wrong_events.yaml").read_text()),
)
def test_a_wrong_event_is_one_sentence_with_its_line(text: str, says: str) -> None:
    assert str(error(text)).startswith(f"x.yaml: {says}")
    assert "(line " in str(error(text))


@pytest.mark.parametrize(
    ("text", "word", "near"),
    [
        ("  - kill: mo\n", "mo", "m0"),
        ("  - {restart: m0, assignors: rnge}\n", "rnge", "range"),
        ("  - kil: m0\n", "kil", "kill"),
    ],
)
def test_script_error_carries_the_valid_names(text: str, word: str, near: str) -> None:
    found = error(text)
    assert found.word == word
    assert near in found.known


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("events: []\n", "x.yaml: schema: expected rebal.script/1, got nothing."),
        ("schema: rebal.script/2\nevents: []\n", "this rebal reads rebal.script/1"),
        ("schema: rebal.script/1\n", "missing required field `events`"),
        ("schema: rebal.script/1\nevents: []\n", "events: the script has no event (line 2)."),
        ("schema: rebal.script/1\nevents: [3]\n", "events[0]: expected `object`, got `int` (line"),
        ("schema: rebal.script/1\nevent: []\nevents: []\n", "there is no key event"),
        ("schema: rebal.script/1\nevents: [\n", "not valid YAML"),
    ],
)
def test_a_file_that_is_no_script_is_one_sentence(text: str, says: str) -> None:
    with pytest.raises(DocumentError) as caught:
        load_script(text, "yaml", "x.yaml")
    assert says in str(caught.value)
    assert str(caught.value).startswith("x.yaml: ")


def test_a_script_in_json_is_read_too() -> None:
    text = '{"schema": "rebal.script/1", "about": "One.", "events": [{"kill": "m0"}]}'
    script = script_of(load_script(text, "json", "x.json"), FOUR)
    assert (script.about, len(script.events)) == ("One.", 1)


def test_parameters_of_a_script_are_read_and_checked() -> None:
    source = load_script(
        f"set: {{restart: 20s, spread: 10%}}\nrests: 10m\n{HEAD}  - wait: 1s\n", "yaml", "x.yaml"
    )
    assert source.parameters() == {"restart": 20.0, "spread": 0.1}
    assert script_of(source, FOUR).rests == 600.0
    wrong = load_script(f"set: {{restrt: 20s}}\n{HEAD}  - wait: 1s\n", "yaml", "x.yaml")
    with pytest.raises(ScriptError, match=r"x.yaml: set.restrt: there is no parameter restrt"):
        wrong.parameters()


def test_a_step_of_the_plan_brings_its_list_to_its_members() -> None:
    group = group_of({"members": pods(3), "elected": "range"})
    plan = make_plan(group)
    here = scene_of(group)[0]
    text = f"{HEAD}  - step: 1\n  - coordinator: moves\n  - {{step: 2, batch: 0}}\n"
    events = script_of(load_script(text, "yaml", "x.yaml"), here, plan=plan).events
    assert [event.phase for event in events if event.phase] == ["step 1", "step 2"]
    assert [len(event.members) for event in events] == [1, 1, 1, 0, 3]
    assert events[0].assignors == tuple(MIXED)
    assert rehearse(here, Script(events=events)).assignor == "cooperative-sticky"
    wrong = load_script(f"{HEAD}  - step: 3\n", "yaml", "x.yaml")
    with pytest.raises(ScriptError, match="the plan has no step 3; it has 2"):
        script_of(wrong, here, plan=plan)


@pytest.mark.parametrize(
    ("family", "version", "old"),
    [("java", "2.3.1", True), ("java", "2.8.2", False), ("sarama", "1.45.0", True)],
)
def test_a_client_that_is_too_old_for_a_list_of_the_plan_is_upgraded_with_it(
    family: str, version: str, old: bool
) -> None:
    group = group_of({"members": pods(2, family=family, version=version), "elected": "range"})
    script = rollout(make_plan(group))
    here, assumed = upgraded(scene_of(group)[0], script)
    assert assumed == (
        ("shipping-0, shipping-1: upgraded in the restart that brings the list, as the plan says",)
        if old
        else ()
    )
    assert {each.state for each in rehearse(here, script).members} == {"running"}


@pytest.mark.parametrize(
    ("family", "version", "said"),
    [
        ("java", "3.9.1", "step 1 is blocked: shipping-0, shipping-1 cannot use"),
        ("kafkajs", None, "step 1 is blocked: shipping-0, shipping-1 cannot use"),
        ("java", "4.0.0", ""),
    ],
)
def test_a_client_that_is_too_old_for_kip848_blocks_its_step(
    family: str, version: str | None, said: str
) -> None:
    group = group_of({"members": pods(2, family=family, version=version), "elected": "range"})
    script = rollout(make_plan(group, "consumer"))
    assert too_old(scene_of(group)[0], script).partition(" group.")[0] == said


def test_a_member_that_runs_a_preview_of_kip848_starts_again() -> None:
    members = pods(2, protocol_type="consumer", version="3.9.1")
    scene, _ = scene_of(group_of({"members": members, "type": "consumer", "elected": "uniform"}))
    run = rehearse(scene, Script(events=(ScriptEvent(do=Deed.RESTART, members=("shipping-0",)),)))
    assert {each.state for each in run.members} == {"running"}


@pytest.mark.parametrize("name", PARAMETERS)
def test_every_rehearsal_parameter_sets_the_value_that_the_rehearsal_reads(name: str) -> None:
    value = 0.25
    changed = with_(FOUR, {name: value})
    if name != "metadata":
        assert set(PARAMETERS[name].values(changed)) == {value}
        assert changed != FOUR
    (one,) = [one for one in parameter_values(changed, {name: value}) if one.name == name]
    assert (one.least, one.most, one.given) == (value, value, True)


def test_a_shorter_session_shortens_the_heartbeat_interval() -> None:
    assert {one.process.heartbeat for one in with_(FOUR, {"session": 6.0}).running} == {2.0}
    asked = with_(FOUR, {"session": 6.0, "heartbeat": 1.0})
    assert {one.process.heartbeat for one in asked.running} == {1.0}


def test_durations_and_shares_are_read() -> None:
    assert [seconds_of(each) for each in ("30s", "5m", "1.5h", "500ms", 7, "2 min", "1d")] == [
        30.0, 300.0, 5400.0, 0.5, 7.0, 120.0, 86_400.0,
    ]  # fmt: skip
    assert [share_of(each) for each in ("20%", 0.5, "0")] == [0.2, 0.5, 0.0]
    for wrong in ("", "-1s", "1w", "nan"):
        with pytest.raises(ValueError, match="expected a duration"):
            seconds_of(wrong)
    with pytest.raises(ValueError, match="expected a share"):
        share_of("120%")


def test_scene_variant_runs_another_protocol_with_every_partition_owned() -> None:
    rolling = ready_script("rolling", FOUR)
    assert rolling is not None
    (eager, script), (cooperative, _) = (
        variant(FOUR, rolling, name) for name in ("eager", "cooperative")
    )
    assert {one.process.assignors for one in eager.running} == {RANGE}
    assert {one.process.assignors for one in cooperative.running} == {DONE}
    assert variant(FOUR, rolling, "now") == (FOUR, rolling)
    sticky = scene(("sticky",), ("sticky",), elected="sticky")
    assert variant(sticky, rolling, "eager")[0].assignor == "sticky"
    kafkajs = replace(FOUR, assignor="RoundRobinAssigner")
    same, _ = variant(kafkajs, rolling, "eager")
    owned = [len(one.owned) for one in same.running]
    assert (same.assignor, owned) == ("RoundRobinAssigner", [3, 3, 3, 3])
    for made in (eager, cooperative):
        assert sum(len(one.owned) for one in made.running) == 12
    first, second = (rehearse(one, script).measures for one in (eager, cooperative))
    assert first.stopped > second.stopped
    assert first.rebalances < second.rebalances
    assert set(VARIANTS) == {"eager", "cooperative", "consumer", "plan", "now"}


def test_a_script_for_another_protocol_leaves_each_members_list_as_it_is() -> None:
    events = (
        ScriptEvent(do=Deed.RESTART, members=("m0",), assignors=DONE, protocol="consumer"),
        ScriptEvent(do=Deed.KILL, members=("m1",)),
    )
    first, second = variant(FOUR, Script(events=events), "now")[1].events
    assert (first.members, first.assignors, first.protocol) == (("m0",), (), "")
    assert second == events[1]


@pytest.mark.parametrize(
    ("name", "protocol"), [("cooperative", "classic"), ("consumer", "consumer")]
)
def test_a_process_that_starts_in_a_variant_runs_the_protocol_of_the_variant(
    name: str, protocol: str
) -> None:
    blue_green = ready_script("blue-green", FOUR)
    assert blue_green is not None
    group, script = variant(FOUR, blue_green, name)
    started = {(p.assignors, p.protocol) for e in script.events for p in e.processes}
    assert started == {(one.process.assignors, protocol) for one in group.running}
    assert rehearse(group, script).measures.rejected == 0
