"""One description of a connection, what each client gets, and tokens for OAUTHBEARER."""

import base64
import json
import socket
import ssl
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trustme
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
    pkcs12,
)
from cryptography.x509 import load_pem_x509_certificate
from hypothesis import given
from hypothesis import strategies as st

from rebal.groups.commands import Command
from rebal.inspectors.connection import translate
from rebal.inspectors.connection.auth import URL, OAuth
from rebal.inspectors.connection.config import ClusterConfig, config_path, parse_servers, resolve
from rebal.inspectors.connection.properties import parse_properties
from rebal.inspectors.connection.translate import (
    admin_cli_options,
    to_confluent,
    to_kafka_python,
    token_of,
)
from rebal.inspectors.errors import ConnectError, SettingError
from rebal.planner.commands import Given
from tests.kafka.tunnel import Issuer, token
from tests.tables import table

PLAIN = (Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
SECRET = "hunter2-s3cret"
OAUTH = ("security.protocol=SASL_SSL", "sasl.mechanism=OAUTHBEARER")
TOKENS = "sasl.oauthbearer.token.endpoint.url"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"


def made(*overrides: str, **more: Any) -> ClusterConfig:
    usual: dict[str, Any] = {"bootstrap": "b:9092", "overrides": overrides, "timeout_ms": 5000}
    return resolve(**{**usual, "command_config": None, "profile": None, "env": {}, **more})


def sasl(*more: str) -> ClusterConfig:
    login = ("sasl.mechanism=SCRAM-SHA-512", "sasl.username=ann", f"sasl.password={SECRET}")
    return made("security.protocol=SASL_SSL", *login, *more)


def test_each_source_of_settings_overrides_those_of_lower_precedence(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    user = tmp_path / "config.yaml"
    file.write_text("bootstrap.servers=file:1\n")
    user.write_text(
        f"profiles:\n  prod:\n    bootstrap.servers: profile:1\n    command-config: {file}\n"
        "  bare:\n    security.protocol: PLAINTEXT\n"
    )
    env = {"REBAL_CONFIG": str(user)}
    with_env = {**env, "REBAL_X_BOOTSTRAP_SERVERS": "x-env:1"}

    def servers(**options: Any) -> str:
        return made(**{"bootstrap": None, "env": env, **options}).bootstrap

    assert servers(command_config=file) == "file:1"
    assert servers(command_config=file, profile="bare") == "file:1"
    assert servers(command_config=file, profile="prod") == "profile:1"
    assert servers(env={**env, "REBAL_COMMAND_CONFIG": str(file)}) == "file:1"
    assert servers(env={**env, "REBAL_PROFILE": "prod"}) == "profile:1"
    assert servers(profile="prod", env=with_env) == "x-env:1"
    assert servers(profile="prod", env={**with_env, "REBAL_BOOTSTRAP": "env:1"}) == "env:1"
    assert servers(env=with_env, overrides=("bootstrap.servers=x:1",)) == "x:1"
    assert servers(env=with_env, overrides=("bootstrap.servers=x:1",), bootstrap="b:1") == "b:1"


def test_a_password_in_the_environment_completes_the_login_in_the_file(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-256\n"
        "group.id=checkout\nkey.deserializer=org.apache.kafka.X\nmax.poll.records=10\n"
        f'sasl.jaas.config={SCRAM} required \\\n  username="a \\\\"n;=" \\\n  password="old";\n'
    )
    config = made(command_config=file, env={"REBAL_X_SASL_PASSWORD": SECRET})
    assert (config.username, config.password) == ('a "n;=', SECRET)
    assert to_confluent(config)["client.id"] == "rebal"


def test_secrets_are_never_shown() -> None:
    config = sasl("ssl.key.password=other-s3cret", f"ssl.ca.pem=-----{SECRET}-----")
    rich = list(config.__rich_repr__())
    for text in (repr(config), str(config), repr(rich), repr(config.ca)):
        assert "s3cret" not in text
    assert "ann" not in repr(config)
    assert config.scrub(f"no property with value {SECRET}!") == "no property with value [secret]!"


def test_confluent_kafka_and_kafka_python_get_the_same_login(tmp_path: Path) -> None:
    config = sasl("ssl.endpoint.identification.algorithm=")
    confluent, python = to_confluent(config), to_kafka_python(config)
    assert confluent["sasl.password"] == python["sasl_plain_password"] == SECRET
    assert confluent["sasl.username"] == python["sasl_plain_username"] == "ann"
    assert confluent["sasl.mechanism"] == python["sasl_mechanism"] == "SCRAM-SHA-512"
    assert confluent["client.id"] == python["client_id"] == "rebal"
    assert confluent["ssl.endpoint.identification.algorithm"] == "none"
    assert python["ssl_context"].check_hostname is False
    assert to_kafka_python(sasl())["ssl_context"].check_hostname is True


def test_a_jks_truststore_is_rejected_unless_a_pem_replaces_it(tmp_path: Path) -> None:
    ca = tmp_path / "ca.pem"
    ca.write_text("x")
    file = tmp_path / "client.properties"
    file.write_text(
        "security.protocol=SSL\nssl.truststore.location=/etc/trust.jks\n"
        "ssl.truststore.password=changeit\n"
    )
    with pytest.raises(SettingError, match=r"only a PEM store .*keytool.*ssl\.ca\.location"):
        made(command_config=file)
    config = made(f"ssl.ca.location={ca}", command_config=file)
    assert to_confluent(config)["ssl.ca.location"] == str(ca)


@pytest.mark.parametrize(("overrides", "words"), table("connection", "rejected"))
def test_an_unusable_setting_is_rejected_by_name(overrides: tuple[str, ...], words: str) -> None:
    with pytest.raises(SettingError) as caught:
        made(*overrides)
    assert words in str(caught.value)
    assert SECRET not in str(caught.value)


def test_a_token_endpoint_is_read_in_javas_and_librdkafkas_spelling(tmp_path: Path) -> None:
    spelled = table("connection", "token_endpoints")
    file = tmp_path / "client.properties"
    file.write_text("\n".join(spelled["java"]))
    java = made(command_config=file)
    librdkafka, newest = made(*spelled["librdkafka"]), made(*spelled["newest"])
    assert java.oauth == librdkafka.oauth == newest.oauth
    assert java.oauth.extensions == (("logicalCluster", "lkc-1"),)
    assert SECRET not in repr(java) + repr(java.oauth)
    assert "OAUTHBEARER" in repr(java)
    assert SECRET not in java.scrub(f"no {SECRET}")
    confluent = to_confluent(java)
    assert callable(confluent["oauth_cb"])
    assert "sasl.username" not in confluent
    held = made(*OAUTH, f"{TOKENS}=file:///run/a%20token").oauth
    assert held.file == "/run/a token"


def test_an_unusable_home_leaves_the_tilde_in_the_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "~")
    with pytest.raises(SettingError, match=r"--profile prod: cannot read ~/.config/rebal/"):
        made(profile="prod", env={})


@pytest.mark.parametrize("password", ["0123", "12_3", "yes", "!!bool no"])
def test_a_profiles_value_is_read_as_text_not_as_a_yaml_type(password: str, tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(
        "profiles: {p: {bootstrap: b, security.protocol: SASL_PLAINTEXT, sasl.mechanism: PLAIN, "
        f"sasl.username: u, sasl.password: {password}}}}}"
    )
    config = made(bootstrap=None, profile="p", env={"REBAL_CONFIG": str(path)})
    assert config.password == password.rsplit(maxsplit=1)[-1]


@pytest.mark.parametrize(("text", "said"), table("connection", "profiles"))
def test_a_profile_that_cannot_be_used_is_named(text: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(text)
    with pytest.raises(SettingError, match=said):
        made(bootstrap=None, profile="prod", env={"REBAL_CONFIG": str(path)})


@pytest.mark.parametrize("password", [None, "store-s3cret"])
def test_pkcs12_keystore_gives_the_chain_and_the_key(tmp_path: Path, password: str | None) -> None:
    authority = trustme.CA().create_child_ca()
    issued = authority.issue_cert("client.example")
    leaf, *chain = (load_pem_x509_certificate(each.bytes()) for each in issued.cert_chain_pems)
    key = load_pem_private_key(issued.private_key_pem.bytes(), None)
    sealed = BestAvailableEncryption(password.encode()) if password else NoEncryption()
    store = tmp_path / "client.p12"
    store.write_bytes(pkcs12.serialize_key_and_certificates(b"me", key, leaf, chain, sealed))
    words = ["security.protocol=SSL", f"ssl.keystore.location={store}"]
    right = [f"ssl.keystore.password={password}"] if password else []
    config = made(*words, *right)
    chained = b"".join(each.bytes() for each in issued.cert_chain_pems)
    assert config.certificate.inline == chained.decode()
    shown = load_pem_private_key(config.key.inline.encode(), None)
    assert shown.private_bytes(*PLAIN) == key.private_bytes(*PLAIN)
    assert to_kafka_python(config)["ssl_context"].check_hostname
    # A later source of the password alone keeps the store.
    file = tmp_path / "client.properties"
    file.write_text("\n".join(words))
    env = {"REBAL_X_SSL_KEYSTORE_PASSWORD": password or ""}
    assert made(command_config=file, env=env).key == config.key
    with pytest.raises(SettingError, match=r"no PKCS12 store that ssl\.keystore\.password opens"):
        made(*words, "ssl.keystore.password=wrong")
    store.write_bytes(pkcs12.serialize_key_and_certificates(b"ca", None, None, chain, sealed))
    with pytest.raises(SettingError, match="holds no key"):
        made(*words, *right)


@pytest.mark.parametrize(
    ("text", "servers"),
    [
        ("a", [("a", 9092)]),
        ("a:1, b:2", [("a", 1), ("b", 2)]),
        ("[::1]:9093,SASL_SSL://c:3", [("::1", 9093), ("c", 3)]),
    ],
)
def test_bootstrap_servers_are_parsed(text: str, servers: list[tuple[str, int]]) -> None:
    assert list(parse_servers(text)) == servers


@pytest.mark.parametrize("text", ["", ",", "a:x", ":9092", "a:0", "a:70000"])
def test_invalid_bootstrap_servers_are_rejected(text: str) -> None:
    with pytest.raises(SettingError):
        parse_servers(text)


@given(st.text(max_size=80))
def test_any_override_is_accepted_or_rejected_with_a_sentence(text: str) -> None:
    rejection = ""
    try:
        made(text)
    except SettingError as error:
        rejection = str(error)
    assert not rejection or rejection.endswith(".")


@pytest.mark.parametrize("address", ["ann:hunter2@h:1", "h:1,ann:hun,ter2@g:2", "SSL://hunter2@h"])
@pytest.mark.parametrize("place", ["-b", "-X", "environment", "REBAL_X", "profile", "file"])
def test_a_login_in_an_address_is_rejected_and_not_repeated(
    place: str, address: str, tmp_path: Path
) -> None:
    file = tmp_path / "client.properties"
    file.write_text(f"bootstrap.servers={address if place == 'file' else 'h:1'}\n")
    user = tmp_path / "config.yaml"
    user.write_text(f"profiles: {{p: {{bootstrap: '{address}'}}}}\n")
    ways: dict[str, dict[str, Any]] = {
        "-b": {"bootstrap": address},
        "-X": {"overrides": (f"bootstrap.servers={address}",)},
        "environment": {"env": {"REBAL_BOOTSTRAP": address}},
        "REBAL_X": {"env": {"REBAL_X_METADATA_BROKER_LIST": address}},
        "profile": {"profile": "p", "env": {"REBAL_CONFIG": str(user)}},
        "file": {"command_config": file},
    }
    with pytest.raises(SettingError, match="an address holds no user name or password") as caught:
        made(**{"bootstrap": None, **ways[place]})
    assert "hunter2" not in str(caught.value)
    assert "ann" not in str(caught.value)


IAM = table("connection", "iam")


def test_the_settings_that_the_msk_iam_message_names_are_accepted_beside_the_iam_file(
    tmp_path: Path,
) -> None:
    file = tmp_path / "client.properties"
    file.write_text("\n".join(IAM))
    with pytest.raises(SettingError, match="AWS_MSK_IAM needs AWS's Java classes") as caught:
        made(bootstrap=None, command_config=file)
    token = tmp_path / "token"
    token.write_text("aHR0cHM6Ly9rYWZrYS5ldS13ZXN0LTEuYW1hem9uYXdzLmNvbS8_\n")
    message = str(caught.value).rstrip(".").replace("file:///PATH", f"file://{token}")
    words = message.split()
    added = [words[at + 1] for at, word in enumerate(words) if word == "-X"]
    config = made(*added, bootstrap=None, command_config=file)
    assert (config.mechanism, config.protocol) == ("OAUTHBEARER", "SASL_SSL")
    assert token_of(config.oauth, 10).value == token.read_text().strip()


@pytest.mark.parametrize("line", IAM[2:])
def test_each_setting_of_msk_iam_gets_the_same_message(line: str) -> None:
    with pytest.raises(SettingError, match=r"sasl\.mechanism: AWS_MSK_IAM needs .* OAUTHBEARER"):
        made("security.protocol=SASL_SSL", line)


def test_xdg_config_home_is_ignored_if_it_is_not_absolute(tmp_path: Path) -> None:
    assert config_path({"XDG_CONFIG_HOME": str(tmp_path)}) == tmp_path / "rebal/config.yaml"
    for base in ("", "SSL://u:secret@host"):
        assert config_path({"XDG_CONFIG_HOME": base}) == Path.home() / ".config/rebal/config.yaml"


@pytest.mark.parametrize(("text", "found"), table("connection", "properties"))
def test_properties_are_read_as_java_reads_them(text: str, found: dict[str, str]) -> None:
    assert parse_properties(text, "f") == found


def test_a_broken_unicode_escape_in_properties_names_its_line() -> None:
    with pytest.raises(SettingError, match=r"f line 3: a .u escape needs four"):
        parse_properties("a=1\n\nb=\\u00", "f")


@given(st.text(max_size=60))
def test_any_properties_are_read_or_rejected(text: str) -> None:
    rejection = "f line"
    try:
        parse_properties(text, "f")
    except SettingError as error:
        rejection = str(error)
    assert rejection.startswith("f line")


LOGIN = ("sasl.mechanism=SCRAM-SHA-512", "sasl.username=ann", "sasl.password=hunter2")


@pytest.fixture
def pem_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("ca.pem", "own.pem", "a=b.pem"):
        Path(name).write_text("x")


@pytest.mark.usefixtures("pem_files")
@pytest.mark.parametrize(("settings", "line"), table("connection", "options"))
def test_connection_settings_become_options_of_kafka_pythons_admin_command(
    settings: tuple[str, ...], line: str
) -> None:
    assert " ".join(admin_cli_options(made(*settings))) == line


@pytest.mark.usefixtures("pem_files")
@pytest.mark.parametrize("settings", table("connection", "no_options"))
def test_a_setting_without_option_gives_no_kafka_python_command(settings: tuple[str, ...]) -> None:
    assert admin_cli_options(made(*settings)) is None
    assert not list(Given(brokers="b:1", client=None).remove_static("g", ["s"]))


def test_the_remove_members_command_takes_its_login_from_variables() -> None:
    client = admin_cli_options(made("security.protocol=SASL_PLAINTEXT", *LOGIN))
    (removal,) = Given(brokers="b:1", client=client).remove_static("$g", ["s 1"])
    assert removal.use == (
        "only if s 1 is gone for good, and with REBAL_X_SASL_USERNAME and REBAL_X_SASL_PASSWORD "
        "set: remove its entry"
    )
    assert removal.line == Command.read(
        "python -m kafka.admin -b b:1 -S SASL_PLAINTEXT -M SCRAM-SHA-512 "
        '-U "$REBAL_X_SASL_USERNAME" -P "$REBAL_X_SASL_PASSWORD" '
        "groups remove-members -g '$g' -i 's 1'"
    )


CLIENT_SECRET = "client s3cret+"


@pytest.fixture
def issuer() -> Iterator[Issuer]:
    with Issuer(60, sub="me") as made:
        yield made


def client(issuer: Issuer, **more: object) -> OAuth:
    fields = {"url": issuer.url, "client_id": "me", "client_secret": CLIENT_SECRET, **more}
    return OAuth(**fields)  # type: ignore[arg-type]


def refused(oauth: OAuth, timeout: float = 5) -> str:
    with pytest.raises(ConnectError) as error:
        translate.token_of(oauth, timeout)
    assert error.value.kind == "token"
    text = str(error.value)
    assert CLIENT_SECRET not in text
    assert text.endswith(".")
    assert "\n" not in text
    return text


def test_an_oauth_token_is_renewed_after_four_fifths_of_its_life(
    issuer: Issuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now)
    oauth = client(issuer)
    first = translate.token_of(oauth, 5)
    assert translate.token_of(oauth, 5) is first
    assert len(issuer.asked) == 1
    assert repr(first) == "Token([secret])"
    monkeypatch.setattr(time, "time", lambda: now + 46)
    assert translate.token_of(oauth, 5) is first
    monkeypatch.setattr(time, "time", lambda: now + 49)
    renewed = translate.token_of(oauth, 5)
    assert renewed.expires > first.expires
    assert len(issuer.asked) == 2
    translate.forget(oauth)
    last = translate.token_of(oauth, 5)
    assert len(issuer.asked) == 3
    # A token must be valid until the operation ends.
    monkeypatch.setattr(time, "time", lambda: last.expires - 19)
    assert translate.token_of(oauth, 18) is last
    assert translate.token_of(oauth, 20) is not last


def test_the_oauth_client_login_is_url_encoded_if_configured(issuer: Issuer) -> None:
    translate.token_of(client(issuer), 5)
    translate.token_of(client(issuer, encode=True, scope="a b"), 5)
    plain, encoded = (
        base64.b64decode(asked["authorization"].removeprefix("Basic ")).decode()
        for asked in issuer.asked
    )
    assert plain == f"me:{CLIENT_SECRET}"
    assert encoded == "me:client+s3cret%2B"
    assert [asked.get("scope") for asked in issuer.asked] == [None, "a b"]


@pytest.mark.parametrize(
    ("body", "seconds"),
    [
        ({"access_token": "opaque", "expires_in": 30}, 30),
        ({"access_token": "opaque"}, 300),
        ({"access_token": "a.b.c", "expires_in": 30}, 30),
    ],
)
def test_an_opaque_token_expires_after_expires_in_or_300_seconds(
    issuer: Issuer, body: dict[str, object], seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now)
    issuer.body = json.dumps(body).encode()
    found = translate.token_of(client(issuer), 5)
    assert found.expires - now == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("status", "body", "words"),
    table("tokens", "no_token"),
)
def test_a_token_endpoints_answer_without_a_token_is_reported_and_not_kept(
    issuer: Issuer, status: int, body: str | None, words: str
) -> None:
    issuer.status, issuer.body = status, body and body.encode()
    assert words in refused(client(issuer))
    issuer.status, issuer.body = 200, None
    assert translate.token_of(client(issuer), 5).value


def test_a_token_that_is_expired_on_arrival_is_rejected(issuer: Issuer) -> None:
    issuer.life = -5
    assert "returned an expired token: compare the clocks" in refused(client(issuer))


def test_the_client_secret_is_never_sent_to_a_redirect_target(issuer: Issuer) -> None:
    with Issuer(60) as other:
        issuer.status, issuer.location = 302, other.url
        assert "(302" in refused(client(issuer))
        assert other.asked == []


def test_an_unreachable_or_silent_token_endpoint_is_reported(issuer: Issuer) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/token"
        assert "did not answer within 0.4 s" in refused(client(issuer, url=url), 0.4)
    assert "cannot reach the token endpoint" in refused(client(issuer, url=url))
    secure = issuer.url.replace("http:", "https:")
    assert "cannot reach the token endpoint" in refused(client(issuer, url=secure))


def test_a_token_endpoint_is_trusted_by_its_certificate_authority_alone(tmp_path: Path) -> None:
    authority, other = trustme.CA(), trustme.CA()
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    for name, each in (("ca", authority), ("other", other)):
        each.cert_pem.write_to_path(str(tmp_path / f"{name}.pem"))
    with Issuer(60, context, sub="me") as issuer:
        assert translate.token_of(client(issuer, ca=str(tmp_path / "ca.pem")), 5).value
        for ca in (str(tmp_path / "other.pem"), None):
            assert "certificate verify failed" in refused(client(issuer, ca=ca))
        (tmp_path / "other.pem").write_text("x")
        text = refused(client(issuer, ca=str(tmp_path / "other.pem")))
        assert "https.ca.location: the file holds no certificate in PEM" in text
        assert len(issuer.asked) == 1


def test_a_token_file_is_read_at_each_login(tmp_path: Path) -> None:
    file = tmp_path / "token"
    oauth = OAuth(file=str(file))
    assert refused(oauth) == f"{URL}: cannot read the token: No such file or directory."
    file.write_text("")
    assert refused(oauth) == f"{URL}: the file contains no token."
    file.write_bytes(b"\xff\x00")
    assert refused(oauth) == f"{URL}: cannot read the token: not UTF-8 text (byte 0)."
    for life in (60, 90):
        text = token(life, sub="me")
        file.write_text(f"{text}\n")
        assert translate.token_of(oauth, 5).value == text
    file.write_text(token(-1, sub="me"))
    assert "replace it" in refused(oauth)
