"""Snapshot documents: read back as they were, always of the same text, with precise complaints.

A sealed document names the field that was edited, and is read in any layout. A redacted snapshot
names nobody and gives the same plan.
"""

import json
import re
from collections.abc import Callable, Iterator
from copy import deepcopy
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

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
    Running,
    Source,
    Subscription,
    WorkerState,
)
from rebal.groups.snapshot import documents
from rebal.groups.snapshot.documents import (
    check_seal,
    checksum,
    dump_snapshot,
    file_stem,
    format_of,
    load_snapshot,
    read_yaml,
    text_of,
)
from rebal.groups.snapshot.redact import redact
from rebal.planner.plan import dump_plan, load_plan
from tests.examples import examples
from tests.groups.observed import stable_group
from tests.planner.plans import RANGE, m, plan
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
def test_any_snapshot_reads_back_and_has_only_one_text(form: Any, snapshot: GroupSnapshot) -> None:
    text = dump_snapshot(snapshot, form)
    again = load_snapshot(text, form)
    assert again == snapshot
    assert dump_snapshot(again, form) == text
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e]", text)
    plain = json.loads(text) if form == "json" else yaml.safe_load(text)
    assert plain["schema"] == "rebal.snapshot/1"


def test_a_snapshot_document_equals_the_kept_readable_yaml() -> None:
    assert dump_snapshot(SMALL) == KEPT.read_text()


@pytest.mark.parametrize(
    "text", ["5", "0x10", "1_0", "1e3", "yes", "null", "~", "2026-01-01", "1:30"]
)
def test_names_that_look_like_yaml_numbers_or_dates_read_back_as_text(text: str) -> None:
    snapshot = msgspec.structs.replace(SMALL, captured_by=text, notes=(text,))
    assert load_snapshot(dump_snapshot(snapshot), "yaml") == snapshot


def test_a_handwritten_snapshot_may_use_plain_yaml() -> None:
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
    ("text", "expected"),
    [
        *((changed(old, new), expected) for old, new, expected in table("snapshot", "changes")),
        *table("snapshot", "texts"),
    ],
)
def test_an_error_in_a_yaml_snapshot_names_the_field_and_line(text: str, expected: str) -> None:
    with pytest.raises(DocumentError) as caught:
        load_snapshot(text, "yaml", "s.yaml")
    message = str(caught.value)
    assert expected in message
    assert message.startswith("s.yaml: ")
    assert "\n" not in message


def test_an_error_in_a_json_snapshot_names_the_line() -> None:
    text = dump_snapshot(SMALL, "json").replace('"version": 3', '"version": 7.5')
    with pytest.raises(DocumentError, match=r"members\[0\]\.subscription\.version: .*\(line 25\)"):
        load_snapshot(text, "json", "s.json")
    with pytest.raises(DocumentError, match=r"not valid JSON: .* \(line 1, column 2\)"):
        load_snapshot("{", "json", "s.json")
    with pytest.raises(DocumentError, match=r"not valid JSON: the key `a` stands twice"):
        load_snapshot('{"a": 1, "a": 2}', "json", "s.json")


@pytest.mark.parametrize("form", ["yaml", "json"])
def test_a_truncated_snapshot_is_never_read_as_another_group(form: Any) -> None:
    text = dump_snapshot(SMALL, form)
    whole = text.rstrip()
    for length in range(len(whole)):
        with pytest.raises(DocumentError) as caught:
            load_snapshot(text[:length], form, "s")
        assert str(caught.value).startswith("s: ")
        assert "\n" not in str(caught.value)
    assert load_snapshot(whole, form) == SMALL


def test_a_snapshot_truncated_at_a_line_end_is_reported_as_cut_off() -> None:
    cut = GOOD[: GOOD.index("  subscription:")]
    with pytest.raises(DocumentError, match=r"s\.yaml: cut off after line 15: the line `\.\.\.` "):
        load_snapshot(cut, "yaml", "s.yaml")


WHOLE = "schema: rebal.snapshot/1\n"
LARGE = dump_snapshot(SMALL).replace(
    "\n...\n", "\n" + "".join(f"note_{n}: x\n" for n in range(300_000))
)


