"""Long lists of topics are one line in a document, and read back as they were."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from rebal.groups.compact import Partitions, fold, read_by_topic, unfold
from rebal.groups.errors import DocumentError
from rebal.groups.model import GroupSnapshot, Member, Subscription
from rebal.groups.snapshot.documents import dump_snapshot, load_snapshot
from tests.groups.stable import stable_group


def snapshot(topics: int) -> GroupSnapshot:
    names = tuple(f"topic-{n}" for n in range(topics))
    owned = {topic: Partitions([n, n + 1, n + 4]) for n, topic in enumerate(names)}
    sent = Subscription(version=3, topics=names, owned_partitions=owned)
    return stable_group(
        Member(member_id="m", subscription=sent, subscribed_topics=names, assignment=owned)
    )


@pytest.mark.parametrize("form", ["yaml", "json"])
@pytest.mark.parametrize("topics", [0, 1, 20, 21, 300])
def test_it_reads_back_as_it_was(form: Any, topics: int) -> None:
    made = dump_snapshot(snapshot(topics), form)
    assert load_snapshot(made, form) == snapshot(topics)
    assert dump_snapshot(load_snapshot(made, form), form) == made


def test_many_topics_are_one_line_and_few_are_not() -> None:
    few, many = (yaml.safe_load(dump_snapshot(snapshot(n)))["members"][0] for n in (20, 21))
    assert few["subscribed_topics"][:2] == ["topic-0", "topic-1"]
    assert few["assignment"]["topic-0"] == "0-1,4"
    assert many["subscription"]["topics"].startswith("topic-0 topic-1 topic-2 ")
    assert many["assignment"].startswith("topic-0 0-1,4; topic-1 1-2,5; ")


def test_what_is_wrong_on_a_line_is_told_with_its_line() -> None:
    text = dump_snapshot(snapshot(21))
    with pytest.raises(
        DocumentError, match=r"members\[0\]\.subscription\.owned_partitions.*\(line \d+\)"
    ):
        load_snapshot(text.replace("topic-3 3-4,7;", "topic-3 3-4;7;", 2), "yaml")
    with pytest.raises(DocumentError, match="the topic `topic-3` stands twice on one line"):
        load_snapshot(text.replace("topic-4 4-5,8;", "topic-3 4-5,8;"), "yaml")


NAMES = st.text(st.sampled_from('ab._-; é"\n'), max_size=4)
PLAIN = st.text(st.sampled_from("ab._-"), min_size=1, max_size=4)
BODIES = st.recursive(
    st.text(max_size=3) | st.integers(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["members", "topics", "x"]), inner, max_size=3)
        | st.fixed_dictionaries({"topics": st.lists(NAMES | PLAIN, min_size=18, max_size=24)})
        | st.fixed_dictionaries({"topics": st.lists(PLAIN, min_size=18, max_size=24)})
    ),
    max_leaves=6,
)


@given(BODIES)
def test_folding_changes_nothing_but_the_form(body: Any) -> None:
    folded = fold(body)
    if isinstance(folded, dict | list) and not single(body):
        unfold(folded)
        assert folded == body


def single(body: Any) -> bool:
    """Whether a text stands where a list belongs: no record has one there."""
    if isinstance(body, dict):
        return any(
            (key == "topics" and isinstance(value, str)) or single(value)
            for key, value in body.items()
        )
    return isinstance(body, list) and any(map(single, body))


NUMBERS = st.lists(st.integers(0, 30), max_size=4).map(lambda some: str(Partitions(some)))


@given(st.dictionaries(PLAIN, NUMBERS, min_size=19, max_size=23))
def test_what_is_owned_of_many_topics_reads_back(owned: dict[str, str]) -> None:
    folded = fold({"assignment": owned})["assignment"]
    assert isinstance(folded, str) == (len(owned) > 20)
    made = read_by_topic(folded)
    assert list(made.items()) == [(t, Partitions.parse(text)) for t, text in owned.items()]


@given(
    st.text(st.sampled_from("ab01-,; "), max_size=12)
    | st.lists(st.sampled_from(["a", "b", "a;", "0-3", "1;", "2;", "5,6;", ""])).map(" ".join)
)
def test_any_line_is_read_part_by_part(line: str) -> None:
    """However it is read at once: a part is a name, a blank, and partitions."""
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


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (5, "expected partitions by topic"),
        ({"a": True}, r"expected partitions such as .* - at `\$\[a\]`"),
        ({"a b": "x"}, r"got \"x\" - at `\$\[\.\.\.\]`"),
        ({7: "1"}, "expected a topic's name, got 7"),
        ("a 0-3; b 7-1", r'"7-1" does not go upwards - at `\$\[b\]`'),
    ],
)
def test_what_is_not_owned_of_topics_is_refused(value: object, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        read_by_topic(value)
