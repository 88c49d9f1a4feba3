"""Kafka's client settings: one spelling for each key, layers merged, values checked."""

import difflib
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from rebal.inspectors.connection import auth
from rebal.inspectors.errors import SettingError
from rebal.inspectors.files import opened

Settings = dict[str, str]

_ALIASES: Final = {
    "sasl.mechanisms": "sasl.mechanism",
    "metadata.broker.list": "bootstrap.servers",
    **auth.OAUTH_ALIASES,
}
_CA: Final = frozenset(
    {"ssl.ca.location", "ssl.ca.pem", "ssl.truststore.location", "ssl.truststore.certificates",
     "ssl.truststore.type", "ssl.truststore.password"}
)  # fmt: skip
_IDENTITY: Final = frozenset(
    {"ssl.certificate.location", "ssl.certificate.pem", "ssl.key.location", "ssl.key.pem",
     "ssl.keystore.location", "ssl.keystore.type", "ssl.keystore.key",
     "ssl.keystore.certificate.chain", "ssl.keystore.password", "ssl.key.password"}
)  # fmt: skip
_PASSWORDS: Final = frozenset(
    {"ssl.truststore.password", "ssl.keystore.password", "ssl.key.password"}
)
KNOWN: Final = _CA | _IDENTITY | auth.OAUTH_KEYS | {
    "sasl.mechanism", "sasl.username", "sasl.password", "sasl.jaas.config", "bootstrap.servers",
    "security.protocol", "ssl.endpoint.identification.algorithm",
}  # fmt: skip
# Client settings without an effect on rebal. Files of real services contain many of them, so they
# are ignored silently.
_IGNORED_NAMES: Final = """
    client.id client.rack client.dns.lookup group.id group.instance.id group.protocol
    group.remote.assignor group.protocol.type partition.assignment.strategy session.timeout.ms
    heartbeat.interval.ms max.poll.interval.ms max.poll.records auto.offset.reset
    auto.commit.interval.ms enable.auto.commit enable.auto.offset.store enable.partition.eof
    isolation.level key.deserializer value.deserializer key.serializer value.serializer
    fetch.min.bytes fetch.max.bytes fetch.max.wait.ms fetch.wait.max.ms max.partition.fetch.bytes
    fetch.message.max.bytes check.crcs allow.auto.create.topics exclude.internal.topics
    internal.leave.group.on.close interceptor.classes metric.reporters metrics.num.samples
    metrics.recording.level metrics.sample.window.ms auto.include.jmx.reporter
    enable.metrics.push default.api.timeout.ms request.timeout.ms retries retry.backoff.ms
    retry.backoff.max.ms reconnect.backoff.ms reconnect.backoff.max.ms connections.max.idle.ms
    receive.buffer.bytes send.buffer.bytes socket.connection.setup.timeout.ms
    socket.connection.setup.timeout.max.ms socket.timeout.ms socket.keepalive.enable
    metadata.max.age.ms metadata.max.idle.ms metadata.recovery.strategy
    metadata.recovery.rebootstrap.trigger.ms topic.metadata.refresh.interval.ms
    statistics.interval.ms log_level acks batch.size linger.ms buffer.memory compression.type
    delivery.timeout.ms enable.idempotence max.block.ms max.in.flight.requests.per.connection
    max.request.size partitioner.class transactional.id transaction.timeout.ms
    queued.max.messages.kbytes queued.min.messages security.providers ssl.protocol
    ssl.enabled.protocols ssl.cipher.suites ssl.provider ssl.secure.random.implementation
    ssl.trustmanager.algorithm ssl.keymanager.algorithm
    sasl.login.connect.timeout.ms sasl.login.read.timeout.ms sasl.login.retry.backoff.ms
    sasl.login.retry.backoff.max.ms sasl.login.refresh.buffer.seconds
    sasl.login.refresh.min.period.seconds sasl.login.refresh.window.factor
    sasl.login.refresh.window.jitter
    """
IGNORED: Final = frozenset(_IGNORED_NAMES.split())
REFUSED: Final = {
    "ssl.engine.factory.class": "Java classes cannot be loaded here",
    "sasl.client.callback.handler.class": "Java classes cannot be loaded here",
    "sasl.login.class": "Java classes cannot be loaded here",
    "sasl.kerberos.service.name": "Kerberos is not supported",
    "sasl.oauthbearer.config": auth.NO_UNSIGNED,
    "enable.sasl.oauthbearer.unsecure.jwt": auth.NO_UNSIGNED,
    "enable.ssl.certificate.verification": (
        "certificates are always checked; give the authority's certificate as ssl.ca.location"
    ),
}
_LARGEST_STORE: Final = 1 << 20
_STORES: Final = dict.fromkeys((".pem", ".crt", ".cer"), "PEM") | dict.fromkeys(
    (".p12", ".pfx"), "PKCS12"
)
_MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", auth.OAUTHBEARER)
_LONGEST: Final = 100
_PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")


