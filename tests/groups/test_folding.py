"""Long lists of topics are one line in a document, and read back as they were."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from rebal.groups.errors import DocumentError
from rebal.groups.folding import fold, unfold
from rebal.groups.model import Group, GroupSnapshot, Member, Subscription
from rebal.groups.partitions import Partitions
from rebal.groups.snapshot import dump_snapshot, load_snapshot


def snapshot(topics: int, name: str = "topic-{}") -> GroupSnapshot:
    names = tuple(name.format(n) for n in range(topics))
    owned = {topic: Partitions([n, n + 1, n + 4]) for n, topic in enumerate(names)}
    return GroupSnapshot(
        group=Group(group_id="g"),
        captured_at=datetime(2026, 11, 20, tzinfo=UTC),
        members=(
            Member(
                member_id="m",
                subscription=Subscription(version=3, topics=names, owned_partitions=owned),
                subscribed_topics=names,
                assignment=owned,
            ),
        ),
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


@pytest.mark.parametrize("name", ["a b{}", "a;{}", "é{}", '"{}', "x\n{}"])
def test_names_that_are_not_kafkas_stay_as_they_are(name: str) -> None:
    made = snapshot(30, name)
    assert load_snapshot(dump_snapshot(made), "yaml") == made


def test_what_is_wrong_on_a_line_is_told_with_its_line() -> None:
    text = dump_snapshot(snapshot(21))
    with pytest.raises(
        DocumentError, match=r"members\[0\]\.subscription\.owned_partitions.*\(line \d+\)"
    ):
        load_snapshot(text.replace("topic-3 3-4,7;", "topic-3 3-4;7;", 2), "yaml")
    with pytest.raises(DocumentError, match="the topic `topic-3` stands twice on one line"):
        load_snapshot(text.replace("topic-4 4-5,8;", "topic-3 4-5,8;"), "yaml")


NAMES = st.text(st.sampled_from("ab._-; é"), max_size=4)
BODIES = st.recursive(
    st.text(max_size=3) | st.integers(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["members", "topics", "assignment", "x"]), inner, max_size=3
        )
        | st.fixed_dictionaries({"topics": st.lists(NAMES, min_size=18, max_size=24)})
        | st.fixed_dictionaries(
            {"assignment": st.dictionaries(NAMES, st.just("0-3"), min_size=18, max_size=24)}
        )
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
    """Whether a text stands where a list or mapping belongs: no record has one there."""
    if isinstance(body, dict):
        return any(
            (key in ("topics", "assignment") and isinstance(value, str)) or single(value)
            for key, value in body.items()
        )
    return isinstance(body, list) and any(map(single, body))
