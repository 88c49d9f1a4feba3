"""A lake as the pipeline leaves it, from rows written by hand, and a made-up fleet as such rows.

Every shape of group that a report must show is in the fleet, many times over. The same number of
groups gives the same rows. Group `n` has the shape `SHAPES[n % len(SHAPES)]`. No Spark, no Java.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
from msgspec.structs import replace

from rebal.inspectors.fleet.lake.place import find_place
from rebal.inspectors.fleet.lake.run import new_scan
from rebal.inspectors.fleet.lake.scans import SCANS
from rebal.inspectors.fleet.lake.writer import PartWriter, Target, TaskReport
from rebal.inspectors.fleet.manifest import UNNAMED, Manifest
from rebal.inspectors.fleet.schemas import TABLES
from rebal.inspectors.kafka.brokers import ClusterReading
from rebal.inspectors.tables.reader import open_tables

Rows = Mapping[str, Sequence[Mapping[str, Any]]]
_RECORDS: Final = {"GROUP_METADATA": 20}
AT = datetime(2026, 11, 20, 9, 0, tzinfo=UTC)


def write_tables(
    folder: Path,
    rows: Rows,
    *,
    parts: int = 1,
    records: Mapping[str, int] = _RECORDS,
    brokers: ClusterReading | None = None,
    cluster: str = UNNAMED,
    **said: Any,
) -> Path:
    """`folder` with these rows, as a finished scan leaves them; each table in `parts` files.

    `records` are the kinds of records that the manifest counts, `said` what else it says.
    """
    run = new_scan(find_place(str(folder)), cluster, full=True)
    if brokers is not None:
        ends = [
            {"topic": topic, "topic_partition": number, "log_end_offset": end, "at": brokers.at}
            for topic, of_topic in brokers.ends.items()
            for number, end in enumerate(of_topic)
        ]
        rows = {"log_ends": ends, **rows}
        said["brokers"] = replace(brokers, ends={})
    made: list[pa.RecordBatch] = []
    for number in range(parts):
        writer = PartWriter(run.target)
        for name, found in rows.items():
            unknown = {key for row in found for key in row} - set(TABLES[name].names)
            assert not unknown, f"{name} has no columns {unknown}"
            start, stop = len(found) * number // parts, len(found) * (number + 1) // parts
            writer.add("open_groups" if name == "groups" else name, found[start:stop])
        made += writer.report()
    manifest = Manifest(
        cluster=cluster,
        run=run.number,
        finished_at=AT,
        observed_until=AT,
        sources=("consumer_offsets.jsonl.gz", "kafka-request.log.gz"),
        read=sum(records.values()),
        records=dict(records),
        **{"observed_from": AT - timedelta(hours=24), **said},
    )
    run.finish(manifest, reported(made))
    return folder


def last_scan(folder: Path, cluster: str | None = None) -> Manifest:
    """The manifest of the last finished scan of the cluster, or of the lake's only one."""
    return open_tables(str(folder) if cluster is None else f"{folder}#{cluster}").manifest


def target_in(folder: Path, number: int = 1) -> Target:
    """Where tasks of a scan with this number write, in a lake in `folder`."""
    return Target(find_place(str(folder)), f"{number:08d}-test", number)


def reported(batches: Iterable[pa.RecordBatch]) -> TaskReport:
    """What tasks report to the driver."""
    totals = TaskReport()
    for batch in batches:
        totals.take(batch.to_pylist())
    return totals


def files_in(folder: Path, kind: str) -> list[str]:
    """The files of one kind in a lake, as paths in it, sorted."""
    return sorted(str(path.relative_to(folder)) for path in folder.rglob(f"{kind}-*.parquet"))


def change_document(folder: Path, change: Mapping[str, Any]) -> None:
    """Overwrite fields of the last scan's document, as nothing of rebal does."""
    path = max((folder / SCANS).glob("*.parquet"))
    rows = pq.read_table(path)
    documents = [json.dumps(json.loads(text) | change) for text in rows["document"].to_pylist()]
    at = rows.schema.get_field_index("document")
    pq.write_table(rows.set_column(at, "document", pa.array(documents)), path)


Row = dict[str, Any]
JAVA: Final = ("apache-kafka-java", "2.8.2")
JAVA3: Final = ("apache-kafka-java", "3.9.1")
RDKAFKA: Final = ("confluent-kafka-python", "2.6.0")
BOTH: Final = ["cooperative-sticky", "range"]
HOSTILE: Final = (
    "<script>alert(1)</script>|`x`\x1b[31m\u202egnp {{rows}} {{details}} </title>\nforged: 1"
)


class Shape(NamedTuple):
    """What is the same in all groups of a shape; `lists` are those of members in turn."""

    lists: Sequence[Sequence[str] | None] = ()
    software: tuple[str | None, str | None] = JAVA3
    assignor: str | None = None
    incident: str | None = None


