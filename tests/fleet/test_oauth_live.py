"""A fleet scan that logs in with tokens: rebal's own clients, and Spark's, in Java, after them."""

from __future__ import annotations

import base64
import json
import socket
import ssl
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote_plus

import pytest
import trustme
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from cryptography.hazmat.primitives.hashes import SHA256

from rebal.inspectors.connection.config import resolve
from rebal.inspectors.fleet.lake.place import find_place
from rebal.inspectors.fleet.lake.scans import clusters_of
from rebal.inspectors.fleet.sources import kafka as kafka_source
from rebal.inspectors.fleet.spark.session import SparkSettings, spark_session
from tests.fleet import test_cluster
from tests.fleet.conftest import kafka_jars, read_tables, without_sources
from tests.fleet.tablefiles import last_scan
from tests.fleet.test_sources_live import commit, in_transaction
from tests.kafka import jars
from tests.kafka.broker import Broker
from tests.kafka.issuer import Issuer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.live, pytest.mark.timeout(300)]

Scan = Callable[..., str]
cluster = test_cluster.master
# What must be quoted in a JAAS line.
SECRET = 'cl"ient\\s3cret; x=1'


def _text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


class Signer:
    """A key of an issuer, and the tokens that it signs (RFC 7519, RS256)."""

    def __init__(self) -> None:
        self._key = rsa.generate_private_key(public_exponent=65537, key_size=2048)

    def token(self, life: float = 600, **claims: str) -> str:
        now = int(time.time())
        parts = [{"alg": "RS256", "kid": "k"}, {"iat": now, "exp": now + int(life), **claims}]
        signed = ".".join(_text(json.dumps(part).encode()) for part in parts)
        signature = self._key.sign(signed.encode(), padding.PKCS1v15(), SHA256())
        return f"{signed}.{_text(signature)}"

    def jwks(self) -> str:
        """The public key (RFC 7517)."""
        numbers = self._key.public_key().public_numbers()
        n = _text(numbers.n.to_bytes(256, "big"))
        key = {"kty": "RSA", "kid": "k", "alg": "RS256", "use": "sig", "n": n, "e": "AQAB"}
        return json.dumps({"keys": [key]})

    def answer(self, **claims: str) -> bytes:
        """What a token endpoint says."""
        body = {"access_token": self.token(**claims), "expires_in": 600, "token_type": "Bearer"}
        return json.dumps(body).encode()


@pytest.fixture(scope="module")
def signer() -> Signer:
    return Signer()


