"""Every path reaches its end, by the printed commands alone, with the rights that a site has."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.kafka.broker import Broker
from tests.kafka.jars import BROKER_VERSIONS, SCALA
from tests.kafka.members import Members
from tests.live.obey import Process
from tests.live.obey_ends import End, Operator
from tests.live.obey_world import LiveWorld

RIGHTS = ("probe", "request log", "describe", "client logs", "inventory")
CarryOut = Callable[[str, str, Broker], End]
NEW, FINAL = "cooperative", "cooperative-sticky"


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
# Paths of which no other story is carried out in `make test`.
STORIES = ("Java default list", "static members", "librdkafka cut-over", "to consumer")


def reach(right: str, world: LiveWorld) -> list[str]:
    """The connection and the evidence that a site with these rights gives."""
    broker = world.broker
    assert isinstance(broker, Broker)
    if right == "probe":
        return ["-b", broker.bootstrap, "--probe"]
    if right == "request log":
        return ["-b", broker.bootstrap, "--request-log", str(broker.request_log_path)]
    broker.allow("limited", "group", world.group, "DESCRIBE")
    broker.allow("limited", "topic", world.topic, "DESCRIBE")
    made = broker.client_properties("SCRAM-SHA-256", "limited")
    words = ["--command-config", str(broker.write_properties("limited.properties", made))]
    files = {"client logs": world.logs, "inventory": world.files}
    option = {"client logs": "--client-log", "inventory": "--inventory"}
    return [*words, option[right], str(files[right])] if right in files else words


@pytest.fixture
def carry_out(members: Members, group_id: str, topic_name: str, tmp_path: Path) -> CarryOut:
    """Carry a path out on a broker with these rights and files."""

    def carried_out(path: str, right: str, broker: Broker) -> End:
        goal, processes = (PATHS | BY_LOG)[path]
        world = LiveWorld(
            broker, members, group_id, topic_name, folder=tmp_path, rng=random.Random(0),
            processes=processes(), kinds=set(), goal=goal, session_ms=10_000,
            apart=right == "client logs",
        )  # fmt: skip
        broker.log_requests(right == "request log")
        try:
            world.begin()
            end = Operator(world, goal, tmp_path, reach(right, world)).carry_out()
        finally:
            world.end()
            broker.log_requests(False)
            broker.forbid("limited")
        # By a person's word a plan may end before all are restarted: it is the person's then.
        proven = [] if end.confirmations else world.processes
        wrong = [one.name for one in proven if not (one.retired or runs(one, goal))]
        end.stuck = end.stuck or (f"finished, and {wrong} do not run it" if wrong else "")
        told = f"{end.commands:>3} commands: {end.stuck or end.basis}"
        print(f"{broker.version:<6} {path:<22} {right:<12} {told}")
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
def test_each_path_ends_with_the_first_rights(
    path: str, kafka41: Broker, carry_out: CarryOut
) -> None:
    ends(carry_out(path, RIGHTS[0], kafka41))


@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    ("path", "right"),
    [
        *(("Java [range]", right) for right in RIGHTS[1:]),
        pytest.param("downgrade", "inventory", marks=pytest.mark.story),
        *(pytest.param(path, "request log", marks=pytest.mark.story) for path in BY_LOG),
    ],
)
def test_a_path_ends_with_what_else_a_site_can_give(
    path: str, right: str, kafka41: Broker, carry_out: CarryOut
) -> None:
    ends(carry_out(path, right, kafka41))


@pytest.fixture(scope="module")
def broker(request: pytest.FixtureRequest) -> Iterator[Broker]:
    """A broker of each version of the table."""
    with Broker(request.param) as made:
        yield made


# KIP-848 came with the Java coordinator.
TABLE = [
    (version, path)
    for version in BROKER_VERSIONS
    for path in PATHS
    if path != "to consumer" or version != SCALA
]


@pytest.mark.full
@pytest.mark.timeout(120)
@pytest.mark.parametrize("right", RIGHTS)
@pytest.mark.parametrize(("broker", "path"), TABLE, indirect=["broker"], scope="module")
def test_every_path_ends_with_any_rights(
    broker: Broker, path: str, right: str, carry_out: CarryOut
) -> None:
    ends(carry_out(path, right, broker))
