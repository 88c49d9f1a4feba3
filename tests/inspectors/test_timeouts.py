"""Members' own timeouts: every source that shows them, and where they go from there."""

from __future__ import annotations

from pathlib import Path

import pytest

from rebal.cli.output import render
from rebal.cli.render.inspection.screen import inspect_view
from rebal.cli.report import make_report
from rebal.groups.evidence.merge import merge
from rebal.groups.evidence.observations import Joined
from rebal.groups.model import Evidence, GroupSnapshot, Source, Timeouts
from tests.groups.observed import at, declared, group, joined, member
from tests.inspectors.declared_files import one, write
from tests.tables import table


@pytest.mark.parametrize(
    ("form", "lines", "expected"),
    [(form, *row) for form in ("properties", "spring") for row in table("timeouts", form)],
)
def test_files_declare_them(
    tmp_path: Path, form: str, lines: tuple[str, str], expected: tuple[int | None, int | None]
) -> None:
    name = "application.yaml" if form == "spring" else "c.properties"
    text = table("timeouts", "forms")[form].format(*lines)
    found, notes = one(write(tmp_path, name, text))
    assert (found.session_timeout_ms, found.max_poll_interval_ms) == expected
    assert notes == ()


def joins(minute: int, session: int | None, source: Source = Source.REQUEST_LOG) -> Joined:
    waits = {"session_timeout_ms": session, "rebalance_timeout_ms": session and 300_000}
    evidence = Evidence(source=source, at=at(minute))
    return joined("a", "range", minute=minute, evidence=evidence, **waits)


@pytest.fixture
def merged() -> GroupSnapshot:
    seen = [
        joins(1, 45_000),
        joins(2, 45_000, Source.CLIENT_LOG),
        joins(3, None),
        declared("b.properties", client_id="b", session_timeout_ms=20_000),
    ]
    made = merge(group(member("a"), member("b")), seen)
    assert merge(made, reversed(seen)) == made
    return made


def test_they_are_facts_of_the_member_that_joined(merged: GroupSnapshot) -> None:
    a, b = merged.members
    assert (a.timeouts.session_ms, a.timeouts.rebalance_ms) == (45_000, 300_000)
    assert [item.source for item in a.timeouts.evidence] == [Source.REQUEST_LOG, Source.CLIENT_LOG]
    # What a file says is of the next start.
    assert b.timeouts is None
    assert (b.declared.session_timeout_ms, b.declared.max_poll_interval_ms) == (20_000, None)


def test_the_wide_screen_tells_them_and_what_is_a_default(merged: GroupSnapshot) -> None:
    def screen(snapshot: GroupSnapshot, *, wide: bool) -> str:
        return render(inspect_view(make_report(snapshot), "", wide=wide), width=200)

    (line,) = (one for one in screen(merged, wide=True).splitlines() if one.startswith("waits"))
    assert "session timeout 20 to 45 s (client log, config file, request log)" in line
    by = "(client log, request log; of 1 not known, and a default of Java's clients)"
    assert f"rebalance timeout up to 300 s {by}" in line
    assert "waits" not in screen(merged, wide=False)


def test_the_newest_word_counts() -> None:
    seen = [joins(2, 30_000), joins(1, 45_000)]
    (one,) = merge(group(member("a")), seen).members
    assert one.timeouts == Timeouts(
        session_ms=30_000, rebalance_ms=300_000, evidence=(seen[0].evidence,)
    )
