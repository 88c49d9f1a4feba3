"""What the roll-out of a changed next start does, and what differs in two snapshots of a group."""

from datetime import timedelta
from pathlib import Path
from random import Random
from typing import Any

import pytest
import yaml
from hypothesis import assume, given
from hypothesis import strategies as st
from msgspec.structs import replace

from rebal.groups.clients import Library
from rebal.groups.compact import NO_LAG, Lag, Lags, Partitions
from rebal.groups.coordinator import candidates, elect
from rebal.groups.evidence.observations import Declared
from rebal.groups.model import (
    AssignorList,
    CoordinatorKind,
    Evidence,
    GroupSnapshot,
    GroupState,
    Knowledge,
    Member,
    Source,
    Topic,
    Tri,
)
from rebal.planner.check.judge import Judgement, judge
from rebal.planner.check.starts import Start, start_of, worlds
from rebal.planner.difference import Changed, MemberEvent, difference, environment
from tests.examples import examples
from tests.planner.builder import group_of
from tests.planner.plans import BOTH

FILE = "pay/app.yaml"
APART = ["cut-over", "a new group id, with the offsets of the old group copied before it starts"]


def start(
    *names: str,
    file: str = FILE,
    group: str | None = "pay",
    lib: Library | None = None,
    **more: Any,
) -> Start:
    where = more.pop("where", file)
    declared = Declared(
        where=where,
        evidence=Evidence(source=Source.CONFIG_FILE, detail=where),
        group_id=group,
        list=names,
        **({"family": None if lib is not None else "java"} | more),
    )
    return Start(file=file, declared=declared, library=lib or Library())


def lib(family: str | None, version: str | None = None, **more: Any) -> Library:
    return Library(family=family, version=version, where="pay/pom.xml", **more)


def named(found: Judgement) -> list[str]:
    """Return the short names of the paths."""
    return [path.name.partition(":")[0] for path in found.paths]


def judged(before: list[Start], after: list[Start], **more: Any) -> Judgement:
    """Return the judgement of the only group that changes."""
    kept = more.pop("kept", {})
    (world,) = worlds(before, after)
    return judge(world, kept, **more)


Case = tuple[list[Start], list[Start]]


def listed(before: str, after: str, **new: Any) -> Case:
    """A service whose list changes; `new` is what its next start sets besides."""
    return [start(*before.split())], [start(*after.split(), **new)]


def upgraded(family: str, before: str, after: str | None, **new: Any) -> Case:
    """A service without a list whose client library changes its version."""
    return [start(lib=lib(family, before))], [start(lib=lib(family, after), **new)]


def read(row: dict[str, Any]) -> Start:
    """Return the start that a row of tests/data/check/starts.yaml sets."""
    given = {key: tuple(v) if isinstance(v, list) else v for key, v in row.items()}
    facts = dict(given.pop("lib", {}))
    library = lib(facts.pop("family", None), facts.pop("version", None), **facts) if facts else None
    if "unconfigured" in given:
        return start_of(given["unconfigured"], library or Library())
    return start(*given.pop("list", ()), lib=library, **given)


def case_of(case: dict[str, list[dict[str, Any]]]) -> Case:
    return [read(row) for row in case["before"]], [read(row) for row in case["after"]]


FOUND = yaml.safe_load((Path(__file__).parents[1] / "data/check/starts.yaml").read_text())
PARTING = case_of(FOUND["no"]["two services part"])
CASES = [
    pytest.param(*case_of(case), Tri(verdict), id=name)
    for verdict, cases in FOUND.items()
    for name, case in cases.items()
]


@pytest.mark.parametrize(("before", "after", "verdict"), CASES)
def test_changed_consumer_configuration_gets_a_verdict_and_an_unchanged_one_none(
    before: list[Start], after: list[Start], verdict: Tri
) -> None:
    found = judged(before, after)
    assert (found.verdict, bool(found.reason)) == (verdict, True)
    assert found.changes
    assert not list(worlds(before, before))
    assert not list(worlds(after, after))


