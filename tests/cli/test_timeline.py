"""`rebal show --timeline`: the roll-out as a screen, a document, and a page."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from rebal.cli.journal import Journal, journal_path
from rebal.cli.output import render
from rebal.cli.render.timeline import bars, timeline_html, timeline_view
from rebal.planner.plan import dump_plan
from rebal.planner.verification.timeline import timeline_of
from tests.cli.conftest import Rebal
from tests.planner.test_timeline import upgrade


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    """A plan with the journal of its whole roll-out."""
    story = upgrade()
    path = tmp_path / "shop.plan.yaml"
    path.write_text(dump_plan(story.plan, "yaml"))
    book = Journal(journal_path(path), story.plan)
    for entry in story.entries:
        book.append(entry)
    return path


def test_the_screen_fits_80_columns_and_names_what_was_seen(kept: Path, rebal: Rebal) -> None:
    story = upgrade()
    text = render(timeline_view(timeline_of(story.plan, story.entries)), width=80)
    assert max(map(len, text.split("\n"))) <= 80
    assert "roll-out finished" in text
    assert "rebalances  8\n" in text
    rows = [line.split() for line in text.split("\n") if line.startswith("app-")]
    assert [row[:3] for row in rows] == [["app-0", "2", "09:02:00Z"], ["app-1", "2", "09:04:00Z"]]
    words = ["show", str(kept), "--timeline"]
    assert "roll-out finished" in rebal(*words).out
    assert rebal(*words, "-o", "json").body["rebalances"] == 8


def test_a_bar_covers_the_time_from_the_first_look_to_the_last() -> None:
    story = upgrade()
    made = timeline_of(story.plan, story.entries)
    parts = list(bars(made, made.members[0]))
    assert parts[0].left == 0
    assert round(parts[-1].left + parts[-1].width) == 100
    assert [part.step for part in parts] == [0, 1, 2]


def test_a_hostile_name_is_text_on_the_page() -> None:
    story = upgrade()
    evil = "<script>alert(1)</script>\x1b[31m"
    entries = [
        replace(entry, members=tuple(replace(one, name=evil, host=evil) for one in entry.members))
        for entry in story.entries
    ]
    page = timeline_html(timeline_of(story.plan, entries))
    assert "<script" not in page
    assert "&lt;script&gt;" in page
    assert "\x1b" not in page
    assert "default-src 'none'" in page


def test_without_a_journal_it_says_that_nothing_was_looked_at(tmp_path: Path, rebal: Rebal) -> None:
    path = tmp_path / "a.plan.json"
    path.write_text(dump_plan(upgrade().plan, "json"))
    words = ["show", str(path), "--timeline"]
    (line,) = rebal(*words).out.splitlines()
    assert "no look is in the journal yet" in line
    assert rebal(*words, "-o", "json").body["members"] == []
