"""Kafka's error codes by name."""

import kafka.errors
import pytest

from rebal.inspectors.errors import JOIN_REJECTIONS, error_code, error_name

# kafka-python keeps names that Kafka has changed since.
RENAMED = {6: "NOT_LEADER_OR_FOLLOWER", 10: "MESSAGE_TOO_LARGE", 17: "INVALID_TOPIC_EXCEPTION"}


def test_every_code_of_kafka_python_has_its_name() -> None:
    known = {
        kind.errno: kind.message
        for kind in vars(kafka.errors).values()
        if isinstance(kind, type) and issubclass(kind, kafka.errors.BrokerResponseError)
        if isinstance(getattr(kind, "errno", None), int) and kind.errno > 0
    }
    assert len(known) > 100
    for code, name in known.items():
        assert error_name(code) == RENAMED.get(code, name)


@pytest.mark.parametrize(("code", "name"), [(0, "NONE"), (-1, "UNKNOWN_SERVER_ERROR")])
def test_codes_outside_the_table_have_names(code: int, name: str) -> None:
    assert error_name(code) == name
    assert error_name(9999) == "ERROR_9999"


def test_a_name_gives_its_code_back() -> None:
    assert [error_code(name) for name in JOIN_REJECTIONS] == [23, 26, 81, 82]
    assert error_name(error_code("MEMBER_ID_REQUIRED")) == "MEMBER_ID_REQUIRED"
