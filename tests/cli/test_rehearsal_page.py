"""The HTML page of a rehearsal: hostile names, dangers, size, and what its program reads."""

import json
import re

from msgspec.structs import replace

from rebal.cli.render.simulation.lanes import rehearsal_html
from rebal.planner.rehearsal.rehearse import rehearse
from rebal.planner.rehearsal.scripts import Deed, Script, ScriptEvent
from tests.planner.rehearsal.scenes import (
    BOTH,
    DONE,
    RANGE,
    play,
    restart,
    scene,
    with_processes,
)

HOSTILE = "</script><script>alert(1)</script>\x1b[2J\"'&"


def data(page: str) -> dict[str, list[list[object]]]:
    (text,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', page, re.S)
    made: dict[str, list[list[object]]] = json.loads(text)
    return made


def test_a_hostile_name_is_text_and_nothing_else() -> None:
    where = with_processes(scene(RANGE, RANGE), "m0", name=HOSTILE)
    page = rehearsal_html(play(where, restart(HOSTILE, to=DONE)), HOSTILE)
    assert "\x1b" not in page
    assert page.count("<script") == 2
    assert "&lt;script&gt;alert(1)" in page
    assert any("alert(1)" in str(note) for note in data(page)["notes"])


def test_dangers_lead_and_name_the_members() -> None:
    run = play(scene(BOTH, BOTH, RANGE, elected="range"), restart("m0", to=DONE))
    page = rehearsal_html(run, "orders")
    danger = page.index("rejected: m0 is rejected (INCONSISTENT_GROUP_PROTOCOL) at 0:")
    assert danger < page.index("<dt>takes</dt>")
    assert "no owner: " not in page
    late = ScriptEvent(do=Deed.STOP, members=("m0", "m1", "m2"), at=10)
    assert "no owner: 12 partitions have no owner at the end, such as orders-0" in rehearsal_html(
        play(scene(RANGE, RANGE, RANGE), late), "orders"
    )
    deleted = ScriptEvent(do=Deed.DELETE_TOPIC, topic="orders", at=10)
    page = rehearsal_html(play(scene(RANGE, RANGE, RANGE), deleted), "orders")
    assert 'class="danger"' not in page


def test_the_verdict_leads_and_the_drawing_goes_past_the_last_rebalance() -> None:
    run = play(scene(DONE, DONE), replace(restart("m0"), phase="step 1"))
    page = rehearsal_html(run, "orders")
    assert 'class="danger"' not in page
    verdict = page.index("No member is rejected, and no partition is owned twice.")
    assert verdict < page.index("<dt>takes</dt>")
    ended = max(one.ended for one in run.rebalances if one.ended is not None)
    drawn = float(re.findall(r'type="range" min="0" max="([\d.]+)"', page)[0])
    assert drawn > run.measures.seconds >= ended
    marks = re.findall(r'<span style="left:([\d.]+)%"[^>]*>(step 1|at rest)</span>', page)
    assert ("0.00", "step 1") in marks
    assert (f"{100 * ended / drawn:.2f}", "at rest") in marks


def test_a_group_that_finds_no_rest_is_drawn_to_the_end_of_its_story() -> None:
    run = replace(play(scene(DONE, DONE), restart("m0")), at_rest=False)
    page = rehearsal_html(run, "orders")
    assert f'max="{run.measures.seconds}"' in page
    assert ">at rest</span>" not in page
    # A rebalance that takes no time ends at the first moment of the story.
    run = play(scene(DONE, DONE), ScriptEvent(do=Deed.STOP, members=("m0", "m1")))
    assert [one.ended for one in run.rebalances] == [0]
    assert ">at rest</span>" in rehearsal_html(run, "orders")


def test_tasks_that_are_not_modelled_have_no_downtime() -> None:
    where = with_processes(scene(RANGE, RANGE, family="streams"), assignors=("stream",))
    page = rehearsal_html(play(replace(where, assignor="stream"), restart("m0")), "g")
    assert "<dt>downtime</dt><dd>not modelled</dd>" in page
    assert "without an owner" not in page
    assert "<th>Stopped</th>" not in page
    assert '"unit": "none"' in page


def test_the_program_can_step_through_each_rebalance() -> None:
    run = play(scene(RANGE, RANGE), restart("m0"), restart("m1"))
    read_by_program = data(rehearsal_html(run, "orders"))
    assert len(read_by_program["lanes"]) == 2
    for one in run.rebalances:
        assert round(one.began, 3) in read_by_program["marks"]
    assert all(lane[-1][0] == read_by_program["columns"] for lane in read_by_program["lanes"])


def test_200_members_fit_a_page_of_a_megabyte() -> None:
    where = scene(*[RANGE] * 200, partitions=400)
    events = tuple(restart(f"m{number}") for number in range(0, 200, 10))
    page = rehearsal_html(rehearse(where, Script(events=events)), "orders")
    assert len(page) < 1_000_000
    assert page.count("<g transform") == 200