_RANGE: Final = ["range"]
_KINDS: Final = {
    "eager": Shape((_RANGE,), JAVA),
    "unknown": Shape((None,)),
    "defaults": Shape((["range", "cooperative-sticky"],)),
    "half-way": Shape((BOTH, _RANGE), assignor="range"),
    "cooperative": Shape((["cooperative-sticky"],)),
    "librdkafka": Shape((_RANGE,), RDKAFKA),
    "crash loop": Shape((_RANGE,), RDKAFKA, incident="crash loop"),
    "kip-848": Shape((None,), assignor="uniform"),
    "storm": Shape((["range", "roundrobin"],), RDKAFKA, incident="storm"),
    "static": Shape((_RANGE,), incident="hidden list"),
    "kafkajs": Shape((["RoundRobinAssigner"],), (None, None)),
    "half unknown": Shape((_RANGE, None)),
    "streams": Shape((["stream"],)),
    "connect": Shape((["sessioned", "compatible", "default"],)),
    "empty": Shape(),
    "deleted": Shape(incident="deleted"),
    "dropped": Shape((BOTH, ["cooperative-sticky"]), assignor="cooperative-sticky"),
}
SHAPES: Final = (
    "eager", "unknown", "defaults", "half-way", "cooperative", "librdkafka", "crash loop", "eager",
    "kip-848", "unknown", "storm", "static", "kafkajs", "half unknown", "streams", "connect",
    "empty", "deleted", "dropped", "cooperative",
)  # fmt: skip
_WORDS: Final = (
    "orders", "payments", "checkout", "billing", "search", "audit", "ledger", "stock",
    "emails", "clicks", "fraud", "returns", "pricing", "geo", "sessions", "ranking",
)  # fmt: skip
_JOINS_OWN: Final = (
    "group_id", "member_id", "instance_id", "client_id", "host", "assignors", "software_name",
    "software_version", "session_timeout_ms", "rebalance_timeout_ms",
)  # fmt: skip
"""What a join says of its member, as the row of `members` does."""


def fleet(groups: int) -> dict[str, list[Row]]:
    """Rows of all tables for so many groups."""
    made: dict[str, list[Row]] = {
        name: []
        for name in ("groups", "members", "assignor_lists", "rebalances", "incidents", "errors")
    }
    for number in range(groups):
        _Group(number, Random(f"7-{number}")).add_to(made)
    return made


def group_named(shape: str) -> str:
    """The first group of this shape."""
    return str(fleet(len(SHAPES))["groups"][SHAPES.index(shape)]["group_id"])


def hostile_fleet() -> dict[str, list[Row]]:
    """A few groups, in one of which every text that a cluster can choose is hostile."""
    rows = fleet(7)
    mine = rows["groups"][3]["group_id"]
    for name, table in rows.items():
        for row in table:
            if row.get("group_id") != mine:
                continue
            row["group_id"] = HOSTILE
            for field in ("client_id", "host", "instance_id", "cause", "detail", "source"):
                if field in row:
                    row[field] = HOSTILE
            if name == "rebalances":
                row["joined"] = [HOSTILE]
            if name == "assignor_lists":
                row["assignors"] = [*row["assignors"], HOSTILE]
    rows["incidents"].append(
        {"group_id": HOSTILE, "kind": HOSTILE, "detail": HOSTILE, "members": [HOSTILE], "count": 1}
    )
    rows["rebalances"][-1]["assignor"] = HOSTILE
    return rows


