"""Requests to the brokers of one cluster: `RawCluster`.

Each broker gets one connection, or up to four if several threads use it at once. Only three things
are retried: the search for a coordinator, a request to a coordinator that is loading or has moved,
and a request that any broker can answer. A broker that cannot be reached delays only the groups
that it coordinates, by one timeout.
"""

import random
import socket
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, Self, TypeVar

from kafka.protocol.metadata import FindCoordinatorRequest, MetadataRequest

from rebal.inspectors.connection.config import ClusterConfig
from rebal.inspectors.connection.translate import to_kafka_python
from rebal.inspectors.errors import ConnectError, RequestError, TlsError, error_name
from rebal.inspectors.kafka.wire import BrokerConnection, Deadline

_T = TypeVar("_T")
_R = TypeVar("_R")
# The errors of a coordinator that does not hold the group yet, or no longer.
MOVED_OR_LOADING: Final = frozenset(
    {"COORDINATOR_LOAD_IN_PROGRESS", "COORDINATOR_NOT_AVAILABLE", "NOT_COORDINATOR"}
)
# OFFSET_NOT_AVAILABLE: a new leader does not know yet how far its followers are (KIP-207).
_RETRY: Final = MOVED_OR_LOADING | {"OFFSET_NOT_AVAILABLE"}
# The newest metadata.version of each release (Kafka's MetadataVersion.LATEST_PRODUCTION).
_BY_METADATA_VERSION: Final = {
    7: "3.3", 8: "3.4", 11: "3.5", 14: "3.6", 19: "3.7", 20: "3.8", 21: "3.9", 25: "4.0", 27: "4.1",
    29: "4.2", 30: "4.3", 33: "4.4",
}  # fmt: skip
_NO_ANSWER: Final = frozenset({"TIMED_OUT", "DISCONNECTED"})
GONE: Final = _NO_ANSWER | {"UNREACHABLE"}
_CONNECT_ROUNDS: Final = 3
# Connections to one broker at most.
_SIDE_BY_SIDE: Final = 4
_SHORTEST: Final = 0.05


def broker_version(connection: BrokerConnection) -> str | None:
    """Return the broker's release, such as `4.1` or `3.2 or later`; None if no release fits.

    No request returns the release. A KRaft broker names the newest metadata.version that it
    supports, and each release has its own. For other brokers, the result is the newest release
    whose requests the broker supports; `or later`, because some releases added no request.
    """
    known = connection.supported_features.get("metadata.version")
    if known in _BY_METADATA_VERSION:
        return _BY_METADATA_VERSION[known]
    # Its table is as large as all messages that are used here, and KRaft brokers do not need it.
    from kafka.protocol.broker_version_data import BrokerVersionData

    numbers = BrokerVersionData(api_versions=connection.versions).broker_version
    return f"{'.'.join(map(str, numbers))} or later" if numbers else None


