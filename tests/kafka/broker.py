"""`Broker`: one real Kafka broker (KRaft, broker and controller in one process) on 127.0.0.1.

A broker stands alone, or is one node of a cluster (cluster.py).
`Administration` is what the tests do by admin calls on it; each child process is bounded in every
wait, and ended by its id.
"""

import atexit
import contextlib
import os
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Self

from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from kafka.admin import AlterConfigOp, ConfigResource, ConfigResourceType, KafkaAdminClient
from kafka.errors import KafkaError as AnswerError
from tests.kafka import brokerconf, jars

_TAIL = 40


class HarnessTimeoutError(AssertionError):
    """Something the test waited for did not come in time; the text ends with the logs' tails."""


class ChildProcess:
    """A process with its own log file; its standard input stays open and ends with this one's.

    `stdout` is a pipe when `events` is true (JSON lines for `members`), else it joins the log.
    """

    def __init__(
        self,
        name: str,
        command: list[str],
        log: Path,
        *,
        events: bool = False,
        env: dict[str, str] | None = None,
    ) -> None:
        self.name = name
        self.log_path = log
        with log.open("ab") as sink:
            self.popen = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE if events else sink,
                stderr=sink,
                env=env,
                start_new_session=True,
            )
        RUNNING[self.popen.pid] = self

    @property
    def pid(self) -> int:
        return self.popen.pid

    @property
    def alive(self) -> bool:
        return self.popen.poll() is None

    def log(self) -> str:
        """All that the process has written to its log so far."""
        return self.log_path.read_text(errors="replace") if self.log_path.exists() else ""

    def tail(self, lines: int = _TAIL) -> str:
        """The last lines of the log under a heading, for error messages."""
        state = "running" if self.alive else f"ended with {self.popen.returncode}"
        text = "\n".join(self.log().splitlines()[-lines:])
        return f"--- {self.name} (pid {self.pid}, {state}) {self.log_path}\n{text}"

    def say(self, line: str) -> None:
        """Write one line to the standard input; a process that has just ended hears nothing."""
        assert self.popen.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self.popen.stdin.write((line + "\n").encode())
            self.popen.stdin.flush()

    def terminate(self, timeout: float = 20) -> None:
        """SIGTERM, then SIGKILL when it has not ended within `timeout` seconds."""
        if self.alive:
            self.popen.terminate()
            try:
                self.popen.wait(timeout)
            except subprocess.TimeoutExpired:
                self.popen.kill()
        self._reap()

    def kill(self) -> None:
        """SIGKILL: no clean close, nothing is said to anybody."""
        self.popen.kill()
        self._reap()

    def wait(self, timeout: float) -> None:
        """Wait for the process to end by itself; SIGKILL and an error when it does not."""
        try:
            self.popen.wait(timeout)
        except subprocess.TimeoutExpired as late:
            self.kill()
            text = f"{self.name} did not end within {timeout:g} s\n{self.tail()}"
            raise HarnessTimeoutError(text) from late
        self._reap()

    def _reap(self) -> None:
        self.popen.wait(10)
        if self.popen.stdin is not None:
            with contextlib.suppress(OSError):
                self.popen.stdin.close()
        RUNNING.pop(self.pid, None)


RUNNING: dict[int, ChildProcess] = {}


@atexit.register
def _kill_all() -> None:
    for child in list(RUNNING.values()):
        child.kill()


def freeze(pid: int) -> None:
    """Stop a process with SIGSTOP and wait until it stands still: a busy machine takes a while."""
    os.kill(pid, signal.SIGSTOP)
    status = Path(f"/proc/{pid}/status")
    wait_for(
        f"process {pid} to stand still",
        lambda: "State:\tT" in status.read_text(),
        timeout=10,
        every=0.01,
    )


