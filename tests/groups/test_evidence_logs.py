"""Logs: whose one is, when its lines were written, and which clients of it are not in the group.

A time without a zone is placed by moments that are known twice, or not used at all. A log is the
group's own, or one of another broker, cluster or time. A rejection is of its own client, and
resolved when that client joined since. A member that was replaced has not departed.
"""

import re
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from msgspec.structs import replace

from rebal.groups.evidence.absent import MOST_REFUSALS
from rebal.groups.evidence.merge import merge
from rebal.groups.evidence.observations import Joined, Left, LogRead, Observation, Refused
from rebal.groups.model import Cluster, Evidence, GroupSnapshot, Refusal, Source
from rebal.inspectors.logs.lines import stamp_of, unwrap
from rebal.planner.admission.check import label, unresolved_rejections
from tests.groups import observed
from tests.groups.observed import COOP, JAVA, MIXED, NOW, at, group, joined, member, refused

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


def test_log_times_without_a_known_time_zone_are_not_used() -> None:
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
def test_a_log_file_written_just_now_reveals_its_time_zone(zone: timedelta) -> None:
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
def test_an_implausible_time_difference_proves_no_time_zone(fields: dict[str, object]) -> None:
    merged = merge(group(member("a")), broker(TOKYO, **fields))
    assert merged.members[0].joined_at is None


def test_times_that_a_wrong_zone_puts_into_the_future_are_not_used() -> None:
    merged = merge(group(member("a")), [replace(one, local=False) for one in broker(TOKYO)])
    assert (merged.members[0].joined_at, merged.refusals[0].at) == (None, None)
    assert merged.undated_logs
    assert "1 request log are not used" in merged.notes[0]


@ZONES
def test_a_join_dated_by_another_log_reveals_the_time_zone(zone: timedelta) -> None:
    own = joined("a", *MIXED, minute=30, generation_id=4)
    dated = [own, *broker(zone)]
    assert [one.at for one in merge(group(member("a")), dated).refusals] == [at(50)]
    other = joined("a", *MIXED, minute=30, generation_id=5)
    unrelated = [other, *broker(zone)]
    assert [one.at for one in merge(group(member("a")), unrelated).refusals] == [None]


def test_a_dated_client_log_dates_the_broker_log_through_a_common_join() -> None:
    """A client's start-up line dates its join, and that join dates the broker's log."""
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


def test_a_utc_offset_is_not_used_across_a_daylight_saving_change() -> None:
    """Central Europe changed its clocks on 25 October 2026."""
    summer = datetime(2026, 10, 20, 12, tzinfo=UTC)
    offset = timedelta(hours=2)
    anchors = ((summer + offset, summer),)
    merged = merge(group(member("a")), broker(timedelta(hours=1), anchors=anchors))
    assert merged.members[0].joined_at is None


def test_a_time_zone_printed_in_a_log_line_or_its_wrapper_is_preferred() -> None:
    inner = "[2026-11-21 11:00:00,000] DEBUG"
    in_utc = stamp_of(f"2026-11-21T02:00:00Z {inner}", None)
    assert in_utc == (datetime(2026, 11, 21, 2, tzinfo=UTC), False)
    assert stamp_of(inner, None) == (datetime(2026, 11, 21, 11, tzinfo=UTC), True)
    assert stamp_of("2026-11-21 11:00:00,000+09 INFO", None) == in_utc
    assert stamp_of(inner, timezone(TOKYO)) == (datetime(2026, 11, 21, 2, tzinfo=UTC), False)
    (wrapped,) = unwrap('{"log": "x", "time": "2026-11-21T02:00:00Z"}', re.compile("x"), None)
    assert wrapped.wrapper_time == (datetime(2026, 11, 21, 2, tzinfo=UTC), False)


@ZONES
@pytest.mark.parametrize("ahead", [timedelta(hours=1), timedelta(minutes=-45)], ids=str)
@pytest.mark.parametrize("local", [True, False], ids=["written here", "written by the broker"])
def test_a_clock_difference_to_the_broker_is_not_mistaken_for_a_time_zone(
    zone: timedelta, ahead: timedelta, local: bool
) -> None:
    """The file's time is of the machine that wrote it, the reading time of this machine."""
    written = NOW + ahead if local else NOW
    just = {"last_at": NOW + zone, "written_at": written, "read_at": NOW + ahead}
    here = group(member("a"), clock_ahead_ms=round(ahead.total_seconds() * 1000))
    merged = merge(here, broker(zone, **just))
    assert merged.members[0].joined_at == at(30)
    assert [one.at for one in merged.refusals] == [at(50)]


