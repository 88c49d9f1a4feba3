"""Defects to be found, put in one at a time: `MUTATIONS[number]()` for a `with`.

The first eleven are what rebal once had, in the numbers of the admission check's list; the others
are of the same kinds: in the admission, in the verification, in the readers and on the screen. Each
replaces one function or constant of rebal, given the one that it replaces.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from datetime import timedelta
from typing import Any
from unittest.mock import patch

from msgspec.structs import replace

from rebal.cli.render import verification as screen
from rebal.groups.evidence import absent, merge
from rebal.groups.evidence.observations import LogRead, Observation, Seen
from rebal.groups.model import GroupSnapshot, Knowledge, Member, Tri
from rebal.inspectors.logs.client import reader
from rebal.inspectors.logs.client.configs import Lookup
from rebal.inspectors.logs.client.identity import Lives
from rebal.inspectors.logs.requests import reader as requests
from rebal.inspectors.logs.requests.lines import Outcome
from rebal.planner.admission import check, memory, rejected
from rebal.planner.advice import actions as advice
from rebal.planner.advice import steps
from rebal.planner.commands import Given
from rebal.planner.context import Context
from rebal.planner.facts import GroupFacts, owned
from rebal.planner.paths import choose
from rebal.planner.plan import Aim, Verdict
from rebal.planner.verification import (
    dangers,
    gates,
    journal,
    lag,
    members,
    next_action,
    outsiders,
    verify,
)
from rebal.planner.verification.gates import Proof
from rebal.planner.verification.outsiders import OutsiderKind

Replacement = Callable[[Any], Any]


def _static_survives(joined_since: Any) -> Any:
    return lambda context, facts: Tri.YES if facts.static else joined_since(context, facts)


def _cannot_tell_is_yes(admitted: Any) -> Any:
    def answer(*given: Any) -> Any:
        found = admitted(*given)
        return replace(found, verdict=Tri.YES) if found.verdict is Tri.CANNOT_TELL else found

    return answer


def _elected_as_planned(plan_context: Any) -> Any:
    def old(plan: Any, seen: GroupSnapshot, *more: Any) -> Any:
        group = replace(seen.group, assignor=plan.baseline.group.assignor or seen.group.assignor)
        return plan_context(plan, replace(seen, group=group), *more)

    return old


def _newest_of_client_id(_: Any) -> Any:
    def of_member(self: Any, group_id: str, member_id: str, client_id: str) -> Any:
        about = [each.config for each in self._about(group_id, client_id) if each.kind == "config"]
        return about[-1] if about else Lookup.NONE

    return of_member


def _utc(_: Any) -> Any:
    def placed(_: GroupSnapshot, seen: Sequence[Observation]) -> tuple[list[Observation], Any]:
        return [
            replace(one, local=False) if isinstance(one, Seen | LogRead) else one for one in seen
        ], dict[str, timedelta | None]()

    return placed


def _guess_is_proof(facts_of: Any) -> Any:
    def guessed(self: GroupFacts, *more: Any) -> Any:
        made = facts_of(self, *more)
        return replace(made, family_proven=made.family is not None)

    return guessed


def _file_is_proof(with_declared: Any) -> Any:
    def proven(member: Member, declared: Any) -> Member:
        made: Member = with_declared(member, declared)
        if made.assignors.knowledge is not Knowledge.DECLARED:
            return made
        return replace(made, assignors=replace(made.assignors, knowledge=Knowledge.EXACT))

    return proven


def _unanswered_is_yes(answers: Any) -> Any:
    return lambda snapshot: [
        replace(one, supported=Tri.YES) if one.supported is Tri.CANNOT_TELL else one
        for one in answers(snapshot)
    ]


def _all_joined_again(after: Any) -> Any:
    return lambda memory_, event: replace(after(memory_, event), settled=True)


def _without_after(restart_of: Any) -> Any:
    return lambda *given, **more: replace(restart_of(*given, **more), after=())


def _target_is_enough(proof_of: Any) -> Any:
    def held(context: Any, step: Any, facts: Any) -> Any:
        if step.aim is Aim.NARROW and context.supports(facts, context.target) is Tri.YES:
            return Proof(done=Tri.YES, why="holds the target")
        return proof_of(context, step, facts)

    return held


def _no_rejection(observe: Any) -> Any:
    def read(request: Any, *more: Any) -> Any:
        return () if request.outcome is Outcome.REJECTED else observe(request, *more)

    return read


def _word_wins(answers: Any) -> Any:
    def said(self: Any, step: int, member_id: str) -> Any:
        return {} if (step, member_id) in self.words else answers(self, step, member_id)

    return said


def _no_danger(exit_code: Any) -> Any:
    return lambda answer: exit_code(Tri.CANNOT_TELL if answer is Tri.NO else answer)


def _nobody_rejected(next_action: Any) -> Any:
    def chosen(look: Any) -> Any:
        left = [one for one in look.outsiders if one.kind is not OutsiderKind.REJECTED]
        return next_action(dataclasses.replace(look, outsiders=left))

    return chosen


def _counted(outsiders_of: Any) -> Any:
    return lambda *given, **more: outsiders_of(*given, **{**more, "estimated": False})


def _without(kind: OutsiderKind) -> Replacement:
    return lambda outsiders_of: (
        lambda *given, **more: tuple(
            one for one in outsiders_of(*given, **more) if one.kind is not kind
        )
    )


def _all_leave(restart: Any) -> Any:
    def events(memory_: Any, member_id: str, *given: Any, **more: Any) -> Any:
        made = restart(memory_, member_id, *given, **more)
        return made if more.get("killed") else (check.LeaveEvent(member_id=member_id), *made[-1:])

    return events


def _elected_is_enough(by_lists: Any) -> Any:
    """One assignor in common with any member admits a join."""

    def answer(memory_: Any, join: Any) -> Any:
        found = by_lists(memory_, join)
        names = {name for entry in memory_.entries for held in entry.lists for name in held.names}
        common = names & {*(join.assignors or ())}
        return replace(found, verdict=Tri.YES) if common else found

    return answer


def _less_is_idle(_: Any) -> Any:
    def found(seen: GroupSnapshot) -> list[Member]:
        most = max(map(owned, seen.members), default=0)
        return [member for member in seen.members if owned(member) < most]

    return found


def _done_without_steps(verdict_of: Any) -> Any:
    return lambda code, *, done: Verdict.DONE if done else verdict_of(code, done=done)


def _dated_only(rejections: Any) -> Any:
    def found(*given: Any, **more: Any) -> Any:
        return (each for each in rejections(*given, **more) if each.since is not None)

    return found


def _always(value: object) -> Replacement:
    return lambda _: lambda *__, **___: value


def _value(value: object) -> Replacement:
    return lambda _: value


def _defect(*places: tuple[Any, str, Replacement]) -> Callable[[], AbstractContextManager[None]]:
    """Return the context in which each of these names is replaced."""

    @contextmanager
    def put() -> Iterator[None]:
        with ExitStack() as stack:
            for target, name, made in places:
                stack.enter_context(patch.object(target, name, made(getattr(target, name))))
            yield

    return put


MUTATIONS: dict[int, Callable[[], AbstractContextManager[None]]] = {
    # A static member's list counts as known to the coordinator, whatever a load left of it.
    1: _defect((memory, "_joined_since", _static_survives)),
    # A restart is advised beside an undecided rule.
    2: _defect((advice, "admitted", _cannot_tell_is_yes)),
    # The plan's lists are checked against the assignor that was elected when it was made.
    3: _defect(
        (verify, "PlanContext", _elected_as_planned), (next_action, "elected_since", _always(None))
    ),
    # A member has the newest configuration that its stream prints for its client id.
    4: _defect((Lives, "of_member", _newest_of_client_id)),
    # A time without a zone is read as UTC.
    5: _defect((merge, "placed", _utc)),
    # A rejected client is back as soon as any client of its name has joined.
    6: _defect((absent, "_keys", _value(lambda one: iter((one.client_id,))))),
    # A client family that is only guessed decides.
    7: _defect((GroupFacts, "_facts", _guess_is_proof)),
    # An assignor is Kafka's own if its name is, whatever class the log prints.
    8: _defect((reader, "own_classes", _always(()))),
    # Logs of another broker, cluster or time count.
    9: _defect((merge, "own", _value(lambda _, seen: (list(seen), ())))),
    # Nobody is told of members that the logs show and that have left.
    10: _defect((merge, "departed", _always(()))),
    # A plan is finished beside a partition without an owner.
    11: _defect((lag, "without_owner", _always(()))),
    # The list in a member's configuration file counts as the one that it runs.
    12: _defect((merge, "_with_declared", _file_is_proof)),
    # The answers of a probe that was void count.
    13: _defect(
        (memory, "_answers", _value(lambda seen: list(seen.probe.answers) if seen.probe else []))
    ),
    # A probe without an answer says yes.
    14: _defect((memory, "_answers", _unanswered_is_yes)),
    # Once a member has left, all others are taken to have joined again.
    15: _defect((check, "after", _all_joined_again)),
    # Nobody is told to see that a restarted member has left.
    16: _defect((steps, "restart_of", _without_after)),
    # A gate holds below the expected number of members.
    17: _defect((Context, "missing", _value(property(lambda _: 0)))),
    # A danger leaves the exit code as it is.
    18: _defect((verify, "exit_code", _no_danger)),
    # A plan that a rule keeps from having a step is done.
    19: _defect((choose, "verdict_of", _done_without_steps)),
    # A rejection without a time is history.
    20: _defect((outsiders, "_rejections", _dated_only)),
    # Rejected clients that the number leaves out are forgotten at the end.
    21: _defect((verify, "outsiders_of", _counted)),
    # No evidence is held against the operator's word.
    22: _defect(
        (members, "contrary_evidence", _always(None)),
        (gates.AnswerLedger, "answers", _word_wins),
    ),
    # Nobody is missing.
    23: _defect((verify, "outsiders_of", _without(OutsiderKind.MISSING))),
    # Rejected clients are no danger, and nobody starts them.
    24: _defect((verify, "outsiders_of", _without(OutsiderKind.REJECTED))),
    # A client that was rejected is never back.
    25: _defect(
        (rejected, "member_of", _always(None)),
        (journal, "_resolved", _value(lambda _, one, *__: one)),
        (absent, "_rejoined", _value(lambda one, _: one)),
    ),
    # Every client takes a list of eager and cooperative assignors.
    26: _defect((Context, "may_take_mixed", _always(Tri.YES))),
    # A static member that restarts is taken for a dynamic one: it leaves first.
    27: _defect((advice, "restart", _all_leave)),
    # Rejections in the request log are not read.
    28: _defect((requests, "_observe", _no_rejection)),
    # The screen counts members that are not done.
    29: _defect(
        (screen, "_progress", _value(lambda now: f"{len(now.members)} of {now.expected} done"))
    ),
    # The screen leaves out what to watch while the advice is carried out.
    30: _defect((screen, "beside", _always(()))),
    # An instruction to stop has no command.
    31: _defect((Given, "verify", _always(""))),
    # The group is in its first step for ever.
    32: _defect((verify, "begun_step", _value(lambda plan, *_: plan.steps[0].id))),
    # A member that holds the target as well has done the step that drops the old assignor.
    33: _defect((gates, "proof_of", _target_is_enough)),
    # A list that contradicts today's elected assignor is advised all the same.
    34: _defect((check, "_by_lists", _elected_is_enough)),
    # A member that owns less than another one is idle at once.
    35: _defect((dangers, "IDLE", _value(timedelta(0))), (dangers, "unfairly_idle", _less_is_idle)),
    # A restart or two are a storm.
    36: _defect((dangers, "_SPARE", _value(-8)), (dangers, "_FOR_EACH", _value(1))),
    # No coordinator was ever loaded.
    37: _defect((GroupFacts, "reloaded", _value(property(lambda _: Tri.NO)))),
    # The group has room for everybody.
    38: _defect((check, "_too_many", _always(None))),
    # The screen leaves out who is rejected.
    39: _defect((screen, "urgent_view", _always([]))),
    # Rejected clients are named, and the step goes on before they are started.
    40: _defect((verify, "next_action", _nobody_rejected)),
}
