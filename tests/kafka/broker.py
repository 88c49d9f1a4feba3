"""`Broker`: one real Kafka broker (KRaft, broker and controller in one process) on 127.0.0.1."""

import contextlib
import random
import shutil
import socket
import tempfile
import time
from pathlib import Path
from typing import Self

from confluent_kafka import ConsumerGroupState, KafkaError, KafkaException, Producer
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
from tests.kafka import brokerconf, jars, security
from tests.kafka.processes import ChildProcess, wait_for

REQUEST_LOGGER = "kafka.request.logger"
_JVM = ("-Xmx384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Duser.timezone=UTC")


class Broker:
    """A broker that is formatted and started by `start()` and can be stopped, killed, restarted.

    `bootstrap`, `bootstrap_sasl` (SASL_SSL: SCRAM-SHA-256, SCRAM-SHA-512, PLAIN, OAUTHBEARER with
    unsigned tokens) and `bootstrap_tls` (client certificate required) are fixed for its life, also
    over restarts. On PLAINTEXT every client is a super user; elsewhere only `admin` is, so ACLs
    bite for the others (`security.USERS`). With `secure=False` only PLAINTEXT is there.

    `settings` are broker properties that replace the defaults; `request_log` switches the request
    log on from the first moment, else `log_requests` does it later. `tunnel` is the port of a
    forwarder of the test: a listener TUNNEL (PLAINTEXT) is there then, `ports["TUNNEL"]` its own
    port, and whoever comes through the forwarder is sent back to it.
    """

    def __init__(
        self,
        version: str = "4.1.1",
        *,
        secure: bool = True,
        request_log: bool = False,
        settings: dict[str, str] | None = None,
        tunnel: int | None = None,
    ) -> None:
        self.version = version
        self.secure = secure
        self.folder = Path(tempfile.mkdtemp(prefix=f"rebal-kafka-{version}-"))
        names = (*brokerconf.LISTENERS, *([brokerconf.TUNNEL] if tunnel else ()))
        self.ports = dict(zip(names, free_ports(len(names)), strict=True))
        self._tunnel = tunnel
        self.certificates = security.make_certificates(self.folder / "tls")
        self.start_seconds = 0.0
        self._settings = settings or {}
        self._request_level = "DEBUG" if request_log else "INFO"
        self._process: ChildProcess | None = None
        self._admin: AdminClient | None = None
        self._starts = 0

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
        return f"127.0.0.1:{self.ports['PLAINTEXT']}"

    @property
    def bootstrap_sasl(self) -> str:
        return f"127.0.0.1:{self.ports['SASL_SSL']}"

    @property
    def bootstrap_tls(self) -> str:
        return f"127.0.0.1:{self.ports['SSL']}"

    @property
    def is_scala_coordinator(self) -> bool:
        """Before 4.0 the classic (Scala) group coordinator serves, since then the Java one."""
        return brokerconf.is_scala_coordinator(self.version)

    @property
    def process(self) -> ChildProcess:
        assert self._process is not None, "the broker was never started"
        return self._process

    # --- life ---------------------------------------------------------------------------------

    def start(self, timeout: float = 60) -> None:
        """Start, or start again on the same data and ports, and wait until it serves."""
        began = time.monotonic()
        name = f"broker-{self.version}"
        classpath = f"{jars.compiled('Launch', name)}:{jars.classpath(name)}"
        properties = self.folder / "server.properties"
        arguments: list[str] = []
        if self._starts == 0:
            self._write_configuration(properties)
            arguments = brokerconf.format_arguments(self.secure)
        java = jars.tool("java")
        if java is None:
            raise jars.ToolError("java was not found: install a JDK 17 or set JAVA_HOME to one.")
        logging = "log4j2.configurationFile" if self.version >= "4" else "log4j.configuration"
        command = [
            java,
            *_JVM,
            f"-D{logging}=file:{self.folder / 'log.properties'}",
            "-cp",
            classpath,
            "Launch",
            str(properties),
            *arguments,
        ]
        seen = self._times_started()
        # A client of before a restart may wait long before it tries to connect again.
        self._admin = None
        self._starts += 1
        child = ChildProcess(f"broker {self.version}", command, self.folder / "broker.log")
        self._process = child
        wait_for(
            f"broker {self.version} to start",
            lambda: self._times_started() > seen or not child.alive,
            timeout=timeout,
            involved=lambda: [child],
        )
        if not child.alive:
            raise jars.ToolError(f"the broker did not start\n{child.tail()}")
        self.start_seconds = time.monotonic() - began

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

    def close(self) -> None:
        """End the process without ceremony and remove all its files."""
        self._admin = None
        if self._process is not None and self._process.alive:
            self._process.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    # --- administration -------------------------------------------------------------------------

    def admin(self) -> AdminClient:
        """confluent-kafka's admin client on PLAINTEXT (a super user)."""
        if self._admin is None:
            self._admin = AdminClient(
                {"bootstrap.servers": self.bootstrap, "client.id": "harness", "log_level": 0}
            )
        return self._admin

    def create_topic(self, name: str, partitions: int = 1) -> str:
        """Create a topic (replication 1), wait until it is known, and give its name back."""
        futures = self.admin().create_topics([NewTopic(name, partitions, 1)])
        futures[name].result(20)

        def known() -> bool:
            topic = self.admin().list_topics(name, timeout=10).topics[name]
            leaders = [part.leader for part in topic.partitions.values()]
            return len(leaders) == partitions and min(leaders) >= 0

        wait_for(f"topic {name}", known, timeout=20, involved=lambda: [self.process])
        return name

    def produce(self, topic: str, counts: dict[int, int]) -> None:
        """Write `counts[partition]` small records to each partition of `topic`."""
        producer = Producer({"bootstrap.servers": self.bootstrap, "linger.ms": 5})
        for partition, count in counts.items():
            for number in range(count):
                producer.produce(topic, value=str(number).encode(), partition=partition)
        left = producer.flush(20)
        assert left == 0, f"{left} records of {topic} were not written"

    def allow(
        self, user: str, resource: str, name: str, *operations: str, prefixed: bool = False
    ) -> None:
        """ACLs for `User:<user>`: `resource` is topic, group or cluster (name: kafka-cluster).

        Operations in the tools' spelling: READ, DESCRIBE, DESCRIBE_CONFIGS… Returns when the
        authorizer knows them.
        """
        kind = "BROKER" if resource == "cluster" else resource.upper()
        bindings = [
            AclBinding(
                ResourceType[kind],
                name,
                ResourcePatternType.PREFIXED if prefixed else ResourcePatternType.LITERAL,
                f"User:{user}",
                "*",
                AclOperation[operation.upper()],
                AclPermissionType.ALLOW,
            )
            for operation in operations
        ]
        for future in self.admin().create_acls(bindings).values():
            future.result(20)
        every = AclBindingFilter(
            ResourceType.ANY,
            None,
            ResourcePatternType.ANY,
            None,
            None,
            AclOperation.ANY,
            AclPermissionType.ANY,
        )
        wait_for(
            f"the rights of {user}",
            lambda: set(bindings) <= set(self.admin().describe_acls(every).result(20)),
            timeout=20,
            involved=lambda: [self.process],
        )

    def forbid(self, user: str) -> None:
        """Take back every right that `allow` gave `User:<user>`."""
        given = AclBindingFilter(
            ResourceType.ANY,
            None,
            ResourcePatternType.ANY,
            f"User:{user}",
            None,
            AclOperation.ANY,
            AclPermissionType.ANY,
        )
        for future in self.admin().delete_acls([given]).values():
            future.result(20)
        wait_for(
            f"no right of {user}",
            lambda: not self.admin().describe_acls(given).result(20),
            timeout=20,
            involved=lambda: [self.process],
        )

    def set_scram_user(self, user: str, password: str) -> None:
        """Create or change one user of both SCRAM mechanisms (PLAIN is fixed at the start)."""
        # Kafka refuses two changes of one user in one request.
        for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
            change = UserScramCredentialUpsertion(
                user, ScramCredentialInfo(mechanism, 4096), password.encode()
            )
            self.admin().alter_user_scram_credentials([change])[user].result(20)

    def client_properties(
        self, mechanism: str, user: str, password: str | None = None
    ) -> dict[str, str]:
        """Java-spelt client properties for one user: see `security.client_properties`."""
        bootstrap = self.bootstrap_tls if mechanism == "SSL" else self.bootstrap_sasl
        return security.client_properties(
            self.certificates, bootstrap, mechanism=mechanism, user=user, password=password
        )

    def write_properties(self, name: str, properties: dict[str, str]) -> Path:
        """Write client properties to a file of the broker's folder (removed with it)."""
        path = self.folder / name
        path.write_text(brokerconf.properties_text(properties))
        return path

    def wait_coordinator(self, group: str, timeout: float = 30) -> None:
        """Wait until the coordinator answers: on a new broker its topic is not there yet."""

        def answers() -> bool:
            described = self.admin().describe_consumer_groups([group], request_timeout=10)
            try:
                described[group].result(15)
            except KafkaException as error:
                return error.args[0].code() == KafkaError.GROUP_ID_NOT_FOUND
            return True

        wait_for("a coordinator", answers, timeout=timeout, involved=lambda: [self.process])

    def wait_stable(self, group: str, members: int, timeout: float = 30) -> None:
        """Wait until the broker itself says: `group` is Stable and has so many members."""
        seen = "nothing yet"

        def stable() -> bool:
            nonlocal seen
            try:
                described = self.admin().describe_consumer_groups([group], request_timeout=10)
                answer = described[group].result(15)
            except KafkaException as error:
                seen = str(error)
                # A loading coordinator and a group that does not exist yet are normal here.
                if error.args[0].code() in _SOON:
                    return False
                raise
            seen = f"{answer.state}, {len(answer.members)} members"
            return answer.state == ConsumerGroupState.STABLE and len(answer.members) == members

        try:
            wait_for(f"{group} to be Stable with {members}", stable, timeout=timeout, every=0.1)
        except AssertionError as late:
            raise type(late)(f"{late}\nlast answer: {seen}\n{self.process.tail()}") from late

    # --- logs -----------------------------------------------------------------------------------

    def log_requests(self, on: bool) -> None:
        """Switch the request log on or off in the running broker (KIP-412), until a restart."""
        admin = KafkaAdminClient(bootstrap_servers=self.bootstrap, client_id="harness")
        try:
            change = (AlterConfigOp.SET, "DEBUG" if on else "INFO")
            resource = ConfigResource(
                ConfigResourceType.BROKER_LOGGER, str(brokerconf.NODE_ID), {REQUEST_LOGGER: change}
            )
            admin.alter_configs([resource], raise_on_unknown=False, incremental=True)
        finally:
            admin.close()

    @property
    def request_log_path(self) -> Path:
        """What `kafka.request.logger` wrote, layout `[%d] %p %m (%c)%n`, times in UTC."""
        return self.folder / "kafka-request.log"

    @property
    def coordinator_log_path(self) -> Path:
        return self.folder / "group-coordinator.log"

    def coordinator_log(self) -> str:
        """Everything the group coordinator said at INFO or above since the first start."""
        path = self.coordinator_log_path
        return path.read_text() if path.exists() else ""

    def server_log(self) -> str:
        """Everything else the broker said (and its standard output)."""
        return self.process.log()

    def _write_configuration(self, properties: Path) -> None:
        settings = brokerconf.server_settings(
            self.version,
            self.ports,
            self.folder / "data",
            self.certificates if self.secure else None,
            self._tunnel,
        )
        properties.write_text(brokerconf.properties_text(settings | self._settings))
        logging = brokerconf.logging_text(
            self.version, self.request_log_path, self.coordinator_log_path, self._request_level
        )
        (self.folder / "log.properties").write_text(logging)

    def _times_started(self) -> int:
        log = self.folder / "broker.log"
        return (
            log.read_text(errors="replace").count("] Kafka Server started") if log.exists() else 0
        )


_SOON = {
    KafkaError.GROUP_ID_NOT_FOUND,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.NOT_COORDINATOR,
    KafkaError._TIMED_OUT,
    KafkaError._TRANSPORT,
}


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
