"""A roll-out told from its journal: restarts, steps and dangers, each with what looks can show."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from msgspec.structs import replace

from rebal.planner.verification.journal import Confirmation, JournalEntry
from rebal.planner.verification.timeline import Timeline, timeline_of
from tests.planner.builder import AT
from tests.planner.looks import Story, app, id_of, look, pods
from tests.planner.plans import BOTH, DONE, RANGE, plan


def upgrade() -> Story:
    """Two members go through both bounces, a look a minute; app-1 is away at one look."""
    story = Story(plan(pods(1, 1, list=RANGE)))
    rows = [
        (1, [app(0, 1, list=RANGE), app(1, 1, list=RANGE)], 4, "Stable"),
        (2, [app(0, 2, list=BOTH), app(1, 1, list=RANGE)], 6, "Stable"),
        (3, [app(0, 2, list=BOTH)], 7, "PreparingRebalance"),
        (4, [app(0, 2, list=BOTH), app(1, 2, list=BOTH)], 8, "Stable"),
        (5, [app(0, 3, list=DONE), app(1, 2, list=BOTH)], 10, "Stable"),
        (6, [app(0, 3, list=DONE), app(1, 3, list=DONE)], 12, "Stable"),
    ]
    for minute, members, generation, state in rows:
        elected = "range" if minute < 4 else "cooperative-sticky"
        story(look(minute, members, state=state, elected=elected, generation=generation))
    return story


def told(story: Story) -> Timeline:
    return timeline_of(story.plan, story.entries)


def at(minute: float) -> object:
    return AT + timedelta(minutes=minute)


def test_an_empty_journal_has_the_steps_and_nothing_else() -> None:
    made = plan(pods(1, 1, list=RANGE))
    found = timeline_of(made, [])
    assert (found.group_id, [step.step for step in found.steps]) == ("checkout", [1, 2])
    assert {(step.began, step.held) for step in found.steps} == {(None, None)}
    assert (found.looks, found.members, found.rebalances, found.finished) == (0, (), None, False)


def test_of_equal_clients_each_keeps_its_place_by_its_address() -> None:
    hosts = {"a": "/10.0.0.1", "b": "/10.0.0.2"}

    def alike(start: int, names: str) -> list[dict[str, Any]]:
        return [{**app(0, start), "id": f"{n}.{start}", "host": hosts[n]} for n in names]

    story = Story(plan(alike(1, "ab")))
    for minute, members in ((1, alike(1, "ab")), (2, alike(2, "ba"))):
        story(look(minute, members))
    assert {one.host: [t.member_id for t in one.tenures] for one in told(story).members} == {
        host: [f"{n}.1-0f0f", f"{n}.2-0f0f"] for n, host in hosts.items()
    }


def test_a_restart_before_the_first_look_shows_against_the_plan() -> None:
    story = Story(plan(pods(1, 1, list=RANGE)))
    story(look(1, [app(0, 2, list=BOTH), app(1, 1, list=RANGE)]))
    found = {one.name: [t.member_id for t in one.tenures] for one in told(story).members}
    assert found == {"app-0": [id_of(0, 1), id_of(0, 2)], "app-1": [id_of(1, 1)]}
    assert {t.since for one in told(story).members for t in one.tenures} == {at(1)}


def test_dangers_are_told_when_they_begin_and_blind_looks_are_no_looks() -> None:
    story = upgrade()
    for n in (2, 3):
        story.entries[n] = replace(story.entries[n], dangers=("rejected",))
    blind = JournalEntry(at=at(4.5), plan="", group_id="g", blind="no broker answers")  # type: ignore[arg-type]
    story.entries.insert(4, blind)
    found = told(story)
    assert found.looks == 6
    assert [(e.kind, e.text, e.at) for e in found.events] == [
        ("danger", "rejected", at(3)),
        ("blind", "no broker answers", at(4.5)),
    ]


def test_a_word_that_evidence_overruled_is_told_no_longer() -> None:
    story = upgrade()
    last = story.entries[-1]
    bare = tuple(replace(member, made=()) for member in last.members)
    word = Confirmation(step=2, reason="its pod", members=(id_of(1, 3),))
    story.entries[-1] = replace(last, members=bare, confirmed=word)
    assert told(story).members[1].made[2].confirmed
    void = tuple(replace(member, contradicted=(2,)) for member in bare)
    story.entries.append(replace(last, at=last.at + timedelta(minutes=1), members=void))
    assert 2 not in told(story).members[1].made


def test_two_words_on_one_saved_look_are_both_told() -> None:
    story = upgrade()
    last = story.entries[-1]
    unproven = (replace(member, made=()) for member in last.members)
    bare = replace(last, members=tuple(unproven))
    words = [Confirmation(step=2, reason="its pod", members=(id_of(n, 3),)) for n in range(2)]
    story.entries = [replace(bare, confirmed=word) for word in words]
    found = told(story)
    assert [one.made[2].confirmed for one in found.members] == [True, True]
    assert [(e.kind, e.text) for e in found.events] == [("confirmed", "step 2: its pod")] * 2


def test_another_instance_id_is_another_member_whatever_its_client_id() -> None:
    static = app(0, 2, list=BOTH, instance="b")
    for before in (app(0, 1, instance="a"), app(0, 1)):
        story = Story(plan([before, app(1)]))
        for minute, one in enumerate((before, static), 1):
            story(look(minute, [one, app(1)]))
        assert len(told(story).members) == 3
