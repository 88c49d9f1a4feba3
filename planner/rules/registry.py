"""Rules: their declaration, their traits, and the evaluation of all rules on one group.

A rule is a function `(Context) -> Findings` under `@rule(...)` in any module of planner/rules; all
names that most rules need are imported from here. Its docstring is its documentation: what it
means, why it matters, how to find out, how to fix it. Rules that differ only in data are declared
in version_faults.yaml. The function leaves `rule`, `severity` and `reference` of its findings to
the decorator, and the groups and goals that it is for to `applies`. Ids never change meaning, and
no other package names one: plans and `rebal verify` ask for a rule's `Trait`, its `Risk`, or the
paths that deal with it.
"""

import inspect
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from enum import StrEnum
from functools import cache
from importlib import import_module
from pkgutil import walk_packages
from types import MappingProxyType
from typing import Final, TypeAlias

import msgspec

from rebal.groups.model import Evidence, GroupSnapshot, Tri
from rebal.planner.commands import NamedCommand
from rebal.planner.context import Context, Facts, ids
from rebal.planner.kinds import PathKind
from rebal.planner.plan import Finding, Severity
from rebal.planner.risks import Risk

__all__ = [
    "Context",
    "DuplicateRuleError",
    "Facts",
    "Finding",
    "Findings",
    "PathKind",
    "Risk",
    "Rule",
    "Severity",
    "Trait",
    "Tri",
    "evaluate",
    "found",
    "has",
    "register",
    "rule",
    "rules",
]

Findings: TypeAlias = Iterator[Finding]
Check = Callable[[Context], Iterable[Finding]]
Scope = Callable[[Context], bool]
_ID: Final = re.compile(r"RB\d{3}")


class Trait(StrEnum):
    """A property of a rule, beside its severity, that decides how plans and `rebal verify` treat
    its findings.

    next start: it concerns the next start of a member, so it counts after the last step too.
    passing: every roll-out passes through this state: verify does not report it as new. pending:
    evidence is missing: a gate stays open, and nothing is in danger. every look: verify reports it
    each time, whether the plan had it or not. history: verify decides it from all its looks, not
    from the last one. admission: the admission check answers it for each restart. other path:
    where it is found after the plan was made, a new plan takes another path. client unknown: it
    asks which client a member uses, and so which assignor lists the member accepts. fact: it names
    a member, a file or a time: screens show it before questions to everybody. stated: `--ignore`
    is the operator's answer to its question, void once evidence says yes. review: it concerns the
    code, the client's version or a setting: a review of the change shows it. missing members: it
    reports them; a path that starts from an Empty group expects none.
    """

    NEXT_START = "next start"
    PASSING = "passing"
    PENDING = "pending"
    EVERY_LOOK = "every look"
    HISTORY = "history"
    ADMISSION = "admission"
    OTHER_PATH = "other path"
    CLIENT_UNKNOWN = "client unknown"
    FACT = "fact"
    STATED = "stated"
    REVIEW = "review"
    MISSING_MEMBERS = "missing members"


class Rule(msgspec.Struct, frozen=True, kw_only=True):
    """One hazard: its id, severity and documentation, its condition, and how findings count.

    The condition is asked where all of `applies` hold (planner/rules/scope.py has those to share).
    `answered_by` are the paths that exist because of this hazard: their plans leave its findings
    out. `handled_by` are the paths whose steps deal with it: their plans report it, and verify does
    not repeat it. A finding for which `stays` returns True is always reported.
    """

    id: str
    severity: Severity
    title: str
    reference: str
    doc: str
    condition: Check
    applies: tuple[Scope, ...] = ()
    traits: frozenset[Trait] = frozenset()
    accepts: Risk | None = None
    answered_by: frozenset[PathKind] = frozenset()
    handled_by: frozenset[PathKind] = frozenset()
    stays: Callable[[Context, Finding], bool] | None = None

    def check(self, context: Context) -> tuple[Finding, ...]:
        """Return the findings: with the result yes where the rule fires, cannot tell where it
        cannot decide.
        """
        if not all(holds(context) for holds in self.applies):
            return ()
        return tuple(
            msgspec.structs.replace(
                finding, rule=self.id, severity=self.severity, reference=self.reference
            )
            for finding in self.condition(context)
        )

    def dealt_with(
        self, path: PathKind, context: Context, finding: Finding, *, verifying: bool = False
    ) -> bool:
        """Return whether the steps of `path` deal with this finding, so that it is not reported."""
        paths = self.answered_by | self.handled_by if verifying else self.answered_by
        return path in paths and not (self.stays is not None and self.stays(context, finding))