def wait_for(
    what: str,
    ready: Callable[[], object],
    *,
    timeout: float,
    involved: Callable[[], list[ChildProcess]] = list,
    every: float = 0.05,
) -> None:
    """Poll `ready` until it is true; after twice `timeout` seconds raise with the logs' tails.

    A machine that is at other work holds a broker up for seconds.
    """
    deadline = time.monotonic() + 2 * timeout
    while not ready():
        if time.monotonic() > deadline:
            tails = "\n".join(child.tail() for child in involved())
            raise HarnessTimeoutError(f"waited {2 * timeout:g} s for {what}\n{tails}")
        time.sleep(every)


class Administration:
    """Topics, records, ACLs, users and groups of one bootstrap address, as a super user.

    `replicas` is the replication factor of the topics that it creates.
    """

    version: str
    replicas = 1
    _admin: AdminClient | None = None
    _describer: KafkaAdminClient | None = None

    def start(self) -> None:
        """Start, and wait until all brokers serve."""
        raise NotImplementedError

    def close(self) -> None:
        """End all brokers without ceremony and remove their files."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def bootstrap(self) -> str:
        """The PLAINTEXT address of the broker, or of all brokers."""
        raise NotImplementedError

    @property
    def is_scala_coordinator(self) -> bool:
        """Before 4.0 the classic (Scala) group coordinator serves, since then the Java one."""
        return brokerconf.is_scala_coordinator(self.version)

    @property
    def processes(self) -> list[ChildProcess]:
        """The broker processes, whose logs an error shows."""
        raise NotImplementedError

    def admin(self) -> AdminClient:
        """confluent-kafka's admin client on PLAINTEXT (a super user)."""
        if self._admin is None:
            self._admin = AdminClient(
                {"bootstrap.servers": self.bootstrap, "client.id": "harness", "log_level": 0}
            )
        return self._admin

    def create_topic(self, name: str, partitions: int = 1) -> str:
        """Create a topic, wait until it is known, and give its name back."""
        futures = self.admin().create_topics([NewTopic(name, partitions, self.replicas)])
        futures[name].result(20)

        def known() -> bool:
            topic = self.admin().list_topics(name, timeout=10).topics[name]
            leaders = [part.leader for part in topic.partitions.values()]
            return len(leaders) == partitions and min(leaders) >= 0

        self._wait(f"topic {name}", known)
        return name

    def produce(self, topic: str, counts: dict[int, int]) -> None:
        """Write `counts[partition]` small records to each partition of `topic`."""
        producer = Producer({"bootstrap.servers": self.bootstrap, "linger.ms": 5})
        for partition, count in counts.items():
            for number in range(count):
                producer.produce(topic, value=str(number).encode(), partition=partition)
        left = producer.flush(20)
        assert left == 0, f"{left} records of {topic} were not written"

    def allow(self, user: str, resource: str, name: str, *operations: str) -> None:
        """ACLs for `User:<user>`: `resource` is topic, group or cluster (name: kafka-cluster).

        Operations in the tools' spelling: READ, DESCRIBE, DESCRIBE_CONFIGS… Returns when the
        authorizer knows them.
        """
        kind = "BROKER" if resource == "cluster" else resource.upper()
        bindings = [
            AclBinding(
                ResourceType[kind],
                name,
                ResourcePatternType.LITERAL,
                f"User:{user}",
                "*",
                AclOperation[operation.upper()],
                AclPermissionType.ALLOW,
            )
            for operation in operations
        ]
        for future in self.admin().create_acls(bindings).values():
            future.result(20)
        self._wait(
            f"the rights of {user}",
            lambda: set(bindings) <= set(self.admin().describe_acls(_acls_of(user)).result(20)),
        )

    def forbid(self, user: str) -> None:
        """Take back every right that `allow` gave `User:<user>`."""
        for future in self.admin().delete_acls([_acls_of(user)]).values():
            future.result(20)
        self._wait(
            f"no right of {user}",
            lambda: not self.admin().describe_acls(_acls_of(user)).result(20),
        )

    def set_scram_user(self, user: str, password: str) -> None:
        """Create or change one user of both SCRAM mechanisms (PLAIN is fixed at the start)."""
        # Kafka refuses two changes of one user in one request.
        for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
            change = UserScramCredentialUpsertion(
                user, ScramCredentialInfo(mechanism, 4096), password.encode()
            )
            self.admin().alter_user_scram_credentials([change])[user].result(20)

    def described(self, group: str) -> tuple[str, list[str]]:
        """A classic group's state and its members' client ids; "" where nobody can answer now.

        By kafka-python: librdkafka aborts the whole process where the coordinator goes away while
        it describes a group (confluentinc/librdkafka#4605).
        """
        try:
            if self._describer is None:
                self._describer = KafkaAdminClient(
                    bootstrap_servers=self._alive_bootstrap(),
                    client_id="harness",
                    request_timeout_ms=5000,
                )
            answer = self._describer.describe_groups([group])[group]
        except AnswerError:
            self._forget()
            return "", []
        if answer["error"] and "GroupIdNotFound" not in answer["error"]:
            # It goes on asking the coordinator of before.
            self._forget()
            return "", []
        return answer["group_state"], [each["client_id"] for each in answer["members"]]

    def _forget(self) -> None:
        """Ask anew: a client of before a change may wait long, or ask who is no longer there."""
        self._admin = None
        describer, self._describer = self._describer, None
        if describer is not None:
            describer.close()

    def _alive_bootstrap(self) -> str:
        """The address of who can answer now."""
        return self.bootstrap

    def standing(self, group: str) -> tuple[str, int]:
        """A group's state and its number of members; "" where nobody can answer now."""
        described = self.admin().describe_consumer_groups([group], request_timeout=10)
        try:
            answer = described[group].result(15)
        except KafkaException as error:
            return "DEAD" if error.args[0].code() == KafkaError.GROUP_ID_NOT_FOUND else "", 0
        return answer.state.name, len(answer.members)

    def wait_coordinator(self, group: str, timeout: float = 30) -> None:
        """Wait until the coordinator answers: on a new broker its topic is not there yet."""
        self._wait(f"a coordinator of {group}", lambda: self.standing(group)[0], timeout=timeout)

    def wait_stable(self, group: str, members: int, timeout: float = 30) -> None:
        """Wait until the coordinator itself says: Stable, with so many members."""
        wanted = ("STABLE", members)
        what = f"{group} to be {wanted}"
        try:
            self._wait(what, lambda: self.standing(group) == wanted, timeout=timeout, every=0.1)
        except HarnessTimeoutError as late:
            raise HarnessTimeoutError(f"{late}\nit is {self.standing(group)}") from late

    def _wait(
        self, what: str, ready: Callable[[], object], *, timeout: float = 20, every: float = 0.05
    ) -> None:
        wait_for(what, ready, timeout=timeout, every=every, involved=lambda: self.processes)


