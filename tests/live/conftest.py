"""Every test in this folder is live: it needs Java and real brokers on loopback."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.kafka import jars
from tests.kafka.broker import Administration, Broker
from tests.kafka.connect import ConnectHost
from tests.kafka.members import Members
from tests.live_support.rollout import GroupOn, PlannedGroup, Service, Workers

HERE = Path(__file__).parent
Said = pytest.CaptureFixture[str]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.live)


@pytest.fixture(params=jars.ENDS)
def broker(request: pytest.FixtureRequest) -> Broker:
    """The shared broker of each version; a file that needs others parametrizes it."""
    shared: Broker = request.getfixturevalue(request.param)
    shared.wait_coordinator("any")
    return shared


@pytest.fixture
def group_on(
    members: Members, group_id: str, topic_name: str, tmp_path: Path, capsys: Said
) -> GroupOn:
    """Makes the test's group on any broker or cluster, and a place for its plan."""

    def made(on: Administration, kind: Any = PlannedGroup, software: Any = "java-3.9.1") -> Any:
        names = (on, members, group_id, topic_name)
        return kind(*names, software=software, folder=tmp_path, capsys=capsys)

    return made


@pytest.fixture
def service(broker: Broker, group_on: GroupOn) -> Iterator[Service]:
    """A service whose group is the test's, with the request log on; members name their clients."""
    made: Service = group_on(broker, Service, None)
    with made.logged():
        yield made


@pytest.fixture(
    scope="module", params=[jars.EARLY, pytest.param(jars.SCALA, marks=pytest.mark.full)]
)
def host(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ConnectHost]:
    """The JVM of a file's Connect workers."""
    made = ConnectHost(request.param, tmp_path_factory.mktemp("connect"))
    yield made
    made.close()


@pytest.fixture
def workers(request: pytest.FixtureRequest, host: ConnectHost, group_id: str) -> Iterator[Workers]:
    """A Connect cluster on the shared broker of the workers' version, with its request log on."""
    broker: Broker = request.getfixturevalue("kafka41" if host.version >= "4" else "kafka39")
    broker.wait_coordinator(group_id)
    broker.log_requests(True)
    made = Workers(broker, host, group_id)
    yield made
    made.end()
    broker.log_requests(False)
