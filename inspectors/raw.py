"""Plain requests to brokers with kafka-python's message schemas and SASL: `RawCluster`.

kafka-python's own client hides why a login failed (it retries until its timeout), so the sockets
are driven here: blocking, one connection a broker, each wait bounded by a `Deadline`. Only what is
asked for is sent; nothing is retried but the search for a coordinator.
"""

from __future__ import annotations

import contextlib
import logging
import socket
import ssl
import threading
import time
from collections.abc import Callable
from typing import Any, Final, TypeVar

import kafka.errors
from kafka.net.sasl import get_sasl_mechanism
from kafka.protocol.broker_version_data import BrokerVersionData
from kafka.protocol.metadata import ApiVersionsRequest, FindCoordinatorRequest, MetadataRequest
from kafka.protocol.parser import KafkaProtocol
from kafka.protocol.sasl import SaslAuthenticateRequest, SaslHandshakeRequest

from rebal.inspectors.connection import CLIENT_ID, ClusterConfig
from rebal.inspectors.errors import ConnectError, RequestError

_T = TypeVar("_T")
_RETRY: Final = frozenset(
    {"COORDINATOR_LOAD_IN_PROGRESS", "COORDINATOR_NOT_AVAILABLE", "NOT_COORDINATOR"}
)
_CONNECT_ROUNDS: Final = 3
_SOFTWARE: Final = "rebal"

# kafka-python logs whole requests at DEBUG and failed logins at ERROR: nothing of it may show.
logging.getLogger("kafka").addHandler(logging.NullHandler())
logging.getLogger("kafka").propagate = False


class Deadline:
    """The end of one operation."""

    def __init__(self, timeout_ms: int) -> None:
        self.timeout_ms = timeout_ms
        self._end = time.monotonic() + timeout_ms / 1000

    def left(self) -> float:
        """Seconds left, never below zero."""
        return max(0.0, self._end - time.monotonic())

    @property
    def over(self) -> bool:
        """Whether the time is up."""
        return self.left() <= 0


def error_name(code: int) -> str:
    """Kafka's name of an error code (`GROUP_AUTHORIZATION_FAILED`); `NONE` is 0."""
    if code == 0:
        return "NONE"
    return _NAMES.get(code) or f"ERROR_{code}"


def _error_names() -> dict[int, str]:
    found: dict[int, str] = {}
    for kind in vars(kafka.errors).values():
        if isinstance(kind, type) and issubclass(kind, kafka.errors.BrokerResponseError):
            errno, message = getattr(kind, "errno", None), getattr(kind, "message", None)
            if isinstance(errno, int) and isinstance(message, str):
                found[errno] = message
    return found


_NAMES: Final = _error_names()


