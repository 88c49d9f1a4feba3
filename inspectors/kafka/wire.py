"""One broker's connection and Kafka's messages: kafka-python's codecs and SASL, a blocking socket.

kafka-python's own client hides why a login failed, because it retries until its timeout. Here the
socket is driven directly, and a `Deadline` limits each wait. Nothing is sent or retried on its own.

Message classes are made here when they are first needed. kafka-python has none for the descriptions
of new groups (KIP-848, KIP-932, KIP-1071). Its own modules make several messages at once, such as
SyncGroup and Heartbeat with JoinGroup, and a short command sends few of them.

kafka-python's message class loads the schema for the class's own name, and its method `json_patch`
may replace the schema. All classes made here therefore have the name of a message that exists. If a
request has two response classes, kafka-python decodes with the class made last. So only responses
that kafka-python does not patch are made here, and its own clients in the same process still decode
as before.
"""

import contextlib
import copy
import logging
import socket
import struct
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from errno import EINVAL
from functools import cache, partial
from typing import Any, Final, Self

import kafka.errors
from kafka.protocol.api_message import ApiMessage
from kafka.protocol.metadata import ApiVersionsRequest
from kafka.protocol.parser import KafkaProtocol

from rebal.inspectors.connection.config import CLIENT_ID, ClusterConfig
from rebal.inspectors.connection.translate import to_kafka_python
from rebal.inspectors.errors import RequestError, error_name

_Fields = list[dict[str, Any]]
_DESCRIBED: Final = """
    ErrorCode:int16 ErrorMessage:string? GroupId:string GroupState:string GroupEpoch:int32
    AssignmentEpoch:int32
"""
# The classes made here: kafka-python keeps weak references to those of responses.
_REGISTERED: Final[list[type]] = []


