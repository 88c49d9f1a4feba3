"""Shared fixtures (brokers, members, fresh names), markers and Hypothesis profiles.

Of its Hypothesis examples a test runs half, and all of them with REBAL_FULL=1.
`HYPOTHESIS_PROFILE` chooses `quick` (a fifth), `mutants` (three fifths, the same ones each time) or
`ci`, which CI=true chooses too; a test asks for its number of examples with
`tests.examples.examples`.

`live` tests are skipped, with the reason, where no Java 17 is found or REBAL_LIVE=0; with CI=true
they run or fail. `full` tests run only with REBAL_FULL=1. Every worker of pytest-xdist has its own
session fixtures: its Spark session, its brokers. Fixtures import the packages that start
processes, so the pure tests do not load them.
"""

import os
import re
import signal
import sys
import uuid
from collections.abc import Iterator
from typing import TYPE_CHECKING

import hypothesis
import pytest

from tests.durations import Durations

if TYPE_CHECKING:
    from tests.kafka.broker import Broker
    from tests.kafka.cluster import Cluster
    from tests.kafka.members import Members

_REBALS_OWN = {
    f"REBAL_{name}"
    for name in ("BOOTSTRAP", "COMMAND_CONFIG", "PROFILE", "CONFIG", "SNAPSHOT", "DEBUG")
}


def pytest_configure(config: pytest.Config) -> None:
    """Remove the settings of the caller's shell and of pytest-xdist that would change a test.

    A shell in the background ignores SIGINT, and its children inherit that. COLUMNS cuts screens to
    a width; tests that need a width set it themselves. rebal's own variables name a cluster or a
    file. Without byte code on disk each process that a test starts compiles rebal for half a
    second, and each worker the tests for half a minute.
    """
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    sys.dont_write_bytecode = False
    for name in list(os.environ):
        if name == "COLUMNS" or name.startswith("REBAL_X_") or name in _REBALS_OWN:
            del os.environ[name]
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    _load_hypothesis_profile()
    if os.environ.get("CI", "").lower() == "true" and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Durations())


def _load_hypothesis_profile() -> None:
    # The time of an example depends on the machine more than on the code.
    slow = [hypothesis.HealthCheck.too_slow]
    register = hypothesis.settings.register_profile
    whole = 100 if os.environ.get("REBAL_FULL") == "1" else 50
    register("rebal", deadline=None, suppress_health_check=slow, max_examples=whole)
    register("quick", hypothesis.settings.get_profile("rebal"), max_examples=20)
    # The same examples for each mutant, and none made smaller: a failure is all that is asked.
    once = (hypothesis.Phase.explicit, hypothesis.Phase.generate)
    every = hypothesis.settings.get_profile("rebal")
    register("mutants", every, max_examples=60, phases=once, derandomize=True, database=None)
    register("ci", hypothesis.settings.get_profile("rebal"), print_blob=True)
    default = "ci" if os.environ.get("CI", "").lower() == "true" else "rebal"
    hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", default))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if os.environ.get("REBAL_FULL") != "1":
        full = [item for item in items if item.get_closest_marker("full")]
        if full:
            config.hook.pytest_deselected(items=full)
            items[:] = [item for item in items if not item.get_closest_marker("full")]
    spark = {item.path for item in items if "spark" in getattr(item, "fixturenames", ())}
    # First, so that of two workers one runs them all, and the other takes other tests over.
    items.sort(key=lambda item: item.path not in spark)
    reason = why_not_live()
    if reason:
        for item in items:
            if item.get_closest_marker("live"):
                item.add_marker(pytest.mark.skip(reason=reason))


def pytest_collection_finish(session: pytest.Session) -> None:
    """Fetch the jars before the first live test: no test's time limit includes a download."""
    if session.config.option.collectonly or why_not_live():
        return
    if any(item.get_closest_marker("live") for item in session.items):
        from tests.kafka import clients, jars

        reporter = session.config.pluginmanager.get_plugin("terminalreporter")
        say = reporter.write_line if reporter else print
        try:
            jars.prepare(say)
            if any("other_clients" in getattr(item, "fixturenames", ()) for item in session.items):
                clients.prepare()
        except jars.ToolError as error:
            # The live tests fail with the same words; the others can still run.
            say(f"live tests cannot run: {error}")