@pytest.fixture(scope="module")
def broker(signer: Signer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """It checks signatures, as real ones do: Java's client takes no token without one."""
    keys = tmp_path_factory.mktemp("keys") / "jwks.json"
    keys.write_text(signer.jwks())
    package = "org.apache.kafka.common.security.oauthbearer"
    prefix = "listener.name.sasl_ssl.oauthbearer.sasl"
    settings = {
        f"{prefix}.server.callback.handler.class": f"{package}.OAuthBearerValidatorCallbackHandler",
        f"{prefix}.oauthbearer.jwks.endpoint.url": f"file://{keys}",
        # Issuers have claims of their own for the user; Java's client looks for `sub`.
        f"{prefix}.oauthbearer.sub.claim.name": "user",
    }
    with Broker("3.9.1", settings=settings) as made:
        topic = made.create_topic("orders")
        for group in ("checkout", "billing"):
            made.wait_coordinator(group)
            for offset in range(1, 4):
                commit(made, group, topic, offset)
        yield made


@pytest.fixture(scope="module")
def issuer(signer: Signer) -> Iterator[Issuer]:
    with Issuer(600) as made:
        made.body = signer.answer(user="admin")
        yield made


@pytest.fixture(scope="module")
def plain(
    broker: Broker, spark: object, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, list[dict[str, Any]]]:
    """The tables of a scan over PLAINTEXT."""
    from rebal.cli.app import run

    out = tmp_path_factory.mktemp("plain") / "out"
    assert run(["fleet", "scan", "-b", broker.bootstrap, "--out", str(out)]) == 0
    return without_sources(read_tables(out))


def properties(broker: Broker, url: str, folder: Path, **more: str) -> Path:
    """A client.properties file as Kafka's own tools take it."""
    escaped = SECRET.replace("\\", "\\\\").replace('"', '\\"')
    # A backslash of the JAAS line is two in a properties file.
    jaas = (
        "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required "
        f'clientId="me" clientSecret="{escaped}" scope="kafka read" extension_tenant="a b";'
    ).replace("\\", "\\\\")
    settings = {
        "bootstrap.servers": broker.bootstrap_sasl,
        "security.protocol": "SASL_SSL",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(broker.certificates.ca),
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.jaas.config": jaas,
        "sasl.oauthbearer.token.endpoint.url": url,
        **more,
    }
    path = folder / "client.properties"
    path.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    return path


def test_tokens_of_an_endpoint(
    broker: Broker, plain: object, issuer: Issuer, scan: Scan, tmp_path: Path
) -> None:
    issuer.asked.clear()
    file = properties(broker, issuer.url, tmp_path)
    said = scan("--command-config", file, "--out", tmp_path / "out")
    assert without_sources(read_tables(tmp_path / "out")) == plain
    assert "s3cret" not in said
    login = base64.b64encode(f"me:{SECRET}".encode()).decode()
    expected = {
        "grant_type": "client_credentials",
        "scope": "kafka read",
        "authorization": f"Basic {login}",
    }
    assert len(issuer.asked) > 1, "Java's client has not asked"
    assert all(asked == expected for asked in issuer.asked)


def test_an_endpoint_with_an_authority_of_its_own_and_the_secret_encoded(
    broker: Broker, plain: object, signer: Signer, scan: Scan, tmp_path: Path
) -> None:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(tmp_path / "issuer.pem"))
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    more = {
        "https.ca.location": str(tmp_path / "issuer.pem"),
        "sasl.oauthbearer.header.urlencode": "true",
    }
    with Issuer(600, context) as issuer:
        issuer.body = signer.answer(user="admin")
        file = properties(broker, issuer.url, tmp_path, **more)
        scan("--command-config", file, "--out", tmp_path / "out")
        pairs = [base64.b64decode(asked["authorization"].split()[1]) for asked in issuer.asked]
    assert without_sources(read_tables(tmp_path / "out")) == plain
    assert len(pairs) > 1
    assert set(pairs) == {f"me:{quote_plus(SECRET)}".encode()}


def test_the_token_in_a_file(
    broker: Broker, plain: object, signer: Signer, scan: Scan, tmp_path: Path
) -> None:
    (tmp_path / "token").write_text(f"{signer.token(sub='x', user='admin')}\n")
    file = properties(broker, f"file://{tmp_path}/token", tmp_path)
    scan("--command-config", file, "--out", tmp_path / "out")
    assert without_sources(read_tables(tmp_path / "out")) == plain


def test_that_nothing_is_left_to_read_is_asked_with_a_token_too(
    broker: Broker, issuer: Issuer, spark: SparkSession, scan: Scan, tmp_path: Path
) -> None:
    """Markers of an aborted transaction are no records: librdkafka has to say so."""
    file = properties(broker, issuer.url, tmp_path)
    scan("--command-config", file, "--out", tmp_path / "out")
    in_transaction(broker, "checkout", "orders", 99, end=False)
    config = resolve(None, [], file, None, {}, 5000)
    what = kafka_source.find_range(config, last_scan(tmp_path / "out"))
    assert what.partitions
    assert not kafka_source.read_kafka(spark, config, what).holds_records()


def test_the_secret_is_in_no_plan_and_the_address_is_allowed(
    broker: Broker, issuer: Issuer, spark: SparkSession, tmp_path: Path
) -> None:
    config = resolve(None, [], properties(broker, issuer.url, tmp_path), None, {}, 5000)
    rows = kafka_source.read_kafka(spark, config, kafka_source.find_range(config, None)).rows
    told: Any = rows._jdf  # type: ignore[operator]
    plan = told.queryExecution().toString()
    assert "kafka" in plan.lower()
    assert "s3cret" not in plan
    settings = SparkSettings(tokens=issuer.url)
    with spark_session(settings, kafka=True) as session:
        jvm: Any = session.sparkContext._jvm
        allowed = jvm.System.getProperty("org.apache.kafka.sasl.oauthbearer.allowed.urls")
    assert issuer.url in allowed.split(",")


