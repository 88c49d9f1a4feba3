"""Members' own timeouts: every source that shows them, and where they go from there."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from rebal.cli.output import render
from rebal.cli.render.inspection.screen import inspect_view
from rebal.cli.report import make_report
from rebal.groups.evidence.merge import merge
from rebal.groups.evidence.observations import Declared, Joined
from rebal.groups.model import Evidence, GroupSnapshot, Source, Timeouts
from tests.inspectors.declared_files import one, write
from tests.planner.builder import group_of

PROPERTIES = """bootstrap.servers=b:9092
group.id=g
client.id=c
session.timeout.ms={}
max.poll.interval.ms={}
"""
SPRING = """spring:
  session:
    timeout: 30m
  kafka:
    consumer:
      group-id: g
      client-id: c
      {}
      {}
"""


@pytest.mark.parametrize(
    ("form", "lines", "expected"),
    [
        (PROPERTIES, ("30000", "600000"), (30_000, 600_000)),
        (PROPERTIES, ("${TIMEOUT}", "10m"), (None, None)),
        (SPRING, ("max-poll-interval: 10m", "session-timeout: 45s"), (45_000, 600_000)),
        (SPRING, ("max-poll-interval: PT1M30S", "session-timeout: 500ms"), (500, 90_000)),
        (SPRING, ("session-timeout: 1m30s", ""), (90_000, None)),
        # The environment may set it otherwise.
        (SPRING, ("session-timeout: ${S:20s}", ""), (None, None)),
        # Kafka's own key goes first; without a unit nobody can tell seconds from milliseconds.
        (
            SPRING,
            ("session-timeout: 45s", 'properties: {session.timeout.ms: "6000"}'),
            (6_000, None),
        ),
        (SPRING, ("session-timeout: 45", ""), (None, None)),
        (SPRING, ("session-timeout: soon", "max-poll-interval: 0s"), (None, None)),
    ],
)
def test_files_declare_them(
    tmp_path: Path, form: str, lines: tuple[str, str], expected: tuple[int | None, int | None]
) -> None:
    name = "application.yaml" if form is SPRING else "c.properties"
    declared, notes = one(write(tmp_path, name, form.format(*lines)))
    assert (declared.session_timeout_ms, declared.max_poll_interval_ms) == expected
    assert notes == ()


def joined(member: str, second: int, session: int | None, source: Source) -> Joined:
    return Joined(
        group_id="checkout",
        member_id=f"{member}-0f0f",
        list=("range",),
        session_timeout_ms=session,
        rebalance_timeout_ms=None if session is None else 300_000,
        evidence=Evidence(
            source=source, at=datetime(2026, 11, 20, 8, 0, second, tzinfo=UTC),
            detail="10.0.0.1.log:1",
        ),
    )  # fmt: skip


@pytest.fixture
def merged() -> GroupSnapshot:
    group = group_of({"members": [{"id": "a"}, {"id": "b"}]})
    file = Evidence(source=Source.CONFIG_FILE, detail="b.properties")
    seen = [
        joined("a", 1, 45_000, Source.REQUEST_LOG),
        joined("a", 2, 45_000, Source.CLIENT_LOG),
        joined("a", 3, None, Source.REQUEST_LOG),
        Declared(
            where="b.properties", group_id="checkout", client_id="b", session_timeout_ms=20_000,
            evidence=file,
        ),
    ]  # fmt: skip
    made = merge(group, seen)
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
    group = group_of({"members": [{"id": "a"}]})
    seen = [joined("a", n, ms, Source.REQUEST_LOG) for n, ms in ((2, 30_000), (1, 45_000))]
    (member,) = merge(group, seen).members
    assert member.timeouts == Timeouts(
        session_ms=30_000, rebalance_ms=300_000, evidence=(seen[0].evidence,)
    )
