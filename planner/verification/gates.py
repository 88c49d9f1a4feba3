"""Proof that a member has completed a step: from one look (`GATES`), and from all (`AnswerLedger`).

`GATES` has one function for each `Aim`; to add a kind of step, add an `Aim` and its function. Each
function judges one member by the evidence of one look. `AnswerLedger` adds the proofs of earlier
looks about the same member id.

Kafka Streams: the version comes from the bytes that the member sends (groups/streams.py) or from a
log. The rebalance protocol comes from the member's log, from the partitions that it kept or revoked
when it rejoined, or from its version. Connect: the list comes from a join in the request log, or
from the elected protocol, which every worker offers (KIP-415). Where no evidence can show the step,
the operator must check the member (`Proof.by_hand`).
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime
from types import MappingProxyType
from typing import Final

from rebal.groups.clients import family, proven_family
from rebal.groups.model import (
    GroupState,
    GroupType,
    Knowledge,
    RebalanceProtocol,
    Record,
    Tri,
)
from rebal.groups.protocol import disproved
from rebal.planner.context import (
    COOPERATIVE,
    INCREMENTAL,
    Context,
    Facts,
    above_eager,
    below_cooperative,
    excluded,
    offers,
)
from rebal.planner.plan import Aim, Plan, Step, StepKind
from rebal.planner.verdict import opposite
from rebal.planner.verification.journal import JournalEntry, PlanContext, list_is_assumed, looks_of


class Proof(Record, frozen=True, kw_only=True):
    """One answer on whether a member has completed a step, and its reason.

    `by_hand` (only with `cannot tell`) is True if evidence may never show it, so that the operator
    may check the member and confirm it with `rebal verify --confirm`.
    """

    done: Tri
    why: str = ""
    by_hand: bool = False


def _widen(context: Context, _: Step, facts: Facts) -> Proof:
    target = context.target
    done = context.supports(facts, target)
    says = {
        Tri.YES: f"holds {target}",
        Tri.NO: f"its list has no {target}",
        Tri.CANNOT_TELL: "no evidence shows its list",
    }
    return Proof(done=done, why=_list(facts) or says[done])


def _narrow(context: Context, _: Step, facts: Facts) -> Proof:
    target, told = context.target, context.runs(facts)
    supports, old = context.supports(facts, target), context.holds_old(facts)
    runs_cooperative = told.value is RebalanceProtocol.COOPERATIVE
    kept = "kept its partitions when it rejoined" if facts.member.kept_partitions else ""
    votes = family(facts.family).follows_vote
    rows = (
        (supports is Tri.NO, Tri.NO, _list(facts) or f"its list has no {target}"),
        (
            old is Tri.YES and target in disproved(facts.member),
            Tri.NO,
            f"runs EAGER: {told.why}",
        ),
        (
            old is Tri.YES,
            Tri.NO,
            _list(facts) or "still holds an assignor that the step drops",
        ),
        (
            supports is Tri.YES and old is Tri.NO,
            Tri.YES,
            _list(facts)
            or kept
            or f"no list of {facts.family or 'its client'} holds eager and cooperative assignors "
            "together",
        ),
        (
            context.own_class(facts, target),
            Tri.CANNOT_TELL,
            f"the class behind {target} is not Kafka's own, so its protocol is not proven",
        ),
        (
            runs_cooperative and context.goal == COOPERATIVE,
            Tri.CANNOT_TELL,
            f"runs COOPERATIVE ({told.why}), but "
            + (
                f"{facts.family}{' follows the vote and' * votes} may still hold another assignor"
                if facts.family_proven
                else "its client is not proven: one that follows the vote (franz-go) may still "
                "hold an eager assignor"
            ),
        ),
        (True, Tri.CANNOT_TELL, ""),
    )
    return next(Proof(done=done, why=why) for holds, done, why in rows if holds)


def _group_protocol(context: Context, step: Step, facts: Facts) -> Proof:
    """Return the proof of a step that moves the group to another group protocol.

    In a KIP-848 group the member's own protocol decides, since classic members may be in it. In any
    other group the group's type decides, because all members have it.
    """
    brings = {Aim.CONSUMER: GroupType.CONSUMER, Aim.STREAMS_PROTOCOL: GroupType.STREAMS}
    kind, wanted = context.group.type, brings.get(step.aim, GroupType.CLASSIC)
    protocol = facts.member.protocol_type if kind is GroupType.CONSUMER else str(kind)
    if protocol not in ("classic", "consumer", "streams"):
        return Proof(done=Tri.CANNOT_TELL)
    return Proof(
        done=Tri.YES if protocol == wanted else Tri.NO, why=f"speaks the {protocol} protocol"
    )


def _classic(context: Context, step: Step, facts: Facts) -> Proof:
    """Return the proof of a step that moves a member back to the classic protocol.

    While one member speaks KIP-848 the group stays a KIP-848 group, and its classic members show no
    elected assignor. In a cut-over, no member is done until the group's type has changed.
    """
    if context.group.type is GroupType.CONSUMER and facts.member.protocol_type == "consumer":
        return _group_protocol(context, step, facts)
    if context.group.type is GroupType.CONSUMER and step.kind is StepKind.CUT_OVER:
        return Proof(done=Tri.NO, why="is in a KIP-848 group, which stays one until it is Empty")
    return _narrow(context, step, facts)


def _client(context: Context, step: Step, facts: Facts) -> Proof:
    """Return the proof of a step that replaces the client library.

    The member must run the new library with the target in its list.
    """
    done, new = context.replaced(facts), context.client
    if done is Tri.CANNOT_TELL:
        return Proof(done=done, why=f"no evidence shows whether it runs {new}", by_hand=True)
    if done is Tri.YES and context.supports(facts, context.target) is not Tri.YES:
        return _widen(context, step, facts)
    by_word = "" if proven_family(facts.member.software) else " (--assume-family)"
    runs = f"runs {facts.family}{by_word}" if facts.family_proven else f"its bytes are not {new}'s"
    return Proof(done=done, why=runs)


def _list(facts: Facts) -> str:
    """Return the member's exact list as text; empty if it is unknown or only declared."""
    known = facts.member.assignors
    return f"[{', '.join(known.list)}]" if known.knowledge is Knowledge.EXACT else ""


