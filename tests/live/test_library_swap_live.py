"""Another client library under one group id, with real members of two libraries at a time.

Each roll-out does what `rebal` says, member by member, with the plan's own text where the new
client reads it. No member is rejected, nobody reads a partition twice at a time, and the end is
proven or confirmed.
"""

from pathlib import Path
from typing import Any

import pytest

from tests.kafka.service import named
from tests.live_support.rollout import PARTITIONS, Service
from tests.live_support.terminal import Terminal

# The newest broker: a swap asks no more of the coordinator than any join does.
pytestmark = [
    pytest.mark.usefixtures("other_clients"),
    pytest.mark.parametrize("broker", ["newest"], indirect=True),
]


def swap(service: Service, old: str, new: str, step: dict[str, Any], *words: str) -> dict[str, Any]:
    """Replace the member `old` by one of the client `new`, and return what verify says then."""
    service.stop(old)
    name = f"{new}-{old.rpartition('-')[2]}"
    service.start_as(name, step)
    service.settle()
    told = service.verify(*words)
    assert (told["step"], told["dangers"]) == (step["id"], []), told
    return told


def begin(
    service: Service, names: list[str], assignors: list[str], client: str
) -> list[dict[str, Any]]:
    service.begin(names, assignors)
    return service.steps_of("library", "--to-client", client)


def is_over(service: Service, client: str) -> None:
    assert not service.errors()
    assert service.inspect()["refusals"] == []
    done = service.plan("--to-client", client)
    assert (done["verdict"], done["exit_code"]) == ("done", 0)


def test_kafkajs_to_librdkafka_over_a_renamed_assigner(service: Service) -> None:
    names = ["kafkajs-0", "kafkajs-1"]
    wide, step = begin(service, names, ["RoundRobinAssigner"], "librdkafka")
    assert (wide["target_list"], step["target_list"]) == (
        ["roundrobin", "RoundRobinAssigner"], ["roundrobin"],
    )  # fmt: skip
    service.carry_out(wide, names)
    assert service.inspect()["assignor"] == "roundrobin"
    half = swap(service, "kafkajs-0", "confluent-kafka", step)
    assert (named(half, "yes"), half["exit_code"]) == ({"confluent-kafka-0"}, 4)
    end = swap(service, "kafkajs-1", "confluent-kafka", step)
    assert (end["finished"], end["exit_code"]) == (True, 0)
    is_over(service, "librdkafka")


def copy_offsets(service: Service, lines: dict[str, str], folder: Path) -> None:
    """Carry out the way without a stop, with Kafka's own tool as the plan prints it."""
    terminal = Terminal(folder, service.broker)

    def offsets(use: str) -> list[tuple[str, list[str]]]:
        rows = terminal.run(lines[f"without a stop: {use}"]).stdout.splitlines()
        return [(words[0], words[1:4]) for words in map(str.split, rows) if len(words) > 8]

    committed = [row for _, row in offsets("see the offsets to copy")[1:]]
    assert sorted(committed) == [[service.topic, str(n), str(n + 1)] for n in range(PARTITIONS)]
    text = "".join(",".join(row) + "\n" for row in committed)
    (folder / "offsets.csv").write_text(text)
    new = f"{service.group}-franz-go"
    for use in ("try the copy", "copy them"):
        # The dry run has copied nothing.
        assert new not in dict(offsets("watch both lags"))
        said = terminal.run(lines[f"without a stop: {use}"]).stdout
        assert said.count(new) == PARTITIONS
    both = offsets("watch both lags")
    assert sorted(row for group, row in both if group == new) == sorted(committed)
    assert sorted(row for group, row in both if group == service.group) == sorted(committed)


def test_librdkafka_to_franz_go_over_a_stop(service: Service, tmp_path: Path) -> None:
    names = ["confluent-kafka-0", "confluent-kafka-1"]
    service.broker.produce(service.topic, {number: number + 1 for number in range(PARTITIONS)})
    goal = ("--to-client", "franz-go")
    service.begin(names, ["cooperative-sticky"])
    blocked = service.plan(*goal, "--out", str(service.file))
    assert (blocked["path"], blocked["exit_code"]) == ("library_stop", 3)
    plan = service.plan(
        *goal, "--ignore", "RB123", "--reason", "agreed", "--out", str(service.file)
    )
    assert (plan["next_step"], plan["exit_code"]) == (1, 0)
    (step,) = plan["steps"]
    copy_offsets(service, {one["use"]: one["line"] for one in step["commands"]}, tmp_path)
    for name in names:
        service.stop(name)
    empty = service.verify()
    brings = "with [cooperative-sticky] and franz-go in place of the old library"
    assert empty["next"].startswith(f"start {', '.join(names)} {brings}")
    for name in ("franz-go-0", "franz-go-1"):
        service.start_as(name, step)
    service.settle()
    end = service.verify()
    assert (end["finished"], end["exit_code"]) == (True, 0), end
    is_over(service, "franz-go")