def _fields(text: str, parts: Mapping[str, _Fields]) -> _Fields:
    """Return the schema of the fields in `text`, such as `GroupId:string RackId:string?`.

    `?` marks a nullable field, `@1` a field since version 1. `parts` maps the name of each
    structure that `text` uses as a type → its fields.
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
    """Return the class of a Describe request for group ids; make the class of its response too.

    `key` is the API key, `versions` the valid versions (`0-1`). The other texts are as in
    `_fields`: `group` has the fields of one group in the response, `more` further fields of the
    request, and `parts` the fields of each structure, given after the structures it uses.
    """
    known: dict[str, _Fields] = {}
    for name, text in {**parts, "Group": group}.items():
        known[name] = _fields(text, known)
    bodies = {
        "request": _fields(f"GroupIds:[]string IncludeAuthorizedOperations:bool {more}", {}),
        "response": _fields("ThrottleTimeMs:int32 Groups:[]Group", known),
    }
    made = [_described(key, versions, kind, fields) for kind, fields in bodies.items()]
    return made[0]


def _described(key: int, versions: str, kind: str, fields: _Fields) -> Any:
    schema: dict[str, Any] = {
        "apiKey": key,
        "type": kind,
        "name": f"DescribeGroups{kind.capitalize()}",
        "validVersions": versions,
        "flexibleVersions": "0+",
        "fields": fields,
    }
    return _message(schema["name"], json_patch=classmethod(lambda *_: schema))


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
    """Return the class of requests with this name, such as `JoinGroup`; make it at its first use.

    The class of its response is made too, so that kafka-python can decode responses.
    """
    if name in _NEW:
        return _NEW[name]()
    _message(f"{name}Response")
    return _message(f"{name}Request")


# kafka-python's errors for bytes that are no response: its own and those of its codecs.
NOT_KAFKA: Final = (
    *(kafka.errors.KafkaError, struct.error),
    *(ValueError, LookupError, TypeError, OverflowError),
)

# kafka-python logs whole requests at DEBUG and failed logins at ERROR: suppress both.
logging.getLogger("kafka").addHandler(logging.NullHandler())
logging.getLogger("kafka").propagate = False


class Deadline:
    """The end of one operation, `timeout_ms` after its start."""

    def __init__(self, timeout_ms: int) -> None:
        self.timeout_ms = timeout_ms
        self._start = time.monotonic()
        self._end = self._start + timeout_ms / 1000

    def left(self) -> float:
        """Return the seconds left, never below zero."""
        return max(0.0, self._end - time.monotonic())

    def share(self, tries: int) -> Self:
        """Return an earlier deadline: now, plus the time left divided by `tries`."""
        first = copy.copy(self)
        first._start = time.monotonic()
        first._end = first._start + self.left() / tries
        return first

    def waited(self) -> str:
        """Return the time since the start, for messages: `10 s`, `0.6 s`."""
        limit = self.timeout_ms / 1000
        spent = time.monotonic() - self._start
        # A timer is late by some milliseconds, and an answer that misses its time is given up.
        return f"{limit if spent >= 0.9 * limit else max(0.1, round(spent, 1)):g} s"


class BrokerConnection:
    """One broker's connection, logged in; thread-safe, one request at a time.

    `opened` is called with the connection before TLS and login, so that another thread can already
    close it.
    """

    def __init__(
        self,
        host: str,
        port: int,
        config: ClusterConfig,
        deadline: Deadline,
        opened: Callable[["BrokerConnection"], None],
    ) -> None:
        self.address = f"{host}:{port}"
        self.versions: dict[int, tuple[int, int]] = {}
        self.features: dict[str, int] = {}
        self.supported_features: dict[str, int] = {}
        self._lock = threading.Lock()
        self._settings = to_kafka_python(config)
        self._parser = KafkaProtocol(client_id=CLIENT_ID)
        self._socket = self._open(host, port, config, deadline)
        opened(self)
        try:
            if config.tls:
                from rebal.inspectors.connection.tls import shake_hands

                shake_hands(self._socket)
            self._read_versions(deadline)
            if config.sasl:
                # Other connections do not wait for the modules of SASL.
                from rebal.inspectors.kafka.login import log_in

                log_in(
                    partial(self.send, deadline=deadline),
                    self.address,
                    config,
                    {**self._settings, "host": host},
                    deadline.left(),
                )
        except BaseException:
            self.close()
            raise

    def supports(self, request: Any, version: int = 0) -> bool:
        """Return whether the newest version of this request at the broker is at least `version`."""
        return self.versions.get(request.API_KEY, (0, -1))[1] >= version

    def version(self, request: Any, *, min_version: int = 0, max_version: int | None = None) -> int:
        """Return the newest version of a request that the broker and rebal support.

        `min_version` and `max_version` (None: no limit) are the bounds, both included.

        Raises:
            RequestError: UNSUPPORTED_VERSION, the broker supports no version between them.
        """
        low, high = self.versions.get(request.API_KEY, (0, -1))
        version = min(high, max_version or request.max_version)
        if version < max(low, min_version):
            raise RequestError(
                "UNSUPPORTED_VERSION",
                f"the broker {self.address} has no {request.__name__.removesuffix('Request')} "
                f"v{min_version}",
            )
        return version

    def send(
        self,
        request: type,
        deadline: Deadline,
        *,
        min_version: int = 0,
        max_version: int | None = None,
        **fields: Any,
    ) -> Any:
        """Send one request, in the newest version both sides support, and return its response.

        Raises:
            RequestError: UNSUPPORTED_VERSION, or an error of `exchange_all`, such as TIMED_OUT.
        """
        version = self.version(request, min_version=min_version, max_version=max_version)
        return self.exchange(message(request, version, **fields), deadline)

    def exchange(self, request: Any, deadline: Deadline) -> Any:
        """Send one message, whose version is already set, and return its response.

        Raises:
            RequestError: an error of `exchange_all`, such as TIMED_OUT.
        """
        return self.exchange_all([request], deadline)[0]

    def exchange_all(self, requests: Sequence[Any], deadline: Deadline) -> list[Any]:
        """Send messages in one write and return their responses, in the same order.

        A broker handles the requests of one connection in order, each after it has answered the
        last.

        Raises:
            RequestError: INVALID_REQUEST, TIMED_OUT, DISCONNECTED or CORRUPT_MESSAGE. The broker
                may have handled some of the requests.
        """
        if not self._lock.acquire(timeout=deadline.left()):
            raise RequestError("TIMED_OUT", self._late(deadline))
        try:
            if self.closed:
                raise RequestError("DISCONNECTED", f"the connection to {self.address} was closed")
            _encode(self._parser, requests)
            self._socket.settimeout(max(0.001, deadline.left()))
            self._socket.sendall(self._parser.send_bytes())
            responses: list[Any] = []
            while len(responses) < len(requests):
                self._socket.settimeout(max(0.001, deadline.left()))
                data = self._socket.recv(65536)
                if not data:
                    raise ConnectionResetError
                responses += [response for _, response in self._decoded(data)]
            return responses
        except TimeoutError:
            self.close()
            raise RequestError("TIMED_OUT", self._late(deadline)) from None
        except (OSError, kafka.errors.KafkaError):
            self.close()
            raise RequestError(
                "DISCONNECTED", f"the broker {self.address} closed the connection"
            ) from None
        finally:
            self._lock.release()

    def _decoded(self, data: bytes) -> Any:
        try:
            responses = self._parser.receive_bytes(data)
            for _, response in responses:
                _reject_null(response, response.version)
            return responses
        except NOT_KAFKA:
            self.close()
            raise RequestError(
                "CORRUPT_MESSAGE", f"{self.address} does not answer in Kafka's protocol"
            ) from None

    @property
    def busy(self) -> bool:
        """True while a thread waits for a response."""
        return self._lock.locked()

    @property
    def closed(self) -> bool:
        """True if the connection is closed."""
        return self._socket.fileno() < 0

    def close(self) -> None:
        """Close the connection, even while another thread waits for a response."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        with contextlib.suppress(OSError):
            self._socket.close()
        # An answer that was cut off holds as much memory as it announced.
        self._parser = KafkaProtocol(client_id=CLIENT_ID)

    def _late(self, deadline: Deadline) -> str:
        return f"the broker {self.address} did not answer within {deadline.waited()}"

    def _open(
        self, host: str, port: int, config: ClusterConfig, deadline: Deadline
    ) -> socket.socket:
        try:
            # To look up a host that is given as text, Python first loads its tables of IDNA.
            name: Any = host.encode() if host.isascii() else host
            plain = socket.create_connection((name, port), timeout=max(0.001, deadline.left()))
        except (UnicodeError, OverflowError):
            raise OSError(EINVAL, f"{host}:{port} is no address") from None
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if not config.tls:
            return plain
        secure: socket.socket = self._settings["ssl_context"].wrap_socket(
            plain, server_hostname=host, do_handshake_on_connect=False
        )
        return secure

    def _read_versions(self, deadline: Deadline) -> None:
        """Read the API versions and features that the broker supports (KIP-35, KIP-511).

        ApiVersions is sent again in an older version if the broker does not know the newest.
        """
        version = ApiVersionsRequest.max_version
        while True:
            response = self.exchange(
                ApiVersionsRequest(
                    version=version, client_software_name="rebal", client_software_version="1"
                ),
                deadline,
            )
            if response.error_code == 0:
                break
            if error_name(response.error_code) != "UNSUPPORTED_VERSION" or version == 0:
                raise RequestError(
                    error_name(response.error_code), f"{self.address} rejected ApiVersions"
                )
            known = {key.api_key: key.max_version for key in response.api_keys}
            version = min(version - 1, known.get(ApiVersionsRequest.API_KEY, 0))
        self.versions = {k.api_key: (k.min_version, k.max_version) for k in response.api_keys}
        self.features = {f.name: f.max_version_level for f in response.finalized_features or ()}
        self.supported_features = {f.name: f.max_version for f in response.supported_features or ()}