def _version(context: Context, step: Step, facts: Facts) -> Proof:
    """Return the proof of a Streams step that brings another version.

    The step's aim says which: 2.4 or later, below 2.4, below 4.0, or 4.0 or later.
    """
    by_2_4 = step.aim in (Aim.STREAMS_NEW, Aim.STREAMS_OLD)
    below = below_cooperative(context, facts) if by_2_4 else opposite(above_eager(context, facts))
    done = below if step.aim in (Aim.STREAMS_OLD, Aim.STREAMS_BRIDGE) else opposite(below)
    software, ran = facts.member.software, facts.member.ran
    shown = (software.version or software.version_range) if software is not None else None
    if shown is None and ran is not None:
        shown = f"of a version that runs {ran.value}"
    if done is Tri.CANNOT_TELL:
        return Proof(
            done=done,
            why=f"its version is not known exactly ({shown or 'no evidence'}): add --client-log or "
            "--request-log",
            by_hand=True,
        )
    return Proof(done=done, why=f"runs Kafka Streams {shown}")


def _protocol(context: Context, step: Step, facts: Facts) -> Proof:
    """Return the proof of a Streams step that brings COOPERATIVE or EAGER.

    It is cannot tell while a member's version cannot run that protocol, because the step before is
    then not done.
    """
    up, told = step.aim is Aim.STREAMS_COOPERATIVE, context.runs(facts)
    if told.value is RebalanceProtocol.CANNOT_TELL:
        return Proof(
            done=Tri.CANNOT_TELL,
            why="its rebalance protocol is not known: add --client-log of its start, or "
            "--request-log across the next rebalance",
            by_hand=True,
        )
    if told.value is not (RebalanceProtocol.COOPERATIVE if up else RebalanceProtocol.EAGER):
        return Proof(done=Tri.NO, why=told.why)
    unable = excluded(context, step.aim)[Tri.YES]
    if unable:
        return Proof(
            done=Tri.CANNOT_TELL,
            why=f"{told.why}, but {context.named(unable)} cannot run it: the step before is not "
            "done",
        )
    return Proof(done=Tri.YES, why=told.why)


