"""ConsumerGroupDescribe (api 69; v0: KIP-848, v1: the member's type, KIP-1099).

kafka-python has no such message, so its two schemas are given here to its schema-driven base
class: it loads the schema that goes with the class's name, and `json_patch` replaces it. The
classes therefore bear the names of a schema that is there.
"""

from __future__ import annotations

from typing import Any, Final

from kafka.protocol.api_message import ApiMessage

_KEY: Final = 69


def _field(name: str, kind: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, "versions": "0+", **more}


def _nullable(name: str) -> dict[str, Any]:
    return _field(name, "string", nullableVersions="0+", default="null")


def _assignment(name: str) -> dict[str, Any]:
    partitions = [
        _field("TopicId", "uuid"),
        _field("TopicName", "string"),
        _field("Partitions", "[]int32"),
    ]
    listed = _field("TopicPartitions", "[]TopicPartitions", fields=partitions)
    return _field(name, "Assignment", fields=[listed])


def _message(kind: str, fields: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "apiKey": _KEY,
        "type": kind,
        "name": f"ConsumerGroupDescribe{kind.capitalize()}",
        "validVersions": "0-1",
        "flexibleVersions": "0+",
        "fields": fields,
    }


_REQUEST: Final = _message(
    "request", [_field("GroupIds", "[]string"), _field("IncludeAuthorizedOperations", "bool")]
)
_MEMBER: Final = [
    _field("MemberId", "string"),
    _nullable("InstanceId"),
    _nullable("RackId"),
    _field("MemberEpoch", "int32"),
    _field("ClientId", "string"),
    _field("ClientHost", "string"),
    _field("SubscribedTopicNames", "[]string"),
    _nullable("SubscribedTopicRegex"),
    _assignment("Assignment"),
    _assignment("TargetAssignment"),
    _field("MemberType", "int8", versions="1+", default="-1", ignorable=True),
]
_GROUP: Final = [
    _field("ErrorCode", "int16"),
    _nullable("ErrorMessage"),
    _field("GroupId", "string"),
    _field("GroupState", "string"),
    _field("GroupEpoch", "int32"),
    _field("AssignmentEpoch", "int32"),
    _field("AssignorName", "string"),
    _field("Members", "[]Member", fields=_MEMBER),
    _field("AuthorizedOperations", "int32", default="-2147483648"),
]
_RESPONSE: Final = _message(
    "response",
    [_field("ThrottleTimeMs", "int32"), _field("Groups", "[]DescribedGroup", fields=_GROUP)],
)


class DescribeGroupsRequest(ApiMessage):  # type: ignore[misc]
    """ConsumerGroupDescribeRequest: `group_ids`, `include_authorized_operations`."""

    @classmethod
    def json_patch(cls, _json: dict[str, Any]) -> dict[str, Any]:
        """The schema to use in place of the one that was loaded."""
        return _REQUEST


class DescribeGroupsResponse(ApiMessage):  # type: ignore[misc]
    """ConsumerGroupDescribeResponse: `groups[]` with epochs, members and both assignments."""

    @classmethod
    def json_patch(cls, _json: dict[str, Any]) -> dict[str, Any]:
        """The schema to use in place of the one that was loaded."""
        return _RESPONSE


ConsumerGroupDescribeRequest = DescribeGroupsRequest
ConsumerGroupDescribeResponse = DescribeGroupsResponse
