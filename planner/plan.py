"""The plan and its parts: paths, steps, gates, findings, costs, advice, and the baseline snapshot.

`Plan` is the record that the paths return and that the views and `--out` print; `Finding` is the
record that a rule returns. `dump_plan` and `load_plan` write and read the document `rebal.plan/1`,
which has every field of these records.

`Risk` names the rules that a user accepts with `--ignore RULE --reason TEXT`. It is the only table
of rule ids outside planner/rules: planner/advice needs to know which risks are accepted, and the
rules in turn need the advice for their fixes.
"""

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from typing import Final, Self

from msgspec.structs import replace

from rebal.groups.errors import DocumentError
from rebal.groups.model import Evidence, GroupSnapshot, RebalanceProtocol, Record, Tri
from rebal.groups.snapshot.documents import Format, dumps, loads
from rebal.planner.commands import EAGER, Given, NamedCommand


class Action(StrEnum):
    """The action that one piece of advice asks of the operator.

    restart: stop the first of the members cleanly, then start it (all threads of one process
    together); start: start members that are not in the group; temporary: start one more member, and
    stop it when the group is Stable; cut-over: stop all members before one starts; wait: wait and
    look again; evidence: add the evidence that decides an open answer; confirm: check by hand a
    fact that no evidence shows; replan: make a new plan; stop: restart nothing; none: nothing is
    left to do.
    """

    RESTART = "restart"
    START = "start"
    TEMPORARY = "temporary"
    CUT_OVER = "cut-over"
    WAIT = "wait"
    EVIDENCE = "evidence"
    CONFIRM = "confirm"
    REPLAN = "replan"
    STOP = "stop"
    NONE = "none"

    @property
    def joins(self) -> bool:
        """Return whether a member joins the group, so that the admission check decides."""
        return self in (Action.RESTART, Action.START, Action.TEMPORARY, Action.CUT_OVER)


class PathKind(StrEnum):
    """The path of a plan, as its document names it; a module of planner/paths makes each."""

    NONE = "none"
    FINISHED = "finished"
    ALREADY_INCREMENTAL = "already_incremental"
    TWO_BOUNCES = "two_bounces"
    ONE_BOUNCE = "one_bounce"
    MIXED_FAMILIES = "mixed_families"
    CUT_OVER = "cut_over"
    START = "start"
    STREAMS_ONE_BOUNCE = "streams_one_bounce"
    STREAMS_TWO_BOUNCES = "streams_two_bounces"
    STREAMS_DOWN = "streams_down"
    STREAMS_BACK = "streams_back"
    STREAMS_START = "streams_start"
    CONNECT = "connect"
    CONNECT_DOWN = "connect_down"
    CONNECT_START = "connect_start"
    KIP848_ONLINE = "kip848_online"
    KIP848_OFFLINE = "kip848_offline"
    KIP848_BACK = "kip848_back"
    KIP848_BACK_OFFLINE = "kip848_back_offline"
    KIP1071 = "kip1071"
    KIP1071_BACK = "kip1071_back"
    LIBRARY = "library"
    LIBRARY_STOP = "library_stop"

    @property
    def stops_the_group(self) -> bool:
        """Return whether the path stops every running member before one starts."""
        return self in _STOPS

    @property
    def reads_lists(self) -> bool:
        """Return whether a step of the path needs every member's assignor list."""
        return self in (
            PathKind.TWO_BOUNCES,
            PathKind.ONE_BOUNCE,
            PathKind.MIXED_FAMILIES,
            PathKind.LIBRARY,
        )

    @property
    def label(self) -> str:
        """Return the path in a plan's summary: `two bounces`, `to KIP-848, online`."""
        return _TITLES.get(self, "")


