"""`rebal simulate` as it is typed: options, exit codes, documents, the next command.

What the screens look like is kept (test_screens.py).
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from rebal.cli.app import run
from rebal.cli.output import render
from rebal.cli.params import Connection
from rebal.cli.render.simulation.screen import compare_view, simulate_view
from rebal.cli.sources import GroupSource
from rebal.groups.compact import Partitions
from rebal.groups.model import GroupSnapshot, GroupType, Member, Subscription, Topic
from rebal.groups.snapshot.documents import dump_snapshot
from rebal.planner.rehearsal.whatif.changes import Changes
from rebal.planner.rehearsal.whatif.simulation import simulate
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
def test_an_eager_assignor_is_followed_by_a_cooperative_one(
    group: Make, simulated: Simulate, assignor: str, said: str
) -> None:
    out = simulated(group(), "--assignor", assignor)
    assert out.splitlines()[0].endswith(said)
    assert "next:        rebal simulate --assignor cooperative-sticky --snapshot" in out


def test_wide_names_partitions_of_rounds_members_and_topics(
    group: Make, simulated: Simulate
) -> None:
    uneven = group(members=(member("a", "0-7"), member("b", "8-11")))
    out = simulated(uneven, "--assignor", "cooperative-sticky", "--wide")
    lines = [line.split() for line in out.splitlines()]
    assert ["round", "1", "pod-a", "·", "gives", "orders", "6-7"] in lines
    assert ["pod-b", "then", "orders", "6-11"] in lines
    assert ["orders", "12", "4–8", "6–6"] in lines


def test_a_leader_that_would_fail_exits_with_3(group: Make, simulated: Simulate) -> None:
    """A topic that was made anew with fewer partitions than its members still claim."""
    claimed = group(members=(member("a", "0,7"),), topics=(Topic(name="orders", partitions=2),))
    out = simulated(claimed, "--assignor", "cooperative-sticky", code=3)
    assert "fails        the leader would throw IllegalStateException" in out


def test_a_group_is_read_live_with_the_connection_that_was_typed(
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


def test_each_what_if_is_an_option(group: Make, simulated: Simulate) -> None:
    words = ["--add-member", "1", "--restart-member", "checkout-2", "--add-partitions", "orders=3"]
    out = simulated(group(), "--assignor", "cooperative-sticky", *words)
    assert "orders gets 3 more partitions, then checkout-2 stops, then checkout-2 is back" in out
    assert "COOPERATIVE  13 partitions stop in 6 rebalances" in out


def test_several_assignors_are_one_document(group: Make, simulated: Simulate) -> None:
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


def test_a_kip848_group_is_simulated_with_the_brokers_assignors_only(
    group: Make, simulated: Simulate
) -> None:
    new = group(type=GroupType.CONSUMER, assignor="uniform")
    out = simulated(new, "--assignor", "uniform", "--remove-member", "checkout-1")
    assert "uniform of the broker (KIP-848); checkout-1 leaves" in out
    assert "KIP-848      4 partitions stop; each member moves by itself" in out
    assert "next:        rebal simulate --assignor range --snapshot" in out


def test_a_leader_near_its_timeout_is_predicted(group: Make) -> None:
    mixed = (member("a", ""), member("b", ""), member("c", "", ("orders", "payments")))
    topics = (Topic(name="orders", partitions=24_000), Topic(name="payments", partitions=1))
    near = simulate(group(members=mixed, topics=topics), "sticky", rebalance_timeout=60)
    text = render(simulate_view(near, "test", "rebal"), width=400)
    assert "leader       the leader may compute for 12 s to 104 s at each rebalance" in text
    assert "members are evicted after 60 s (max.poll.interval.ms)" in text
    assert "slow leader" in render(compare_view([near, near], "test", "rebal"), width=200)


def assumed(snapshot: GroupSnapshot, assignor: str, **changes: object) -> str:
    return " ".join(simulate(snapshot, assignor, Changes(**changes)).assumes)


@pytest.mark.parametrize(("ids", "told"), [("AC", False), ("AQ", True)])
def test_topics_whose_order_nobody_knows_are_named_where_it_matters(
    group: Make, ids: str, *, told: bool
) -> None:
    """The ids' last bytes are 0 and 8, or 0 and 64, which is the same place in a table of 16."""
    names = ("orders", "clicks")
    topics = tuple(
        Topic(name=name, partitions=2, topic_id=f"{'A' * 20}{last}A")
        for name, last in zip(names, ids, strict=True)
    )
    found = group(members=(member("a", "0-1", names),), topics=topics)
    note = "clicks, orders share a place in the coordinator's table: which of them it walks first"
    assert (note in assumed(found, "uniform", add_members=1)) == told
    assert "share a place" not in assumed(found, "uniform")
    assert "share a place" not in assumed(found, "consumer:range", add_members=1)


@pytest.mark.parametrize(("ids", "told"), [("abc", False), ("aqc", True)])
def test_members_whose_order_nobody_knows_are_named_where_it_matters(
    group: Make, ids: str, *, told: bool
) -> None:
    """One-letter ids 16 apart have the same place in a table of 16."""
    topics = (Topic(name="orders", partitions=8, topic_id=f"{'A' * 20}AA"),)
    owned = zip(ids, ["0-1", "2-3", "4-7"], strict=True)
    found = group(members=tuple(member(*each) for each in owned), topics=topics)
    note = "members pod-a, pod-q share places in the coordinator's table: which of those at one"
    assert (note in assumed(found, "uniform", remove_members=("pod-c",))) == told
    assert "share places" not in assumed(found, "consumer:range", remove_members=("pod-c",))


def test_missing_topic_ids_are_said_where_the_order_of_topics_counts(group: Make) -> None:
    for assignor, told in (("uniform", True), ("consumer:range", False), ("range", False)):
        assert ("the snapshot has no topic ids" in assumed(group(), assignor)) == told


def test_each_worker_restarts_where_none_is_named(simulated: Simulate) -> None:
    told = checked(simulated(workers("default"), "--assignor", "eager", "-o", "json"))
    (one,) = told["runs"]
    assert (told["restarted"], one["cost"]["rebalances"]) == (["w0", "w1", "w2"], 6)
    words = ["--restart-member", "w1", "--restart-member", "w1-1", "-o", "json"]
    told = checked(simulated(workers("default"), "--assignor", "eager", *words))
    assert told["restarted"] == ["w1"]