class Connection:
    """One broker's connection, logged in; requests go one at a time (it is thread-safe)."""

    def __init__(self, host: str, port: int, config: ClusterConfig, deadline: Deadline) -> None:
        self.address = f"{host}:{port}"
        self.versions: dict[int, tuple[int, int]] = {}
        self.features: dict[str, int] = {}
        self.supported_features: dict[str, int] = {}
        self._lock = threading.Lock()
        self._settings = config.to_kafka_python()
        self._parser = KafkaProtocol(client_id=CLIENT_ID)
        self._socket = self._open(host, port, config, deadline)
        try:
            self._read_versions(deadline)
            if config.sasl:
                self._log_in(host, config, deadline)
        except BaseException:
            self.close()
            raise

    def supports(self, request: type, version: int = 0) -> bool:
        """Whether the broker speaks `version` (or a later one) of this request."""
        return self.versions.get(_api_key(request), (0, -1))[1] >= version

    def send(
        self, request: type, deadline: Deadline, *, min_version: int = 0, **fields: Any
    ) -> Any:
        """The broker's response to one request, in the newest version both sides speak.

        Raises:
            RequestError: UNSUPPORTED_VERSION, TIMED_OUT or DISCONNECTED.
        """
        low, high = self.versions.get(_api_key(request), (0, -1))
        version = min(high, request.max_version)  # type: ignore[attr-defined]
        name = request.__name__.removesuffix("Request")
        if version < max(low, min_version):
            raise RequestError(
                "UNSUPPORTED_VERSION", f"the broker {self.address} has no {name} v{min_version}."
            )
        return self.exchange(message(request, version, **fields), deadline)

    def exchange(self, request: Any, deadline: Deadline) -> Any:
        """Send one message whose version is set, and read its response."""
        if not self._lock.acquire(timeout=deadline.left()):
            raise RequestError("TIMED_OUT", self._late(deadline))
        try:
            if self.closed:
                raise RequestError("DISCONNECTED", f"the connection to {self.address} was closed.")
            self._parser.send_request(request)
            self._socket.settimeout(max(0.001, deadline.left()))
            self._socket.sendall(self._parser.send_bytes())
            while True:
                self._socket.settimeout(max(0.001, deadline.left()))
                data = self._socket.recv(65536)
                if not data:
                    raise ConnectionResetError
                for _, response in self._parser.receive_bytes(data):
                    return response
        except TimeoutError:
            self.close()
            raise RequestError("TIMED_OUT", self._late(deadline)) from None
        except (OSError, kafka.errors.KafkaError):
            self.close()
            raise RequestError(
                "DISCONNECTED", f"the broker {self.address} closed the connection."
            ) from None
        finally:
            self._lock.release()

    @property
    def closed(self) -> bool:
        """Whether the connection is gone."""
        return self._socket.fileno() < 0

    def close(self) -> None:
        """Close the connection; closing twice does nothing."""
        with contextlib.suppress(OSError):
            self._socket.close()

    def _late(self, deadline: Deadline) -> str:
        return f"the broker {self.address} did not answer within {seconds(deadline.timeout_ms)}."

    def _open(
        self, host: str, port: int, config: ClusterConfig, deadline: Deadline
    ) -> socket.socket:
        plain = socket.create_connection((host, port), timeout=max(0.001, deadline.left()))
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if not config.tls:
            return plain
        context: ssl.SSLContext = self._settings["ssl_context"]
        try:
            return context.wrap_socket(plain, server_hostname=host)
        except BaseException:
            plain.close()
            raise

    def _read_versions(self, deadline: Deadline) -> None:
        """ApiVersions (KIP-35, KIP-511), going down a version when the broker is older."""
        version = ApiVersionsRequest.max_version
        while True:
            request = ApiVersionsRequest(
                version=version, client_software_name=_SOFTWARE, client_software_version="1"
            )
            response = self.exchange(request, deadline)
            if response.error_code == 0:
                break
            if error_name(response.error_code) != "UNSUPPORTED_VERSION" or version == 0:
                raise RequestError(
                    error_name(response.error_code), f"{self.address} refused ApiVersions."
                )
            known = {key.api_key: key.max_version for key in response.api_keys}
            version = min(version - 1, known.get(_api_key(ApiVersionsRequest), 0))
        self.versions = {k.api_key: (k.min_version, k.max_version) for k in response.api_keys}
        self.features = {f.name: f.max_version_level for f in response.finalized_features or ()}
        self.supported_features = {f.name: f.max_version for f in response.supported_features or ()}

    def _log_in(self, host: str, config: ClusterConfig, deadline: Deadline) -> None:
        """SaslHandshake v1 and SaslAuthenticate (KIP-152), brokers from 1.0 on."""
        answer = self.send(
            SaslHandshakeRequest, deadline, min_version=1, mechanism=config.mechanism
        )
        if answer.error_code:
            raise ConnectError(
                f"{self.address} does not offer SASL {config.mechanism}, it offers "
                f"{', '.join(answer.mechanisms) or 'nothing'}: set sasl.mechanism.",
                "authentication",
            )
        mechanism = get_sasl_mechanism(config.mechanism)(host=host, **self._settings)
        while not mechanism.is_done():
            reply = self.send(SaslAuthenticateRequest, deadline, auth_bytes=mechanism.auth_bytes())
            if reply.error_code:
                raise ConnectError(_wrong_login(self.address, config), "authentication")
            try:
                mechanism.receive(reply.auth_bytes)
            except (ValueError, KeyError, kafka.errors.KafkaError):
                raise ConnectError(_wrong_login(self.address, config), "authentication") from None
        if not mechanism.is_authenticated():
            raise ConnectError(_wrong_login(self.address, config), "authentication")


