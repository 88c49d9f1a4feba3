"""A real S3 server on loopback for one test: versitygw over a folder, built from its Go module."""

from __future__ import annotations

import secrets
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from tests.kafka import clients
from tests.kafka.broker import free_ports
from tests.kafka.processes import ChildProcess, wait_for

_SOURCE: Final = Path(clients.__file__).parent / "s3"
_PACKAGE: Final = "github.com/versity/versitygw/cmd/versitygw"
BUCKET: Final = "lakes"


class Store(NamedTuple):
    """A running server: `options` are delta-rs's names, `folder` has the bucket's files."""

    options: Mapping[str, str]
    folder: Path

    def url(self, name: str) -> str:
        """The address of a lake in the bucket."""
        return f"s3://{BUCKET}/{name}"

    @property
    def words(self) -> list[str]:
        """The options of `rebal fleet scan`."""
        pairs = (f"{key}={value}" for key, value in self.options.items())
        return [word for pair in pairs for word in ("--lake-option", pair)]


@contextmanager
def object_store(folder: Path) -> Iterator[Store]:
    """The server, with one bucket in it."""
    (folder / "files" / BUCKET).mkdir(parents=True)
    (port,) = free_ports(1)
    key, secret = "rebal-tests", secrets.token_hex(16)
    program = clients.go_program(_SOURCE, _PACKAGE)
    command = [str(program), "--port", f"127.0.0.1:{port}", "posix", str(folder / "files")]
    env = {"ROOT_ACCESS_KEY": key, "ROOT_SECRET_KEY": secret, "HOME": str(folder)}
    child = ChildProcess("versitygw", command, folder / "versitygw.log", env=env)
    try:
        wait_for("the S3 server", lambda: _answers(port), timeout=30, involved=lambda: [child])
        options = {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
            "AWS_ACCESS_KEY_ID": key,
            "AWS_SECRET_ACCESS_KEY": secret,
            "AWS_REGION": "us-east-1",
            "AWS_ALLOW_HTTP": "true",
        }
        yield Store(options, folder / "files" / BUCKET)
    finally:
        child.terminate()


def _answers(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return False
    return True
