"""TLS: the context of a connection's certificates, and the handshake."""

import os
import socket
import ssl
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from rebal.inspectors.connection.config import ClusterConfig
from rebal.inspectors.connection.settings import Pem
from rebal.inspectors.errors import SettingError, TlsError


def ssl_context(config: ClusterConfig) -> ssl.SSLContext:
    """Return the TLS context for the authority, client certificate and key in `config`.

    Raises:
        SettingError: a PEM that does not load.
    """
    # As Java's client, and unlike Python's default, it takes certificates that are not strictly of
    # RFC 5280, such as those of authorities of one's own.
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = config.verify_hostname
    if config.ca is None:
        context.load_default_certs()
    else:
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


def shake_hands(secure: socket.socket) -> None:
    """Complete the handshake of a TLS socket that is connected.

    Raises:
        TlsError: the handshake failed.
        OSError: the connection failed.
    """
    assert isinstance(secure, ssl.SSLSocket)
    try:
        secure.do_handshake()
    except ssl.SSLError as error:
        raise TlsError(str(error.reason or error), getattr(error, "verify_message", None)) from None


def _why(error: OSError) -> str:
    return getattr(error, "reason", None) or error.strerror or "not PEM"


@contextmanager
def _as_file(pem: Pem) -> Iterator[str]:
    """Yield a path to the PEM, because Python's TLS loads a key only from a path.

    Inline text goes through a pipe, never to a disk. Text longer than the pipe's buffer would be
    cut off, but no PEM is that long.
    """
    if pem.file is not None:
        yield pem.file
        return
    reader, writer = os.pipe()
    try:
        os.set_blocking(writer, False)
        with os.fdopen(writer, "wb", buffering=0) as pipe:
            pipe.write((pem.inline or "").encode())
        yield f"/dev/fd/{reader}"
    finally:
        os.close(reader)
