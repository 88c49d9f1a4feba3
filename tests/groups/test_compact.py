"""Texts that are read as they were: partitions and offsets in documents, and printed commands.

A command goes through bash and back: every word arrives as it is, from one visible line.
"""

import copy
import os
import pickle
import shutil
import subprocess
from datetime import UTC, datetime
from typing import Any

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec.structs import replace

from rebal.cli.lazy import _repeat
from rebal.groups.commands import Command, option, options, rebal
from rebal.groups.compact import NO_LAG, Lag, Lags, Partitions, Replicas, fold, read_by_topic
from rebal.groups.errors import DocumentError
from rebal.groups.model import Group, GroupSnapshot, Member, Subscription, Topic
from rebal.groups.snapshot.documents import dump_snapshot, load_snapshot
from tests.groups.observed import stable_group
from tests.tables import table

NUMBERS = st.lists(st.integers(0, 40) | st.just(2**31 - 1), max_size=12)


@given(NUMBERS, NUMBERS)
def test_partition_lists_made_from_numbers_and_from_text_are_equal(
    first: list[int], second: list[int]
) -> None:
    plain = ",".join(map(str, first))
    equal = [Partitions(first), Partitions.parse(plain), Partitions.parse(plain.replace(",", ", "))]
    equal.append(Partitions.parse(str(equal[0])))
    other = Partitions(second)
    for one in equal:
        assert list(one) == first
        assert len(one) == len(first)
        assert [number for run in one.runs for number in run] == first
        assert all(b.start != a.stop for a, b in zip(one.runs, one.runs[1:], strict=False))
        assert one == equal[0]
        assert hash(one) == hash(equal[0])
        assert (one == other) == (first == second)
        assert str(one) == str(equal[0])
        assert all((number in one) == (number in first) for number in (0, 7, 41, "7"))


@pytest.mark.parametrize("numbers", [[-1], [3, 2**31], range(-2, 3), range(2**31, 2**31 + 1)])
def test_a_partition_number_out_of_range_is_rejected(numbers: Any) -> None:
    with pytest.raises(ValueError, match="a partition is a number from 0 to 2147483647, not "):
        Partitions(numbers)


@pytest.mark.parametrize("text", ["2147483648", "1,99999999999", "1,-2", "1,,2", "1_0", "+1", "³"])
def test_an_invalid_partition_list_text_is_rejected(text: str) -> None:
    with pytest.raises(ValueError, match=r"expected partitions|a partition is"):
        Partitions.parse(text)


LAG = (Lag("orders", 0, 100, 100), Lag("orders", 1, None, 7), Lag("clicks", 4, 3, None))
SNAPSHOT = GroupSnapshot(
    group=Group(group_id="g"),
    captured_at=datetime(2026, 11, 20, tzinfo=UTC),
    topics=(Topic(name="orders", partitions=3, replicas=((1, 2), (2, 3), ())),),
    lag=LAG,
)


def test_a_snapshot_document_writes_replicas_and_lag_of_a_topic_compactly() -> None:
    made = yaml.safe_load(dump_snapshot(SNAPSHOT))
    assert made["topics"] == [{"name": "orders", "partitions": 3, "replicas": "1,2 2,3 -"}]
    assert made["lag"] == {
        "orders": {"partitions": "0-1", "committed": "100 -", "end": "100 7"},
        "clicks": {"partitions": "4", "committed": "3", "end": "-"},
    }


def test_a_snapshot_document_omits_empty_lag_and_replicas() -> None:
    bare = replace(SNAPSHOT, topics=(Topic(name="orders", partitions=3, replicas=()),), lag=())
    assert "lag" not in dump_snapshot(bare)
    assert "replicas" not in dump_snapshot(bare)
    given_empty = dump_snapshot(bare).replace("topics:", "lag: {}\ntopics:")
    assert dump_snapshot(load_snapshot(given_empty, "yaml")) == dump_snapshot(bare)


GOOD = dump_snapshot(SNAPSHOT)