def test_an_old_clock_comparison_is_not_applied_to_a_log_read_now() -> None:
    later = NOW + timedelta(hours=5)
    just = {"last_at": later + TOKYO, "written_at": later, "read_at": later}
    merged = merge(group(member("a"), clock_ahead_ms=3_600_000), broker(TOKYO, **just))
    assert merged.members[0].joined_at == at(30)


WHERE = {"log": "k.log", "origin": "k"}
OWN = Evidence(source=Source.CLIENT_LOG)


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
def test_rejections_are_used_from_a_log_that_proves_to_be_of_the_group(proof: list[Any]) -> None:
    merged = shown(refused(**WHERE), *proof)
    assert (len(merged.refusals), merged.notes) == (1, ())


@pytest.mark.parametrize(
    "fields",
    [
        {"last_at": NOW - timedelta(minutes=1)},
        {"kind": "client", "last_at": NOW - timedelta(hours=8)},
        {"kind": "client", "cluster_ids": ("here", "elsewhere")},
    ],
    ids=["now", "a client that stopped", "two clusters"],
)
def test_a_log_without_members_of_the_group_may_be_of_another_cluster(fields: Any) -> None:
    merged = shown(refused(**WHERE), read(**fields))
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
        [read(kind="client", last_at=NOW - timedelta(days=2))],
        [Left(**WHERE, group_id="g", member_id="b", at=at(55), evidence=OWN), read(kind="client")],
    ],
    ids=["another cluster", "another group", "strangers", "two days ago", "it left after"],
)
def test_a_log_of_another_cluster_or_group_yields_no_rejections(proof: list[Any]) -> None:
    assert shown(refused(**WHERE), *proof).refusals == ()


def test_only_the_coordinators_lines_of_a_log_with_two_brokers_count() -> None:
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


def test_a_rejection_known_without_a_log_is_kept() -> None:
    assert len(shown(refused()).refusals) == 1


def rejected(line: int = 1, **fields: Any) -> Refused:
    usual = {"client_id": "pod", "host": "h1", "list": (COOP,), "line": line, "software": JAVA}
    return observed.refused(line, **{**usual, **fields})


def rejoin(minute: int = 9, **fields: Any) -> Any:
    return joined(
        "pod", COOP, "range", minute=minute, line=minute,
        **{"host": "h1", "software": JAVA, "new": True, **fields},
    )  # fmt: skip


def test_rejections_of_several_clients_with_one_client_id_are_listed_separately() -> None:
    seen = [rejected(n, host=f"h{n}", connection=f"b:1-h{n}:2-{n}") for n in range(1, 6)]
    merged = merge(group(member("pod", host="/h9")), seen)
    assert [one.host for one in merged.refusals] == ["h1", "h2", "h3", "h4", "h5"]
    assert all(one.times == 1 and one.rejoined_as is None for one in merged.refusals)
    assert merged.refusals[0].connection == "b:1-h1:2-1"
    pods = [rejected(n, host="", evidence=replace(OWN, detail=f"{n}.log:7")) for n in (1, 2)]
    out = unresolved_rejections(merge(group(member("pod")), pods))
    assert [label(one) for one in out] == ["pod (1.log)", "pod (2.log)"]


def resolved(seen: Refused, later: Any) -> Refusal:
    (one,) = merge(group(member("a")), [seen, later]).refusals
    return one


def test_a_later_join_of_a_client_resolves_its_own_rejection() -> None:
    one = resolved(rejected(), rejoin())
    assert (one.rejoined_as, one.rejoined_at) == ("pod-id", at(9))
    assert resolved(rejected(instance_id="i"), rejoin(instance_id="i", host="h2")).rejoined_as
    assert resolved(
        rejected(host="", connection="c"), rejoin(connection="c", new=False)
    ).rejoined_as


@pytest.mark.parametrize(
    ("first", "later"),
    [
        ({}, {"host": "h2"}),
        ({}, {"client_id": "other"}),
        ({}, {"minute": 0}),
        ({}, {"accepted": False}),
        ({}, {"instance_id": "i"}),
        ({"instance_id": "i"}, {"instance_id": "j"}),
        ({"host": ""}, {"host": ""}),
        ({"at": None}, {}),
        ({"log": "x", "evidence": OWN}, {"at": at(1) + timedelta(seconds=3)}),
    ],
)
def test_a_join_of_another_client_does_not_resolve_a_rejection(
    first: dict[str, Any], later: dict[str, Any]
) -> None:
    assert resolved(rejected(**first), rejoin(**later)).rejoined_as is None


