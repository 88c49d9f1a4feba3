"""The Spark session of a scan, with little output, and on loopback unless a master is named.

Sessions are made in this module only. It also has the checks of the process and the machine, and
the sentences for errors.

Local Spark needs only Java 17 or newer and the extra `fleet`. The JVM's output goes to a file that
is shown only if Spark does not start (REBAL_DEBUG=1 leaves it on stderr). A Spark Connect session
runs the scan on a server, and this process starts no JVM.
"""

from __future__ import annotations

import contextlib
import importlib
import logging
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import msgspec

from rebal.groups.errors import RebalError
from rebal.groups.model import Record
from rebal.inspectors.errors import SettingError
from rebal.inspectors.fleet.spark.tasks import run_daemon, ship

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SECRETS: Final = (
    "(?i)secret|password|token|jaas|keystore|credential|sas[._]|(?:access|account)[._]?key"
)
_SQL: Final = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.ansi.enabled": "false",
    # Records of group metadata are large: the default of 10,000 rows could be 1 GB.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "4000",
    "spark.sql.execution.arrow.maxBytesPerBatch": "16777216",
}
# Tasks take and give back large buffers all the time. An allocator that hands them to the system
# gets them back zeroed, page by page: a tenth of the tasks' time. mimalloc (Arrow's) and glibc keep
# them if told to, and glibc asks for huge pages. One task has one core: numpy needs no threads.
_WORKERS: Final = {
    "spark.executorEnv.ARROW_DEFAULT_MEMORY_POOL": "mimalloc",
    "spark.executorEnv.MIMALLOC_PURGE_DELAY": "-1",
    "spark.executorEnv.GLIBC_TUNABLES": (
        "glibc.malloc.hugetlb=1:glibc.malloc.trim_threshold=2147483647:"
        "glibc.malloc.mmap_threshold=2147483647"
    ),
    "spark.executorEnv.OPENBLAS_NUM_THREADS": "1",
}
# The JVM of a scan is young as long as it lives: compiling at once and simply halves its CPU until
# the tables of small inputs are there. Fully warm, what passes through it takes a fifth more: the
# Kafka source, request logs. With a log of 1 GB that has not yet made up for the start.
_YOUNG_JVM: Final = "-XX:TieredStopAtLevel=1"
_DRIVER: Final = "spark.driver.extraJavaOptions"
_PORT: Final = 15002
_ANSWER_SECONDS: Final = 10
OLDEST_JAVA: Final = 17
_STOP_SECONDS: Final = 20
_LONGEST: Final = 300
_KNOWN: Final[Sequence[tuple[tuple[str, ...], str]]] = (
    (
        ("Python worker exited unexpectedly",),
        "the Python process of a task was killed or crashed, perhaps for lack of memory: scan "
        "again with fewer tasks at once (--master local[1]), or where more memory is free.",
    ),
    (
        ("while reading the port number",),
        "Spark's Python process did not start: REBAL_DEBUG=1 shows what it said.",
    ),
    (
        ("RETRIES_EXCEEDED",),
        "the server of Spark Connect no longer answers: scan again once it does.",
    ),
    (
        ("no such file; check the path",),
        "a file is not there for Spark: name paths that all executors can see.",
    ),
    (
        ("PYTHON_VERSION_MISMATCH",),
        "the executors run another Python than this one: name the right one with PYSPARK_PYTHON.",
    ),
    (
        ("No space left on device",),
        "the disk is full: make room in --out, or name another folder for Spark's own files with "
        "--spark-conf spark.local.dir=DIR.",
    ),
    (
        ("OutOfMemoryError", "Java heap space"),
        "Spark ran out of memory: give it more with --spark-conf spark.driver.memory=4g.",
    ),
)


class SparkError(RebalError):
    """Error when Spark cannot start or a job fails; one sentence says why."""


