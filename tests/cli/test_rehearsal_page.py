"""The HTML page of a rehearsal: hostile names, dangers, size, and what its program reads."""

import json
import re
from html.parser import HTMLParser

from msgspec.structs import replace

from rebal.cli.render.simulation.page import rehearsal_html
from rebal.planner.rehearsal.rehearse import rehearse
from rebal.planner.rehearsal.script import Deed, Event, Scene, Script
from tests.planner.rehearsal.scenes import BOTH, DONE, RANGE, play, restart, scene

HOSTILE = "</script><script>alert(1)</script>\x1b[2J\"'&"


class Tags(HTMLParser):
    """What a browser would find."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self.text: list[str] = []

    def handle_starttag(self, tag: str, _: list[tuple[str, str | None]]) -> None:
        self.found.append(tag)

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def read(page: str) -> Tags:
    tags = Tags()
    tags.feed(page)
    return tags


def data(page: str) -> dict[str, list[list[object]]]:
    (text,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', page, re.S)
    made: dict[str, list[list[object]]] = json.loads(text)
    return made


def renamed(where: Scene, name: str) -> Scene:
    first, *rest = where.running
    return replace(
        where, running=(replace(first, process=replace(first.process, name=name)), *rest)
    )


def test_a_hostile_name_is_text_and_nothing_else() -> None:
    where = renamed(scene(RANGE, RANGE), HOSTILE)
    page = rehearsal_html(play(where, restart(HOSTILE, to=DONE)), HOSTILE)
    assert "\x1b" not in page
    assert read(page).found.count("script") == 2
    assert any("alert(1)" in text for text in read(page).text)
    assert any("alert(1)" in str(note) for note in data(page)["notes"])


def test_dangers_lead_and_name_the_members() -> None:
    run = play(scene(BOTH, BOTH, RANGE, elected="range"), restart("m0", to=DONE))
    page = rehearsal_html(run, "orders")
    danger = page.index("rejected: m0 is rejected (INCONSISTENT_GROUP_PROTOCOL) at 0:")
    assert danger < page.index("<dt>takes</dt>")
    assert "no owner: " not in page
    late = Event(do=Deed.STOP, members=("m0", "m1", "m2"), at=10)
    assert "no owner: 12 partitions have no owner at the end, such as orders-0" in rehearsal_html(
        play(scene(RANGE, RANGE, RANGE), late), "orders"
    )
    deleted = Event(do=Deed.DELETE_TOPIC, topic="orders", at=10)
    page = rehearsal_html(play(scene(RANGE, RANGE, RANGE), deleted), "orders")
    assert 'class="danger"' not in page


def test_a_safe_story_shows_no_danger() -> None:
    page = rehearsal_html(play(scene(DONE, DONE), restart("m0")), "orders")
    assert 'class="danger"' not in page


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
