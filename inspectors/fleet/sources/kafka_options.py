"""ClusterConfig as Java's Kafka client spells it: options of Spark's Kafka source.

PEM files are read here and go along as text, so executors need no file. A token's file is the
exception: Java's client reads it itself, wherever it runs.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from rebal.inspectors.connection.auth import CLIENT, SCOPE, SECRET, URL, OAuth
from rebal.inspectors.connection.config import ClusterConfig
from rebal.inspectors.connection.settings import Pem
from rebal.inspectors.connection.tokens import claims_of
from rebal.inspectors.errors import SettingError
from rebal.inspectors.files import read_text

_MODULES: Final = "org.apache.kafka.common.security"
# What RFC 3986 lets stand in a path; a comma would end the address in a list of allowed ones.
_PLAIN: Final = "/:@!$&'()*+;="
_INSTEAD: Final = "use PLAIN, SCRAM or a certificate for it, or read captured records (--offsets)"
_KEY: Final = re.compile(
    r"-----BEGIN (?:ENCRYPTED )?PRIVATE KEY-----.*?-----END [A-Z ]*-----", re.DOTALL
)
_CERTIFICATE: Final = re.compile(
    r"-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----", re.DOTALL
)


def java_options(config: ClusterConfig, subject: str | None = None) -> dict[str, str]:
    """Return the connection as options of Spark's Kafka source, with secrets: never print it.

    `subject` is what `subject_claim` gives for a token of OAUTHBEARER.

    Raises:
        SettingError: something that Java's client cannot use.
    """
    made: dict[str, Any] = {
        "bootstrap.servers": config.bootstrap,
        "client.id": "rebal",
        "security.protocol": config.protocol,
        "isolation.level": "read_committed",
        "exclude.internal.topics": "false",
        "request.timeout.ms": _wait(config),
        "default.api.timeout.ms": _wait(config),
    }
    if config.sasl:
        made["sasl.mechanism"] = config.mechanism
        if config.oauth is not None:
            made |= _tokens(config.oauth, _wait(config), subject)
        else:
            module = "plain.Plain" if config.mechanism == "PLAIN" else "scram.Scram"
            login = {"username": config.username or "", "password": config.password or ""}
            made["sasl.jaas.config"] = _jaas(module, login)
    if config.tls:
        made["ssl.endpoint.identification.algorithm"] = "https" if config.verify_hostname else ""
        made |= _stores(config)
    return {f"kafka.{name}": str(value) for name, value in made.items() if value is not None}


def token_address(config: ClusterConfig) -> str | None:
    """Return the address of the tokens that Java's client uses; None without OAUTHBEARER.

    Raises:
        SettingError: an address that Java's client cannot use.
    """
    return _address(config.oauth) if config.oauth is not None else None


def subject_claim(token: str) -> str:
    """Return the claim that names the user of `token`: Java's client takes none without one.

    It looks for `sub` unless told otherwise, and issuers have claims of their own.

    Raises:
        SettingError: the token is not a signed JWT with an end and a user.
    """
    claims = claims_of(token)
    texts = [name for name, value in claims.items() if isinstance(value, str) and value.strip()]
    if not all(token.split(".")) or not isinstance(claims.get("exp"), int | float) or not texts:
        raise SettingError(
            "a fleet scan reads with Java's client, which takes only signed JWTs that name their "
            f"end (exp) and a user (sub), and this token is none: {_INSTEAD}."
        )
    return "sub" if "sub" in texts else texts[0]


def no_token(oauth: OAuth) -> str:
    """Why Java's client may have no good token where there was one before, in a sentence."""
    if oauth.file is not None:
        return (
            f"Spark's Kafka client could not log in with the token of {URL}: it reads the file "
            "once, so it must be there on all machines of Spark, with a token that outlasts the "
            "scan."
        )
    return (
        f"Spark's Kafka client could not log in with a token of {URL}, and rebal just did: "
        "the endpoint has stopped or rejects logins now, Java does not trust its certificate (set "
        "https.ca.location), or Java needs a proxy (set spark.driver.extraJavaOptions)."
    )


