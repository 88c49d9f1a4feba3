"""What-ifs, several assignors and KIP-848 groups as they are typed at `rebal simulate`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from rebal.cli.app import run
from rebal.cli.output import render
from rebal.cli.render.simulation.screen import compare_view, simulate_view
from rebal.groups.compact import Partitions
from rebal.groups.model import GroupSnapshot, GroupType, Member, Subscription, Topic
from rebal.groups.snapshot.documents import dump_snapshot
from rebal.planner.rehearsal.whatif.simulation import simulate
from tests.cli.test_simulate import members
from tests.documents import checked

Make = Callable[..., GroupSnapshot]


@pytest.fixture
def saved(tmp_path: Path, group: Make) -> Callable[..., str]:
    def save(**more: object) -> str:
        path = tmp_path / "checkout.rebal.yaml"
        path.write_text(dump_snapshot(group(**more)), encoding="utf-8")
        return str(path)

    return save


def test_a_what_if_says_what_happens_round_by_round(saved, capsys) -> None:
    words = ["simulate", "--assignor", "cooperative-sticky", "--snapshot", saved()]
    words += ["--add-member", "1", "--restart-member", "checkout-2", "--add-partitions", "orders=3"]
    assert run(words) == 0
    out = capsys.readouterr().out
    assert "orders gets 3 more partitions, then checkout-2 stops, then checkout-2 is back" in out
    for line in (
        "round 1      orders gets 3 more partitions · revoked 0 · assigned 3 · still owned 12",
        "round 2      checkout-2 stops · 5 partitions without an owner · revoked 0 · assigned 5",
        "round 3      checkout-2 is back · revoked 5 · assigned 0 · still owned 10",
        "round 5      new-1 joins · revoked 3 · assigned 0 · still owned 12",
    ):
        assert line in out
    assert [line.split()[0] for line in out.splitlines() if line.startswith("new-")] == ["new-1"]
    assert "EAGER        57 partitions stop in 4 rebalances" in out
    assert "COOPERATIVE  13 partitions stop in 6 rebalances" in out


def test_wide_names_the_partitions_of_each_round(saved, capsys) -> None:
    words = ["simulate", "--assignor", "cooperative-sticky", "--snapshot", saved(), "--wide"]
    assert run([*words, "--add-member", "1"]) == 0
    out = capsys.readouterr().out
    assert "round 1      checkout-1 · gives orders 3\n" in out
    assert "round 2      new-1 · gets orders 3,7,11\n" in out


def test_several_assignors_stand_side_by_side_and_in_one_document(saved, capsys) -> None:
    words = ["simulate", "--snapshot", saved(), "--add-member", "1"]
    for name in ("range", "cooperative-sticky", "consumer:range", "range"):
        words += ["--assignor", name]
    assert run([*words, "-o", "json"]) == 0
    made = checked(capsys.readouterr().out)
    assert made["changes"] == {"add_members": 1}
    assert [one["stops"] for one in made["simulations"]] == [12, 3, 6]
    assert run(words) == 0
    rows = {line.split()[0]: line.split()[1:] for line in capsys.readouterr().out.splitlines()
            if line.startswith(("range  ", "cooperative", "consumer"))}  # fmt: skip
    assert rows == {
        "range": ["6", "0", "3–3", "0", "1", "12", "12"],
        "cooperative-sticky": ["3", "0", "3–3", "0", "2", "3", "12"],
        "consumer:range": ["6", "0", "3–3", "0", "none", "6", "–"],
    }


def test_rounds_limits_the_simulated_rebalances(saved, capsys) -> None:
    words = ["simulate", "--snapshot", saved(), "--add-member", "1", "--rounds", "1"]
    assert run([*words, "--assignor", "cooperative-sticky"]) == 0
    assert "loses 3 · balance 0–3 (was 4–4) · NOT stable after 1 rebalance" in (
        capsys.readouterr().out
    )
    assert run([*words[:-1], "until-stable", "--assignor", "cooperative-sticky"]) == 0


def test_a_kip848_group_is_simulated_with_the_brokers_assignors_only(saved, capsys) -> None:
    path = saved(type=GroupType.CONSUMER, assignor="uniform")
    words = ["simulate", "--snapshot", path, "--assignor"]
    assert run([*words, "uniform", "--remove-member", "checkout-1"]) == 0
    out = capsys.readouterr().out
    assert "uniform of the broker (KIP-848); checkout-1 leaves" in out
    assert "KIP-848      4 partitions stop; each member moves by itself" in out
    assert "next:        rebal simulate --assignor range --snapshot" in out


def test_a_leader_near_its_timeout_is_predicted(group: Make) -> None:
    mixed = (*members(["", ""], ("orders",)), *members([""], ("orders", "payments")))
    mixed = tuple(
        Member(member_id=f"m{n}", subscription=one.subscription) for n, one in enumerate(mixed)
    )
    topics = (Topic(name="orders", partitions=24_000), Topic(name="payments", partitions=1))
    snapshot = group(members=mixed, topics=topics)
    near = simulate(snapshot, "sticky", rebalance_timeout=60)
    text = render(simulate_view(near, "test", "rebal"), width=400)
    assert "leader       the leader may compute for 12 s to 104 s at each rebalance" in text
    assert "members are evicted after 60 s (max.poll.interval.ms)" in text
    assert "slow leader" in render(compare_view([near, near], "test", "rebal"), width=200)


@pytest.mark.parametrize(("ids", "told"), [("AC", False), ("AQ", True)])
def test_topics_whose_order_nobody_knows_are_named_where_it_matters(
    ids: str, saved, capsys, *, told: bool
) -> None:
    """The ids' last bytes are 0 and 8, or 0 and 64, which is the same place in a table of 16."""
    topics = tuple(
        Topic(name=name, partitions=2, topic_id=f"{'A' * 20}{last}A")
        for name, last in zip(("orders", "clicks"), ids, strict=True)
    )
    owner = Member(
        member_id="pod-0-id",
        client_id="pod-0",
        subscription=Subscription(version=3, topics=("orders", "clicks")),
        assignment={"orders": Partitions.parse("0-1"), "clicks": Partitions.parse("0-1")},
    )
    words = ["simulate", "--snapshot", saved(members=(owner,), topics=topics), "--assignor"]
    note = "clicks, orders share a place in the coordinator's table: which of them it walks first"
    assert run([*words, "uniform", "--add-member", "1"]) == 0
    assert (note in capsys.readouterr().out) == told
    for silent in (["uniform"], ["consumer:range", "--add-member", "1"]):
        assert run([*words, *silent]) == 0
        assert "share a place" not in capsys.readouterr().out


