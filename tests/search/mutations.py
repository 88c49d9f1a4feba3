"""Defects to be found, put in one at a time: `MUTATIONS[number]()` for a `with`.

The first eleven are what rebal once had, in the numbers of the admission check's list; each of the
others breaks another promise that the search holds rebal to. Each replaces one function or constant
of rebal, given the one that it replaces.
"""

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
from rebal.inspectors.logs.client.identity import ProgramClients
from rebal.inspectors.logs.client.lines import Lookup
from rebal.planner.admission import check, memory
from rebal.planner.advice import actions as advice
from rebal.planner.advice import steps
from rebal.planner.commands import Given
from rebal.planner.context import Context
from rebal.planner.facts import GroupFacts, owned
from rebal.planner.verification import (
    dangers,
    gates,
    journal,
    members,
    next_action,
    outsiders,
    verify,
)
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


def _without_after(restart_of: Any) -> Any:
    return lambda *given, **more: replace(restart_of(*given, **more), after=())


def _word_wins(answers: Any) -> Any:
    def said(self: Any, step: int, member_id: str) -> Any:
        return {} if (step, member_id) in self.words else answers(self, step, member_id)

    return said


def _no_danger(exit_code: Any) -> Any:
    return lambda answer: exit_code(Tri.CANNOT_TELL if answer is Tri.NO else answer)


def _counted(outsiders_of: Any) -> Any:
    return lambda *given, **more: outsiders_of(*given, **{**more, "estimated": False})


def _without(kind: OutsiderKind) -> Replacement:
    return lambda outsiders_of: (
        lambda *given, **more: tuple(
            one for one in outsiders_of(*given, **more) if one.kind is not kind
        )
    )


def _less_is_idle(_: Any) -> Any:
    def found(seen: GroupSnapshot) -> list[Member]:
        most = max(map(owned, seen.members), default=0)
        return [member for member in seen.members if owned(member) < most]

    return found


def _dated_only(rejections: Any) -> Any:
    def found(*given: Any, **more: Any) -> Any:
        return (each for each in rejections(*given, **more) if each.since is not None)

    return found


def _always(value: object) -> Replacement:
    return lambda _: lambda *__, **___: value


def _value(value: object) -> Replacement:
    return lambda _: value


def _defect(*places: tuple[Any, str, Replacement]) -> Callable[[], AbstractContextManager[None]]:

    @contextmanager
    def put() -> Iterator[None]:
        with ExitStack() as stack:
            for target, name, made in places:
                stack.enter_context(patch.object(target, name, made(getattr(target, name))))
            yield

    return put


MUTATIONS: dict[int, Callable[[], AbstractContextManager[None]]] = {
    # A static member's list counts as known to the coordinator, whatever a load left of it.
    1: _defect((memory, "_joined_since_load", _static_survives)),
    # A restart is advised beside an undecided rule.
    2: _defect((advice, "admitted", _cannot_tell_is_yes)),
    # The plan's lists are checked against the assignor that was elected when it was made.
    3: _defect(
        (verify, "PlanContext", _elected_as_planned), (next_action, "elected_since", _always(None))
    ),
    # A member has the newest configuration that its stream prints for its client id.
    4: _defect((ProgramClients, "of_member", _newest_of_client_id)),
    # A time without a zone is read as UTC.
    5: _defect((merge, "with_utc_times", _utc)),
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
    11: _defect((dangers, "without_owner", _always(()))),
    # The list in a member's configuration file counts as the one that it runs.
    12: _defect((merge, "_with_declared", _file_is_proof)),
    # Nobody is told to see that a restarted member has left.
    13: _defect((steps, "restart_of", _without_after)),
    # A gate holds below the expected number of members.
    14: _defect((Context, "missing", _value(property(lambda _: 0)))),
    # A danger leaves the exit code as it is.
    15: _defect((verify, "exit_code", _no_danger)),
    # A rejection without a time is history.
    16: _defect((outsiders, "_rejections", _dated_only)),
    # Rejected clients that the number leaves out are forgotten at the end.
    17: _defect((verify, "outsiders_of", _counted)),
    # No evidence is held against the operator's word.
    18: _defect(
        (members, "contrary_evidence", _always(None)), (gates.AnswerLedger, "answers", _word_wins)
    ),
    # Nobody is missing.
    19: _defect((verify, "outsiders_of", _without(OutsiderKind.MISSING))),
    # Rejected clients are no danger, and nobody starts them.
    20: _defect((verify, "outsiders_of", _without(OutsiderKind.REJECTED))),
    # A client that was rejected is never back.
    21: _defect(
        (check, "member_of", _always(None)),
        (journal, "_resolved", _value(lambda _, one, *__: one)),
        (absent, "_rejoined", _value(lambda one, _: one)),
    ),
    # The screen counts members that are not done.
    22: _defect(
        (screen, "_progress", _value(lambda now: f"{len(now.members)} of {now.expected} done"))
    ),
    # The screen leaves out what to watch while the advice is carried out.
    23: _defect((screen, "beside", _always(()))),
    # An instruction to stop has no command.
    24: _defect((Given, "verify", _always(""))),
    # The group is in its first step for ever.
    25: _defect((verify, "begun_step", _value(lambda plan, *_: plan.steps[0].id))),
    # A member that owns less than another one is idle at once.
    26: _defect((dangers, "IDLE", _value(timedelta(0))), (dangers, "unfairly_idle", _less_is_idle)),
    # A restart or two are a storm.
    27: _defect((dangers, "_SPARE", _value(-8)), (dangers, "_FOR_EACH", _value(1))),
    # The group has room for everybody.
    28: _defect((check, "_too_many", _always(None))),
    # The screen leaves out who is rejected.
    29: _defect((screen, "urgent_view", _always([]))),
}
