"""The timeline of records whose clocks, bytes or order are not as they should be."""

import itertools
import random
import re
import struct
import zlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec import inspect
from msgspec.structs import astuple

from rebal.groups.errors import DocumentError, WireError
from rebal.groups.wire.consumer_protocol import decode_subscription
from rebal.groups.wire.offsets_topic import (
    GroupMetadata,
    GroupMetadataMember,
    decode_group_metadata,
)
from rebal.inspectors.fleet import schemas as timeline_rows
from rebal.inspectors.fleet.runs import effective_times, latest_time, span_of
from rebal.inspectors.fleet.schemas import TIME, Rows
from rebal.inspectors.fleet.timeline.facts import unpack_request
from rebal.inspectors.fleet.timeline.group import (
    Options,
    TimelineRow,
    apply_record,
    apply_request,
    finish,
    make_tables,
)
from rebal.inspectors.fleet.timeline.history import SCHEMA, TimelineState, decode, encode
from rebal.inspectors.fleet.timeline.values import (
    UNKNOWN_ASSIGNMENT,
    MemberSubscription,
    partition_list,
    read_assignment,
    read_value,
)
from tests.examples import examples
from tests.fleet.conftest import CAPTURES
from tests.fleet.timeline_input import (
    SECOND,
    START,
    M,
    Row,
    Story,
    Tables,
    asking,
    at,
    captured_records,
    captured_requests,
    facts,
    in_order,
    only,
    record_of,
    tables,
    text,
)
from tests.groups.test_offsets_records import written_group

YEAR = 365 * 24 * 3600 * SECOND


HOUR = 3600 * SECOND


TIMES = {
    "started_at", "ended_at", "latency_ms", "first_at", "last_at", "joined_at", "left_at", "at",
    "first_seen", "last_seen", "deleted_at", "last_rebalance_at", "stopped",
    "rebalance_latency_avg_ms", "rebalance_latency_max_ms", "rebalance_latency_total_ms",
}  # fmt: skip


"""Columns that hold times or what is measured between them: with `stopped`, of a client before 2.4
only the time that it was in its place tells a time-out from a restart."""


UNSURE = {
    "assignor_lists.generation", "assignor_lists.reason", "members.joined_reason",
    "rebalances.cause", "rebalances.refused",
}  # fmt: skip


"""Columns that say which line of a log was about which rebalance, where only times tell that."""


LATE = UNSURE | {
    "assignor_lists.replaced_member_id", "members.assignors", "members.left_reason",
    "members.software_name", "members.software_version", "rebalances.protocol",
    "rebalances.protocol_before",
}  # fmt: skip


"""Those where the times are far apart."""


def structure(made: Tables, but: Collection[str] = ()) -> dict[str, list[str]]:
    """What the tables say `but` for some columns, times, and incidents that are made of times."""
    return {
        name: sorted(
            repr([row[one] for one in row if one not in TIMES and f"{name}.{one}" not in but])
            for row in rows
        )
        for name, rows in made.items()
        if name != "incidents"
    }


def no_nonsense(made: Tables) -> None:
    """No latency below zero, nothing that ends before it began."""
    for row in made["rebalances"]:
        assert row["latency_ms"] is None or row["latency_ms"] >= 0, row
        if row["latency_ms"] is not None:
            assert row["started_at"] <= row["ended_at"]
    for row in made["members"]:
        assert row["first_at"] <= row["last_at"]
        assert row["left_at"] is None or row["left_at"] >= row["first_at"], row
    for row in made["groups"]:
        assert row["first_seen"] <= row["last_seen"]
        last = row["last_rebalance_at"]
        assert last is None or last <= row["last_seen"]


def captured() -> list[Row]:
    return [*captured_records(CAPTURES), *captured_requests(CAPTURES)]


@cache
def usual_with_requests() -> Tables:
    return tables(captured())


@cache
def wanted() -> dict[str, list[str]]:
    return structure(tables(captured_records(CAPTURES)))


