"""The next action of a roll-out: the answer of the first of `CANDIDATES` that has one, as data.

The order protects the members:

1. start the clients that the coordinator rejected, with a list that it admits;
2. stop for dangers, and for findings that forbid a restart;
3. make a new plan, if this plan has no steps and its goal is no longer reached;
4. start the missing members or wait for them; wait while the group is not Stable;
5. settle open questions before the restarts that they concern: the time of a rejection, whether
   the rejected client belongs to the service, and whether it is still out;
6. restart the current step's members until its gate holds, then the first member of the next
   step; make a new plan instead if the group no longer admits this plan's lists, or if members
   have no list;
7. at the end, wait for partitions without an owner and for owners that have not committed; then
   nothing is left to do.

Each join is checked against the coordinator's memory (planner/advice/actions.py) before it is
recommended. A start that would be rejected because of another member's list waits for that member's
restart, if that restart is admitted. A remedy that was carried out and changed nothing is not
advised again.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from msgspec.structs import replace

from rebal.groups.model import GroupType, Knowledge, Tri
from rebal.planner.admission.check import Needs, address, answer_if_repeated, unresolved_rejections
from rebal.planner.advice import actions as advised
from rebal.planner.advice.steps import Actions, step_action, wide_list, with_setting
from rebal.planner.advice.wording import proven_and_confirmed
from rebal.planner.clients import is_mixed
from rebal.planner.context import CONSUMER, COOPERATIVE, EAGER, Context, Facts, ids
from rebal.planner.difference import elected_since
from rebal.planner.facts import listed
from rebal.planner.plan import Action, Advice, Aim, Finding, Plan, Step, StepKind, Verdict
from rebal.planner.rules import Trait, has, rules
from rebal.planner.settings import consumer_change
from rebal.planner.timeouts import longest_session, until_session_ends
from rebal.planner.verdict import first_reason
from rebal.planner.verification.dangers import Danger, DangerKind, commit_wait, decides, owner_for
from rebal.planner.verification.journal import JournalEntry, same_since
from rebal.planner.verification.members import StepStanding
from rebal.planner.verification.outsiders import (
    Doubt,
    Outsider,
    OutsiderKind,
    missing_text,
)


@dataclass(frozen=True, kw_only=True)
class Look:
    """One look at a plan's group, with all that is known before the next action is chosen.

    `seen` are the earlier looks, oldest first. `step` is the plan's step that the group is in,
    `current` its standing, `later` the step after it. `ignore` is rule id → reason, for the rules
    that the user ignores. `fresh` is the plan that would be made now, if this plan has no steps.
    """

    plan: Plan
    context: Context
    seen: Sequence[JournalEntry]
    current: StepStanding
    step: Step
    later: Step | None
    outsiders: Sequence[Outsider]
    dangers: Sequence[Danger]
    findings: Sequence[Finding]
    ignore: Mapping[str, str]
    fresh: Plan | None

    @property
    def open(self) -> StepStanding | None:
        """Return the current step's standing while its gate does not hold; None once it does."""
        return None if self.current.gate is Tri.YES else self.current

    @property
    def change(self) -> str:
        """Return the setting of the step's protocol if a group with members has it, else empty."""
        changes = {
            (GroupType.CONSUMER, Aim.CONSUMER): consumer_change(None, self.step.config),
            (GroupType.STREAMS, Aim.STREAMS_PROTOCOL): "group.protocol=streams",
        }
        change = changes.get((self.context.group.type, self.step.aim), "")
        return change if self.context.members else ""

    @property
    def starts_alike(self) -> bool:
        """Return whether the group has no member and the step brings a setting other than lists."""
        return not self.context.members and bool(self.step.config and not self.step.target_list)

    @property
    def others_stop_first(self) -> bool:
        """Return whether the running members must stop before any other member starts.

        They must only in a path that stops the whole group: while the cut-over is advised and
        admitted, or if the step ends their protocol or library.
        """
        if not (self.open and self.open.to_do and self.plan.path.stops_the_group):
            return False
        made, _ = restart_next(self) or (Advice(), ())
        return (
            (made.action is Action.CUT_OVER and made.recommended)
            or not self.step.target_list
            or self.step.aim is Aim.CLIENT
        )

    def out(self, kind: OutsiderKind, doubt: Doubt = Doubt.NONE) -> list[Outsider]:
        """Return the outsiders of this kind and doubt."""
        return [one for one in self.outsiders if one.kind is kind and one.doubt is doubt]

    def members(self, ids: Sequence[str]) -> list[Facts]:
        """Return the members with these ids that are in the group."""
        return [self.context.by_id[each] for each in ids if each in self.context.by_id]

    def lists(self, out: Sequence[Outsider], *, wide: bool = True) -> list[tuple[str, ...]]:
        """Return the assignor lists that these clients can start with and that fit the plan.

        They are the step's list, the first bounce's mixed list (with `wide`), and the elected
        assignor alone. Mixed lists are left out if one of the clients rejects them, or may reject
        them while a rule asks which client a member uses.
        """
        elected = self.context.elected
        lead = [
            self.step.target_list,
            wide_list(self.plan, self.context) if wide else (),
            (elected,) if elected else (),
        ]
        asked = any(
            has(one, Trait.CLIENT_UNKNOWN) and decides(one, Tri.CANNOT_TELL)
            for one in self.findings
        )
        refusing = (Tri.NO, Tri.CANNOT_TELL) if asked else (Tri.NO,)
        refuses = any(one.takes_mixed in refusing for one in out)
        return [names for names in lead if names and not (refuses and is_mixed(names))]


