"""A snapshot document reads back as it was, always has the same text, and complains precisely."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from rebal.groups.compact import ByTopic, Lag, Lags, Partitions, Replicas
from rebal.groups.errors import DocumentError
from rebal.groups.model import (
    AssignorList,
    Evidence,
    Group,
    GroupSnapshot,
    GroupState,
    Knowledge,
    Member,
    Source,
    Subscription,
)
from rebal.groups.snapshot import documents
from rebal.groups.snapshot.documents import (
    dump_snapshot,
    file_stem,
    format_of,
    load_snapshot,
    read_yaml,
)
from tests.examples import examples
from tests.tables import table

KEPT = Path(__file__).parents[1] / "data" / "snapshot.yaml"
AT = datetime(2026, 11, 20, 9, 12, 3, 250_000, tzinfo=UTC)
SMALL = GroupSnapshot(
    group=Group(group_id="checkout", state=GroupState.STABLE),
    captured_at=AT,
    members=(
        Member(
            member_id="m-1",
            assignors=AssignorList(
                knowledge=Knowledge.EXACT,
                list=("range",),
                evidence=(Evidence(source=Source.REQUEST_LOG, at=AT, detail="x"),),
            ),
            subscription=Subscription(version=3, topics=("orders",), user_data=b"\x00\xff"),
            assignment={"orders": Partitions.parse("0-11,14")},
        ),
    ),
)


def texts(**more: Any) -> st.SearchStrategy[str]:
    return st.text(st.characters(exclude_categories=["Cs"]), max_size=8, **more)


def any_of(kind: Any) -> st.SearchStrategy[Any]:
    """Any value of one of the model's records, from its own type hints."""
    return st.builds(
        kind,
        **{field.name: of_type(field.type) for field in msgspec.inspect.type_info(kind).fields},
    )


def of_type(node: Any) -> st.SearchStrategy[Any]:  # noqa: PLR0911 - one line a kind of type
    found = msgspec.inspect
    match node:
        case found.StrType():
            return texts()
        case found.IntType():
            return st.integers(0, 2**31 - 1)
        case found.BoolType():
            return st.booleans()
        case found.BytesType():
            return st.binary(max_size=8)
        case found.NoneType():
            return st.none()
        case found.DateTimeType():
            return st.datetimes(timezones=st.just(UTC))
        case found.EnumType(cls=cls):
            return st.sampled_from(list(cls))
        case found.UnionType(types=types):
            return st.one_of(*map(of_type, types))
        case found.VarTupleType(item_type=item):
            return st.lists(of_type(item), max_size=2).map(tuple)
        case (
            found.DictType(key_type=key, value_type=value)
            | found.CollectionType(item_type=(key, value))
        ):
            return st.dictionaries(of_type(key), of_type(value), max_size=2)
        case found.StructType(cls=cls):
            return any_of(cls)
        case found.CustomType(cls=cls) if cls is Partitions:
            return st.lists(st.integers(0, 50), max_size=6).map(Partitions)
        case found.CustomType(cls=cls) if cls is ByTopic:
            owned = st.lists(st.integers(0, 50), max_size=6).map(Partitions)
            return st.dictionaries(texts(), owned, max_size=2)
        case found.CustomType(cls=cls) if cls is Replicas:
            brokers = st.lists(st.integers(-1, 2**31 - 1), max_size=3)
            return st.lists(brokers, max_size=4).map(Replicas)
        case found.CustomType(cls=cls) if cls is Lags:
            offset = st.none() | st.integers(0, 2**63 - 1)
            one = st.builds(Lag, texts(), st.integers(0, 2**31 - 1), offset, offset)
            return st.lists(one, max_size=4).map(Lags)
    raise AssertionError(f"no strategy for {node}")


@pytest.mark.parametrize("form", ["yaml", "json"])
@settings(examples(40), suppress_health_check=list(HealthCheck))
@given(snapshot=any_of(GroupSnapshot))
def test_any_snapshot_reads_back_and_has_one_text(form: Any, snapshot: GroupSnapshot) -> None:
    text = dump_snapshot(snapshot, form)
    again = load_snapshot(text, form)
    assert again == snapshot
    assert dump_snapshot(again, form) == text
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e]", text)
    plain = json.loads(text) if form == "json" else yaml.safe_load(text)
    assert plain["schema"] == "rebal.snapshot/1"


def test_the_document_is_what_a_person_would_write() -> None:
    assert dump_snapshot(SMALL) == KEPT.read_text()


