"""Kafka's error codes with their names, and the exceptions raised while reading a cluster."""

import sys
from typing import Final, Literal, TypeVar

from rebal.groups.commands import Command
from rebal.groups.errors import RebalError

# Kafka's protocol errors from code 1 on (org.apache.kafka.common.protocol.Errors, Kafka 4.1).
_ERRORS: Final = """
    OFFSET_OUT_OF_RANGE CORRUPT_MESSAGE UNKNOWN_TOPIC_OR_PARTITION INVALID_FETCH_SIZE
    LEADER_NOT_AVAILABLE NOT_LEADER_OR_FOLLOWER REQUEST_TIMED_OUT BROKER_NOT_AVAILABLE
    REPLICA_NOT_AVAILABLE MESSAGE_TOO_LARGE STALE_CONTROLLER_EPOCH OFFSET_METADATA_TOO_LARGE
    NETWORK_EXCEPTION COORDINATOR_LOAD_IN_PROGRESS COORDINATOR_NOT_AVAILABLE NOT_COORDINATOR
    INVALID_TOPIC_EXCEPTION RECORD_LIST_TOO_LARGE NOT_ENOUGH_REPLICAS
    NOT_ENOUGH_REPLICAS_AFTER_APPEND INVALID_REQUIRED_ACKS ILLEGAL_GENERATION
    INCONSISTENT_GROUP_PROTOCOL INVALID_GROUP_ID UNKNOWN_MEMBER_ID INVALID_SESSION_TIMEOUT
    REBALANCE_IN_PROGRESS INVALID_COMMIT_OFFSET_SIZE TOPIC_AUTHORIZATION_FAILED
    GROUP_AUTHORIZATION_FAILED CLUSTER_AUTHORIZATION_FAILED INVALID_TIMESTAMP
    UNSUPPORTED_SASL_MECHANISM ILLEGAL_SASL_STATE UNSUPPORTED_VERSION TOPIC_ALREADY_EXISTS
    INVALID_PARTITIONS INVALID_REPLICATION_FACTOR INVALID_REPLICATION_ASSIGNMENT
    INVALID_CONFIG NOT_CONTROLLER INVALID_REQUEST UNSUPPORTED_FOR_MESSAGE_FORMAT
    POLICY_VIOLATION OUT_OF_ORDER_SEQUENCE_NUMBER DUPLICATE_SEQUENCE_NUMBER
    INVALID_PRODUCER_EPOCH INVALID_TXN_STATE INVALID_PRODUCER_ID_MAPPING
    INVALID_TRANSACTION_TIMEOUT CONCURRENT_TRANSACTIONS TRANSACTION_COORDINATOR_FENCED
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED SECURITY_DISABLED OPERATION_NOT_ATTEMPTED
    KAFKA_STORAGE_ERROR LOG_DIR_NOT_FOUND SASL_AUTHENTICATION_FAILED UNKNOWN_PRODUCER_ID
    REASSIGNMENT_IN_PROGRESS DELEGATION_TOKEN_AUTH_DISABLED DELEGATION_TOKEN_NOT_FOUND
    DELEGATION_TOKEN_OWNER_MISMATCH DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
    DELEGATION_TOKEN_AUTHORIZATION_FAILED DELEGATION_TOKEN_EXPIRED INVALID_PRINCIPAL_TYPE
    NON_EMPTY_GROUP GROUP_ID_NOT_FOUND FETCH_SESSION_ID_NOT_FOUND
    INVALID_FETCH_SESSION_EPOCH LISTENER_NOT_FOUND TOPIC_DELETION_DISABLED
    FENCED_LEADER_EPOCH UNKNOWN_LEADER_EPOCH UNSUPPORTED_COMPRESSION_TYPE STALE_BROKER_EPOCH
    OFFSET_NOT_AVAILABLE MEMBER_ID_REQUIRED PREFERRED_LEADER_NOT_AVAILABLE
    GROUP_MAX_SIZE_REACHED FENCED_INSTANCE_ID ELIGIBLE_LEADERS_NOT_AVAILABLE
    ELECTION_NOT_NEEDED NO_REASSIGNMENT_IN_PROGRESS GROUP_SUBSCRIBED_TO_TOPIC INVALID_RECORD
    UNSTABLE_OFFSET_COMMIT THROTTLING_QUOTA_EXCEEDED PRODUCER_FENCED RESOURCE_NOT_FOUND
    DUPLICATE_RESOURCE UNACCEPTABLE_CREDENTIAL INCONSISTENT_VOTER_SET INVALID_UPDATE_VERSION
    FEATURE_UPDATE_FAILED PRINCIPAL_DESERIALIZATION_FAILURE SNAPSHOT_NOT_FOUND
    POSITION_OUT_OF_RANGE UNKNOWN_TOPIC_ID DUPLICATE_BROKER_REGISTRATION
    BROKER_ID_NOT_REGISTERED INCONSISTENT_TOPIC_ID INCONSISTENT_CLUSTER_ID
    TRANSACTIONAL_ID_NOT_FOUND FETCH_SESSION_TOPIC_ID_ERROR INELIGIBLE_REPLICA
    NEW_LEADER_ELECTED OFFSET_MOVED_TO_TIERED_STORAGE FENCED_MEMBER_EPOCH
    UNRELEASED_INSTANCE_ID UNSUPPORTED_ASSIGNOR STALE_MEMBER_EPOCH MISMATCHED_ENDPOINT_TYPE
    UNSUPPORTED_ENDPOINT_TYPE UNKNOWN_CONTROLLER_ID UNKNOWN_SUBSCRIPTION_ID
    TELEMETRY_TOO_LARGE INVALID_REGISTRATION TRANSACTION_ABORTABLE INVALID_RECORD_STATE
    SHARE_SESSION_NOT_FOUND INVALID_SHARE_SESSION_EPOCH FENCED_STATE_EPOCH INVALID_VOTER_KEY
    DUPLICATE_VOTER VOTER_NOT_FOUND INVALID_REGULAR_EXPRESSION REBOOTSTRAP_REQUIRED
    STREAMS_INVALID_TOPOLOGY STREAMS_INVALID_TOPOLOGY_EPOCH STREAMS_TOPOLOGY_FENCED
    SHARE_SESSION_LIMIT_REACHED
    """