Candidate: TypeAlias = Callable[[Look], Advice | Actions | None]


def next_action(look: Look) -> Actions:
    """Return the next advice, and the needed restarts that are not proven to be admitted now."""
    found = next(filter(None, (candidate(look) for candidate in CANDIDATES)))
    made, withheld = found if isinstance(found, tuple) else (found, ())
    made, withheld = _other_first(look, made) or (made, withheld)
    made = _instead(look, made) if _changed_nothing(look, made) else made
    made = replace(made, step=made.step or look.step.id or None)
    given = look.context.given
    if made.action is Action.NONE or made.command or given.plan is None:
        return made, withheld
    return replace(made, command=given.verify()), withheld


def _other_first(look: Look, made: Advice) -> Actions | None:
    """Return the advice to restart another member before the start that `made` is about.

    That start would be rejected because of that member's list. Return None if it would not be
    rejected, or if no such restart is admitted now.
    """
    barred = made.action in (Action.START, Action.WAIT) and made.verdict is Tri.NO
    if not (barred and made.assignors and look.context.stable) or any(
        ask(look) for ask in (heed_danger, heed_finding, plan_again, settle_question)
    ):
        return None
    first, withheld = restart_next(look) or (made, ())
    first = _also(first, f"{listed(made.names)} not yet: {made.reason}", *made.also)
    return (first, withheld) if first.recommended else None


def _changed_nothing(look: Look, made: Advice) -> bool:
    """Return whether `made`, which only causes a rebalance, was carried out without effect.

    It was if, since a look that advised it, a temporary member has joined and left, or one process
    has restarted, and all others are the same. Looks before any other advice do not count.
    """
    if not (made.recommended and made.changes_nothing):
        return False
    # A restart may be over in one rebalance, which waits for a stopped static member.
    rebalances = 2 if made.action is Action.TEMPORARY else 1
    ids, now = look.context.by_id.keys(), look.context.generation or 0
    for entry in reversed(look.seen):
        same = entry.advised
        if same is None or made.action not in (same.action, same.instead_of):
            return False
        if (
            same.changes_nothing
            and len(ids ^ entry.ids) == 2 * len(made.members)
            and entry.generation is not None
            and now - entry.generation >= rebalances
        ):
            return True
    return False


def _also(made: Advice, *more: str) -> Advice:
    return advised.worded(replace(made, also=(*made.also, *more)))


