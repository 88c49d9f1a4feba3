"""Every path reaches its end, by the printed commands alone, with the rights that a site has."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.kafka.broker import Administration, Broker
from tests.kafka.cluster import Cluster
from tests.kafka.jars import BROKER_VERSIONS, SCALA
from tests.kafka.members import Members
from tests.live.obey import Process
from tests.live.obey_world import End, LiveWorld, Operator

RIGHTS = ("probe", "request log", "describe", "client logs", "inventory")
CarryOut = Callable[..., End]
NEW, FINAL = "cooperative", "cooperative-sticky"
DEFAULT = ("range", FINAL)


def of(
    *software: str, names: tuple[str, ...] = ("range",), static: bool = False, **settings: str
) -> Callable[[], list[Process]]:
    """Three processes, or one of each of these clients, all with one list."""
    every = software if len(software) > 1 else software * 3
    filed = {key.replace("_", "."): value for key, value in settings.items()}

    def made() -> list[Process]:
        return [
            Process(f"cart-{n}", one, names, f"cart-{n}" if static else None, settings=dict(filed))
            for n, one in enumerate(every)
        ]

    return made


PATHS: dict[str, tuple[str, Callable[[], list[Process]]]] = {
    "Java [range]": (NEW, of("java-3.9.1")),
    "Java default list": (NEW, of("java-3.9.1", names=())),
    "static members": (NEW, of("java-3.9.1", static=True)),
    "franz-go": (NEW, of("franz-go")),
    "Java and franz-go": (NEW, of("java-3.9.1", "java-3.9.1", "franz-go")),
    "kafka-python cut-over": (NEW, of("kafka-python")),
    "librdkafka cut-over": (NEW, of("confluent-kafka")),
    "Streams": (NEW, of("streams-2.3.1", "streams-2.3.1", names=())),
    "Connect": (NEW, of("connect-4.1.1", "connect-4.1.1", names=(), connect_protocol="eager")),
    "downgrade": ("eager", of("java-3.9.1", names=(FINAL,))),
    "to consumer": ("consumer", of("java-4.1.1")),
}
# What a log alone shows: what the coordinator remembers of who is back, and who must stop.
BY_LOG = {
    "from consumer": (FINAL, of("java-4.1.1", names=(), group_protocol="consumer")),
    "Java and librdkafka": (NEW, of("java-3.9.1", "java-3.9.1", "confluent-kafka")),
}
MORE = {
    "versions": (NEW, of("java-2.8.2", *(f"java-{each}" for each in BROKER_VERSIONS))),
    "one bounce": (NEW, of("java-3.9.1", names=DEFAULT)),
    "one bounce, static": (NEW, of("java-3.9.1", names=DEFAULT, static=True)),
    "downgrade, static": ("eager", of("java-3.9.1", names=(FINAL,), static=True)),
}
# Paths of which no other story is carried out in `make test`.
STORIES = ("Java default list", "static members", "librdkafka cut-over", "to consumer")


def reach(world: LiveWorld, *rights: str) -> list[str]:
    """The connection and the evidence that a site with these rights gives."""
    broker, words = world.broker, ["-b", world.broker.bootstrap]
    one = broker if isinstance(broker, Broker) else None
    if one is not None and not {"probe", "request log"} & {*rights}:
        one.allow("limited", "group", world.group, "DESCRIBE")
        one.allow("limited", "topic", world.topic, "DESCRIBE")
        made = one.client_properties("SCRAM-SHA-256", "limited")
        words = ["--command-config", str(one.write_properties("limited.properties", made))]
    logs = [each.request_log_path for each in brokers_of(broker)]
    given = {
        "probe": ["--probe"],
        "request log": [word for log in logs for word in ("--request-log", str(log))],
        "describe": [],
        "client logs": ["--client-log", str(world.logs)],
        "inventory": ["--inventory", str(world.files)],
    }
    return [*words, *(word for right in rights for word in given[right])]


def brokers_of(site: Administration) -> list[Broker]:
    if isinstance(site, Cluster):
        return list(site.brokers.values())
    assert isinstance(site, Broker)
    return [site]


@pytest.fixture
def carry_out(members: Members, group_id: str, topic_name: str, tmp_path: Path) -> CarryOut:
    """Carry a path out on a site with these rights and files."""

    def carried_out(path: str, rights: Sequence[str], site: Administration, **accident: Any) -> End:
        goal, processes = (PATHS | BY_LOG | MORE)[path]
        world = LiveWorld(
            site, members, group_id, topic_name, folder=tmp_path, processes=processes(),
            apart="client logs" in rights,
        )  # fmt: skip
        brokers = brokers_of(site)
        for broker in brokers:
            broker.log_requests("request log" in rights)
        try:
            world.begin()
            operator = Operator(world, goal, tmp_path, reach(world, *rights), **accident)
            end = operator.carry_out()
        finally:
            world.end()
            for broker in brokers:
                broker.log_requests()
                broker.forbid("limited")
        # By a person's word a plan may end before all are restarted: it is the person's then.
        proven = [] if end.confirmations else world.processes
        wrong = [one.name for one in proven if not (one.retired or runs(one, goal))]
        end.stuck = end.stuck or (f"finished, and {wrong} do not run it" if wrong else "")
        told = f"{end.commands:>3} commands: {end.stuck or end.basis}"
        print(f"{site.version:<6} {path:<22} {', '.join(rights):<12} {accident} {told}")
        return end

    return carried_out


def runs(process: Process, goal: str) -> bool:
    """Whether a process was started with what the goal asks of it."""
    settings = process.settings
    if goal == "consumer":
        return settings.get("group.protocol") == "consumer"
    if process.family == "connect":
        return settings["connect.protocol"] == "sessioned"
    if process.family == "streams":
        return "upgrade.from" not in settings
    return all(("cooperative" in name) is (goal != "eager") for name in process.assignors)


def ends(end: End) -> None:
    """It ends with exit 0, by one question and one confirmation at most."""
    told = "\n".join([*end.told, end.stuck, end.screen])
    assert (end.stuck, end.exit_code) == ("", 0), told
    assert max(end.questions, end.confirmations) <= 1, told


@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    "path",
    [pytest.param(path, marks=pytest.mark.story if path in STORIES else ()) for path in PATHS],
)
def test_each_path_finishes_with_the_probe_as_only_evidence(
    path: str, kafka41: Broker, carry_out: CarryOut
) -> None:
    ends(carry_out(path, RIGHTS[:1], kafka41))


@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    ("path", "right"),
    [
        *(("Java [range]", right) for right in RIGHTS[1:]),
        pytest.param("downgrade", "inventory", marks=pytest.mark.story),
        *(pytest.param(path, "request log", marks=pytest.mark.story) for path in BY_LOG),
    ],
)
def test_a_path_finishes_with_each_other_kind_of_evidence_alone(
    path: str, right: str, kafka41: Broker, carry_out: CarryOut
) -> None:
    ends(carry_out(path, [right], kafka41))


@pytest.fixture(scope="module")
def broker(request: pytest.FixtureRequest) -> Iterator[Broker]:
    """A broker of each version of the table."""
    with Broker(request.param) as made:
        yield made


# KIP-848 came with the Java coordinator.
BY_BROKERS = ("to consumer", "from consumer")
TABLE = [
    (version, path)
    for version in BROKER_VERSIONS
    for path in PATHS
    if path not in BY_BROKERS or version != SCALA
]


@pytest.mark.full
@pytest.mark.timeout(120)
@pytest.mark.parametrize("right", RIGHTS)
@pytest.mark.parametrize(("broker", "path"), TABLE, indirect=["broker"], scope="module")
def test_every_path_finishes_on_every_broker_with_any_one_kind_of_evidence(
    broker: Broker, path: str, right: str, carry_out: CarryOut
) -> None:
    ends(carry_out(path, [right], broker))


_DATA = Path(__file__).parents[1] / "data"
ACCIDENTS = [
    (path, accident, after, tuple(evidence))
    for path, accident, after, evidence in yaml.safe_load((_DATA / "accidents.yaml").read_text())
]


def ends_in_spite(
    cluster: Cluster, row: tuple[str, str, int, tuple[str, ...]], carry_out: CarryOut
) -> None:
    path, accident, after, rights = row
    end = carry_out(path, rights, cluster, accident=accident, after=after)
    assert (end.stuck, end.exit_code) == ("", 0), "\n".join([*end.told, end.stuck, end.screen])


@pytest.mark.timeout(240)
@pytest.mark.parametrize("row", ACCIDENTS[2:6:3], ids=str)
def test_a_path_finishes_despite_an_accident_during_the_roll_out(
    row: tuple[str, str, int, tuple[str, ...]], cluster41: Cluster, carry_out: CarryOut
) -> None:
    ends_in_spite(cluster41, row, carry_out)


@pytest.fixture(scope="module")
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    with Cluster(request.param) as made:
        yield made


@pytest.mark.full
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("cluster", "row"),
    [
        (version, row)
        for version in BROKER_VERSIONS
        for row in ACCIDENTS
        if row[0] not in BY_BROKERS or version != SCALA
    ],
    indirect=["cluster"],
    ids=str,
    scope="module",
)
def test_every_path_finishes_despite_accidents_on_every_broker_version(
    cluster: Cluster, row: tuple[str, str, int, tuple[str, ...]], carry_out: CarryOut
) -> None:
    ends_in_spite(cluster, row, carry_out)
