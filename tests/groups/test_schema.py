"""Messages of messages.yaml: any bytes give fields or a WireError, in every version of each."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rebal.groups.data import load_data
from rebal.groups.errors import WireError
from rebal.groups.wire.schema import Message, Schema, schema

NAMES = sorted(load_data("messages.yaml", dict[str, Schema]))


@pytest.mark.parametrize("name", NAMES)
@given(data=st.data())
def test_any_bytes_give_the_fields_of_the_version_or_a_wire_error(
    name: str, data: st.DataObject
) -> None:
    known = schema(name)
    low, _, high = known.versions.partition("-")
    version = data.draw(st.integers(int(low), int(high)))
    body = data.draw(st.binary(max_size=60) | st.just(bytes(60)))
    form = {"int16": ">h", "int32": ">i", "none": ""}[known.form]
    head = struct.pack(form, version) if form else b""
    try:
        found = Message(name).read(head + body, version=None if form else version)
    except WireError:
        return
    wanted = {field.key for field in known.present(known.fields, version)} - {"-"}
    tagged = {field.key for field in known.fields if field.tag is not None}
    assert found[0] == version
    assert wanted <= found[1].keys() <= wanted | tagged


def test_versions_that_bytes_claim_are_not_remembered() -> None:
    message = Message("StreamsSubscriptionInfo")
    for version in range(12, 300):
        message.read(struct.pack(">ii", version, version))
    assert len(message._bodies) == 1
