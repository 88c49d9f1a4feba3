"""Real stores on loopback for one test module, each with one place for lakes.

S3 is versitygw over a folder; Azure is Azurite; Google's is fake-gcs-server (kafka/gcs says what is
added to it); HDFS is Hadoop's own NameNode and DataNode.
"""

import base64
import json
import os
import secrets
import socket
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from pyarrow import fs

from rebal.inspectors.fleet.lake.place import LakeError, LakePlace, find_place
from tests.kafka import clients, jars
from tests.kafka.broker import ChildProcess, free_ports, wait_for

_KAFKA: Final = Path(clients.__file__).parent
_VERSITYGW: Final = "github.com/versity/versitygw/cmd/versitygw"
_AZURITE: Final = "node_modules/azurite/dist/src/blob/main.js"
_HADOOP: Final = "hadoop-3.4.1"
_LAKES: Final = "lakes"
_NOBODY: Final = "http://127.0.0.1:9"
_ONE: Final = r".+ \(http://127\.0\.0\.1:[0-9]+\)\."
_MISSING: Final = r"Error performing .+: 404 Not Found \(http://127\.0\.0\.1:[0-9]+\)\."
_DOWN: Final = r"error sending request.* \(http://127\.0\.0\.1:9\)\."
_SECONDS: Final = 60


class Refused(NamedTuple):
    """A base, options and variables with which nothing can be written; what is said (a regex)."""

    base: str
    options: Mapping[str, str]
    environment: Mapping[str, str]
    says: str


class Store(NamedTuple):
    """A running server: `options` are delta-rs's names, `base` is where lakes can be.

    `configured` is a HADOOP_CONF_DIR that says what the options say.
    """

    base: str
    options: Mapping[str, str]
    refused: tuple[Refused, ...]
    configured: Path | None = None

    def url(self, name: str) -> str:
        """The address of a lake."""
        return f"{self.base}/{name}"

    @property
    def words(self) -> list[str]:
        """The options of `rebal fleet scan`."""
        pairs = (f"{key}={value}" for key, value in self.options.items())
        return [word for pair in pairs for word in ("--lake-option", pair)]


@contextmanager
def s3_store(folder: Path) -> Iterator[Store]:
    """An S3 server with one bucket."""
    (folder / "files" / _LAKES).mkdir(parents=True)
    (port,) = free_ports(1)
    key, secret = "rebal-tests", secrets.token_hex(16)
    program = str(clients.go_program(_KAFKA / "s3", _VERSITYGW))
    command = [program, "--port", f"127.0.0.1:{port}", "posix", str(folder / "files")]
    env = {"ROOT_ACCESS_KEY": key, "ROOT_SECRET_KEY": secret, "HOME": str(folder)}
    options = {
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
        "AWS_ACCESS_KEY_ID": key,
        "AWS_SECRET_ACCESS_KEY": secret,
        "AWS_REGION": "us-east-1",
        "AWS_ALLOW_HTTP": "true",
    }
    with _serving("versitygw", command, folder, port, env):
        base = f"s3://{_LAKES}"
        wrong = {**options, "AWS_SECRET_ACCESS_KEY": "wrong"}
        refused = (
            Refused(base, wrong, {}, f"403 Forbidden: SignatureDoesNotMatch: {_ONE}"),
            Refused("s3://no-such-bucket", options, {}, f"404 Not Found: NoSuchBucket: {_ONE}"),
            Refused(base, {**options, "AWS_ENDPOINT_URL": _NOBODY}, {}, _DOWN),
        )
        yield Store(base, options, refused)


@contextmanager
def azure_store(folder: Path) -> Iterator[Store]:
    """A server of Azure's blobs with one container."""
    (port,) = free_ports(1)
    account, key = "rebaltests", _key()
    command = clients.node_program(_KAFKA / "azure", _AZURITE)
    command += ["--blobHost", "127.0.0.1", "--blobPort", str(port), "--location", str(folder)]
    command += ["--skipApiVersionCheck", "--silent", "--disableTelemetry"]
    env = {**os.environ, "AZURITE_ACCOUNTS": f"{account}:{key}"}
    options = {
        "AZURE_STORAGE_ACCOUNT_NAME": account,
        "AZURE_STORAGE_ACCOUNT_KEY": key,
        "AZURE_STORAGE_ENDPOINT": f"http://127.0.0.1:{port}/{account}",
        "AZURE_ALLOW_HTTP": "true",
    }
    with _serving("azurite", command, folder, port, env):
        host = f"127.0.0.1:{port}"
        made = fs.AzureFileSystem(
            account_name=account,
            account_key=key,
            blob_storage_authority=host,
            blob_storage_scheme="http",
            dfs_storage_authority=host,
            dfs_storage_scheme="http",
        )
        made.create_dir(_LAKES)
        base, other = (
            f"abfss://{name}@{account}.dfs.core.windows.net" for name in (_LAKES, "no-such-bucket")
        )
        wrong = {**options, "AZURE_STORAGE_ACCOUNT_KEY": _key()}
        nowhere = {**options, "AZURE_STORAGE_ENDPOINT": f"{_NOBODY}/{account}"}
        refused = (
            Refused(base, wrong, {}, f"403 Forbidden: AuthorizationFailure: {_ONE}"),
            Refused(other, options, {}, f"404 Not Found: ContainerNotFound: {_ONE}"),
            Refused(base, nowhere, {}, _DOWN),
        )
        yield Store(base, options, refused)


