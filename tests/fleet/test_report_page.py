"""The fleet report's page: what stands in it, and what a real browser makes of it."""

import json
import os
import re
import zlib
from base64 import b64decode
from collections.abc import Iterator
from datetime import timedelta
from html.parser import HTMLParser
from pathlib import Path

import pytest

from rebal.cli.fleet import FleetReport, make_fleet_report
from rebal.cli.render.fleet.page import INLINE, fleet_html, group_html
from rebal.cli.render.fleet.timeline import MOST_LANES, kind_of, lanes_of
from rebal.cli.render.fleet.words import INCIDENTS, VERDICTS
from rebal.inspectors.tables.reader import ListSeen, open_tables, read_history
from tests.fleet.browser import Browser, why_none
from tests.fleet.synthetic import AT, fleet, group_named, hostile_fleet, write_tables

NOW = AT + timedelta(hours=27)
ALLOWED = {
    "a", "b", "body", "button", "caption", "code", "dd", "details", "div", "dl", "dt", "footer",
    "g", "h1", "h2", "head", "header", "html", "i", "input", "label", "li", "main", "meta",
    "noscript", "ol", "output", "p", "path", "rect", "script", "section", "small", "span", "style",
    "summary", "svg", "table", "tbody", "td", "text", "th", "thead", "title", "tr", "ul",
}  # fmt: skip


pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def small_report(small_scan: Path) -> FleetReport:
    return make_fleet_report(str(small_scan))