# Interned: msgspec leaves out a field whose value is the same object as its default.
_NAMES: Final = tuple(map(sys.intern, _ERRORS.split()))

# The errors of JoinGroup after which a client stops; the first alone is about assignor lists.
JOIN_REJECTIONS: Final = (
    "INCONSISTENT_GROUP_PROTOCOL",
    "INVALID_SESSION_TIMEOUT",
    "GROUP_MAX_SIZE_REACHED",
    "FENCED_INSTANCE_ID",
)

_T = TypeVar("_T")
ConnectKind = Literal["unreachable", "timeout", "authentication", "tls", "protocol", "token"]


def error_name(code: int) -> str:
    """Return Kafka's name of an error code: `GROUP_AUTHORIZATION_FAILED` for 30, `NONE` for 0."""
    if code in (0, -1):
        return "NONE" if code == 0 else "UNKNOWN_SERVER_ERROR"
    return _NAMES[code - 1] if 0 < code <= len(_NAMES) else f"ERROR_{code}"


def error_code(name: str) -> int:
    """Return the code of the error with this Kafka name: 23 for `INCONSISTENT_GROUP_PROTOCOL`."""
    return _NAMES.index(name) + 1


class SettingError(RebalError):
    """Error for connection settings that are unknown, unsupported, missing or wrong."""


class ConnectError(RebalError):
    """Error for a cluster that cannot be read at all.

    `kind` is the cause: unreachable, timeout, authentication, tls, protocol or token. `reason` is
    the message.
    """

    def __init__(self, message: str, kind: ConnectKind) -> None:
        super().__init__(message)
        self.reason = message
        self.kind: ConnectKind = kind


class TlsError(OSError):
    """Error for a failed TLS handshake.

    `reason` is OpenSSL's reason. `untrusted` is OpenSSL's reason for not trusting the broker's
    certificate, if that is the cause.
    """

    def __init__(self, reason: str, untrusted: str | None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.untrusted = untrusted


class RequestError(RebalError):
    """Error for one request that a broker answered with an error or did not answer in time.

    `name` is Kafka's error name (`GROUP_AUTHORIZATION_FAILED`). If no answer came, it is
    `TIMED_OUT`, `DISCONNECTED`, `UNREACHABLE` or `UNSUPPORTED_VERSION`. `reason` is a clause to
    embed in other sentences; the message is that clause with a full stop.
    """

    def __init__(self, name: str, reason: str, *commands: Command) -> None:
        super().__init__(f"{reason}.", *commands)
        self.name = name
        self.reason = reason


def unless_error(answer: _T | RequestError) -> _T:
    """Return `answer`, or raise it if it is a RequestError."""
    if isinstance(answer, RequestError):
        raise answer
    return answer


class SelectionError(RebalError):
    """Error for a choice of groups: no group matches, or the pattern is no regular expression."""
