"""A synthetic `__consumer_offsets`: commits, and the metadata of classic groups that rebalance.

One record in forty is a group's metadata, of 20 to 50 members and about 10 KB; all others are
offset commits (value v3). Each generation replaces one member, who takes over its partitions; half
of the groups are COOPERATIVE, whose members say what they own. With `moving` every member gets
other partitions in each generation. The same numbers always give the same bytes. Written as zstd
Parquet with the columns of Spark's Kafka source, and as a log segment (record batches v2) for
Kafka's own tools.
"""

import random
import struct
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

GROUP_EVERY = 40
BATCH = 20_000
START_MS = 1_790_000_000_000
OFFSETS_PARTITIONS = 50
TOPICS = ("orders.v1", "payments.captured", "clickstream.enriched", "inventory.levels")
PARTITIONS = 48
SCHEMA = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", tz="UTC")),
        ("timestampType", pa.int32()),
    ]
)
Record = tuple[int, bytes, bytes, int]
"""Partition of the offsets topic, key, value, milliseconds since 1970."""


def records(count: int, seed: int = 1, moving: bool = False) -> Iterator[Record]:
    """`count` records in the order of time, from as many groups as make 100 generations each."""
    random_ = random.Random(seed)
    groups = [_Group(f"service-{g:05}", random_, moving) for g in range(max(1, count // 4000))]
    step = 7 * 24 * 3_600_000 / count
    for n in range(count):
        at = START_MS + int(n * step)
        group = groups[n % len(groups) if n % GROUP_EVERY else (n // GROUP_EVERY) % len(groups)]
        if n % GROUP_EVERY == 0:
            yield group.partition, group.metadata_key, group.next_generation(at), at
        else:
            yield group.partition, *group.commit(n, at), at


def write_parquet(path: Path, count: int, moving: bool = False) -> None:
    """Write the records as zstd Parquet, in the order that a consumer of one partition reads."""
    write_parts([path], [count], moving=moving)


def write_parts(paths: Sequence[Path], bounds: Sequence[int], moving: bool = False) -> None:
    """Write the records to several files: up to each of the bounds those that came since."""
    by_partition: dict[int, list[tuple[bytes, bytes, int]]] = {}
    written: Counter[int] = Counter()
    files = zip(paths, bounds, strict=True)
    path, bound = next(files)
    for number, (partition, key, value, at) in enumerate(records(bounds[-1], moving=moving), 1):
        by_partition.setdefault(partition, []).append((key, value, at))
        if number == bound:
            _write(path, by_partition, written)
            by_partition = {}
            path, bound = next(files, (path, 0))


def _write(
    path: Path, by_partition: dict[int, list[tuple[bytes, bytes, int]]], written: Counter[int]
) -> None:
    with pq.ParquetWriter(path, SCHEMA, compression="zstd") as writer:
        for partition, rows in sorted(by_partition.items()):
            for first in range(0, len(rows), BATCH):
                part = rows[first : first + BATCH]
                keys, values, times = zip(*part, strict=True)
                length, start = len(part), written[partition]
                written[partition] += length
                writer.write_table(
                    pa.table(
                        [
                            pa.array(keys, pa.binary()),
                            pa.array(values, pa.binary()),
                            pa.array(["__consumer_offsets"] * length),
                            pa.array([partition] * length, pa.int32()),
                            pa.array(range(start, start + length), pa.int64()),
                            pa.array([at * 1000 for at in times], SCHEMA.field("timestamp").type),
                            pa.array([0] * length, pa.int32()),
                        ],
                        schema=SCHEMA,
                    )
                )


def write_segment(path: Path, count: int) -> None:
    """Write the records to a log segment, a hundred to a batch."""
    from kafka.record.default_records import DefaultRecordBatchBuilder

    def new_batch() -> DefaultRecordBatchBuilder:
        return DefaultRecordBatchBuilder(
            magic=2,
            compression_type=0,
            is_transactional=False,
            producer_id=-1,
            producer_epoch=-1,
            base_sequence=-1,
            batch_size=16 * 1024 * 1024,
        )

    with path.open("wb") as log:
        batch, first, held = new_batch(), 0, 0
        for n, (_, key, value, at) in enumerate(records(count)):
            batch.append(held, at, key, value, [])
            held += 1
            if held == 100 or n == count - 1:
                data = bytearray(batch.build())
                data[:8] = struct.pack(">q", first)  # outside what the checksum covers
                log.write(data)
                batch, first, held = new_batch(), n + 1, 0


def _text(text: str) -> bytes:
    raw = text.encode()
    return struct.pack(">h", len(raw)) + raw


def _partitions(numbers: dict[str, list[int]]) -> bytes:
    out = struct.pack(">i", len(numbers))
    for topic, owned in numbers.items():
        out += _text(topic) + struct.pack(f">i{len(owned)}i", len(owned), *owned)
    return out


class _Group:
    """One group's state, and the bytes that its coordinator would write."""

    def __init__(self, name: str, random_: random.Random, moving: bool) -> None:
        self.random = random_
        self.moving = moving
        self.cooperative = random_.random() < 0.5
        self.partition = random_.randrange(OFFSETS_PARTITIONS)
        self.metadata_key = struct.pack(">h", 2) + _text(name)
        self.commit_keys = [
            struct.pack(">h", 1) + _text(name) + _text(topic) + struct.pack(">i", p)
            for topic in TOPICS
            for p in range(PARTITIONS)
        ]
        self.generation = 0
        self.offset = random_.randrange(10**9)
        self.topics = struct.pack(">i", len(TOPICS)) + b"".join(map(_text, TOPICS))
        self.members = [self._member() for _ in range(random_.randint(20, 50))]
        self.owned: dict[bytes, bytes] = {}

    def _member(self) -> bytes:
        number = self.random.randrange(100)
        client = f"service-consumer-{number}"
        host = f"/10.2.{self.random.randrange(256)}.{self.random.randrange(256)}"
        member_id = f"{client}-{self.random.getrandbits(128):032x}"
        return (
            _text(member_id)
            + struct.pack(">h", -1)
            + _text(client)
            + _text(host)
            + struct.pack(">ii", 300_000, 45_000)
        )

    def next_generation(self, at: int) -> bytes:
        """One member is replaced, and each gets its share of the partitions."""
        self.generation += 1
        if self.generation > 1:
            self.members[self.random.randrange(len(self.members))] = self._member()
        size = len(self.members)
        turn = self.generation if self.moving else 0
        parts = []
        owned: dict[bytes, bytes] = {}
        for index, member in enumerate(self.members):
            share = {
                topic: list(range((index + t + turn) % size, PARTITIONS, size))
                for t, topic in enumerate(TOPICS)
            }
            dealt = _partitions({topic: numbers for topic, numbers in share.items() if numbers})
            kept = self.owned.get(member, struct.pack(">i", 0)) if self.cooperative else None
            subscription = (
                struct.pack(">h", 3)
                + self.topics
                + struct.pack(">i", -1)
                + (kept or struct.pack(">i", 0))
                + struct.pack(">ih", self.generation - 1 if kept else -1, -1)
            )
            assignment = struct.pack(">h", 3) + dealt + struct.pack(">i", -1)
            owned[member] = dealt
            parts.append(
                member
                + struct.pack(">i", len(subscription))
                + subscription
                + struct.pack(">i", len(assignment))
                + assignment
            )
        self.owned = owned
        leader = self.members[0]
        leader_id = leader[2 : 2 + struct.unpack_from(">h", leader)[0]].decode()
        assignor = "cooperative-sticky" if self.cooperative else "range"
        return (
            struct.pack(">h", 3)
            + _text("consumer")
            + struct.pack(">i", self.generation)
            + _text(assignor)
            + _text(leader_id)
            + struct.pack(">qi", at, size)
            + b"".join(parts)
        )

    def commit(self, n: int, at: int) -> tuple[bytes, bytes]:
        """One partition's next commit."""
        key = self.commit_keys[n % len(self.commit_keys)]
        self.offset += 17
        return key, struct.pack(">hqi", 3, self.offset, 4) + _text("") + struct.pack(">q", at)