def failed_job(text: str) -> str:
    """Return in a sentence why a job failed; `text` is Spark's error, with Java's causes."""
    for signs, words in _KNOWN:
        if any(sign in text for sign in signs):
            return words
    lines = text.splitlines()
    for line in lines:
        # A task's own sentence.
        if line.startswith("rebal."):
            return line.split(": ", 1)[-1]
    causes = [
        line.strip().removeprefix("Caused by: ")
        for line in lines
        if line.startswith(("Caused by:", "pyarrow.", "ModuleNotFoundError", "ImportError"))
    ]
    reason = (causes or [lines[0]])[-1].rstrip(".")
    reason = reason if len(reason) <= _LONGEST else f"{reason[:_LONGEST]} …"
    return f"the Spark job failed: {reason}; REBAL_DEBUG=1 shows all that it said."


def start_error(error: Exception, log: str) -> SparkError:
    """Return the error that says why Spark did not start.

    `error` is the exception that was raised here, and `log` is what the JVM printed.
    """
    if "All masters are unresponsive" in log:
        return SparkError(
            "no Spark master answers: check the address in --master, and the way to its port."
        )
    said = [
        line.strip() for line in log.splitlines() if "Exception" in line or line.startswith("Error")
    ]
    java = str(getattr(error, "java_exception", "") or "").splitlines()
    reason = (java or said or str(error).splitlines())[0]
    return SparkError(
        f"Spark did not start: {reason.rstrip('.')}; REBAL_DEBUG=1 shows all that it said."
    )


class SparkSettings(Record, frozen=True, kw_only=True):
    """The settings of Spark: `--master` and `--spark-conf` (a later value replaces an earlier one).

    Without `--master` it is spark.master (of `--spark-conf` or spark-submit), SPARK_REMOTE, or else
    local[*].
    """

    master: str | None = None
    conf: tuple[tuple[str, str], ...] = ()

    @property
    def url(self) -> str:
        """The master's URL."""
        return (
            self.master
            or dict(self.conf).get("spark.master")
            or os.environ.get("SPARK_REMOTE")
            or "local[*]"
        )

    @property
    def remote(self) -> bool:
        """Return whether a server of Spark Connect runs the scan."""
        is_connect = active_session() is not None or self.url.startswith("sc://")
        return is_connect and _running_context() is None


def any_secret(names: Iterable[str]) -> bool:
    """Return whether one of these setting names is that of a secret (password, token, key, …)."""
    return any(re.search(_SECRETS, name) for name in names)


@contextmanager
def spark_session(settings: SparkSettings) -> Iterator[SparkSession]:
    """Yield a session for one job.

    A Spark context or a Spark Connect session that this process has already is used, and left
    running. Call `require` before.

    Raises:
        SparkError: Spark did not start.
    """
    if settings.remote:
        with _on_server(settings) as session:
            ship(session)
            yield session
    elif _running_context() is not None:
        from pyspark.sql import SparkSession

        session = SparkSession.builder.getOrCreate().newSession()
        ship(session)
        for key, value in _SQL.items():
            session.conf.set(key, dict(settings.conf).get(key, value))
        yield session
    else:
        with _own_context(settings) as session:
            yield session


@contextmanager
def _own_context(settings: SparkSettings) -> Iterator[SparkSession]:
    from pyspark.sql import SparkSession

    before = signal.getsignal(signal.SIGINT)
    litter = Path("artifacts").absolute()
    # Py4j tells the root logger of each interrupted call, and that would print it.
    quiet = logging.NullHandler()
    logging.getLogger().addHandler(quiet)
    with (
        environment(),
        tempfile.TemporaryDirectory(prefix="rebal-spark-") as folder,
        contextlib.ExitStack() as ending,
    ):
        ending.callback(logging.getLogger().removeHandler, quiet)
        if not litter.exists():
            ending.callback(_clear, litter)
        log = Path(folder, "spark.log")
        try:
            with log.open("wb") as kept:
                context = _start(settings, kept)
            ending.callback(end, context.cancelAllJobs, context.stop)
            # PySpark's handler talks to the JVM on the connection that the interrupted call waits
            # on.
            with contextlib.suppress(ValueError):
                signal.signal(signal.SIGINT, before)
            session = SparkSession(context)
            ship(session)
        except Exception as error:
            raise start_error(error, log.read_text(errors="replace")) from None
        yield session


