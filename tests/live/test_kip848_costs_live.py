"""What a move to KIP-848, the way back and a stop are foretold to cost, against what they do cost.

Real members restart one by one. Rebalances are the group's epochs (and generations), changes of
owner and standstill are what the members themselves said, partition by partition. Counts are
asserted here, times in bench/standstill.py.
"""

import time
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import pytest

from rebal.groups.model import GroupType
from tests.kafka import jars
from tests.kafka.broker import Broker
from tests.kafka.members import Member, Members, Rolling, answer
from tests.live_support import last_generation, measured, read_group, standstill

PARTITIONS = 12
# Longer than the heartbeat interval that a plan takes for granted (3 s, and a poll): with a shorter
# one it predicts members that are back before the rebalance of their leave is over.
RESTART = 4.0
# As long as Kafka's own would make the test slow: what moves stops for up to so long.
INTERVAL = 0.5
# The longest time between two polls of a member, and until its join is answered.
POLL = 0.6
DELAY = 1.0
Said = pytest.CaptureFixture[str]


@pytest.fixture(scope="module", params=[jars.EARLY, jars.NEWEST])
def slow(request: pytest.FixtureRequest) -> Iterator[Broker]:
    """A broker whose members ask often enough for a test, and not at once."""
    settings = {
        "group.consumer.heartbeat.interval.ms": str(int(1000 * INTERVAL)),
        "group.initial.rebalance.delay.ms": str(int(1000 * DELAY)),
    }
    with Broker(request.param, secure=False, settings=settings, request_log=True) as broker:
        yield broker


class Real(NamedTuple):
    """What one restart has really cost; `seconds` sums up each partition's standstill."""

    rebalances: int
    moves: int
    seconds: float
    pause: float


class Service(Rolling):
    """Members in numbered places, each restarted as a new member in the place of the old one."""

    quiet = 1.2 * INTERVAL

    def __init__(self, broker: Broker, members: Members, group: str, topic: str) -> None:
        broker.wait_coordinator(group)
        names = (group, topic)
        super().__init__(broker, members, *names, partitions=PARTITIONS, software="java-4.1.1")
        self.rebalances = 0

    def start(self, name: str, assignors: Sequence[str], **options: Any) -> Member:
        """Classic ones say that they are there as often as the others."""
        if options.get("protocol") != "consumer":
            often = {"heartbeat.interval.ms": str(int(1000 * INTERVAL))}
            options |= {"settings": often, "session_timeout_ms": 20_000}
        return super().start(name, assignors, **options)

    def settle(self) -> None:
        """Wait until all are there and nothing moves any more."""
        super().settle()
        # An epoch goes on where the generation was, and the other way round.
        found = read_group(self.broker, self.group).group
        kip848 = found.type is GroupType.CONSUMER
        made = found.group_epoch if kip848 else last_generation(self.broker, self.group)
        assert made is not None
        self.rebalances = made

    def again(self, places: Sequence[int], **options: Any) -> Real:
        """Stop these, wait, start them; what that has cost when the group is at rest again."""
        before = self.rebalances
        began = time.time() * 1000
        names = [f"c-{place}" for place in places]
        for name in names:
            self.running.pop(name).stop()
        stopped = time.time() * 1000
        time.sleep(max(0.0, RESTART - (stopped - began) / 1000))
        for name in names:
            self.place(name, **options)
        self.settle()
        # A group without members is replaced by one of the other kind, which begins anew: a KIP-848
        # group at epoch 1 where the brokers have an assignment interval (KAFKA-20268).
        if len(places) == len(self.running):
            seen = read_group(self.broker, self.group)
            late = "group.consumer.assignment.interval.ms" in seen.cluster.settings
            before = int(late and seen.group.type is GroupType.CONSUMER)
        said = [(event, name) for name, member in self.ever for event in member.events]
        return Real(self.rebalances - before, *standstill(said, began, PARTITIONS))


class Foretold(NamedTuple):
    """The cost of a plan's one step, at its own pace and when all restart at once."""

    rebalances: int
    moves: int
    seconds: float
    at_once: dict[str, Any]


def foretold(service: Service, capsys: Said, to: str) -> Foretold:
    """What the plan says now, as its JSON has it."""
    words = ["--to", to, "--assume-family", "java", "--restart-seconds", f"{RESTART:g}"]
    log = ["--request-log", str(service.broker.request_log_path)]
    body = answer(service.broker, capsys, "plan-upgrade", service.group, *words, *log)
    if not body["steps"]:
        assert body["verdict"] == "done"
        return Foretold(0, 0, 0.0, {})
    cost = body["steps"][0]["cost"]
    paces = cost["paces"]
    moved, stopped = cost["partitions_moved"], cost["partition_seconds"]
    return Foretold(cost["rebalances"], moved, stopped, paces[-1] if paces else {})