def _instead(look: Look, made: Advice) -> Advice:
    """Return the advice that replaces the remedy `made`, which had no effect.

    If lists are still unknown, it is a new plan. If a static member may have stopped, it is to wait
    until its session ends. Otherwise it is `made` again.
    """
    if look.open and made.action is Action.TEMPORARY and look.context.unsure:
        return advised.replan(
            look.context,
            "the rebalance changed nothing, and the list of "
            f"{look.context.named(look.context.unsure)} was not seen",
        )
    static = [facts for facts in look.context.members if facts.static]
    now = look.context.snapshot.captured_at
    until = same_since(
        look.seen, now, lambda one: one.generation == look.context.generation
    ) + longest_session(facts.member for facts in static)
    if not static or now >= until:
        return made
    return replace(
        advised.wait(
            f"the rebalance changed nothing, so one of {look.context.named(static)} may have "
            "stopped: the coordinator counts a stopped static member "
            f"{until_session_ends(f.member for f in static)}, and each rebalance begins that anew. "
            f"Restart nothing and look again after {until:%H:%M:%SZ}"
        ),
        instead_of=made.action,
        commands=look.context.removals(static),
    )


def start_rejected(look: Look) -> Advice | None:
    """Return the advice to start clients that are out; None unless a rejected one may start now."""
    rejected, context = look.out(OutsiderKind.REJECTED), look.context
    out = [one for one in rejected if one.was_member or not context.is_stranger(one.list)]
    if not out or wait_for_stable(look) or look.starts_alike or look.others_stop_first:
        return None
    # A rejected client under another name may be the dynamic member that is missing.
    here = {
        (facts.member.client_id, at)
        for facts in context.members
        if not facts.static
        for at in ("", address(facts.member.host))
    }
    renamed = any(not (one.was_member or (one.client_id, one.host) in here) for one in out)
    out += [one for one in look.out(OutsiderKind.MISSING) if one.instance_id or not renamed]
    return _counted(context, _start(look, out, look.lists(out)), out)


def heed_danger(look: Look) -> Advice | None:
    """Return the advice to restart nothing in any danger but a rejection; None without one."""
    first = next((each for each in look.dangers if each.kind is not DangerKind.REJECTED), None)
    if first is None:
        return None
    owners = look.members(first.members) if first.kind is DangerKind.LAG else ()
    return replace(
        advised.stop(f"{first.message} {first.fix}", until="this danger is over"),
        commands=look.context.removals(owners),
    )


def heed_finding(look: Look) -> Advice | None:
    """Return the advice to stop or plan again for a blocking finding; None without one."""
    for finding in look.findings:
        if decides(finding, Tri.YES) and not has(finding, Trait.ADMISSION):
            stays = rules()[finding.rule].stays
            if has(finding, Trait.OTHER_PATH) and not (stays and stays(look.context, finding)):
                return advised.replan(look.context, finding.message)
            return advised.stop_for(finding)
    return None


def plan_again(look: Look) -> Advice | None:
    """Return the advice that replaces a plan without steps whose goal is not reached; else None.

    It is to make a new plan if `fresh` has steps or is done. Otherwise, while members are missing,
    it is to wait, or None if `start_missing` advises on them. Else it is the advice of `fresh`.
    """
    fresh, context = look.fresh, look.context
    if fresh is None or look.open is None:
        return None
    if fresh.steps or fresh.verdict is Verdict.DONE:
        return advised.replan(context, "this one has no step left", verdict=Tri.CANNOT_TELL)
    if context.missing:
        waits = advised.wait(missing_text(context, look.outsiders))
        return None if context.goal in (COOPERATIVE, EAGER) else _counted(context, waits)
    return replace(fresh.advice, command=context.replan())


def start_missing(look: Look) -> Advice | None:
    """Return the advice to start or await missing members; None if none is missing or may start."""
    context, step = look.context, look.step
    if look.open is None or look.others_stop_first or not context.missing:
        return None
    rejected = look.out(OutsiderKind.REJECTED) if look.starts_alike else []
    out = [*rejected, *look.out(OutsiderKind.MISSING)[: context.missing]]
    if not out and not context.members and step.kind is StepKind.CUT_OVER:
        out = [Outsider(kind=OutsiderKind.MISSING, name="the members")]
    if not out:
        return _counted(context, advised.wait(missing_text(context, look.outsiders)))
    if look.starts_alike:
        made = advised.start_of(context, ["the members"], [()])
        return with_setting(replace(made, names=tuple(one.name for one in out)), step)
    made = _start(look, out, _lists_for(look, step, out))
    if made.verdict is Tri.CANNOT_TELL:
        # The end of a rebalance shows what is remembered.
        made = wait_for_stable(look) or made
    return _counted(context, made if made.recommended else replace(made, action=Action.WAIT))