class DuplicateRuleError(Exception):
    """A second rule with an id that a rule already has."""


_registered: Final[dict[str, Rule]] = {}


def found(
    message: str,
    *,
    members: Iterable[Facts] = (),
    result: Tri = Tri.YES,
    evidence: Iterable[Evidence] = (),
    fix: str = "",
    commands: Iterable[NamedCommand] = (),
    before_step: int | None = None,
    urgent: bool = False,
) -> Finding:
    """Return a condition's finding; `Rule.check` adds the rule's id, severity and reference."""
    return Finding(
        rule="",
        severity=Severity.WARN,
        result=result,
        message=message,
        members=ids(members),
        evidence=tuple(evidence),
        fix=fix,
        commands=tuple(commands),
        before_step=before_step,
        urgent=urgent,
    )


def register(made: Rule) -> None:
    """Add a rule to those that `rules` returns.

    Raises:
        DuplicateRuleError: the id is taken.
        ValueError: the id is malformed, or the rule has no documentation.
    """
    if not _ID.fullmatch(made.id) or not made.doc:
        raise ValueError(f"{made.id}: a rule needs an id such as RB102 and a docstring")
    if made.id in _registered:
        raise DuplicateRuleError(f"{made.id} is already: {_registered[made.id].title}")
    _registered[made.id] = made


def rule(
    id_: str,
    severity: Severity,
    title: str,
    *,
    reference: str,
    applies: tuple[Scope, ...] = (),
    traits: Collection[Trait] = (),
    accepts: Risk | None = None,
    answered_by: Collection[PathKind] = (),
    handled_by: Collection[PathKind] = (),
    stays: Callable[[Context, Finding], bool] | None = None,
) -> Callable[[Check], Check]:
    """Register the decorated condition as the rule `id_`; its docstring documents the rule.

    Raises:
        DuplicateRuleError: the id is taken.
        ValueError: the id is malformed, or the function has no docstring.
    """

    def decorate(condition: Check) -> Check:
        register(
            Rule(
                id=id_,
                severity=severity,
                title=title,
                reference=reference,
                doc=inspect.getdoc(condition) or "",
                condition=condition,
                applies=applies,
                traits=frozenset(traits),
                accepts=accepts,
                answered_by=frozenset(answered_by),
                handled_by=frozenset(handled_by),
                stays=stays,
            )
        )
        return condition

    return decorate


@cache
def rules() -> Mapping[str, Rule]:
    """Return all rules by id, in the order of their ids."""
    package = import_module("rebal.planner.rules")
    for module in walk_packages(package.__path__, f"{package.__name__}."):
        import_module(module.name)
    return MappingProxyType(dict(sorted(_registered.items())))


def has(finding: Finding, trait: Trait) -> bool:
    """Return whether the finding's rule declares `trait`."""
    return trait in rules()[finding.rule].traits


def evaluate(
    group: GroupSnapshot | Context, *, ignore: Mapping[str, str] | None = None
) -> tuple[Finding, ...]:
    """Return the findings of all rules on `group`, urgent and grave ones first.

    For a snapshot (`rebal inspect`) only rules about the group as it runs apply; for a `Context`
    with `planning`, rules about the plan's steps apply too. `ignore` is rule id → reason: findings
    of these rules are marked, come last, and change no verdict.
    """
    context = group if isinstance(group, Context) else Context(group)
    made = [finding for known in rules().values() for finding in known.check(context)]
    if ignore:
        made = [
            msgspec.structs.replace(finding, ignored=ignore[finding.rule])
            if finding.rule in ignore
            and not (finding.result is Tri.YES and has(finding, Trait.STATED))
            else finding
            for finding in made
        ]
    return tuple(sorted(made, key=_rank))


def _rank(finding: Finding) -> tuple[bool, bool, int, bool, str]:
    return (
        finding.ignored is not None,
        not finding.urgent,
        list(Severity).index(finding.severity),
        finding.result is not Tri.YES,
        finding.rule,
    )