@pytest.mark.parametrize(("old", "new", "message"), table("compact", "errors"))
def test_a_snapshot_error_names_the_field_and_the_line(old: str, new: str, message: str) -> None:
    assert old in GOOD
    with pytest.raises(DocumentError) as caught:
        load_snapshot(GOOD.replace(old, new, 1), "yaml", "s.yaml")
    assert message in str(caught.value)
    assert "(line " in str(caught.value)


@pytest.mark.parametrize("one", ["5", "[5]", "[{topic: o}]", "[{topic: o, partition: true}]",
                                 "[{topic: o, partition: 0, end: -4}]",
                                 "[{topic: o, partition: -1}]"])  # fmt: skip
def test_invalid_lag_in_a_snapshot_is_rejected(one: str) -> None:
    text = GOOD[: GOOD.index("lag:")] + f"lag: {one}\n...\n"
    with pytest.raises(DocumentError, match=r"lag: (expected|an offset is|a partition is) "):
        load_snapshot(text, "yaml")


@given(st.lists(st.lists(st.integers(-1, 2**31 - 1), max_size=3).map(tuple), max_size=8))
def test_replicas_behave_like_a_tuple_of_tuples(sets: list[tuple[int, ...]]) -> None:
    made = Replicas(sets)
    assert made == tuple(sets)
    assert Replicas.parse(str(made)) == made
    assert (len(made), list(made), made[:2]) == (len(sets), sets, tuple(sets[:2]))
    assert hash(made) == hash(Replicas(list(sets)))


def test_lags_behave_like_a_tuple_of_lag_entries() -> None:
    made = Lags(LAG)
    assert made == LAG == tuple(made)
    assert (len(made), bool(made), bool(NO_LAG)) == (3, True, False)
    assert hash(made) == hash(Lags(list(LAG)))
    assert made != Lags(LAG[:2])
    assert made != "x"
    with pytest.raises(ValueError, match="an offset is a number from 0 to"):
        Lags([Lag("t", 0, -4)])


def of_topics(topics: int) -> GroupSnapshot:
    names = tuple(f"topic-{n}" for n in range(topics))
    owned = {topic: Partitions([n, n + 1, n + 4]) for n, topic in enumerate(names)}
    sent = Subscription(version=3, topics=names, owned_partitions=owned)
    return stable_group(
        Member(member_id="m", subscription=sent, subscribed_topics=names, assignment=owned)
    )


@pytest.mark.parametrize("form", ["yaml", "json"])
@pytest.mark.parametrize("topics", [0, 1, 20, 21, 300])
def test_a_snapshot_with_many_topics_reads_back_unchanged(form: Any, topics: int) -> None:
    made = dump_snapshot(of_topics(topics), form)
    assert load_snapshot(made, form) == of_topics(topics)
    assert dump_snapshot(load_snapshot(made, form), form) == made


def test_a_snapshot_writes_more_than_20_topics_on_one_line() -> None:
    few, many = (yaml.safe_load(dump_snapshot(of_topics(n)))["members"][0] for n in (20, 21))
    assert few["subscribed_topics"][:2] == ["topic-0", "topic-1"]
    assert few["assignment"]["topic-0"] == "0-1,4"
    assert many["subscription"]["topics"].startswith("topic-0 topic-1 topic-2 ")
    assert many["assignment"].startswith("topic-0 0-1,4; topic-1 1-2,5; ")


@pytest.mark.parametrize("name", ["a b{}", "a;{}", "é{}", '"{}', "x{}\n"])
def test_invalid_kafka_topic_names_are_not_folded_into_one_line(name: str) -> None:
    body = {"topics": [name.format(n) for n in range(30)]}
    assert fold(body) == body


def test_an_error_in_a_one_line_topic_list_names_its_line() -> None:
    text = dump_snapshot(of_topics(21))
    with pytest.raises(
        DocumentError, match=r"members\[0\]\.subscription\.owned_partitions.*\(line \d+\)"
    ):
        load_snapshot(text.replace("topic-3 3-4,7;", "topic-3 3-4;7;", 2), "yaml")
    with pytest.raises(DocumentError, match="the topic `topic-3` stands twice on one line"):
        load_snapshot(text.replace("topic-4 4-5,8;", "topic-3 4-5,8;"), "yaml")