class RawCluster:
    """The cluster behind one ClusterConfig; connections are made when first needed.

    Raises (every method that sends):
        ConnectError: no bootstrap server can be reached or logged in to.
        RequestError: a broker answered with an error, or not in time.
    """

    def __init__(self, config: ClusterConfig) -> None:
        self.config = config
        self.cluster_id: str | None = None
        self.controller_id: int | None = None
        self.brokers: dict[int, tuple[str, int, str | None]] = {}
        self._bootstrap: Connection | None = None
        self._nodes: dict[int, Connection] = {}
        self._lock = threading.RLock()

    def __enter__(self) -> RawCluster:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Close every connection."""
        with self._lock:
            for connection in (self._bootstrap, *self._nodes.values()):
                if connection is not None:
                    connection.close()
            self._nodes.clear()
            self._bootstrap = None

    def deadline(self) -> Deadline:
        """A new operation's end: `timeout_ms` from now."""
        return Deadline(self.config.timeout_ms)

    def any(self, deadline: Deadline) -> Connection:
        """A connection to some broker, and the brokers' addresses read once."""
        with self._lock:
            if self._bootstrap is None or self._bootstrap.closed:
                self._bootstrap = _first(self.config, deadline)
                self._read_brokers(self._bootstrap, deadline)
            return self._bootstrap

    def node(self, broker_id: int, deadline: Deadline) -> Connection:
        """A connection to one broker."""
        with self._lock:
            bootstrap = self.any(deadline)
            found = self._nodes.get(broker_id)
            if found is not None and not found.closed:
                return found
            if broker_id not in self.brokers:
                self._read_brokers(bootstrap, deadline)
            if broker_id not in self.brokers:
                raise RequestError("BROKER_NOT_AVAILABLE", f"broker {broker_id} is not there.")
            host, port, _ = self.brokers[broker_id]
            try:
                made = Connection(host, port, self.config, deadline)
            except OSError as error:
                raise RequestError(
                    "DISCONNECTED", f"broker {broker_id} at {host}:{port}: {_os_reason(error)}."
                ) from None
            self._nodes[broker_id] = made
            return made

    def coordinator(self, group_id: str, deadline: Deadline) -> int:
        """The broker id of the group's coordinator; waits for one that is being elected."""

        def ask() -> int:
            response = self.any(deadline).send(
                FindCoordinatorRequest,
                deadline,
                key=group_id,
                key_type=0,
                coordinator_keys=[group_id],
            )
            answer = response.coordinators[0] if response.coordinators else response
            if answer.error_code:
                name = error_name(answer.error_code)
                raise RequestError(name, f"no coordinator for {group_id}: {name}.")
            self.brokers.setdefault(answer.node_id, (answer.host, answer.port, None))
            return int(answer.node_id)

        return retry(ask, deadline)

    def on_coordinator(
        self, group_id: str, deadline: Deadline, ask: Callable[[Connection], _T]
    ) -> _T:
        """`ask(connection to the coordinator)`, again where it is loading or has just moved."""
        return retry(
            lambda: ask(self.node(self.coordinator(group_id, deadline), deadline)), deadline
        )

    def metadata(
        self, topics: list[str] | None, deadline: Deadline, *, operations: bool = False
    ) -> Any:
        """MetadataResponse for `topics` (None: all); never creates a topic.

        `operations` asks for the user's rights on the cluster (v8..v10) and the topics.
        """
        connection = self.any(deadline)
        version = min(
            connection.versions.get(_api_key(MetadataRequest), (0, 0))[1],
            10 if operations else MetadataRequest.max_version,
        )
        named = None if topics is None else [{"name": name, "topic_id": None} for name in topics]
        request = message(
            MetadataRequest,
            version,
            topics=named,
            allow_auto_topic_creation=False,
            include_cluster_authorized_operations=operations,
            include_topic_authorized_operations=operations,
        )
        return connection.exchange(request, deadline)

    def release(self, deadline: Deadline) -> tuple[int, ...]:
        """The newest Kafka release whose requests the broker speaks, e.g. (4, 1)."""
        versions = self.any(deadline).versions
        return tuple(BrokerVersionData(api_versions=versions).broker_version)

    def _read_brokers(self, connection: Connection, deadline: Deadline) -> None:
        low, high = connection.versions.get(_api_key(MetadataRequest), (0, 0))
        version = max(low, min(high, MetadataRequest.max_version))
        request = MetadataRequest(version=version, topics=[], allow_auto_topic_creation=False)
        response = connection.exchange(request, deadline)
        self.cluster_id = response.cluster_id
        self.controller_id = response.controller_id
        self.brokers = {b.node_id: (b.host, b.port, b.rack) for b in response.brokers}


