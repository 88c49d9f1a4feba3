"""The pinned jars that brokers and Java members run on, and the classes compiled against them.

`classpath(name)` and `compiled(source, name)` give folders under `.cache/` of the repository (or
`REBAL_CACHE`). Both are made once, by mvnw and javac, under a file lock and with a rename at the
end: concurrent test runs share them, and an interrupted one leaves nothing half done.
"""

import fcntl
import hashlib
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path

# The wrapper of Maven, and what it pins.
MAVEN = Path(__file__).resolve().parent
ROOT = MAVEN.parents[1]
SOURCES = MAVEN / "java"
COPY_PLUGIN = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"

# The one table of Kafka's releases, which tests ask for by name: the last one with the Scala
# coordinator, an early one with the Java coordinator, and today's. NEWEST is the line to raise.
SCALA = "3.9.1"
EARLY = "4.1.1"
NEWEST = "4.4.0"
BROKER_VERSIONS = (SCALA, EARLY, NEWEST)
SITES = ("kafka39", "kafka41", "newest")
"""The fixtures of the shared brokers of these versions."""
ENDS = SITES if os.environ.get("REBAL_FULL") == "1" else ("kafka39", "newest")
"""The brokers on which a test runs that is about each version: all of them in `make test-full`."""
# Fetched by the test that needs one (`make test-full`).
RARE_BROKER_VERSIONS = ("4.2.2", "4.3.1")
CLIENT_VERSIONS = ("2.3.1", "2.8.2", *BROKER_VERSIONS)
STREAMS_VERSIONS = ("2.3.1", *BROKER_VERSIONS)
CONNECT_VERSIONS = (SCALA, EARLY)

# Log4j 2 is what Kafka 4 changes levels in at run time (KIP-412), reload4j what Kafka 3 does.
_LOG4J2 = (
    "org.apache.logging.log4j:log4j-core:2.25.1",
    "org.apache.logging.log4j:log4j-slf4j-impl:2.25.1",
)
_SIMPLE = "org.slf4j:slf4j-simple:1.7.36"
_RELOAD4J = ("ch.qos.reload4j:reload4j:1.2.25", "org.slf4j:slf4j-reload4j:1.7.36")


def _logging(version: str) -> tuple[str, ...]:
    return _RELOAD4J if version.startswith("3.") else _LOG4J2


ARTIFACTS: dict[str, tuple[str, ...]] = {
    **{
        f"broker-{version}": (f"org.apache.kafka:kafka_2.13:{version}", *_logging(version))
        for version in (*BROKER_VERSIONS, *RARE_BROKER_VERSIONS)
    },
    **{
        f"{library}-{version}": (f"org.apache.kafka:kafka-{library}:{version}", _SIMPLE)
        for library, versions in (
            ("clients", CLIENT_VERSIONS),
            ("streams", STREAMS_VERSIONS),
        )
        for version in versions
    },
    **{
        f"connect-{version}": (
            f"org.apache.kafka:connect-runtime:{version}",
            f"org.apache.kafka:connect-file:{version}",
            *_logging(version),
        )
        for version in CONNECT_VERSIONS
    },
    # What a Spark that reads the lake's tables with SQL has: Delta of the same Spark.
    "spark-delta-4.0.0": ("io.delta:delta-spark_2.13:4.0.0",),
    # A file system of Hadoop, of the version whose client PySpark has.
    "hadoop-3.4.1": ("org.apache.hadoop:hadoop-client-minicluster:3.4.1",),
    # Kafka's own command-line tools: the peer of bench/inspect_probe.py.
    f"tools-{EARLY}": (f"org.apache.kafka:kafka-tools:{EARLY}", *_logging(EARLY)),
}

_DEPENDENCY = (
    "    <dependency><groupId>{0}</groupId><artifactId>{1}</artifactId>"
    "<version>{2}</version><exclusions><exclusion><groupId>org.rocksdb</groupId>"
    "<artifactId>rocksdbjni</artifactId></exclusion></exclusions></dependency>"
)
JVM = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Duser.timezone=UTC")
"""The options of a small JVM that starts quickly."""
_TOLD: list[Callable[[str], None]] = []
"""Who is told what is being made."""


class ToolError(RuntimeError):
    """A tool that the harness needs is missing or failed; the text says which and why."""


