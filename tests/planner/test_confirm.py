"""A member's list that the operator confirms: when the word counts, and what overrules it."""

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from rebal.groups.evidence.merge import merge
from rebal.groups.model import GroupSnapshot, Knowledge, Tri
from rebal.planner.admission.check import admitted, restart
from rebal.planner.paths import make_plan
from rebal.planner.plan import Plan
from rebal.planner.verification.journal import PlanContext, remembered
from rebal.planner.verification.verify import AnsweredError, NothingToConfirmError, Standing, verify
from tests.examples import examples
from tests.planner.looks import Story, bare, done, id_of, look

pytestmark = pytest.mark.usefixtures("no_costs")

TARGET = "cooperative-sticky"
MIXED = [TARGET, "range"]
BACK = ["range", TARGET]
FINAL = [TARGET]
YES = {"probe": {TARGET: True, "range": False}}


def member(number: int, start: int, declared: Sequence[str] | None = FINAL, **more: Any) -> Any:
    """A member that only its configuration file speaks of."""
    file = {} if declared is None else {"declared": list(declared)}
    return {**bare(number, start), **file, **more}


def pods(start: int, *changed: dict[str, Any], **more: Any) -> list[dict[str, Any]]:
    """Three members with the same start, except those in `changed`."""
    own = {each["client"]: each for each in changed}
    return [own.get(f"app-{n}") or member(n, start, **more) for n in range(3)]


@pytest.fixture
def second(plan: Plan) -> Story:
    """The gate of the first bounce has held: the second one may begin."""
    tell = Story(plan)
    standing = tell(look(1, pods(2, declared=MIXED), elected=TARGET, **YES))
    assert (standing.step, standing.gate, standing.exit_code) == (1, Tri.YES, 0)
    return tell


def word(
    tell: Story, snapshot: GroupSnapshot, *members: str, names: Sequence[str] = FINAL, step: int = 2
) -> None:
    tell.confirm(snapshot, step, "checked", members=members, names=tuple(names))


def restarted(minutes: float, *changed: dict[str, Any], **more: Any) -> GroupSnapshot:
    """Everybody has restarted in the second bounce."""
    return look(minutes, pods(3, *changed), **{"elected": TARGET, **YES, **more})


def test_second_bounce_finishes_once_the_operator_has_confirmed_every_member(second: Story) -> None:
    half = second(look(2, [member(0, 3), *pods(2)[1:]], elected=TARGET, **YES))
    assert done(half) == {"app-0": "cannot tell", "app-1": "no", "app-2": "no"}
    assert half.next.startswith("restart app-1"), "restarts come before words"
    every = second(restarted(3))
    assert (every.exit_code, every.why) == (4, ("restarted, not proven: app-0, app-1, app-2",))
    again = "restart it with [cooperative-sticky]; one member at a time"
    assert every.next.endswith(f"; or, if one was not, {again}")
    assert all("declared, not verified" in one.why for one in every.members)
    advice = every.advice
    assert (advice.action, advice.members) == ("confirm", tuple(id_of(n, 3) for n in range(3)))
    for text in ("--confirm 2", f"--member {id_of(0, 3)}", f"--list {TARGET}", "--reason '"):
        assert text in advice.command
    # `word` confirms the list of these members, as `rebal verify --confirm 2` does.
    word(second, restarted(4), "app-0")
    some = second(restarted(5))
    assert (some.exit_code, some.unverified) == (4, ("app-0",))
    word(second, restarted(6), "app-1", id_of(2, 3))
    end = second(restarted(7))
    assert (end.exit_code, end.finished) == (0, True)
    assert end.unverified == ("app-0", "app-1", "app-2")
    assert end.next == "finished; proven: 0, confirmed by you: 3 (app-0, app-1, app-2)"
    # The journal keeps the word apart from proof: no look calls it made.
    assert all(2 not in seen.made for entry in second.entries for seen in entry.members)


def test_member_whose_file_sets_group_protocol_consumer_cannot_be_confirmed(second: Story) -> None:
    now = second(restarted(3, member(0, 3, declared=[], group_protocol="consumer")))
    (one,) = (one for one in now.members if one.name == "app-0")
    assert (one.by_hand, one.why) == (False, "app.properties says group.protocol=consumer")


def test_confirmation_is_void_when_the_member_rejoins_without_partitions(second: Story) -> None:
    """It rejoins under the same id with nothing owned, as no COOPERATIVE member does."""
    word(second, restarted(3, generation=7), "app-0", "app-1", "app-2")
    assert second(restarted(4, generation=7)).finished
    after = second(restarted(5, *[member(n, 3, owned=True) for n in (0, 2)], generation=8))
    assert (after.finished, after.exit_code) == (False, 4)
    (void,) = [one for one in after.members if one.contradicted]
    assert void.name == "app-1"
    assert "it runs EAGER: it gave up all its partitions when it rejoined" in void.why
    every = [member(n, 3, owned=True) for n in range(3)]
    assert not second(restarted(6, *every, generation=9)).finished


