"""A connection as Java's Kafka client spells it, and what that client cannot do."""

from __future__ import annotations

from pathlib import Path

import pytest

from rebal.inspectors.connection.auth import OAuth
from rebal.inspectors.connection.config import ClusterConfig
from rebal.inspectors.connection.settings import Pem
from rebal.inspectors.errors import SettingError
from rebal.inspectors.fleet.sources.kafka_options import (
    java_options,
    no_token,
    subject_claim,
    token_address,
)
from tests.kafka.issuer import token

KEY = "-----BEGIN PRIVATE KEY-----\nMII\n-----END PRIVATE KEY-----"
CERTIFICATE = "-----BEGIN CERTIFICATE-----\nMIIC\n-----END CERTIFICATE-----"
PACKAGE = "org.apache.kafka.common.security.oauthbearer"


def test_the_connection_in_javas_words(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text(CERTIFICATE)
    config = ClusterConfig(
        bootstrap="b:9093",
        protocol="SASL_SSL",
        mechanism="SCRAM-SHA-512",
        username="me",
        password='a"b\\c',
        ca=Pem(file=str(tmp_path / "ca.pem")),
        verify_hostname=False,
    )
    made = java_options(config)
    assert made["kafka.sasl.jaas.config"] == (
        "org.apache.kafka.common.security.scram.ScramLoginModule required "
        'username="me" password="a\\"b\\\\c";'
    )
    assert made["kafka.ssl.truststore.certificates"] == CERTIFICATE
    assert made["kafka.ssl.endpoint.identification.algorithm"] == ""
    assert made["kafka.isolation.level"] == "read_committed"
    assert made["kafka.exclude.internal.topics"] == "false"


def test_a_client_certificate_and_key_from_one_text() -> None:
    both = Pem(inline=f"{KEY}\n{CERTIFICATE}\n{CERTIFICATE}\n")
    config = ClusterConfig(bootstrap="b:9093", protocol="SSL", certificate=both, key=both)
    made = java_options(config)
    assert made["kafka.ssl.keystore.key"] == KEY
    assert made["kafka.ssl.keystore.certificate.chain"] == f"{CERTIFICATE}\n{CERTIFICATE}"
    assert "kafka.ssl.truststore.type" not in made


def test_a_key_that_java_cannot_read() -> None:
    old = Pem(inline=KEY.replace("PRIVATE", "RSA PRIVATE"))
    config = ClusterConfig(
        bootstrap="b:9093", protocol="SSL", certificate=Pem(inline=CERTIFICATE), key=old
    )
    with pytest.raises(SettingError, match="openssl pkcs8"):
        java_options(config)


def with_tokens(**oauth: object) -> ClusterConfig:
    return ClusterConfig(
        bootstrap="b:9093", timeout_ms=4000, protocol="SASL_PLAINTEXT", mechanism="OAUTHBEARER",
        oauth=OAuth(**oauth),  # type: ignore[arg-type]
    )  # fmt: skip


def client(**more: object) -> ClusterConfig:
    fields = {"url": "https://i/token", "client_id": "me", "client_secret": "s3cret", **more}
    return with_tokens(**fields)


def logins(config: ClusterConfig, subject: str | None = None) -> dict[str, str]:
    """The options of the login, without `kafka.`."""
    made = java_options(config, subject).items()
    return {
        key.removeprefix("kafka."): value for key, value in made if key.startswith("kafka.sasl")
    }


def test_an_endpoint_by_client_credentials() -> None:
    config = client(
        client_secret='a"b\\c;\nd', scope="x y", extensions=(("tenant", "t 1"),), encode=True
    )
    assert logins(config, "azp") == {
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.jaas.config": (
            f'{PACKAGE}.OAuthBearerLoginModule required clientId="me" '
            'clientSecret="a\\"b\\\\c;\\nd" scope="x y" extension_tenant="t 1";'
        ),
        "sasl.login.callback.handler.class": f"{PACKAGE}.OAuthBearerLoginCallbackHandler",
        "sasl.oauthbearer.token.endpoint.url": "https://i/token",
        "sasl.oauthbearer.header.urlencode": "true",
        "sasl.oauthbearer.sub.claim.name": "azp",
        "sasl.login.connect.timeout.ms": "4000",
        "sasl.login.read.timeout.ms": "4000",
        "sasl.login.retry.backoff.max.ms": "4000",
    }
    assert token_address(config) == "https://i/token"


def test_the_authority_of_an_endpoint_goes_along_as_text(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text(CERTIFICATE)
    jaas = logins(client(ca=str(tmp_path / "ca.pem")))["sasl.jaas.config"]
    text = CERTIFICATE.replace("\n", "\\n")
    assert jaas.endswith(f' ssl.truststore.type="PEM" ssl.truststore.certificates="{text}";')


def test_the_file_of_a_token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    config = with_tokens(file="..data/token", extensions=(("tenant", "t"),))
    made = logins(config)
    assert made["sasl.oauthbearer.token.endpoint.url"] == f"file://{tmp_path}/..data/token"
    assert made["sasl.jaas.config"] == (
        f'{PACKAGE}.OAuthBearerLoginModule required extension_tenant="t";'
    )
    assert token_address(config) == made["sasl.oauthbearer.token.endpoint.url"]
    assert config.oauth is not None
    assert "the token of sasl.oauthbearer.token.endpoint.url" in no_token(config.oauth)


def test_a_login_without_tokens_has_no_address() -> None:
    assert token_address(ClusterConfig(bootstrap="b:9092")) is None


@pytest.mark.parametrize(
    ("config", "says"),
    [
        (with_tokens(file="/run/a token"), "/run/a token: .* give the file another name"),
        (with_tokens(file="/run/a,b"), "give the file another name"),
        (with_tokens(file="/run/a%20b"), "give the file another name"),
        (client(url="https://i/token?a,b"), "endpoint.url: .* write it as %2C"),
        (client(client_secret="s3cret "), "client.secret: .* drops blanks at the ends"),
        (client(client_id="\tme"), "client.id: .* drops blanks at the ends"),
        (client(scope=" "), "scope: .* drops blanks at the ends"),
        (client(ca="/nowhere/ca.pem"), "/nowhere/ca.pem: is not a PEM file"),
    ],
)
def test_what_javas_client_cannot_do(config: ClusterConfig, says: str) -> None:
    with pytest.raises(SettingError, match=says) as error:
        java_options(config)
    assert "s3cret" not in str(error.value)


def test_the_claim_that_names_the_user() -> None:
    assert subject_claim(token(60, azp="me", sub="admin") + "x") == "sub"
    assert subject_claim(token(60, sub=" ", azp="me") + "x") == "azp"


@pytest.mark.parametrize(
    "text",
    ["opaque", "a.b", "a.b.c", token(60, sub="me"), token(60) + "x", ".e30.x", "e30.e30.x"],
    ids=["no JWT", "two parts", "no claims", "no signature", "no user", "no header", "no end"],
)
def test_a_token_that_javas_client_does_not_take(text: str) -> None:
    with pytest.raises(SettingError, match="takes only signed JWTs") as error:
        subject_claim(text)
    assert text not in str(error.value)
