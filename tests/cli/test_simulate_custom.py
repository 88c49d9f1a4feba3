"""Assignors that are not Kafka's own: the example package, installed, and every wrong one."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from rebal.cli import custom
from rebal.groups.assignors import Spec, SpecMember
from rebal.groups.assignors.spec import PartitionRule, violations
from rebal.groups.errors import CustomAssignorError
from rebal.groups.model import RebalanceProtocol
from tests.cli.conftest import Rebal

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "rendezvous-assignor"


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the example installed in it, by pip, from a copy."""
    source, target = tmp_path_factory.mktemp("src") / "example", tmp_path_factory.mktemp("site")
    shutil.copytree(EXAMPLE, source)
    words = ["-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation"]
    done = subprocess.run(
        [sys.executable, *words, "--target", str(target), str(source)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return target


def run_with(installed: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(Path(sys.executable).with_name("rebal")), *words],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(installed)},
    )


@pytest.mark.slow
def test_the_example_is_found_by_its_entry_point_and_simulated(installed: Path, saved: str) -> None:
    words = ["simulate", "--snapshot", saved, "--assignor", "rendezvous"]
    done = run_with(installed, *words, "-o", "json")
    assert done.returncode == 0, done.stderr
    made = json.loads(done.stdout)
    assert (made["assignor"], made["protocol"], made["violations"]) == ("rendezvous", "EAGER", [])
    assert sum(m["keeps"] + m["gets"] for m in made["members"]) == 12
    unknown = run_with(installed, *words, "--assignor", "nobody")
    assert unknown.returncode == 2
    assert "uniform, consumer:range, rendezvous." in unknown.stderr


SPEC = Spec(
    members=(
        SpecMember(member_id="a", topics=("orders",), owned=(("orders", 0), ("orders", 1))),
        SpecMember(member_id="b", topics=("orders", "clicks")),
    ),
    partitions={"orders": 2, "clicks": 1},
)
GOOD = {"a": [("orders", 0)], "b": [("orders", 1), ("clicks", 0)]}
BARE = {"a": [("orders", 0)], "b": [("clicks", 0)]}
ALL = [("orders", 0), ("orders", 1)]


@pytest.mark.parametrize(
    ("result", "cooperative", "rule"),
    [
        (GOOD, False, None),
        (GOOD, True, PartitionRule.TAKEN_TOO_EARLY),
        (BARE, True, None),
        (BARE, False, PartitionRule.LEFT_OUT),
        ({}, False, PartitionRule.LEFT_OUT),
        ({**GOOD, "a": [("orders", 0), ("orders", 1)]}, False, PartitionRule.TWICE),
        ({**GOOD, "a": [("orders", 0), ("orders", 0)]}, False, PartitionRule.TWICE),
        ({**BARE, "a": [("clicks", 0)], "b": ALL}, False, PartitionRule.NOT_SUBSCRIBED),
        ({**GOOD, "c": [("orders", 5)]}, False, PartitionRule.NO_SUCH_MEMBER),
        ({**GOOD, "a": [*GOOD["a"], ("orders", 2)]}, False, PartitionRule.NO_SUCH_PARTITION),
        ({**GOOD, "a": [*GOOD["a"], ("ghost", 0)]}, False, PartitionRule.NO_SUCH_PARTITION),
    ],
)
def test_every_breach_of_the_contract_is_found(
    result: dict, cooperative: bool, rule: PartitionRule | None
) -> None:
    found = [one.rule for one in violations(SPEC, result, cooperative=cooperative)]
    assert found == ([] if rule is None else [rule])


class Point:
    """An entry point of an installed package, without the package."""

    def __init__(self, name: str, made: object, value: str = "pack:thing") -> None:
        self.name, self.value, self.dist, self._made = name, value, None, made

    def load(self) -> object:
        if isinstance(self._made, Exception):
            raise self._made
        return self._made


def plug(monkeypatch: pytest.MonkeyPatch, *points: Point) -> None:
    def found(group: str, name: str | None = None) -> list[Point]:
        assert group == "rebal.assignors"
        return [point for point in points if name in (None, point.name)]

    monkeypatch.setattr(custom, "entry_points", found)


class Greedy:
    name = "mine"
    supported_protocols = frozenset({RebalanceProtocol.EAGER})

    def assign(self, spec: Spec) -> dict:
        return {spec.members[0].member_id: [("orders", 0), ("orders", 0), ("payments", 1)]}


class Broken(Greedy):
    def assign(self, spec: Spec) -> dict:
        raise KeyError("no such\nthing")


class Lazy(Greedy):
    supported_protocols = ("LAZY",)


class Odd(Greedy):
    def assign(self, spec: Spec) -> dict:
        return {"a": [1, 2]}


@pytest.mark.parametrize(
    ("points", "sentence"),
    [
        ([Point("mine", ImportError("gone"))], "cannot be loaded (ImportError: gone)."),
        ([Point("mine", object())], "cannot be loaded (TypeError: 'object' object is not callable"),
        ([Point("mine", int)], "an assignor needs name; see rebal.groups.assignors.spec."),
        ([Point("mine", Lazy)], "supported_protocols: 'LAZY' is not a valid"),
        ([Point("mine", Broken)], "assign failed with KeyError: 'no such\\nthing'."),
        ([Point("mine", Odd())], "assign must return (topic, partition) lists, not list."),
        (
            [Point("mine", Greedy), Point("mine", Greedy, "other:thing")],
            "mine is provided by assignor mine of an installed package (other:thing) and by",
        ),
    ],
)
def test_what_cannot_be_used_is_one_sentence(
    points: list[Point], sentence: str, saved: str, rebal: Rebal, monkeypatch: pytest.MonkeyPatch
) -> None:
    plug(monkeypatch, *points)
    out, err = rebal("simulate", "--assignor", "mine", "--snapshot", saved, code=1)
    assert out == ""
    assert sentence in err
    assert len(err.splitlines()) == 1


def test_a_broken_contract_is_shown_and_blocks(
    saved: str, rebal: Rebal, monkeypatch: pytest.MonkeyPatch
) -> None:
    plug(monkeypatch, Point("mine", Greedy))
    words = ["simulate", "--snapshot", saved, "--assignor", "mine"]
    out = rebal(*words, code=3).out
    assert "contract     1 partition given to two members, or twice to one (such as orders 0" in out
    assert "11 partitions left without an owner though its topic is subscribed to" in out
    assert "1 partition given out though it does not exist (such as payments 1, checkout-1" in out
    assert "breaks its contract" in rebal(*words, "--assignor", "range", code=3).out


def test_a_custom_assignor_cannot_take_the_name_of_one_of_kafkas(
    saved: str, rebal: Rebal, monkeypatch: pytest.MonkeyPatch
) -> None:
    plug(monkeypatch, Point("range", Broken))
    rebal("simulate", "--assignor", "range", "--snapshot", saved)
    with pytest.raises(CustomAssignorError, match="range is Kafka's own name"):
        custom.custom_assignors(["range"])
