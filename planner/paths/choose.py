"""The choice of a path for a group, and the plan made of it."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Final

from msgspec.structs import replace

from rebal.groups.commands import option
from rebal.groups.evidence.absent import without_departed
from rebal.groups.model import GroupSnapshot, GroupState, GroupType, Source, Tri
from rebal.groups.protocol import group_protocol
from rebal.planner.advice.steps import comes_before, first_action
from rebal.planner.commands import ACCEPT, Given, NamedCommand
from rebal.planner.context import (
    CLASSIC,
    CONSUMER,
    COOPERATIVE,
    EAGER,
    INCREMENTAL,
    STREAMS,
    Context,
)
from rebal.planner.goals import SHOWN, goal_of
from rebal.planner.kip848 import allows, online, too_old
from rebal.planner.paths.by_lists import by_lists, library
from rebal.planner.paths.parts import PlannedPath
from rebal.planner.paths.programs import connect, incremental_value, streams
from rebal.planner.paths.protocols import over_kip848, over_kip1071, start_again
from rebal.planner.plan import (
    Accepted,
    Finding,
    PathKind,
    Plan,
    Risk,
    Severity,
    Step,
    Verdict,
    own_class_risk,
    with_default_settings,
)
from rebal.planner.rehearsal.costs.start import FULL, Pricing
from rebal.planner.rules import Trait, evaluate, has, rules
from rebal.planner.rules.version_faults import unchecked_versions
from rebal.planner.timeouts import Speed
from rebal.planner.verdict import (
    BLOCKED,
    SAFE,
    answer_of,
    answer_to_start,
    exit_code,
    first_reason,
    gating,
    reasons,
    verdict_of,
    worst,
)

# Whether the lists hold what a step reads → the risk that the user may accept.
_RISKS: Final = {Tri.NO: Risk.TARGET_MISSING, Tri.CANNOT_TELL: Risk.UNKNOWN_LISTS}


def make_plan(
    snapshot: GroupSnapshot,
    target: str = COOPERATIVE,
    *,
    expect_members: int | None = None,
    families: Mapping[str, str] | None = None,
    ignore: Mapping[str, str] | None = None,
    made_at: datetime | None = None,
    pricing: Pricing | None = FULL,
    speed: Speed | None = None,
    given: Given | None = None,
    assumed: Sequence[str] = (),
    before: GroupSnapshot | None = None,
    departed: Sequence[str] = (),
) -> Plan:
    """Return the plan that leads this group to `target`.

    `target` is cooperative, eager, consumer, streams, classic, an assignor's name, or the client
    library that replaces the members' own. `expect_members` is the number of members of the whole
    service. `families` is client id (or `*`) → client family, assumed by the user where no evidence
    proves one. `ignore` is rule id → reason. `made_at` defaults to the snapshot's time: equal input
    gives an equal plan. `speed` is how fast members restart, for the cost; `pricing` is how much of
    that is rehearsed (None: no step has a cost). `given` are the options of the command line, which
    every gate's command repeats. `assumed` are sentences on assumed lists
    (groups/evidence/bounds.py); the plan records them. `before` is set in a rollback: the group as
    it was before the plan that is rolled back. A group without members starts with what it ran
    then. `departed` are the names of clients that the user says left for good.

    Raises:
        NotPlannedError: this version plans no path to this target.
    """
    snapshot = without_departed(snapshot, dict.fromkeys(departed, snapshot.captured_at))
    if Risk.UNREAD_SETTINGS in (ignore or {}):
        snapshot = with_default_settings(snapshot)
    goal = goal_of(snapshot, target, families, before)
    context = Context(
        snapshot,
        goal=goal.kind,
        target=goal.target,
        only_target=goal.only_target,
        planning=True,
        expect_members=expect_members,
        families=families,
        given=given,
        remembers=Risk.FORGOTTEN_LISTS in (ignore or {}),
        own_classes=own_class_risk(goal.kind) in (ignore or {}),
        speed=speed,
        pricing=pricing,
        client=goal.client,
    )
    ran = None
    if before is not None:
        ran = Context(before, goal=goal.kind, target=goal.target, families=families, given=given)
    path = _path(context, goal.back, ran)
    findings = _findings(context, path, ignore)
    steps = tuple(_judged(context, path, step, findings, ignore or {}) for step in path.steps)
    code = _exit_code(context, path, findings, steps)
    # One online roll-out in place of bounces that have not begun: brokers, clients and members are
    # all proven to allow KIP-848.
    online_first = (
        context.goal == COOPERATIVE
        and path.name.reads_lists
        and not any(step.done for step in path.steps)
        and allows(online(context)) is Tri.YES
        and all(too_old(facts) is Tri.NO for facts in context.members)
    )
    plan = Plan(
        group_id=snapshot.group.group_id,
        runs=group_protocol(snapshot).value,
        assignor=snapshot.group.assignor,
        to=goal.client or SHOWN[goal.kind],
        target=_target(context, path),
        only_target=goal.only_target,
        path=path.name,
        verdict=verdict_of(code, done=path.next_step is None),
        summary=_summary(context, path, code, findings),
        next_step=path.next_step,
        steps=steps,
        instead=CONSUMER if online_first else "",
        findings=findings,
        not_checked=_not_checked(context),
        assumptions=(
            *assumed,
            *(
                f"{'every member whose client is not proven' if key == '*' else f'client id {key}'}"
                f" is {family}"
                for key, family in (families or {}).items()
            ),
            *(f"{rule} is ignored: {reason}" for rule, reason in (ignore or {}).items()),
            *(f"{name} left for good" for name in departed),
        ),
        accepted=Accepted(
            families=families or {},
            ignore=ignore or {},
            departed=tuple(departed),
            members=context.expected if context.counted else None,
        ),
        expected_members=context.expected,
        given=given or Given(),
        made_at=made_at or snapshot.captured_at,
        baseline=snapshot,
        exit_code=code,
    )
    return _with_advice(plan, context, path)


def _with_advice(plan: Plan, context: Context, path: PlannedPath) -> Plan:
    """Return `plan` with its first action; the plan is not ready if that action is not admitted."""
    advice, withheld = first_action(plan, context)
    made = replace(plan, advice=replace(advice, step=plan.next_step), withheld=withheld)
    now = plan.step(plan.next_step)
    prepares = now and advice.recommended and comes_before(now, advice, withheld)
    first = withheld[0] if prepares else None
    if plan.verdict is not Verdict.READY or (advice.recommended and first is None):
        return made
    answer = Tri.CANNOT_TELL if first or advice.verdict is Tri.YES else advice.verdict
    code = exit_code(answer)
    path = replace(path, reasons=((first or advice).reason, *path.reasons))
    return replace(
        made,
        steps=tuple(
            replace(step, exit_code=code, precondition_holds=answer)
            if step.id == plan.next_step
            else step
            for step in plan.steps
        ),
        verdict=verdict_of(code, done=False),
        exit_code=code,
        summary=_summary(context, path, code, plan.findings),
    )


def _path(context: Context, back: bool, before: Context | None) -> PlannedPath:
    """Return the path that this group can take.

    `back`: the goal leads a KIP-848 group back to the classic protocol. `before` is set in a
    rollback: the group as it was before the plan that is rolled back.
    """
    group = context.group
    if before is not None and (again := start_again(context, before)) is not None:
        return again
    if context.goal in (STREAMS, CLASSIC):
        return over_kip1071(context)
    if misnamed := _misnamed(context):
        return PlannedPath(name=PathKind.NONE, reasons=(misnamed,))
    if group.type is GroupType.CONSUMER and (back or context.goal == CONSUMER):
        return over_kip848(context, back)
    if group.type in (GroupType.CONSUMER, GroupType.STREAMS):
        return PlannedPath(name=PathKind.ALREADY_INCREMENTAL)
    if group.protocol_type == "connect" and context.stable and context.goal != CONSUMER:
        return connect(context)
    if context.streams and context.stable and context.goal != CONSUMER:
        return streams(context, before)
    consumers = group.protocol_type in (None, "", "consumer") and not context.streams
    ready = context.classic and context.stable
    if context.goal == CONSUMER and (ready or (consumers and group.state is GroupState.EMPTY)):
        return over_kip848(context, back)
    if not ready:
        return PlannedPath(name=PathKind.NONE)
    return library(context, before) if context.client else _until(by_lists(context), before)


def _until(path: PlannedPath, before: Context | None) -> PlannedPath:
    """Return `path` up to the step that restores the list that all members ran in `before`.

    If no step does, return the whole path. If that step is completed, the path is finished.
    """
    ran = {facts.member.assignors.list for facts in (before.members if before is not None else ())}
    last = next((step.id for step in path.steps if ran == {step.target_list} != {()}), 0)
    if (path.next_step or 0) > last > 0:
        return PlannedPath(name=PathKind.FINISHED)
    return replace(path, steps=path.steps[: last or None])


def _misnamed(context: Context) -> str:
    """Return why no member can have the assignor that `--to` names; empty if one may have it."""
    program = "Connect workers" if context.group.protocol_type == "connect" else ""
    if context.streams or context.group.type is GroupType.STREAMS:
        program = "a Kafka Streams program"
    if not (context.only_target and program):
        return ""
    return (
        f"--to {context.target} names an assignor of consumers, and this is a group of {program}, "
        "which takes --to cooperative and --to eager"
    )


def _findings(
    context: Context, path: PlannedPath, ignore: Mapping[str, str] | None
) -> tuple[Finding, ...]:
    """Return the findings that the steps of `path` do not deal with.

    If no path is possible, findings about a step and findings that only ask a question (severity
    ASK) are left out.
    """
    said = tuple(
        finding
        for finding in evaluate(context, ignore=ignore)
        if not rules()[finding.rule].dealt_with(path.name, context, finding)
        # A step from an Empty group expects none.
        and not (
            path.next_step is not None
            and not context.members
            and has(finding, Trait.MISSING_MEMBERS)
        )
    )
    if path.name is not PathKind.NONE:
        return said
    return tuple(f for f in said if f.severity is not Severity.ASK and f.before_step is None)


def _target(context: Context, path: PlannedPath) -> str:
    elected = context.group.assignor
    workers = context.group.protocol_type == "connect"
    rows = (
        (context.goal in (CONSUMER, STREAMS), context.goal),
        (context.goal == CLASSIC or context.streams or path.name.startswith("streams_"), "stream"),
        (workers and context.goal == EAGER, "default"),
        (workers and elected in INCREMENTAL, str(elected)),
        (workers, incremental_value(context)),
    )
    return first_reason(rows) or context.target


def _judged(
    context: Context,
    path: PlannedPath,
    step: Step,
    findings: tuple[Finding, ...],
    ignore: Mapping[str, str],
) -> Step:
    """Return `step` with the answer to its precondition, and with its exit code.

    Both follow from the findings before this step, the members' lists, and the `exit_code` that the
    path gave to `step`, which is replaced. A finding that the user ignores still counts in the
    precondition's answer, but not in the exit code.
    """
    narrows = path.name.reads_lists and step.id == context.narrow_step
    lists, own = Tri.YES, answer_of(step.exit_code)
    if narrows and step.target_list == (context.target,):
        lists = worst(context.supports(facts, context.target) for facts in context.members)
    answers = map(answer_to_start, gating(findings, step.id, ignored=True))
    heeded = {own, *map(answer_to_start, gating(findings, step.id))}
    if _RISKS.get(lists) not in ignore:
        heeded.add(lists)
    if narrows and step.unknown and not step.to_do and Risk.UNKNOWN_LISTS not in ignore:
        heeded.add(Tri.CANNOT_TELL)
    commands = list(step.commands)
    # No evidence shows it, and the confirmation needs a kept plan.
    if step.gate.by_hand and context.given.plan is not None:
        reason = option("--reason", step.gate.by_hand)
        commands.append(
            NamedCommand("confirm it", context.given.confirm("--confirm", str(step.id), *reason))
        )
    return replace(
        step,
        precondition_holds=worst([*answers, lists, own, step.precondition_holds]),
        exit_code=exit_code(*heeded),
        commands=tuple(one for one in commands if one.use.removeprefix(ACCEPT) not in ignore),
    )


def _exit_code(
    context: Context, path: PlannedPath, findings: tuple[Finding, ...], steps: tuple[Step, ...]
) -> int:
    """Return the plan's exit code: that of the next step, if there is one.

    Otherwise it follows from the open findings, a lack of any path, and missing members.
    """
    if path.next_step is not None:
        return next(step.exit_code for step in steps if step.id == path.next_step)
    # A group without a planned step is not done, whatever the user chose to ignore.
    planned = Tri.CANNOT_TELL if path.name is PathKind.NONE else Tri.YES
    short = path.name is PathKind.FINISHED and not context.classic and context.missing
    return exit_code(*map(answer_to_start, gating(findings)), planned, Tri.NO if short else Tri.YES)


def _summary(context: Context, path: PlannedPath, code: int, findings: Sequence[Finding]) -> str:
    """Return one sentence: the path, its progress, and whether the next step can start."""
    number = path.next_step
    if path.name is PathKind.ALREADY_INCREMENTAL:
        return _kip848(context)
    blocking = [
        finding
        for finding in gating(findings, number)
        if code != BLOCKED or finding.result is Tri.YES
    ]
    by = ", ".join(sorted({finding.rule for finding in blocking}))
    if path.name is PathKind.NONE:
        said, rule = next(iter(path.reasons), "the type of the group is not known."), ""
        why = next(iter((*blocking, *gating(findings, ignored=True))), None)
        if why is not None:
            said, rule = why.message, f" ({why.rule}{', ignored' if why.ignored else ''})"
        return f"no step can be planned: {said.rstrip('.')}{rule}"
    if number is None and code == SAFE:
        return "nothing left to do: every member is proven to be done"
    if number is None:
        return f"every present member is done, but: {by or 'some are missing'}"
    why_not = next(iter(path.reasons), "")
    count = len(context.unsure) or len(context.ahead)
    unknown = f"{count} member{'' if count == 1 else 's'} unknown"
    rows = (
        (code == SAFE, "can start"),
        (code == BLOCKED, f"is blocked: {by or why_not or Risk.TARGET_MISSING}"),
        (why_not and not by, f"cannot be proven yet: {why_not}"),
        (True, f"cannot be proven yet: {unknown if not by or Risk.UNKNOWN_LISTS in by else by}"),
    )
    return f"{path.name.label} · {path.progress} · step {number} {first_reason(rows)}"


def _kip848(context: Context) -> str:
    name = "KIP-1071" if context.group.type is GroupType.STREAMS else "KIP-848"
    classic = [f for f in context.members if f.member.protocol_type == "classic"]
    if classic and len(classic) == len(context.members):
        return (
            "nothing to do: every member runs COOPERATIVE; the group's type is consumer, and its "
            "members speak the classic protocol"
        )
    rest = f"; COOPERATIVE in the classic protocol: {context.named(classic)}" if classic else ""
    return f"nothing to do: the group runs {name}, which moves single partitions only{rest}"


def _not_checked(context: Context) -> tuple[str, ...]:
    # The coordinator's memory of lists matters only where members choose by lists.
    no_lists = context.group.type is GroupType.STREAMS
    by_lists = not (context.streams or no_lists or context.group.protocol_type == "connect")
    unprobed = context.snapshot.probe is None or context.snapshot.probe.refused
    sources = {item.source for facts in context.members for item in facts.member.assignors.evidence}
    rows = (
        (
            True,
            "members that are not in the group now (scaled to zero, standby sites, scheduled jobs)",
        ),
        (
            context.expected is None,
            "how many members the service should have: add --expect-members N",
        ),
        (
            True,
            "application code: rebalance listeners and callbacks, joins that rely on "
            "co-partitioning",
        ),
        (True, "your deployment: restart order, surge, automatic rollback, autoscaling"),
        (
            not any(facts.member.declared for facts in context.members),
            "the configuration of the next start: no --inventory was given",
        ),
        (
            by_lists and unprobed,
            "the lists that the coordinator remembers now: the group was not probed",
        ),
        (
            by_lists and context.reloaded is Tri.CANNOT_TELL,
            "whether the coordinator has reloaded since the last rebalance",
        ),
        (
            not (no_lists or (sources & {Source.REQUEST_LOG, Source.CLIENT_LOG})),
            "the members' lists in a log: no log was given, or none matched",
        ),
        *((True, version) for version in unchecked_versions(context)),
        (
            context.goal == EAGER,
            "whether anything relies on partitions being kept across rebalances",
        ),
    )
    return (*reasons(*rows), *context.snapshot.notes)