def _clear(folder: Path) -> None:
    """Remove Spark 4.0's folders `spark-*` from `folder`, and `folder` if it is then empty."""
    for each in folder.glob("spark-*"):
        shutil.rmtree(each, ignore_errors=True)
    with contextlib.suppress(OSError):
        folder.rmdir()


def _running_context() -> Any:
    """Return the Spark context of this process, or None; PySpark is not imported for this."""
    loaded: Any = sys.modules.get("pyspark")
    return None if loaded is None else loaded.SparkContext._active_spark_context


def require(settings: SparkSettings, *, secrets: bool) -> None:
    """Check that the extra `fleet` and Java are installed, or that a Spark Connect server answers.

    `secrets` is whether passwords and keys will travel to the executors.

    Raises:
        SparkError: a package, Java or the server is missing or too old; the error says how to get
            it.
        SettingError: secrets would travel in plain text.
    """
    require_packages(
        "the fleet pipeline",
        ("pyspark", "pyarrow", "pandas", "numpy", "deltalake"),
        "rebal[fleet]",
    )
    if settings.remote:
        require_server(settings.url, secrets=secrets or any_secret(dict(settings.conf)))
    elif _running_context() is None:
        require_java()


def _start(settings: SparkSettings, log: IO[bytes]) -> Any:
    """Return a new Spark context, in a new JVM or in the one that spark-submit started.

    Settings given to spark-submit replace the defaults. `log` gets what the JVM prints.
    """
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway

    os.environ["PYSPARK_PYTHON"] = dict(settings.conf).get(
        "spark.pyspark.python", os.environ.get("PYSPARK_PYTHON") or sys.executable
    )
    if "PYSPARK_GATEWAY_PORT" in os.environ:
        SparkContext._ensure_initialized()
        settings = msgspec.structs.replace(settings, conf=(*SparkConf().getAll(), *settings.conf))
    elif _on_this_machine(settings):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    conf = SparkConf(loadDefaults=False).setAll([*_configuration(settings).items()])
    sink = sys.stderr if os.environ.get("REBAL_DEBUG") else log
    streams = {"stdout": sink, "stderr": sink}
    gateway = SparkContext._gateway or launch_gateway(conf, streams)  # type: ignore[no-untyped-call]
    return SparkContext(conf=conf, gateway=gateway)


def _configuration(settings: SparkSettings) -> dict[str, str]:
    made = {
        "spark.app.name": "rebal fleet",
        "spark.master": settings.url,
        "spark.ui.enabled": "false",
        "spark.driver.memory": "1g",
        "spark.redaction.regex": _SECRETS,
        # Otherwise PySpark logs each rejected query to stderr as well as raising it.
        "spark.python.sql.dataFrameDebugging.enabled": "false",
        **_SQL,
        **_WORKERS,
    }
    if _on_this_machine(settings):
        made |= {"spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1"}
        made["spark.sql.shuffle.partitions"] = str(max(4, 2 * (os.cpu_count() or 1)))
    if settings.url.startswith("local"):
        made["spark.python.daemon.module"] = run_daemon.__module__
    made |= dict(settings.conf) | {"spark.master": settings.url}
    made[_DRIVER] = f"{_YOUNG_JVM} {made.get(_DRIVER, '')}".rstrip()
    return made


def _on_this_machine(settings: SparkSettings) -> bool:
    return settings.url.startswith("local") or is_loopback(
        urlsplit(settings.url.split(",")[0]).hostname or ""
    )


def active_session() -> SparkSession | None:
    """Return the running Spark Connect session of this process, or None.

    The call does not import the Spark Connect client: a process that has not imported it has no
    session.
    """
    loaded: Any = sys.modules.get("pyspark.sql.connect.session")
    found = None if loaded is None else loaded.SparkSession.getActiveSession()
    return None if found is None or found.is_stopped else found


