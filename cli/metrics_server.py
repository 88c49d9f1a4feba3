"""Metrics over HTTP, for Prometheus to scrape: one request after the other, in the main thread.

So Ctrl-C ends it at once, and no two requests read the lake at the same time.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from http.server import HTTPServer
from socket import SOCK_STREAM, AddressFamily, getaddrinfo, socket
from socketserver import TCPServer
from typing import TYPE_CHECKING, Final, NoReturn

from rebal.cli.errors import UsageError
from rebal.cli.output import say
from rebal.groups.errors import RebalError

if TYPE_CHECKING:
    from prometheus_client import MetricsHandler
    from prometheus_client.registry import Collector

_LOOPBACK: Final = "127.0.0.1"
_SECONDS: Final = 2.0


class _Server(HTTPServer):
    """A server on an address of either family."""

    def __init__(
        self, family: AddressFamily, address: tuple[str, int], handler: type[MetricsHandler]
    ) -> None:
        self.address_family = family
        super().__init__(address, handler)

    def server_bind(self) -> None:
        """Bind without looking the host's name up, which can take long."""
        TCPServer.server_bind(self)

    def get_request(self) -> tuple[socket, tuple[str, int]]:
        """Accept a connection, which is closed if its request does not arrive in time."""
        connection, address = super().get_request()
        connection.settimeout(_SECONDS)
        return connection, address

    def handle_error(self, *_: object) -> None:
        """Drop a connection that broke off; the next request is answered."""
        error = sys.exception()
        if not isinstance(error, OSError):
            say(f"a request for the metrics failed: {error}")


def serve(address: tuple[str, int], collector: Collector, ready: Callable[[str], None]) -> NoReturn:
    """Answer requests until Ctrl-C; `ready` gets the URL once the port is open.

    Any path gives the metrics: OpenMetrics, or Prometheus's text format to those who do not ask for
    it.

    Raises:
        RebalError: the port is in use or not allowed, or the host is not one of this machine.
    """
    from prometheus_client import CollectorRegistry, MetricsHandler

    host, port = address
    registry = CollectorRegistry(auto_describe=False)
    registry.register(collector)
    named = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    try:
        family, *_, found = getaddrinfo(host, port, type=SOCK_STREAM)[0]
        answering = MetricsHandler.factory(registry)
        server = _Server(family, (str(found[0]), int(found[1])), answering)
    except UnicodeError:
        raise RebalError(f"--listen {named}: cannot listen there: it is no host name.") from None
    except OSError as error:
        why = (error.strerror or str(error)).lower()
        raise RebalError(f"--listen {named}: cannot listen there: {why}.") from None
    with server:
        ready(f"http://{named.rpartition(':')[0]}:{server.server_address[1]}/metrics")
        server.serve_forever()
    raise AssertionError("nothing shuts the server down")


def address_of(listen: str) -> tuple[str, int]:
    """Return the host and port of `HOST:PORT`, `[HOST]:PORT`, `:PORT` or `PORT`.

    Without a host it is loopback.

    Raises:
        UsageError: it is none of them.
    """
    host, colon, port = listen.rpartition(":")
    if colon and host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        host = ""
        port = ""
    if not (port.isascii() and port.isdigit() and int(port) <= 65535):
        raise UsageError(
            f"--listen {listen}: expected HOST:PORT or PORT, such as {_LOOPBACK}:9464."
        )
    return host or _LOOPBACK, int(port)