PATHS = {
    "two bounces": (
        listed("range", "cooperative-sticky"),
        ["[cooperative-sticky, range]", "[cooperative-sticky]"],
    ),
    "one roll-out with the old list written; its change later": (
        ([start(lib=lib("sarama", "1.43.0"))], [start(lib=lib("franz-go", "1.18.0"))]),
        ["[range]"],
    ),
    "two roll-outs, the first with kafkajs": (
        ([start(lib=lib("kafkajs", "2.2.4"))], [start(lib=lib("librdkafka", "2.5.0"))]),
        ["[roundrobin, RoundRobinAssigner]", "[range, roundrobin]"],
    ),
    "full cut-over": (
        tuple([start(n, family="librdkafka")] for n in ("range", "cooperative-sticky")),
        ["[cooperative-sticky]"],
    ),
}


@pytest.mark.parametrize("name", PATHS)
def test_a_rejected_change_has_a_safe_path(name: str) -> None:
    (before, after), brings = PATHS[name]
    first, *_ = judged(before, after).paths
    assert (first.name, [step.brings for step in first.steps]) == (name, brings)
    assert all(step.setting for step in first.steps)


def test_a_bridging_list_names_each_assignor_once() -> None:
    old, new = lib("kafka-python", "2.0.2"), lib("aiokafka", "0.10.0")
    found = judged([start(lib=old)], [start(lib=new)])
    (bridge,) = (path for path in found.paths if path.name.endswith("first with kafka-python"))
    assert [step.brings for step in bridge.steps] == ["[roundrobin, range]", "[roundrobin]"]


@pytest.mark.parametrize("new", ["franz-go", "java", "librdkafka"])
def test_kafka_go_gets_no_bridge_to_a_client_that_cannot_read_its_bytes(new: str) -> None:
    own = [start("sticky", family="kafka-python")]
    bridged = judged(own, [start("range", family=new)]).paths
    assert bridged[0].name == "two roll-outs, the first with kafka-python"
    apart = judged([start("roundrobin", family="segmentio")], [start("range", family=new)])
    assert named(apart) == APART


ELSE, OTHER = (start("range", lib=lib(n), file="bill/app.yaml") for n in ("java", "sarama"))
LOGSTASH = lib("java", "3.9.0", product="Logstash", list_key="strategy", refuses="One string.")
UNFIT: dict[str, tuple[list[Start], list[Start], list[str]]] = {
    "a client does not start with both lists": (
        [start(lib=lib("java", "3.9.0"))],
        [start("cooperative-sticky", lib=lib("librdkafka", "2.6.0"))],
        APART,
    ),
    "another service changes otherwise": (
        [start("range"), ELSE], [start("cooperative-sticky"), OTHER], APART
    ),
    "nothing names the client any more": ([start("range")], [start(family=None)], APART[:1]),
    "the product takes one assignor": (
        [start("range", lib=LOGSTASH)], [start("cooperative-sticky", lib=LOGSTASH)], APART[:1]
    ),
}  # fmt: skip


@pytest.mark.parametrize(("before", "after", "paths"), UNFIT.values(), ids=UNFIT)
def test_path_that_one_service_of_the_group_cannot_follow_is_not_offered(
    before: list[Start], after: list[Start], paths: list[str]
) -> None:
    assert named(judged(before, after)) == paths


def test_a_product_on_java_gets_the_names_of_classes() -> None:
    boot = lib("java", "3.9.0", product="Spring Boot", list_key="strategy")
    found = judged([start("range", lib=boot)], [start("cooperative-sticky", lib=boot)])
    bounces, _ = found.paths
    package = "strategy: org.apache.kafka.clients.consumer."
    first = f"{package}CooperativeStickyAssignor"
    both = f"{first}, {package.removeprefix('strategy: ')}RangeAssignor"
    assert [one.setting for one in bounces.steps] == [(both,), (first,)]


def test_dotnet_gets_the_names_of_its_enumeration() -> None:
    net = lib("librdkafka", "2.3.0", product="Wolverine", list_key="PartitionAssignmentStrategy")
    found = judged([start("range", lib=net)], [start("cooperative-sticky", lib=net)])
    shown = {line for path in found.paths for step in path.steps for line in step.setting}
    assert shown == {"PartitionAssignmentStrategy: CooperativeSticky"}