def _acls_of(user: str) -> AclBindingFilter:
    """Return a filter of all ACLs of `User:<user>`."""
    return AclBindingFilter(
        ResourceType.ANY,
        None,
        ResourcePatternType.ANY,
        f"User:{user}",
        None,
        AclOperation.ANY,
        AclPermissionType.ANY,
    )


_JVM = jars.JVM


class Broker(Administration):
    """A broker that is formatted and started by `start()` and can be stopped, killed, restarted.

    `bootstrap`, `bootstrap_sasl` (SASL_SSL: SCRAM-SHA-256, SCRAM-SHA-512, PLAIN, OAUTHBEARER with
    unsigned tokens) and `bootstrap_tls` (client certificate required) are fixed for its life, also
    over restarts. On PLAINTEXT every client is a super user; elsewhere only `admin` is, so ACLs
    bite for the others (`brokerconf.USERS`). With `secure=False` only PLAINTEXT is there.

    `settings` are broker properties that replace the defaults; `request_log` switches the request
    log on from the first moment, else `log_requests` does it later. `tunnel` is the port of a
    forwarder of the test: a listener TUNNEL (PLAINTEXT) is there then, `ports["TUNNEL"]` its own
    port, and whoever comes through the forwarder is sent back to it.

    `node_id`, `ports` (by listener) and `controller_ports` (of all nodes, by node id) make it a
    node of a cluster.
    """

    def __init__(
        self,
        version: str = jars.EARLY,
        *,
        secure: bool = True,
        request_log: bool = False,
        settings: dict[str, str] | None = None,
        tunnel: int | None = None,
        node_id: int = brokerconf.NODE_ID,
        ports: dict[str, int] | None = None,
        controller_ports: dict[int, int] | None = None,
        heap_mb: int = 384,
    ) -> None:
        self.version = version
        self.node_id = node_id
        self.secure = secure
        self.folder = Path(tempfile.mkdtemp(prefix=f"rebal-kafka-{version}-"))
        names = (*brokerconf.LISTENERS, *([brokerconf.TUNNEL] if tunnel else ()))
        self.ports = ports or dict(zip(names, free_ports(len(names)), strict=True))
        self._controller_ports = controller_ports or {node_id: self.ports["CONTROLLER"]}
        self._heap_mb = heap_mb
        self._tunnel = tunnel
        self.certificates = brokerconf.make_certificates(self.folder / "tls")
        self._settings = dict(settings or {})
        self._request_level = "DEBUG" if request_log else "INFO"
        self._process: ChildProcess | None = None
        self._starts = 0
        self._seen = 0

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.ports['PLAINTEXT']}"

    @property
    def bootstrap_sasl(self) -> str:
        return f"127.0.0.1:{self.ports['SASL_SSL']}"

    @property
    def bootstrap_tls(self) -> str:
        return f"127.0.0.1:{self.ports['SSL']}"

    @property
    def process(self) -> ChildProcess:
        assert self._process is not None, "the broker was never started"
        return self._process

    @property
    def processes(self) -> list[ChildProcess]:
        return [] if self._process is None else [self._process]

    # --- life ---------------------------------------------------------------------------------

    def start(self, timeout: float = 60) -> None:
        """Start, or start again on the same data and ports, and wait until it serves."""
        self.launch()
        self.wait_started(timeout)

    def launch(self) -> None:
        """Begin a start: the nodes of a cluster need each other to get up."""
        name = f"broker-{self.version}"
        classpath = f"{jars.compiled('Launch', name)}:{jars.classpath(name)}"
        properties = self.folder / "server.properties"
        arguments: list[str] = []
        if self._starts == 0:
            self._write_configuration(properties)
            arguments = brokerconf.format_arguments(self.secure)
        logging = brokerconf.logging_option(self.version, self.folder, self._request_level)
        command = [
            *jars.jvm(self._heap_mb, _JVM), logging, "-cp", classpath, "Launch", str(properties),
            *arguments,
        ]  # fmt: skip
        self._seen = self._times_started()
        # A client of before a restart may wait long before it tries to connect again.
        self._admin = None
        self._starts += 1
        self._process = ChildProcess(
            f"broker {self.version} node {self.node_id}", command, self.folder / "broker.log"
        )

    def wait_started(self, timeout: float = 60) -> None:
        """Wait until the broker that was launched serves."""
        child = self.process
        self._wait(
            f"{child.name} to start",
            lambda: self._times_started() > self._seen or not child.alive,
            timeout=timeout,
        )
        if not child.alive:
            raise jars.ToolError(f"the broker did not start\n{child.tail()}")

    def stop(self) -> None:
        """A clean shutdown (SIGTERM); data and ports are kept for the next `start()`."""
        self.process.terminate()

    def kill(self) -> None:
        """SIGKILL; data and ports are kept for the next `start()`."""
        self.process.kill()

    def restart(self) -> None:
        """`stop()` and `start()`: the group coordinator is loaded again from its topic."""
        self.stop()
        self.start()

    def restart_with(self, settings: dict[str, str]) -> None:
        """`restart()` with these broker properties changed."""
        self.stop()
        self._settings |= settings
        self._write_configuration(self.folder / "server.properties")
        self.start()

    def close(self) -> None:
        """End the process without ceremony and remove all its files."""
        self._admin = None
        if self._process is not None and self._process.alive:
            self._process.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def client_properties(
        self, mechanism: str, user: str, password: str | None = None
    ) -> dict[str, str]:
        """Java-spelt client properties for one user: see `brokerconf.client_properties`."""
        bootstrap = self.bootstrap_tls if mechanism == "SSL" else self.bootstrap_sasl
        return brokerconf.client_properties(
            self.certificates, bootstrap, mechanism=mechanism, user=user, password=password
        )

    def write_properties(self, name: str, properties: dict[str, str]) -> Path:
        """Write client properties to a file of the broker's folder (removed with it)."""
        path = self.folder / name
        path.write_text(brokerconf.properties_text(properties))
        return path

    # --- logs -----------------------------------------------------------------------------------

    def log_requests(self, on: bool | None = None) -> None:
        """Switch the request log on or off in the running broker (KIP-412), until a restart.

        None: as it was when the broker was made.
        """
        level = self._request_level if on is None else ("DEBUG" if on else "INFO")
        self._alter(
            ConfigResourceType.BROKER_LOGGER, str(self.node_id), {"kafka.request.logger": level}
        )

    def set_group(self, group_id: str, settings: dict[str, str]) -> None:
        """Set settings of a group's own configuration (KIP-848)."""
        self._alter(ConfigResourceType.GROUP, group_id, settings)

    def _alter(self, kind: ConfigResourceType, name: str, settings: dict[str, str]) -> None:
        changes = {key: (AlterConfigOp.SET, value) for key, value in settings.items()}
        admin = KafkaAdminClient(bootstrap_servers=self.bootstrap, client_id="harness")
        try:
            resource = ConfigResource(kind, name, changes)
            admin.alter_configs([resource], raise_on_unknown=False, incremental=True)
        finally:
            admin.close()

    @property
    def request_log_path(self) -> Path:
        """What `kafka.request.logger` wrote, layout `[%d] %p %m (%c)%n`, times in UTC."""
        return self.folder / "kafka-request.log"

    def coordinator_log(self) -> str:
        """Everything the group coordinator said at INFO or above since the first start."""
        path = self.folder / "group-coordinator.log"
        return path.read_text() if path.exists() else ""

    def _write_configuration(self, properties: Path) -> None:
        text = brokerconf.server_settings(
            self.version,
            self.ports,
            self.folder / "data",
            self.certificates if self.secure else None,
            self._tunnel,
            node_id=self.node_id,
            controller_ports=self._controller_ports,
        )
        # Of two lines with one key Java takes the later one.
        properties.write_text(text + brokerconf.properties_text(self._settings))

    def _times_started(self) -> int:
        return sum(child.log().count("] Kafka Server started") for child in self.processes)


def free_ports(count: int) -> list[int]:
    """Ports below those that systems hand out to clients.

    A client that keeps connecting to a stopped broker's port could else be given that very port,
    connect to itself, and keep the broker from coming back.
    """
    found: list[int] = []
    with contextlib.ExitStack() as stack:
        for port in random.SystemRandom().sample(range(20000, 32000), 1000):
            each = stack.enter_context(socket.socket())
            with contextlib.suppress(OSError):
                each.bind(("127.0.0.1", port))
                found.append(port)
            if len(found) == count:
                return found
    raise jars.ToolError("no free port between 20000 and 32000 on 127.0.0.1")
