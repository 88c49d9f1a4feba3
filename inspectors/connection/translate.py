"""A `ClusterConfig` as the settings of librdkafka and of kafka-python."""

from __future__ import annotations

import os
import ssl
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

from rebal.inspectors.connection.auth import OAuth
from rebal.inspectors.connection.config import CLIENT_ID, ClusterConfig
from rebal.inspectors.connection.settings import Pem
from rebal.inspectors.connection.tokens import token_of
from rebal.inspectors.errors import SettingError


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
        if config.pkcs12 is not None:
            made["ssl.keystore.location"] = config.pkcs12
            if config.pkcs12_password is not None:
                made["ssl.keystore.password"] = config.pkcs12_password
    return made


def to_kafka_python(config: ClusterConfig) -> dict[str, Any]:
    """Return kafka-python's settings; secrets are in them, so never print them.

    TLS is a ready `ssl_context`. The token source of OAUTHBEARER is not part of the settings.

    Raises:
        SettingError: a PKCS12 keystore (Python's TLS reads PEM only), or a PEM that does not load.
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
        made["ssl_context"] = _ssl_context(config)
        made["ssl_check_hostname"] = config.verify_hostname
    return made


def words_of(config: ClusterConfig) -> tuple[str, ...] | None:
    """Return the options of kafka-python's own command line, `python -m kafka.admin`.

    They hold neither the brokers' addresses nor the login (`-U`, `-P`); with SASL they name the
    mechanism by `-M`. None where that program has no option for what the connection needs: a token,
    a store that is not PEM, PEM that is not in a file, or a key with a password.
    """
    stores = {
        "ssl_cafile": config.ca,
        "ssl_certfile": config.certificate,
        "ssl_keyfile": config.key,
    }
    files = {name: pem.file for name, pem in stores.items() if pem is not None}
    if config.oauth or config.pkcs12 or config.key_password is not None:
        return None
    # It splits NAME=VALUE at each equals sign.
    if any(file is None or "=" in file for file in files.values()):
        return None
    words: tuple[str, ...] = () if config.protocol == "PLAINTEXT" else ("-S", config.protocol)
    if config.mechanism is not None:
        words += ("-M", config.mechanism)
    settings = [f"{name}={file}" for name, file in files.items()]
    if config.tls and not config.verify_hostname:
        settings.append("ssl_check_hostname=False")
    return (*words, *(word for setting in settings for word in ("-C", setting)))


def _token_for_librdkafka(
    oauth: OAuth, timeout_ms: int, _: str
) -> tuple[str, float, str, dict[str, str]]:
    """Return the token, its end in seconds since 1970, an unused principal, the extensions."""
    token = token_of(oauth, timeout_ms / 1000)
    return token.value, token.expires, "", dict(oauth.extensions)


def _ssl_context(config: ClusterConfig) -> ssl.SSLContext:
    if config.pkcs12 is not None:
        raise SettingError(
            "ssl.keystore.type=PKCS12: only librdkafka reads it, and rebal uses kafka-python too. "
            "Convert it: `openssl pkcs12 -in STORE -out client.pem`, then "
            "-X ssl.keystore.type=PEM -X ssl.keystore.location=client.pem."
        )
    context = ssl.create_default_context()
    context.check_hostname = config.verify_hostname
    if config.ca is not None:
        # Trust only this authority, not the system's authorities as well.
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = config.verify_hostname
        try:
            context.load_verify_locations(cafile=config.ca.file, cadata=config.ca.inline)
        except (ssl.SSLError, OSError) as error:
            raise SettingError(
                f"the authority's certificate (PEM) cannot be loaded: {_why(error)}."
            ) from None
    if config.certificate is not None and config.key is not None:
        with ExitStack() as held:
            chain = held.enter_context(_as_file(config.certificate))
            key = held.enter_context(_as_file(config.key))
            try:
                # A password function also prevents OpenSSL from prompting on the terminal.
                context.load_cert_chain(chain, key, lambda: config.key_password or "")
            except (ssl.SSLError, OSError) as error:
                raise SettingError(
                    "the client certificate or its key cannot be loaded: "
                    f"{_why(error)}; check the PEM and ssl.key.password."
                ) from None
    return context


def _why(error: OSError) -> str:
    return getattr(error, "reason", None) or error.strerror or "not PEM"


@contextmanager
def _as_file(pem: Pem) -> Iterator[str]:
    """Yield a path to the PEM, because Python's TLS loads a key only from a path.

    Inline text goes to an anonymous file in memory, never to a disk. Only Linux has such files;
    elsewhere the operator must give a file.
    """
    if pem.file is not None:
        yield pem.file
        return
    if not hasattr(os, "memfd_create"):
        raise SettingError(
            "an inline PEM key needs Linux: put it into a file of your own and name that file "
            "with ssl.keystore.location."
        )
    descriptor = os.memfd_create("rebal-pem", os.MFD_CLOEXEC)
    try:
        os.write(descriptor, (pem.inline or "").encode())
        yield f"/proc/self/fd/{descriptor}"
    finally:
        os.close(descriptor)
