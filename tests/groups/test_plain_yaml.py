"""What read_yaml makes of a text is what the YAML library itself makes of it, or an error."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from rebal.groups.snapshot.plain_yaml import read_yaml

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
