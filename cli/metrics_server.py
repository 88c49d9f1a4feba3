"""Metrics over HTTP, for Prometheus to scrape: one request after the other, in the main thread.

So Ctrl-C ends it at once, and no two requests read the lake at the same time.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NoReturn
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from rebal.cli.errors import ListenError, UsageError

if TYPE_CHECKING:
    from prometheus_client.registry import Collector

_LOOPBACK: Final = "127.0.0.1"
_SECONDS: Final = 2.0


class _Handler(WSGIRequestHandler):
    """A connection that is closed if its request does not arrive in time, and never logged."""

    timeout = _SECONDS

    def log_message(self, *args: object) -> None:
        """Log nothing."""


class _Server(WSGIServer):
    """A server on an address of either family."""

    def __init__(self, family: socket.AddressFamily, address: tuple[str, int]) -> None:
        self.address_family = family
        super().__init__(address, _Handler)

    def server_bind(self) -> None:
        """Bind without looking the host's name up, which can take long."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = str(self.server_address[0]), self.server_address[1]
        self.setup_environ()

    def handle_error(self, request: object, client_address: object) -> None:
        """Drop a connection that broke off; the next request is answered."""


def serve(address: tuple[str, int], collector: Collector, ready: Callable[[str], None]) -> NoReturn:
    """Answer requests until Ctrl-C; `ready` gets the URL once the port is open.

    Any path but /favicon.ico gives the metrics: OpenMetrics, or Prometheus's text format to those
    who do not ask for it.

    Raises:
        ListenError: the port is in use or not allowed, or the host is not one of this machine.
    """
    from prometheus_client import CollectorRegistry, make_wsgi_app

    host, port = address
    registry = CollectorRegistry(auto_describe=False)
    registry.register(collector)
    named = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    try:
        family, *_, found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        server = _Server(family, (str(found[0]), int(found[1])))
    except OSError as error:
        why = (error.strerror or str(error)).lower()
        raise ListenError(f"--listen {named}: cannot listen there: {why}.") from None
    with server:
        server.set_app(make_wsgi_app(registry))
        ready(f"http://{named.rpartition(':')[0]}:{server.server_port}/metrics")
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
