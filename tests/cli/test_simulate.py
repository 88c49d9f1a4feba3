"""`rebal simulate` as it is typed, and assignors that are not Kafka's own."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from rebal.cli import custom
from rebal.cli.app import run
from rebal.cli.output import render
from rebal.cli.params import Connection
from rebal.cli.render.simulation.screen import compare_view, simulate_view
from rebal.cli.sources import GroupSource
from rebal.groups.assignors import Spec, SpecMember
from rebal.groups.assignors.spec import PartitionRule, violations
from rebal.groups.compact import Partitions
from rebal.groups.errors import CustomAssignorError
from rebal.groups.model import (
    GroupSnapshot,
    GroupType,
    Member,
    RebalanceProtocol,
    Subscription,
    Topic,
)
from rebal.groups.snapshot.documents import dump_snapshot
from rebal.planner.rehearsal.whatif.changes import Changes
from rebal.planner.rehearsal.whatif.simulation import simulate
from tests.cli.conftest import Rebal
from tests.documents import checked
from tests.planner.worker_groups import workers

Make = Callable[..., GroupSnapshot]
Said = pytest.CaptureFixture[str]
Simulate = Callable[..., str]


def member(name: str, owned: str, topics: tuple[str, ...] = ("orders",)) -> Member:
    """A member that owns these partitions of each of these topics."""
    return Member(
        member_id=name,
        client_id=f"pod-{name}",
        subscription=Subscription(version=3, topics=topics),
        assignment={topic: Partitions.parse(owned) for topic in topics} if owned else {},
    )


@pytest.fixture
def simulated(tmp_path: Path, capsys: Said) -> Simulate:
    """Simulate on this group; return the screen, or the sentence on stderr."""

    def run_on(snapshot: GroupSnapshot, *words: str, code: int = 0) -> str:
        path = tmp_path / "checkout.rebal.yaml"
        path.write_text(dump_snapshot(snapshot), encoding="utf-8")
        assert run(["simulate", "--snapshot", str(path), *words]) == code
        out, err = capsys.readouterr()
        assert not (out and err)
        return out or err

    return run_on


@pytest.mark.parametrize(("assignor", "said"), [("range", "range again"), ("sticky", "→ sticky")])
def test_after_an_eager_simulation_the_next_command_simulates_cooperative_sticky(
    group: Make, simulated: Simulate, assignor: str, said: str
) -> None:
    out = simulated(group(), "--assignor", assignor)
    assert out.splitlines()[0].endswith(said)
    assert "next:        rebal simulate --assignor cooperative-sticky --snapshot" in out


def test_wide_simulation_shows_partitions_of_each_round_member_and_topic(
    group: Make, simulated: Simulate
) -> None:
    uneven = group(members=(member("a", "0-7"), member("b", "8-11")))
    out = simulated(uneven, "--assignor", "cooperative-sticky", "--wide")
    lines = [line.split() for line in out.splitlines()]
    assert ["round", "1", "pod-a", "·", "gives", "orders", "6-7"] in lines
    assert ["pod-b", "then", "orders", "6-11"] in lines
    assert ["orders", "12", "4–8", "6–6"] in lines


def test_a_simulated_leader_failure_exits_with_3(group: Make, simulated: Simulate) -> None:
    """A recreated topic has fewer partitions than its members still claim."""
    claimed = group(members=(member("a", "0,7"),), topics=(Topic(name="orders", partitions=2),))
    out = simulated(claimed, "--assignor", "cooperative-sticky", code=3)
    assert "fails        the leader would throw IllegalStateException" in out


def test_simulate_reads_the_live_group_with_the_typed_connection_options(
    group: Make, capsys: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[object] = []

    def read(source: GroupSource) -> GroupSnapshot:
        seen.append(source)
        return group(members=(member("a", "0-5"), member("b", "6-11")))

    monkeypatch.setattr(GroupSource, "read", read)
    typed_words = ["-b", "kafka-1:9092", "-X", "sasl.mechanism=PLAIN"]
    args = ["simulate", "checkout", "--assignor", "sticky", *typed_words]
    assert run([*args, "--timeout", "3"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("checkout (live): range → sticky")
    again = "simulate checkout --assignor cooperative-sticky"
    assert f"rebal {again} {' '.join(typed_words)} --timeout 3\n" in out
    typed = Connection("kafka-1:9092", overrides=["sasl.mechanism=PLAIN"], timeout=3)
    assert seen == [GroupSource("checkout", None, typed)]


def test_simulate_applies_each_what_if_option(group: Make, simulated: Simulate) -> None:
    words = ["--add-member", "1", "--restart-member", "checkout-2", "--add-partitions", "orders=3"]
    out = simulated(group(), "--assignor", "cooperative-sticky", *words)
    assert "orders gets 3 more partitions, then checkout-2 stops, then checkout-2 is back" in out
    assert "COOPERATIVE  13 partitions stop in 6 rebalances" in out


def test_several_simulated_assignors_make_one_document(group: Make, simulated: Simulate) -> None:
    words = ["--add-member", "1", "-o", "json"]
    for name in ("range", "cooperative-sticky", "consumer:range", "range"):
        words += ["--assignor", name]
    made = checked(simulated(group(), *words))
    assert made["changes"] == {"add_members": 1}
    assert [one["stops"] for one in made["simulations"]] == [12, 3, 6]


def test_a_group_that_never_becomes_stable_exits_with_3(
    group: Make, simulated: Simulate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rebal.cli.simulating.simulate", partial(simulate, most_rounds=1))
    out = simulated(group(), "--add-member", "1", "--assignor", "cooperative-sticky", code=3)
    assert "NOT stable after 1 rebalance\n" in out


def test_a_kip_848_group_is_simulated_with_the_brokers_assignors(
    group: Make, simulated: Simulate
) -> None:
    new = group(type=GroupType.CONSUMER, assignor="uniform")
    out = simulated(new, "--assignor", "uniform", "--remove-member", "checkout-1")
    assert "uniform of the broker (KIP-848); checkout-1 leaves" in out
    assert "KIP-848      4 partitions stop; each member moves by itself" in out
    assert "next:        rebal simulate --assignor range --snapshot" in out


def test_a_leader_that_may_compute_longer_than_the_timeout_is_predicted(group: Make) -> None:
    mixed = (member("a", ""), member("b", ""), member("c", "", ("orders", "payments")))
    topics = (Topic(name="orders", partitions=24_000), Topic(name="payments", partitions=1))
    near = simulate(group(members=mixed, topics=topics), "sticky", rebalance_timeout=60)
    text = render(simulate_view(near, "test", "rebal"), width=400)
    assert "leader       the leader may compute for 12 s to 104 s at each rebalance" in text
    assert "the coordinator evicts it after 60 s (max.poll.interval.ms)" in text
    assert "slow leader" in render(compare_view([near, near], "test", "rebal"), width=200)


def assumed(snapshot: GroupSnapshot, assignor: str, **changes: object) -> str:
    return " ".join(simulate(snapshot, assignor, Changes(**changes)).assumes)


@pytest.mark.parametrize(("ids", "named"), [("AC", False), ("AQ", True)])
def test_topics_of_unknown_hash_order_are_named_if_the_order_can_change_the_assignment(
    group: Make, ids: str, *, named: bool
) -> None:
    """The ids' last bytes are 0 and 8, or 0 and 64, which share a bucket of 16 buckets."""
    names = ("orders", "clicks")
    topics = tuple(
        Topic(name=name, partitions=2, topic_id=f"{'A' * 20}{last}A")
        for name, last in zip(names, ids, strict=True)
    )
    found = group(members=(member("a", "0-1", names),), topics=topics)
    note = "clicks, orders share a place in the coordinator's table: which of them it walks first"
    assert (note in assumed(found, "uniform", add_members=1)) == named
    assert "share a place" not in assumed(found, "uniform")
    assert "share a place" not in assumed(found, "consumer:range", add_members=1)