@pytest.mark.parametrize(("here", "rejoined"), [("a", True), ("pod", False)])
def test_a_log_without_addresses_resolves_a_rejection_only_if_the_client_id_is_unique(
    here: str, rejoined: bool
) -> None:
    seen = [rejected(host="", log="pod.log"), rejoin(host="", log="pod.log")]
    (one,) = merge(group(member(here)), seen).refusals
    assert (one.rejoined_as is not None) is rejoined


def test_the_own_log_of_a_static_client_proves_that_its_join_followed_its_rejection() -> None:
    first = rejected(instance_id="i", host="", log="i.log", evidence=OWN)
    own, broker = (
        rejoin(instance_id="i", at=first.at + timedelta(seconds=3), **more)
        for more in ({"host": "", "log": "i.log", "evidence": OWN}, {"log": "request.log"})
    )
    (one,) = merge(group(member("a")), [first, own, broker]).refusals
    assert one.rejoined_as == "pod-id"
    (one,) = merge(group(member("a")), [first, broker]).refusals
    assert one.rejoined_as is None


@pytest.mark.parametrize("known", [[], [joined("pod", COOP, minute=0, host="h1", new=True)]])
def test_a_rejoin_of_an_older_member_with_the_same_client_id_resolves_no_rejection(
    known: list[Any],
) -> None:
    """Two processes share client id and address; the running one rejoins at each rebalance."""
    seen = [*known, rejected(), rejoin(new=False)]
    merged = merge(group(member("pod", host="/h1")), seen)
    assert [one.rejoined_as for one in merged.refusals] == [None]
    assert [one.client_id for one in unresolved_rejections(merged)] == ["pod"]


def test_a_restart_of_another_process_at_the_same_address_resolves_no_rejection() -> None:
    one = {"client_id": "consumer-g-1", "host": "h1"}
    old = joined("b", "range", **one)
    left = Left(group_id="g", member_id="b-id", at=at(5), evidence=old.evidence)
    seen = [old, rejected(**one), left, rejoin(**one)]
    assert merge(group(), seen).refusals[0].rejoined_as is None
    assert merge(group(), [*seen, rejoin(11, member_id="a", **one)]).refusals[0].rejoined_as


def test_lines_of_one_log_are_ordered_by_position_even_without_times() -> None:
    first, later = rejected(at=None, log="k.log"), rejoin(at=None, log="k.log")
    one = resolved(first, later)
    assert (one.rejoined_as, one.rejoined_at) == ("pod-id", None)
    assert resolved(rejected(99, at=None, log="k.log"), later).rejoined_as is None


def test_a_known_rejection_is_resolved_by_a_join_observed_later() -> None:
    before = merge(group(member("pod", host="/h1")), [rejected()])
    assert before.refusals[0].rejoined_as is None
    after = merge(before, [rejoin()])
    assert [one.rejoined_as for one in after.refusals] == ["pod-id"]
    # Read again, it is the same one.
    assert merge(replace(after, members=()), [rejected()]).refusals == after.refusals
    joined_at = group(member("pod", host="/h1", joined_at=at(9), first_joined_at=at(9)))
    (one,) = merge(joined_at, [rejected()]).refusals
    assert (one.rejoined_as, one.rejoined_at) == ("pod-id", at(9))


def test_many_rejections_of_one_retrying_client_do_not_hide_other_clients() -> None:
    many = [rejected(n, host="h0", connection="c0") for n in range(1, 3 * MOST_REFUSALS)]
    others = [rejected(0, host=f"g{n}") for n in range(MOST_REFUSALS - 1)]
    merged = merge(group(member("a")), [*others, *many])
    assert len(merged.refusals) == MOST_REFUSALS
    assert {one.host for one in merged.refusals} == {"h0", *(one.host for one in others)}
    assert merged.refusals[-1].at == at(3 * MOST_REFUSALS - 1)


def test_a_rejection_shown_by_two_logs_is_counted_once() -> None:
    own = [
        rejected(n, host="", evidence=Evidence(source=Source.CLIENT_LOG, at=at(n), detail=str(n)))
        for n in (1, 2)
    ]
    by_broker = rejected(1, connection="c1")
    merged = merge(group(member("a")), [*own, by_broker])
    assert [(one.at, one.host) for one in merged.refusals] == [(at(1), "h1"), (at(2), "")]
    assert merge(merged, [*own, by_broker]).refusals == merged.refusals


