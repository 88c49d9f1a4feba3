"""Java's .properties syntax: the cases that `java.util.Properties.load` tells of, and any text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rebal.inspectors.connection.properties import parse_properties
from rebal.inspectors.errors import SettingError


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("Truth = Beauty", {"Truth": "Beauty"}),
        ("  Truth:Beauty", {"Truth": "Beauty"}),
        ("Truth                    :Beauty", {"Truth": "Beauty"}),
        ("key value with spaces  ", {"key": "value with spaces  "}),
        ("cheeses", {"cheeses": ""}),
        ("# a = b\n! c = d\n\n   # e = f", {}),
        ("fruits   apple, banana, pear, \\\n         cantaloupe",
         {"fruits": "apple, banana, pear, cantaloupe"}),
        ("a=b\\\\\nc=d", {"a": "b\\", "c": "d"}),
        ("a=1\r\nb=2\rc=3", {"a": "1", "b": "2", "c": "3"}),
        ("a=x\\\n   # no comment here", {"a": "x# no comment here"}),
        ("a\\ b\\:c\\=d = e=f", {"a b:c=d": "e=f"}),
        ("a=\\u00e9\\t\\n\\q", {"a": "é\t\nq"}),
        ("a=1\na=2", {"a": "2"}),
        ("a=open \\", {"a": "open "}),
        ("=x", {"": "x"}),
    ],
)  # fmt: skip
def test_syntax(text: str, found: dict[str, str]) -> None:
    assert parse_properties(text, "f") == found


def test_a_broken_escape_names_its_line() -> None:
    with pytest.raises(SettingError, match=r"f line 3: a .u escape needs four"):
        parse_properties("a=1\n\nb=\\u00", "f")


@given(st.text(max_size=60))
def test_any_text_is_read_or_refused(text: str) -> None:
    refused = "f line"
    try:
        parse_properties(text, "f")
    except SettingError as error:
        refused = str(error)
    assert refused.startswith("f line")
