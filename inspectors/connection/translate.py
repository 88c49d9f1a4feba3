"""A `ClusterConfig` as the settings of librdkafka and of kafka-python."""

from functools import partial
from typing import Any

from rebal.inspectors.connection.auth import OAuth
from rebal.inspectors.connection.config import CLIENT_ID, ClusterConfig
from rebal.inspectors.connection.tokens import token_of


def to_confluent(config: ClusterConfig) -> dict[str, Any]:
    """Return librdkafka's settings; secrets are in them, so never print them."""
    made: dict[str, Any] = {
        "bootstrap.servers": config.bootstrap,
        "client.id": CLIENT_ID,
        "security.protocol": config.protocol,
        "socket.timeout.ms": max(10, min(config.timeout_ms, 300_000)),
        "socket.connection.setup.timeout.ms": max(1000, min(config.timeout_ms, 60_000)),
        "reconnect.backoff.max.ms": 1000,
    }
    if config.sasl:
        made["sasl.mechanism"] = config.mechanism
        if config.oauth is None:
            made["sasl.username"] = config.username
            made["sasl.password"] = config.password
        else:
            made["oauth_cb"] = partial(_token_for_librdkafka, config.oauth, config.timeout_ms)
    if config.tls:
        made["ssl.endpoint.identification.algorithm"] = (
            "https" if config.verify_hostname else "none"
        )
        for name, pem in (
            ("ca", config.ca),
            ("certificate", config.certificate),
            ("key", config.key),
        ):
            if pem is not None:
                made[f"ssl.{name}.{'location' if pem.file else 'pem'}"] = pem.file or pem.inline
        if config.key_password is not None:
            made["ssl.key.password"] = config.key_password
    return made


def to_kafka_python(config: ClusterConfig) -> dict[str, Any]:
    """Return kafka-python's settings; secrets are in them, so never print them.

    TLS is a ready `ssl_context`. The token source of OAUTHBEARER is not part of the settings.

    Raises:
        SettingError: a PEM that does not load.
    """
    made: dict[str, Any] = {
        "bootstrap_servers": [f"{host}:{port}" for host, port in config.servers],
        "client_id": CLIENT_ID,
        "security_protocol": config.protocol,
        "request_timeout_ms": config.timeout_ms,
    }
    if config.sasl:
        made["sasl_mechanism"] = config.mechanism
        if config.oauth is None:
            made["sasl_plain_username"] = config.username
            made["sasl_plain_password"] = config.password
    if config.tls:
        # Other connections do not wait for the modules of TLS.
        from rebal.inspectors.connection.tls import ssl_context

        made["ssl_context"] = ssl_context(config)
        made["ssl_check_hostname"] = config.verify_hostname
    return made


def words_of(config: ClusterConfig) -> tuple[str, ...] | None:
    """Return the options of kafka-python's own command line, `python -m kafka.admin`.

    They hold neither the brokers' addresses nor the login (`-U`, `-P`); with SASL they name the
    mechanism by `-M`. None where that program has no option for what the connection needs: a token,
    PEM that is not in a file, or a key with a password.
    """
    stores = {
        "ssl_cafile": config.ca,
        "ssl_certfile": config.certificate,
        "ssl_keyfile": config.key,
    }
    files = {name: pem.file for name, pem in stores.items() if pem is not None}
    # It splits NAME=VALUE at each equals sign.
    unnamed = any(file is None or "=" in file for file in files.values())
    if unnamed or config.oauth or config.key_password is not None:
        return None
    words: tuple[str, ...] = () if config.protocol == "PLAINTEXT" else ("-S", config.protocol)
    if config.mechanism is not None:
        words += ("-M", config.mechanism)
    settings = [f"{name}={file}" for name, file in files.items()]
    settings += ["ssl_check_hostname=False"] if config.tls and not config.verify_hostname else []
    return (*words, *(word for setting in settings for word in ("-C", setting)))


def _token_for_librdkafka(
    oauth: OAuth, timeout_ms: int, _: str
) -> tuple[str, float, str, dict[str, str]]:
    """Return the token, its end in seconds since 1970, an unused principal, the extensions."""
    token = token_of(oauth, timeout_ms / 1000)
    return token.value, token.expires, "", dict(oauth.extensions)