@pytest.mark.parametrize(
    ("text", "message"),
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
def test_a_large_invalid_document_is_rejected_by_its_start_and_end(
    text: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    events = 0

    class Counting(documents.PlainLoader):
        def get_event(self) -> Any:
            nonlocal events
            events += 1
            return super().get_event()

    monkeypatch.setattr(documents, "PlainLoader", Counting)
    with pytest.raises(DocumentError, match=message):
        load_snapshot(text, "yaml", "s.yaml")
    assert events < 150_000


@pytest.mark.parametrize("text", ["[" * 300_000, "- " * 300_000 + "x", '{"a":' * 100_000])
def test_a_document_nested_too_deep_is_rejected(text: str) -> None:
    """With 100,000 levels the C parser of YAML crashes the process."""
    assert documents.read_yaml("[" * 64 + "]" * 64)
    with pytest.raises(DocumentError, match="nested too deep"):
        load_snapshot(text, "yaml")
    with pytest.raises(DocumentError, match="not valid JSON"):
        load_snapshot(text, "json")


@given(st.text(max_size=200), st.sampled_from(["yaml", "json"]))
def test_any_random_text_is_rejected_in_one_sentence(text: str, form: Any) -> None:
    with pytest.raises(DocumentError) as caught:
        load_snapshot(text, form, "s")
    assert "\n" not in str(caught.value)


@given(st.lists(st.text(max_size=200), min_size=2, max_size=2, unique=True))
def test_file_names_of_any_two_group_ids_are_safe_and_different(pair: list[str]) -> None:
    a, b = map(file_stem, pair)
    assert a != b
    for stem in (a, b):
        assert re.fullmatch(r"[A-Za-z0-9_%~][A-Za-z0-9._%~-]{0,199}", stem)


def test_the_file_name_of_a_group_id_stays_readable() -> None:
    assert file_stem("checkout") == "checkout"
    assert file_stem("orders/eu 1") == "orders%2Feu%201"
    assert file_stem("..") == "%2E."
    long = file_stem("x" * 249)
    assert len(long) < 200
    assert long != file_stem("x" * 248)


def test_the_file_name_suffix_determines_the_document_format() -> None:
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
def test_the_yaml_reader_gives_the_same_values_as_the_yaml_library(text: str) -> None:
    expected, made = outcome(by_the_library, text), outcome(read_yaml, text)
    assert made[0] == expected[0]
    if made[0] == "value":
        assert made == expected


def test_a_duplicate_yaml_key_is_reported_with_its_line() -> None:
    with pytest.raises(yaml.YAMLError, match="`b` stands here twice") as caught:
        read_yaml("a:\n- {b: 1, c: 2}\n- {b: 1,\n   b: 2}\n")
    assert caught.value.problem_mark.line == 3


PLAN = plan([m(f"c-{number}", RANGE) for number in range(3)])
BODY: dict[str, Any] = json.loads(dump_plan(PLAN, "json"))


def places(value: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Yield the path to each text, number and null."""
    if isinstance(value, dict | list):
        pairs = value.items() if isinstance(value, dict) else enumerate(value)
        for key, each in pairs:
            yield from places(each, (*path, key))
    else:
        yield path


def edited(path: tuple[str | int, ...]) -> dict[str, Any]:
    body = deepcopy(BODY)
    inner: Any = body
    for key in path[:-1]:
        inner = inner[key]
    was = inner[path[-1]]
    inner[path[-1]] = f"{was}x" if isinstance(was, str) else "x"
    return body


def field_of(path: tuple[str | int, ...]) -> str:
    """Return the field that a message names for this place."""
    match path:
        case ("steps", int(number), str(name), *_):
            return f"`steps[{number}].{name}`"
        case (str(name), int(number), *_) if isinstance(BODY[name][number], dict):
            return f"`{name}[{number}]`"
    return f"`{path[0]}`"


def test_every_edited_field_of_a_sealed_plan_is_detected_and_named() -> None:
    found = [path for path in places(BODY) if path[0] not in ("schema", "checksum")]
    assert len(found) > 200
    for path in found:
        with pytest.raises(DocumentError) as error:
            check_seal(edited(path), "a.plan.yaml")
        assert f"a.plan.yaml: {field_of(path)} has changed" in str(error.value), path


@pytest.mark.parametrize("key", [key for key in BODY if key not in ("schema", "checksum")])
def test_removed_and_added_fields_of_a_sealed_plan_are_detected(key: str) -> None:
    with pytest.raises(DocumentError, match="has changed"):
        check_seal({name: value for name, value in BODY.items() if name != key}, "a")
    with pytest.raises(DocumentError, match="`more` has changed"):
        check_seal(BODY | {"more": 1}, "a")
    with pytest.raises(DocumentError, match=r"`steps\[\]` has changed"):
        check_seal(BODY | {"steps": BODY["steps"][:1]}, "a")


def test_layout_key_order_and_format_do_not_change_the_checksum_of_a_plan() -> None:
    backwards = dict(reversed(BODY.items()))
    for text in (json.dumps(BODY), json.dumps(backwards, indent=7)):
        assert load_plan(text, "json") == PLAN
    kept = dump_plan(PLAN, "yaml")
    assert load_plan(kept.replace("\n", "\n# a note\n", 1), "yaml") == PLAN
    assert load_plan(text_of(yaml.safe_load(kept), "json"), "json") == PLAN


def test_a_plan_without_its_checksum_is_rejected() -> None:
    body = {name: value for name, value in BODY.items() if name != "checksum"}
    with pytest.raises(DocumentError, match=r"p: the field `checksum` is missing"):
        load_plan(json.dumps(body), "json", "p")


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda body: body["steps"][1].update(id=3), "steps: numbered [1, 3], expected 1, 2"),
        (lambda body: body["steps"].reverse(), "steps: numbered [2, 1], expected 1, 2"),
        (lambda body: body.update(next_step=5), "next_step: there is no step 5"),
        (lambda body: body.update({"from": "SOMETIMES"}), "from: invalid enum value"),
        (lambda body: body["steps"][0].update(kind="at once"), "kind: invalid enum value"),
    ],
)
def test_an_inconsistent_plan_is_rejected_despite_a_valid_checksum(
    damage: Callable[[dict[str, Any]], object], message: str
) -> None:
    body = deepcopy(BODY)
    damage(body)
    body["checksum"] = checksum(body)
    with pytest.raises(DocumentError) as error:
        load_plan(json.dumps(body), "json", "p")
    assert message in str(error.value)


def test_whole_numbers_written_without_a_fraction_keep_the_checksum_valid() -> None:
    text = json.dumps(BODY).replace(".0,", ",").replace(".0}", "}")
    assert text != json.dumps(BODY)
    assert load_plan(text, "json") == PLAN


@pytest.mark.parametrize("name", ["topics", "subscribed_topics", "owned_partitions", "lag"])
def test_client_and_topic_names_may_equal_field_names_of_a_plan(name: str) -> None:
    members = [m("a", family=None) | {"topics": [name], "owned": {name: "0-3"}}]
    made = plan(members, families={"a": "java", name: "java"}, ignore={"RB901": "x"})
    for form in ("json", "yaml"):
        assert load_plan(dump_plan(made, form), form) == made


@pytest.mark.parametrize("damaged", ["", "a b : c", "x:1"])
def test_a_damaged_plan_checksum_is_reported(damaged: str) -> None:
    with pytest.raises(DocumentError, match="`checksum` has changed"):
        check_seal(BODY | {"checksum": damaged}, "a")


SEEN_AT = datetime(2026, 11, 20, 9, 12, tzinfo=UTC)
UUID = "0a1b2c3d-0000-4000-8000-00000000000{}"


SNAPSHOT = load_snapshot((Path(__file__).parents[1] / "data" / "redact.yaml").read_text(), "yaml")
NAMES = (
    *("shop", "pod-", "late", "gone", "ghost", "10.1.2"),
    *("kafka-2", "corp", "secret-host", "fe80"),
)


def test_a_redacted_snapshot_contains_no_original_name() -> None:
    text = dump_snapshot(redact(SNAPSHOT))
    assert [name for name in NAMES if name in text] == []
    data = msgspec.json.encode(redact(SNAPSHOT), enc_hook=str)
    assert [name for name in NAMES if name.encode() in data] == []
    for member in redact(SNAPSHOT).members:
        assert member.assignment_user_data == bytes(len(b"secret-host:1"))
        assert member.subscription.user_data == bytes(len(b"secret-host:1"))


def test_redacted_member_ids_keep_their_uuid_and_evidence_keeps_its_line_number() -> None:
    """tests/cli/test_plan.py compares the plans."""
    made = redact(SNAPSHOT)
    for before, after in zip(SNAPSHOT.members, made.members, strict=True):
        assert after.member_id.endswith(before.member_id[-36:])
        assert (after.evidence[0].detail, after.evidence[0].at) == (
            "file:41 JOIN_GROUP v9",
            SEEN_AT,
        )
    assert made.refusals[0].rejoined_as.endswith(UUID.format(8))
    assert made.refusals[0].connection == ""
    assert made.departed[0].member_id.startswith("member-")
    assert made.departed[0].member_id.endswith(UUID.format(7))
    assert made.contradictions[0].member_id == made.members[0].member_id
    assert made.contradictions[0].what == f"{made.members[0].client_id} changed"


def test_redacting_a_client_id_that_equals_an_assignor_keeps_the_assignor_list() -> None:
    known = AssignorList(
        knowledge=Knowledge.EXACT, list=("zone",), classes=("com.acme.ZoneAssignor",)
    )
    one = Member(
        member_id=f"acme-{UUID.format(9)}", client_id="acme", assignors=known,
        subscribed_topics=("acme",),
    )  # fmt: skip
    made = redact(replace(SNAPSHOT, members=(one,))).members[0]
    assert (made.assignors.classes, made.subscribed_topics) == (known.classes, ("acme",))
    assert made.client_id != "acme"
    assert redact(SNAPSHOT).members[2].client_id.startswith("id-")
    assert redact(SNAPSHOT).members[2].assignors.list == ("range",)


@pytest.mark.parametrize("assignor", ["sticky", "cooperative-sticky"])
def test_redaction_keeps_sticky_user_data_for_the_simulation(assignor: str) -> None:
    group = replace(SNAPSHOT.group, assignor=assignor)
    made = redact(replace(SNAPSHOT, group=group))
    assert made.members[0].subscription == SNAPSHOT.members[0].subscription


def test_a_redacted_connect_worker_has_no_url() -> None:
    running = (Running("orders-sink", itself=True, tasks=(0, 2)), Running("audit", tasks=(1,)))
    worker = WorkerState(url="http://connect-7.example.org:8083/", running=running)
    assert (worker.connectors, worker.tasks) == (1, 3)
    member = Member(member_id="w-1", client_id="w", worker=worker)
    made = redact(stable_group(member, protocol_type="connect"))
    assert made.members[0].worker == WorkerState(url="", running=running)
    assert "example" not in dump_snapshot(made, "json")


ids = st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), max_size=6)


@given(
    st.lists(
        st.tuples(ids, st.none() | ids.filter(bool), st.uuids()),
        max_size=6,
        unique_by=lambda p: p[2],
    )
)
def test_redaction_keeps_order_and_equality(people: list[tuple[str, str | None, object]]) -> None:
    before = [
        Member(member_id=f"{instance or client}-{uuid}", client_id=client, instance_id=instance)
        for client, instance, uuid in people
    ]
    group = GroupSnapshot(group=Group(group_id="g"), captured_at=SEEN_AT, members=tuple(before))
    after = redact(group).members

    def java(text: str | None) -> tuple[bool, bytes]:
        # None and "" are two values: only with a place of each do ranks tell them apart.
        return text is not None, (text or "").encode("utf-16-be")

    def ranks(values: list[str | None]) -> list[int]:
        order = sorted(set(values), key=java)
        return [order.index(value) for value in values]

    for field in ("member_id", "client_id", "instance_id"):
        assert ranks([getattr(m, field) for m in before]) == ranks(
            [getattr(m, field) for m in after]
        )
    both = [m.client_id for m in before] + [m.instance_id for m in before]
    both_after = [m.client_id for m in after] + [m.instance_id for m in after]
    assert ranks(both) == ranks(both_after)
    assert redact(redact(group)) == redact(group)
