"""Plans for groups whose assignor, or whose client, is not what its name says, or not proven."""

from typing import Any

import pytest
from msgspec.structs import replace

from rebal.groups.model import GroupSnapshot, RanProtocol, RebalanceProtocol, Source, Tri
from rebal.groups.protocol import disproved
from rebal.planner.goals import NotPlannedError
from rebal.planner.paths import make_plan as plan
from rebal.planner.plan import Plan
from tests.planner.builder import group_of, seen
from tests.planner.looks import Story
from tests.planner.plans import BOTH, DONE, RANGE, m
from tests.planner.plans import plan as planned

EAGER = {"RB112": "its supportedProtocols() is EAGER alone"}
OWN = ["zone"]
WITH_ZONE = ["cooperative-sticky", "zone"]


def group(*lists: list[str], elected: str = "zone", **more: Any) -> GroupSnapshot:
    members = [
        {"id": name, "list": names, **more} for name, names in zip("abc", lists, strict=False)
    ]
    return group_of({"members": members, "elected": elected})


def test_java_settings_name_a_custom_assignors_class_if_a_client_log_shows_it() -> None:
    def said(snapshot: GroupSnapshot) -> str:
        (text,) = (s.text for s in plan(snapshot).steps[0].config if s.format == "Java properties")
        return text

    running = group(OWN, OWN)
    unseen = said(running)
    assert unseen.endswith(".CooperativeStickyAssignor,THE-CLASS-OF-zone")
    assert "put the class you use today for zone" in unseen
    first, second = running.members
    known = replace(first.assignors, classes=("com.acme.ZoneAssignor",))
    shown = said(replace(running, members=(replace(first, assignors=known), second)))
    assert shown.endswith(".CooperativeStickyAssignor,com.acme.ZoneAssignor")
    assert "put the class" not in shown


def test_second_bounce_names_members_that_still_hold_the_custom_assignor_and_a_rollback() -> None:
    made = plan(group(WITH_ZONE, WITH_ZONE, elected="cooperative-sticky"))
    assert (made.path, made.next_step, made.exit_code) == ("two_bounces", 2, 0)
    second = made.steps[1]
    assert (second.title, second.to_do) == ("Every member drops zone", ("a-0f0f", "b-0f0f"))
    assert "first [cooperative-sticky, zone], never straight back" in second.rollback
    assert "still run EAGER (or what zone allows)" in second.why[1]
    half = plan(group(DONE, WITH_ZONE, elected="cooperative-sticky"))
    assert half.steps[1].to_do == ("b-0f0f",)
    assert plan(group(DONE, DONE, elected="cooperative-sticky")).verdict == "done"


def test_custom_assignor_counts_as_cooperative_once_members_kept_owned_partitions() -> None:
    # Nothing was seen of it: the way to Kafka's own is safe, whatever it supports.
    nothing_seen = plan(group(OWN, OWN))
    assert (nothing_seen.runs, nothing_seen.exit_code) == (RebalanceProtocol.CANNOT_TELL, 0)
    assert nothing_seen.path == "two_bounces"
    seen = plan(group(OWN, OWN, owned=True))
    assert (seen.verdict, seen.runs, seen.target) == ("done", RebalanceProtocol.COOPERATIVE, "zone")
    assert seen.exit_code == 0
    assert plan(group(OWN, OWN, owned=True), "zone").verdict == "done"
    # Whoever asks for Kafka's own by name gets the way there.
    there = plan(group(OWN, OWN, owned=True), "cooperative-sticky")
    assert (there.path, there.next_step, there.exit_code) == ("two_bounces", 1, 0)


def test_cooperative_proof_of_one_members_class_is_no_proof_of_another_members_class() -> None:
    shows, silent = group(OWN, owned=True).members, group(OWN, OWN).members[1:]
    made = plan(replace(group(OWN), members=(*shows, *silent)))
    assert (made.target, made.verdict, made.exit_code) == ("zone", "unproven", 4)
    assert "RB111" in made.summary


def test_downgrade_beside_a_custom_assignor_asks_whether_it_is_eager() -> None:
    half = group(WITH_ZONE, WITH_ZONE, elected="cooperative-sticky")
    for target in ("eager", "zone"):
        made = plan(half, target)
        assert (made.target, made.exit_code) == ("zone", 4)
        assert "RB112" in made.summary
        accepted = plan(half, target, ignore=EAGER)
        assert (accepted.next_step, accepted.exit_code) == (1, 0)
        # Every list holds it: only the coordinator's memory may not.
        assert [step.target_list for step in accepted.steps] == [(), ("zone",)]
    assert plan(group(OWN, OWN), "eager").verdict == "unproven"
    beside = plan(group(OWN, OWN), "range")
    assert (beside.path, beside.exit_code) == ("two_bounces", 4)
    assert plan(group(OWN, OWN), "range", ignore=EAGER).exit_code == 0
    assert plan(group(OWN, OWN), "eager", ignore=EAGER).verdict == "done"