_TITLES = {
    PathKind.TWO_BOUNCES: "two bounces",
    PathKind.ONE_BOUNCE: "one bounce",
    PathKind.MIXED_FAMILIES: "two bounces, with a stop of some clients in between",
    PathKind.CUT_OVER: "full cut-over",
    PathKind.START: "back to what the members ran",
    PathKind.STREAMS_ONE_BOUNCE: "Streams, one bounce",
    PathKind.STREAMS_TWO_BOUNCES: "Streams, two bounces",
    PathKind.STREAMS_DOWN: "Streams, down by upgrade.from",
    PathKind.STREAMS_BACK: "Streams, back to the old version",
    PathKind.STREAMS_START: "back to what the members ran",
    PathKind.CONNECT: "Connect workers, one bounce",
    PathKind.CONNECT_DOWN: "Connect workers, all stopped once",
    PathKind.CONNECT_START: "back to what the members ran",
    PathKind.KIP848_ONLINE: "to KIP-848, online",
    PathKind.KIP848_OFFLINE: "to KIP-848, over a stop",
    PathKind.KIP848_BACK: "back from KIP-848, online",
    PathKind.KIP848_BACK_OFFLINE: "back from KIP-848, over a stop",
    PathKind.KIP1071: "to the streams protocol, over a stop",
    PathKind.KIP1071_BACK: "back from the streams protocol, over a stop",
    PathKind.LIBRARY: "another client library, one by one",
    PathKind.LIBRARY_STOP: "another client library, over a stop",
}


SCHEMA: Final = "rebal.plan/1"


class Severity(StrEnum):
    """Weight of a finding: block forbids a step, warn informs, ask puts a question to the user."""

    BLOCK = "block"
    WARN = "warn"
    ASK = "ask"


class Finding(Record, frozen=True, kw_only=True, omit_defaults=False):
    """A rule's result for one group. `result` is yes (it applies) or cannot tell, never no.

    `members` are member ids. `before_step` is the number of the step that must not start while the
    finding holds (None: it concerns the group as it runs, or every step). `fix` is paste-ready
    text, and `commands` are the commands that `fix` mentions. `ignored` is the user's reason for
    ignoring the rule. `urgent`: a client is kept out of the group now; such a finding comes first
    on every screen, whatever its step.
    """

    rule: str
    severity: Severity
    result: Tri = Tri.YES
    message: str
    members: tuple[str, ...] = ()
    evidence: tuple[Evidence, ...] = ()
    fix: str = ""
    commands: tuple[NamedCommand, ...] = ()
    reference: str = ""
    before_step: int | None = None
    ignored: str | None = None
    urgent: bool = False


class Aim(StrEnum):
    """The change that a step makes; planner/verification/gates.py proves it for each member.

    Consumers: widen: every list gets the target; narrow: the old assignors leave every list;
    refresh: the group completes a rebalance, so that a coordinator that was reloaded knows every
    list; consumer: every member uses KIP-848; classic: every member returns to the classic
    protocol, with the target alone in its list; client: every member runs another client library.
    Connect: connect-incremental: every worker offers an incremental protocol; connect-eager: every
    worker offers only `default`.

    Kafka Streams: streams-protocol and streams-classic: every instance uses that protocol;
    streams-cooperative and streams-eager: every instance runs that rebalance protocol; streams-new:
    every version is 2.4 or later; streams-bridge: below 4.0; streams-old: below 2.4;
    streams-latest: 4.0 or later.
    """

    WIDEN = "widen"
    NARROW = "narrow"
    REFRESH = "refresh"
    CONSUMER = "consumer"
    CLASSIC = "classic"
    STREAMS_PROTOCOL = "streams-protocol"
    STREAMS_CLASSIC = "streams-classic"
    STREAMS_NEW = "streams-new"
    STREAMS_COOPERATIVE = "streams-cooperative"
    STREAMS_BRIDGE = "streams-bridge"
    STREAMS_EAGER = "streams-eager"
    STREAMS_OLD = "streams-old"
    STREAMS_LATEST = "streams-latest"
    CONNECT_INCREMENTAL = "connect-incremental"
    CONNECT_EAGER = "connect-eager"
    CLIENT = "client"

    @property
    def leaves_old(self) -> bool:
        """Return whether the step drops the old assignors from the lists of its members."""
        return self in (Aim.NARROW, Aim.CLIENT)