def test_evidence_of_the_list_replaces_the_operators_confirmation(second: Story) -> None:
    # `word` confirms the list of these members, as `rebal verify --confirm 2` does.
    word(second, restarted(3), "app-0", "app-1", "app-2")
    shown = second(restarted(4, member(0, 3, list=FINAL)))
    assert (shown.finished, shown.unverified) == (True, ("app-1", "app-2"))
    # Partitions that a Java client kept show it too, and stay known of its id.
    kept = second(restarted(5, member(1, 3, owned=True, family="java")))
    assert (kept.finished, kept.unverified) == (True, ("app-2",))
    assert second(restarted(6)).unverified == ("app-2",)


@pytest.mark.parametrize(
    ("one", "group", "because"),
    [
        (member(1, 2), {}, "the same member id"),
        (member(1, 3, MIXED), {}, "app.properties says [cooperative-sticky, range]"),
        (member(1, 3, list=MIXED), {}, "[cooperative-sticky, range]"),
        (member(1, 3), {"probe": {TARGET: True, "range": True}}, "its list holds range"),
        (member(1, 3, lacks=[TARGET]), {}, "its list has no cooperative-sticky"),
        (member(1, 3), {"contradictions": [{"what": "x"}]}, "contradicts itself"),
    ],
)
def test_member_cannot_be_confirmed_against_evidence(
    second: Story, one: dict[str, Any], group: dict[str, Any], because: str
) -> None:
    with pytest.raises(AnsweredError) as caught:
        word(second, restarted(3, one, **group), "app-1")
    assert because in str(caught.value)
    assert not second(restarted(4, one, **group)).finished


def test_later_evidence_overrules_a_confirmation_for_good(second: Story) -> None:
    # `word` confirms the list of these members, as `rebal verify --confirm 2` does.
    word(second, restarted(3), "app-0", "app-1", "app-2")
    refuted = second(restarted(4, probe={TARGET: True, "range": True}))
    assert (refuted.exit_code, refuted.unverified) == (4, ())
    assert all("its list holds range" in one.why for one in refuted.members)
    # The next look may have no probe: what was refuted stays so until somebody confirms it again.
    assert not second(look(5, pods(3), elected=TARGET)).finished
    assert done(second(restarted(6, member(0, 3, list=MIXED))))["app-0"] == "no"


def test_clock_set_back_does_not_revive_an_overruled_confirmation(second: Story) -> None:
    word(second, restarted(3), "app-0", "app-1", "app-2")
    against = {"probe": {TARGET: False, "range": True}, "elected": "range"}
    assert not second(restarted(8, **against)).finished
    early = verify(second.plan, second.entries, restarted(5))
    assert (early.finished, early.unverified) == (False, ())


def test_confirmation_counts_despite_a_look_from_a_clock_that_is_ahead(second: Story) -> None:
    assert not second(restarted(9)).finished
    word(second, restarted(3), "app-0", "app-1", "app-2")
    there = second(restarted(4))
    assert (there.finished, len(there.unverified)) == (True, 3)
    assert any("the clocks of two machines differ" in note for note in there.notes)


def test_confirmation_needs_an_earlier_look_from_before_the_restarts(plan: Plan) -> None:
    story = Story(plan)
    between = look(2, pods(2), elected=TARGET, **YES)
    with pytest.raises(AnsweredError, match="no earlier look shows the members"):
        word(story, between, "app-0")
    hidden = replace(plan, baseline=replace(plan.baseline, redacted=True))
    assert not verify(hidden, [], between, step=2).members[0].by_hand


@pytest.mark.parametrize(
    ("members", "names", "says"),
    [
        ((), FINAL, "--member NAME --list cooperative-sticky"),
        (("app-0",), (), "--member NAME --list cooperative-sticky"),
        (("app-0",), MIXED, "is not the list of this step"),
        (("app-9",), FINAL, "no members of the group have this name"),
    ],
)
def test_confirmation_must_name_members_of_the_group_and_the_list_of_the_step(
    second: Story, members: tuple[str, ...], names: Sequence[str], says: str
) -> None:
    with pytest.raises(NothingToConfirmError, match=says):
        word(second, restarted(3), *members, names=names)


