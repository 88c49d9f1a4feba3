"""Ranges of `__consumer_offsets` are read to their ends, or an error says why not; no broker."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
from confluent_kafka import TIMESTAMP_CREATE_TIME, KafkaError, TopicPartition

from rebal.inspectors.connection.config import ClusterConfig
from rebal.inspectors.connection.settings import Pem
from rebal.inspectors.errors import ConnectError, RequestError, SettingError
from rebal.inspectors.fleet.sources import kafka
from rebal.inspectors.fleet.sources.kafka import (
    PartitionRange,
    carried,
    read_partitions,
    share_ranges,
)
from rebal.inspectors.fleet.sources.source import TOPIC

CONFIG = ClusterConfig(bootstrap="b:9092")


def message(number: int, offset: int, error: int | None = None, topic: Any = TOPIC) -> Mock:
    """A record, the end of a partition, or an error."""
    said = {
        "error": None if error is None else KafkaError(error),
        "topic": topic,
        "partition": number,
        "offset": offset,
        "key": b"k",
        "value": None,
        "timestamp": (TIMESTAMP_CREATE_TIME, 1000),
    }
    return Mock(**{f"{name}.return_value": value for name, value in said.items()})


def end(number: int, offset: int) -> Mock:
    return message(number, offset, KafkaError._PARTITION_EOF)


class Broker:
    """What a consumer is given, one batch after another; then nothing."""

    def __init__(self, *batches: list[Mock]) -> None:
        self._batches = [list(batch) for batch in batches]
        self.assigned: list[tuple[int, int]] = []
        self.settings: dict[str, Any] = {}
        self.closed = False

    def __call__(self, settings: dict[str, Any]) -> Broker:
        self.settings = settings
        return self

    def assign(self, places: list[TopicPartition]) -> None:
        self.assigned = [(place.partition, place.offset) for place in places]

    def poll(self, _: float) -> Mock | None:
        if not self._batches:
            self.settings["error_cb"](KafkaError(KafkaError._TRANSPORT, "b:9092: connection lost"))
            return None
        return self._batches[0].pop(0)

    def consume(self, *_: object) -> list[Mock]:
        return self._batches.pop(0)

    def pause(self, places: list[TopicPartition]) -> None:
        assert len(places) == 1

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Read 3 up to 6 of partition 0 and 0 up to 2 of partition 9; gives the offsets."""

    def offsets(broker: Broker) -> Iterator[tuple[int, int]]:
        monkeypatch.setattr(kafka, "Consumer", broker)
        ranges = [PartitionRange(0, 3, 6), PartitionRange(9, 0, 2)]
        for batch in read_partitions(ranges, CONFIG):
            for row in batch.to_pylist():
                assert (row["key"], row["value"], row["problem"]) == (b"k", None, None)
                yield row["partition"], row["offset"]

    return offsets


def test_a_range_ends_with_a_later_record_or_the_end_of_the_partition(read: Any) -> None:
    """The first end of partition 9 is that of a broker that is behind: more follows."""
    broker = Broker(
        [message(0, 3), message(9, 0), end(9, 1)],
        [message(0, 5), message(0, 6), message(0, 7)],
        [message(9, 1), end(9, 2)],
    )
    assert list(read(broker)) == [(0, 3), (9, 0), (0, 5), (9, 1)]
    assert broker.assigned == [(0, 3), (9, 0)]
    assert broker.settings["isolation.level"] == "read_committed"
    assert broker.closed


def test_records_that_are_gone_and_groups_that_may_not_be_seen_are_no_error(read: Any) -> None:
    denied = message(-1, -1, KafkaError.GROUP_AUTHORIZATION_FAILED, topic=None)
    assert list(read(Broker([end(0, 8)], [end(9, 2)]))) == []
    assert list(read(Broker([denied], [message(0, 4), end(0, 6), end(9, 2)]))) == [(0, 4)]


def test_a_broker_that_rejects_or_only_has_errors_or_falls_silent_is_an_error(
    read: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = Broker([message(0, 3), message(9, 0, KafkaError.TOPIC_AUTHORIZATION_FAILED)])
    with pytest.raises(RequestError, match="TOPIC_AUTHORIZATION_FAILED"):
        list(read(broker))
    assert broker.closed
    with pytest.raises(ConnectError, match=r"no answer within 60 s: .*connection lost"):
        list(read(Broker([message(0, 3)])))
    times = iter(range(0, 1000, 40))
    monkeypatch.setattr(kafka, "time", SimpleNamespace(monotonic=lambda: next(times)))
    down = [[message(-1, -1, KafkaError._ALL_BROKERS_DOWN, topic=None)] for _ in range(5)]
    with pytest.raises(ConnectError, match=r"no answer within 60 s: .*[Bb]roker"):
        list(read(Broker(*down)))


def test_tasks_share_the_offsets_and_need_no_pem_file(tmp_path: Any) -> None:
    pem = tmp_path / "ca.pem"
    pem.write_text("PEM")
    config = ClusterConfig(bootstrap="b:9093", protocol="SSL", ca=Pem(file=str(pem)))
    ranges = [PartitionRange(n, 0, 100_000) for n in range(8)]
    edges = dict.fromkeys(range(8), (0, 100000, 100007))
    assert share_ranges(edges, 1, {}) == [ranges[n : n + 2] for n in range(0, 8, 2)]
    assert share_ranges(edges, 4, dict.fromkeys(edges, 99_999)) == []
    assert share_ranges(edges, 4, {**dict.fromkeys(edges, 99_999), 3: 99_989}) == [
        [PartitionRange(3, 99_990, 100_000)]
    ]
    with pytest.raises(RequestError, match=r"3 ends at 100007, before the 100009 that .* --full"):
        share_ranges(edges, 4, {3: 100_008})
    assert carried(config).ca == Pem(inline="PEM")
    pem.unlink()
    with pytest.raises(SettingError, match="is not a PEM file that can be read"):
        carried(config)