class Pem(auth.Secretive, frozen=True):
    """PEM text, inline or in a file; its repr never shows the text."""

    file: str | None = None
    inline: str | None = None

    def __repr__(self) -> str:
        return f"Pem({self.file or 'inline'})"


def layer(raw: Mapping[str, str], where: str) -> Settings:
    """Return the settings `raw` in one spelling per key, without the keys that rebal ignores.

    `where` names their source, such as a file, in error messages.

    Raises:
        SettingError: a key is unknown or not supported, or its value is a placeholder.
    """
    made: Settings = {}
    for raw_key, value in raw.items():
        key = _ALIASES.get(raw_key, raw_key)
        if value.strip().startswith(auth.MSK_IAM_CLASSES):
            # The mechanism that these classes serve is rejected unless another layer replaces it.
            made.setdefault("sasl.mechanism", auth.MSK_IAM)
            continue
        if key in REFUSED:
            raise SettingError(f"{where}: {raw_key} is not supported: {REFUSED[key]}.")
        ours = value.strip().rsplit(".", 1)[-1] in auth.CALLBACK_CLASSES.get(key, ())
        if ours or key in IGNORED or key.startswith(auth.OAUTH_IGNORED):
            continue
        if key in auth.CALLBACK_CLASSES:
            raise SettingError(f"{where}: {raw_key}: Java classes cannot be loaded here.")
        if key not in KNOWN:
            if len(key) > _LONGEST or not re.fullmatch(r"[a-z]+([._-][a-z]+)+", key):
                # It may be a password that was typed without its key.
                raise SettingError(f"{where}: a text (not repeated here) is no known setting.")
            near = difflib.get_close_matches(key, KNOWN, 1, 0.8)
            hint = f"Did you mean {near[0]}?" if near else "Remove it for rebal."
            raise SettingError(f"{where}: the setting {raw_key} is not known. {hint}")
        if value.startswith("${") and value.endswith("}"):
            raise SettingError(
                f"{where}: {raw_key} is a placeholder (${{…}}), which only Java's client replaces; "
                f"set it with REBAL_X_{key.upper().replace('.', '_')} instead."
            )
        made[key] = value
    return made


def merge(layers: Sequence[Settings]) -> Settings:
    """Return all layers as one; a later layer wins.

    A layer that sets a trust store or a client identity replaces all earlier settings of it, for
    example a JKS store by a PEM file. A layer with only a password replaces only the password.
    """
    mechanism = next((m for one in reversed(layers) if (m := one.get("sasl.mechanism"))), None)
    merged: Settings = {}
    for one in layers:
        found = dict(one)
        jaas = found.pop("sasl.jaas.config", None)
        if jaas is not None:
            found = {**auth.parse_jaas(jaas, _mechanism(mechanism) if mechanism else None), **found}
        for group in (_CA, _IDENTITY):
            if found.keys() & (group - _PASSWORDS):
                merged = {key: value for key, value in merged.items() if key not in group}
        merged.update(found)
    return merged


def typed(settings: Settings) -> dict[str, Any]:
    """Return the fields of `ClusterConfig`, except bootstrap and timeout, that `settings` give.

    Raises:
        SettingError: a wrong value, a store that cannot be read, or a missing login.
    """
    protocol = settings.get("security.protocol", "PLAINTEXT").strip().upper()
    if protocol not in _PROTOCOLS:
        raise SettingError(f"security.protocol: expected one of {', '.join(_PROTOCOLS)}.")
    if settings.get("sasl.mechanism") == auth.MSK_IAM and (
        protocol.startswith("SASL_") or "security.protocol" not in settings
    ):
        _mechanism(auth.MSK_IAM)
    made: dict[str, Any] = {"protocol": protocol}
    if protocol.startswith("SASL_"):
        if "sasl.mechanism" not in settings:
            raise SettingError(
                f"security.protocol={protocol} needs sasl.mechanism: {', '.join(_MECHANISMS)}."
            )
        made["mechanism"] = _mechanism(settings["sasl.mechanism"])
        if made["mechanism"] == auth.OAUTHBEARER:
            made["oauth"] = auth.oauth_of(settings)
        for name in ("username", "password") if "oauth" not in made else ():
            if f"sasl.{name}" not in settings:
                raise SettingError(
                    f"sasl.mechanism={made['mechanism']} needs a {name}: set sasl.{name} or "
                    "sasl.jaas.config."
                )
            made[name] = settings[f"sasl.{name}"]
    if protocol.endswith("SSL"):
        made["ca"] = _trust(settings)
        made |= _identity(settings)
        algorithm = settings.get("ssl.endpoint.identification.algorithm", "https").strip().lower()
        if algorithm not in ("https", "", "none"):
            raise SettingError("ssl.endpoint.identification.algorithm: expected https or nothing.")
        made["verify_hostname"] = algorithm == "https"
    return made