def test_upgrade_to_a_custom_assignor_begins_once_one_member_lists_it() -> None:
    first = group(["zone", "range"], ["range"], elected="range")
    made = plan(first, "zone")
    assert (made.path, made.next_step, made.exit_code) == ("two_bounces", 1, 0)
    assert (made.to, made.target, made.steps[0].to_do) == ("COOPERATIVE", "zone", ("b-0f0f",))
    assert [step.target_list for step in made.steps] == [("zone", "range"), ("zone",)]
    assert "--to zone" in made.steps[0].gate.command
    both = group(["zone", "range"], ["zone", "range"])
    assert (plan(both, "zone").next_step, plan(both, "zone").exit_code) == (2, 0)
    half = group(["zone"], ["zone", "range"])
    assert plan(half, "zone").steps[1].to_do == ("b-0f0f",)


def test_custom_assignor_that_no_list_holds_is_no_target() -> None:
    with pytest.raises(NotPlannedError, match="shows a running member that lists it"):
        plan(group(OWN, OWN), "zome")


KAFKA = "org.apache.kafka.clients.consumer."
CLASSES = {
    "range": KAFKA + "RangeAssignor",
    "cooperative-sticky": KAFKA + "CooperativeStickyAssignor",
}
OWN_CLASS = "com.acme.OwnAssignor"
RUNS_EAGER = RebalanceProtocol.EAGER


def with_classes(
    *lists: list[str], own: str | None = None, by: int = 1, **more: Any
) -> GroupSnapshot:
    """Members with these lists; the logs of the first `by` show that `own` is another class."""
    members = [{"id": name, "list": names, **more} for name, names in zip("abc", lists)]  # noqa: B905
    made = group_of({"members": members, "elected": lists[0][0], "reloaded": False})
    shown = []
    for number, member in enumerate(made.members):
        known = member.assignors
        if own in known.list and number < by:
            classes = tuple(OWN_CLASS if name == own else CLASSES[name] for name in known.list)
            log = seen(Source.CLIENT_LOG)
            known = replace(known, classes=classes, evidence=(*known.evidence, log))
        shown.append(replace(member, assignors=known))
    return replace(made, members=tuple(shown))


def ran_eager(snapshot: GroupSnapshot, *numbers: int) -> GroupSnapshot:
    """These members gave up all their partitions when they rejoined, as a request log shows."""
    ran = RanProtocol(value=RUNS_EAGER, evidence=(seen(Source.REQUEST_LOG),))
    members = tuple(
        replace(one, ran=ran) if number in numbers else one
        for number, one in enumerate(snapshot.members)
    )
    return replace(snapshot, members=members)


def test_members_that_gave_up_their_partitions_run_eager_whatever_their_list_is_called() -> None:
    shown = with_classes(DONE, DONE, probe={"cooperative-sticky": True, "range": False})
    assert plan(shown).verdict == "done"
    made = plan(ran_eager(shown, 0, 1))
    assert (made.runs, made.verdict, made.exit_code) == (RUNS_EAGER, "blocked", 3)
    (finding,) = (f for f in made.findings if f.rule == "RB111")
    assert finding.members == ("a-0f0f", "b-0f0f")
    assert "a, b run EAGER: each gave up all its partitions when it rejoined" in finding.message
    # Nobody can vouch for what the log contradicts.
    assert plan(ran_eager(shown, 0), ignore={"RB111": "it is Kafka's"}).verdict != "done"


def test_member_whose_log_shows_kafkas_own_class_is_done_though_it_revoked_all() -> None:
    shown = with_classes(DONE, DONE)
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


def test_operator_can_accept_the_protocol_of_a_custom_class_with_kafkas_name() -> None:
    own = with_classes(DONE, DONE, own="cooperative-sticky", by=2)
    assert plan(own, ignore={"RB111": "it extends CooperativeStickyAssignor"}).verdict == "done"
    eager = with_classes(RANGE, RANGE, own="range", by=2)
    assert plan(eager, "eager", ignore={"RB112": "EAGER alone"}).verdict == "done"