@pytest.mark.parametrize(("ids", "named"), [("abc", False), ("aqc", True)])
def test_members_of_unknown_hash_order_are_named_if_the_order_can_change_the_assignment(
    group: Make, ids: str, *, named: bool
) -> None:
    """One-letter ids 16 apart share a bucket of 16 buckets."""
    topics = (Topic(name="orders", partitions=8, topic_id=f"{'A' * 20}AA"),)
    owned = zip(ids, ["0-1", "2-3", "4-7"], strict=True)
    found = group(members=tuple(member(*each) for each in owned), topics=topics)
    note = "members pod-a, pod-q share places in the coordinator's table: which of those at one"
    assert (note in assumed(found, "uniform", remove_members=("pod-c",))) == named
    assert "share places" not in assumed(found, "consumer:range", remove_members=("pod-c",))


def test_missing_topic_ids_are_reported_for_the_uniform_assignor_only(group: Make) -> None:
    for assignor, reported in (("uniform", True), ("consumer:range", False), ("range", False)):
        assert ("the snapshot has no topic ids" in assumed(group(), assignor)) == reported


def test_simulate_restarts_each_connect_worker_if_none_is_named(simulated: Simulate) -> None:
    document = checked(simulated(workers("default"), "--assignor", "eager", "-o", "json"))
    (one,) = document["runs"]
    assert (document["restarted"], one["cost"]["rebalances"]) == (["w0", "w1", "w2"], 6)
    words = ["--restart-member", "w1", "--restart-member", "w1-1", "-o", "json"]
    document = checked(simulated(workers("default"), "--assignor", "eager", *words))
    assert document["restarted"] == ["w1"]


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
def test_the_example_assignor_is_found_by_its_entry_point(installed: Path, saved: str) -> None:
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
def test_every_breach_of_the_assignor_contract_is_found(
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
def test_an_unusable_custom_assignor_is_reported_in_one_sentence(
    points: list[Point], sentence: str, saved: str, rebal: Rebal, monkeypatch: pytest.MonkeyPatch
) -> None:
    plug(monkeypatch, *points)
    out, err = rebal("simulate", "--assignor", "mine", "--snapshot", saved, code=1)
    assert out == ""
    assert sentence in err
    assert len(err.splitlines()) == 1


def test_a_custom_assignor_that_breaks_its_contract_exits_with_3(
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