@contextmanager
def google_store(folder: Path) -> Iterator[Store]:
    """A server of Google Cloud Storage with one bucket; it asks nobody who they are."""
    (port,) = free_ports(1)
    command = [str(clients.go_program(_KAFKA / "gcs")), str(port), _LAKES]
    with _serving("gcs", command, folder, port, {}):
        options = _google_account(f"http://127.0.0.1:{port}")
        refused = (
            Refused("gs://no-such-bucket", options, {}, _MISSING),
            Refused(f"gs://{_LAKES}", _google_account(_NOBODY), {}, _DOWN),
        )
        yield Store(f"gs://{_LAKES}", options, refused)


def _google_account(url: str) -> dict[str, str]:
    names = ("client_email", "private_key", "private_key_id")
    account = {**dict.fromkeys(names, ""), "gcs_base_url": url, "disable_oauth": True}
    return {"GOOGLE_SERVICE_ACCOUNT_KEY": json.dumps(account)}


@contextmanager
def hdfs_store(folder: Path) -> Iterator[Store]:
    """A NameNode and a DataNode, known by a logical name."""
    java = jars.tool("java")
    assert java, "the live tests have Java"
    port, *others = free_ports(5)
    pages, data, data_pages, ipc = (f"127.0.0.1:{other}" for other in others)
    server = {
        "dfs.namenode.name.dir": f"file://{folder}/name",
        "dfs.datanode.data.dir": f"file://{folder}/data",
        "dfs.namenode.http-address": pages,
        "dfs.datanode.address": data,
        "dfs.datanode.http.address": data_pages,
        "dfs.datanode.ipc.address": ipc,
        "dfs.replication": "1",
    }
    address = f"dfs.namenode.rpc-address.{_LAKES}.nn1"
    client = {f"dfs.ha.namenodes.{_LAKES}": "nn1", address: f"127.0.0.1:{port}"}
    _configure(folder / "server", {"fs.defaultFS": f"hdfs://127.0.0.1:{port}"}, server)
    _configure(folder / "client", {"fs.defaultFS": f"hdfs://{_LAKES}"}, client)
    classpath = f"{folder / 'server'}:{jars.classpath(_HADOOP)}"
    run = [java, "-Xmx256m", f"-Djava.io.tmpdir={folder}", "-cp", classpath]
    node = "org.apache.hadoop.hdfs.server"
    name_node = [*run, f"{node}.namenode.NameNode"]
    data_node = [*run, f"{node}.datanode.DataNode"]
    env = dict(os.environ)
    subprocess.run(
        [*name_node, "-format", "-nonInteractive"], capture_output=True, check=True, env=env
    )
    base = f"hdfs://{_LAKES}/lakes"
    with (
        _serving("namenode", name_node, folder, port, env),
        _serving("datanode", data_node, folder, others[1], env),
    ):
        # A NameNode takes files once a DataNode has told it of itself.
        place = find_place(f"{base}/first", client)
        wait_for("a DataNode", lambda: _takes_files(place), timeout=_SECONDS, every=0.5)
        nowhere = {**client, address: _NOBODY.removeprefix("http://")}
        denied = "RPC error: Permission denied: user=nobody, access=WRITE, inode=.+"
        refused = (
            Refused(base, client, {"HADOOP_USER_NAME": "nobody"}, denied),
            Refused(base, {}, {}, "invalid argument: No NameNode hosts found\\."),
            Refused(base, nowhere, {}, "IO error .+ Connection refused .+"),
        )
        yield Store(base, client, refused, folder / "client")


STORES: Final[Mapping[str, Callable[[Path], AbstractContextManager[Store]]]] = {
    "s3": s3_store,
    "abfss": azure_store,
    "gs": google_store,
    "hdfs": hdfs_store,
}


def prepare(say: Callable[[str], None]) -> None:
    """Build and install the servers; quick when they are there."""
    say(f"making the object stores in {jars.cache_dir()}")
    clients.go_program(_KAFKA / "s3", _VERSITYGW)
    clients.go_program(_KAFKA / "gcs")
    clients.node_program(_KAFKA / "azure", _AZURITE)


@contextmanager
def _serving(
    name: str, command: list[str], folder: Path, port: int, env: dict[str, str]
) -> Iterator[ChildProcess]:
    child = ChildProcess(name, command, folder / f"{name}.log", env=env)
    try:
        wait_for(name, lambda: _answers(port), timeout=_SECONDS, involved=lambda: [child])
        yield child
    finally:
        child.terminate()


def _answers(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return False
    return True


def _takes_files(place: LakePlace) -> bool:
    try:
        place.probe("probe")
    except LakeError:
        return False
    return True


def _configure(folder: Path, core: Mapping[str, str], hdfs: Mapping[str, str]) -> None:
    folder.mkdir()
    for name, settings in (("core-site.xml", core), ("hdfs-site.xml", hdfs)):
        lines = (
            f"<property><name>{key}</name><value>{value}</value></property>"
            for key, value in settings.items()
        )
        text = "\n".join(["<configuration>", *lines, "</configuration>"])
        (folder / name).write_text(text)


def _key() -> str:
    return base64.b64encode(secrets.token_bytes(64)).decode()
