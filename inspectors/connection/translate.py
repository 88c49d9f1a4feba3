"""A `ClusterConfig` as settings of librdkafka and of kafka-python, and OAUTHBEARER access tokens.

`token_of` returns an access token (OAuth 2), from a file or a token endpoint.
"""

import base64
import json
import re
import threading
import time
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Final

from rebal.inspectors.connection.auth import URL, OAuth, Secretive
from rebal.inspectors.connection.config import CLIENT_ID, ClusterConfig
from rebal.inspectors.errors import ConnectError
from rebal.inspectors.files import read_text

_USED: Final = 0.8
_MOST: Final = 1 << 20
_ASSUMED_LIFE: Final = 300.0


class Token(Secretive, frozen=True):
    """One access token. Never print it.

    `expires`, and `renew` (the time from which another one is requested), are seconds since 1970.
    """

    value: str
    expires: float
    renew: float

    def __repr__(self) -> str:
        return "Token([secret])"


_KEPT: dict[OAuth, Token] = {}
_LOCK: Final = threading.Lock()


def token_of(oauth: OAuth, timeout: float) -> Token:
    """Return an access token from the token file or the token endpoint of `oauth`.

    A token file is read at each call. A token from an endpoint is reused until four fifths of its
    life have passed, as in Java's client, or less than `timeout` seconds of it are left: a token
    that expires during an operation would make the broker close the connection (KIP-368).

    Raises:
        ConnectError: the endpoint or the file gives no valid token within `timeout` seconds.
    """
    if oauth.file is not None:
        return _from_file(oauth.file)
    with _LOCK:
        kept = _KEPT.get(oauth)
        if kept is None or min(kept.renew, kept.expires - timeout) <= time.time():
            kept = _KEPT[oauth] = _from_endpoint(oauth, timeout)
        return kept


def forget(oauth: OAuth) -> None:
    """Drop the kept token of `oauth`, which a broker rejected; the next login requests another."""
    with _LOCK:
        _KEPT.pop(oauth, None)


def _from_file(name: str) -> Token:
    try:
        text = read_text(Path(name), _MOST).strip()
    except OSError as error:
        raise ConnectError(f"{URL}: cannot read the token: {error.strerror}.", "token") from None
    token = _token(text, None, f"{URL}: the file contains no token")
    if token.expires <= time.time():
        at = datetime.fromtimestamp(token.expires, UTC)
        raise ConnectError(f"{URL}: the token expired at {at:%H:%M:%SZ}: replace it.", "token")
    return token


def _from_endpoint(oauth: OAuth, timeout: float) -> Token:
    # The HTTP client is loaded only for logins that need it.
    from rebal.inspectors.connection.endpoint import answer_of

    where = f"the token endpoint ({URL})"
    fields = answer_of(oauth, timeout)
    life = fields.get("expires_in")
    seconds = float(life) if isinstance(life, int | float) and 0 < life < 1e9 else None
    token = _token(fields.get("access_token"), seconds, f"{where} answered without a token")
    if token.expires <= time.time():
        raise ConnectError(f"{where} returned an expired token: compare the clocks.", "token")
    return token


def _token(text: object, life: float | None, problem: str) -> Token:
    # RFC 6750, section 2.1; a SASL message must contain nothing else.
    if not isinstance(text, str) or not re.fullmatch(r"[A-Za-z0-9\-._~+/]+=*", text):
        raise ConnectError(f"{problem}.", "token")
    now = time.time()
    expires = _claimed_end(text) or now + (life or _ASSUMED_LIFE)
    return Token(value=text, expires=expires, renew=now + (expires - now) * _USED)


def _claimed_end(text: str) -> float | None:
    """Return the expiry time (`exp`) of a JWT in seconds since 1970.

    None: the token is no JWT, or has no such time.
    """
    try:
        _, body, _ = text.split(".")
        end = json.loads(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)))["exp"]
    except (ValueError, LookupError, TypeError):
        return None
    return float(end) if isinstance(end, int | float) and 0 < end < 1e11 else None


def to_confluent(config: ClusterConfig) -> dict[str, Any]:
    """Return the connection settings for librdkafka, secrets included; never print them."""
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
    """Return the connection settings for kafka-python, secrets included; never print them.

    For TLS they hold a finished `ssl_context`. They do not hold the token source of OAUTHBEARER.

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


def admin_cli_options(config: ClusterConfig) -> tuple[str, ...] | None:
    """Return the arguments of `python -m kafka.admin` (kafka-python) for this connection.

    They contain the protocol, the SASL mechanism (`-M`) and the PEM files, but neither the brokers'
    addresses nor user name and password (`-U`, `-P`). None: that program cannot connect this way,
    because a token, inline PEM, a path with `=` or a key with a password is needed.
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
    """Return a token for librdkafka's `oauth_cb`.

    The items are the token, its expiry in seconds since 1970, an unused principal, the extensions.
    """
    token = token_of(oauth, timeout_ms / 1000)
    return token.value, token.expires, "", dict(oauth.extensions)