def span(rows: Sequence[Row]) -> tuple[int, int]:
    return min(row["at"] for row in rows), max(row["at"] for row in rows)


def quiet(count: int = 30, apart: float = 30) -> Story:
    """A member more or less each half minute: no storm, as sessions are 10 s."""
    story = Story()
    for number in range(1, count + 1):
        others = [M(f"b{number}", (1,))] if number % 2 else []
        story.generation(number * apart, number, [M("a", (0,)), *others])
    return story


@pytest.mark.parametrize("by", [60, 3600, 10 * 365 * 24 * 3600, -60, -3600, -76 * 365 * 24 * 3600])
@pytest.mark.parametrize(("first", "count"), [(5, 9), (5, 25), (0, 3), (29, 1)])
def test_record_timestamps_that_jump_back_create_no_error_and_no_rebalance_storm(
    by: float, first: int, count: int
) -> None:
    story, sane = quiet(), quiet()
    for row in story.rows[first : first + count]:
        row["at"] -= round(by * SECOND)
    until = span(sane.rows)
    made, usual = tables(story.rows, observed=until), tables(sane.rows, observed=until)
    assert structure(made) == structure(usual)
    assert made["incidents"] == usual["errors"] == []
    no_nonsense(made)


def test_a_rebalance_with_a_corrected_timestamp_has_no_latency() -> None:
    """The members reach one KIP-848 epoch while the clock is set back."""
    for back in (0, 60):
        story = Story()
        story.reach(1, 1, {"a": (0,)}, [M("a")])
        for number in range(2, 6):
            story.epoch(number * 10, number)
            story.target_epoch(number * 10, number)
            story.current(number * 10 + 2, "a", number, (0,))
        story.rows[7 + 3]["at"] -= back * SECOND
        made = tables(story.rows)
        no_nonsense(made)
        latencies = [row["latency_ms"] for row in made["rebalances"]]
        assert latencies == [0, 2000, None if back else 2000, 2000, 2000]


def test_error_rows_keep_the_original_record_timestamp() -> None:
    story = quiet(5)
    story.put(-1000, 2, b"\0\x63nonsense")
    story.generation(400, 6, [M("a", (0,))])
    assert at(tables(story.rows)["errors"][0]["at"]) == -1000


