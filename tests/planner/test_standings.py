"""The plan of each path, and what `verify` answers in its roll-out: tests/data/standings; and that
roll-out as its journal tells it.

`make screens` writes the files again; read the difference before you commit it.
"""

import os
from collections.abc import Iterator, Sequence
from datetime import timedelta
from itertools import count
from pathlib import Path
from typing import Any, Final

import pytest
from msgspec.structs import replace

from rebal.groups.compact import Lag
from rebal.groups.model import (
    AssignorList,
    Contradiction,
    Evidence,
    GroupSnapshot,
    GroupState,
    GroupType,
    Knowledge,
    Member,
    RanProtocol,
    RebalanceProtocol,
    Record,
    Refusal,
    Software,
    Source,
)
from rebal.planner.commands import Given
from rebal.planner.paths import make_plan
from rebal.planner.plan import Accepted, Advice, Finding, Plan, Setting
from rebal.planner.verification.journal import Confirmation, JournalEntry
from rebal.planner.verification.timeline import Timeline, timeline_of
from tests.planner.builder import AT, seen
from tests.planner.every_path import PLANS, java, kip848, pods
from tests.planner.looks import Story, app, id_of, look
from tests.planner.looks import pods as apps
from tests.planner.plans import BOTH, DONE, RANGE, plan

KEPT = Path(__file__).parents[1] / "data" / "standings"
RENEW = os.environ.get("REBAL_SCREENS") == "renew"
ONLINE = {"version": "4.1", "features": {"group.version": 1}} | {
    "settings": {"group.consumer.migration.policy": "upgrade", "group.consumer.max.size": "9"}
}
ONLINE_ALREADY = kip848(
    pods(4, None, protocol_type="consumer"), cluster=ONLINE, type="consumer", elected="uniform"
)
STOPPED = [
    java(f"rd-{n}", family="librdkafka", version="2.6.0", instance=f"rd-{n}" if n else None)
    for n in range(4)
]
STREAMS = pods(4, ["stream"], family="streams", version="2.3.1")
ROLL_OUTS = {
    name: PLANS[name]
    for name in (
        "two bounces", "two bounces down", "one bounce", "static", "mixed families", "connect",
        "to kip-848, offline", "library", "library, over a stop", "library, two steps",
        "streams protocol", "streams protocol, back", "one bounce, reloaded", "connect down",
    )
} | {
    "to kip-848": lambda: make_plan(kip848(pods(4), cluster=ONLINE), "consumer"),
    "from kip-848": lambda: make_plan(ONLINE_ALREADY, DONE[0]),
    "streams": lambda: plan(STREAMS, elected="stream"),
    "cut-over": lambda: plan(STOPPED),
    "unknown clients": lambda: plan(pods(4, family=None)),
}  # fmt: skip
LOG = seen(Source.REQUEST_LOG)
GIVEN = Given(connection=("-b", "kafka-1:9092"), brokers="kafka-1:9092", plan="plan.yaml")


def again(member: Member, start: int, names: tuple[str, ...] = ()) -> Member:
    """Return the member after a restart, with this list (empty: its list is not known)."""
    exact = AssignorList(knowledge=Knowledge.EXACT, list=names, evidence=(LOG,))
    streams = member.software is not None and member.software.family == "streams"
    return replace(
        member,
        member_id=f"{member.client_id}.{start}-0f0f",
        assignors=exact if names else AssignorList(),
        software=Software(family="streams", name="streams", version="3.9.1", evidence=(LOG,))
        if streams
        else member.software,
        ran=RanProtocol(value=RebalanceProtocol.COOPERATIVE, evidence=(LOG,))
        if streams and start > 8
        else None,
        joined_at=AT + timedelta(minutes=start),
    )


