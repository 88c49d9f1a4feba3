"""A test broker's configuration, formatting and logging; its private CA, certificates and users."""

from dataclasses import dataclass
from pathlib import Path

import trustme
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

# Name to password, the same for SCRAM-SHA-256, SCRAM-SHA-512 and PLAIN. `admin` is a super user;
# the others may do nothing until a test gives them a right.
USERS = {"admin": "admin-s3cret", "limited": "limited-s3cret", "reader": "reader-s3cret"}

# Common names of client certificates: principals `User:<name>` on the mutual-TLS listener.
CERTIFICATE_USERS = ("admin", "limited")

SCRAM_MECHANISMS = ("SCRAM-SHA-256", "SCRAM-SHA-512")


@dataclass(frozen=True)
class Certificates:
    """PEM files: the CA, one key-and-chain file for the broker and for each certificate user.

    `untrusted_ca` signed nothing here: a client that trusts only it must refuse the broker.
    """

    folder: Path

    @property
    def ca(self) -> Path:
        return self.folder / "ca.pem"

    @property
    def untrusted_ca(self) -> Path:
        return self.folder / "untrusted-ca.pem"

    def identity(self, name: str) -> Path:
        """Private key (PKCS #8) and certificate chain of `broker` or a certificate user."""
        return self.folder / f"{name}.pem"


def make_certificates(folder: Path) -> Certificates:
    """A fresh CA with the broker's certificate (127.0.0.1, localhost) and the users' ones."""
    folder.mkdir(parents=True, exist_ok=True)
    files = Certificates(folder)
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(files.ca))
    trustme.CA().cert_pem.write_to_path(str(files.untrusted_ca))
    _write(authority.issue_cert("127.0.0.1", "localhost"), files.identity("broker"))
    for name in CERTIFICATE_USERS:
        _write(authority.issue_cert(f"{name}.test", common_name=name), files.identity(name))
    return files


def _write(issued: trustme.LeafCert, path: Path) -> None:
    # Java's PEM key store reads PKCS #8 only; the CA library writes the traditional form.
    key = load_pem_private_key(issued.private_key_pem.bytes(), None)
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    path.write_bytes(pem + b"".join(blob.bytes() for blob in issued.cert_chain_pems))


def client_properties(
    certificates: Certificates,
    bootstrap: str,
    *,
    mechanism: str,
    user: str,
    password: str | None = None,
) -> dict[str, str]:
    """Kafka's own client properties, PEM spelling, for one user of a secured listener.

    `mechanism` is SCRAM-SHA-256, SCRAM-SHA-512 or PLAIN (with `bootstrap` of the SASL_SSL
    listener), or SSL for a client certificate (with that of the SSL listener). What Java and
    librdkafka spell differently (`sasl.jaas.config`, `ssl.truststore.*`) is in Java's spelling.
    """
    common = {
        "bootstrap.servers": bootstrap,
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(certificates.ca),
    }
    if mechanism == "SSL":
        return common | {
            "security.protocol": "SSL",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(certificates.identity(user)),
        }
    module = "plain.Plain" if mechanism == "PLAIN" else "scram.Scram"
    secret = USERS[user] if password is None else password
    return common | {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": mechanism,
        "sasl.jaas.config": f"org.apache.kafka.common.security.{module}LoginModule required "
        f'username="{user}" password="{secret}";',
    }


def listener_settings(certificates: Certificates) -> dict[str, str]:
    """The broker's settings of the listeners SASL_SSL and SSL."""
    settings: dict[str, str] = {"ssl.principal.mapping.rules": "RULE:^.*CN=([^,]+).*$/$1/,DEFAULT"}
    for listener, client_auth in (("sasl_ssl", "none"), ("ssl", "required")):
        prefix = f"listener.name.{listener}."
        settings |= {
            f"{prefix}ssl.keystore.type": "PEM",
            f"{prefix}ssl.keystore.location": str(certificates.identity("broker")),
            f"{prefix}ssl.truststore.type": "PEM",
            f"{prefix}ssl.truststore.location": str(certificates.ca),
            f"{prefix}ssl.client.auth": client_auth,
        }
    module = "org.apache.kafka.common.security.{}LoginModule required"
    plain_users = " ".join(f'user_{name}="{secret}"' for name, secret in USERS.items())
    jaas = {
        "plain": f"{module.format('plain.Plain')} {plain_users};",
        "scram-sha-256": f"{module.format('scram.Scram')};",
        "scram-sha-512": f"{module.format('scram.Scram')};",
        # The JVM's unsecured token check: any unsigned token is believed. For tests only.
        "oauthbearer": f"{module.format('oauthbearer.OAuthBearer')} "
        'unsecuredLoginStringClaim_sub="broker";',
    }
    settings["listener.name.sasl_ssl.sasl.enabled.mechanisms"] = ",".join(
        name.upper() for name in jaas
    )
    for mechanism, text in jaas.items():
        settings[f"listener.name.sasl_ssl.{mechanism}.sasl.jaas.config"] = text
    return settings


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
        for mechanism in SCRAM_MECHANISMS:
            for user, password in USERS.items():
                arguments += ["--add-scram", f"{mechanism}=[name={user},password={password}]"]
    return arguments


def properties_text(settings: dict[str, str]) -> str:
    """A Java properties file of these settings (none of which needs escaping)."""
    return "".join(f"{key}={value}\n" for key, value in settings.items())


def server_settings(
    version: str,
    ports: dict[str, int],
    data: Path,
    certificates: Certificates | None,
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
        settings |= listener_settings(certificates)
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
