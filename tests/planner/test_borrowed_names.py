"""Plans for groups where a class of the application's own has the name of Kafka's assignor."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from rebal.groups.model import GroupSnapshot, RanProtocol, RebalanceProtocol, Source
from rebal.groups.protocol import disproved
from rebal.planner.paths import make_plan as plan
from tests.planner.builder import group_of, seen
from tests.planner.looks import Story
from tests.planner.plans import BOTH, DONE, RANGE

KAFKA = "org.apache.kafka.clients.consumer."
CLASSES = {
    "range": KAFKA + "RangeAssignor",
    "cooperative-sticky": KAFKA + "CooperativeStickyAssignor",
}
OWN = "com.acme.OwnAssignor"
EAGER = RebalanceProtocol.EAGER


def group(*lists: list[str], own: str | None = None, by: int = 1, **more: Any) -> GroupSnapshot:
    """Members with these lists; the logs of the first `by` show that `own` is another class."""
    members = [{"id": name, "list": names, **more} for name, names in zip("abc", lists)]  # noqa: B905
    made = group_of({"members": members, "elected": lists[0][0], "reloaded": False})
    shown = []
    for number, member in enumerate(made.members):
        known = member.assignors
        if own in known.list and number < by:
            classes = tuple(OWN if name == own else CLASSES[name] for name in known.list)
            log = seen(Source.CLIENT_LOG)
            known = replace(known, classes=classes, evidence=(*known.evidence, log))
        shown.append(replace(member, assignors=known))
    return replace(made, members=tuple(shown))


def ran_eager(snapshot: GroupSnapshot, *numbers: int) -> GroupSnapshot:
    """These members gave up all their partitions when they rejoined, as a request log shows."""
    ran = RanProtocol(value=EAGER, evidence=(seen(Source.REQUEST_LOG),))
    members = tuple(
        replace(one, ran=ran) if number in numbers else one
        for number, one in enumerate(snapshot.members)
    )
    return replace(snapshot, members=members)


def test_members_that_gave_up_their_partitions_run_eager_whatever_their_list_is_called() -> None:
    shown = group(DONE, DONE, probe={"cooperative-sticky": True, "range": False})
    assert plan(shown).verdict == "done"
    made = plan(ran_eager(shown, 0, 1))
    assert (made.runs, made.verdict, made.exit_code) == (EAGER, "blocked", 3)
    (finding,) = (f for f in made.findings if f.rule == "RB111")
    assert finding.members == ("a-0f0f", "b-0f0f")
    assert "a, b run EAGER: each gave up all its partitions when it rejoined" in finding.message
    # Nobody can vouch for what the log contradicts.
    assert plan(ran_eager(shown, 0), ignore={"RB111": "it is Kafka's"}).verdict != "done"


def test_a_member_whose_log_prints_kafkas_class_only_missed_its_assignment() -> None:
    shown = group(DONE, DONE)
    printed = tuple(
        replace(
            one,
            assignors=replace(
                one.assignors, evidence=(*one.assignors.evidence, seen(Source.CLIENT_LOG))
            ),
        )
        for one in shown.members
    )
    assert plan(ran_eager(replace(shown, members=printed), 0, 1)).verdict == "done"


def test_the_user_may_vouch_for_the_class() -> None:
    own = group(DONE, DONE, own="cooperative-sticky", by=2)
    assert plan(own, ignore={"RB111": "it extends CooperativeStickyAssignor"}).verdict == "done"
    eager = group(RANGE, RANGE, own="range", by=2)
    assert plan(eager, "eager", ignore={"RB112": "EAGER alone"}).verdict == "done"


def test_verify_never_finishes_on_such_a_class() -> None:
    before = group_of({"members": [{"id": f"{n}.1", "client": n, "list": BOTH} for n in "ab"],
                       "elected": "cooperative-sticky", "reloaded": False})  # fmt: skip
    made = plan(before)
    assert (made.next_step, made.exit_code) == (2, 0)
    after = group(DONE, DONE, own="cooperative-sticky", by=2)
    standing = Story(made)(after)
    assert (standing.finished, standing.exit_code) == (False, 4)
    assert {str(member.done) for member in standing.members} == {"cannot tell"}
    assert "not Kafka's own" in standing.members[0].why
    kept = group(DONE, DONE, own="cooperative-sticky", by=2, owned=True)
    assert Story(made)(kept).finished


@pytest.mark.parametrize(
    ("names", "shown"),
    [(("cooperative-sticky",), {"cooperative-sticky"}), (("cooperative-sticky", "shelf"), set())],
)
def test_an_own_assignor_beside_it_may_be_why_a_member_gives_up_its_partitions(
    names: tuple[str, ...], shown: set[str]
) -> None:
    (one,) = group_of({"members": [{"id": "a", "list": list(names), "ran": "EAGER"}]}).members
    assert disproved(one) == shown


def test_a_class_of_the_applications_own_bridges_no_two_libraries() -> None:
    made = plan(group(["range"], ["range"], own="range"), "franz-go")
    assert [step.target_list for step in made.steps] == [("roundrobin", "range"), ("roundrobin",)]
    kafkas = plan(group(["range"], ["range"]), "franz-go")
    assert [step.target_list for step in kafkas.steps] == [("range",)]
