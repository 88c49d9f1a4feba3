"""A test broker's configuration: server properties, logging, arguments of the formatting."""

from pathlib import Path

from tests.kafka import security

NODE_ID = 1
LISTENERS = ("PLAINTEXT", "SASL_SSL", "SSL", "CONTROLLER")
TUNNEL = "TUNNEL"
_CLUSTER_ID = "cmViYWwtdGVzdC1jbHVzdA"


def is_scala_coordinator(version: str) -> bool:
    """Before 4.0 the classic (Scala) group coordinator serves, since then the Java one."""
    return int(version.split(".", maxsplit=1)[0]) < 4


def format_arguments(secure: bool) -> list[str]:
    """StorageTool's arguments; SCRAM users are part of the formatting (KIP-900)."""
    arguments = ["--cluster-id", _CLUSTER_ID]
    if secure:
        for mechanism in security.SCRAM_MECHANISMS:
            for user, password in security.USERS.items():
                arguments += ["--add-scram", f"{mechanism}=[name={user},password={password}]"]
    return arguments


def properties_text(settings: dict[str, str]) -> str:
    """A Java properties file of these settings (none of which needs escaping)."""
    return "".join(f"{key}={value}\n" for key, value in settings.items())


def server_settings(
    version: str,
    ports: dict[str, int],
    data: Path,
    certificates: security.Certificates | None,
    tunnel: int | None = None,
    *,
    node_id: int = NODE_ID,
    controller_ports: dict[int, int],
) -> dict[str, str]:
    """Broker properties; without certificates there is only the PLAINTEXT listener.

    `tunnel` is the port under which the listener TUNNEL is advertised, where there is one.
    `controller_ports` are those of all nodes by node id.
    """
    names = LISTENERS if certificates else ("PLAINTEXT", "CONTROLLER")
    names = (*names, TUNNEL) if tunnel else names
    addresses = {name: f"{name}://127.0.0.1:{ports[name]}" for name in names}
    advertised = addresses | ({TUNNEL: f"{TUNNEL}://127.0.0.1:{tunnel}"} if tunnel else {})
    settings = {
        "process.roles": "broker,controller",
        "node.id": str(node_id),
        "controller.quorum.voters": ",".join(
            f"{each}@127.0.0.1:{port}" for each, port in controller_ports.items()
        ),
        "controller.listener.names": "CONTROLLER",
        "inter.broker.listener.name": "PLAINTEXT",
        "listeners": ",".join(addresses.values()),
        "advertised.listeners": ",".join(
            address for name, address in advertised.items() if name != "CONTROLLER"
        ),
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,"
        "SASL_SSL:SASL_SSL,SSL:SSL,TUNNEL:PLAINTEXT",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS;User:admin",
        "log.dirs": str(data),
        "auto.create.topics.enable": "false",
        "offsets.topic.num.partitions": "4",
        "offsets.topic.replication.factor": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "transaction.state.log.num.partitions": "4",
        "group.initial.rebalance.delay.ms": "0",
        "group.min.session.timeout.ms": "500",
        "num.network.threads": "2",
        "num.io.threads": "4",
        "background.threads": "2",
        "log.cleaner.dedupe.buffer.size": "4194304",
        # How long a killed broker's own registration keeps its next start waiting.
        "broker.session.timeout.ms": "4000",
        "broker.heartbeat.interval.ms": "500",
    }
    if not is_scala_coordinator(version):
        settings |= {
            "group.consumer.migration.policy": "bidirectional",
            "group.consumer.min.session.timeout.ms": "1000",
            "group.consumer.session.timeout.ms": "6000",
            "group.consumer.min.heartbeat.interval.ms": "200",
            "group.consumer.heartbeat.interval.ms": "500",
            "group.coordinator.threads": "1",
        }
    if certificates:
        settings |= security.listener_settings(certificates)
    return settings


def logging_option(version: str, file: Path) -> str:
    """The JVM's option that names the logging configuration."""
    key = "log4j.configuration" if is_scala_coordinator(version) else "log4j2.configurationFile"
    return f"-D{key}=file:{file}"


def logging_text(version: str, requests: Path, coordinator: Path, request_level: str) -> str:
    """The logging configuration: Log4j 2 properties for Kafka 4, Log4j 1 ones before."""
    template = _RELOAD4J if is_scala_coordinator(version) else _LOG4J2
    return template.format(request=requests, coordinator=coordinator, level=request_level)


_LOG4J2 = """\
status = warn
rootLogger.level = INFO
rootLogger.appenderRef.out.ref = out
appender.out.type = Console
appender.out.name = out
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = [%d] %p %m (%c)%n
appender.request.type = File
appender.request.name = request
appender.request.fileName = {request}
appender.request.layout.type = PatternLayout
appender.request.layout.pattern = [%d] %p %m (%c)%n
appender.coordinator.type = File
appender.coordinator.name = coordinator
appender.coordinator.fileName = {coordinator}
appender.coordinator.layout.type = PatternLayout
appender.coordinator.layout.pattern = [%d] %p %m (%c)%n
logger.request.name = kafka.request.logger
logger.request.level = {level}
logger.request.additivity = false
logger.request.appenderRef.request.ref = request
logger.coordinator.name = org.apache.kafka.coordinator.group
logger.coordinator.level = INFO
logger.coordinator.additivity = false
logger.coordinator.appenderRef.coordinator.ref = coordinator
logger.runtime.name = org.apache.kafka.coordinator.common
logger.runtime.level = INFO
logger.runtime.additivity = false
logger.runtime.appenderRef.coordinator.ref = coordinator
"""

_RELOAD4J = """\
log4j.rootLogger=INFO, out
log4j.appender.out=org.apache.log4j.ConsoleAppender
log4j.appender.out.layout=org.apache.log4j.PatternLayout
log4j.appender.out.layout.ConversionPattern=[%d] %p %m (%c)%n
log4j.appender.request=org.apache.log4j.FileAppender
log4j.appender.request.File={request}
log4j.appender.request.layout=org.apache.log4j.PatternLayout
log4j.appender.request.layout.ConversionPattern=[%d] %p %m (%c)%n
log4j.appender.coordinator=org.apache.log4j.FileAppender
log4j.appender.coordinator.File={coordinator}
log4j.appender.coordinator.layout=org.apache.log4j.PatternLayout
log4j.appender.coordinator.layout.ConversionPattern=[%d] %p %m (%c)%n
log4j.logger.kafka.request.logger={level}, request
log4j.additivity.kafka.request.logger=false
log4j.logger.kafka.coordinator.group=INFO, coordinator
log4j.additivity.kafka.coordinator.group=false
log4j.logger.org.apache.kafka.coordinator.group=INFO, coordinator
log4j.additivity.org.apache.kafka.coordinator.group=false
"""