def _lists_for(look: Look, step: Step, out: Sequence[Outsider]) -> list[tuple[str, ...]]:
    """Return the assignor lists with which to try to start the clients `out`, the best one first.

    `()` stands for the list that each client has. If no list fits, or if they start with the
    setting `look.change` instead, the result is empty.
    """
    if look.change and step.kind is StepKind.CUT_OVER:
        return []
    # A restart of another step may have left it with a list that is not admitted now.
    if look.fresh is None and not (
        step.target_list or (look.context.members and _may_hold_another(look))
    ):
        return [()]
    return look.lists(out, wide=step.aim in (Aim.WIDEN, Aim.NARROW) or not step.target_list)


def _may_hold_another(look: Look) -> bool:
    """Return whether a list of the plan's steps, or one that was rejected, may be rejected now."""
    context = look.context
    given = {one.target_list for one in look.plan.steps if one.target_list}
    starts = [advised.start_of(context, ["it"], [names]).verdict for names in given]
    again = [
        answer_if_repeated(context.memory, one, stranger=context.is_stranger(one.list)).verdict
        for one in unresolved_rejections(context.snapshot)
    ]
    return any(verdict is not Tri.YES for verdict in (*starts, *again))


def _counted(context: Context, made: Advice, out: Sequence[Outsider] = ()) -> Advice:
    """Return `made` with a clause on what to do if no more members belong to the service."""
    if not context.members:
        return made
    settled = [one.until for one in out if one.until]
    number = f"--expect-members {len(context.members)}"
    then = f"look again after {max(settled):%H:%M:%SZ}" if settled else number
    return _also(made, f"if the service has no more members: {then}")


def _start(look: Look, out: Sequence[Outsider], lists: Sequence[tuple[str, ...]]) -> Advice:
    """Return the advice to start the clients `out`, with the first of `lists` that is admitted now.

    If not all of them are admitted together, the first one starts alone.
    """
    context, step = look.context, look.step
    if not lists and not look.change:
        return wait_for_stable(look) or advised.wait(
            "no list is known that these clients start with and that leads on"
        )

    # Once all that are here have started anew, the others follow them.
    brings = step.aim is Aim.CLIENT or (
        step.kind is StepKind.CUT_OVER
        and not look.change
        and context.by_id.keys() <= set(context.restarted)
    )

    def start(number: int) -> Advice:
        made = advised.start_of(
            context,
            [one.name for one in out[:number]],
            lists,
            own=[one.list for one in out[:number]],
            instances=[one.instance_id for one in out[:number]],
            change=look.change,
        )
        return with_setting(made, step) if brings else made

    together, alone = start(len(out)), start(1)
    if together.verdict is Tri.YES or alone.verdict is not Tri.YES:
        return together
    rest = listed([one.name for one in out[1:]])
    return _also(alone, f"{rest} not yet, look again first: {together.reason}")


def wait_for_stable(look: Look) -> Advice | None:
    """Return the advice to wait if the group has members and is not Stable, else None."""
    if not look.context.members or look.context.stable:
        return None
    return advised.wait(f"the group is {look.context.group.state}, not Stable")


