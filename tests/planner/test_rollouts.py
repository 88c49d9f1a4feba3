"""Random groups: what their plans lead to, what each screen says of them, and what must be true.

None that does what its plan says is rejected, each arrives, and on every screen (inspect,
plan-upgrade and verify) a member has one rebalance protocol.

No world that the evidence allows may make a plan from a part of the truth wrong. A world gives
every member a real client, a real list, and by Java's and franz-go's own rules the protocol that it
runs. The snapshot shows a part of it: each client proven, guessed (rightly or wrongly) or unknown,
each list exact or only bounded, partitions kept by who runs COOPERATIVE. A Java member may have a
class of the application's own under the name of Kafka's; the log of one such member at least is
read.
"""

from datetime import timedelta
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from rebal.cli.report import make_report
from rebal.groups.clients import family, proven_family
from rebal.groups.coordinator import candidates, elect
from rebal.groups.evidence.bounds import with_bounds
from rebal.groups.evidence.merge import merge
from rebal.groups.model import (
    AssignorList,
    CoordinatorKind,
    GroupSnapshot,
    Knowledge,
    Member,
    RebalanceProtocol,
    Software,
    Source,
    Subscription,
    Tri,
)
from rebal.groups.protocol import group_protocol, member_protocol
from rebal.planner.paths import make_plan
from rebal.planner.plan import Aim, Plan, StepKind
from rebal.planner.verification.members import MemberStanding
from rebal.planner.verification.verify import verify
from tests.examples import examples
from tests.planner.builder import group_of, seen

pytestmark = pytest.mark.usefixtures("no_costs")

TARGET = "cooperative-sticky"
NAMES = ["range", "roundrobin", "sticky", TARGET]


