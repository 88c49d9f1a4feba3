"""`Broker`: one real Kafka broker (KRaft, broker and controller in one process) on 127.0.0.1.

A broker stands alone, or is one node of a cluster (cluster.py).
"""

import contextlib
import random
import shutil
import socket
import tempfile
from pathlib import Path

from kafka.admin import AlterConfigOp, ConfigResource, ConfigResourceType, KafkaAdminClient
from tests.kafka import brokerconf, jars, security
from tests.kafka.administration import Administration
from tests.kafka.processes import ChildProcess

_JVM = jars.JVM


class Broker(Administration):
    """A broker that is formatted and started by `start()` and can be stopped, killed, restarted.

    `bootstrap`, `bootstrap_sasl` (SASL_SSL: SCRAM-SHA-256, SCRAM-SHA-512, PLAIN, OAUTHBEARER with
    unsigned tokens) and `bootstrap_tls` (client certificate required) are fixed for its life, also
    over restarts. On PLAINTEXT every client is a super user; elsewhere only `admin` is, so ACLs
    bite for the others (`security.USERS`). With `secure=False` only PLAINTEXT is there.

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
        self.certificates = security.make_certificates(self.folder / "tls")
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