def test_verify_finishes_on_a_custom_cooperative_sticky_only_if_members_kept_partitions() -> None:
    before = group_of({"members": [{"id": f"{n}.1", "client": n, "list": BOTH} for n in "ab"],
                       "elected": "cooperative-sticky", "reloaded": False})  # fmt: skip
    made = plan(before)
    assert (made.next_step, made.exit_code) == (2, 0)
    after = with_classes(DONE, DONE, own="cooperative-sticky", by=2)
    standing = Story(made)(after)
    assert (standing.finished, standing.exit_code) == (False, 4)
    assert {str(member.done) for member in standing.members} == {"cannot tell"}
    assert "not Kafka's own" in standing.members[0].why
    kept = with_classes(DONE, DONE, own="cooperative-sticky", by=2, owned=True)
    assert Story(made)(kept).finished


@pytest.mark.parametrize(
    ("names", "shown"),
    [(("cooperative-sticky",), {"cooperative-sticky"}), (("cooperative-sticky", "shelf"), set())],
)
def test_full_revocation_disproves_cooperative_sticky_unless_a_custom_assignor_is_listed(
    names: tuple[str, ...], shown: set[str]
) -> None:
    (one,) = group_of({"members": [{"id": "a", "list": list(names), "ran": "EAGER"}]}).members
    assert disproved(one) == shown


def test_a_class_of_the_applications_own_bridges_no_two_libraries() -> None:
    made = plan(with_classes(["range"], ["range"], own="range"), "franz-go")
    assert [step.target_list for step in made.steps] == [("roundrobin", "range"), ("roundrobin",)]
    kafkas = plan(with_classes(["range"], ["range"]), "franz-go")
    assert [step.target_list for step in kafkas.steps] == [("range",)]


def guess(name: str, family: str, **more: Any) -> dict[str, Any]:
    return {"id": name, "family": family, "guess": True, **more}


def blocks(made: Plan) -> dict[str, Tri]:
    return {f.rule: f.result for f in made.findings if f.severity == "block" and not f.ignored}


@pytest.mark.usefixtures("no_costs")
def test_stop_of_a_librdkafka_member_needs_proof_of_the_other_members_clients() -> None:
    proven = m("rd", RANGE, family="librdkafka")
    split = planned([proven, m("j", RANGE)])
    assert (split.path, split.exit_code) == ("mixed_families", 0)
    for other in (guess("j", "java", list=RANGE), m("j", RANGE, family=None)):
        made = planned([proven, other])
        assert (made.path, made.steps, made.exit_code) == ("none", (), 4)
        assert blocks(made)["RB104"] is Tri.CANNOT_TELL
        assert not any(one.fix.startswith("Stop every member") for one in made.findings)
    # A list that holds both kinds is proof that its client takes one.
    shown = planned([proven, guess("j", "java", list=BOTH)])
    assert (shown.path, shown.next_step, shown.exit_code) == ("mixed_families", 2, 0)


@pytest.mark.usefixtures("no_costs")
def test_a_client_id_alone_does_not_permit_a_mixed_list() -> None:
    """The bytes of [sticky] exclude no client, and those of [range] do."""
    by_id = planned([guess("a", "java")], elected="sticky")
    assert (by_id.next_step, by_id.exit_code) == (1, 4)
    assert blocks(by_id)["RB906"] is Tri.CANNOT_TELL
    assert planned([guess("a", "java")], elected="sticky", families={"a": "java"}).exit_code == 0
    by_bytes = planned([guess("a", "java")])
    assert by_bytes.exit_code == 0
    assert "RB907" in {finding.rule for finding in by_bytes.findings}


@pytest.mark.usefixtures("no_costs")
@pytest.mark.parametrize("family", ["kafkajs", "kafka-python", "sarama"])
def test_guessed_client_family_never_blocks_the_move_to_kip848(family: str) -> None:
    ready = {"cluster": {"version": "4.1.1", "features": {"group.version": 1}}}
    proven = planned([m("a", RANGE, family=family)], "consumer", **ready)
    assert (proven.exit_code, blocks(proven)["RB412"]) == (3, Tri.YES)
    made = planned([guess("a", family)], "consumer", **ready)
    assert (made.exit_code, blocks(made)["RB412"]) == (4, Tri.CANNOT_TELL)


@pytest.mark.usefixtures("no_costs")
@pytest.mark.parametrize(("family", "bounded"), [("java", True), ("sarama", False)])
def test_version_bounds_of_one_client_do_not_apply_to_another_family_that_is_assumed(
    family: str, bounded: bool
) -> None:
    left = "java >= 2.4, < 3.4, franz-go or sarama"
    made = planned([m("a", RANGE, family=None, left=left)], families={"a": family})
    (text, *_) = [setting.text for setting in made.steps[0].config]
    assert ("or later; not every version is known" in text) is not bounded