@pytest.mark.parametrize(
    "text", ["5", "0x10", "1_0", "1e3", "yes", "null", "~", "2026-01-01", "1:30"]
)
def test_names_that_yaml_would_read_as_something_else(text: str) -> None:
    snapshot = msgspec.structs.replace(SMALL, captured_by=text, notes=(text,))
    assert load_snapshot(dump_snapshot(snapshot), "yaml") == snapshot


def test_a_file_written_by_hand_may_be_plain() -> None:
    text = (
        "schema: rebal.snapshot/1\n"
        "future_field: {a: 1}\n"
        "group: {group_id: checkout}\n"
        "captured_at: 2026-11-20T09:12:03.25Z\n"
        "members: [{member_id: m, assignment: {orders: 5}}]\n"
        "...\n"
    )
    made = load_snapshot(text, "yaml")
    assert made.captured_at == AT
    assert made.members[0].assignment == {"orders": Partitions([5])}


GOOD = dump_snapshot(SMALL)


def changed(old: str, new: str) -> str:
    assert old in GOOD
    return GOOD.replace(old, new, 1)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        *((changed(old, new), said) for old, new, said in table("snapshot", "changes")),
        *table("snapshot", "texts"),
    ],
)
def test_an_error_names_the_field_and_the_line(text: str, said: str) -> None:
    with pytest.raises(DocumentError) as caught:
        load_snapshot(text, "yaml", "s.yaml")
    message = str(caught.value)
    assert said in message
    assert message.startswith("s.yaml: ")
    assert "\n" not in message


def test_an_error_in_json_names_the_line_too() -> None:
    text = dump_snapshot(SMALL, "json").replace('"version": 3', '"version": 7.5')
    with pytest.raises(DocumentError, match=r"members\[0\]\.subscription\.version: .*\(line 25\)"):
        load_snapshot(text, "json", "s.json")
    with pytest.raises(DocumentError, match=r"not valid JSON: .* \(line 1, column 2\)"):
        load_snapshot("{", "json", "s.json")
    with pytest.raises(DocumentError, match=r"not valid JSON: the key `a` stands twice"):
        load_snapshot('{"a": 1, "a": 2}', "json", "s.json")


@pytest.mark.parametrize("form", ["yaml", "json"])
def test_a_cut_off_file_is_a_sentence_never_another_group(form: Any) -> None:
    text = dump_snapshot(SMALL, form)
    whole = text.rstrip()
    for length in range(len(whole)):
        with pytest.raises(DocumentError) as caught:
            load_snapshot(text[:length], form, "s")
        assert str(caught.value).startswith("s: ")
        assert "\n" not in str(caught.value)
    assert load_snapshot(whole, form) == SMALL


def test_a_cut_at_the_end_of_a_line_is_told_as_such() -> None:
    cut = GOOD[: GOOD.index("  subscription:")]
    with pytest.raises(DocumentError, match=r"s\.yaml: cut off after line 15: the line `\.\.\.` "):
        load_snapshot(cut, "yaml", "s.yaml")


