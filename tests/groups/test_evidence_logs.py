"""Logs: whose one is, and when its lines were written.

A time without a zone is placed by moments that are known twice, or not used at all. A log is the
group's own, or one of another broker, cluster or time.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from msgspec.structs import replace

from rebal.groups.evidence.merge import merge
from rebal.groups.evidence.observations import LogRead, Observation
from rebal.groups.model import Cluster, Evidence, GroupSnapshot, Source
from rebal.inspectors.logs.lines import stamp_of, unwrap
from tests.groups.observed import MIXED, at, group, joined, member, refused
from tests.groups.stable import NOW

TOKYO, NEW_YORK, DELHI = timedelta(hours=9), timedelta(hours=-5), timedelta(hours=5, minutes=30)
ZONES = pytest.mark.parametrize("zone", [timedelta(0), TOKYO, NEW_YORK, DELHI])


def broker(zone: timedelta, **fields: object) -> list[Observation]:
    """A join of `a` 30 minutes before `NOW`, and a rejection 10 minutes before, in local times."""
    where = {"log": "k.log", "origin": "k", "local": True}
    local = at(30) + zone
    join = joined("a", *MIXED, line=1, generation_id=4, **where)
    evidence = Evidence(source=Source.REQUEST_LOG, at=local)
    rejected = Evidence(source=Source.REQUEST_LOG, at=at(50) + zone)
    read = LogRead(log="k.log", origin="k", local=True, last_at=at(50) + zone, read_at=NOW)
    return [
        replace(join, at=local, evidence=evidence),
        refused(host="h", line=2, **{**where, "at": at(50) + zone, "evidence": rejected}),
        replace(read, **fields),
    ]


def test_a_zone_that_nothing_tells_orders_nothing() -> None:
    merged = merge(group(member("a")), broker(TOKYO))
    assert merged.members[0].assignors.list == MIXED
    assert merged.members[0].joined_at is None
    assert merged.members[0].assignors.evidence[0].at is None
    assert [one.at for one in merged.refusals] == [None]
    (note,) = merged.notes
    assert "1 request log are not used" in note
    assert "--log-timezone" in note
    assert merged.undated_logs


@ZONES
def test_a_file_that_was_written_just_now_tells_its_zone(zone: timedelta) -> None:
    just = {"last_at": NOW + zone - timedelta(seconds=1), "written_at": NOW}
    merged = merge(group(member("a")), broker(zone, **just))
    assert merged.members[0].joined_at == at(30)
    assert [one.at for one in merged.refusals] == [at(50)]
    assert merged.refusals[0].evidence.at == at(50)
    assert "request log are read as UTC" in merged.notes[0]
    assert not merged.undated_logs
    assert merge(merged, broker(zone, **just)).notes == merged.notes


@pytest.mark.parametrize(
    "fields",
    [
        # The last line is older than the file by what no zone is.
        {"last_at": NOW + TOKYO - timedelta(minutes=4), "written_at": NOW},
        # Copied just now: no zone is 45 minutes behind UTC.
        {"last_at": NOW - timedelta(minutes=45), "written_at": NOW},
        # Copied long ago: its age proves nothing.
        {"last_at": NOW + TOKYO, "written_at": NOW, "read_at": NOW + timedelta(hours=3)},
        # Lines of the future: not this zone.
        {"last_at": NOW, "written_at": NOW, "anchors": ((at(30) + TOKYO, at(30)),)},
        {"anchors": ((at(30) + timedelta(hours=15), at(30)),)},
    ],
)
def test_what_proves_no_zone(fields: dict[str, object]) -> None:
    merged = merge(group(member("a")), broker(TOKYO, **fields))
    assert merged.members[0].joined_at is None


@ZONES
def test_a_join_that_another_log_dates_tells_the_zone(zone: timedelta) -> None:
    own = joined("a", *MIXED, minute=30, generation_id=4)
    dated = [own, *broker(zone)]
    assert [one.at for one in merge(group(member("a")), dated).refusals] == [at(50)]
    other = joined("a", *MIXED, minute=30, generation_id=5)
    unrelated = [other, *broker(zone)]
    assert [one.at for one in merge(group(member("a")), unrelated).refusals] == [None]


def test_one_log_dates_the_next() -> None:
    """A client's start line dates its join, and that join the broker's log."""
    client = {"log": "c.log", "origin": "c", "local": True}
    own = replace(joined("a", *MIXED, generation_id=4, **client), at=at(30) + NEW_YORK)
    read = LogRead(
        log="c.log", origin="c", kind="client", local=True, anchors=((at(29) + NEW_YORK, at(29)),)
    )
    merged = merge(group(member("a")), [own, read, *broker(TOKYO)])
    assert [one.at for one in merged.refusals] == [at(50)]
    assert sorted(merged.notes) == [
        "times of 1 client log are read as UTC-05:00: no zone is printed",
        "times of 1 request log are read as UTC+09:00: no zone is printed",
    ]


def test_an_offset_does_not_reach_over_a_change_of_clocks() -> None:
    """Central Europe changed its clocks on 25 October 2026."""
    summer = datetime(2026, 10, 20, 12, tzinfo=UTC)
    offset = timedelta(hours=2)
    anchors = ((summer + offset, summer),)
    merged = merge(group(member("a")), broker(timedelta(hours=1), anchors=anchors))
    assert merged.members[0].joined_at is None


def test_a_zone_in_the_line_or_around_it_is_taken_before_none() -> None:
    inner = "[2026-11-21 11:00:00,000] DEBUG"
    said = stamp_of(f"2026-11-21T02:00:00Z {inner}", None)
    assert said == (datetime(2026, 11, 21, 2, tzinfo=UTC), False)
    assert stamp_of(inner, None) == (datetime(2026, 11, 21, 11, tzinfo=UTC), True)
    assert stamp_of("2026-11-21 11:00:00,000+09 INFO", None) == said
    assert stamp_of(inner, timezone(TOKYO)) == (datetime(2026, 11, 21, 2, tzinfo=UTC), False)
    (wrapped,) = unwrap('{"log": "x", "time": "2026-11-21T02:00:00Z"}', re.compile("x"), None)
    assert wrapped.wrapper_time == (datetime(2026, 11, 21, 2, tzinfo=UTC), False)


@ZONES
@pytest.mark.parametrize("ahead", [timedelta(hours=1), timedelta(minutes=-45)], ids=str)
@pytest.mark.parametrize("local", [True, False], ids=["written here", "written by the broker"])
def test_a_clock_that_differs_from_the_brokers_does_not_pass_for_a_zone(
    zone: timedelta, ahead: timedelta, local: bool
) -> None:
    """A file's time is that of the machine that wrote it, its reading's that of this machine."""
    written = NOW + ahead if local else NOW
    just = {"last_at": NOW + zone, "written_at": written, "read_at": NOW + ahead}
    here = group(member("a"), clock_ahead_ms=round(ahead.total_seconds() * 1000))
    merged = merge(here, broker(zone, **just))
    assert merged.members[0].joined_at == at(30)
    assert [one.at for one in merged.refusals] == [at(50)]


def test_the_clock_of_an_old_look_says_nothing_of_a_log_that_is_read_now() -> None:
    later = NOW + timedelta(hours=5)
    just = {"last_at": later + TOKYO, "written_at": later, "read_at": later}
    merged = merge(group(member("a"), clock_ahead_ms=3_600_000), broker(TOKYO, **just))
    assert merged.members[0].joined_at == at(30)


WHERE = {"log": "k.log", "origin": "k"}


def read(**fields: Any) -> LogRead:
    return LogRead(**{**WHERE, "last_at": at(50), "read_at": NOW, **fields})


def shown(*seen: Any, **fields: Any) -> GroupSnapshot:
    return merge(group(member("a"), cluster=Cluster(cluster_id="here"), **fields), seen)


def test_a_log_without_any_member_of_the_group_is_not_used() -> None:
    merged = shown(refused(**WHERE), joined("b", *MIXED, **WHERE), read(last_at=at(0)))
    assert (merged.refusals, merged.departed, merged.unmatched) == ((), (), ())
    (note,) = merged.notes
    assert note.startswith("1 request log of this group shows none of its members")


@pytest.mark.parametrize(
    "proof",
    [
        [joined("a", *MIXED, **WHERE), read()],
        [read(members=frozenset({("g", "a-id")}))],
        [read(kind="client", cluster_ids=("here",))],
    ],
    ids=["a join", "a heartbeat", "its cluster"],
)
def test_a_log_of_the_group_s_own_tells_of_rejections(proof: list[Any]) -> None:
    merged = shown(refused(**WHERE), *proof)
    assert (len(merged.refusals), merged.notes) == (1, ())


def test_a_log_of_now_that_names_nobody_may_be_another_cluster_s() -> None:
    merged = shown(refused(**WHERE), read(last_at=NOW - timedelta(minutes=1)))
    assert len(merged.refusals) == 1
    (note,) = merged.notes
    assert note.startswith("k.log shows rejections")
    assert note.endswith("another cluster's")


@pytest.mark.parametrize(
    "proof",
    [
        [read(kind="client", cluster_ids=("elsewhere",), last_at=NOW)],
        [read(members=frozenset({("other", "a-id")}))],
        # It reaches up to now, and who joined there is not here.
        [joined("b", *MIXED, **WHERE), read(last_at=NOW)],
    ],
    ids=["another cluster", "another group", "strangers"],
)
def test_a_log_of_somewhere_else_does_not(proof: list[Any]) -> None:
    assert shown(refused(**WHERE), *proof).refusals == ()


def test_of_a_log_of_two_brokers_the_coordinators_lines_count() -> None:
    first = {"log": "k.log", "origin": "k h1:9092"}
    second = {"log": "k.log", "origin": "k h2:9092"}
    merged = shown(
        joined("a", *MIXED, **first),
        refused(**first),
        joined("z", "range", **second),
        refused(client_id="y", **second),
        read(**first, broker="h1:9092"),
        read(**second, broker="h2:9092"),
    )
    assert [one.client_id for one in merged.refusals] == ["x"]
    (note,) = merged.notes
    assert note.startswith("1 request log of this group shows none of its members")


def test_what_no_log_showed_stays() -> None:
    assert len(shown(refused()).refusals) == 1