class Gate(Record, frozen=True, kw_only=True, omit_defaults=False):
    """The condition on the live group that ends a step, and the command that checks it.

    `shows` is what `command` must show for the gate to hold. `needs` are sentences on the evidence
    for it and on the metrics to watch. `holds` is whether it held when the plan was made. `aim` is
    the change that the step makes. `by_hand` says what the operator must check if evidence cannot
    show all of it (else empty).
    """

    command: str
    shows: str
    needs: tuple[str, ...] = ()
    holds: Tri = Tri.CANNOT_TELL
    aim: Aim
    by_hand: str = ""


class Setting(Record, frozen=True, kw_only=True, omit_defaults=False):
    """Paste-ready configuration text for one client family, and its format."""

    family: str
    format: str
    text: str


class Figures(Record, frozen=True, kw_only=True, omit_defaults=False):
    """The figures that a step's cost and each of its paces have in common; None: not computed.

    `rebalances` counts the generations of a classic group and the epochs of a KIP-848 group.
    `partitions_moved` counts changes of owner. `longest_seconds` is the longest expected time that
    one partition is not consumed. The `worst_` figures assume that every wait lasts as long as the
    members' timeouts allow. `about` is True if the figures are estimates, because not every restart
    was rehearsed.
    """

    rebalances: int
    partitions_moved: int
    worst_seconds: float | None = None
    worst_partition_seconds: float | None = None
    longest_seconds: float | None = None
    about: bool = False


class Pace(Figures, frozen=True, kw_only=True, omit_defaults=False):
    """The cost of a step if `batch` members restart at a time.

    `seconds` is wall time, `partition_seconds` the sum over all partitions of how long each is not
    consumed, both as expected. `kinds_left_out` is the number of kinds of restart that were not
    rehearsed.
    """

    name: str
    batch: int
    seconds: float
    partition_seconds: float
    kinds_left_out: int = 0


class Cost(Figures, frozen=True, kw_only=True, omit_defaults=False):
    """The predicted cost of a step if one member restarts at a time (a cut-over: all at once).

    `partitions_stopped` is the sum over all rebalances of the partitions that stop in each.
    `seconds` and `partition_seconds` are as in `Pace` (None: not computed). `paces` gives the cost
    for one member at a time, for the batch that the user asked for, and for all at once; in a
    cut-over the pace is that of the starts. `unit` is what the figures count: `partition`, or
    `task` for Connect workers (a connector counts as one task).
    """

    partitions_stopped: int
    text: str = ""
    seconds: float | None = None
    partition_seconds: float | None = None
    paces: tuple[Pace, ...] = ()
    unit: str = "partition"


class StepKind(StrEnum):
    """Form of a step: rolling (one member at a time) or cut-over (all stop before one starts)."""

    ROLLING = "rolling"
    CUT_OVER = "cut-over"


class Verdict(StrEnum):
    """Verdict of a plan: its next step is ready, blocked or unproven, or no step is left (done)."""

    READY = "ready"
    BLOCKED = "blocked"
    UNPROVEN = "unproven"
    DONE = "done"