def test_first_bounce_accepts_no_confirmation_of_an_assignor_list(plan: Plan) -> None:
    story = Story(plan)
    seen = look(1, pods(2, declared=MIXED))
    with pytest.raises(AnsweredError, match="nothing is confirmed: app-0: "):
        word(story, seen, "app-0", names=MIXED, step=1)


@pytest.fixture
def back() -> Story:
    """A downgrade whose first bounce is over."""
    cooperative = [bare(n) for n in range(3)]
    start = look(0, cooperative, elected=TARGET, probe={TARGET: True, "range": False})
    tell = Story(make_plan(start, "range", expect_members=3, families={"*": "java"}))
    wide = tell(
        look(1, pods(2, declared=BACK), elected="range", probe={TARGET: True, "range": True})
    )
    assert (wide.step, wide.exit_code) == (1, 0)
    return tell


def down(minutes: float, *changed: dict[str, Any], **more: Any) -> GroupSnapshot:
    group = {"elected": "range", "probe": {TARGET: False, "range": True}, **more}
    return look(minutes, pods(3, *changed, declared=["range"]), **group)


def test_member_that_kept_partitions_cannot_be_confirmed_as_eager(back: Story) -> None:
    kept = member(1, 3, ["range"], owned=True)
    with pytest.raises(AnsweredError, match="it kept 4 partitions when it last joined"):
        word(back, down(3, kept), "app-1", names=["range"])
    word(back, down(4, kept), "app-0", "app-2", names=["range"])
    assert not back(down(5, kept)).finished


def test_member_that_once_kept_partitions_cannot_be_confirmed_as_eager(back: Story) -> None:
    """A later rebalance left the member nothing to keep; its list is still the same."""
    back(down(2, member(1, 3, ["range"], owned=True)))
    with pytest.raises(AnsweredError, match=r"\(the journal, Nov 20 09:02Z\)"):
        word(back, down(3), "app-1", names=["range"])
    word(back, down(4), "app-0", "app-2", names=["range"])
    assert not back(down(5)).finished
    restarted_ = down(6, member(1, 6, ["range"]))
    word(back, restarted_, "app-1", names=["range"])
    assert back(restarted_).finished


def test_declared_list_is_never_reported_as_the_list_that_runs(second: Story) -> None:
    """The probe refutes the file: the reason is the evidence, not the list of the file."""
    seen = restarted(3, probe={TARGET: True, "range": True})
    declared = replace(seen.members[0].assignors, knowledge=Knowledge.DECLARED, list=tuple(FINAL))
    members = (replace(seen.members[0], assignors=declared), *seen.members[1:])
    standing = second(merge(replace(seen, members=members), ()))
    first = next(one for one in standing.members if one.name == "app-0")
    assert (first.list, first.knowledge) == ((TARGET,), Knowledge.DECLARED)
    assert first.done is Tri.NO
    assert first.why.startswith("still holds an assignor that the step drops, restarted although")


def test_a_file_written_after_the_member_was_first_seen_does_not_declare_its_list(
    second: Story,
) -> None:
    """The process read its configuration before the file got this text."""
    assert done(second(restarted(3, member(1, 3, MIXED, written=2))))["app-1"] == "cannot tell"
    edited = restarted(5, member(1, 3, written=4))
    with pytest.raises(AnsweredError, match="was written at Nov 20 09:04:00Z"):
        word(second, edited, "app-1")
    standing = second(edited)
    assert standing.steps[1].changed_since == (id_of(1, 3),)
    (one,) = (each for each in standing.members if each.name == "app-1")
    assert (one.by_hand, one.changed_since) == (False, True)
    assert "app.properties was written at Nov 20 09:04:00Z, after" in one.why
    assert "first seen at Nov 20 09:03:00Z" in one.why
    assert standing.next.startswith(f"restart app-1 with [{TARGET}]")
    # A restart reads the file as it is now.
    assert second(restarted(6, member(1, 5, written=4))).advice.action == "confirm"


def test_configmap_created_after_the_member_was_first_seen_does_not_declare_its_list(
    second: Story,
) -> None:
    """A ConfigMap of a later deployment, which this pod never read."""
    second(restarted(3, member(1, 3, MIXED)))
    with pytest.raises(AnsweredError, match="was created at Nov 20 09:04:00Z"):
        word(second, restarted(5, member(1, 3, created=4)), "app-1")


LISTS: list[list[str] | None] = [None, FINAL, MIXED, BACK, ["range"]]