WHOLE = "schema: rebal.snapshot/1\n"
LARGE = dump_snapshot(SMALL).replace(
    "\n...\n", "\n" + "".join(f"note_{n}: x\n" for n in range(300_000))
)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (LARGE, "cut off after line 3000"),
        (LARGE.replace("schema: ", "not: ", 1) + "...\n", r"schema: expected .*, got nothing"),
        (LARGE.replace("/1", "/2", 1) + "...\n", "use the rebal version that wrote it"),
        ("- a\n" * 1_000_000, r"schema: expected .*, got nothing"),
        (WHOLE + "a: [\n" * 1_000_000 + "...\n", "nested too deep"),
        (WHOLE + "\0" * 4_000_000 + "\n...", "control characters are not allowed"),
        (WHOLE + "a: &a [*a]\n" * 1_000_000 + "...", r"aliases \(\*a\) are not read"),
    ],
)
def test_a_large_text_that_is_no_whole_document_is_rejected_by_its_start_and_end(
    text: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    events = 0

    class Counting(documents.PlainLoader):
        def get_event(self) -> Any:
            nonlocal events
            events += 1
            return super().get_event()

    monkeypatch.setattr(documents, "PlainLoader", Counting)
    with pytest.raises(DocumentError, match=said):
        load_snapshot(text, "yaml", "s.yaml")
    assert events < 150_000


@pytest.mark.parametrize("text", ["[" * 300_000, "- " * 300_000 + "x", '{"a":' * 100_000])
def test_nesting_without_end_is_refused(text: str) -> None:
    """YAML's own parser in C ends the process with a hundred thousand levels."""
    assert documents.read_yaml("[" * 64 + "]" * 64)
    with pytest.raises(DocumentError, match="nested too deep"):
        load_snapshot(text, "yaml")
    with pytest.raises(DocumentError, match="not valid JSON"):
        load_snapshot(text, "json")


@given(st.text(max_size=200), st.sampled_from(["yaml", "json"]))
def test_any_text_is_a_snapshot_or_one_sentence(text: str, form: Any) -> None:
    with pytest.raises(DocumentError) as caught:
        load_snapshot(text, form, "s")
    assert "\n" not in str(caught.value)


@given(st.lists(st.text(max_size=200), min_size=2, max_size=2, unique=True))
def test_file_stems_are_safe_and_different(pair: list[str]) -> None:
    a, b = map(file_stem, pair)
    assert a != b
    for stem in (a, b):
        assert re.fullmatch(r"[A-Za-z0-9_%~][A-Za-z0-9._%~-]{0,199}", stem)


def test_file_stems_people_can_read() -> None:
    assert file_stem("checkout") == "checkout"
    assert file_stem("orders/eu 1") == "orders%2Feu%201"
    assert file_stem("..") == "%2E."
    long = file_stem("x" * 249)
    assert len(long) < 200
    assert long != file_stem("x" * 248)


def test_the_ending_says_the_format() -> None:
    assert format_of("a/b.YAML") == format_of("b.yml") == "yaml"
    assert format_of("x.json") == "json"
    with pytest.raises(DocumentError, match=r"use \.yaml, \.yml or \.json"):
        format_of("x.txt")


MERGE = "tag:yaml.org,2002:merge"
WORDS = st.sampled_from(
    [
        *("0", "7", "007", "0x1F", "0o7", "1_000", "-3", "+4", "1.5", "1e3", ".inf", "12:30:45"),
        *("yes", "No", "true", "~", "null", "NULL", "2026-11-20", "0-11,14", "3-4", "a b", "é"),
        *("'5'", '"x\\ty"', "''", "!!str 5", "!!int '5'", "!x 5", "=", "<<", "[1, a]", "{a: 1}"),
        *("{a: 1, a: 2}", "? [1]", "*a", "&a b", "[", "- 1", "|", "a: b", "", "!!set {a}", "%"),
    ]
)
LINES = st.lists(
    st.tuples(st.sampled_from(["a: ", "b: ", "- ", "  c: ", "  - ", "<<: ", "5: "]), WORDS),
    max_size=6,
).map(lambda lines: "\n".join(map("".join, lines)))


def outcome(read: Any, text: str) -> tuple[str, object]:
    """What came of it: a value, or that it was refused; -0.0 and 1 are not 0.0 and True."""
    try:
        return "value", repr(read(text))
    except (yaml.YAMLError, ValueError) as error:
        return "refused", str(getattr(error, "problem", None) or error)


class Library(yaml.SafeLoader):
    """The library's own way, for what is not rejected."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = [key.value for key, _ in node.value]
        if len(set(map(str, keys))) < len(keys) or any(key.tag == MERGE for key, _ in node.value):
            raise yaml.MarkedYAMLError(problem="a key stands twice, or merges")
        made: dict[Any, Any] = super().construct_mapping(node, deep)
        return made


Library.add_constructor("tag:yaml.org,2002:timestamp", Library.construct_yaml_str)


def by_the_library(text: str) -> object:
    for event in yaml.parse(text, Loader=Library):
        collection = isinstance(event, yaml.CollectionStartEvent)
        if isinstance(event, yaml.AliasEvent) or (collection and event.tag is not None):
            raise yaml.MarkedYAMLError(problem="not read")
    return yaml.load(text, Loader=Library)


@given(LINES)
@example("a: &x b\nc: [*x]")
@example("? {a: 1}\n: 2")
@example("a: {<<: {b: 1}}")
@example("<<: {a: 1, a: 2}")
@example("a: !!map {b: 1}")
@example("a: ! 5")
@example("a: !!str <<")
@example("")
@example("--- 5\n--- 6")
@example("- &a b\n- &a b")
@example("a: 0\n  - &a b")
def test_it_reads_what_the_library_reads(text: str) -> None:
    expected, made = outcome(by_the_library, text), outcome(read_yaml, text)
    assert made[0] == expected[0]
    if made[0] == "value":
        assert made == expected


def test_a_key_is_looked_up_wherever_it_stands() -> None:
    with pytest.raises(yaml.YAMLError, match="`b` stands here twice") as caught:
        read_yaml("a:\n- {b: 1, c: 2}\n- {b: 1,\n   b: 2}\n")
    assert caught.value.problem_mark.line == 3