@pytest.mark.parametrize(("version", "verdict"), [("3.6.2", Tri.YES), ("3.7.0", Tri.NO)])
def test_java_before_3_7_ignores_group_protocol(version: str, verdict: Tri) -> None:
    java = lib("java", version)
    found = judged([start(lib=java)], [start("range", group_protocol="consumer", lib=java)])
    assert found.verdict is verdict
    (change,) = (each for each in found.changes if each.what == "group.protocol")
    assert ("ignores" in change.after) is (verdict is Tri.YES)


@pytest.mark.parametrize(("kept", "verdict"), [({FILE: ""}, Tri.CANNOT_TELL), ({}, Tri.YES)])
def test_removed_consumer_is_safe_only_if_its_configuration_file_is_removed_too(
    kept: dict[str, str], verdict: Tri
) -> None:
    assert judged([start("range")], [], kept=kept).verdict is verdict


def test_the_file_of_a_profile_takes_the_place_of_the_base() -> None:
    base = start("range", file="pay/application.yaml")
    file = "pay/application-prod.yaml"
    prod = start("range", file=file, profile="prod", session_timeout_ms=30_000)
    beside = start("range", file="bill/app.yaml")
    found = [judge(each, {base.file: ""}) for each in worlds([base], [base, prod, beside])]
    groups = [one.group for one in found if one.verdict is Tri.YES]
    assert groups == ["pay", "pay (profile prod)"]


ALONE = listed("range", "cooperative-sticky")


@pytest.mark.parametrize(
    ("change", "lists", "verdict"),
    [
        (ALONE, [BOTH, BOTH], Tri.YES),
        (ALONE, [BOTH, ["range"]], Tri.NO),
        (ALONE, [BOTH], Tri.YES),
        # The new process may start before the only one has stopped.
        (ALONE, [["range"]], Tri.NO),
        (ALONE, [], Tri.YES),
        # A new consumer is one more member: no member that runs makes room for it.
        (([], [start("x", "y")]), [["range", "x"], ["range", "y"]], Tri.NO),
        (PARTING, [["range", "sticky"], ["range", "sticky"]], Tri.NO),
        (upgraded("connect", "3.8.0", "3.9.0"), [["sessioned"], ["sessioned"]], Tri.NO),
    ],
)
def test_the_live_group_answers_instead_of_the_files(
    change: Case, lists: list[list[str]], verdict: Tri
) -> None:
    members = [{"id": f"m{number}", "list": each} for number, each in enumerate(lists)]
    state = {} if members else {"state": "Empty"}
    live = group_of({"members": members, "reloaded": False} | state)
    found = judged(*change, live=live)
    assert (found.verdict, found.live) == (verdict, True)


TWO: Case = tuple(
    [start(*names), start(*names, file="bill/app.yaml")] for names in (("range",), BOTH)
)


@pytest.mark.parametrize(
    ("change", "limit", "verdict"),
    [
        (([], [start("range")]), None, Tri.CANNOT_TELL),
        (([], [start("range")]), "2", Tri.NO),
        (([], [start("range")]), "3", Tri.YES),
        # Whoever restarts takes the place of its old process.
        (TWO, None, Tri.YES),
        (TWO, "2", Tri.YES),
    ],
)
def test_one_more_member_needs_a_place_in_the_live_group(
    change: Case, limit: str | None, verdict: Tri
) -> None:
    settings = {} if limit is None else {"group.max.size": limit}
    members = [{"id": name, "list": ["range"]} for name in "ab"]
    live = group_of({"members": members, "reloaded": False, "cluster": {"settings": settings}})
    found = judged(*change, live=live)
    assert found.verdict is verdict
    assert ("DESCRIBE_CONFIGS" in found.reason) is (verdict is Tri.CANNOT_TELL)


