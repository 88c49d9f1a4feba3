"""The server's assignors against the coordinator's own classes, and where they are not sure.

The cases are generated groups; the second half tries every order that the broker does not show.
"""

import base64
import json
import os
import random
import subprocess
from collections.abc import Iterable, Iterator
from itertools import permutations, product
from typing import Any

import pytest
from hypothesis import assume, event, given
from hypothesis import strategies as st

from rebal.groups.assignors import Assignment, Spec, SpecMember
from rebal.groups.assignors.server import SERVER_NAMES, server_assignor
from rebal.groups.assignors.server.server import ServerProblem, Slots, Targets
from rebal.groups.assignors.server.uniform import assign_uniform
from tests.examples import examples
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
def test_every_target_assignment_equals_the_coordinators(assignor: str) -> None:
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


TOPICS = ("a", "b", "c")
Result = tuple[frozenset[int], ...]


def topic_id(place: int, number: int) -> str:
    """An id that a HashMap of 16 keeps at `place`; different numbers are different ids."""
    raw = (place + 16 * number).to_bytes(16)
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")


class Ordered(ServerProblem):
    """The problem with the orders given: of all topics, and of each table that is asked for."""

    def __init__(self, spec: Spec, ids: dict[str, str], orders: Iterator[Slots]) -> None:
        super().__init__(spec, ids)
        self.slots = next(orders)
        self._orders = orders

    def table(self, topics: Iterable[int]) -> Slots:
        slots = next(self._orders)
        assert {t for slot in slots for t in slot} == set(topics)
        return slots


class Recorded(ServerProblem):
    """The problem as it is; `asked` are the tables that somebody looked into."""

    asked: list[Slots]

    def table(self, topics: Iterable[int]) -> Slots:
        self.asked.append(super().table(topics))
        return self.asked[-1]


def result(targets: Targets) -> Result:
    return tuple(map(frozenset, targets.lists))


def every_order(slots: Slots) -> list[Slots]:
    return list(product(*(list(permutations(slot)) for slot in slots)))


@st.composite
def groups(draw: st.DrawFn, ids: list[str], *, mixed: bool = False) -> Spec:
    """Members of which some own something; all subscribe alike unless `mixed`."""
    counts = {name: draw(st.integers(1, 5)) for name in TOPICS[: draw(st.integers(1, 3))]}
    every = tuple(counts)
    some = st.lists(st.sampled_from(every), min_size=1, unique=True).map(tuple)
    topics = {name: draw(some) if mixed else every for name in ids}
    owned: dict[str, list[tuple[str, int]]] = {name: [] for name in ids}
    for topic, count in counts.items():
        for partition in range(count):
            owner = draw(st.sampled_from([None, *ids]))
            if owner is not None and topic in topics[owner]:
                owned[owner].append((topic, partition))
    return Spec(
        members=tuple(
            SpecMember(member_id=name, topics=topics[name], owned=tuple(owned[name]))
            for name in ids
        ),
        partitions=counts,
    )


@st.composite
def cases(draw: st.DrawFn) -> tuple[Spec, dict[str, str]]:
    spec = draw(groups([f"m-{n}" for n in range(draw(st.integers(1, 4)))]))
    return spec, {name: topic_id(draw(st.integers(3, 4)), n) for n, name in enumerate(TOPICS)}


@given(cases())
def test_uniform_reports_topics_exactly_when_their_hash_order_changes_the_result(
    case: tuple[Spec, dict[str, str]],
) -> None:
    problem = Recorded(*case)
    problem.asked = []
    assigned = assign_uniform(problem)
    tables = [problem.slots, *problem.asked]
    assume(any(len(slot) > 1 for slots in tables for slot in slots))
    results = {
        result(assign_uniform(Ordered(*case, iter(orders))))
        for orders in product(*map(every_order, tables))
    }
    assert result(assigned) in results
    assert bool(assigned.topics) == (len(results) > 1)
    shared = {topic for slots in tables for slot in slots if len(slot) > 1 for topic in slot}
    assert assigned.topics <= shared


NEAR = ("a", "q", "b", "r", "c", "s", "\x81")
"""Member ids of which a table of 16 keeps three at one place, and two at each of two others."""
# Every order of the members is tried.
MOST = 6 if os.environ.get("REBAL_FULL") == "1" else 5


def every_result(
    given_: Spec,
) -> tuple[set[tuple[tuple[str, frozenset[tuple[str, int]]], ...]], set[str]]:
    """The targets that the group can get, and the members of whom the first says it is not sure."""
    assignor = server_assignor("uniform", {name: topic_id(n, 0) for n, name in enumerate(TOPICS)})
    results = set()
    for order in permutations(given_.members):
        made, _ = assignor.assign_with_undecided(Spec(members=order, partitions=given_.partitions))
        results.add(tuple(sorted((name, frozenset(owned)) for name, owned in made.items())))
    return results, set(assignor.assign_with_undecided(given_)[1].members)


@pytest.mark.parametrize("mixed", [False, True])
@examples(80, full=300)
@given(data=st.data())
def test_uniform_reports_members_exactly_when_their_hash_order_changes_the_result(
    data: st.DataObject, mixed: bool
) -> None:
    near = st.lists(st.sampled_from(NEAR), min_size=2, max_size=MOST, unique=True)
    given_ = data.draw(groups(data.draw(near), mixed=mixed))
    results, members = every_result(given_)
    event(f"{len(results) > 1}")
    assert bool(members) == (len(results) > 1)


def test_three_members_in_one_hash_bucket_are_tried_in_every_order() -> None:
    """The reverse order gives the same result; only another first member changes it."""
    both = ("a", "b")
    group = Spec(
        members=(
            SpecMember(member_id="a", topics=both),
            SpecMember(member_id="q", topics=both),
            SpecMember(member_id="\x81", topics=("b",)),
        ),
        partitions={"a": 1, "b": 2},
    )
    results, members = every_result(group)
    assert (len(results), members) == (4, {"a", "q", "\x81"})