def settle_rejection(look: Look) -> Advice | None:
    """Return the advice that settles a question on a rejected client; None if no question is open.

    The question is when it was rejected, whether it belongs to the service, or whether a stopped
    static member, which still counts, hides that it is missing. It is asked when the gate holds.
    """
    if look.open is not None:
        return None
    undated = look.out(OutsiderKind.REJECTED, Doubt.TIME)
    if undated:
        until = max((one.until for one in undated if one.until is not None), default=None)
        after = f"; else look again after {until:%H:%M:%SZ}" if until is not None else ""
        return advised.ask_for(
            look.context,
            Needs.CLOCK,
            f"the log shows that {undated[0].label} was rejected, and not when{after}",
        )
    uncounted = look.out(OutsiderKind.REJECTED, Doubt.COUNT)
    if uncounted:
        return advised.ask_member_count([one.label for one in uncounted], len(look.context.members))
    hidden = look.out(OutsiderKind.REJECTED, Doubt.ENTRY)
    return _wait_for_entry(look, hidden) if hidden else None


def settle_question(look: Look) -> Advice | None:
    """Return the advice to answer a rule's question before a restart; None if none is open."""
    asked = [
        one
        for one in look.findings
        if decides(one, Tri.CANNOT_TELL) and not has(one, Trait.ADMISSION)
    ]
    if look.open is not None:
        asked = [one for one in asked if not has(one, Trait.PENDING)]
        lists = [facts.member.assignors for facts in look.members(look.current.unknown)]
        # A list that was seen is open only where a rule asks what its names stand for.
        exact = bool(lists) and all(one.knowledge is Knowledge.EXACT for one in lists)
        asked = asked if look.current.to_do or exact else []
    return advised.open_question(asked[0]) if asked else None


def restart_next(look: Look) -> Actions | None:
    """Return the advice to restart the step's next member, and the restarts not admitted yet.

    The next member has not completed the step or, if all others have, its configuration file is
    newer than its process. None if there is no such member, or if the step's gate holds.
    """
    now, step = look.open, look.step
    left = look.members(now.to_do or now.changed_since) if now is not None else []
    if not left:
        return None
    return _or_outdated(look, step_action(look.plan, step, look.context, left, ignore=look.ignore))


def _or_outdated(look: Look, found: Actions) -> Actions:
    """Return `found`, or a new plan if none of the plan's lists holds the elected assignor."""
    made, withheld = found
    planned = {step.target_list for step in look.plan.steps} | {()}
    change = elected_since(look.plan, look.context.elected)
    if change is None or not change.outdates or (made.recommended and made.assignors in planned):
        return found
    return advised.replan(look.context, change.text), withheld


def plan_for_kip848(look: Look) -> Advice | None:
    """Return the advice to make a new plan for members of a KIP-848 group, or None.

    It is needed if a member has no assignor list although lists prove the step, or if all members
    returned to the classic protocol but the group was not converted.
    """
    now, context = look.open, look.context
    if now is None or context.group.type is not GroupType.CONSUMER:
        return None
    if look.step.aim is Aim.CLASSIC and context.members and not (now.to_do or now.unknown):
        return advised.replan(context, now.why[0])
    online = [f for f in look.members(now.unknown) if f.member.protocol_type == CONSUMER]
    why = (
        f"the protocol of {context.named(online)} is {CONSUMER} (KIP-848), which has no assignor "
        "list, and this plan's steps bring lists"
    )
    return advised.replan(context, why) if online else None


def confirm_by_hand(look: Look) -> Advice | None:
    """Return the advice to confirm by hand if that alone can verify the members left, else None."""
    now = look.open
    if now is None or not now.by_hand or len(now.by_hand) != len(now.unknown):
        return None
    left = look.members(now.by_hand)
    return _or_restart(
        look,
        advised.confirm(look.context, now.id, left, now.by_hand_list),
        left,
        "or, if one was not,",
        "it",
    )


def _or_restart(look: Look, made: Advice, left: Sequence[Facts], when: str, *who: str) -> Advice:
    """Return `made`, followed by `when` and a restart of `left` (as `who`) if it is admitted."""
    restart, _ = step_action(look.plan, look.step, look.context, left, ignore=look.ignore)
    if not restart.recommended:
        return made
    names = who if who and restart.action is Action.RESTART else restart.names
    return _also(made, f"{when} {advised.worded(replace(restart, names=names)).text}")