@given(
    st.text(st.sampled_from("ab01-,; "), max_size=12)
    | st.lists(st.sampled_from(["a", "b", "a;", "0-3", "1;", "2;", "5,6;", ""])).map(" ".join)
)
def test_any_one_line_topic_list_is_parsed_like_its_separate_parts(line: str) -> None:
    """A part is a name, a blank, and partitions."""
    parts = [part.partition(" ") for part in line.split("; ")] if line else []
    try:
        expected = [(name, Partitions.parse(numbers)) for name, _, numbers in parts]
    except ValueError:
        expected = None
    if len({name for name, _, _ in parts}) < len(parts):
        expected = None
    try:
        made = list(read_by_topic(line).items())
    except ValueError:
        made = None
    assert made == expected


@pytest.mark.parametrize(("value", "message"), table("compact", "not_owned"))
def test_an_invalid_list_of_owned_partitions_is_rejected(value: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read_by_topic(value)


BASH = shutil.which("bash")
# An argument holds every character but NUL; bytes that are no UTF-8 come as surrogates.
WORDS = st.text(
    st.one_of(
        st.sampled_from(list("-$`'\"\\ !*?[]{}();&|<>~#=%\n\t\r\x1b\u202e\u00a0\ufeffé漢\udcff")),
        st.characters(exclude_characters="\0", exclude_categories=("Cs",)),
    ),
    max_size=12,
)
HOSTILE = [
    "my group", "o'neill", '"', "$HOME", "`id`", "$(id)", "-g", "--", "", "a\nb", "\x1b[31m",
    "\u202e", "a\\nb", "it's\n-1", "~root", "{a,b}", "*", "!!", "é漢", "\udcff",
]  # fmt: skip


def bash(*lines: str) -> list[bytes]:
    """What each line's command gets as its words, when bash runs it with printf for rebal."""
    assert BASH
    script = 'rebal() { printf "%s\\0" "$@"; }\n' + "\n".join(lines)
    done = subprocess.run([BASH, "-c", script.encode("utf-8", "surrogateescape")],
                          capture_output=True, check=True)  # fmt: skip
    assert done.stderr == b""
    return done.stdout.split(b"\0")[:-1]


def seen(words: list[str]) -> list[bytes]:
    return [word.encode("utf-8", "surrogateescape") for word in words]


@given(st.lists(WORDS, min_size=1, max_size=6))
@example(HOSTILE)
def test_bash_parses_a_printed_command_back_into_the_same_words(words: list[str]) -> None:
    assert bash(Command("rebal", *words)) == seen(words)


@given(st.lists(WORDS, max_size=4))
@example(HOSTILE)
def test_a_printed_command_is_one_line_without_invisible_characters(words: list[str]) -> None:
    assert Command("rebal", *words).isprintable()


@given(WORDS, st.sampled_from(["--client-log", "-b", "--to"]))
@example("-x", "-b")
@example("-", "--client-log")
def test_a_printed_option_value_is_never_parsed_as_an_option(value: str, name: str) -> None:
    words = option(name, value)
    joined = "".join(words).removeprefix(name).removeprefix("=" if len(words) == 1 else "")
    assert joined == value
    if value.startswith("-") and value != "-":
        assert len(words) == 1


@pytest.mark.parametrize("group", HOSTILE)
def test_any_group_id_in_a_printed_command_is_parsed_as_an_argument(group: str) -> None:
    words = options("--client-log", ["a.log", "-b.log"])
    read = bash(rebal("inspect", [group], words))
    typed = list(_repeat([os.fsdecode(word) for word in read], {"--client-log": False}))
    own = ["--client-log", "a.log", "--client-log=-b.log"]
    dashed = group.startswith("-")
    assert typed == (["inspect", *own, "--", group] if dashed else ["inspect", group, *own])


def test_a_copied_or_pickled_command_stays_the_same_line() -> None:
    line = Command("rebal", "inspect", "my group")
    for made in (copy.deepcopy(line), pickle.loads(pickle.dumps(line)), Command.read(str(line))):
        assert isinstance(made, Command)
        assert made == "rebal inspect 'my group'"