class Step(Record, frozen=True, kw_only=True, omit_defaults=False):
    """One rolling restart or cut-over of a plan; `id` counts from 1.

    `exit_code` is the plan's exit code if this step is next. `precondition` is the condition before
    it, or the part of it that does not hold. `order` are the instructions that keep the members
    safe, a line each; `why` are the reasons for the form of the step. `target_list` is the assignor
    list that the step gives to the members, in order. `to_do`, `done` and `unknown` (not verified)
    are member ids. `left_out` are the client families that the step leaves unchanged. `commands`
    are the commands that `order` and `rollback` mention.
    """

    id: int
    title: str
    kind: StepKind
    precondition: str
    precondition_holds: Tri
    config: tuple[Setting, ...] = ()
    target_list: tuple[str, ...] = ()
    why: tuple[str, ...] = ()
    order: tuple[str, ...] = ()
    to_do: tuple[str, ...] = ()
    done: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    gate: Gate
    rollback: str
    commands: tuple[NamedCommand, ...] = ()
    cost: Cost | None = None
    exit_code: int = 0

    @property
    def aim(self) -> Aim:
        """Return the change that the step makes."""
        return self.gate.aim

    @property
    def brings(self) -> str:
        """Return the change as a word: `list`, `configuration`, `version and configuration`."""
        if self.target_list or not self.config:
            return "list"
        versions = (Aim.STREAMS_NEW, Aim.STREAMS_BRIDGE, Aim.STREAMS_OLD, Aim.STREAMS_LATEST)
        return "version and configuration" if self.aim in versions else "configuration"


class ValidWhile(Record, frozen=True, kw_only=True, omit_defaults=False):
    """Facts that must still hold when the action is carried out; None: not read.

    A join whose list holds the elected assignor is admitted after a coordinator reload too. For any
    other join the advice is void once the group's offsets partition has a new `leader_epoch`.
    """

    generation: int | None = None
    assignor: str | None = None
    leader_epoch: int | None = None


class Advice(Record, frozen=True, kw_only=True, omit_defaults=False):
    """One action for the operator, whether the coordinator admits it, and why.

    `members` are member ids, `names` their names in texts; members that are not in the group have
    names only. `assignors` is the list to start with, in order (empty: the member keeps its current
    list, or `change` names another setting that the step changes). `begins`: this action is the
    first of `step`, the next step. `instead_of` is an earlier remedy that was carried out without
    effect. `also` are clauses added to the text.

    `verdict` is the coordinator's answer to the joins of the action: only "yes" recommends it.
    `error` is Kafka's name of the rejection if it is "no". `evidence_needed` would decide a "cannot
    tell", the cheapest first. `risks` are dangers that the admission check does not cover.
    `valid_while` is None if nothing joins. `after` are the checks during the action, a sentence
    each. `command` is the command to run after it. `commands` are alternatives, each under the
    condition that its use names.
    """

    action: Action = Action.NONE
    members: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    assignors: tuple[str, ...] = ()
    change: str = ""
    begins: bool = False
    instead_of: Action | None = None
    also: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    verdict: Tri = Tri.YES
    error: str | None = None
    reason: str = ""
    evidence_needed: tuple[str, ...] = ()
    command: str = ""
    commands: tuple[NamedCommand, ...] = ()
    step: int | None = None
    risks: tuple[str, ...] = ()
    valid_while: ValidWhile | None = None
    text: str = ""

    @property
    def recommended(self) -> bool:
        """Return whether the advice is to restart or start a member whose join is admitted."""
        return self.action.joins and self.verdict is Tri.YES

    @property
    def changes_nothing(self) -> bool:
        """Return whether the join changes no list and no setting, and only causes a rebalance."""
        return self.action is Action.TEMPORARY or (
            self.action is Action.RESTART and not (self.assignors or self.change)
        )


class Accepted(Record, frozen=True, kw_only=True, omit_defaults=False):
    """Risks and facts that the user states without proof, kept for later looks.

    `families` is client id (or `*`) → client family, `ignore` is rule id → reason. `departed` are
    the names of clients that left for good: instance ids, client ids or member ids. `members` is
    the number of members of the whole service (None: not given). The lists of --assume are in the
    baseline, at their members.
    """

    families: Mapping[str, str] = {}
    ignore: Mapping[str, str] = {}
    departed: tuple[str, ...] = ()
    members: int | None = None