@pytest.mark.parametrize(("ids", "told"), [("abc", False), ("aqc", True)])
def test_members_whose_order_nobody_knows_are_named_where_it_matters(
    ids: str, saved, capsys, *, told: bool
) -> None:
    """One-letter ids 16 apart have the same place in a table of 16."""
    group = tuple(
        replace(one, member_id=name, client_id=f"pod-{name}")
        for one, name in zip(members(["0-1", "2-3", "4-7"]), ids, strict=True)
    )
    topics = (Topic(name="orders", partitions=8, topic_id=f"{'A' * 20}AA"),)
    words = ["simulate", "--snapshot", saved(members=group, topics=topics), "--assignor"]
    note = "members pod-a, pod-q share places in the coordinator's table: which of those at one"
    assert run([*words, "uniform", "--remove-member", "pod-c"]) == 0
    assert (note in " ".join(capsys.readouterr().out.split())) == told
    assert run([*words, "consumer:range", "--remove-member", "pod-c"]) == 0
    assert "share places" not in capsys.readouterr().out


def test_missing_topic_ids_are_said_where_the_order_of_topics_counts(saved, capsys) -> None:
    for assignor, told in (("uniform", True), ("consumer:range", False), ("range", False)):
        assert run(["simulate", "--snapshot", saved(), "--assignor", assignor]) == 0
        assert ("the snapshot has no topic ids" in capsys.readouterr().out) == told