@pytest.mark.full
def test_executors_of_a_cluster_with_a_client_that_asks_which_addresses_are_allowed(
    broker: Broker, plain: object, issuer: Issuer, cluster: str, tmp_path: Path
) -> None:
    """The list that is there already, of another address, would refuse the issuer's."""
    other = "-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls=http://127.0.0.1:9/token"
    newer = str(next(Path(jars.classpath("clients-3.9.1")[:-2]).glob("kafka-clients-3.9.1.jar")))
    source = [newer if "kafka-clients-" in jar else jar for jar in kafka_jars()]
    conf = (
        "spark.driver.memory=512m", "spark.executor.memory=512m", "spark.sql.shuffle.partitions=2",
        f"spark.driver.extraJavaOptions={other}", f"spark.executor.extraJavaOptions={other}",
    )  # fmt: skip
    command = [
        test_cluster.REBAL, "fleet", "scan", "--out", tmp_path / "out", "--master", cluster,
        "--command-config", properties(broker, issuer.url, tmp_path),
        "--spark-jars", ",".join(source),
        *(word for each in conf for word in ("--spark-conf", each)),
    ]  # fmt: skip
    issuer.asked.clear()
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=200)
    assert done.returncode == 0, done.stderr
    assert without_sources(read_tables(tmp_path / "out")) == plain
    logs = [path.read_text() for path in tmp_path.glob("work*/app-*/*/std*")]
    assert logs, "no executor ran"
    assert "s3cret" not in "".join(logs)
    # rebal, the driver's JVM and an executor's.
    assert len(issuer.asked) > 2


@pytest.mark.parametrize("fault", ["refuses", "gone", "file gone", "file not fresh"])
def test_a_token_is_there_no_more_when_java_asks(
    broker: Broker, scan: Scan, tmp_path: Path, *,
    signer: Signer, fault: str, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    found = kafka_source.find_range
    kept = tmp_path / "token"
    kept.write_text(signer.token(user="admin"))
    with Issuer(600) as issuer:
        issuer.body = signer.answer(user="admin")

        def find_range(*words: Any) -> Any:
            made = found(*words)
            match fault:
                case "refuses":
                    issuer.status, issuer.body = 401, None
                case "gone":
                    issuer.__exit__()
                case "file gone":
                    kept.unlink()
                case _:
                    kept.write_text(signer.token(-60, user="admin"))
            return made

        monkeypatch.setattr(kafka_source, "find_range", find_range)
        from_file = fault.startswith("file")
        file = properties(broker, f"file://{kept}" if from_file else issuer.url, tmp_path)
        words = ("--command-config", file, "--timeout", "2", "--out", tmp_path / "out")
        said = scan(*words, code=1)
    setting = "sasl.oauthbearer.token.endpoint.url"
    what = f"the token of {setting}: it reads" if from_file else f"a token of {setting}, and"
    assert f"Spark's Kafka client could not log in with {what}" in said
    assert said.count("\n") == 2
    assert "s3cret" not in said
    assert "eyJ" not in said


@pytest.mark.parametrize("fault", ["dead", "silent", "unknown key", "refuses"])
def test_no_token_or_none_that_the_broker_takes(
    broker: Broker, issuer: Issuer, scan: Scan, tmp_path: Path, fault: str
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent, Issuer(600) as other:
        other.body = Signer().answer(user="admin")
        url, says = {
            "dead": ("http://127.0.0.1:9/token", "cannot reach the token endpoint"),
            "silent": (f"http://127.0.0.1:{silent.getsockname()[1]}/token", "within 2 s"),
            "unknown key": (other.url, "rejected the token of OAUTHBEARER"),
            "refuses": (other.url, "client.id or its secret (401: invalid_client)"),
        }[fault]
        if fault == "refuses":
            other.status, other.body = 401, None
        words = ("--command-config", properties(broker, url, tmp_path), "--timeout", "2")
        said = scan(*words, "--out", tmp_path / "out", code=1)
    assert says in said
    assert said.count("\n") == 1
    assert "s3cret" not in said
    assert clusters_of(find_place(str(tmp_path / "out"))) == ()


def test_a_token_that_java_cannot_read_is_said_before_anybody_is_asked(
    scan: Scan, tmp_path: Path
) -> None:
    words = ("-X", "bootstrap.servers=127.0.0.1:9", "-X", "security.protocol=SASL_SSL")
    words += ("-X", "sasl.mechanism=OAUTHBEARER", "--out", tmp_path / "out")
    url = "sasl.oauthbearer.token.endpoint.url=file://"
    (tmp_path / "token").write_text("opaque")
    said = scan(*words, "-X", f"{url}{tmp_path}/token", code=2)
    assert "takes only signed JWTs that name their end (exp) and a user (sub)" in said
    assert "opaque" not in said
    said = scan(*words, "-X", f"{url}{tmp_path}/the%20token", code=2)
    assert "give the file another name" in said
