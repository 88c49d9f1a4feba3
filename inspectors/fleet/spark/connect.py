"""Spark Connect: a session on a server, which reads, runs and stores nothing for this process."""

from __future__ import annotations

import socket
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from rebal.inspectors.errors import SettingError
from rebal.inspectors.fleet.spark.process import (
    SparkError,
    end,
    environment,
    is_loopback,
    require_packages,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_PORT: Final = 15002
_ANSWER_SECONDS: Final = 10
_MODE: Final = "SPARK_CONNECT_MODE_ENABLED"
_NOT_THE_SESSIONS: Final = ("spark.master", "spark.remote")


def active_session() -> SparkSession | None:
    """Return the Spark Connect session that this process has, if any; its client is not loaded."""
    loaded: Any = sys.modules.get("pyspark.sql.connect.session")
    found = None if loaded is None else loaded.SparkSession.getActiveSession()
    return None if found is None or found.is_stopped else found


def require_server(url: str, *, secrets: bool) -> None:
    """Check that the client of Spark Connect is installed and that a server listens at `url`.

    A session that this process has already is not asked.

    Args:
        url: The server's address, `sc://HOST:PORT/;key=value`.
        secrets: Whether passwords and keys will travel to the server.

    Raises:
        SparkError: it is not so.
        SettingError: secrets would travel in plain text.
    """
    require_packages("Spark Connect", ("grpc", "grpc_status", "google.rpc"), "pyspark[connect]")
    if active_session() is not None:
        return
    parts = urlsplit(url)
    try:
        host, port = parts.hostname, parts.port or _PORT
    except ValueError:
        host, port = None, _PORT
    if host is None:
        raise SparkError(f"{_named(url)}: name a host and a port, as in sc://spark-1:{_PORT}.")
    # A token brings TLS.
    named = {word.partition("=")[0].strip() for word in parts.path.split(";")[1:]}
    if secrets and not is_loopback(host) and not named & {"use_ssl", "token"}:
        raise SettingError(
            f"{_named(url)}: the passwords and keys of this scan would travel there "
            "in plain text: end the URL with /;use_ssl=true, or with /;use_ssl=false where a "
            "tunnel or a mesh encrypts the way."
        )
    try:
        socket.create_connection((host, port), _ANSWER_SECONDS).close()
    except OSError as error:
        raise SparkError(
            f"{_named(url)}: no server of Spark Connect answers at {host}:{port} "
            f"({error.strerror or error})."
        ) from None


def _named(url: str) -> str:
    """Return the option that names a server, without the URL's parameters: a token is a secret."""
    return f"--master {url.partition('/;')[0]}"


@contextmanager
def remote_session(
    url: str, defaults: Mapping[str, str], chosen: Sequence[tuple[str, str]]
) -> Iterator[SparkSession]:
    """Yield the session of this process, whose settings it gets back at the end, or a new one.

    `chosen` settings win over `defaults`.

    Raises:
        SparkError: the server does not take the session or a setting.
    """
    ours = active_session()
    # Spark's functions are those for Connect as long as the variable is there.
    with environment(**{_MODE: "1"}):
        session = ours or _new_session(url)
        given = dict(chosen)
        settings = {**defaults, **given}
        names = settings.keys() - set(_NOT_THE_SESSIONS)
        before = {key: session.conf.get(key, None) for key in names}
        try:
            for key in before:
                _set(session, key, settings[key], given=key in given)
            yield session
        finally:
            if ours is None:
                end(session.interruptAll, session.stop)
            else:
                changed = {key: value for key, value in before.items() if value is not None}
                own = [partial(session.conf.unset, key) for key in before.keys() - changed]
                end(*own, *(partial(session.conf.set, *pair) for pair in changed.items()))


def _new_session(url: str) -> SparkSession:
    from pyspark.sql.connect.client.retries import DefaultPolicy
    from pyspark.sql.connect.session import SparkSession as Remote

    try:
        made: Any = Remote.builder.remote(url).create()
        # About a minute; on its own, the client waits for a server ten minutes and says nothing.
        made.client.set_retry_policies([DefaultPolicy(max_retries=9, max_backoff=10_000)])
        made.version  # noqa: B018  # Asks the server, which is not asked before.
    except Exception as error:
        raise SparkError(f"{_named(url)}: {_reason(error)}") from None
    session: SparkSession = made
    return session


def _set(session: SparkSession, key: str, value: str, *, given: bool) -> None:
    try:
        session.conf.set(key, value)
    except Exception:
        if given:
            raise SparkError(
                f"--spark-conf {key}: a session of Spark Connect cannot set it; give it to the "
                "server when it is started."
            ) from None
        # A server that keeps its own value may run the scan all the same.


def _reason(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".") + "."