def _worker(context: Context, step: Step, facts: Facts) -> Proof:
    offers_it = _offers_incremental(context, facts)
    done = offers_it if step.aim is Aim.CONNECT_INCREMENTAL else opposite(offers_it)
    known, elected = facts.member.assignors.list, context.group.assignor
    if done is Tri.CANNOT_TELL:
        all_offer = f" ({elected} is elected, which every worker offers)" if elected else ""
        return Proof(
            done=done,
            why=f"its protocols are not known{all_offer}: add its --client-log, or --request-log "
            "across a rebalance",
            by_hand=True,
        )
    return Proof(
        done=done, why=f"offers [{', '.join(known)}]" if known else f"{elected} is elected"
    )


def _offers_incremental(context: Context, facts: Facts) -> Tri:
    """Return whether this Connect worker offers an incremental protocol.

    Workers elect the newest protocol that all of them offer. If `default` is elected and all other
    workers are known to offer more, this worker offers only `default`, so the answer is no. That
    includes a worker that is alone in its group.
    """
    answer = offers(context, facts, INCREMENTAL)
    elected = context.group.assignor if context.group.state is GroupState.STABLE else None
    if answer is not Tri.CANNOT_TELL or not elected:
        return answer
    told = all(
        each is facts or offers(context, each, INCREMENTAL) is Tri.YES for each in context.members
    )
    return Tri.NO if told else answer


GATES: Final[Mapping[Aim, Callable[[Context, Step, Facts], Proof]]] = MappingProxyType(
    {
        Aim.WIDEN: _widen,
        Aim.NARROW: _narrow,
        Aim.REFRESH: lambda *_: Proof(done=Tri.CANNOT_TELL, why="changes nothing in this step"),
        Aim.CONSUMER: _group_protocol,
        Aim.CLASSIC: _classic,
        Aim.STREAMS_PROTOCOL: _group_protocol,
        Aim.STREAMS_CLASSIC: _group_protocol,
        Aim.STREAMS_NEW: _version,
        Aim.STREAMS_COOPERATIVE: _protocol,
        Aim.STREAMS_BRIDGE: _version,
        Aim.STREAMS_EAGER: _protocol,
        Aim.STREAMS_OLD: _version,
        Aim.STREAMS_LATEST: _version,
        Aim.CONNECT_INCREMENTAL: _worker,
        Aim.CONNECT_EAGER: _worker,
        Aim.CLIENT: _client,
    }
)