def left(name: str, minute: int) -> Left:
    evidence = Evidence(source=Source.REQUEST_LOG, at=at(minute), detail="LEAVE_GROUP")
    return Left(
        group_id="g", member_id=f"{name}-id", at=at(minute), reason="the consumer is being closed",
        evidence=evidence,
    )  # fmt: skip


def came(name: str, minute: int, client: str = "", host: str = "h1", **fields: Any) -> Joined:
    """A new member."""
    return joined(
        name, "range", minute=minute, client_id=client or name, host=host, new=True, **fields
    )


def gone(*seen: Any, here: tuple[str, ...] = ("a1",), **fields: Any) -> list[str]:
    merged = merge(group(*(member(name, **fields) for name in here)), seen)
    return [one.member_id.removesuffix("-id") for one in merged.departed]


def test_a_member_that_left_is_reported_with_its_assignor_list_and_time() -> None:
    seen = [came("a1", 1), came("a2", 2), left("a2", 56)]
    (one,) = merge(group(member("a1")), seen).departed
    assert (one.member_id, one.client_id, one.host, one.list) == ("a2-id", "a2", "h1", ("range",))
    assert (one.left, one.left_at, one.last_seen) == (True, at(56), at(56))
    assert one.reason == "the consumer is being closed"


def test_a_killed_member_is_reported_as_departed_without_a_leave() -> None:
    merged = merge(group(member("a1")), [came("a1", 1), came("a2", 2)])
    (one,) = merged.departed
    assert (one.left, one.left_at, one.last_seen) == (False, None, at(2))
    assert merge(merged, [came("a2", 2)]).departed == merged.departed


def test_a_departed_member_keeps_the_assignor_classes_of_its_client_log() -> None:
    own = ("com.acme.Own",)
    log = Evidence(source=Source.CLIENT_LOG, at=at(2), detail="a2.log:7")
    wire = joined("a2", "cooperative-sticky", minute=2)
    for names in (("cooperative-sticky",), ()):
        printed = joined("a2", *names, minute=2, evidence=log, classes=own)
        (one,) = merge(group(member("a1")), [printed, wire, left("a2", 5)]).departed
        assert (one.list, one.classes) == (("cooperative-sticky",), own)
    (one,) = merge(group(member("a1")), [printed]).departed
    assert (one.list, one.classes) == ((), own)


def test_a_restarted_client_replaces_its_departed_member() -> None:
    first = [came("old", 1, "pod"), left("old", 5)]
    assert gone(*first, came("new", 6, "pod"), here=("new",)) == []
    # A new pod has another address.
    assert gone(*first, came("new", 6, "pod", "h2"), here=("new",)) == []
    # A surge: the new one is there before the old one stops.
    assert gone(*first, came("new", 4, "pod", "h2"), here=("new",)) == []
    assert gone(*first, came("new", 6, "another"), here=("new",)) == ["old"]


def test_each_new_member_replaces_only_one_departed_member() -> None:
    seen = [came("a", 1, "pod", "h1"), came("b", 2, "pod", "h2"), left("a", 5), left("b", 6)]
    assert gone(*seen, came("c", 7, "pod", "h1"), here=("c",)) == ["b"]
    chain = [came("c", 7, "pod", "h1"), left("c", 8), came("d", 9, "pod", "h1")]
    assert gone(*seen, *chain, here=("d",)) == ["b"]


def test_a_member_that_only_rejoins_replaces_no_departed_member() -> None:
    """A leave makes all others rejoin."""
    seen = [came("a", 1, "pod", "h1"), left("a", 5)]
    stayed = joined("b", "range", minute=6, client_id="pod", host="h1")
    assert gone(*seen, stayed, here=("b",)) == ["a"]


@pytest.mark.parametrize(("instance", "expected"), [("i-1", []), ("i-2", ["old"])])
def test_static_members_are_matched_by_instance_id(instance: str, expected: list[str]) -> None:
    seen = [came("old", 1, "pod", instance_id="i-1")]
    assert gone(*seen, here=("new",), instance_id=instance) == expected


def test_a_member_id_without_an_accepted_join_does_not_count_as_departed() -> None:
    assert gone(came("a1", 1), came("x", 2, accepted=False)) == []


def test_a_departed_member_is_reported_with_the_list_of_its_last_join() -> None:
    seen = [came("a2", 2), joined("a2", COOP, minute=9)]
    (one,) = merge(group(member("a1")), seen).departed
    assert one.list == (COOP,)
