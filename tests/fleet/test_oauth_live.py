"""A fleet scan that logs in with tokens: the driver's clients, then those of its tasks."""

import base64
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rebal.inspectors.fleet.sources import kafka as kafka_source
from rebal.inspectors.fleet.sources.kafka import find_records
from tests.fleet.conftest import read_tables, without_sources
from tests.fleet.test_sources_live import commit
from tests.kafka.broker import Broker
from tests.kafka.tunnel import Issuer, token

pytestmark = [pytest.mark.live, pytest.mark.timeout(300)]

Scan = Callable[..., str]
# What must be quoted in a JAAS line.
SECRET = 'cl"ient\\s3cret; x=1'


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    """One with commits of two groups."""
    with Broker("3.9.1") as made:
        topic = made.create_topic("orders")
        for group in ("checkout", "billing"):
            made.wait_coordinator(group)
            for offset in range(1, 4):
                commit(made, group, topic, offset)
        yield made


def properties(broker: Broker, url: str, folder: Path) -> Path:
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
    }
    path = folder / "client.properties"
    path.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    return path


def test_driver_and_tasks_log_in_with_oauth(broker: Broker, scan: Scan, tmp_path: Path) -> None:
    """The tables are those of a scan over PLAINTEXT."""
    with Issuer(600, sub="admin") as issuer:
        file = properties(broker, issuer.url, tmp_path)
        output = scan("--command-config", file, "--out", tmp_path / "out")
    scan("-b", broker.bootstrap, "--out", tmp_path / "plain")
    made, plain = (without_sources(read_tables(tmp_path / name)) for name in ("out", "plain"))
    assert made == plain
    assert "s3cret" not in output
    login = base64.b64encode(f"me:{SECRET}".encode()).decode()
    expected = {
        "grant_type": "client_credentials",
        "scope": "kafka read",
        "authorization": f"Basic {login}",
    }
    assert len(issuer.asked) > 1, "no task has asked"
    assert all(asked == expected for asked in issuer.asked)


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("refuses", "client.id or its secret (401: invalid_client)"),
        ("file gone", "cannot read the token"),
    ],
)
def test_a_scan_reports_why_its_spark_tasks_got_no_oauth_token(
    broker: Broker, scan: Scan, tmp_path: Path, *,
    fault: str, message: str, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    kept = tmp_path / "token"
    kept.write_text(token(600, sub="admin"))
    with Issuer(600, sub="admin") as issuer:

        def found_late(*words: Any) -> Any:
            made = find_records(*words)
            issuer.status = 401
            kept.unlink()
            return made

        monkeypatch.setattr(kafka_source, "find_records", found_late)
        from_file = fault.startswith("file")
        file = properties(broker, f"file://{kept}" if from_file else issuer.url, tmp_path)
        words = ("--command-config", file, "--timeout", "5", "--out", tmp_path / "out")
        output = scan(*words, code=1)
    assert message in output
    assert output.count("\n") == 2
    assert "s3cret" not in output
    assert "eyJ" not in output