NAMES = ["range", "roundrobin", "sticky"]
LISTS = st.lists(st.sampled_from(NAMES), min_size=1, unique=True).map(tuple)
SERVICES = st.lists(st.tuples(LISTS, LISTS), min_size=1, max_size=3)
Service = tuple[tuple[str, ...], tuple[str, ...]]


def is_rejected(services: list[Service], chance: Random) -> bool:
    """Return whether a roll-out in any order, with coordinator loads in between, rejects a join."""
    members = [one for one in services for _ in range(chance.randint(2, 5))]
    running = [before for before, _ in members]
    order = [n for n, (before, after) in enumerate(members) if before != after]
    chance.shuffle(order)
    for number in order:
        elected = elect(running, CoordinatorKind.JAVA).assignor
        loaded = elected is not None and chance.random() < 0.5
        remembered = [(elected,)] * len(members) if loaded else running
        others = [each for n, each in enumerate(remembered) if n != number]
        if not candidates([members[number][1], *others]):
            return True
        running[number] = members[number][1]
    return False


@given(services=SERVICES, chance=st.randoms(use_true_random=False))
@examples(100, full=2000)
def test_no_roll_out_of_a_safe_change_is_rejected(services: list[Service], chance: Random) -> None:
    assume(candidates([before for before, _ in services]))
    assume(any(before != after for before, after in services))
    files = [f"s{n}/app.yaml" for n in range(len(services))]
    found = judged(
        *(
            [start(*lists[side], file=file) for file, lists in zip(files, services, strict=True)]
            for side in (0, 1)
        )
    )
    tries = 400 if found.verdict is Tri.NO else 40
    rejected = any(is_rejected(services, chance) for _ in range(tries))
    assert found.verdict is not Tri.YES or not rejected
    assert found.verdict is not Tri.NO or rejected


GROUP = {
    "members": [
        {"id": name, "list": ["range"], "host": f"/10.0.0.{number}"}
        for number, name in enumerate("abc")
    ]
}


SEEN = group_of(GROUP)


def with_members(*members: Member) -> GroupSnapshot:
    return replace(SEEN, members=members)


def test_equal_groups_do_not_differ_whatever_the_time_and_the_lag() -> None:
    later = replace(
        SEEN,
        captured_at=SEEN.captured_at + timedelta(days=1),
        lag=Lags([Lag(topic="orders", partition=0, committed=1, end=9)]),
    )
    found = difference(replace(SEEN, lag=NO_LAG), later)
    assert not found.found
    assert found.unchanged == 3


def test_static_member_is_recognised_by_its_instance_id_on_another_host() -> None:
    a = replace(SEEN.members[0], instance_id="pod-a")
    b = replace(SEEN.members[1], instance_id="pod-b")
    moved = replace(a, member_id="a-2", client_id="b", host=b.host)
    found = difference(with_members(a, b), with_members(moved, b))
    (one,) = found.members
    assert (one.event, one.was, one.now) == (MemberEvent.RESTARTED, "a-0f0f", "a-2")
    assert [change.what for change in one.changes] == ["client id", "host"]


def test_members_that_share_client_id_and_host_are_not_paired_by_chance() -> None:
    lists = [AssignorList(knowledge=Knowledge.EXACT, list=(n,)) for n in ("range", "roundrobin")]
    first = SEEN.members[0]
    twins = [replace(first, member_id=f"x-{n}", assignors=own) for n, own in enumerate(lists)]
    again = [replace(twin, member_id=f"{twin.member_id}-new") for twin in twins]
    events = [one.event for one in difference(
        with_members(*twins), with_members(*again)
    ).members]  # fmt: skip
    assert events == [MemberEvent.CAME] * 2 + [MemberEvent.LEFT] * 2


def test_assignor_list_that_one_snapshot_does_not_know_is_not_compared() -> None:
    unknown = [replace(member, assignors=AssignorList()) for member in SEEN.members]
    found = difference(SEEN, with_members(*unknown))
    assert not found.found
    assert found.not_compared == 3


