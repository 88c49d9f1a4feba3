"""The server's assignors against the coordinator's own classes, on generated groups."""

from __future__ import annotations

import base64
import json
import random
import subprocess
from typing import Any

import pytest

from rebal.groups.assignors import Assignment, Spec, SpecMember
from rebal.groups.assignors.server import SERVER_NAMES, server_assignor
from tests.kafka import jars

KINDS = ("alike", "alike-fresh", "halves", "few", "skewed", "static", "unowned")
EACH = 60


def group(kind: str, seed: int) -> dict[str, Any]:
    """One case, as TargetAssignment.java reads it, with the topics' names beside their ids."""
    dice = random.Random(f"{kind} {seed}")
    names = [f"topic-{n}" for n in range(dice.choice([1, 2, 3, 5, 12, 13, 24, 40]))]
    ids = {name: base64.urlsafe_b64encode(dice.randbytes(16)).decode()[:22] for name in names}
    counts = {name: dice.choice([1, 2, 3, 8, 30, 100, 200]) for name in names}
    members = []
    for n in range(dice.choice([1, 2, 3, 5, 8, 12, 13, 30])):
        topics = names
        if kind in ("halves", "skewed", "unowned"):
            topics = [name for name in names if dice.random() < 0.5]
        elif kind == "few":
            topics = dice.sample(names, min(len(names), dice.choice([0, 1, 2, 3])))
        static = kind == "static" and dice.random() < 0.7
        members.append(
            {
                "id": f"{dice.randrange(10**6)}-{n}",
                "instance": f"pod-{dice.randrange(10**6)}-{n}" if static else None,
                "names": topics,
                "target": {},
            }
        )
    if kind != "alike-fresh":
        deal(kind, dice, members, counts)
    return {"members": members, "counts": counts, "ids": ids}


def deal(kind: str, dice: random.Random, members: list[Any], counts: dict[str, int]) -> None:
    """Give out partitions, each to at most one; sometimes to a member without that topic."""
    for name, count in counts.items():
        favoured = dice.sample(members, max(1, len(members) // 3))
        stride = dice.choice([1, 1, 2, 16, 64])
        for partition in range(count):
            if dice.random() < (0.6 if kind == "unowned" else 0.1):
                continue
            from_ = favoured if kind in ("skewed", "alike") and dice.random() < 0.8 else members
            owner = from_[partition // stride % len(from_)] if stride > 1 else dice.choice(from_)
            if name in owner["names"] or dice.random() < 0.05:
                owner["target"].setdefault(name, []).append(partition)


def spec_of(case: dict[str, Any]) -> Spec:
    return Spec(
        members=tuple(
            SpecMember(
                member_id=member["id"],
                topics=tuple(member["names"]),
                instance_id=member["instance"],
                owned=tuple((t, p) for t, numbers in member["target"].items() for p in numbers),
            )
            for member in case["members"]
        ),
        partitions=case["counts"],
    )


def line_of(case: dict[str, Any], assignor: str) -> str:
    ids = case["ids"]
    return json.dumps(
        {
            "assignor": assignor,
            "alike": len({frozenset(m["names"]) for m in case["members"]}) == 1,
            "topics": {ids[name]: count for name, count in case["counts"].items()},
            "ids": ids,
            "members": [
                {
                    "id": m["id"],
                    "instance": m["instance"],
                    "topics": m["names"],
                    "target": {ids[name]: numbers for name, numbers in m["target"].items()},
                }
                for m in case["members"]
            ],
        }
    )


@pytest.mark.live
@pytest.mark.parametrize("assignor", SERVER_NAMES)
def test_every_target_is_the_coordinators(assignor: str) -> None:
    cases = [(kind, n, group(kind, n)) for kind in KINDS for n in range(EACH)]
    java = jars.tool("java")
    assert java is not None
    classes = jars.compiled("TargetAssignment", "broker-4.1.1")
    path = f"{classes}:{jars.classpath('broker-4.1.1')}"
    done = subprocess.run(
        [java, "-cp", path, "TargetAssignment"],
        input="\n".join(line_of(case, assignor) for _, _, case in cases),
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    answers = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert len(answers) == len(cases)
    for (kind, n, case), answer in zip(cases, answers, strict=True):
        made = server_assignor(assignor, case["ids"]).assign(spec_of(case))
        named = {topic_id: name for name, topic_id in case["ids"].items()}
        expected: Assignment = {
            member["id"]: sorted(
                (named[topic], p) for topic, ps in answer.get(member["id"], {}).items() for p in ps
            )
            for member in case["members"]
        }
        assert made == expected, f"{assignor}: {kind} {n}"
