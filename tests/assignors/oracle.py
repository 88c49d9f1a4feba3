"""Reading the oracle: `(case as recorded, spec, expected assignment)` for each line."""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rebal.groups.assignors import Spec, SpecMember

USER_DATA = {"sticky": "sticky_user_data", "cooperative-sticky": "coop_user_data"}


def lines(folder: Path) -> Iterator[dict[str, Any]]:
    for path in sorted(folder.glob("*.jsonl.gz")):
        with gzip.open(path, "rt", encoding="utf-8") as file:
            yield from map(json.loads, file)


def spec_of(case: dict[str, Any]) -> Spec:
    key = USER_DATA.get(case["assignor"])
    return Spec(
        members=tuple(
            SpecMember(
                member_id=member["member_id"],
                topics=tuple(member["topics"]),
                instance_id=member["instance_id"],
                rack=member["rack"],
                owned=tuple((topic, partition) for topic, partition in member["owned"]),
                generation=member["generation"],
                user_data=base64.b64decode(member[key])
                if key and member[key]
                else (b"" if key and member[key] == "" else None),
            )
            for member in case["members"]
        ),
        partitions={topic: len(replicas) for topic, replicas in case["topics"].items()},
        replicas=case["topics"],
        racks={broker["id"]: broker["rack"] for broker in case["brokers"]},
    )


def expected(case: dict[str, Any]) -> dict[str, list[tuple[str, int]]]:
    return {
        member: [(topic, partition) for topic, partition in owned]
        for member, owned in case["assignment"].items()
    }