def test_owned_partitions_are_compared_in_stable_groups_only() -> None:
    bare = [replace(member, assignment={}) for member in SEEN.members]
    stable = difference(SEEN, with_members(*bare))
    what = [change.what for one in stable.members for change in one.changes]
    assert what == ["owned partitions"] * 3
    state = replace(SEEN.group, state=GroupState.PREPARING_REBALANCE, assignor=None)
    moving = replace(with_members(*bare), group=state)
    found = difference(SEEN, moving)
    assert found.members == ()
    assert [change.what for change in found.group] == ["state"]


def test_another_order_of_the_same_owned_partitions_is_no_difference() -> None:
    turned = [
        replace(m, assignment={t: Partitions(reversed([*n])) for t, n in m.assignment.items()})
        for m in SEEN.members
    ]
    assert any(len(n) > 1 for m in turned for n in m.assignment.values())
    assert not difference(SEEN, with_members(*turned)).found


def test_group_topics_and_brokers_are_compared() -> None:
    before = replace(
        SEEN,
        topics=(Topic(name="orders", partitions=12), Topic(name="old", partitions=1)),
        cluster=replace(SEEN.cluster, version="3.9", settings={"group.max.size": "10", "a": "1"}),
    )
    after = replace(
        SEEN,
        group=replace(SEEN.group, assignor="roundrobin"),
        topics=(Topic(name="orders", partitions=24), Topic(name="new", partitions=2)),
        cluster=replace(SEEN.cluster, version="4.1", settings={"group.max.size": "20", "b": "1"}),
    )
    found = difference(before, after)
    assert Changed(what="assignor", before="range", after="roundrobin") in found.group
    assert list(environment(before, after)) == list(found.environment)
    assert set(found.environment) == {
        Changed(what="partitions", subject="orders", before="12", after="24"),
        Changed(what="partitions", subject="new", after="2"),
        Changed(what="partitions", subject="old", before="1"),
        Changed(what="version", before="3.9", after="4.1"),
        Changed(what="group.max.size", before="10", after="20"),
    }


def test_difference_covers_coordinator_reloads_probe_answers_and_new_rejections() -> None:
    """The members are the same, and a restart that was admitted before would be rejected now."""
    before = group_of({**GROUP, "reloaded": False, "probe": {"range": True, "sticky": None}})
    again = {"client": "d", "list": ["sticky"], "at": 1}
    news = {"reloaded": True, "probe": {"range": False, "sticky": False}}
    after = group_of({**GROUP, **news, "refusals": [again, again, {**again, "at": -1}]})
    coordinator = after.group.coordinator
    after = replace(after, captured_at=after.captured_at + timedelta(minutes=2))
    assert difference(before, after).group == (
        Changed(what="rebalanced since the coordinator's load", before="yes", after="no"),
        Changed(what="probe: every list holds range", before="yes", after="no"),
        Changed(what="rejected since", after="d [sticky]"),
    )
    epochs = [
        replace(after, group=replace(after.group, coordinator=replace(coordinator, leader_epoch=n)))
        for n in (5, 7)
    ]
    (load,) = difference(*epochs).group
    assert (load.before, load.after) == ("5", "7")


def test_racks_and_bounds_of_lists_are_compared() -> None:
    def seen(**member: object) -> GroupSnapshot:
        return group_of({"members": [{"id": "a", **member}]})

    def changes(was: GroupSnapshot, now: GroupSnapshot) -> dict[str, tuple[str | None, str | None]]:
        found = difference(was, now).members
        return {one.what: (one.before, one.after) for each in found for one in each.changes}

    moved = changes(seen(list=["range"], rack="a"), seen(list=["range"], rack="b"))
    assert moved == {"rack": ("a", "b")}
    bounds = changes(
        seen(at_least=["range"], lacks=["cooperative-sticky"]),
        seen(at_least=["range", "cooperative-sticky"]),
    )
    assert bounds == {"list holds cooperative-sticky": ("no", "yes")}
    probed = seen(at_least=["range"], lacks=["cooperative-sticky"])
    assert changes(seen(at_least=["range"]), probed) == {}, "one look had a probe"
    assert changes(probed, seen(at_least=["range"])) == {}
    assert changes(seen(at_least=["range"]), seen(list=["range"])) == {}