def _mechanism(text: str) -> str:
    mechanism = text.strip().upper()
    if mechanism == auth.MSK_IAM:
        raise SettingError(f"sasl.mechanism: {auth.USE_OAUTHBEARER}")
    if mechanism not in _MECHANISMS:
        raise SettingError(
            "sasl.mechanism: use a listener with PLAIN, SCRAM, OAUTHBEARER or mutual TLS; no other "
            "is supported."
        )
    return mechanism


def _pem(settings: Settings, location: str, *inline: str) -> Pem | None:
    """Return the PEM file that the setting `location` names, else an inline PEM.

    The inline PEM is the text of the first setting of `inline` that is set. None: no setting is
    set.
    """
    if settings.get(location):
        return Pem(file=auth.readable(location, settings[location]))
    text = next((settings[key] for key in inline if settings.get(key)), None)
    return None if text is None else Pem(inline=text)


def _store_type(settings: Settings, store: str) -> str:
    """Return the type of `store` (keystore or truststore): PEM, PKCS12 or JKS.

    It is the value of `ssl.STORE.type`, else the type that the file's suffix shows, else JKS, as in
    Java.
    """
    return settings.get(f"ssl.{store}.type", "").strip().upper() or _STORES.get(
        Path(settings.get(f"ssl.{store}.location", "")).suffix.lower(), "JKS"
    )


def _trust(settings: Settings) -> Pem | None:
    pem = _pem(settings, "ssl.ca.location", "ssl.ca.pem", "ssl.truststore.certificates")
    if pem is not None or not settings.get("ssl.truststore.location"):
        return pem
    if _store_type(settings, "truststore") != "PEM":
        raise SettingError(
            "ssl.truststore.location: only a PEM store can be read; export it with `keytool "
            "-exportcert -rfc -keystore STORE -alias … -file ca.pem` and give "
            "-X ssl.ca.location=ca.pem."
        )
    return _pem(settings, "ssl.truststore.location")


def _identity(settings: Settings) -> dict[str, Any]:
    certificate = _pem(
        settings,
        "ssl.certificate.location",
        "ssl.certificate.pem",
        "ssl.keystore.certificate.chain",
    )
    key = _pem(settings, "ssl.key.location", "ssl.key.pem", "ssl.keystore.key")
    location = settings.get("ssl.keystore.location")
    if certificate is None and key is None and location:
        kind = _store_type(settings, "keystore")
        if kind == "PKCS12":
            return _of_pkcs12(
                Path(auth.readable("ssl.keystore.location", location)),
                settings.get("ssl.keystore.password"),
            )
        if kind != "PEM":
            raise SettingError(
                "ssl.keystore.location: only PEM and PKCS12 stores can be read; convert it with "
                "`keytool -importkeystore -srckeystore STORE -destkeystore client.p12 "
                "-deststoretype PKCS12`, and give -X ssl.keystore.type=PKCS12 "
                "-X ssl.keystore.location=client.p12."
            )
        certificate = key = _pem(settings, "ssl.keystore.location")
    if (certificate is None) != (key is None):
        lacking = "ssl.key.location" if key is None else "ssl.certificate.location"
        raise SettingError(f"a client certificate needs its key and chain: {lacking} is not set.")
    return {
        "certificate": certificate,
        "key": key,
        "key_password": settings.get("ssl.key.password"),
    }


def _of_pkcs12(store: Path, password: str | None) -> dict[str, Any]:
    """Return the client certificate with its chain, and its key, from a PKCS12 store, as PEM.

    The keys of the result are `certificate` and `key`, fields of `ClusterConfig`.

    Raises:
        SettingError: the password does not open the store, or a certificate or key is missing.
    """
    # Few connections have such a store, and the library takes as long as a tenth of a start.
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.serialization import (
        Encoding,
        NoEncryption,
        PrivateFormat,
        pkcs12,
    )

    try:
        with opened(store) as file:
            data = file.read(_LARGEST_STORE)
        found = pkcs12.load_pkcs12(data, password.encode() if password else None)
    except (OSError, ValueError, UnsupportedAlgorithm):
        raise SettingError(
            "ssl.keystore.location: it is no PKCS12 store that ssl.keystore.password opens."
        ) from None
    if found.key is None or found.cert is None:
        raise SettingError("ssl.keystore.location: the store holds no key with its certificate.")
    chain = [
        each.certificate.public_bytes(Encoding.PEM)
        for each in (found.cert, *found.additional_certs)
    ]
    return {
        "certificate": Pem(inline=b"".join(chain).decode()),
        "key": Pem(
            inline=found.key.private_bytes(
                Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()
            ).decode()
        ),
    }