@st.composite
def looks(draw: st.DrawFn, minutes: float) -> GroupSnapshot:
    """Any look during the second bounce of an upgrade or a downgrade."""
    members = []
    for number in range(3):
        one = member(number, draw(st.integers(2, 4)), draw(st.sampled_from(LISTS)))
        one |= {"family": draw(st.sampled_from([None, "java", "franz-go", "librdkafka"]))}
        one |= {"owned": draw(st.booleans()), "guess": draw(st.booleans())}
        one |= {"written": draw(st.sampled_from([None, 1, 3, 5]))}
        one |= {"instance": f"app-{number}"} if draw(st.booleans()) else {}
        names = draw(st.sampled_from(LISTS))
        members.append(one | ({"list": names} if names and draw(st.booleans()) else {}))
    answer = st.sampled_from([True, False, None])
    probe = {"range": draw(answer), TARGET: draw(answer)} if draw(st.booleans()) else None
    elected = draw(st.sampled_from(["range", TARGET]))
    return merge(look(minutes, members, elected=elected, reloaded=draw(answer), probe=probe), ())


def test_a_list_holds_what_it_held_when_the_plan_was_made_under_the_same_member_id() -> None:
    told: dict[str, Any] = {"family": "java", "at_least": [TARGET]}
    plan = make_plan(look(0, [{"id": "a", **told}, {"id": "b", **told}], elected=TARGET))
    half = [{"id": "a", "family": None}, {"id": "b", "family": None, "protocol_type": "consumer"}]
    seen = remembered(plan, (), look(1, half, type="consumer", elected=None)).members
    assert [one.assignors.at_least for one in seen] == [(TARGET,), ()]


def holds(plan: Plan, tell: Story, snapshot: GroupSnapshot, member_id: str) -> None:
    """No evidence of this look is against the list of the step, nor would it be rejected."""
    names = set(plan.steps[-1].target_list)
    seen = remembered(plan, tell.entries, snapshot)
    (one,) = (each for each in seen.members if each.member_id == member_id)
    assert member_id not in {each.member_id for each in tell.entries[0].members}
    assert one.assignors.knowledge is not Knowledge.EXACT
    assert snapshot.group.assignor in names
    assert set(one.assignors.at_least) <= names
    assert not names & set(one.assignors.lacks)
    for answer in seen.probe_answers:
        assert answer.supported is not Tri.YES or answer.assignor in names
    assert names == {TARGET} or not one.kept_partitions
    earlier = (each for entry in tell.entries for each in entry.members)
    assert names == {TARGET} or not any(m.kept for m in earlier if m.member_id == member_id)
    assert not any(each.member_id in (None, member_id) for each in seen.contradictions)
    memory = PlanContext(plan, seen, 3).memory
    answer = admitted(memory, restart(memory, member_id, plan.steps[-1].target_list))
    assert answer.verdict is not Tri.NO


@examples(50, full=400)
@given(data=st.data(), upgrade=st.booleans())
def test_no_confirmation_is_accepted_against_evidence_or_a_predicted_rejection(
    data: st.DataObject, upgrade: bool
) -> None:
    if upgrade:
        plan = make_plan(look(0, pods(1, declared=None)), expect_members=3)
        gate = look(1, pods(2, declared=MIXED), elected=TARGET, **YES)
    else:
        start = look(0, [bare(n) for n in range(3)], elected=TARGET, **YES)
        plan = make_plan(start, "range", expect_members=3, families={"*": "java"})
        gate = look(1, pods(2, declared=BACK), elected="range", probe={TARGET: True, "range": True})
    story = Story(plan)
    assert story(gate).gate is Tri.YES
    names = plan.steps[-1].target_list
    for minutes in range(2, 6):
        snapshot = data.draw(looks(minutes))
        check(plan, story, snapshot, story(snapshot))
        for one in verify(plan, story.entries, snapshot, step=2).members:
            try:
                word(story, snapshot, one.member_id, names=names)
            except (AnsweredError, NothingToConfirmError):
                continue
            holds(plan, story, snapshot, one.member_id)
            declares(story, snapshot, one.member_id)


def declares(tell: Story, snapshot: GroupSnapshot, member_id: str) -> None:
    """The file that the word rests on is not newer than the member."""
    (one,) = (each for each in snapshot.members if each.member_id == member_id)
    if one.declared is None:
        return
    since = min(entry.at for entry in tell.entries if member_id in entry.ids)
    written = one.declared.evidence.at
    assert written is None or written <= since


def check(plan: Plan, tell: Story, snapshot: GroupSnapshot, standing: Standing) -> None:
    """Whoever is done by a word alone has nothing against it, and nothing rejected is advised."""
    for one in standing.members if standing.step == 2 else ():
        if one.vouched:
            holds(plan, tell, snapshot, one.member_id)
    if standing.advice.recommended:
        assert standing.advice.verdict is Tri.YES
    if standing.unverified and standing.finished:
        assert "confirmed by you" in standing.next