class _Group:
    def __init__(self, number: int, random: Random) -> None:
        self.shape = SHAPES[number % len(SHAPES)]
        self.kind = _KINDS[self.shape]
        self.random = random
        word = _WORDS[number % len(_WORDS)]
        self.group_id = f"{word}-{self.shape.replace(' ', '-')}-{number:04d}"
        self.topic = f"{word}.v1"
        lists = self.kind.lists
        self.count = random.randint(2, 14) if lists else 0
        self.partitions = max(1, self.count) * random.choice((2, 3, 4, 6))
        self.busy = {"storm": 160, "crash loop": 40}.get(self.shape, random.randint(1, 24))
        self.type = "consumer" if self.shape == "kip-848" else "classic"
        self.protocol_type = "connect" if self.shape == "connect" else "consumer"
        self.lists = [lists[n % len(lists)] for n in range(self.count)]
        first = next(filter(None, lists), _RANGE)
        self.assignor = self.kind.assignor or first[0]

    def add_to(self, made: dict[str, list[Row]]) -> None:
        rebalances = list(self._rebalances())
        made["rebalances"] += rebalances
        made["groups"].append(self._group(rebalances))
        for number in range(self.count):
            row = self._member(number, rebalances[-1]["generation"])
            made["members"].append(row)
            if self.lists[number]:
                made["assignor_lists"] += self._joins(number, row)
        made["incidents"] += self._incidents(rebalances)
        if self.shape in ("crash loop", "half-way"):
            made["assignor_lists"].append(self._refusal())

    def _rebalances(self) -> list[Row]:
        times = sorted(self.random.uniform(60, 24 * 3600) for _ in range(self.busy))
        made = []
        for number, ago in enumerate(reversed(times), 1):
            at = AT - timedelta(seconds=ago)
            took = self.random.uniform(300, 9000)
            failed = self.shape == "crash loop" and number % 4 == 0
            stops = 0 if self.assignor in ("cooperative-sticky", "uniform") else self.partitions
            made.append(
                {
                    "group_id": self.group_id,
                    "incarnation": 1,
                    "generation": number,
                    "started_at": at,
                    "ended_at": at + timedelta(milliseconds=took),
                    "latency_ms": took,
                    "cause": self.random.choice(("join", "leave", "session timeout")),
                    "failed": failed,
                    "assignor_before": "range" if number > 1 else None,
                    "assignor": None if failed else self.assignor,
                    "protocol": "COOPERATIVE" if not stops else "EAGER",
                    "members": self.count,
                    "joined": [f"{self.group_id}-0"],
                    "left": [],
                    "refused": [],
                    "partitions": self.partitions,
                    "moved": self.random.randint(0, self.partitions),
                    "stopped": stops,
                    "evidence": "request log",
                }
            )
        return made

    def _group(self, rebalances: Sequence[Row]) -> Row:
        done = [row for row in rebalances if not row["failed"]]
        took = [row["latency_ms"] for row in done]
        last: datetime = done[-1]["ended_at"]
        state = {"empty": "Empty", "deleted": "Dead"}.get(self.shape, "Stable")
        return {
            "group_id": self.group_id,
            "type": self.type,
            "protocol_type": self.protocol_type if self.count else None,
            "state": state,
            "assignor": self.assignor if self.count else None,
            "generation": rebalances[-1]["generation"],
            "members": self.count,
            "incarnation": 1,
            "first_seen": AT - timedelta(hours=24),
            "last_seen": last,
            "deleted_at": AT - timedelta(minutes=5) if self.shape == "deleted" else None,
            "rebalance_total": len(done),
            "rebalance_latency_avg_ms": sum(took) / len(took),
            "rebalance_latency_max_ms": max(took),
            "rebalance_latency_total_ms": sum(took),
            "failed_rebalance_total": len(rebalances) - len(done),
            "last_rebalance_at": last,
            "refused_total": 12 if self.shape == "crash loop" else 0,
        }

    def _member(self, number: int, generation: int) -> Row:
        names = self.lists[number]
        name, version = self.kind.software if names else (None, None)
        share = self.partitions // self.count
        numbers = list(range(number * share, (number + 1) * share))
        mine = [{"topic": self.topic, "partitions": numbers}]
        return {
            "group_id": self.group_id,
            "incarnation": 1,
            "first_generation": 1,
            "last_generation": generation,
            "member_id": f"{self._client(number)}-{number:08x}-0f0f",
            "instance_id": f"{self.group_id}-{number}" if self.shape == "static" else None,
            "client_id": self._client(number),
            "host": f"/10.0.{number % 250}.{len(self.group_id) % 250}",
            "protocol_type": self.type,
            "software_name": name,
            "software_version": version,
            "session_timeout_ms": 45_000,
            "rebalance_timeout_ms": 300_000,
            "subscription_version": None if self.protocol_type == "connect" else 1,
            "topics": [self.topic],
            "owned": mine if names == ["cooperative-sticky"] else [],
            "assignment": mine,
            "assignors": names,
            "last_at": AT - timedelta(hours=1),
            "joined_at": AT - timedelta(hours=9),
            "joined_reason": "rebalance enforced by user" if number == 0 else None,
            "current": True,
        }

    def _client(self, number: int) -> str:
        return f"{self.group_id}-{number}"

    def _joins(self, number: int, row: Row) -> list[Row]:
        join = {name: row[name] for name in _JOINS_OWN} | {
            "at": row["joined_at"],
            "last_at": AT - timedelta(hours=2, minutes=number),
            "times": 3,
            "protocol_type": self.protocol_type,
            "generation": 1,
            "refused": False,
            "evidence": "request log",
            "source": "kafka-request.log.gz",
        }
        if self.shape not in ("half-way", "dropped"):
            return [join]
        # The process that the roll-out replaced: another member id, the old list.
        before = join | {
            "at": AT - timedelta(hours=20),
            "last_at": row["joined_at"] - timedelta(minutes=1),
            "member_id": f"{row['client_id']}-before-0000",
            "assignors": ["range"] if self.shape == "half-way" else BOTH,
        }
        return [before, join]

    def _refusal(self) -> Row:
        name, version = self.kind.software
        return {
            "group_id": self.group_id,
            "at": AT - timedelta(minutes=50),
            "last_at": AT - timedelta(minutes=40),
            "times": 12,
            "member_id": None,
            "client_id": self._client(0),
            "host": "/10.0.9.9",
            "assignors": ["cooperative-sticky"],
            "protocol_type": "consumer",
            "refused": True,
            "software_name": name,
            "software_version": version,
            "evidence": "request log",
            "source": "kafka-request.log.gz",
        }

    def _incidents(self, rebalances: Sequence[Row]) -> list[Row]:
        if self.kind.incident is None:
            return []
        return [
            {
                "group_id": self.group_id,
                "kind": self.kind.incident,
                "started_at": rebalances[0]["started_at"],
                "ended_at": rebalances[-1]["ended_at"],
                "members": [self._client(0)],
                "count": len(rebalances),
                "detail": f"{len(rebalances)} in 24 h",
            }
        ]