class RawCluster:
    """The connections to the brokers of one cluster, each opened when it is first needed.

    `coordinators` maps group id → broker id of the coordinator, as far as it is known. `brokers`
    maps broker id → host, port and rack.

    Raises (every method that sends a request):
        ConnectError: no bootstrap server can be reached, or none accepts the login.
        RequestError: a broker answered with an error, or not in time.
    """

    def __init__(self, config: ClusterConfig, whole: Deadline | None = None) -> None:
        self.config = config
        self._whole = whole
        self.cluster_id: str | None = None
        self.brokers: dict[int, tuple[str, int, str | None]] = {}
        self._bootstrap: BrokerConnection | None = None
        self._nodes: dict[int, list[BrokerConnection]] = {}
        self._opened: list[BrokerConnection] = []
        self.coordinators: dict[str, int] = {}
        self._silent: dict[int, RequestError] = {}
        self._closed = False
        self._lock = threading.RLock()
        self._gates: dict[int, threading.Lock] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Close every connection at once; take no lock, so that no other thread can delay it."""
        self._closed = True
        for connection in list(self._opened):
            connection.close()

    def _connect(self, host: str, port: int, deadline: Deadline) -> BrokerConnection:
        """Return a new connection, which `close` ends even while it is being opened."""

        def opened(connection: BrokerConnection) -> None:
            self._opened.append(connection)
            if self._closed:
                connection.close()

        return BrokerConnection(host, port, self.config, deadline, opened)

    def _first(self, deadline: Deadline) -> BrokerConnection:
        """Return a connection to the first bootstrap server that accepts this client.

        The servers are tried in up to three rounds; each gets an equal share of the time left.
        Brokers known from earlier metadata are tried after the bootstrap servers.
        """
        config = self.config
        # Report settings that cannot be loaded before any network error.
        to_kafka_python(config)
        last: OSError | RequestError | None = None
        servers = list(
            dict.fromkeys((*config.servers, *(broker[:2] for broker in self.brokers.values())))
        )
        turn = 0
        for turn in range(_CONNECT_ROUNDS):
            if turn:
                time.sleep(min(0.3, deadline.left()))
            for turn_left, (host, port) in zip(range(len(servers), 0, -1), servers, strict=True):
                if not deadline.left():
                    break
                try:
                    return self._connect(host, port, deadline.share(turn_left))
                except TlsError as error:
                    raise ConnectError(_tls_message(f"{host}:{port}", error), "tls") from None
                except (OSError, RequestError) as error:
                    last = error
        protocol = f" (security.protocol is {config.protocol})"
        if (
            last is None
            or isinstance(last, TimeoutError)
            or getattr(last, "name", "") == "TIMED_OUT"
        ):
            raise ConnectError(
                f"cannot reach any of {config.bootstrap} within {deadline.waited()} (no answer). "
                f"Check -b or --command-config{protocol}.",
                "timeout",
            )
        refused = isinstance(last, OSError)
        tries = f"{turn + 1} {'try' if turn == 0 else 'tries'}"
        reason = _os_reason(last) if isinstance(last, OSError) else last.reason
        raise ConnectError(
            f"cannot reach any of {config.bootstrap} ({reason}; {tries} in {deadline.waited()}). "
            f"Check -b or --command-config{'' if refused else protocol}.",
            "unreachable",
        )

    def deadline(self) -> Deadline:
        """Return the deadline of a new operation.

        It is the deadline that was given for this whole object, else `timeout_ms` from now.
        """
        return self._whole or Deadline(self.config.timeout_ms)

    def any(self, deadline: Deadline) -> BrokerConnection:
        """Return an open connection to any one broker.

        If there is none, connect to a bootstrap server and read the addresses of all brokers.
        """
        with self._lock:
            if self._bootstrap is None or self._bootstrap.closed:
                self._bootstrap = self._first(deadline)
                self._read_brokers(self._bootstrap, deadline)
            return self._bootstrap

    def node(self, broker_id: int, deadline: Deadline) -> BrokerConnection:
        """Return a connection to the broker `broker_id`.

        It is an idle connection, else a new one. A broker that has four gets no more: then it is
        one of these, and the request waits for its turn.

        Raises:
            RequestError: UNREACHABLE or TIMED_OUT if there is no connection, BROKER_NOT_AVAILABLE
                if the cluster has no such broker.
        """
        with self._lock:
            bootstrap = self.any(deadline)
            if broker_id not in self.brokers:
                self._read_brokers(bootstrap, deadline)
            if broker_id not in self.brokers:
                raise RequestError(
                    "BROKER_NOT_AVAILABLE", f"broker {broker_id} is not in the cluster"
                )
            host, port, _ = self.brokers[broker_id]
            gate = self._gates.setdefault(broker_id, threading.Lock())
        # Requests to other brokers do not wait for this connection.
        if not gate.acquire(timeout=deadline.left()):
            raise _unreachable(broker_id, host, port, None)
        try:
            opened = [each for each in self._nodes.get(broker_id, ()) if not each.closed]
            idle = next((each for each in opened if not each.busy), None)
            if idle is not None or len(opened) == _SIDE_BY_SIDE:
                return idle or random.choice(opened)
            if broker_id in self._silent:
                raise self._silent[broker_id]
            whole = deadline.left() > self.config.timeout_ms / 2000
            try:
                made = self._connect(host, port, deadline)
            except TlsError as error:
                raise _unreachable(broker_id, host, port, error.reason) from None
            except (OSError, RequestError) as error:
                if opened:
                    # A broker may limit the connections of a client: the busy ones are enough.
                    return random.choice(opened)
                late = isinstance(error, TimeoutError) or getattr(error, "name", "") == "TIMED_OUT"
                if isinstance(error, RequestError) and not late:
                    raise
                reason = _os_reason(error) if isinstance(error, OSError) and not late else None
                unreachable = _unreachable(broker_id, host, port, reason)
                if late and whole:
                    self._silent[broker_id] = unreachable
                raise unreachable from None
            self._nodes[broker_id] = [*opened, made]
            return made
        finally:
            gate.release()

    def ask_any(self, deadline: Deadline, ask: Callable[[BrokerConnection, Deadline], _T]) -> _T:
        """Return `ask(connection, deadline)` for any one broker.

        If the broker does not answer, connect to a broker again and ask once more.
        """
        connection = self.any(deadline)
        others = {*self.config.servers, *((host, port) for host, port, _ in self.brokers.values())}
        try:
            return ask(connection, deadline.share(min(2, len(others))))
        except RequestError as error:
            if error.name not in _NO_ANSWER or not deadline.left() or self._closed:
                raise
            try:
                other = self.any(deadline)
            except ConnectError as nobody:
                # A rejected login or token is the cause of the lost connection: report that.
                if nobody.kind not in ("timeout", "unreachable"):
                    raise
                raise error from None
        return ask(other, deadline)

    def coordinator(self, group_id: str, deadline: Deadline) -> int:
        """Return the broker id of the group's coordinator; wait while none is available.

        The answer is kept for later calls. `on_coordinator` drops it when the coordinator has
        moved.
        """
        if group_id in self.coordinators:
            return self.coordinators[group_id]

        def ask() -> int:
            response = self.ask_any(
                deadline,
                lambda connection, deadline: connection.send(
                    FindCoordinatorRequest,
                    deadline,
                    key=group_id,
                    key_type=0,
                    coordinator_keys=[group_id],
                ),
            )
            answer = response.coordinators[0] if response.coordinators else response
            if answer.error_code:
                name = error_name(answer.error_code)
                raise RequestError(name, f"no coordinator for {group_id}: {name}")
            self.brokers.setdefault(answer.node_id, (answer.host, answer.port, None))
            return self.coordinators.setdefault(group_id, int(answer.node_id))

        return retry(ask, deadline)

    def on_coordinator(
        self, group_id: str, deadline: Deadline, ask: Callable[[BrokerConnection, int], _T]
    ) -> _T:
        """Return `ask(connection, broker id)` for the group's coordinator.

        Retry while the coordinator loads or moves. A coordinator found by an earlier call that does
        not answer may have moved: it is searched for again.
        """

        def once() -> _T:
            known = group_id in self.coordinators
            try:
                broker = self.coordinator(group_id, deadline)
                return ask(self.node(broker, deadline), broker)
            except RequestError as error:
                self.coordinators.pop(group_id, None)
                if not known or error.name not in GONE or not deadline.left():
                    raise
            return once()

        return retry(once, deadline)

    def metadata(
        self, topics: list[str] | None, deadline: Deadline, *, operations: bool = False
    ) -> Any:
        """Return the MetadataResponse for `topics` (None: all topics); never create a topic.

        `operations` also requests the user's rights (KIP-430) on the cluster (v8 to v10) and on the
        topics.
        """
        named = None if topics is None else [{"name": name, "topic_id": None} for name in topics]

        def ask(connection: BrokerConnection, deadline: Deadline) -> Any:
            response = connection.send(
                MetadataRequest,
                deadline,
                max_version=10 if operations else None,
                topics=named,
                allow_auto_topic_creation=False,
                include_cluster_authorized_operations=operations,
                include_topic_authorized_operations=operations,
            )
            if len(response.topics or ()) < len(named or ()):
                raise RequestError("CORRUPT_MESSAGE", f"{connection.address} left out a topic")
            return response

        return self.ask_any(deadline, ask)

    def _read_brokers(self, connection: BrokerConnection, deadline: Deadline) -> None:
        response = connection.send(
            MetadataRequest, deadline, topics=[], allow_auto_topic_creation=False
        )
        if not response.brokers:
            raise RequestError("CORRUPT_MESSAGE", f"{connection.address} names no broker")
        self.cluster_id = response.cluster_id
        self.brokers = {b.node_id: (b.host, b.port, b.rack) for b in response.brokers}


def side_by_side(work: Callable[[_T], _R], items: Sequence[_T], most: int) -> list[_R]:
    """Return `work(item)` for each item, in the order of `items`; up to `most` threads run at once.

    After Ctrl-C it does not wait for the threads; closing the session ends their requests.
    """
    if len(items) == 1:
        return [work(items[0])]
    pool = ThreadPoolExecutor(most)
    try:
        return list(pool.map(work, items))
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def retry(ask: Callable[[], _T], deadline: Deadline) -> _T:
    """Return `ask()`; while its error is temporary, call it again until `deadline`.

    Temporary errors are COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR
    and OFFSET_NOT_AVAILABLE.
    """
    pause = 0.05
    last: RequestError | None = None
    while True:
        left = deadline.left()
        try:
            return ask()
        except RequestError as error:
            # The last try has little time: that it was too little is no news.
            if last is not None and error.name in _NO_ANSWER and left < pause:
                raise last from None
            if error.name not in _RETRY or deadline.left() < _SHORTEST:
                raise
            last = error
        time.sleep(min(pause, deadline.left() / 2))
        pause = min(pause * 2, 0.5)


def _unreachable(broker_id: int, host: str, port: int, reason: str | None) -> RequestError:
    """Return the error for a broker that cannot be reached: UNREACHABLE, for this `reason`.

    If `reason` is None, there was no answer in time, and the error is TIMED_OUT.
    """
    return RequestError(
        "TIMED_OUT" if reason is None else "UNREACHABLE",
        f"broker {broker_id} at {host}:{port} cannot be reached ({reason or 'no answer'})",
    )


def _os_reason(error: OSError) -> str:
    if isinstance(error, socket.gaierror):
        return "the name cannot be resolved"
    return (error.strerror or str(error) or type(error).__name__).lower()


def _tls_message(address: str, error: TlsError) -> str:
    reason = error.reason.replace("_", " ").lower()
    rows = (
        (
            error.untrusted,
            f"{address}: its certificate is not trusted ({error.untrusted}). "
            "Check ssl.truststore or ssl.ca.location, and the host name in -b.",
        ),
        (
            "wrong version number" in reason or "record layer" in reason,
            f"{address} does not speak TLS: check -b and security.protocol.",
        ),
        (
            "eof" in reason,
            f"{address} ended the TLS handshake: it does not speak TLS or wants another client "
            "certificate. Check -b, security.protocol and ssl.keystore.",
        ),
        (
            True,
            f"{address}: the TLS handshake failed ({reason}). Check the client certificate.",
        ),
    )
    return next(message for holds, message in rows if holds)
