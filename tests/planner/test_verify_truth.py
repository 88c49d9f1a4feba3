"""Random roll-outs on a simulated group: verify never says more than is true of its members."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rebal.groups.evidence.merge import merge
from rebal.groups.model import CoordinatorKind, GroupSnapshot, Tri
from rebal.groups.snapshot.documents import dec_hook, enc_hook
from rebal.groups.vote import candidates, elect
from rebal.planner.paths import make_plan
from rebal.planner.plan import Plan
from rebal.planner.verification.journal import JournalEntry
from rebal.planner.verification.verify import Standing, entry_of, verify
from tests.examples import examples
from tests.planner.builder import AT, group_of

pytestmark = pytest.mark.usefixtures("no_costs")

TARGET = "cooperative-sticky"
MIXED = [TARGET, "range"]
LISTS = [["range"], MIXED, ["range", TARGET], [TARGET], ["range", "roundrobin"]]


class Service:
    """Members with true lists, and a coordinator that remembers, forgets and refuses."""

    def __init__(self, lists: list[list[str]]) -> None:
        self.now: datetime = AT
        self.starts = [0] * len(lists)
        self.lists: list[list[str] | None] = [None] * len(lists)
        self.memory: dict[int, list[str]] = {}
        self.seen: set[int] = set()
        self.kept: set[int] = set()
        self.refusals: list[dict[str, Any]] = []
        self.reloaded = False
        self.size = len(lists)
        self.coordinator_elected: str | None = None
        for number, names in enumerate(lists):
            self.start(number, names)

    def stop(self, number: int) -> None:
        self.lists[number] = None
        self.memory.pop(number, None)
        self.seen.discard(number)
        self.kept.discard(number)
        self._rejoin()

    def start(self, number: int, names: list[str]) -> bool:
        others = list(self.memory.values())
        self.starts[number] += 1
        if others and not candidates([*others, names]):
            self.refusals.append({"client": f"m{number}", "list": names})
            return False
        self.lists[number] = names
        self._rejoin()
        return True

    def _rejoin(self) -> None:
        """A rebalance: every running member tells the coordinator its list again."""
        alive = {n: names for n, names in enumerate(self.lists) if names is not None}
        if alive and not candidates(list(alive.values())):
            # After a load an unseen conflict comes out when the members join again: one is refused.
            victim = max(alive)
            self.refusals.append({"client": f"m{victim}", "list": self.lists[victim]})
            self.lists[victim] = None
            self.seen.discard(victim)
            self.kept.discard(victim)
            self._rejoin()
            return
        self.memory = dict(alive)
        self.reloaded = False
        if alive:
            self.coordinator_elected = elect(list(alive.values()), CoordinatorKind.JAVA).assignor

    def forget(self) -> None:
        if self.memory and self.coordinator_elected is not None:
            self.memory = {number: [self.coordinator_elected] for number in self.memory}
            self.reloaded = True

    def member_id(self, number: int) -> str:
        return f"m{number}.{self.starts[number]}-0f0f"

    def client(self, number: int) -> dict[str, Any]:
        """What is seen of this member's client: Java's, in its handshake."""
        return {}

    def snapshot(self, *, probe: bool, tells_load: bool) -> GroupSnapshot:
        self.now += timedelta(seconds=15)
        elected = self.coordinator_elected
        shown = []
        for number, names in enumerate(self.lists):
            if names is None:
                continue
            member: dict[str, Any] = {
                "id": f"m{number}.{self.starts[number]}",
                "client": f"m{number}",
                "owned": number in self.kept and names == [TARGET],
                **self.client(number),
            }
            if number in self.seen:
                member["list"] = names
            shown.append(member)
        able = candidates(list(self.memory.values()))
        spec = {
            "elected": elected if shown else None,
            "state": "Stable" if shown else "Empty",
            "members": shown,
            "reloaded": self.reloaded if tells_load or probe else None,
            "probe": {n: n in able for n in ("range", TARGET)} if probe and shown else None,
        }
        made = msgspec.structs.replace(group_of(spec), captured_at=self.now)
        return merge(made, ())


def check(service: Service, plan: Plan, standing: Standing) -> None:
    lists = {
        service.member_id(n): names for n, names in enumerate(service.lists) if names is not None
    }
    truly = {
        1: {key for key, names in lists.items() if TARGET in names},
        2: {key for key, names in lists.items() if names == [TARGET]},
    }
    narrow = 1 if plan.path == "one_bounce" else plan.steps[-1].id
    for step in standing.steps:
        made = truly[2] if step.id == narrow else truly[1]
        if not next(s for s in plan.steps if s.id == step.id).target_list:
            continue
        assert set(step.done) <= made, (step, lists)
        proven_not = set(step.to_do) - set(step.not_restarted)
        assert not proven_not & made, (step, lists)
        if step.gate is Tri.YES:
            assert set(lists) == made
            assert len(lists) >= service.size
    if standing.exit_code == 0 and not standing.finished:
        # Whoever restarts with the next step's list now is admitted, whatever is remembered.
        later = next(s for s in plan.steps if s.id > (standing.step or 0))
        if later.target_list:
            assert candidates([*service.memory.values(), later.target_list]), standing


@examples(250)
@given(data=st.data())
def test_verify_never_says_more_than_the_truth(data: st.DataObject) -> None:
    size = data.draw(st.integers(1, 4))
    service = Service([["range"]] * size if data.draw(st.booleans()) else [MIXED] * size)
    logged = data.draw(st.booleans())
    first = service.snapshot(probe=data.draw(st.booleans()), tells_load=True)
    plan = make_plan(first, expect_members=size)
    entries: list[JournalEntry] = []
    for _ in range(data.draw(st.integers(1, 10))):
        match data.draw(st.sampled_from(["restart", "restart", "restart", "reload", "wait"])):
            case "restart":
                number = data.draw(st.integers(0, size - 1))
                service.stop(number)
                if data.draw(st.integers(0, 4)):
                    service.start(number, data.draw(st.sampled_from(LISTS)))
                alive = [n for n, names in enumerate(service.lists) if names is not None]
                if logged:
                    service.seen |= set(alive)
                if data.draw(st.booleans()):
                    service.kept |= set(alive)
            case "reload":
                service.forget()
        if not data.draw(st.integers(0, 3)):
            continue
        snapshot = service.snapshot(
            probe=data.draw(st.booleans()), tells_load=data.draw(st.booleans())
        )
        standing = verify(plan, entries, snapshot)
        check(service, plan, standing)
        if data.draw(st.integers(0, 5)):
            # The journal may be written to a file and read on another machine, or be lost.
            text = msgspec.json.encode(entry_of(plan, standing, snapshot), enc_hook=enc_hook)
            entries.append(msgspec.json.decode(text, type=JournalEntry, dec_hook=dec_hook))
        if logged and not data.draw(st.integers(0, 4)):
            service.seen.clear()


class MixedService(Service):
    """Member 0 is of librdkafka, the others are Java's; what is not seen is guessed, and wrongly.

    librdkafka takes one assignor only, and follows its own list for its whole life.
    """

    def client(self, number: int) -> dict[str, Any]:
        rd = number == 0
        if number in self.seen:
            return {"family": "librdkafka", "version": "2.6.0"} if rd else {}
        return {"family": "java" if rd else "librdkafka", "guess": True}


def check_mixed(service: Service, plan: Plan, standing: Standing) -> None:
    alive = {n: names for n, names in enumerate(service.lists) if names is not None}
    holds = {
        1: all(TARGET in names for n, names in alive.items() if n),
        2: all(TARGET in names for names in alive.values()),
        3: all(names == [TARGET] for names in alive.values()),
    }
    for step in standing.steps:
        if step.gate is Tri.YES:
            assert holds[step.id], (step, alive)
            assert len(alive) >= service.size
    if standing.exit_code == 0 and not standing.finished:
        # Step 2 stops member 0 first, which makes all others tell their lists again; then, and in
        # step 3, the target alone is admitted.
        stays = [names for n, names in alive.items() if n]
        if standing.step == 2:
            stays = list(service.memory.values())
        assert candidates([*stays, [TARGET]]), standing


@examples(250)
@given(data=st.data())
def test_with_members_that_take_no_part_it_never_says_more_either(data: st.DataObject) -> None:
    size = data.draw(st.integers(2, 4))
    service = MixedService([["range"]] * size)
    service.seen = set(range(size))
    plan = make_plan(service.snapshot(probe=False, tells_load=True), expect_members=size)
    assert plan.path == "mixed_families"
    entries: list[JournalEntry] = []
    for _ in range(data.draw(st.integers(1, 12))):
        match data.draw(st.sampled_from(["restart", "restart", "restart", "reload", "wait"])):
            case "restart":
                number = data.draw(st.integers(0, size - 1))
                service.stop(number)
                if data.draw(st.integers(0, 4)):
                    lists = [["range"], [TARGET]] if number == 0 else LISTS
                    service.start(number, data.draw(st.sampled_from(lists)))
                if data.draw(st.booleans()):
                    alive = [n for n, names in enumerate(service.lists) if names is not None]
                    service.seen |= set(alive)
            case "reload":
                service.forget()
        snapshot = service.snapshot(probe=data.draw(st.booleans()), tells_load=True)
        standing = verify(plan, entries, snapshot)
        check_mixed(service, plan, standing)
        if data.draw(st.integers(0, 5)):
            entries.append(entry_of(plan, standing, snapshot, entries=entries))
        if not data.draw(st.integers(0, 4)):
            service.seen.clear()