def looks(made: Plan) -> Iterator[tuple[str, GroupSnapshot]]:
    """Yield the looks of one roll-out, in their order, with what has happened before each."""
    then, everybody = made.baseline, made.baseline.members
    one, *others, gone = everybody
    first, last = made.steps[0].target_list, made.steps[-1].target_list
    wide = [again(each, 8, first) for each in everybody]
    lost = Refusal(
        client_id=gone.client_id,
        instance_id=gone.instance_id,
        error="INCONSISTENT_GROUP_PROTOCOL",
        list=last or ("sticky",),
        evidence=LOG,
    )
    odd = Contradiction(member_id=None, what="list", evidence=(LOG,))
    settings = {"group.max.size": "9", **then.cluster.settings}
    read = replace(then.cluster, settings=settings)
    full = replace(then.cluster, version="9.9", settings={"group.max.size": "4"})
    grown = tuple(replace(each, partitions=24) for each in then.topics)
    workers = {"connect": "sessioned", "connect_down": "default"}
    target = last[0] if last else workers.get(made.path, then.group.assignor)
    kinds = {"consumer": GroupType.CONSUMER, "streams": GroupType.STREAMS}
    online: dict[str, Any] = {"type": kinds.get(made.target, GroupType.CLASSIC)}
    spoken = made.target if made.target in kinds else None

    def ended(names: tuple[str, ...] = ()) -> list[Member]:
        new = Software(family=made.to, name=made.to, version="1.9", evidence=(LOG,))
        every = [again(each, 40, names) for each in everybody]
        every = [replace(one, software=new) for one in every] if "library" in made.path else every
        return [replace(one, protocol_type=spoken) for one in every]

    final = ended(last)
    generations = count(2, 2)

    def look(minute: float, members: Sequence[Member], **more: Any) -> GroupSnapshot:
        at, epoch = AT + timedelta(minutes=minute), 6 if minute < 45 else 7
        led = replace(then.group.coordinator, leader_epoch=epoch if minute > 21 else None)
        group = replace(
            then.group,
            **{
                "generation": min(next(generations), 26),
                "coordinator": led,
                **more.pop("group", {}),
            },
        )
        more = {"cluster": then.cluster if minute < 3 else read, **more}
        return replace(then, captured_at=at, group=group, members=tuple(members), **more)

    def later(minute: float, members: Sequence[Member], **more: Any) -> GroupSnapshot:
        return look(
            minute, members, group={"assignor": target, **online, **more.pop("group", {})}, **more
        )

    def lag(minute: float, committed: int) -> GroupSnapshot:
        behind = tuple(Lag("orders", n, committed, round(100 * minute)) for n in range(4))
        return later(minute, final, lag=behind)

    yield "nothing yet", look(1, everybody)
    yield "one restarted", look(2, [again(one, 2, first), *others, gone])
    yield "one left", look(3, [again(one, 2, first), *others])
    moving = {"state": GroupState.PREPARING_REBALANCE, "assignor": None}
    yield "a rebalance", look(4, [one, *others], group=moving)
    rejected = replace(lost, at=AT + timedelta(minutes=4), host=gone.host)
    tries = (rejected, replace(rejected, at=AT + timedelta(minutes=4.5)))
    yield "one rejected", look(5, [again(one, 2, first), *others], refusals=tries)
    yield "all restarted, lists unknown", look(8, [again(each, 8) for each in everybody])
    yield "evidence at odds", look(9, wide, contradictions=(odd,))
    yield "all restarted", later(10, wide)
    yield "the brokers are full, a topic has grown", later(11, wide, cluster=full, topics=grown)
    yield "one in the last step", later(20, [again(one, 20, last), *wide[1:]])
    yield "one back", later(22, [again(one, 20, last), *others, wide[-1]])
    yield "a storm", later(23, [again(one, 20, last), *wide[1:]], group={"generation": 99})
    yield "last lists unknown", later(40, ended())
    idle = [replace(final[0], assignment={}), *final[1:]]
    yield "one owns nothing", later(41, idle)
    yield "one owns nothing for long", later(42, idle)
    yield "all in the last step", later(43, final)
    asked = [replace(each, subscribed_topics=("orders",)) for each in final]
    yield "partitions without an owner", later(44, asked, topics=grown)
    yield "a rebalance gave them none", later(45, asked, topics=grown, group={"generation": 28})
    yield "nothing committed", lag(50, 4000)
    yield "nothing committed for long", lag(61, 4000)
    yield "committed", lag(62, 6200)
    yield "rejected at an unknown time", later(63, final, refusals=(lost,))
    yield "one is gone weeks later", later(20_000, final[:-1])
    empty = {"state": GroupState.EMPTY, "assignor": None}
    yield "all are gone", look(20_001, [], group=empty)


