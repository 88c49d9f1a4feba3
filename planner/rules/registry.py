"""What a rule is, and the one place that knows them all.

A rule is a function `(Context) -> iterable of Finding` under `@rule(...)`, alone in a module named
by its id (`rb102.py`). Its docstring is its documentation: what it means, why, how to find out,
how to fix it. The function leaves `rule`, `severity` and `reference` of its findings to the
decorator. Ids never change meaning.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from importlib import import_module
from pkgutil import walk_packages
from types import MappingProxyType
from typing import Final, Protocol

import msgspec

from rebal.groups.model import Evidence, Tri
from rebal.planner.context import Context, Facts, ids
from rebal.planner.plan import Finding, Severity

Check = Callable[[Context], Iterable[Finding]]
_ID: Final = re.compile(r"RB\d{3}")
_found: Final[dict[str, Rule]] = {}


class Rule(Protocol):
    """One hazard: its id, how bad it is, its documentation, and its condition on the evidence."""

    @property
    def id(self) -> str:
        """`RB102`; never reused, never another meaning."""

    @property
    def severity(self) -> Severity:
        """How bad it is where it fires."""

    @property
    def title(self) -> str:
        """One line."""

    @property
    def reference(self) -> str:
        """Where the condition is written down."""

    @property
    def doc(self) -> str:
        """What `rebal explain` prints."""

    def check(self, context: Context) -> tuple[Finding, ...]:
        """Findings where the rule fires (yes) or cannot tell; nothing where it does not fire."""


class _Rule(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    severity: Severity
    title: str
    reference: str
    doc: str
    condition: Check

    def check(self, context: Context) -> tuple[Finding, ...]:
        return tuple(
            msgspec.structs.replace(
                finding, rule=self.id, severity=self.severity, reference=self.reference
            )
            for finding in self.condition(context)
        )


def found(
    message: str,
    *,
    members: Iterable[Facts] = (),
    result: Tri = Tri.YES,
    evidence: Iterable[Evidence] = (),
    fix: str = "",
    before_step: int | None = None,
) -> Finding:
    """What a condition says; its rule's id, severity and reference are added by `Rule.check`."""
    return Finding(
        rule="",
        severity=Severity.WARN,
        result=result,
        message=message,
        members=ids(members),
        evidence=tuple(evidence),
        fix=fix,
        before_step=before_step,
    )


class DuplicateRuleError(Exception):
    """Two rules want the same id."""


def rule(id_: str, severity: Severity, title: str, *, reference: str) -> Callable[[Check], Check]:
    """Register the decorated condition as the rule `id_`.

    Raises:
        DuplicateRuleError: the id is taken.
        ValueError: not an id, or the function has no docstring.
    """

    def register(condition: Check) -> Check:
        doc = inspect.getdoc(condition)
        if not _ID.fullmatch(id_) or not doc:
            raise ValueError(f"{id_}: a rule needs an id such as RB102 and a docstring")
        if id_ in _found:
            raise DuplicateRuleError(f"{id_} is already: {_found[id_].title}")
        _found[id_] = _Rule(
            id=id_,
            severity=severity,
            title=title,
            reference=reference,
            doc=doc,
            condition=condition,
        )
        return condition

    return register


def rules() -> Mapping[str, Rule]:
    """All rules by id, in the order of their ids."""
    _load_all()
    return MappingProxyType(dict(sorted(_found.items())))


@cache
def _load_all() -> None:
    package = import_module("rebal.planner.rules")
    for module in walk_packages(package.__path__, f"{package.__name__}."):
        if re.search(r"\.rb\d{3}$", module.name):
            import_module(module.name)
