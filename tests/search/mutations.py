"""Defects that rebal once had, put back one at a time: `MUTATIONS[number]()` for a `with`.

Each replaces one function of the planner or of a reader by what it was before the admission check,
in the numbers of that change's list; the eleventh is one that the search itself found, the twelfth
one that no release had.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from datetime import timedelta
from typing import Any
from unittest.mock import patch

from msgspec.structs import replace

from rebal.groups.evidence import absent, merge
from rebal.groups.evidence.observations import LogRead, Observation, Seen
from rebal.groups.model import GroupSnapshot, Knowledge, Member, Tri
from rebal.inspectors.logs.client import reader
from rebal.inspectors.logs.client.configs import Config, Lookup
from rebal.inspectors.logs.client.identity import Lives
from rebal.planner.admission import check, memory
from rebal.planner.advice import actions as advice
from rebal.planner.facts import Facts, GroupFacts
from rebal.planner.verification import plan_context, verify


@contextmanager
def reload_forgets_no_static_member() -> Iterator[None]:
    """1: a static member's list counts as known to the coordinator, whatever a load left of it."""
    joined_since = memory._joined_since

    def since(context: GroupFacts, facts: Facts) -> Tri:
        return Tri.YES if facts.static else joined_since(context, facts)

    with patch.object(memory, "_joined_since", since):
        yield


@contextmanager
def open_answers_are_recommended() -> Iterator[None]:
    """2: a restart is advised beside an undecided rule: cannot tell counts as yes."""
    admitted = check.admitted

    def answer(*given: Any) -> Any:
        found = admitted(*given)
        return replace(found, verdict=Tri.YES) if found.verdict is Tri.CANNOT_TELL else found

    with patch.object(advice, "admitted", answer):
        yield


@contextmanager
def plan_keeps_its_elected_assignor() -> Iterator[None]:
    """3: verify checks the plan's lists against the assignor that was elected when it was made."""
    context_of = plan_context.context_of

    def old(plan: Any, seen: GroupSnapshot, *more: Any) -> Any:
        group = replace(seen.group, assignor=plan.baseline.group.assignor or seen.group.assignor)
        return context_of(plan, replace(seen, group=group), *more)

    with patch.object(verify, "context_of", old), patch.object(verify, "changes_since", _nothing):
        yield


@contextmanager
def lists_are_tied_by_client_id() -> Iterator[None]:
    """4: a member has the newest configuration that its stream prints for its client id."""

    def of_member(self: Any, group_id: str, member_id: str, client_id: str) -> Config | Lookup:
        about = [each.config for each in self._about(group_id, client_id) if each.kind == "config"]
        return about[-1] if about else Lookup.NONE

    with patch.object(Lives, "of_member", of_member):
        yield


@contextmanager
def local_times_are_utc() -> Iterator[None]:
    """5: a time without a zone is read as UTC."""

    def placed(
        _: GroupSnapshot, seen: Iterable[Observation]
    ) -> tuple[list[Observation], dict[str, timedelta | None]]:
        return [
            replace(one, local=False) if isinstance(one, Seen | LogRead) else one for one in seen
        ], {}

    with patch.object(merge, "placed", placed):
        yield


@contextmanager
def rejections_are_resolved_by_client_id() -> Iterator[None]:
    """6: a rejected client is back as soon as any client of its name has joined."""

    def keys(one: Any) -> Iterator[object]:
        yield one.client_id

    with patch.object(absent, "_keys", keys):
        yield


@contextmanager
def guesses_are_proofs() -> Iterator[None]:
    """7: a client family that is only guessed decides."""
    facts_of = GroupFacts._facts

    def guessed(self: GroupFacts, *more: Any) -> Facts:
        made = facts_of(self, *more)
        return replace(made, family_proven=made.family is not None)

    with patch.object(GroupFacts, "_facts", guessed):
        yield


@contextmanager
def names_win_over_classes() -> Iterator[None]:
    """8: an assignor is Kafka's own if its name is, whatever class the log prints."""
    with patch.object(reader, "own_classes", _nothing):
        yield


@contextmanager
def every_log_is_the_groups_own() -> Iterator[None]:
    """9: logs of another broker, cluster or time count."""

    def own(
        _: GroupSnapshot, seen: Sequence[Observation]
    ) -> tuple[list[Observation], tuple[str, ...]]:
        return list(seen), ()

    with patch.object(merge, "own", own):
        yield


@contextmanager
def departed_members_are_forgotten() -> Iterator[None]:
    """10: nobody is told of members that the logs show and that have left."""
    with patch.object(merge, "departed", _nothing):
        yield


@contextmanager
def partitions_need_no_owner() -> Iterator[None]:
    """11: a plan is finished beside a partition without an owner."""
    with patch.object(verify, "without_owner", _nothing):
        yield


@contextmanager
def files_are_proofs() -> Iterator[None]:
    """12: the list in a member's configuration file counts as the one that it runs."""
    with_declared = merge._with_declared

    def proven(member: Member, declared: Any) -> Member:
        made = with_declared(member, declared)
        if made.assignors.knowledge is not Knowledge.DECLARED:
            return made
        return replace(made, assignors=replace(made.assignors, knowledge=Knowledge.EXACT))

    with patch.object(merge, "_with_declared", proven):
        yield


def _nothing(*_: Any) -> tuple[()]:
    return ()


MUTATIONS: dict[int, Callable[[], AbstractContextManager[None]]] = {
    1: reload_forgets_no_static_member,
    2: open_answers_are_recommended,
    3: plan_keeps_its_elected_assignor,
    4: lists_are_tied_by_client_id,
    5: local_times_are_utc,
    6: rejections_are_resolved_by_client_id,
    7: guesses_are_proofs,
    8: names_win_over_classes,
    9: every_log_is_the_groups_own,
    10: departed_members_are_forgotten,
    11: partitions_need_no_owner,
    12: files_are_proofs,
}