def _encode(parser: KafkaProtocol, requests: Sequence[Any]) -> None:
    try:
        for request in requests:
            parser.send_request(request)
    except struct.error:
        parser.bytes_to_send.clear()
        parser.in_flight_requests.clear()
        raise RequestError("INVALID_REQUEST", "Kafka's names have at most 32,767 bytes") from None


def _reject_null(part: Any, version: int) -> None:
    """Raise ValueError if a field of the message `part`, or below it, is null but must not be.

    Java's client rejects such a response too; kafka-python accepts it.
    """
    kind: Any = type(part)
    for name, is_nested in _filled(kind, version):
        value = getattr(part, name)
        if value is None:
            raise ValueError(name)
        if is_nested:
            for each in value:
                _reject_null(each, version)


@cache
def _filled(kind: Any, version: int) -> tuple[tuple[str, bool], ...]:
    """Return the arrays, strings and bytes of a message class that must not be null in `version`.

    Each is a pair: the field's name, and True if it is an array of structures.
    """
    return tuple(
        (field.name, field.is_struct_array())
        for field in kind._struct.untagged_fields(version)
        if (field.is_array() or field.type_str in ("string", "bytes", "records"))
        and not field.nullable_for_version_q(version)
    )


def message(kind: Any, version: int, **fields: Any) -> Any:
    """Return a kafka-python message; nested structures may be given as dictionaries."""
    known = kind._struct.fields
    for name, value in fields.items():
        if known[name].is_struct_array() and value is not None:
            fields[name] = [message(known[name].data_class, version, **each) for each in value]
    return kind(version=version, **fields)