def most(seconds: float, moves: int) -> float:
    """Standstill is foretold as the longest there is, but for what no timeout tells: closing,
    joining, looking up the offsets. That is at most a second for each partition."""
    return seconds + moves


def roll(
    service: Service, capsys: Said, to: str, own: dict[int, dict[str, Any]], **options: Any
) -> Iterator[tuple[int, Foretold, Real]]:
    """Restart all, one by one: what each was foretold to cost (the plan before less the plan
    after), and what it has cost."""
    ahead = foretold(service, capsys, to)
    for place in range(len(service.running)):
        real = service.again([place], **options, **own.get(place, {}))
        left = foretold(service, capsys, to)
        one = Foretold(*(a - b for a, b in zip(ahead[:3], left[:3], strict=True)), {})
        yield place, one, real
        ahead = left


def test_each_restart_to_kip_848_and_back_costs_what_was_predicted(
    slow: Broker, members: Members, group_id: str, topic_name: str, capsys: Said
) -> None:
    """COOPERATIVE members and `uniform`: every count is exact; one member is static."""
    service = Service(slow, members, group_id, topic_name)
    own: dict[int, dict[str, Any]] = {0: {"instance_id": "a-0"}}
    classic: dict[str, Any] = {"assignors": ["cooperative-sticky"]}
    online: dict[str, Any] = {"assignors": [], "protocol": "consumer"}
    for place in range(3):
        service.place(f"c-{place}", **classic, **own.get(place, {}))
    service.settle()
    for to, options in (("consumer", online), ("cooperative-sticky", classic)):
        whole = foretold(service, capsys, to)
        total = [0, 0, 0.0]
        for place, one, real in roll(service, capsys, to, own, **options):
            message = f"to {to}, place {place}: predicted {one[:3]}, real {real[:3]}"
            assert (real.rebalances, real.moves) == (one.rebalances, one.moves), message
            if place == 0:
                assert real.rebalances == 0, "a static member takes its own place"
            low = RESTART * PARTITIONS / 3 if place == 0 else 0
            longest = one.seconds if place else low + POLL * PARTITIONS / 3
            highest = most(longest, real.moves or PARTITIONS // 3)
            measured(f"restart of place {place} to {to}", low, real.seconds, highest)
            total = [a + b for a, b in zip(total, real[:3], strict=True)]
        assert total[:2] == [whole.rebalances, whole.moves]
        highest = most(whole.seconds, whole.moves)
        measured(f"all restarts to {to}", 0.3 * whole.seconds, total[2], highest)


def test_an_eager_group_moves_to_kip_848_one_by_one_or_all_at_once_at_the_predicted_cost(
    slow: Broker, members: Members, group_id: str, topic_name: str, capsys: Said
) -> None:
    """With `range` the moves depend on member ids, and new members have new ids."""
    service = Service(slow, members, group_id, topic_name)
    up = {"assignors": [], "protocol": "consumer", "settings": {"group.remote.assignor": "range"}}
    down = {"assignors": ["range"]}
    for place in range(3):
        service.place(f"c-{place}", **down)
    service.settle()
    for place, one, real in roll(service, capsys, "consumer", {}, **up):
        message = f"place {place}: predicted {one[:3]}, real {real[:3]}"
        assert real.rebalances == one.rebalances == 2, message
        assert 8 <= real.moves <= 2 * PARTITIONS, message
        highest = most(one.seconds, real.moves)
        measured(f"restart of place {place} from range", 0, real.seconds, highest)
    for to, options in (("range", down), ("consumer", up)):
        pace = foretold(service, capsys, to).at_once
        real = service.again(range(3), **options)
        message = f"to {to}: predicted {pace}, real {real}"
        assert (pace["name"], pace["rebalances"]) == ("all at once", real.rebalances), message
        # Nobody owns anything from the last stop until the first are given their partitions.
        low = RESTART + (DELAY if to == "range" else 0) - 1
        highest = pace["longest_seconds"] + INTERVAL
        measured(f"pause, all at once to {to}", low, real.pause, highest)
        whole = pace["partition_seconds"]
        measured(f"all at once to {to}", 0.5 * whole, real.seconds, 1.3 * whole)