class Plan(Record, frozen=True, kw_only=True, omit_defaults=False, rename={"runs": "from"}):
    """The steps of one group to its goal. `next_step` is None if no step is left or can be named.

    `runs` (in documents: `from`) is the group's rebalance protocol when the plan was made, `to` the
    one to reach, `target` the assignor to end on (`only_target`: every other assignor is removed,
    eager or cooperative). `path` is the kind of path that the steps take. `advice` is the first
    action of the next step. `instead` is another goal that one online roll-out reaches now
    (KIP-848: `consumer`). `withheld` are restarts that the plan needs and that are not admitted
    yet.

    `summary` is one sentence. `exit_code` is that of the next step (0 ready or done, 3 blocked, 4
    not verified yet). `assumptions` are sentences about facts that the user stated and no evidence
    proves; `accepted` has the same facts as data, for `rebal verify`. `given` are the command-line
    options that every printed command repeats.
    """

    group_id: str
    runs: RebalanceProtocol
    assignor: str | None
    to: str
    target: str
    only_target: bool = False
    path: PathKind
    verdict: Verdict
    summary: str
    next_step: int | None = None
    steps: tuple[Step, ...] = ()
    instead: str = ""
    advice: Advice = Advice()
    withheld: tuple[Advice, ...] = ()
    findings: tuple[Finding, ...] = ()
    not_checked: tuple[str, ...] = ()
    assumptions: tuple[str, ...] = ()
    accepted: Accepted = Accepted()
    expected_members: int | None = None
    given: Given = Given()
    made_at: datetime
    baseline: GroupSnapshot
    exit_code: int = 0

    def step(self, number: int | None) -> Step | None:
        """Return the step with this number; None if there is none."""
        return next((step for step in self.steps if step.id == number), None)

    def restarts_members_of(self, finding: Finding) -> bool:
        """Return whether the next step restarts every member that the finding names."""
        step = self.step(self.next_step)
        return (
            step is not None
            and bool(finding.members)
            and {*finding.members} <= {*step.to_do, *step.unknown}
        )

    def holds_later(self, finding: Finding) -> bool:
        """Return whether a finding blocks only a step that comes after the next one."""
        if finding.severity is not Severity.BLOCK or finding.result is not Tri.YES:
            return False
        before, now = finding.before_step or 0, self.next_step
        return now is not None and now < before <= len(self.steps)

    @property
    def evidence(self) -> tuple[str, ...]:
        """Return the command-line options that add the evidence for the plan's gates."""
        return self.given.proving(
            self.baseline, by_lists=self.to not in ("KIP-848", "KIP-1071", "classic")
        )

    def kept_as(self, file: str) -> Self:
        """Return the plan with commands that name `file`, in which it is saved."""
        if self.given == Given():
            return self
        given = replace(self.given, plan=file)

        def renamed(found: tuple[NamedCommand, ...]) -> tuple[NamedCommand, ...]:
            return tuple(one.renamed(self.given.plan, file) for one in found)

        return replace(
            self,
            given=given,
            findings=tuple(replace(f, commands=renamed(f.commands)) for f in self.findings),
            steps=tuple(
                replace(
                    step,
                    gate=replace(step.gate, command=given.verify()),
                    commands=renamed(step.commands),
                )
                for step in self.steps
            ),
        )

    def after(self, step: Step) -> Step | None:
        """Return the step that follows `step`; None if it is the last."""
        return next((later for later in self.steps if later.id > step.id), None)


class KeptPlan(Plan, frozen=True, kw_only=True):
    """A plan as its file has it: `checksum` covers every other field."""

    checksum: str


def dump_plan(plan: Plan, form: Format = "yaml") -> str:
    """Return the plan as a `rebal.plan/1` document with checksum; equal plans give equal texts."""
    return dumps(SCHEMA, plan, form, sealed=True)


