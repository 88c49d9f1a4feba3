"""Declaration of rules, their evaluation on one group, and helpers that many rules share.

A rule is a function `(Context) -> Findings` under `@rule(...)` in any module of planner/rules; all
names that most rules need are imported from here. Its docstring is its documentation: what it
means, why it matters, how to find out, how to fix it. Rules that differ only in data are declared
in version_faults.yaml. The decorator sets `rule`, `severity` and `reference` of the findings; its
argument `applies` limits the rule to some groups and goals. Ids never change meaning, and no other
package names a rule by its id: plans and `rebal verify` ask for its `Trait`, its `Risk`, or the
paths that deal with it.
"""

import inspect
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from functools import cache
from importlib import import_module
from operator import attrgetter
from pkgutil import walk_packages
from types import MappingProxyType
from typing import Final, TypeAlias

import msgspec

from rebal.groups.clients import consumer_libraries, family, version_tuple
from rebal.groups.commands import options
from rebal.groups.evidence.fingerprint import excluded_by_bytes
from rebal.groups.model import Evidence, GroupSnapshot, GroupType, Tri
from rebal.planner.clients import assume_family_value, cooperative, refuses_mixed
from rebal.planner.commands import AGREED, ANSWER, IF, NamedCommand
from rebal.planner.context import CONSUMER, COOPERATIVE, EAGER, Context, Facts, ids
from rebal.planner.kip848 import Answer
from rebal.planner.plan import Finding, PathKind, Risk, Severity