def require_server(url: str, *, secrets: bool) -> None:
    """Check that the Spark Connect client is installed and that a server listens at `url`.

    If this process already has a session, the server is not contacted.

    Args:
        url: The server's address, `sc://HOST:PORT/;key=value`.
        secrets: Whether passwords and keys will travel to the server.

    Raises:
        SparkError: the client is missing, or no server answers.
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
    """Return `--master URL` for error messages, without parameters: one of them may be a token."""
    return f"--master {url.partition('/;')[0]}"


@contextmanager
def _on_server(settings: SparkSettings) -> Iterator[SparkSession]:
    """Yield the Spark Connect session of this process, or a new one.

    At the end, the process's session gets back its settings, and a new session is stopped.

    Raises:
        SparkError: the server rejects the session or a setting.
    """
    ours, given = active_session(), dict(settings.conf)
    # Spark's functions are those for Connect as long as the variable is there.
    with environment(SPARK_CONNECT_MODE_ENABLED="1"):
        session = ours or _new_session(settings.url)
        wanted = {**_SQL, **given}
        before = {
            key: session.conf.get(key, None)
            for key in wanted.keys() - {"spark.master", "spark.remote"}
        }
        back = [
            partial(session.conf.unset, key)
            if value is None
            else partial(session.conf.set, key, value)
            for key, value in before.items()
        ]
        try:
            for key in before:
                _set(session, key, wanted[key], given=key in given)
            yield session
        finally:
            end(*([session.interruptAll, session.stop] if ours is None else back))


def _new_session(url: str) -> Any:
    from pyspark.sql.connect.client.retries import DefaultPolicy
    from pyspark.sql.connect.session import SparkSession as Remote

    try:
        made: Any = Remote.builder.remote(url).create()
        # About a minute; on its own, the client waits for a server ten minutes and says nothing.
        made.client.set_retry_policies([DefaultPolicy(max_retries=9, max_backoff=10_000)])
        made.version  # noqa: B018  # Asks the server, which is not asked before.
    except Exception as error:
        reason = [*str(error).strip().splitlines(), type(error).__name__][0]
        raise SparkError(f"{_named(url)}: {reason.rstrip('.')}.") from None
    return made


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


@contextmanager
def environment(**wanted: str) -> Iterator[None]:
    """Set environment variables while the block runs; then restore the process's environment.

    Variables that PySpark sets in the block are removed too.
    """
    before = dict(os.environ)
    os.environ.update(wanted)
    try:
        yield
    finally:
        for name in os.environ.keys() - before.keys():
            del os.environ[name]
        os.environ.update(before)


def end(*calls: Callable[[], object]) -> None:
    """Call each function of `calls`, which end Spark, in a thread; wait at most 20 seconds.

    A failed call does not stop the others. They run in a thread of their own because the calling
    thread's connection to Spark may be in the middle of an answer, or be dead.
    """

    def work() -> None:
        for call in calls:
            with contextlib.suppress(Exception):
                call()

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(_STOP_SECONDS)


def is_loopback(host: str) -> bool:
    """Return whether a host of a URL is this machine itself."""
    return host in ("localhost", "::1") or host.startswith("127.")


def require_packages(what: str, names: Sequence[str], extra: str) -> None:
    """Check that these Python packages can be imported.

    `what` names the feature that needs them. `extra` is what pip installs for it.

    Raises:
        SparkError: a package is missing; the error says how to install it.
    """
    for name in names:
        try:
            importlib.import_module(name)
        except ImportError:
            raise SparkError(
                f"{what} needs {name}: install it with pip install '{extra}'."
            ) from None


def require_java() -> None:
    """Check that Java is installed and new enough (17 or newer).

    Raises:
        SparkError: Java is missing or older; the error says how to get it.
    """
    home = os.environ.get("JAVA_HOME")
    command = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    advice = f"install a JDK {OLDEST_JAVA} or newer, or set JAVA_HOME to one."
    try:
        said = subprocess.run(
            [command or "java", "-version"], capture_output=True, text=True, check=False
        ).stderr
    except OSError:
        raise SparkError(
            f"Spark needs Java, and {command or 'java'} was not found: {advice}"
        ) from None
    found = re.search(r'"(?:1\.)?(\d+)', said)
    if found is None or int(found[1]) < OLDEST_JAVA:
        what = "does not run" if found is None else f"is Java {found[1]}"
        raise SparkError(f"Spark needs Java {OLDEST_JAVA}, and {command} {what}: {advice}")