def load_plan(text: str, form: Format, name: str = "plan") -> Plan:
    """Return the plan in the document `text`; `name` names it in error messages.

    Raises:
        DocumentError: an unreadable document (see `loads` in groups/snapshot/documents.py), a
            changed field, steps not numbered 1, 2, …, or a next step that does not exist.
    """
    plan = loads(text, form, name, SCHEMA, Plan, sealed=True)
    numbers = [step.id for step in plan.steps]
    if numbers != list(range(1, len(numbers) + 1)):
        raise DocumentError(f"{name}: steps: numbered {numbers}, expected 1, 2, … in order.")
    if plan.next_step is not None and plan.step(plan.next_step) is None:
        raise DocumentError(f"{name}: next_step: there is no step {plan.next_step}.")
    return plan


# GroupCoordinatorConfig. Before 4.0 the policy's default was another one.
_DEFAULTS: Final = {
    "group.max.size": str(2**31 - 1),
    "group.consumer.max.size": str(2**31 - 1),
    "group.min.session.timeout.ms": "6000",
    "group.max.session.timeout.ms": "1800000",
}


class Risk(StrEnum):
    """A risk that the user can accept; its value is the id of the rule that reports it.

    TARGET_MISSING: a list lacks the target. UNKNOWN_LISTS: lists are not known. FORGOTTEN_LISTS:
    the coordinator may have forgotten lists in a reload. UNREAD_SETTINGS: the brokers' group
    settings were not read, and may not be Kafka's defaults. NOT_RANGE: the brokers assign by
    another assignor than range, which the plan asks for. OLD_CLIENT: a client may be too old for
    KIP-848. STOP, STOP_FOR_PROTOCOL, STOP_FOR_CLIENT: the whole group is stopped, for a list, to
    change its protocol, or to replace its client library. OWN_COOPERATIVE, OWN_EAGER: a custom
    assignor class is trusted to support COOPERATIVE, or EAGER.
    """

    TARGET_MISSING = "RB102"
    UNKNOWN_LISTS = "RB901"
    FORGOTTEN_LISTS = "RB113"
    UNREAD_SETTINGS = "RB908"
    NOT_RANGE = "RB408"
    OLD_CLIENT = "RB412"
    STOP = "RB104"
    STOP_FOR_PROTOCOL = "RB413"
    STOP_FOR_CLIENT = "RB123"
    OWN_COOPERATIVE = "RB111"
    OWN_EAGER = "RB112"


def own_class_risk(goal: str) -> Risk:
    """Return the risk of trusting a custom class's name in a plan with this goal."""
    return Risk.OWN_EAGER if goal == EAGER else Risk.OWN_COOPERATIVE


_STOPS: Final = {
    PathKind.CUT_OVER: Risk.STOP,
    PathKind.CONNECT_DOWN: Risk.STOP_FOR_PROTOCOL,
    PathKind.KIP848_OFFLINE: Risk.STOP_FOR_PROTOCOL,
    PathKind.KIP848_BACK_OFFLINE: Risk.STOP_FOR_PROTOCOL,
    PathKind.KIP1071: Risk.STOP_FOR_PROTOCOL,
    PathKind.KIP1071_BACK: Risk.STOP_FOR_PROTOCOL,
    PathKind.LIBRARY_STOP: Risk.STOP_FOR_CLIENT,
}


def stop_risk(path: PathKind) -> Risk | None:
    """Return the risk of a path on which the whole group stops; None for any other path."""
    return _STOPS.get(path)


def with_default_settings(snapshot: GroupSnapshot) -> GroupSnapshot:
    """Return the snapshot, with Kafka's default settings if no setting of the brokers was read."""
    cluster = snapshot.cluster
    if cluster.settings:
        return snapshot
    settings = dict(_DEFAULTS)
    if (cluster.version or "").partition(".")[0] not in ("", "0", "1", "2", "3"):
        settings["group.consumer.migration.policy"] = "bidirectional"
    return replace(snapshot, cluster=replace(cluster, settings=settings))