@st.composite
def sharing_lists(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Members with lists that have an assignor in common."""
    common = draw(st.sampled_from(NAMES))
    members = []
    for number in range(draw(st.integers(1, 5))):
        others = draw(st.lists(st.sampled_from(NAMES), unique=True, max_size=3))
        names = draw(st.permutations(sorted({common, *others})))
        family = draw(st.sampled_from(["java", "franz-go"]))
        members.append({"id": f"m{number}", "list": list(names), "family": family})
    return members


@examples(60, full=400)
@given(members=sharing_lists(), goal=st.sampled_from(["cooperative", "eager"]))
def test_plan_with_every_list_known_reaches_its_goal_and_no_member_is_rejected(
    members: list[dict[str, Any]], goal: str
) -> None:
    lists = [member["list"] for member in members]
    for _ in range(2 * len(members) + 1):
        elected = elect(lists, CoordinatorKind.JAVA).assignor
        plan = make_plan(
            group_of({"members": members, "elected": elected, "reloaded": False}), goal
        )
        step = plan.step(plan.next_step)
        if step is None:
            break
        assert plan.exit_code == 0, (plan.summary, plan.findings)
        chosen = (*step.to_do, *step.unknown)[0].removesuffix("-0f0f")
        next(each for each in members if each["id"] == chosen)["list"][:] = step.target_list
        assert candidates(lists), (plan.summary, members)
    assert plan.verdict == "done"
    if goal == "cooperative":
        assert lists == [[TARGET]] * len(lists)
    assert goal == "cooperative" or not any(TARGET in names for names in lists)


EAGER, COOPERATIVE = RebalanceProtocol.EAGER, RebalanceProtocol.COOPERATIVE
LISTS: list[list[str] | None] = [["range"], [TARGET, "range"], ["range", TARGET], [TARGET], None]
CLIENTS: list[dict[str, Any]] = [
    {"family": "java"},
    {"family": "java", "guess": True},
    {"family": None},
    {"family": None, "bytes": 3},
    {"family": "librdkafka"},
    {"family": "franz-go"},
    {"family": "franz-go", "guess": True},
]


@st.composite
def groups(draw: st.DrawFn) -> GroupSnapshot:
    """A Stable classic group with any mixture of clients and evidence, contradictions included."""
    members = []
    for number in range(draw(st.integers(1, 4))):
        names = draw(st.sampled_from(LISTS))
        member = {
            "id": f"m{number}",
            "owned": draw(st.booleans()),
            **draw(st.sampled_from(CLIENTS)),
        }
        members.append(member | ({"list": names} if names else {}))
    elected = draw(st.sampled_from(["range", TARGET]))
    asked = draw(st.booleans())
    answers = {name: draw(st.sampled_from([True, False, None])) for name in ("range", TARGET)}
    spec = {
        "members": members,
        "elected": elected,
        "reloaded": draw(st.sampled_from([True, False, None])),
        "probe": answers if asked else None,
    }
    return merge(group_of(spec), ())


def narrowing(plan: Plan, seen: GroupSnapshot) -> dict[str, MemberStanding]:
    """The standing of each member in the step that drops the old assignor."""
    step = next((each.id for each in plan.steps if each.aim is Aim.NARROW), None)
    if step is None:
        return {}
    return {each.member_id: each for each in verify(plan, [], seen, step=step).members}


@examples(100, full=300)
@given(seen=groups())
def test_inspect_plan_and_verify_name_the_same_protocol(seen: GroupSnapshot) -> None:
    report = make_report(seen)
    plan = make_plan(seen)
    assert plan.runs is report.runs
    step = next((each for each in plan.steps if each.aim is Aim.NARROW), None)
    for member_id, standing in narrowing(plan, seen).items():
        runs = report.member_runs[member_id]
        assert standing.runs is runs
        # A member is done on both screens, and only where inspect calls it COOPERATIVE.
        assert (member_id in step.done) is (standing.done is Tri.YES)
        if standing.done is Tri.YES:
            assert runs is COOPERATIVE
        if member_id in step.to_do:
            assert standing.done is Tri.NO
        if runs is EAGER:
            assert standing.done is not Tri.YES


@examples(100, full=300)
@given(seen=groups())
def test_verify_reports_why_a_cooperative_member_is_not_done(seen: GroupSnapshot) -> None:
    # Every member has a new id since the plan: none is "not restarted".
    others = tuple(replace(one, member_id=f"{one.member_id}-0") for one in seen.members)
    earlier = seen.captured_at - timedelta(hours=1)
    plan = make_plan(replace(seen, members=others, captured_at=earlier))
    members = {member.member_id: member for member in seen.members}
    for member_id, standing in narrowing(plan, seen).items():
        client = family(proven_family(members[member_id].software))
        if standing.runs is not COOPERATIVE or standing.done is Tri.YES:
            continue
        # Only a client that follows the vote, or may, runs COOPERATIVE with an eager assignor.
        assert not client.key or client.follows_vote, standing
        if standing.done is Tri.CANNOT_TELL:
            assert "runs COOPERATIVE" in standing.why, standing


COOP = "cooperative-sticky"
REFUSING = ("librdkafka", "kafka-python")
EAGER_ONLY = ("kafkajs", "aiokafka")
KAFKA = {
    "range": "org.apache.kafka.clients.consumer.RangeAssignor",
    "sticky": "org.apache.kafka.clients.consumer.StickyAssignor",
    COOP: "org.apache.kafka.clients.consumer.CooperativeStickyAssignor",
}
FAMILIES = (*REFUSING, *EAGER_ONLY, "java", "java", "franz-go")
CLIENT_LISTS = (["range"], [COOP], [COOP, "range"], ["range", COOP], ["sticky"],
                ["sticky", "range"], [COOP, "sticky"])  # fmt: skip
# The name that a class of one's own has, and the protocols that it supports.
Own = tuple[str, set[str]]
OWN: tuple[Own, ...] = tuple(
    (name, supports) for name in ("range", COOP) for supports in ({"E"}, {"C"}, {"E", "C"})
)
# Null where the elected assignor has no user data: these clients write it empty.
EMPTY_DATA = (*REFUSING, "kafkajs")


def takes(family: str, names: list[str] | tuple[str, ...]) -> bool:
    """Whether a real client of this family starts with this list."""
    mixed = COOP in names and len(names) > 1
    return not (mixed and family in REFUSING) and not (COOP in names and family in EAGER_ONLY)


def runs(
    family: str, names: list[str], elected: str, own: Own | None = None
) -> RebalanceProtocol | None:
    """What a real client runs; None where its classes have no protocol in common."""
    supports = [
        own[1] if own is not None and own[0] == name else {"E", "C"} if name == COOP else {"E"}
        for name in ([elected] if family == "franz-go" else names)
    ]
    common = set.intersection(*supports)
    if not common:
        return None
    return RebalanceProtocol.COOPERATIVE if "C" in common else RebalanceProtocol.EAGER


class World:
    """Two or three members, and a snapshot of a part of what is true of them."""

    def __init__(self, random: Random, *, classes: bool = False) -> None:
        while True:
            self.members: dict[str, tuple[str, list[str]]] = {}
            self.own: dict[str, Own] = {}
            for name in "abc"[: random.choice((1, 2, 2, 3))]:
                family = random.choice(FAMILIES)
                lists = [names for names in CLIENT_LISTS if takes(family, names)]
                self.members[name] = (family, random.choice(lists))
            if classes and not self._classes(random):
                continue
            common = set.intersection(*(set(names) for _, names in self.members.values()))
            if common:
                break
        self.elected = random.choice(sorted(common))
        specs = [self._seen(name, random) for name in self.members]
        probe = {}
        if random.random() < 0.4:
            probe = {"probe": {COOP: all(COOP in names for _, names in self.members.values())}}
        made = group_of({"members": specs, "elected": self.elected, "reloaded": False, **probe})
        fixed = [self._logged(self._sent(member)) for member in made.members]
        self.snapshot: GroupSnapshot = with_bounds(replace(made, members=tuple(fixed)))

    def _classes(self, random: Random) -> bool:
        """Give Java members classes of one's own under one name; False where none can have it."""
        own = random.choice(OWN)
        able = [
            name
            for name, (family, names) in self.members.items()
            if family == "java" and own[0] in names and runs(family, names, own[0], own)
        ]
        self.own = {name: own for name in able if name == able[0] or random.random() < 0.6}
        self.logged = {name for name in able if name == able[0] or random.random() < 0.4}
        return bool(able)

    def _logged(self, member: Member) -> Member:
        """The member with what its own log shows, where it is read."""
        name = member.client_id
        if not self.own or name not in self.logged:
            return member
        names = tuple(self.members[name][1])
        own = self.own.get(name, ("", set()))[0]
        classes = tuple("com.acme.Own" if one == own else KAFKA[one] for one in names)
        known = AssignorList(
            knowledge=Knowledge.EXACT,
            list=names,
            classes=classes if own else (),
            evidence=(seen(Source.CLIENT_LOG),),
        )
        java = Software(family="java", version="3.9.1", evidence=(seen(Source.CLIENT_LOG),))
        return replace(member, assignors=known, software=java)

    def protocol(self, name: str) -> RebalanceProtocol | None:
        family, names = self.members[name]
        return runs(family, names, self.elected, self.own.get(name))

    def _sent(self, member: Member) -> Member:
        """The member with the bytes of its real client."""
        sent = member.subscription
        family = self.members[member.client_id][0]
        data = b"" if family in EMPTY_DATA else None
        if family in EAGER_ONLY:
            return replace(member, subscription=Subscription(version=0, topics=sent.topics,
                                                             user_data=data))  # fmt: skip
        return replace(member, subscription=replace(sent, user_data=data))

    def _seen(self, name: str, random: Random) -> dict[str, Any]:
        family, names = self.members[name]
        spec: dict[str, Any] = {"id": name, "client": name}
        spec |= {"list": names} if random.random() < 0.5 else {"at_least": [self.elected]}
        how = random.choice(("proven", "proven", "right", "wrong", "unknown"))
        if how == "unknown":
            spec["family"] = None
        else:
            spec["family"] = random.choice(FAMILIES) if how == "wrong" else family
            spec["guess"] = how != "proven"
        cooperative = self.protocol(name) is RebalanceProtocol.COOPERATIVE
        spec["owned"] = cooperative and random.random() < 0.5
        return spec

    def __str__(self) -> str:
        shown = {m.client_id: (m.software, m.assignors) for m in self.snapshot.members}
        return f"elected {self.elected}; true: {self.members}, {self.own}; seen: {shown}"


def wrongs(world: World, made: Plan, goal: str) -> list[str]:
    found = []
    wanted = [COOP] if goal == "cooperative" else None
    lists = [names for _, names in world.members.values()]
    if made.verdict == "done":
        right = all(n == [COOP] for n in lists) if wanted else all(COOP not in n for n in lists)
        protocol = RebalanceProtocol.COOPERATIVE if wanted else RebalanceProtocol.EAGER
        right = right and all(world.protocol(name) is protocol for name in world.members)
        found += [] if right else ["done, and it is not"]
    names = {m.member_id: m.client_id for m in world.snapshot.members}
    truth = {id_: world.members[name] for id_, name in names.items()}
    for step in made.steps:
        if step.kind is StepKind.CUT_OVER:
            needed = any(
                family in REFUSING and (names != [COOP] if wanted else names == [COOP])
                for family, names in truth.values()
            )
            found += [] if needed else ["a stop that no client needs"]
        if step.id == made.next_step and step.exit_code == 0 and step.kind is StepKind.ROLLING:
            for id_ in {*step.to_do, *step.unknown}:
                family, _ = truth[id_]
                if step.target_list and not takes(family, step.target_list):
                    found.append(f"{names[id_]} does not start with {step.target_list}")
                others = [set(n) for one, (_, n) in truth.items() if one != id_]
                if step.target_list and not set(step.target_list).intersection(*others):
                    found.append(f"{names[id_]} is rejected with {step.target_list}")
        for id_ in step.done:
            if made.next_step == step.id and len(step.target_list) == 1:
                right = list(step.target_list) == truth[id_][1]
                found += [] if right or not wanted else [f"{names[id_]} is not done"]
    if made.exit_code == 3 and not any(step.kind is StepKind.CUT_OVER for step in made.steps):
        lacking = any(COOP not in n for n in lists)
        cannot = any(family in EAGER_ONLY for family, _ in truth.values())
        found += [] if lacking or cannot or not wanted else ["blocked, and nothing is in the way"]
    return found


@pytest.mark.parametrize(
    "seed", [*range(3), *(pytest.param(seed, marks=pytest.mark.full) for seed in range(3, 6))]
)
def test_no_plan_is_wrong_for_any_real_group_that_its_evidence_allows(seed: int) -> None:
    random = Random(seed)
    verdicts = {"done": 0, "ready": 0, "blocked": 0, "unproven": 0}
    for _ in range(250):
        world = World(random, classes=seed % 3 == 2)
        for goal in ("cooperative", "eager"):
            made = make_plan(world.snapshot, goal)
            assert wrongs(world, made, goal) == [], f"{goal}: {made.summary}; {world}"
            verdicts[made.verdict] += 1
        for member in world.snapshot.members:
            claimed = member_protocol(member, world.snapshot).value
            real = world.protocol(member.client_id)
            assert claimed in (real, RebalanceProtocol.CANNOT_TELL), f"{member.client_id}; {world}"
        claimed = group_protocol(world.snapshot).value
        real = {world.protocol(name) for name in world.members}
        possible = real if len(real) == 1 else {RebalanceProtocol.MIXED}
        assert claimed in {RebalanceProtocol.CANNOT_TELL, *possible}, f"{claimed}; {world}"
    assert all(verdicts.values()), verdicts