shifts = st.dictionaries(
    st.integers(0, 2000),
    st.one_of(
        st.integers(-120 * SECOND, 120 * SECOND),
        st.sampled_from([-50 * YEAR, 75 * YEAR, -HOUR, HOUR, SECOND // 1000]),
    ),
    max_size=400,
)


@examples(8, full=25)
@given(shifts)
@example({0: -50 * YEAR})
def test_wrong_timestamps_do_not_change_groups_or_generations(by: Mapping[int, int]) -> None:
    records = captured_records(CAPTURES)
    rows = [{**row, "at": row["at"] + by.get(n, 0)} for n, row in enumerate(records)]
    for observed in (span(records), None):
        made = tables(rows, observed=observed)
        no_nonsense(made)
        for name, found in structure(made).items():
            assert [row for row in found if row not in wanted()[name]] == [], name
            assert len(found) == len(wanted()[name]), name


def effective(own: Sequence[int], observed: tuple[int, int] | None = None) -> list[int]:
    places = {"partition": [0] * len(own), "offset": range(len(own))}
    rows = pa.table({"at": pa.array(own, TIME), **places})
    return effective_times(rows, observed).cast(pa.int64()).to_pylist()


@examples(25)
@given(st.lists(st.integers(-60, 60), min_size=1, max_size=60))
def test_effective_times_never_decrease_and_are_taken_from_record_timestamps(by: list[int]) -> None:
    own = [START + (10 * n + off) * SECOND for n, off in enumerate(by)]
    made = effective(own)
    assert made == sorted(made)
    assert all(one >= recorded for one, recorded in zip(made, own, strict=True))
    assert set(made) <= set(own)


def test_a_timestamp_outside_the_observed_period_is_replaced_by_the_one_before_it() -> None:
    assert effective([99, 12, 99, 15, 1, 14, 20], (10, 50)) == [12, 12, 12, 15, 15, 15, 20]
    assert effective([99], (10, 50)) == [10]


NOON = datetime(2024, 5, 1, 12, tzinfo=UTC)


SOON = datetime.now(UTC).replace(microsecond=0) + timedelta(days=400)


@pytest.mark.parametrize(
    ("times", "first", "hours"),
    [
        ([NOON, NOON + timedelta(hours=1), None, datetime(2100, 1, 1, tzinfo=UTC)], NOON, 1),
        ([NOON + timedelta(hours=2), datetime(1970, 1, 1, tzinfo=UTC), NOON], NOON, 2),
        ([SOON, SOON + timedelta(hours=1)], SOON, 1),
    ],
    ids=["after now", "before Kafka", "a scanning machine whose clock is behind"],
)
def test_the_time_span_of_a_source_ignores_impossible_timestamps(
    times: list[datetime | None], first: datetime, hours: int
) -> None:
    stamps = pa.chunked_array([pa.array(times, pa.timestamp("us", "UTC"))])
    begin = round(first.timestamp()) * SECOND
    assert span_of(stamps, latest_time()) == (begin, begin + hours * HOUR)
    assert span_of(stamps.slice(0, 0), latest_time()) is None


def shifted(which: str, by: Callable[[int], int]) -> Iterator[Row]:
    """The captured records, the log's lines or both with other times: `by` is added to each."""
    for row in captured():
        is_meant = which in ("both", "log" if row["key"] is None else "records")
        yield {**row, "at": row["at"] + by(row["at"])} if is_meant else row


@pytest.mark.parametrize("by", [5, pytest.param(20, marks=pytest.mark.full), 60])
@pytest.mark.parametrize("which", ["records", "log", "both"])
def test_a_broker_clock_set_back_starts_no_new_incarnation_of_a_group(by: int, which: str) -> None:
    """Generations, not times, order the request log's rebalances among the records."""
    first, last = span(captured())
    back = first + (last - first) * 6 // 10
    made = tables(shifted(which, lambda at: 0 if at < back else -by * SECOND))
    no_nonsense(made)
    assert structure(made, LATE) == structure(usual_with_requests(), LATE)


@pytest.mark.parametrize("which", ["records", "log", "both"])
@pytest.mark.parametrize("seed", [1, 2])
def test_clock_differences_below_a_second_change_no_timeline_fact(seed: int, which: str) -> None:
    """Each request-log line or record is up to a second off; generations give the order."""
    rand = random.Random(seed)
    made = tables(shifted(which, lambda _: rand.randrange(-SECOND, SECOND)))
    assert structure(made, UNSURE) == structure(usual_with_requests(), UNSURE)


@pytest.mark.parametrize("when", [None, START + 76 * YEAR], ids=["no time", "of no source"])
def test_a_request_without_a_usable_time_yields_only_its_assignor_list(when: int | None) -> None:
    story = quiet(1, 10)
    story.join(0, "a", 1, ("sticky", "range"))
    story.rows[-1]["at"] = when
    made = tables(story.rows, observed=(START, START + HOUR))
    listed = only(made["assignor_lists"])
    assert facts(listed, "at", "assignors", "generation") == (None, ["sticky", "range"], 1)
    assert only(made["members"], member_id="a")["assignors"] == ["sticky", "range"]
    assert [at(only(made["groups"])[name]) for name in ("first_seen", "last_seen")] == [10, 10]


def test_records_out_of_effective_time_order_are_reported_as_errors() -> None:
    story = Story()
    for number in range(1, 6):
        story.generation(number * 100, number, [M("a", (number,))])
    ordered = list(map(record_of, in_order(story.rows)))
    made = dict(make_tables([ordered[n] for n in (0, 2, 1, 3, 4)], Options()))
    (error,) = made["errors"].to_pylist()
    assert error["offset"] == 1
    assert "after newer records" in error["error"]


@pytest.mark.parametrize("seed", range(4))
def test_corrupt_records_are_reported_and_never_stop_the_timeline(seed: int) -> None:
    rand = random.Random(seed)
    values = [row["value"] for row in captured() if row["value"]]

    def spoilt(row: Row) -> Row:
        row, chance = dict(row), rand.random()
        if row["key"] and row["value"] and chance < 0.15:
            value = bytearray(row["value"])
            value[rand.randrange(len(value))] ^= rand.randrange(1, 256)
            row["value"] = bytes(value)
        elif row["key"] and chance < 0.25:
            row["value"] = rand.choice([None, b"", *values])
        elif chance < 0.1:
            row["at"] += rand.randrange(-30 * SECOND, 30 * SECOND)
        elif not row["key"] and chance < 0.2:
            nothing = {"generation": None, "member_id": "", "total_ms": None, "members": ()}
            nothing |= dict.fromkeys(("assignments", "protocols"), ())
            name = rand.choice(list(nothing))
            row = asking(row, **{name: nothing[name]})
        return row

    made = tables([spoilt(row) for row in captured() if rand.random() > 0.05])
    assert {row["group_id"] for row in made["groups"]} == {row["group_id"] for row in captured()}
    assert made["errors"]
    for row in made["members"]:
        assert row["first_generation"] <= row["last_generation"]


numbers = st.lists(st.integers(0, 3), max_size=2, unique=True)


members = st.builds(
    M,
    st.just(""),
    has=numbers,
    owned=numbers,
    instance=st.sampled_from([None, None, "i"]),
    client=st.sampled_from(["one", "other"]),
    version=st.sampled_from([3, 3, 3, 0, 1, 2]),
    sent=st.one_of(*[st.none()] * 4, st.binary(max_size=20)),
    rack=st.sampled_from([None, "rack", "lane"]),
)


"""Members but for their id, and the generation that each sends."""


@st.composite
def histories(draw: st.DrawFn) -> list[GroupMetadata]:
    """Values of one group, most of whose members stay as they are but for the generation."""
    version, known, made = draw(st.sampled_from([3, 3, 3, 2, 4])), dict[str, M](), []
    for _ in range(draw(st.integers(2, 6))):
        generation = draw(st.integers(0, 9))
        ids = draw(st.lists(st.sampled_from("abcdef"), unique=True, max_size=5))
        for one in ids:
            if one not in known or not draw(st.integers(0, 3)):
                known[one] = draw(members)
        value = GroupMetadata(
            version=version,
            protocol_type=draw(st.sampled_from(["consumer"] * 9 + ["connect"])),
            generation=generation,
            protocol=draw(st.sampled_from(["range", "cooperative-sticky"])),
            leader=draw(st.sampled_from(["a", "b"])),
            state_timestamp_ms=draw(st.sampled_from([-1, 1_790_000_000_000])),
            members=tuple(
                replace(known[one], id=one, generation=generation).in_group(version) for one in ids
            ),
        )
        made.append(value)
    return made


def as_read(one: GroupMetadataMember, consumer: bool) -> tuple[Any, ...]:
    """What the strict codec says of a member, apart from the reader under test."""
    identity = (
        one.member_id, one.instance_id, one.client_id, one.client_host,
        one.rebalance_timeout_ms, one.session_timeout_ms, "classic",
    )  # fmt: skip
    if not consumer:
        return identity, None, MemberSubscription(), UNKNOWN_ASSIGNMENT
    given = read_assignment(one.assignment)
    try:
        read = decode_subscription(one.subscription)
    except WireError as error:
        return identity, None, MemberSubscription(error=str(error)), given
    owned = partition_list(read.owned_partitions)
    said = MemberSubscription(read.version, read.topics, owned, read.rack_id, read.user_data)
    return identity, read.generation_id, said, given


def head(value: GroupMetadata) -> tuple[Any, ...]:
    return (value.protocol_type, value.generation, value.protocol, value.leader)


@examples(40, full=100)
@given(st.lists(histories(), min_size=1, max_size=3), st.data())
def test_group_metadata_values_decoded_in_sequence_equal_each_decoded_alone(
    groups: list[list[GroupMetadata]], data: st.DataObject
) -> None:
    for one in itertools.chain.from_iterable(groups):
        raw = bytearray(written_group(one))
        harm = data.draw(st.sampled_from(["none"] * 4 + ["cut", "changed"]))
        place = data.draw(st.integers(0, len(raw) - 1))
        if harm == "cut":
            del raw[place:]
        elif harm == "changed":
            raw[place] ^= data.draw(st.integers(1, 255))
        try:
            alone = decode_group_metadata(bytes(raw))
        except WireError as error:
            with pytest.raises(WireError, match=re.escape(str(error))):
                read_value(bytes(raw))
        else:
            found, named = read_value(bytes(raw))
            assert head(found) == head(alone)
            assert [
                (astuple(one)[:7], generation, one.subscription, one.assignment)
                for one, generation in named.items()
            ] == [as_read(one, alone.protocol_type == "consumer") for one in alone.members]


@pytest.mark.parametrize("more", [b"", b"more"])
@pytest.mark.parametrize("version", [1, 2, 3])
@pytest.mark.parametrize("rack", [None, "rack"])
def test_an_unchanged_member_in_two_generations_is_decoded_to_the_same_object(
    version: int, rack: str | None, more: bytes
) -> None:
    """Also if extra bytes after the last field hide the position of the generation."""
    story = Story()
    for generation, ids in ((5, "ab"), (6, "ba")):
        b = M("b", (0,), (0,), version=version, generation=generation, rack=rack)
        b = replace(b, sent=b.subscription() + more)
        story.generation(60, generation, [b if one == "b" else M("a", (0,)) for one in ids])
    first, second = (read_value(row["value"])[1] for row in story.rows)
    assert list(second) == list(first)[::-1]
    generations = [
        {one.member_id: generation for one, generation in of.items()} for of in (first, second)
    ]
    assert [of["b"] for of in generations] == ([5, 6] if version > 1 else [None, None])


def test_a_group_metadata_value_cannot_claim_more_members_than_its_bytes_hold() -> None:
    some = [text(f"{n}") + struct.pack(">hhhiiii", *[0] * 7) for n in range(10_001)]
    start = struct.pack(">h", 3) + text("consumer") + struct.pack(">ihhqi", 1, -1, -1, -1, 10_001)
    whole, cut = start + b"".join(some), start + bytes(10_000 * 24)
    assert len(read_value(whole)[1]) == 10_001
    with pytest.raises(WireError, match="more than its bytes can hold"):
        read_value(cut + bytes(10))


def size_after(story: Story, step: Callable[[Story, int], None], count: int) -> tuple[int, int]:
    """How large a state is after so many steps, and how many rebalances were told."""
    rows, state, found = Rows(), TimelineState(group_id="g"), 0

    def taken() -> int:
        return sum(len(b) for name, b in rows.take(rest=True) if name.endswith("rebalances"))

    for number in range(1, count):
        step(story, number)
        for row in in_order(story.rows):
            if row["key"] is not None:
                apply_record(state, rows, record_of(row))
            else:
                apply_request(state, rows, row["at"], unpack_request(row["value"]))
        story.rows.clear()
        found += taken()
    size = len(encode(state))
    finish(state, rows)
    return size, found + taken()


def rebalance(story: Story, number: int) -> None:
    members = [M("a", (0,)), M(f"m{number}", (1,), client=f"c{number}")]
    story.round(number * 60, number, members)
    story.refuse(number * 60 + 5, f"r{number}", ("sticky",))
    story.generation(number * 60 + 0.05, number, members)


def heartbeats(story: Story, epoch: int) -> None:
    story.beat(epoch * 60, f"n{epoch}", 0, epoch)
    for member in ("a", "b"):
        story.beat(epoch * 60, member, epoch - 1, epoch)


@pytest.mark.parametrize(
    ("step", "count"),
    [pytest.param(rebalance, 200, marks=pytest.mark.slow), (heartbeats, 1_000)],
    ids=["records and requests", "heartbeats alone"],
)
def test_the_saved_state_of_a_group_does_not_grow_with_its_history(
    step: Callable[[Story, int], None], count: int
) -> None:
    """The state is bounded by current members, not by former ones."""
    (few, _), (many, rebalances) = (size_after(Story(), step, n) for n in (count, 3 * count))
    assert many < 1.2 * few, (few, many)
    assert rebalances == 3 * count - 1


def test_rebalance_rows_are_emitted_before_all_records_are_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(timeline_rows, "_AT_ONCE", 1_000)
    story = Story()
    for number in range(1, 3_500):
        story.generation(number, number, [M("a", (0,))])
    given = 0

    def counted() -> Iterator[TimelineRow]:
        nonlocal given
        for row in in_order(story.rows):
            given += 1
            yield record_of(row)

    made = make_tables(counted(), Options())
    found = next(len(rows) for kind, rows in made if kind == "rebalances")
    assert found >= 1_000
    assert given < len(story.rows)


def told() -> TimelineState:
    """The state of a group of two members after some generations."""
    state, story = TimelineState(group_id="g", recorded=True), Story()
    for number in range(1, 6):
        story.generation(number * 60, number, [M("a", (0,)), M("b", (1,))])
    for row in story.rows:
        apply_record(state, Rows(), record_of(row))
    return state


def crafted(**changes: Any) -> bytes:
    """A state's document with other values of some fields."""
    fields = msgspec.msgpack.decode(encode(told()))
    for name, value in changes.items():
        fields[TimelineState.__struct_fields__.index(name)] = value
    return msgspec.msgpack.encode(fields)


BROKEN = {
    "another format": b"PAR1 and more",
    "nothing": b"",
    "cut off": encode(told())[:50],
    "cut off at its end": encode(told())[:-1],
    "another schema": crafted(schema=SCHEMA + 1),
    "a text for a number": crafted(last_at="now"),
    "another type of group": crafted(type="none"),
    "no number of a partition": encode(told()).replace(b"\xa1t\x91\x01", b"\xa1t\x91\xc0"),
    "another group's": crafted(group_id="h"),
}


@pytest.mark.parametrize("data", BROKEN.values(), ids=BROKEN)
def test_a_damaged_or_foreign_group_state_is_rejected(data: bytes) -> None:
    with pytest.raises(
        DocumentError, match=r"the lake's state of group g .*: scan again with --full"
    ):
        decode(data, "g")


def shape_of(kind: Any) -> Any:
    """A type by its fields' names and types, all the way down."""
    if isinstance(kind, inspect.Field):
        return kind.name, shape_of(kind.type)
    if isinstance(kind, inspect.EnumType):
        return [one.value for one in kind.cls]
    if isinstance(kind, tuple):
        return [shape_of(one) for one in kind]
    if isinstance(kind, inspect.Type):
        return type(kind).__name__, [shape_of(getattr(kind, n)) for n in kind.__struct_fields__]
    return kind if isinstance(kind, bool | int | str) else None


def test_a_changed_layout_of_the_group_state_requires_a_new_schema_number() -> None:
    """If this fails, raise `SCHEMA` (not if only a name changed) and update both numbers here."""
    shape = repr(shape_of(inspect.type_info(TimelineState)))
    assert (SCHEMA, zlib.crc32(shape.encode())) == (7, 1722434786)
