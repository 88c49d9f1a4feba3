"""Kafka's messages that kafka-python does not have, or loads only with many others.

It does not have the descriptions of new groups: KIP-848, KIP-932, KIP-1071. Its modules make every
message of a kind, such as SyncGroup and Heartbeat with JoinGroup. Here each is made when it is
first asked for: a short command would never send half of them.

kafka-python's message class loads the schema that belongs to the class's name, and lets
`json_patch` replace it. All classes here therefore have the name of a message that exists. Of two
responses to one request it decodes as the one that was made last: only a response that it does not
patch itself is made here, so that its own clients in the same process read what they did.
"""

from collections.abc import Callable, Mapping
from functools import cache, partial
from typing import Any, Final

from kafka.protocol.api_message import ApiMessage

_Fields = list[dict[str, Any]]
_DESCRIBED: Final = """
    ErrorCode:int16 ErrorMessage:string? GroupId:string GroupState:string GroupEpoch:int32
    AssignmentEpoch:int32
"""
# The classes made here: kafka-python keeps weak references to those of responses.
_REGISTERED: Final[list[type]] = []


def _fields(text: str, parts: Mapping[str, _Fields]) -> _Fields:
    """Return the fields `Name:type` (`?`: nullable; `@1`: since version 1), with their structures'
    `parts`.
    """
    made: _Fields = []
    for word in text.split():
        name, _, rest = word.partition(":")
        kind, _, since = rest.partition("@")
        field: dict[str, Any] = {
            "name": name,
            "type": kind.rstrip("?"),
            "versions": f"{since or 0}+",
        }
        if kind.endswith("?"):
            field |= {"nullableVersions": "0+", "default": "null"}
        if (part := field["type"].removeprefix("[]")) in parts:
            field["fields"] = parts[part]
        made.append(field)
    return made


def _request(key: int, versions: str, group: str, more: str = "", **parts: str) -> Any:
    """Return a request for `group_ids` whose response has `groups`, each with the fields `group`.

    `parts` are the structures in it, each after those that it uses.
    """
    known: dict[str, _Fields] = {}
    for name, text in parts.items():
        known[name] = _fields(text, known)
    known["Group"] = _fields(group, known)
    bodies = {
        "request": _fields(f"GroupIds:[]string IncludeAuthorizedOperations:bool {more}", {}),
        "response": _fields("ThrottleTimeMs:int32 Groups:[]Group", known),
    }
    made = [_described(key, versions, kind, fields) for kind, fields in bodies.items()]
    return made[0]


def _described(key: int, versions: str, kind: str, fields: _Fields) -> Any:
    name = f"DescribeGroups{kind.capitalize()}"
    schema = {
        "apiKey": key,
        "type": kind,
        "name": name,
        "validVersions": versions,
        "flexibleVersions": "0+",
        "fields": fields,
    }
    return _message(name, json_patch=classmethod(lambda *_: schema))


def _message(name: str, **methods: Any) -> Any:
    make: Any = type(ApiMessage)
    made = make(name, (ApiMessage,), methods)
    _REGISTERED.append(made)
    return made


_NEW: Final[Mapping[str, Callable[[], Any]]] = {
    # v1: the member's type (KIP-1099).
    "ConsumerGroupDescribe": partial(
        _request,
        69,
        "0-1",
        f"{_DESCRIBED} AssignorName:string Members:[]Member AuthorizedOperations:bitfield",
        TopicPartitions="TopicId:uuid TopicName:string Partitions:[]int32",
        Assignment="TopicPartitions:[]TopicPartitions",
        Member="""
            MemberId:string InstanceId:string? RackId:string? MemberEpoch:int32 ClientId:string
            ClientHost:string SubscribedTopicNames:[]string SubscribedTopicRegex:string?
            Assignment:Assignment TargetAssignment:Assignment MemberType:int8@1
        """,
    ),
    "ShareGroupDescribe": partial(
        _request,
        77,
        "0-1",
        f"{_DESCRIBED} AssignorName:string Members:[]Member AuthorizedOperations:bitfield",
        TopicPartitions="TopicId:uuid TopicName:string Partitions:[]int32",
        Assignment="TopicPartitions:[]TopicPartitions",
        Member="""
            MemberId:string RackId:string? MemberEpoch:int32 ClientId:string ClientHost:string
            SubscribedTopicNames:[]string Assignment:Assignment
        """,
    ),
    # v1 (Kafka 4.4): the assignor. The description of the topology is not asked for, so it is null.
    "StreamsGroupDescribe": partial(
        _request,
        89,
        "0-1",
        f"""
            {_DESCRIBED} Topology:Topology? Members:[]Member AuthorizedOperations:bitfield
            TopologyDescription:Description?@1 TopologyDescriptionStatus:int8@1
            AssignorName:string?@1
        """,
        more="IncludeTopologyDescription:bool@1",
        Description="Unread:int8",
        KeyValue="Key:string Value:string",
        TopicInfo="Name:string Partitions:int32 ReplicationFactor:int16 TopicConfigs:[]KeyValue",
        Subtopology="""
            SubtopologyId:string SourceTopics:[]string RepartitionSinkTopics:[]string
            StateChangelogTopics:[]TopicInfo RepartitionSourceTopics:[]TopicInfo
        """,
        Topology="Epoch:int32 Subtopologies:[]Subtopology?",
        Endpoint="Host:string Port:uint16",
        TaskOffset="SubtopologyId:string Partition:int32 Offset:int64",
        TaskIds="SubtopologyId:string Partitions:[]int32",
        Assignment="ActiveTasks:[]TaskIds StandbyTasks:[]TaskIds WarmupTasks:[]TaskIds",
        Member="""
            MemberId:string MemberEpoch:int32 InstanceId:string? RackId:string? ClientId:string
            ClientHost:string TopologyEpoch:int32 ProcessId:string UserEndpoint:Endpoint?
            ClientTags:[]KeyValue TaskOffsets:[]TaskOffset TaskEndOffsets:[]TaskOffset
            Assignment:Assignment TargetAssignment:Assignment IsClassic:bool
        """,
    ),
}


@cache
def request_class(name: str) -> Any:
    """Return the class of the requests of this name, such as `JoinGroup`, made at its first use.

    Its response is registered too.
    """
    if name in _NEW:
        return _NEW[name]()
    _message(f"{name}Response")
    return _message(f"{name}Request")