class AnswerLedger:
    """The proofs on each member and step, from the plan's baseline, the journal and this look.

    `answers(step, id)` is answer → source. `now[step, id]` is the proof of this look.
    `before[step]` are the member ids that were there before the step began. `opened` are the steps
    whose beginning a look shows. `kept` is member id → the look that shows that the member kept
    partitions when it joined. `first_seen` is member id → the time of the first look with it, which
    is this look for a new id. `fell_back` are the Connect workers that ran while an incremental
    protocol was elected, and later while `default` was. `words[step, id]` is the statement of the
    user or operator, unless an entry refutes it, including the entries in `later`, which are newer
    than this look.
    """

    def __init__(
        self,
        plan: Plan,
        entries: Sequence[JournalEntry],
        context: Context,
        later: Sequence[JournalEntry] = (),
    ) -> None:
        self._plan = plan
        self._said: dict[tuple[int, str], dict[Tri, str]] = defaultdict(dict)
        self.before: dict[int, set[str]] = defaultdict(set)
        self.opened: set[int] = set()
        self.words: dict[tuple[int, str], str] = {}
        self.kept: dict[str, str] = {}
        self.first_seen: dict[str, datetime] = {}
        self.fell_back: set[str] = set()
        self._incremental: set[str] = set()
        baseline = plan.baseline
        if not (baseline.redacted or any(map(list_is_assumed, baseline.members))):
            self._add(PlanContext(plan, baseline), "the plan's baseline")
        for look in looks_of(plan, entries):
            self._recall(look)
        refuted = {
            (number, member.member_id)
            for entry in later
            for member in entry.members
            for number in (*member.contradicted, *member.lacks)
        }
        self.words = {key: said for key, said in self.words.items() if key not in refuted}
        self.first_seen = (
            dict.fromkeys(context.by_id, context.snapshot.captured_at) | self.first_seen
        )
        self._elected(context.group.assignor, context.by_id)
        self.now = self._add(context, "")

    def _elected(self, assignor: str | None, ids: Collection[str]) -> None:
        if assignor in INCREMENTAL:
            self._incremental.update(ids)
        elif assignor:
            self.fell_back |= self._incremental.intersection(ids)

    def _recall(self, entry: JournalEntry) -> None:
        where = f"the journal, {entry.at:%b %d %H:%MZ}"
        self._elected(entry.assignor, entry.ids)
        for member in entry.members:
            self.first_seen.setdefault(member.member_id, entry.at)
            for answer, steps in ((Tri.YES, member.made), (Tri.NO, member.lacks)):
                for number in steps:
                    self._said[number, member.member_id][answer] = where
            for number in member.contradicted:
                self.words.pop((number, member.member_id), None)
        self.kept |= {member.member_id: where for member in entry.members if member.kept}
        for step in self._plan.steps:
            if step.id > entry.step:
                self.before[step.id] |= entry.ids
        if entry.gate is Tri.YES:
            self.opened.add(entry.step + 1)
        if entry.confirmed is not None:
            word = entry.confirmed
            runs = f"[{', '.join(word.list)}], " if word.list else ""
            said = (
                f"confirmed by {word.by or 'the operator'}, {entry.at:%b %d %H:%MZ}: "
                f"{runs}{word.reason}"
            )
            self.words |= {(word.step, member_id): said for member_id in word.members}

    def _add(self, context: Context, where: str) -> Mapping[tuple[int, str], Proof]:
        found: dict[tuple[int, str], Proof] = {}
        for step in self._plan.steps:
            for facts in context.members:
                key = step.id, facts.member.member_id
                found[key] = proof = GATES[step.aim](context, step, facts)
                if proof.done is not Tri.CANNOT_TELL:
                    self._said[key][proof.done] = where
                    if list_is_assumed(facts.member):
                        self.words[key] = "assumed by the user"
        return found

    def answers(self, step: int, member_id: str) -> Mapping[Tri, str]:
        """Return answer → its source, for a step and a member id (empty source: this look)."""
        return self._said.get((step, member_id), {})

    def came_finished(self, step: Step, facts: Facts) -> bool:
        """Return whether this member may have started with its final list before `step` began.

        The final list comes early to the clients that the rolling steps leave out: an earlier
        cut-over step stops them together and starts them with it. True if this member's client is
        one of these, or is not known, and its member id is new since such a cut-over began.
        """
        aside = {family for each in self._plan.steps for family in each.left_out}
        stops = [s.id for s in self._plan.steps if s.kind is StepKind.CUT_OVER and s.id < step.id]
        return (facts.family is None or facts.family in aside) and any(
            facts.member.member_id not in self.before[number] for number in stops
        )
