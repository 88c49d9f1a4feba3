"""The pictures in docs, and the pages of the rules, show what rebal prints now."""

import re

from bench.pictures import pictures
from bench.rule_pages import rule_pages
from tests.pages import DOCS, PAGES


def test_the_pictures_are_those_of_the_screens_now() -> None:
    made = pictures()
    kept = {path.name: path.read_text(encoding="utf-8") for path in DOCS.glob("*.svg")}
    assert sorted(made) == sorted(kept)
    stale = [name for name, svg in made.items() if kept[name] != svg]
    assert stale == [], "`make pictures` makes them anew"


def test_the_pages_show_every_picture() -> None:
    named = re.findall(r'"(?:docs/)?([a-z-]+\.svg)"', "".join(PAGES.values()))
    assert sorted(named) == sorted(path.name for path in DOCS.glob("*.svg"))


def test_each_rule_has_its_page() -> None:
    kept = {path.name: path.read_text(encoding="utf-8") for path in (DOCS / "rules").iterdir()}
    assert kept == rule_pages(), "`make pictures` makes them anew"