SHORT: Final = {
    Advice: {"text"},
    Evidence: {"at"},
    Plan: {"baseline"},
    Finding: {"severity", "result", "message", "reference", "before_step", "commands"},
    Setting: {"text"},
}
"""What a record leaves out, as another line or test has it."""


def said(value: Any) -> str:
    """Return a value in short: of a record the fields that say something."""
    if isinstance(value, Record):
        names = (name for name in value.__struct_fields__ if name not in SHORT.get(type(value), ()))
        fields = {name: getattr(value, name) for name in names}
        return "; ".join(f"{name}: {said(field)}" for name, field in fields.items() if field)
    if isinstance(value, frozenset):
        value = tuple(sorted(value))
    if isinstance(value, tuple):
        return ", ".join(f"({said(one)})" if isinstance(one, Record) else str(one) for one in value)
    return str(value)


def lines(record: Record, kind: str = "") -> Iterator[str]:
    """Yield what each field of a record says, a line for each of several."""
    for name in record.__struct_fields__:
        value = getattr(record, name)
        for one in value if isinstance(value, tuple) else (value,):
            if one not in (None, ""):
                yield f"{kind}{name}: {said(one)}"


def story(made: Plan) -> Iterator[str]:
    """Yield the lines of a roll-out: of each look those that the look before did not have."""
    tell, before, accepted = Story(made), list[str](), None
    for name, snapshot in looks(made):
        standing = tell(snapshot, given=GIVEN, accepted=accepted)
        now = [*lines(standing), *lines(tell.entries[-1], "journal ")]
        # A stop of the whole group is agreed after the first look.
        accepted = Accepted(ignore=dict.fromkeys(("RB104", "RB123", "RB413"), "agreed"))
        yield f"== {name}: step {standing.step}, gate {standing.gate}, exit {standing.exit_code}"
        yield from (line for line in now if line not in before)
        before = now
    yield "== the whole roll-out"
    yield from lines(timeline_of(made, tell.entries))


@pytest.mark.usefixtures("no_costs")
@pytest.mark.parametrize("path", PLANS | ROLL_OUTS)
def test_plan_and_verify_output_of_each_path_equals_the_kept_file(path: str) -> None:
    """The kept file is in tests/data/standings: the plan, then what verify answers at each look."""
    made = (PLANS | ROLL_OUTS)[path]()
    output = [*lines(made), *(story(made) if path in ROLL_OUTS else ())]
    file = KEPT / f"{path.replace(',', '').replace(' ', '_')}.txt"
    text = "".join(f"{line.replace('-0f0f', '').rstrip()}\n" for line in output)
    if RENEW:
        file.parent.mkdir(exist_ok=True)
        file.write_text(text, encoding="utf-8")
    assert text == file.read_text(encoding="utf-8")


def upgrade() -> Story:
    """Two members go through both bounces, a look a minute; app-1 is away at one look."""
    story = Story(plan(apps(1, 1, list=RANGE)))
    rows = [
        (1, [app(0, 1, list=RANGE), app(1, 1, list=RANGE)], 4, "Stable"),
        (2, [app(0, 2, list=BOTH), app(1, 1, list=RANGE)], 6, "Stable"),
        (3, [app(0, 2, list=BOTH)], 7, "PreparingRebalance"),
        (4, [app(0, 2, list=BOTH), app(1, 2, list=BOTH)], 8, "Stable"),
        (5, [app(0, 3, list=DONE), app(1, 2, list=BOTH)], 10, "Stable"),
        (6, [app(0, 3, list=DONE), app(1, 3, list=DONE)], 12, "Stable"),
    ]
    for minute, members, generation, state in rows:
        elected = "range" if minute < 4 else "cooperative-sticky"
        story(look(minute, members, state=state, elected=elected, generation=generation))
    return story


