"""A test broker's configuration: server properties, logging, arguments of the formatting."""

from pathlib import Path

from tests.kafka import security

HERE = Path(__file__).parent
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
) -> str:
    """The text of a broker's properties; without certificates only PLAINTEXT is there.

    `tunnel` is the port under which the listener TUNNEL is advertised, where there is one.
    `controller_ports` are those of all nodes by node id.
    """
    names = LISTENERS if certificates else ("PLAINTEXT", "CONTROLLER")
    names = (*names, TUNNEL) if tunnel else names
    addresses = {name: f"{name}://127.0.0.1:{ports[name]}" for name in names}
    advertised = addresses | ({TUNNEL: f"{TUNNEL}://127.0.0.1:{tunnel}"} if tunnel else {})
    settings = {
        "node.id": str(node_id),
        "controller.quorum.voters": ",".join(
            f"{each}@127.0.0.1:{port}" for each, port in controller_ports.items()
        ),
        "listeners": ",".join(addresses.values()),
        "advertised.listeners": ",".join(
            address for name, address in advertised.items() if name != "CONTROLLER"
        ),
        "log.dirs": str(data),
    }
    if certificates:
        settings |= security.listener_settings(certificates)
    fixed = ["server.properties"]
    fixed += [] if is_scala_coordinator(version) else ["java-coordinator.properties"]
    return "".join((HERE / name).read_text() for name in fixed) + properties_text(settings)


def logging_option(version: str, folder: Path, request_level: str = "INFO") -> str:
    """Write the logging configuration into `folder`; the JVM's option that names it.

    Log4j 2 properties for Kafka 4, Log4j 1 ones before. All but the request log and what the group
    coordinator says, which have files of their own in `folder`, goes to standard error.
    """
    scala, file = is_scala_coordinator(version), folder / "log.properties"
    template = HERE / ("reload4j.properties" if scala else "log4j2.properties")
    file.write_text(template.read_text().format(folder=folder, level=request_level))
    return f"-D{'log4j.configuration' if scala else 'log4j2.configurationFile'}=file:{file}"