def _tokens(oauth: OAuth, wait: int, subject: str | None) -> Mapping[str, Any]:
    login: dict[str, str] = {}
    for name, key, value in (
        ("clientId", CLIENT, oauth.client_id),
        ("clientSecret", SECRET, oauth.client_secret),
        ("scope", SCOPE, oauth.scope),
    ):
        if value is None:
            continue
        if value != value.strip():
            raise SettingError(
                f"{key}: a fleet scan reads with Java's client, which drops blanks at the ends: "
                f"take them away if they are a mistake; else {_INSTEAD}."
            )
        login[name] = value
    login |= {f"extension_{name}": value for name, value in oauth.extensions}
    if oauth.ca is not None:
        login["ssl.truststore.type"] = "PEM"
        login["ssl.truststore.certificates"] = _text(Pem(file=oauth.ca))
    return {
        "sasl.jaas.config": _jaas("oauthbearer.OAuthBearer", login),
        "sasl.login.callback.handler.class": (
            f"{_MODULES}.oauthbearer.OAuthBearerLoginCallbackHandler"
        ),
        URL: _address(oauth),
        "sasl.oauthbearer.header.urlencode": "true" if oauth.encode else None,
        "sasl.oauthbearer.sub.claim.name": subject,
        # Without them it waits for an endpoint for ever.
        "sasl.login.connect.timeout.ms": wait,
        "sasl.login.read.timeout.ms": wait,
        "sasl.login.retry.backoff.max.ms": wait,
    }


def _address(oauth: OAuth) -> str:
    if oauth.file is None:
        if "," in (oauth.url or ""):
            raise SettingError(
                f"{URL}: a fleet scan reads with Java's client, which takes no address with a "
                "comma: write it as %2C."
            )
        return oauth.url or ""
    path = os.path.abspath(oauth.file)
    # Java's client takes the path from the address as it stands there, and decodes nothing.
    if quote(path, safe=_PLAIN) != path:
        raise SettingError(
            f"{path}: a fleet scan reads with Java's client, which finds no token in a file whose "
            "path has blanks, commas or such: give the file another name, or link to it by one."
        )
    return f"file://{path}"


def _jaas(module: str, options: Mapping[str, str]) -> str:
    """Return a JAAS line as Kafka's own parser (Java's StreamTokenizer) reads it."""
    words = "".join(f" {name}={_quoted(value)}" for name, value in options.items())
    return f"{_MODULES}.{module}LoginModule required{words};"


def _quoted(value: str) -> str:
    for plain, escaped in (("\\", "\\\\"), ('"', '\\"'), ("\n", "\\n"), ("\r", "\\r")):
        value = value.replace(plain, escaped)
    return f'"{value}"'


def _wait(config: ClusterConfig) -> int:
    return max(1000, config.timeout_ms)


def _stores(config: ClusterConfig) -> Mapping[str, Any]:
    made: dict[str, Any] = {}
    if config.ca is not None:
        made["ssl.truststore.type"] = "PEM"
        made["ssl.truststore.certificates"] = _text(config.ca)
    if config.certificate is not None and config.key is not None:
        keys = _KEY.findall(_text(config.key))
        if not keys:
            raise SettingError(
                "the client's key: Java's client reads PKCS #8 only; convert it with "
                "`openssl pkcs8 -topk8 -in client.key -out client-pkcs8.key`."
            )
        made["ssl.keystore.type"] = "PEM"
        made["ssl.keystore.key"] = keys[0]
        made["ssl.keystore.certificate.chain"] = "\n".join(
            _CERTIFICATE.findall(_text(config.certificate))
        )
        made["ssl.key.password"] = config.key_password
    return made


def _text(pem: Pem) -> str:
    if pem.inline is not None:
        return pem.inline
    try:
        return read_text(Path(pem.file or ""))
    except OSError:
        raise SettingError(f"{pem.file}: is not a PEM file that can be read.") from None