def told(story: Story) -> Timeline:
    return timeline_of(story.plan, story.entries)


def at(minute: float) -> object:
    return AT + timedelta(minutes=minute)


def test_an_empty_journal_has_the_steps_and_nothing_else() -> None:
    made = plan(apps(1, 1, list=RANGE))
    found = timeline_of(made, [])
    assert (found.group_id, [step.step for step in found.steps]) == ("checkout", [1, 2])
    assert {(step.began, step.held) for step in found.steps} == {(None, None)}
    assert (found.looks, found.members, found.rebalances, found.finished) == (0, (), None, False)


def test_timeline_follows_restarted_members_with_one_client_id_by_their_host() -> None:
    hosts = {"a": "/10.0.0.1", "b": "/10.0.0.2"}

    def alike(start: int, names: str) -> list[dict[str, Any]]:
        return [{**app(0, start), "id": f"{n}.{start}", "host": hosts[n]} for n in names]

    story = Story(plan(alike(1, "ab")))
    for minute, members in ((1, alike(1, "ab")), (2, alike(2, "ba"))):
        story(look(minute, members))
    assert {one.host: [t.member_id for t in one.tenures] for one in told(story).members} == {
        host: [f"{n}.1-0f0f", f"{n}.2-0f0f"] for n, host in hosts.items()
    }


def test_timeline_shows_a_restart_between_the_plan_and_the_first_verify() -> None:
    story = Story(plan(apps(1, 1, list=RANGE)))
    story(look(1, [app(0, 2, list=BOTH), app(1, 1, list=RANGE)]))
    found = {one.name: [t.member_id for t in one.tenures] for one in told(story).members}
    assert found == {"app-0": [id_of(0, 1), id_of(0, 2)], "app-1": [id_of(1, 1)]}
    assert {t.since for one in told(story).members for t in one.tenures} == {at(1)}


def test_timeline_reports_a_danger_when_it_begins_and_does_not_count_a_failed_verify() -> None:
    story = upgrade()
    for n in (2, 3):
        story.entries[n] = replace(story.entries[n], dangers=("rejected",))
    blind = JournalEntry(at=at(4.5), plan="", group_id="g", blind="no broker answers")  # type: ignore[arg-type]
    story.entries.insert(4, blind)
    found = told(story)
    assert found.looks == 6
    assert [(e.kind, e.text, e.at) for e in found.events] == [
        ("danger", "rejected", at(3)),
        ("blind", "no broker answers", at(4.5)),
    ]


def test_timeline_drops_a_confirmation_that_evidence_overruled() -> None:
    story = upgrade()
    last = story.entries[-1]
    bare = tuple(replace(member, made=()) for member in last.members)
    confirmation = Confirmation(step=2, reason="its pod", members=(id_of(1, 3),))
    story.entries[-1] = replace(last, members=bare, confirmed=confirmation)
    assert told(story).members[1].made[2].confirmed
    void = tuple(replace(member, contradicted=(2,)) for member in bare)
    story.entries.append(replace(last, at=last.at + timedelta(minutes=1), members=void))
    assert 2 not in told(story).members[1].made


def test_timeline_shows_both_confirmations_of_one_saved_snapshot() -> None:
    story = upgrade()
    last = story.entries[-1]
    unproven = (replace(member, made=()) for member in last.members)
    bare = replace(last, members=tuple(unproven))
    both = [Confirmation(step=2, reason="its pod", members=(id_of(n, 3),)) for n in range(2)]
    story.entries = [replace(bare, confirmed=each) for each in both]
    found = told(story)
    assert [one.made[2].confirmed for one in found.members] == [True, True]
    assert [(e.kind, e.text) for e in found.events] == [("confirmed", "step 2: its pod")] * 2


def test_another_instance_id_is_another_member_whatever_its_client_id() -> None:
    static = app(0, 2, list=BOTH, instance="b")
    for before in (app(0, 1, instance="a"), app(0, 1)):
        story = Story(plan([before, app(1)]))
        for minute, one in enumerate((before, static), 1):
            story(look(minute, [one, app(1)]))
        assert len(told(story).members) == 3
