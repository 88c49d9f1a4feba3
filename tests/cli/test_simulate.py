"""`rebal simulate` as it is typed: text, JSON and YAML, folding, escaping, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from rebal.cli.app import run
from rebal.cli.output import render
from rebal.cli.params import Connection
from rebal.cli.render.simulation.screen import simulate_view
from rebal.cli.sources import EvidenceFiles
from rebal.groups.compact import Partitions
from rebal.groups.model import GroupSnapshot, Member, Subscription, Topic
from rebal.groups.snapshot.documents import dump_snapshot
from rebal.planner.rehearsal.whatif.simulation import simulate

Make = Callable[..., GroupSnapshot]


def members(owned: list[str], topics: tuple[str, ...] = ("orders",)) -> tuple[Member, ...]:
    """Members pod-0, pod-1 … that own these partitions of orders."""
    return tuple(
        Member(
            member_id=f"pod-{n}-id",
            client_id=f"pod-{n}",
            subscription=Subscription(version=3, topics=topics),
            assignment={"orders": Partitions.parse(text)} if text else {},
        )
        for n, text in enumerate(owned)
    )


@pytest.fixture
def saved(tmp_path: Path, group: Make) -> Callable[..., str]:
    def save(*owned: str, **more: object) -> str:
        path = tmp_path / "checkout.rebal.yaml"
        given = {"members": members(list(owned)), **more}
        path.write_text(dump_snapshot(group(**given)), encoding="utf-8")
        return str(path)

    return save


def test_the_answer_comes_first(saved, capsys) -> None:
    path = saved("0-7", "8-11")
    code = run(["simulate", "--assignor", "cooperative-sticky", "--snapshot", path])
    out, err = capsys.readouterr()
    lines = out.splitlines()
    assert code == 0
    assert lines[0].startswith(f"checkout ({path}, captured ")
    assert lines[0].endswith("): range → cooperative-sticky")
    assert lines[1] == (
        "moves 2 of 12 · stays 10 · loses none · balance 6–6 (was 4–8) · 2 rebalances until stable"
    )
    assert lines[2:7] == [
        "EAGER        12 partitions stop in 1 rebalance: all partitions, each time",
        "COOPERATIVE  2 partitions stop in 2 rebalances: only what moves",
        "round 1      revoked 2 · assigned 0 · still owned 10",
        "round 2      revoked 0 · assigned 2 · still owned 10",
        "topics       the subscribers of one topic differ by at most 0 partitions of it (was 4)",
    ]
    cells = [line.split() for line in lines if line.startswith("pod-")]
    assert cells == [
        ["pod-0", "8", "6", "6", "2", "0", "██████▒▒"],
        ["pod-1", "4", "6", "4", "0", "2", "████░░"],
    ]
    assert lines[-1].split()[:3] == ["next:", "rebal", "plan-upgrade"]
    assert err == ""


@pytest.mark.parametrize("assignor", ["range", "roundrobin", "sticky"])
def test_an_eager_assignor_stops_everything(saved, capsys, assignor: str) -> None:
    assert run(["simulate", "--assignor", assignor, "--snapshot", saved("0-7", "8-11")]) == 0
    out = capsys.readouterr().out
    assert "EAGER        12 partitions stop in 1 rebalance: all partitions, each time" in out
    assert f"COOPERATIVE  {assignor} does not support it" in out
    assert "1 rebalance until stable" in out
    assert ("): range again\n" in out) == (assignor == "range")
    assert "next:        rebal simulate --assignor cooperative-sticky --snapshot" in out


def test_wide_shows_partitions_and_topics(saved, capsys) -> None:
    path = saved("0-7", "8-11")
    run(["simulate", "--assignor", "cooperative-sticky", "--snapshot", path, "--wide"])
    out = capsys.readouterr().out
    lines = [line.split() for line in out[out.index("OWNS") :].splitlines()[1:5]]
    assert lines == [
        ["pod-0", "now", "orders", "0-7"],
        ["pod-0", "then", "orders", "0-5"],
        ["pod-1", "now", "orders", "8-11"],
        ["pod-1", "then", "orders", "6-11"],
    ]
    (topic,) = [line.split() for line in out.splitlines() if line.startswith("orders ")]
    assert topic == ["orders", "12", "4–8", "6–6"]


def test_five_hundred_members_fit_a_screen(group: Make) -> None:
    owned = [f"{n * 4}-{n * 4 + 3}" for n in range(500)]
    snapshot = group(
        members=(*members([*owned[:498], "1992-1999", ""]),),
        topics=(Topic(name="orders", partitions=2000),),
    )
    made = simulate(snapshot, "cooperative-sticky")
    text = render(simulate_view(made, "test", "rebal"), width=100)
    assert len(text.splitlines()) < 36
    assert max(map(len, text.splitlines())) <= 100
    rows = {line.split("  ")[0].strip() for line in text.splitlines()}
    assert {"498 members", "pod-498", "pod-499"} <= rows


def test_many_different_members_are_cut_and_counted(group: Make) -> None:
    owned, start = [], 0
    for n in range(80):
        owned.append(f"{start}-{start + n}")
        start += n + 1
    snapshot = group(members=members(owned), topics=(Topic(name="orders", partitions=start),))
    text = render(simulate_view(simulate(snapshot, "sticky"), "test", "rebal"), width=100)
    assert len(text.splitlines()) < 50
    rows = text[text.index("MEMBER") : text.index("(and ")].splitlines()[1:]
    folded = [int(row.split()[0]) for row in rows if row.split()[1] == "members"]
    left = 80 - sum(folded) - (len(rows) - len(folded))
    assert f"(and {left} members more with other counts: --wide)" in text
    assert left > 40


def test_a_leader_that_would_fail_blocks(saved, capsys) -> None:
    """A topic that was made anew with fewer partitions than its members still claim."""
    path = saved("0,7", topics=(Topic(name="orders", partitions=2),))
    args = ["simulate", "--assignor", "cooperative-sticky", "--snapshot", path]
    assert run(args) == 3
    out = capsys.readouterr().out
    assert "fails        the leader would throw IllegalStateException" in out
    assert "do           these members must be new" in out
    assert "until stable" not in out


def test_a_group_that_cannot_be_simulated_is_one_sentence(saved, capsys) -> None:
    assert run(["simulate", "--assignor", "range", "--snapshot", saved()]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("rebal: cannot simulate checkout: it has no members")
    assert len(err.splitlines()) == 1


def test_a_group_is_read_live_with_the_connection_that_was_typed(
    group: Make, capsys, monkeypatch
) -> None:
    seen: list[object] = []

    def read(*given: object, probe: bool, files: EvidenceFiles, scan: Path | None) -> GroupSnapshot:
        seen.extend((*given, probe, files.words(), scan))
        return replace(group(), members=members(["0-5", "6-11"]))

    monkeypatch.setattr("rebal.cli.sources.snapshot_for", read)
    typed_words = ["-b", "kafka-1:9092", "-X", "sasl.mechanism=PLAIN"]
    args = ["simulate", "checkout", "--assignor", "sticky", *typed_words]
    assert run([*args, "--timeout", "3"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("checkout (live): range → sticky")
    again = "simulate checkout --assignor cooperative-sticky"
    assert f"rebal {again} {' '.join(typed_words)} --timeout 3\n" in out
    typed = Connection("kafka-1:9092", overrides=["sasl.mechanism=PLAIN"], timeout=3)
    assert seen == ["checkout", None, typed, False, (), None]
