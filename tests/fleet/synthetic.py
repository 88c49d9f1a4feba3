"""A made-up fleet as rows of the tables: every shape of group a report must show, many times over.

The same number of groups gives the same rows. Group `n` has the shape `SHAPES[n % len(SHAPES)]`.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from random import Random
from typing import Any, Final, NamedTuple

from tests.fleet.tablefiles import AT

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