def show_lists(look: Look) -> Advice | None:
    """Return the advice to add evidence on unverified members; None if the step has none."""
    now = look.open
    if now is None or not now.unknown:
        return None
    rest = [each for each in now.unknown if each not in now.by_hand]
    named, target = look.context.named(look.members(rest)), look.context.target
    at_odds = any(one.member_id in rest for one in look.context.snapshot.contradictions)
    lacks = look.step.aim is Aim.WIDEN and look.context.probed(target) is Tri.NO
    why = (
        first_reason(
            (
                (at_odds, f"the evidence on {named} contradicts itself (RB902)"),
                (lacks, f"the probe shows that the list of one or more of {named} has no {target}"),
            )
        )
        or f"nothing shows the {look.step.brings} of {named}"
    )
    made = advised.ask_for(look.context, Needs.DECLARED if now.by_hand_list else Needs.LISTS, why)
    return _or_restart(look, made, look.members(rest), "or") if now.by_hand_list else made


def begin_next_step(look: Look) -> Actions | None:
    """Return the advice to begin the next step, and the restarts not admitted yet, or None.

    It may begin once the current gate holds. If it drops the old assignor it may begin earlier,
    because its first action may be all that the gate lacks. None if it may not, or needs no action.
    """
    context, later = look.context, look.later
    at_odds = {None, *context.by_id} & {one.member_id for one in context.snapshot.contradictions}
    if later is None or not (
        look.open is None or (later.aim.leaves_old and context.members and not at_odds)
    ):
        return None
    done = ids(context.settled) if later.aim.leaves_old else later.done
    order = {member_id: n for n, member_id in enumerate((*later.to_do, *later.unknown))}
    left = sorted(
        (f for f in context.members if f.member.member_id not in done),
        key=lambda f: (order.get(f.member.member_id, len(order)), f.name),
    )
    if later.kind is StepKind.CUT_OVER:
        aside = {family for each in look.plan.steps for family in each.left_out}
        left = [f for f in left if not aside or f.family in aside]
    made, withheld = step_action(look.plan, later, context, left, ignore=look.ignore)
    if made.recommended and made.assignors == later.target_list:
        made = advised.worded(replace(made, begins=True))
    return _or_outdated(look, (made, withheld)) if made.action is not Action.NONE else None


def _wait_for_entry(look: Look, hidden: Sequence[Outsider]) -> Advice:
    last = max(hidden, key=lambda one: (one.until, one.name))
    who = listed(last.behind) or "a static member that joined since"
    static = [facts for facts in look.context.members if facts.static]
    behind = [facts for facts in static if facts.name in last.behind]
    ends = until_session_ends(facts.member for facts in behind or static)
    return replace(
        advised.wait(
            f"{last.label} was rejected and no log shows that it rejoined; "
            f"{who} may have stopped: the coordinator counts a stopped static member "
            f"{ends}. Look again after {last.until:%H:%M:%SZ}"
        ),
        commands=look.context.removals(behind),
    )


def wait_for_commits(look: Look) -> Advice | None:
    """Return the advice to wait, after the last step, for owners with lag to commit; else None."""
    reason = None if look.later or look.fresh else commit_wait(look.plan, look.seen, look.context)
    return advised.wait(reason) if reason else None


def end(look: Look) -> Advice:
    """Return the advice that nothing is left to do."""
    vouched = [facts.name for facts in look.members(look.current.vouched)]
    rows = (
        (look.later is not None, "no member is left to restart in this step"),
        (not look.current.vouched, "the plan is carried out"),
    )
    return advised.nothing(
        first_reason(rows) or f"finished; {proven_and_confirmed(len(look.current.done), vouched)}"
    )


CANDIDATES: Final[tuple[Candidate, ...]] = (
    start_rejected,
    heed_danger,
    heed_finding,
    plan_again,
    start_missing,
    wait_for_stable,
    settle_rejection,
    settle_question,
    restart_next,
    plan_for_kip848,
    confirm_by_hand,
    show_lists,
    begin_next_step,
    lambda look: advised.wait(look.open.why[0]) if look.open is not None else None,
    lambda look: owner_for(look.context, look.seen),
    wait_for_commits,
    end,
)