def cache_dir() -> Path:
    """The folder for everything that is fetched or compiled; made when absent."""
    folder = Path(os.environ.get("REBAL_CACHE") or ROOT / ".cache").resolve()
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@cache
def java_version() -> int | None:
    """The major version of `java` (JAVA_HOME first, then PATH), or None when there is none."""
    command = tool("java")
    if command is None:
        return None
    text = subprocess.run([command, "-version"], capture_output=True, text=True, check=False).stderr
    words = text.split('"')
    if len(words) < 2:
        return None
    major = words[1].removeprefix("1.").split(".")[0].split("-")[0]
    return int(major) if major.isdigit() else None


def tool(name: str) -> str | None:
    """The path of `java` or `javac`: JAVA_HOME's when it is set, else the one on PATH."""
    home = os.environ.get("JAVA_HOME")
    if home and (Path(home) / "bin" / name).exists():
        return str(Path(home) / "bin" / name)
    return shutil.which(name)


def jvm(heap_mb: int, options: tuple[str, ...] = JVM) -> list[str]:
    """The beginning of a Java command."""
    java = tool("java")
    if java is None:
        raise ToolError("java was not found: install a JDK 17 or set JAVA_HOME to one.")
    return [java, f"-Xmx{heap_mb}m", *options]


@cache
def classpath(name: str) -> str:
    """The class path (`folder/*`) of one artifact set, a key of `ARTIFACTS`."""
    artifacts = ARTIFACTS[name]
    digest = hashlib.sha256("\n".join((COPY_PLUGIN, *artifacts)).encode()).hexdigest()

    def fetch(folder: Path) -> None:
        pom = folder / "pom.xml"
        dependencies = "\n".join(_DEPENDENCY.format(*a.split(":")) for a in artifacts)
        template = (MAVEN / "pom.xml").read_text()
        pom.write_text(template.format(name=name, dependencies=dependencies))
        home = cache_dir() / "maven"
        settings = (f"-Dmaven.repo.local={home / 'repository'}", "-DincludeScope=runtime")
        words = ["--batch-mode", "--quiet", *settings, f"-DoutputDirectory={folder}"]
        command = [str(MAVEN / "mvnw"), *words, "--file", str(pom), COPY_PLUGIN]
        run(command, {**os.environ, "MAVEN_USER_HOME": str(home)})

    return f"{made_once(cache_dir() / 'jars' / f'{name}-{digest[:12]}', fetch)}/*"


@cache
def compiled(source: str, name: str, sources: Path = SOURCES) -> str:
    """The folder with `<source>.java` and what it uses beside it, compiled for one artifact set."""
    against = classpath(name)
    text = b"".join(path.read_bytes() for path in sorted(sources.glob("*.java")))
    digest = hashlib.sha256(text + against.encode()).hexdigest()[:12]
    javac = tool("javac")
    if javac is None:
        raise ToolError("javac was not found: install a JDK 17 or newer, or set JAVA_HOME to one.")

    def compile_into(folder: Path) -> None:
        options = ["--release", "17", "-nowarn", "-cp", against, "-sourcepath", str(sources)]
        run([javac, *options, "-d", str(folder), str(sources / f"{source}.java")])

    return str(made_once(cache_dir() / "classes" / f"{source}-{name}-{digest}", compile_into))


def prepare(say: Callable[[str], None]) -> None:
    """Fetch every artifact set that is not there yet; from now on say what is being made."""
    _TOLD[:] = [say]
    for name in ARTIFACTS.keys() - {f"broker-{version}" for version in RARE_BROKER_VERSIONS}:
        classpath(name)


def made_once(target: Path, make: Callable[[Path], None]) -> Path:
    """Make the folder unless it is there, beside it and under a lock, and return it."""
    if target.is_dir():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    while not target.is_dir():
        with (cache_dir() / "lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                # Asked again and again: who holds the lock makes one folder after the other.
                time.sleep(0.1)
                continue
            if target.is_dir():
                break
            for say in _TOLD:
                say(f"making {target.name} in {target.parent}")
            fresh = Path(tempfile.mkdtemp(prefix=".new-", dir=target.parent))
            try:
                make(fresh)
                fresh.rename(target)
            finally:
                shutil.rmtree(fresh, ignore_errors=True)
    return target


def run(command: list[str], environment: dict[str, str] | None = None) -> None:
    done = subprocess.run(
        command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True,
        check=False, timeout=900,
    )  # fmt: skip
    if done.returncode:
        tail = "\n".join((done.stdout + done.stderr).splitlines()[-15:])
        raise ToolError(f"{Path(command[0]).name} ended with {done.returncode}:\n{tail}")