__all__ = [
    "Context",
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


class Trait(StrEnum):
    """A property of a rule that decides how plans and `rebal verify` treat its findings.

    next start: concerns a member's next start, so it counts after the last step too. passing: every
    roll-out passes through this state, so verify does not report it as new. pending: evidence is
    missing; a gate stays open, but nothing is in danger. every look: verify reports it at each
    reading of the group, even if the plan had it. history: verify decides it from all its readings,
    not only the last. admission: the admission check answers it for each restart. other path: if it
    is found after the plan was made, a new plan takes another path. client unknown: asks which
    client a member uses, and so which assignor lists it accepts. fact: names a member, a file or a
    time; screens show it before general questions. stated: `--ignore` is the operator's answer to
    its question, void once evidence says yes. review: concerns code, the client's version or a
    setting; `rebal check` shows it. missing members: reports missing members; left out for a path
    from an Empty group.
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
    """One rule on a hazard: id, severity, documentation, condition, and how its findings count.

    The condition is evaluated if all of `applies` hold (shared scopes are defined in this module).
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
        """Return the rule's findings: yes if the rule fires, cannot tell if it cannot decide."""
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
        """Return whether the steps of `path` deal with this finding, so that it is not reported.

        With `verifying` (by `rebal verify`) the paths in `handled_by` count too.
        """
        paths = self.answered_by | self.handled_by if verifying else self.answered_by
        return path in paths and not (self.stays is not None and self.stays(context, finding))


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
    """Return a finding of a rule; `Rule.check` adds the rule's id, severity and reference."""
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
        ValueError: the id is malformed or taken, or the rule has no documentation.
    """
    if not re.fullmatch(r"RB\d{3}", made.id) or not made.doc:
        raise ValueError(f"{made.id}: a rule needs an id such as RB102 and a docstring")
    if made.id in _registered:
        raise ValueError(f"{made.id} is already: {_registered[made.id].title}")
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
        ValueError: the id is malformed or taken, or the function has no docstring.
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
    """Return the findings of all rules on `group`, urgent and severe ones first.

    For a snapshot (`rebal inspect`) only rules about the group as it runs apply; for a `Context`
    with `planning`, rules about the plan's steps apply too. `ignore` is rule id → reason: findings
    of these rules are marked, come last, and change no verdict. A proven finding of a rule with the
    trait `stated` cannot be ignored.
    """
    context = group if isinstance(group, Context) else Context(group)
    ignored = ignore or {}
    made = [
        msgspec.structs.replace(finding, ignored=ignored[finding.rule])
        if finding.rule in ignored
        and not (finding.result is Tri.YES and has(finding, Trait.STATED))
        else finding
        for known in rules().values()
        for finding in known.check(context)
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


# Most families that are named if the bytes exclude none.
_ANSWERS: Final = 4
# Whether a plan is being made, for a classic group of consumers with assignor lists of their own,
# for a Stable group with members, for a Kafka Streams program.
planning: Final[Scope] = attrgetter("planning")
classic: Final[Scope] = attrgetter("classic")
stable: Final[Scope] = attrgetter("stable")
streams_program: Final[Scope] = attrgetter("streams")


def with_lists(context: Context) -> bool:
    """Return whether the group is classic, or a plan moves its consumers to KIP-848."""
    return context.classic or to_consumer(context)


def goal_needs_lists(context: Context) -> bool:
    """Return whether the group is classic and the goal is COOPERATIVE or EAGER."""
    return context.classic and context.goal in (COOPERATIVE, EAGER)


def upgrade(context: Context) -> bool:
    """Return whether the goal is COOPERATIVE."""
    return context.goal == COOPERATIVE


def goal_is_not_eager(context: Context) -> bool:
    """Return whether the goal is not EAGER."""
    return context.goal != EAGER


def unfinished(context: Context) -> bool:
    """Return whether the plan's steps still change a member."""
    return bool(ahead(context))


def connect_workers(context: Context) -> bool:
    """Return whether this is a group of Connect workers."""
    return context.group.protocol_type == "connect"


def to_cooperative(context: Context) -> bool:
    """Return whether a plan to COOPERATIVE is being made that has steps left.

    A rule with this scope reports nothing for a group as it runs.
    """
    return upgrade(context) and _has_steps(context)


def to_or_from_cooperative(context: Context) -> bool:
    """Return whether a plan to or from a COOPERATIVE assignor is being made that has steps left."""
    return _has_steps(context) and (
        upgrade(context)
        or (context.goal == EAGER and cooperative(context.elected or "") is Tri.YES)
    )


def _has_steps(context: Context) -> bool:
    return context.planning and context.classic and len(context.settled) < len(context.members)


def to_consumer(context: Context) -> bool:
    """Return whether a plan is being made to move consumers to KIP-848 (not Streams or Connect)."""
    return (
        context.planning
        and context.goal == CONSUMER
        and context.group.type in (GroupType.CLASSIC, GroupType.UNKNOWN, GroupType.CONSUMER)
        and context.group.protocol_type in ("consumer", None)
        and not context.streams
    )


def to_or_from_consumer(context: Context) -> bool:
    """Return whether a plan is being made that moves between the classic protocol and KIP-848.

    For a KIP-848 group the goal `cooperative` is no move, because the group is incremental already.
    """
    return to_consumer(context) or (
        context.planning
        and context.group.type is GroupType.CONSUMER
        and (context.goal == EAGER or (context.only_target and context.goal != CONSUMER))
    )


def still_classic(context: Context) -> tuple[Facts, ...]:
    """Return the members on the classic protocol; in a KIP-848 group those known to use it."""
    if context.group.type is not GroupType.CONSUMER:
        return context.members
    return tuple(f for f in context.members if f.member.protocol_type == "classic")


def ahead(context: Context) -> tuple[Facts, ...]:
    """Return the members that the plan's steps still change."""
    return still_classic(context) if context.goal == CONSUMER else context.ahead


def narrowing_step(context: Context) -> int | None:
    """Return the number of the step that drops the old assignor; None if no step drops one."""
    return None if context.goal == CONSUMER else context.narrow_step


def unless_allowed(
    answer: Answer, fix: str, commands: Iterable[NamedCommand] = ()
) -> Iterator[Finding]:
    """Yield a finding with `fix` if the condition `answer` forbids the path or is not known."""
    if answer.allows is not Tri.YES:
        yield found(
            f"{answer.why}.",
            result=Tri.YES if answer.allows is Tri.NO else Tri.CANNOT_TELL,
            members=answer.members,
            fix=fix,
            commands=commands,
        )


def switching_on(context: Context, feature: str) -> Iterator[NamedCommand]:
    """Yield the commands that show the finalised features and upgrade `feature` to level 1."""
    tool = "kafka-features.sh"
    yield NamedCommand("show the features", context.given.kafka(tool, "describe"))
    yield NamedCommand(
        "upgrade the feature", context.given.kafka(tool, "upgrade", "--feature", f"{feature}=1")
    )


def read_brokers(context: Context) -> str:
    """Return the fix for facts that only the brokers report: how to read them."""
    if context.asked:
        return "Allow DESCRIBE_CONFIGS on the cluster and take the snapshot again."
    return "Name a broker with -b HOST:PORT. Reading its settings needs DESCRIBE_CONFIGS."


def what_decides(context: Context, found: Sequence[Facts]) -> str:
    """Return the fix that asks for these members' clients.

    It says which client was inferred from which bytes, which evidence proves it, and that a command
    records the answer.
    """
    told = {
        f"{' or '.join(facts.guesses) or 'no client'} ({said[0].detail})"
        for facts in found
        if (software := facts.member.software) is not None
        if (said := software.evidence) and said[0].detail
    }
    inferred = f"Inferred: {'; '.join(sorted(told))}. " if told else ""
    others = list(_left(context, found))[_ANSWERS:]
    more = f" ({', '.join(others)} can stand in it too)" if others else ""
    return (
        f"{inferred}To be sure, add --client-log of one start, --request-log (ApiVersions "
        "names the client) or its image with --inventory. Or answer: run the command of the "
        f"right client{more}."
    )


def family_commands(context: Context, found: Sequence[Facts]) -> tuple[NamedCommand, ...]:
    """Return a command for each client family that these members may run, which states that family.

    A command also accepts the risks that a plan for this family needs: client version and unread
    settings in a move to KIP-848, the agreed interruption if all members must stop.
    """
    unproven = [facts for facts in context.members if not facts.family_proven]
    made = []
    for key, of_it in list(_left(context, found).items())[:_ANSWERS]:
        stops = refuses_mixed(key) and len(of_it) == len(context.members)
        every = len(of_it) == len(unproven)
        values = [key] if every else [assume_family_value(f.member.client_id, key) for f in of_it]
        words = options(ANSWER, list(dict.fromkeys(values)))
        runs = f"{context.named(of_it)} {'runs' if len(of_it) == 1 else 'run'}"
        since = family(key).kip848_since
        if context.goal == CONSUMER and version_tuple(since) is not None:
            runs = f"{runs} {since} or later of"
            reason = f"every client is {key} {since} or later"
            words = (*words, "--ignore", Risk.OLD_CLIENT)
            if context.asked and not context.snapshot.cluster.settings:
                runs = f"the brokers keep Kafka's group settings and {runs}"
                reason = f"{reason}; the brokers keep Kafka's group settings"
                words = (*words, "--ignore", Risk.UNREAD_SETTINGS)
            words = (*words, "--reason", reason)
        elif stops and context.goal != CONSUMER and context.client is None:
            runs = f"an interruption is agreed and {runs}"
            words = (*words, "--ignore", Risk.STOP, "--reason", AGREED)
        made.append(context.answering(f"{IF}{runs} {key}", *words))
    return tuple(made)


def _left(context: Context, found: Sequence[Facts]) -> dict[str, list[Facts]]:
    """Return client family → the members that may run it.

    Excluded are the families that other evidence, or the bytes of the subscription, rules out.
    """
    by_family: dict[str, list[Facts]] = {}
    for facts in found:
        sent = excluded_by_bytes(facts.member.subscription, context.elected)
        for key in facts.guesses or [each for each in consumer_libraries() if each not in sent]:
            by_family.setdefault(key, []).append(facts)
    return by_family