def why_not_live() -> str | None:
    """Return why the live tests are skipped; None when they run."""
    if os.environ.get("CI", "").lower() == "true":
        return None
    if os.environ.get("REBAL_LIVE") == "0":
        return "REBAL_LIVE=0"
    from tests.kafka.jars import java_version

    found = java_version()
    if found is None:
        return "no java found: install a JDK 17 or newer, or set JAVA_HOME"
    if found < 17:
        return f"java {found} is too old: install a JDK 17 or newer, or set JAVA_HOME"
    return None


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    """Add the last log lines of every running process to the report of a failed live test."""
    report = yield
    if report.failed and item.get_closest_marker("live"):
        from tests.kafka.broker import RUNNING

        for child in list(RUNNING.values()):
            report.sections.append((f"log of {child.name}", child.tail()))
    return report


@pytest.fixture(scope="session", autouse=True)
def _rehearsed_once() -> Iterator[None]:
    from tests.rehearsed import make_once

    with pytest.MonkeyPatch.context() as patch:
        make_once(patch)
        yield


@pytest.fixture(scope="module")
def no_costs() -> Iterator[None]:
    """Plans of this module have no costs: to rehearse them is most of the work of a plan."""
    from rebal.planner.context import Context

    nothing = property(lambda _: None, lambda *_: None)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Context, "pricing", nothing, raising=False)
        yield


def _broker(release: str) -> Iterator["Broker"]:
    from tests.kafka import jars
    from tests.kafka.broker import Broker

    with Broker(getattr(jars, release)) as broker:
        yield broker


@pytest.fixture(scope="session")
def kafka41() -> Iterator["Broker"]:
    """The one Kafka 4.1.1 broker that all tests share (Java group coordinator)."""
    yield from _broker("EARLY")


@pytest.fixture(scope="session")
def kafka39() -> Iterator["Broker"]:
    """The shared Kafka 3.9.1 broker (Scala group coordinator), started when first asked for."""
    yield from _broker("SCALA")


@pytest.fixture(scope="session")
def newest() -> Iterator["Broker"]:
    """The shared broker of Kafka's newest release, started when first asked for."""
    yield from _broker("NEWEST")


@pytest.fixture
def without_rights(kafka41: "Broker") -> Iterator[None]:
    """Give the user `limited` of `kafka41` no rights; the test grants those that it needs."""
    kafka41.forbid("limited")
    yield
    kafka41.forbid("limited")


@pytest.fixture(scope="session")
def cluster41() -> Iterator["Cluster"]:
    """Three Kafka 4.1.1 brokers, for tests that one broker cannot serve."""
    from tests.kafka import jars
    from tests.kafka.cluster import Cluster

    with Cluster(jars.EARLY) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def cluster39() -> Iterator["Cluster"]:
    """Three Kafka 3.9.1 brokers (Scala group coordinator)."""
    from tests.kafka import jars
    from tests.kafka.cluster import Cluster

    with Cluster(jars.SCALA) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def _shared_jvms() -> Iterator[None]:
    from tests.kafka.members import Members

    yield
    Members.end_shared()


@pytest.fixture(scope="session")
def other_clients() -> None:
    """Prepare Go, Node and aiokafka members (`clients.OTHER_SOFTWARE`)."""
    from tests.kafka import clients

    clients.prepare()


@pytest.fixture
def members(_shared_jvms: None) -> Iterator["Members"]:
    """Consumers that the test starts; all are closed when it ends."""
    from tests.kafka.members import Members

    started = Members()
    yield started
    started.end()


@pytest.fixture
def group_id(request: pytest.FixtureRequest) -> str:
    """A group id that no other test uses."""
    return _fresh_name(request, "g")


@pytest.fixture
def topic_name(request: pytest.FixtureRequest) -> str:
    """A topic name that no other test uses: `kafka41.create_topic(topic_name, 6)`."""
    return _fresh_name(request, "t")


def _fresh_name(request: pytest.FixtureRequest, prefix: str) -> str:
    words = re.sub(r"[^a-z0-9]+", "-", request.node.name.lower()).strip("-")
    return f"{prefix}-{words[:40]}-{uuid.uuid4().hex[:6]}"