def message(kind: Any, version: int, **fields: Any) -> Any:
    """A message of kafka-python's; nested structures may be given as dictionaries."""
    known = kind._struct.fields
    made: dict[str, Any] = {}
    for name, value in fields.items():
        nested = known[name].is_struct_array() and value is not None
        part = known[name].data_class if nested else None
        made[name] = [message(part, version, **each) for each in value] if nested else value
    return kind(version=version, **made)


def retry(ask: Callable[[], _T], deadline: Deadline) -> _T:
    """`ask()`, again while its RequestError says that the coordinator is not there yet."""
    pause = 0.05
    while True:
        try:
            return ask()
        except RequestError as error:
            if error.name not in _RETRY or deadline.left() < pause:
                raise
        time.sleep(pause)
        pause = min(pause * 2, 0.5)


def seconds(timeout_ms: int) -> str:
    """`10000` → `10 s`, `1500` → `1.5 s`."""
    return f"{timeout_ms / 1000:g} s"


def _api_key(request: type) -> int:
    return int(request.API_KEY)  # type: ignore[attr-defined]


def _first(config: ClusterConfig, deadline: Deadline) -> Connection:
    """The first bootstrap server that lets this client in, a few rounds over all of them."""
    # Settings that cannot be loaded are not the network's fault: say them before any try.
    config.to_kafka_python()
    last: OSError | RequestError | None = None
    for turn in range(_CONNECT_ROUNDS):
        if turn:
            time.sleep(min(0.3, deadline.left()))
        for host, port in config.servers:
            if deadline.over:
                break
            try:
                return Connection(host, port, config, deadline)
            except ssl.SSLCertVerificationError as error:
                raise ConnectError(
                    f"{host}:{port}: its certificate is not trusted ({error.verify_message}). "
                    "Check ssl.truststore or ssl.ca.location, and the host name in -b.",
                    "tls",
                ) from None
            except ssl.SSLError as error:
                raise ConnectError(_tls_message(host, port, error), "tls") from None
            except (OSError, RequestError) as error:
                last = error
    within = seconds(config.timeout_ms)
    if last is None or isinstance(last, TimeoutError) or getattr(last, "name", "") == "TIMED_OUT":
        raise ConnectError(
            f"cannot reach any of {config.bootstrap} within {within} (no answer). "
            f"Check -b or --command-config{_protocol_hint(config)}.",
            "timeout",
        )
    refused = isinstance(last, OSError)
    reason = _os_reason(last) if isinstance(last, OSError) else str(last).rstrip(".")
    raise ConnectError(
        f"cannot reach any of {config.bootstrap} within {within} ({reason}). "
        f"Check -b or --command-config{'' if refused else _protocol_hint(config)}.",
        "unreachable",
    )


def _protocol_hint(config: ClusterConfig) -> str:
    return f" (security.protocol is {config.protocol})"


def _os_reason(error: OSError) -> str:
    if isinstance(error, socket.gaierror):
        return "the name cannot be resolved"
    return (error.strerror or str(error) or type(error).__name__).lower()


def _tls_message(host: str, port: int, error: ssl.SSLError) -> str:
    reason = (error.reason or str(error)).replace("_", " ").lower()
    if "wrong version number" in reason or "record layer" in reason:
        return f"{host}:{port} does not speak TLS: check -b and security.protocol."
    return f"{host}:{port}: the TLS handshake failed ({reason}). Check the client certificate."


def _wrong_login(address: str, config: ClusterConfig) -> str:
    return (
        f"{address} refused the login of {config.username} with {config.mechanism} "
        "(wrong user name or password, or not set up for this mechanism). Check --command-config."
    )