@pytest.fixture(scope="module")
def small(small_report: FleetReport, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return page_of(small_report, tmp_path_factory.mktemp("small"))


@pytest.fixture(scope="module")
def large(large_report: FleetReport, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return page_of(large_report, tmp_path_factory.mktemp("large"))


def page_of(report: FleetReport, folder: Path) -> Path:
    page = folder / "fleet.html"
    page.write_text(fleet_html(report, NOW), encoding="utf-8")
    return page


class Page(HTMLParser):
    """The elements and the texts of a page."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.feed(source)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def test_the_html_report_has_every_group_and_loads_nothing(small: Path, small_scan: Path) -> None:
    source = small.read_text()
    page = Page(source)
    assert {tag for tag, _ in page.tags} <= ALLOWED
    for _, attrs in page.tags:
        assert not {name for name in attrs if name.startswith("on") or name in ("src", "style")}
        assert attrs.get("href", "#").startswith("#")  # type: ignore[union-attr]
    assert not re.search(r"https?://|@import|url\(", source)
    names = [row["group_id"] for row in fleet(20)["groups"]]
    assert all(source.count(name) > 2 for name in names)
    assert any(re.match("20 groups: 8 ready, 1 held, 3 blocked, ", text) for text in page.texts)
    assert source.count("<svg") == 20
    one, *_ = read_history(open_tables(str(small_scan))).values()
    assert all(f"<dt>{name}</dt>" in source for name in one.metrics)
    half_way = group_named("half-way")
    assert half_way not in source[source.index("<h2>Take first") :].split("</section>")[0]
    assert half_way in source[source.index("<h2>Held") :].split("</section>")[0]
    assert VERDICTS["held"] in source
    assert INCIDENTS["storm"] in source


def test_the_html_report_of_400_groups_is_smaller_than_800_kb(large: Path) -> None:
    source = large.read_text()
    assert large.stat().st_size < 800_000
    assert source.count("<tbody") == 400 > INLINE
    assert "<svg" not in source
    found = re.search(r'<script type="text/plain" id="details">(.*?)</script>', source)
    details = json.loads(zlib.decompress(b64decode(found[1])))
    assert len(details) == 400
    assert all("<svg" in part for part in details)
    assert "without JavaScript" in source


def test_the_timeline_chart_shows_rebalances_assignor_lists_and_rejected_joins(
    small_report: FleetReport,
) -> None:
    half, loop = (
        next(group for group in small_report.groups if shape in group.group_id)
        for shape in ("half-way", "crash-loop")
    )
    svg = group_html(half, small_report)
    done = sum(path.count("M") for path in re.findall(r'class="b \w+" d="([^"]*)"', svg))
    assert done == len(half.history.rebalances)
    assert svg.count('<rect class="both"') == 3
    assert svg.count('<rect class="eager"') == 8
    assert "rejected ×12: [cooperative-sticky]" in svg
    assert "Nov 19 09:00Z" in svg
    assert "Nov 20 09:00Z" in svg
    failed = re.search(r'class="b failed" d="([^"]*)"', group_html(loop, small_report))
    assert failed[1].count("M") == sum(bool(r.failed) for r in loop.history.rebalances)


def test_an_assignor_list_is_coloured_by_its_rebalance_protocols() -> None:
    assert kind_of(("range", "roundrobin")) == "eager"
    assert kind_of(("cooperative-sticky",)) == "coop"
    assert kind_of(("cooperative-sticky", "range")) == "both"
    assert kind_of(("somebodys-own",)) == kind_of(()) == "other"


def test_the_timeline_chart_folds_unchanged_clients_and_keeps_changed_ones() -> None:
    def seen(client: str, *names: str, at: int = 0, member: str = "m") -> ListSeen:
        row = {"group_id": "g", "at": at, "last_at": at, "member_id": member, "client_id": client}
        row |= {"host": "h", "assignors": names, "refused": False, "times": 1}
        return ListSeen(**dict.fromkeys(ListSeen._fields) | row)

    lists = [seen(f"client-{n:03}", "range") for n in range(40)]
    lists.append(seen("client-030", "cooperative-sticky", at=5))
    lanes, folded = lanes_of(lists, ())
    assert len(lanes) == MOST_LANES
    assert lanes[0].label == "client-030"
    assert folded == "and 28 more clients, all [range] at the end"
    assert lanes_of(lists[:3], ())[1] == ""
    same = [seen("app", "range", member=name, at=at) for at, name in enumerate("abc")]
    assert [len(lane.lists) for lane in lanes_of(same, ())[0]] == [1, 1, 1], "one client id"
    assert [len(lane.lists) for lane in lanes_of(same, "ab")[0]] == [3], "one process, restarted"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    must = os.environ.get("CI", "").lower() == "true"
    unwanted = os.environ.get("REBAL_BROWSER") == "0" and not must
    reason = "REBAL_BROWSER=0" if unwanted else why_none()
    if reason and not must:
        pytest.skip(reason)
    assert reason is None, reason
    with Browser() as made:
        yield made


def rows_shown(browser: Browser) -> list[str]:
    code = """return [...document.querySelectorAll('#groups > tbody')]
        .filter((body) => !body.hidden).map((body) => body.rows[0].cells[2].innerText.trim())"""
    found: list[str] = browser.do(code)
    return found


def test_the_html_report_sorts_and_filters_rows_in_a_browser(browser: Browser, small: Path) -> None:
    browser.open(small)
    order = rows_shown(browser)
    assert len(order) == 20
    browser.do("document.querySelectorAll('thead th')[5].click()")
    counts = browser.do(
        "return [...document.querySelectorAll('tbody')].filter(b => b.id)"
        ".map(b => Number(b.rows[0].cells[5].innerText))"
    )
    assert counts == sorted(counts, reverse=True)
    head = "return document.querySelectorAll('thead th')[5].getAttribute('aria-sort')"
    assert browser.do(head) == "descending"
    browser.do("document.querySelectorAll('thead th button')[2].click()")
    assert rows_shown(browser) == sorted(order)
    browser.do("document.querySelectorAll('thead th')[0].click()")
    assert rows_shown(browser) == order
    browser.do(
        "const box = document.getElementById('filter'); box.value = 'EAGER rb104';"
        "box.dispatchEvent(new Event('input'))"
    )
    assert len(rows_shown(browser)) == 3
    assert browser.do("return document.getElementById('shown').innerText") == "3 of 20 groups"
    browser.do("document.getElementById('clear').click()")
    browser.do("document.querySelector('.tile.blocked').click()")
    assert len(rows_shown(browser)) == 3
    pressed = "return document.querySelector('.tile.blocked').getAttribute('aria-pressed')"
    assert browser.do(pressed) == "true"
    assert browser.errors() == []


def test_a_click_on_a_group_of_the_page_opens_its_timeline(browser: Browser, large: Path) -> None:
    browser.open(large)
    assert len(rows_shown(browser)) == 400
    opened = """const body = document.getElementById('g0'); body.querySelector('th button').click();
        return new Promise((done) => { const look = () => body.querySelector('svg')
        ? done([body.querySelectorAll('svg').length, body.querySelector('svg').clientWidth,
          body.querySelector('th button').getAttribute('aria-expanded')])
        : setTimeout(look, 20); look(); })"""
    count, width, expanded = browser.do(opened)
    assert (count, expanded) == (1, "true")
    assert width > 600
    browser.do("document.getElementById('g0').querySelector('th button').click()")
    hidden = "return getComputedStyle(document.getElementById('g0').rows[1]).display"
    browser.do("return new Promise((done) => setTimeout(done, 100))")
    assert browser.do(hidden) == "none"
    link = """document.querySelector('.side a').click();
        return new Promise((done) => { const look = () => document.querySelector('tr.more.open')
        ? done(document.querySelector('tr.more.open').parentNode.id) : setTimeout(look, 20);
        look(); })"""
    assert browser.do(link) == "g0"
    assert browser.errors() == []


def test_the_html_report_is_complete_without_javascript(browser: Browser, small: Path) -> None:
    browser.open(small, script=False)
    assert len(rows_shown(browser)) == 20
    assert browser.do("return document.documentElement.className") == ""
    browser.do("document.querySelector('tr.more details').open = true")
    assert browser.do("return document.querySelector('tr.more svg').clientHeight") > 60
    shown = "return getComputedStyle(document.querySelector('.tools')).display"
    assert browser.do(shown) == "none"


def test_a_hostile_group_name_runs_no_script_in_the_page(browser: Browser, tmp_path: Path) -> None:
    report = make_fleet_report(str(write_tables(tmp_path / "lake", hostile_fleet())))
    browser.open(page_of(report, tmp_path))
    buttons = "document.querySelectorAll('#groups > tbody > tr > th button')"
    browser.do(f"for (const button of {buttons}) button.click()")
    assert any(name.startswith("<script>alert(1)</script>") for name in rows_shown(browser))
    assert browser.do("return document.scripts.length") == 2
    # What a way around the escaping would do is stopped by the page's own policy.
    ran = browser.do(
        "document.body.insertAdjacentHTML('beforeend', '<img src=x onerror=\"window.hit = 1\">');"
        "const s = document.createElement('script'); s.textContent = 'window.hit = 2';"
        "document.body.append(s); return new Promise((d) => setTimeout(() => d(window.hit), 200))"
    )
    assert ran is None
    assert any("Content Security Policy" in line for line in browser.errors())
