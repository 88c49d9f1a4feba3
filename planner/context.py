"""The evidence on one group, its goal and its members, as answers for rules and paths.

`Context` holds the snapshot and the goal; `Facts` describes one member. An answer is yes or no
(`Tri`) only where the evidence proves it; otherwise, and where evidence is contradictory, it is
`cannot tell`. Kafka's own rules are in rebal.groups.

The functions below `Context` are for Kafka Streams programs and Connect workers. Their assignor
lists show little: Streams always has [stream], and every worker offers `default`.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Final

from rebal.groups.clients import families, family, proven_family
from rebal.groups.commands import Command, option
from rebal.groups.evidence.fingerprint import excluded_by_bytes
from rebal.groups.model import (
    GroupSnapshot,
    GroupState,
    GroupType,
    Knowledge,
    RebalanceProtocol,
    Source,
    Tri,
)
from rebal.groups.protocol import disproved
from rebal.groups.streams import (
    COOPERATIVE_SINCE,
    EAGER_UNTIL,
    EAGER_VALUES,
    user_data_of,
)
from rebal.planner.admission.check import joined_since_rejection, member_of, unresolved_rejections
from rebal.planner.admission.memory import CoordinatorMemory, memory_of
from rebal.planner.clients import (
    cannot_hold,
    cooperative,
    custom,
    is_mixed,
    refuses_mixed,
    runs_cooperative,
)
from rebal.planner.commands import ACCEPT, COOPERATIVE, EAGER, Given, NamedCommand
from rebal.planner.facts import Bridge, Facts, GroupFacts, bridge_of, ids, listed, names
from rebal.planner.plan import Aim, Step
from rebal.planner.timeouts import Speed
from rebal.planner.verdict import agreed, opposite

if TYPE_CHECKING:
    from rebal.planner.rehearsal.costs.start import Pricing

__all__ = [
    "CLASSIC",
    "CONSUMER",
    "COOPERATIVE",
    "COOPERATIVE_STICKY",
    "EAGER",
    "STREAMS",
    "Context",
    "Facts",
    "ids",
    "names",
]


CONSUMER: Final = "consumer"
STREAMS: Final = "streams"
CLASSIC: Final = "classic"
COOPERATIVE_STICKY: Final = "cooperative-sticky"
_MOST_REMOVALS: Final = 6


class Context(GroupFacts):
    """One group, the goal of its plan, and the facts about its members.

    `goal` is `cooperative`, `eager`, `consumer` (KIP-848), `streams` (KIP-1071) or `classic` (back
    from `streams`); `target` is the assignor to end on. `only_target`: every other assignor counts
    as an old one, eager or cooperative. `client` is the library that replaces the members' own
    (None: each keeps its own). `families` maps a client id, or `*` for every member whose family is
    not proven, to the family that the user states. `counted`: the user or the snapshot gives the
    number of members of the whole service. `remembers`: the user vouches that the coordinator
    remembers every assignor list. `own_classes`: the user vouches that a custom class with the name
    of one of Kafka's assignors supports the same protocols.

    `planning` is True while a plan is made: rules about a plan's steps apply only then. `given` are
    the command-line options that printed commands repeat. `anew` are the options that set a plan's
    file aside, so that a new plan can have its name. `speed` is how fast members restart. `pricing`
    says how much of a step is rehearsed to compute its cost (None: no cost is computed).
    """

    anew: tuple[str, ...] = ()

    def __init__(
        self,
        snapshot: GroupSnapshot,
        *,
        goal: str = COOPERATIVE,
        target: str = COOPERATIVE_STICKY,
        planning: bool = False,
        expect_members: int | None = None,
        families: Mapping[str, str] | None = None,
        given: Given | None = None,
        only_target: bool = False,
        remembers: bool = False,
        own_classes: bool = False,
        speed: Speed | None = None,
        pricing: "Pricing | None" = None,
        client: str | None = None,
    ) -> None:
        super().__init__(snapshot, target=target, families=families, remembers=remembers)
        self.goal = goal
        self.client = client
        self.planning = planning
        self._expected = expect_members if expect_members is not None else snapshot.expected_members
        self.counted = self._expected is not None
        self._given = given or Given()
        self.only_target = only_target
        self._own_classes = own_classes
        self.speed = (speed or Speed()).at(snapshot.cluster)
        self.pricing = pricing

    @cached_property
    def expected(self) -> int | None:
        """Return the number of members of the whole service; None if it is not known.

        It is the number that the user or the snapshot gives. Without it, in a classic group with
        rejected clients, it is the members present plus the rejected clients proven not to be among
        them.
        """
        if self._expected is not None or not self.classic:
            return self._expected
        here = {member.instance_id for member in self.snapshot.members}
        out = [
            one
            for one in unresolved_rejections(self.snapshot)
            if not one.instance_id or one.instance_id not in here
            if joined_since_rejection(member_of(self.snapshot, one), one) is Tri.NO
        ]
        return len(self.snapshot.members) + len(out) if out else None

    @cached_property
    def given(self) -> Given:
        """Return the options that printed commands repeat, with the evidence for gates."""
        return self._given.for_gate(self.snapshot, by_lists=self.goal in (COOPERATIVE, EAGER))

    def replan(self, *more: str, to: str | None = None, expected: int | None = None) -> Command:
        """Return the command that makes a new plan for this group.

        `to` is another goal (None: the same goal, written to the plan's own file). `more` are
        further options. `expected` is the number of members (None: the number known now). A plan
        that leads back and has no file of its own is made again from the plan it abandons, because
        only that plan shows what the group ran before.
        """
        if self.given.left is not None and to is None and self.given.plan is None:
            return self.given.abort(self.given.left, *more)
        # From a COOPERATIVE assignor, `--to eager` finds the old one only while a list shows it.
        by_name = (
            self.goal == EAGER
            and cooperative(self.elected or "") is Tri.YES
            and self.target in ("range", "roundrobin", "sticky")
        )
        goal = to or self.client or (self.target if self.only_target or by_name else self.goal)
        count = expected or self.expected or len(self.members)
        out = () if to or not self.given.plan else option("--out", self.given.plan)
        return self.given.plan_upgrade(
            self.group.group_id, goal, *out, *(self.anew if out else ()), *more, expected=count
        )

    def accepting(self, rule: str, reason: str) -> NamedCommand:
        """Return the command that accepts the risk of a rule (--ignore) and records the reason."""
        return self.answering(f"{ACCEPT}{rule}", "--ignore", rule, "--reason", reason)

    def answering(self, use: str, *words: str, expected: int | None = None) -> NamedCommand:
        """Return `verify` with the options `words`, or plan-upgrade with them if no plan exists."""
        line = (
            self.given.verify(*words, *(("--expect-members", str(expected)) if expected else ()))
            if self.anew
            else self.replan(*words, expected=expected)
        )
        return NamedCommand(use, line)

    @cached_property
    def memory(self) -> CoordinatorMemory:
        """Return the assignor lists that the coordinator may hold, for every member it counts."""
        return memory_of(self)

    def supports(self, facts: Facts, assignor: str) -> Tri:
        """Return whether this member's running assignor list holds `assignor`."""
        said = self._said(facts, assignor)
        if len(said) == 1:
            return said.pop()
        lacks = self.probed(assignor) is Tri.NO and all(
            self._said(other, assignor) == {Tri.YES} for other in self.members if other is not facts
        )
        return Tri.NO if lacks and not said else Tri.CANNOT_TELL

    def _said(self, facts: Facts, assignor: str) -> set[Tri]:
        """Return all answers of evidence on whether the list holds `assignor`; none if unknown."""
        known = facts.member.assignors
        family = facts.family if facts.family_proven else None
        rows = (
            (
                known.knowledge is Knowledge.EXACT,
                Tri.YES if assignor in known.list else Tri.NO,
            ),
            (assignor in known.at_least, Tri.YES),
            (assignor in known.lacks, Tri.NO),
            (assignor == self.elected or self.probed(assignor) is Tri.YES, Tri.YES),
            (family and cannot_hold(family, facts.version, assignor, self.elected), Tri.NO),
        )
        return {answer for holds, answer in rows if holds}

    def old(self, assignor: str) -> Tri:
        """Return whether the plan removes `assignor` from the lists.

        A change to COOPERATIVE removes eager and custom assignors, since a custom one's protocol is
        not known. A change to EAGER removes cooperative ones. With `only_target`, the plan removes
        all but the target.
        """
        if self.only_target or assignor == self.target:
            return Tri.NO if assignor == self.target else Tri.YES
        follows = cooperative(assignor)
        if self.goal == EAGER or (follows is Tri.CANNOT_TELL and not custom(assignor)):
            return follows
        return Tri.NO if follows is Tri.YES else Tri.YES

    def holds_old(self, facts: Facts) -> Tri:
        """Return whether this member's running list still holds an assignor that the plan removes.

        A no is proven by an exact list without such an assignor, by a client that rejects mixed
        lists and has the target, or by a client that fixes its protocol when it is built and runs
        COOPERATIVE; such a client that runs EAGER still holds one. During a change to EAGER, a no
        becomes cannot tell for a member that kept partitions: a custom class may run COOPERATIVE
        under an eager assignor's name.
        """
        known = facts.member.assignors
        says = set()
        if known.knowledge is Knowledge.EXACT:
            kinds = {self._old_in(facts, name) for name in (*known.list, *known.at_least)}
            says.add(next((k for k in (Tri.YES, Tri.CANNOT_TELL) if k in kinds), Tri.NO))
        olds = {n for n in (*known.at_least, self.elected) if n and self.old(n) is Tri.YES}
        if olds:
            says |= {Tri.YES, Tri.NO} if olds & set(known.lacks) else {Tri.YES}
        says = says or self._old_by_client(facts)
        if self.goal == EAGER and facts.member.kept_partitions and says == {Tri.NO}:
            return Tri.CANNOT_TELL
        return agreed(says)

    def _old_in(self, facts: Facts, assignor: str) -> Tri:
        """Return whether the plan removes `assignor` from this member's list.

        It is `old(assignor)` unless a custom class may be behind the name of one of Kafka's
        assignors. In a change to COOPERATIVE such a class is removed if the member shows that it
        runs EAGER, or if its name is not the target's. If it has the target's name, it stays if the
        member shows that it supports COOPERATIVE, or if the user vouches for it. In all other
        cases: with `only_target` it is removed unless it has the target's name; else cannot tell.
        """
        if not self.own_class(facts, assignor):
            return self.old(assignor)
        if self.goal == COOPERATIVE and assignor in disproved(facts.member):
            return Tri.YES
        if assignor != self.target:
            return Tri.YES if self.goal == COOPERATIVE or self.only_target else Tri.CANNOT_TELL
        shown = self.goal == COOPERATIVE and runs_cooperative(facts.member)
        return Tri.NO if shown or self._own_classes else Tri.CANNOT_TELL

    def _old_by_client(self, facts: Facts) -> set[Tri]:
        if self.only_target:
            return set()
        key = facts.family if facts.family_proven else None
        if key is not None and family(key).cooperative(facts.version) is Tri.NO:
            return {Tri.NO if self.goal == EAGER else Tri.YES}
        unmixed = (self.takes_mixed(facts), self.supports(facts, self.target)) == (Tri.NO, Tri.YES)
        # Where an own class has the name of an eager assignor, it may be COOPERATIVE beside it.
        named = not any(cooperative(name) is Tri.NO for name in self.borrowed)
        fixed = self.goal == COOPERATIVE and facts.fixes_protocol and named
        ran = self.runs(facts).value if fixed else None
        if unmixed or ran is RebalanceProtocol.COOPERATIVE:
            return {Tri.NO}
        return {Tri.YES} if ran is RebalanceProtocol.EAGER else set()

    @cached_property
    def holding(self) -> tuple[Facts, ...]:
        """Return the members whose list holds the target."""
        return tuple(m for m in self.members if self.supports(m, self.target) is Tri.YES)

    @cached_property
    def lacking(self) -> tuple[Facts, ...]:
        """Return the members whose list is proven to lack the target."""
        return tuple(m for m in self.members if self.supports(m, self.target) is Tri.NO)

    @cached_property
    def unsure(self) -> tuple[Facts, ...]:
        """Return the members whose list is not known to hold or lack the target."""
        return tuple(m for m in self.members if self.supports(m, self.target) is Tri.CANNOT_TELL)

    @cached_property
    def settled(self) -> tuple[Facts, ...]:
        """Return the members that are proven to be done.

        Their list holds the target and no assignor that the plan removes. If the plan replaces the
        client library, their list holds the target and they run the new library.
        """
        if self.client is not None:
            return tuple(m for m in self.holding if self.replaced(m) is Tri.YES)
        return tuple(m for m in self.holding if self.holds_old(m) is Tri.NO)

    def replaced(self, facts: Facts) -> Tri:
        """Return whether this member runs the client library that the plan changes to."""
        if facts.family_proven:
            return Tri.YES if facts.family == self.client else Tri.NO
        excluded = excluded_by_bytes(facts.member.subscription, self.elected)
        return Tri.NO if self.client in excluded else Tri.CANNOT_TELL

    @cached_property
    def bridge(self) -> Bridge:
        """Return the assignor that the old and the new client library share during the change."""
        return bridge_of(self, self.client or "")

    @cached_property
    def keep(self) -> str | None:
        """Return the old assignor that stays behind the target in the mixed list, or None.

        It is the elected assignor, which every member supports. If the target itself is elected, it
        is an old assignor that is common to all exact lists that hold old ones.
        """
        if self.elected and self.elected != self.target:
            return self.elected
        lists = [
            [name for name in facts.member.assignors.list if self.old(name) is Tri.YES]
            for facts in self.members
            if facts.member.assignors.knowledge is Knowledge.EXACT
        ]
        olds = [names for names in lists if names]
        common = [name for name in (olds[0] if olds else ()) if all(name in o for o in olds)]
        return common[0] if common else None

    @cached_property
    def one_bounce(self) -> bool:
        """Return whether every list holds the target while an old assignor is elected (KIP-726)."""
        return (
            self.elected is not None
            and self.old(self.elected) is Tri.YES
            and bool(self.members)
            and len(self.holding) == len(self.members)
        )

    @cached_property
    def refresh(self) -> bool:
        """Return whether the group must rebalance once before the old assignor is removed (RB113).

        It must if every list holds the target but the coordinator, after a reload, may remember
        only the elected assignor.
        """
        return (
            self.elected not in (None, self.target)
            and bool(self.members)
            and len(self.holding) == len(self.members)
            and not (self.remembers or self.alone)
            and (self.reloaded is not Tri.NO or self.target in self.memory.not_in_all)
            and self.probed(self.target) is not Tri.YES
        )

    @property
    def alone(self) -> bool:
        """Return whether one dynamic member is the whole group, which is Empty once it leaves."""
        return len(self.members) == 1 and not (self.missing or self.members[0].static)

    @cached_property
    def mixes_protocols(self) -> bool:
        """Return whether the first bounce's list mixes eager and cooperative assignors.

        It does not in a change from one eager assignor to another.
        """
        return self.elected is None or not (
            cooperative(self.elected) is cooperative(self.target) is Tri.NO
        )

    @cached_property
    def ahead(self) -> tuple[Facts, ...]:
        """Return the members that are not proven to be done."""
        return tuple(facts for facts in self.members if facts not in self.settled)

    @cached_property
    def unmixable(self) -> tuple[Facts, ...]:
        """Return the members that are not done and whose client is proven to reject mixed lists."""
        if self.client is not None:
            return ()
        return tuple(
            facts
            for facts in self.ahead
            if facts.family_proven
            and refuses_mixed(facts.family)
            and self.takes_mixed(facts) is Tri.NO
        )

    def takes_mixed(self, facts: Facts) -> Tri:
        """Return whether this member's client accepts mixed lists; cannot tell without proof.

        The evidence counts in this order: the family that the client itself named, a mixed list
        that it was seen with, the family that the user stated.
        """
        if proven_family(facts.member.software) is None and is_mixed(self.names_held(facts.member)):
            return Tri.YES
        if facts.family_proven and facts.family is not None:
            return family(facts.family).mixed
        return facts.takes_mixed if facts.family is None else Tri.CANNOT_TELL

    def may_take_mixed(self, facts: Facts) -> Tri:
        """Return whether this member's client accepts mixed lists, by proof or by inference.

        An inferred family that accepts them counts only if the bytes that the member sent exclude
        every family that does not (RB907 then warns). A client id excludes no family, because
        anyone can set it.
        """
        proven = self.takes_mixed(facts)
        if proven is not Tri.CANNOT_TELL:
            return proven
        guess = facts.takes_mixed
        if guess is Tri.YES and facts.family is not None:
            sent = excluded_by_bytes(facts.member.subscription, self.elected)
            # Those that are not known to take a list of eager and cooperative assignors.
            sure = all(one.mixed is Tri.YES or key in sent for key, one in families().items())
            return Tri.YES if sure else Tri.CANNOT_TELL
        return guess

    @cached_property
    def undecided(self) -> tuple[Facts, ...]:
        """Return the members whose client is not proven, but decides which members must stop.

        They are the members inferred to reject mixed lists and, if some clients are proven to
        reject them, every other member that is not proven to accept them. A member whose list holds
        the target is left out: if it rejects mixed lists it is done, and otherwise it need not
        stop.
        """
        if self.client is not None or not (self.classic and self.stable and self.mixes_protocols):
            return ()
        return tuple(
            facts
            for facts in self.ahead
            if not facts.family_proven
            and self.supports(facts, self.target) is not Tri.YES
            and (
                refuses_mixed(facts.family)
                or (self.unmixable and self.takes_mixed(facts) is Tri.CANNOT_TELL)
            )
        )

    @cached_property
    def split(self) -> bool:
        """Return whether only the members that reject mixed lists must stop; the others run on."""
        others = [facts for facts in self.members if facts not in self.unmixable]
        return bool(
            self.classic
            and self.stable
            and self.mixes_protocols
            and self.unmixable
            and others
            and all(self.takes_mixed(facts) is Tri.YES for facts in others)
            and self.elected not in (None, self.target)
        )

    @cached_property
    def narrow_step(self) -> int:
        """Return the number of the step that drops the old assignor, or replaces the library."""
        bridged = self.client is not None and len(self.holding) == len(self.members)
        return (1 if self.one_bounce or bridged else 2) + self.refresh + self.split

    @cached_property
    def leaving_step(self) -> int:
        """Return the number of the first step in which members start with the target alone.

        It is the step that stops all members, or the members that reject mixed lists, if the plan
        has such a step; otherwise it is `narrow_step`.
        """
        whole = bool(self.mixes_protocols and self.unmixable and not self.split)
        return 1 if whole else self.narrow_step - self.split

    @property
    def missing(self) -> int:
        """Return the number of expected members that are not in the group."""
        return max(0, (self.expected or 0) - len(self.members))

    def named(self, found: Iterable[Facts], most: int = 6) -> str:
        """Return the members' names as text, at most `most` of them: `a, b and 3 more`."""
        return listed([facts.name for facts in found], most)

    def removals(self, down: Iterable[Facts]) -> tuple[NamedCommand, ...]:
        """Return commands that remove the static members among `down` from a classic group.

        They are for members whose process is gone for good, at most `_MOST_REMOVALS` of them. For
        another type of group there is no command.
        """
        if self.group.type is not GroupType.CLASSIC:
            return ()
        named = list(filter(None, (facts.member.instance_id for facts in down)))[:_MOST_REMOVALS]
        return tuple(self.given.remove_static(self.group.group_id, named))


INCREMENTAL: Final = ("compatible", "sessioned")
"""Connect's incremental protocols; below them is `default`, which every worker offers."""


def running(
    context: Context, protocol: RebalanceProtocol, members: Iterable[Facts] | None = None
) -> list[Facts]:
    """Return the `members` (default: all) that run `protocol`."""
    return [
        facts
        for facts in (context.members if members is None else members)
        if context.runs(facts).value is protocol
    ]


def below_cooperative(context: Context, facts: Facts) -> Tri:
    """Return whether this Streams instance is older than 2.4, the first release with COOPERATIVE.

    The answer is no if it runs COOPERATIVE. It is also no if its own client log shows its rebalance
    protocol, because earlier releases do not print that line.
    """
    if context.runs(facts).value is RebalanceProtocol.COOPERATIVE:
        return Tri.NO
    answer, ran = facts.older_than(COOPERATIVE_SINCE), facts.member.ran
    printed = ran is not None and any(e.source is Source.CLIENT_LOG for e in ran.evidence)
    return Tri.NO if answer is Tri.CANNOT_TELL and printed else answer


def above_eager(context: Context, facts: Facts) -> Tri:
    """Return whether this Streams instance is 4.0 or later.

    The answer is no if it runs EAGER, since 4.0 and later do not start with an upgrade.from of 2.3
    or less.
    """
    answer = opposite(facts.older_than(EAGER_UNTIL))
    eager = context.runs(facts).value is RebalanceProtocol.EAGER
    return Tri.NO if answer is Tri.CANNOT_TELL and eager else answer


def _is_cooperative(context: Context, facts: Facts) -> Tri:
    return Tri.YES if context.runs(facts).value is RebalanceProtocol.COOPERATIVE else Tri.NO


_EXCLUDED: Final[Mapping[Aim, tuple[Callable[[Context, Facts], Tri], str]]] = {
    Aim.STREAMS_COOPERATIVE: (below_cooperative, "versions below 2.4 have no COOPERATIVE"),
    Aim.STREAMS_EAGER: (above_eager, "versions from 4.0 on have no EAGER"),
    Aim.STREAMS_OLD: (_is_cooperative, "no version below 2.4 may run beside COOPERATIVE members"),
}


def excluded(context: Context, aim: Aim) -> dict[Tri, list[Facts]]:
    """Return answer → members: whether their version or protocol rules out the change `aim`."""
    asked, _ = _EXCLUDED.get(aim, (None, ""))
    answers = [(asked(context, each) if asked else Tri.NO, each) for each in context.members]
    return {answer: [facts for each, facts in answers if each is answer] for answer in Tri}


def hindered(context: Context, step: Step, *, first: bool) -> tuple[Tri, str]:
    """Return whether some member rules out the restarts of `step`, and the reason (empty for no).

    An unknown version gives cannot tell only if `step` is the `first` step: the steps after it
    restart members whose version that step has set.
    """
    by = excluded(context, step.aim)
    if by[Tri.YES]:
        return Tri.YES, f"{_EXCLUDED[step.aim][1]}: {context.named(by[Tri.YES])}"
    if by[Tri.CANNOT_TELL] and first:
        return Tri.CANNOT_TELL, f"the version of {context.named(by[Tri.CANNOT_TELL])} is not known"
    return Tri.NO, ""


def comes_from(facts: Facts) -> str:
    """Return the upgrade.from value for an upgrade from this Streams instance's version.

    The version is known exactly, or its user data bounds it. If neither shows it, the value is 2.3;
    2.0 to 2.3 have the same effect.
    """
    version = facts.version or ""
    fits = [value for value in EAGER_VALUES if version == value or version.startswith(f"{value}.")]
    if fits:
        return fits[-1]
    data = user_data_of(facts.member.subscription)
    form = data.version if data is not None and data.latest is None else 0
    return {1: EAGER_VALUES[0], 2: "1.1"}.get(form, EAGER_VALUES[-1])


def offers(context: Context, facts: Facts, protocols: Sequence[str]) -> Tri:
    """Return whether its join, or the elected protocol, shows that it offers one of `protocols`."""
    known = facts.member.assignors
    if known.knowledge is Knowledge.EXACT:
        return Tri.YES if set(known.list) & set(protocols) else Tri.NO
    elected = context.group.assignor if context.group.state is GroupState.STABLE else None
    return Tri.YES if elected in protocols else Tri.CANNOT_TELL


def turns_eager(context: Context) -> bool:
    """Return whether the change makes Connect workers eager, so that all stop first (RB507)."""
    return context.goal == EAGER and context.group.assignor in INCREMENTAL
