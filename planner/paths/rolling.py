"""The two rolling restarts that every rolling route is made of, filled with a group's own facts.

KIP-429, "Compatibility, Deprecation, and Migration Plan": first every member gets the target and
the old assignor, then every member drops the old one. Why two: a leader with old code ignores the
partitions that members still own and may give them away before they are revoked.
"""

from __future__ import annotations

import shlex
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

from msgspec.structs import replace

from rebal.groups.clients import family as known_family
from rebal.groups.clients import version_tuple
from rebal.groups.model import Tri
from rebal.planner.admission.wording import back_from_mixed, back_from_target, in_order
from rebal.planner.clients import able, classes_of, cooperative, custom
from rebal.planner.context import CONSUMER, EAGER, Context, Facts, ids
from rebal.planner.paths.kubernetes import kubernetes_lines
from rebal.planner.paths.metrics import metrics_lines
from rebal.planner.paths.priced import priced
from rebal.planner.paths.static import static_lines
from rebal.planner.plan import Cost, Gate, Setting, Step, StepKind
from rebal.planner.rehearsal.costs.cost import CostModel, Restarts
from rebal.planner.rehearsal.costs.timeouts import back_in_time, of_family
from rebal.planner.settings import java_class, no_text, noted, plain, settings_for


def add_both(
    context: Context, number: int, cost: CostModel, left_out: Sequence[Facts] = ()
) -> Step:
    """The first bounce: every member gets the target, and keeps the old assignor behind it.

    `left_out` are members whose client cannot take such a list; another step is theirs.
    """
    names = tuple(filter(None, [context.target, context.keep]))
    lacking = [facts for facts in context.lacking if facts not in left_out]
    unsure = [facts for facts in context.unsure if facts not in left_out]
    rest = [*lacking, *unsure]
    proven = not context.missing and not rest
    everybody = "Every member" if not left_out else f"Every member but {context.named(left_out, 3)}"
    return Step(
        id=number,
        title=f"{everybody} gets {context.target} before {context.keep or 'the old assignor'}",
        kind=StepKind.ROLLING,
        precondition=f"every member's client takes a list of {_two(context)}; no list needs to be "
        f"known, because {context.keep or 'the old assignor'} stays, which every member supports",
        precondition_holds=Tri.YES,
        config=list_settings(context, names, rest or context.members),
        target_list=names,
        why=tuple(_why_both(context)),
        order=tuple(order_of(context, rest)),
        to_do=ids(lacking),
        done=ids(context.holding),
        unknown=ids(unsure),
        left_out=tuple(sorted({facts.family for facts in left_out if facts.family})),
        gate=gate_of(
            context,
            shows=f"exit code 0, and step {number + 1} as the next step: "
            f"{'they' if left_out else 'all members'} support {context.target}",
            needs=(
                f"every member's list, or a probe that says yes for {context.target}",
                *expected_line(context),
            ),
            holds=_answer(proven, bool(lacking or context.missing)),
        ),
        rollback=back_from_mixed(context.keep, context.target, again(context)),
        cost=cost_of(context, rest, cost, names),
    )


def drop_old(context: Context, number: int, cost: CostModel) -> Step:
    """The narrowing bounce: every member drops the old assignor."""
    names = (context.target,)
    rest = [facts for facts in context.members if facts not in context.settled]
    to_do = [facts for facts in rest if Tri.YES is context.holds_old(facts)]
    unknown = [facts for facts in rest if facts not in to_do]
    kind = "cooperative" if context.goal == EAGER else "eager"
    proven = not context.missing and not rest
    return Step(
        id=number,
        title=f"Every member drops {context.keep or f'its {kind} assignors'}",
        kind=StepKind.ROLLING,
        precondition=f"every member's list holds {context.target}, and the coordinator remembers "
        f"it: while one lacks it, each member restarted with [{context.target}] is refused and "
        "stops, and the one that lacks it lives on and ends up owning everything",
        precondition_holds=Tri.YES,
        config=list_settings(context, names, rest or context.members),
        target_list=names,
        why=tuple(_why_narrow(context)),
        order=tuple(order_of(context, rest)),
        to_do=ids(to_do),
        done=ids(context.settled),
        unknown=ids(unknown),
        gate=gate_of(
            context,
            shows="exit code 0, and nothing left to do",
            needs=(
                f"every member seen without an {kind} assignor"
                if kind == "eager"
                else "every member seen without a cooperative assignor",
                f"that {context.keep or 'the old assignor'} is no longer common proves nothing: "
                "it is true after the first restart",
                *expected_line(context),
            ),
            holds=_answer(proven, bool(to_do or context.missing)),
        ),
        rollback=back_from_target(context.target, context.keep),
        cost=cost_of(context, rest, cost, names),
    )


def _why_both(context: Context) -> Iterator[str]:
    target, keep = context.target, context.keep or "the old assignor"
    yield (
        f"{target} stands first because a coordinator that loads the group again remembers only "
        f"the elected assignor of every list: with {target} elected, that is what the next step "
        f"needs, and with {keep} first its members would be refused (RB107, RB113)"
    )
    if any(map(_votes, context.members)):
        yield (
            f"franz-go follows the vote: its members run {target}'s protocol as soon as it is "
            "elected, which is when the last member holds both"
            + (
                "; it then gives up everything at once and reads on from the committed offsets, so "
                "records may come twice"
                if context.goal == EAGER
                else ""
            )
        )
    if context.goal == EAGER and cooperative(context.keep or "") is Tri.NO:
        yield (
            f"no member may go straight to [{target}]: it has nothing in common with members that "
            f"are on {keep} alone, is refused and stops (RB101)"
        )
    elif context.goal == EAGER:
        yield (
            f"no member may go straight to [{target}]: an eager-only member has nothing in common "
            "with members that are on a cooperative assignor alone, is refused and stops (RB108); "
            "this is also what an automatic roll-back of a deployment does"
        )
        yield (
            "keep the client version (the byte code) in this bounce; an older one goes in with "
            "the second bounce"
        )
    else:
        yield (
            "two bounces, because a leader with old code ignores the partitions that members "
            "still own, and could give them away before they are revoked (KIP-429)"
        )
        yield (
            "a new client version, or new code of a custom assignor (the byte code), goes in with "
            "this bounce, never with the second (RB111)"
        )


def _why_narrow(context: Context) -> Iterator[str]:
    if context.goal == EAGER and cooperative(context.keep or "") is Tri.NO:
        return
    if context.goal == EAGER:
        yield (
            "an older client version, or old code of a custom assignor (the byte code), may go in "
            "with this bounce: no member is COOPERATIVE any more once it is restarted with both"
        )
    elif not context.only_target and all(map(_votes, context.members)):
        yield (
            f"franz-go members are COOPERATIVE as soon as {context.target} is elected; without the "
            "old assignor no vote can turn them back"
        )
    elif not context.only_target:
        but = ", but for those of franz-go" if any(map(_votes, context.members)) else ""
        own = f" (or what {context.keep} allows)" if custom(context.keep or "range") else ""
        yield (
            "a restarted member is COOPERATIVE from here on, and those not restarted yet still "
            f"run EAGER{own}{but}: the target's leader takes both kinds (KIP-429)"
        )


def _two(context: Context) -> str:
    return "both kinds" if context.both_kinds else "two assignors"


def _votes(facts: Facts) -> bool:
    """Is its rebalance protocol that of the elected assignor, whatever stands in its list?"""
    return facts.family is not None and able(facts.family, facts.version).follows_vote


def gate_of(
    context: Context,
    *,
    shows: str,
    needs: tuple[str, ...],
    holds: Tri,
    aim: str | None = None,
    by_hand: str = "",
) -> Gate:
    """What to type to see whether a step's gate holds, and what must be seen then.

    Where the plan is a file, `rebal verify` holds it against the live group, else the plan is made
    again on fresh evidence. `aim` names what proves the step where its list does not tell, and
    `by_hand` what a person must look at: no evidence shows it, and verify takes their word. The
    members' own metrics are named at each gate.
    """
    needs = (*needs, *metrics_lines(context))
    if by_hand:
        needs = (*needs, f"{by_hand}; then say so: verify … --confirm STEP --reason TEXT")
    gate = Gate(command="", shows=shows, needs=needs, holds=holds, aim=aim, by_hand=by_hand)
    if context.plan_file is None:
        return replace(gate, command=_again(context))
    words = ["rebal", "verify", context.plan_file, *context.options, *_evidence(context)]
    shown = "exit code 0: the gate of this step holds"
    return replace(gate, command=shlex.join(words), shows=shown)


def _again(context: Context) -> str:
    words = ["rebal", "plan-upgrade", context.group.group_id]
    if context.only_target:
        words += ["--to", context.target]
    elif context.goal != "cooperative":
        words += ["--to", context.goal]
    words += [*context.options, *_evidence(context)]
    count = context.expected or len(context.members)
    words += ["--expect-members", str(count)] if count else []
    return shlex.join(words)


def _evidence(context: Context) -> tuple[str, ...]:
    """The options that bring what a gate needs to see."""
    if context.goal == CONSUMER:
        return ()
    probe = ("--probe",) if context.classic else ()
    return (*probe, "--request-log", "kafka-request.log")


def again(context: Context) -> str:
    """Return the command that plans the way back from here."""
    other = context.elected if context.goal != EAGER else "cooperative"
    return f"rebal plan-upgrade {context.group.group_id} --to {other or 'eager'}"


def request_log_hint(context: Context, *, to_the_end: bool = False) -> str:
    """How to make the first restart show every member's list (KIP-412).

    `to_the_end`: each restart shows its own member's list only.
    """
    off = "the last one" if to_the_end else "it"
    shows = "each join shows its list" if to_the_end else "the rebalance shows every member's list"
    coordinator = context.group.coordinator
    broker = str(coordinator.broker_id) if coordinator else "COORDINATOR_ID"
    return (
        "before the first restart, switch the coordinator's request log on (kafka-configs.sh "
        "--bootstrap-server HOST:PORT --alter --entity-type broker-loggers --entity-name "
        f"{broker} --add-config kafka.request.logger=DEBUG), and off after {off} (the same with "
        f"--delete-config kafka.request.logger): {shows}"
    )


def order_of(context: Context, rest: Sequence[Facts]) -> Iterator[str]:
    """How to restart `rest`, one by one."""
    if not rest:
        return
    static = [facts for facts in rest if facts.member.instance_id is not None]
    if context.unsure and len(static) < len(context.members):
        yield request_log_hint(context)
    yield from in_order([facts.name for facts in rest])
    yield from static_lines(context, static)
    yield from kubernetes_lines(rest)


def list_settings(
    context: Context, names: Sequence[str], members: Iterable[Facts]
) -> tuple[Setting, ...]:
    """Each family's own text for this list, naming its members where they are not all."""
    by_family: dict[str, list[Facts]] = defaultdict(list)
    for facts in members:
        for key in (facts.family,) if facts.family is not None else facts.candidates:
            by_family[key].append(facts)
    made: list[Setting] = []
    for key in sorted(by_family):
        mine = by_family[key]
        whole = len(mine) == len(context.members)
        named = [facts.name for facts in mine]
        notes = tuple(_notes(context, names, key, mine))
        settings = settings_for(
            key,
            names,
            context.group.group_id,
            () if whole else named,
            connector=context.sink is not None,
            classes=classes_of(context.snapshot),
        )
        made += (noted(setting, notes) for setting in settings or no_text(key, names, named))
    return tuple(made)


def _notes(
    context: Context, names: Sequence[str], family: str, members: Sequence[Facts]
) -> Iterator[str]:
    """What else must be true of these clients for the text to work."""
    known = known_family(family)
    for name in names if family == "java" else ():
        if java_class(name) is None and name not in classes_of(context.snapshot):
            yield f"put the class you use today for {plain(name)} in place of THE-CLASS-OF-…"
    if context.sink is not None:
        yield (
            f"into the configuration of the connector {plain(context.sink)}; the workers need "
            "connector.client.config.override.policy=All, the default since 3.0"
        )
    if known is None or not any(cooperative(name) is Tri.YES for name in names):
        return
    since = known.cooperative_since
    if version_tuple(since) not in (None, (0,)):
        title = "kafka-clients" if family == "java" else known.title
        old = [facts for facts in members if _older(facts, family, since) is Tri.YES]
        if old:
            now = ", ".join(f"{facts.name}: {_runs(facts)}" for facts in old[:6])
            yield f"needs {title} {since} or later: upgrade in this restart ({plain(now)})"
        elif any(_older(facts, family, since) is Tri.CANNOT_TELL for facts in members):
            yield f"needs {title} {since} or later; not every version is known"
    default = len(names) > 1 and "range" in names and family == "java"
    if default and any(facts.older_than("3.0") is not Tri.NO for facts in members):
        yield "range must be named: it was only the default of versions before 3.0"


def _older(facts: Facts, family: str, limit: str) -> Tri:
    """Is it older, if it is of this family: of several candidates only the first is bounded."""
    bounded = facts.family is not None or facts.candidates[:1] == (family,)
    return facts.older_than(limit) if bounded else Tri.CANNOT_TELL


def _runs(facts: Facts) -> str:
    software = facts.member.software
    return (software.version or software.version_range or "") if software else ""


def expected_line(context: Context) -> tuple[str, ...]:
    """How many members must be there for a gate to hold."""
    count = context.expected or len(context.members)
    if not count:
        return ("every member that belongs to the group in it (say --expect-members N)",)
    source = "" if context.expected else " (as many as now; say --expect-members if more belong)"
    return (f"{count} member{'' if count == 1 else 's'} in the group{source}",)


def _answer(proven: bool, refuted: bool) -> Tri:
    if proven:
        return Tri.YES
    return Tri.NO if refuted else Tri.CANNOT_TELL


def cost_of(context: Context, rest: Sequence[Facts], cost: CostModel, names: Sequence[str]) -> Cost:
    """What it costs to restart `rest` with the list `names` (empty: each with its own)."""
    owned = sum(
        len(numbers)
        for member in context.snapshot.members
        for numbers in member.assignment.values()
    )
    eager_after = any(cooperative(name) is not Tri.YES for name in names) or not names
    cooperative_now = context.goal == EAGER and eager_after and not context.only_target
    narrows = not eager_after and tuple(names) == (context.target,)
    eager = [
        facts
        for facts in (() if cooperative_now else context.members)
        if facts not in context.settled and not (narrows and _votes(facts))
    ]
    return cost(
        Restarts(
            members=len(context.members),
            restarting=len(rest),
            static=sum(
                back_in_time(of_family(facts.member, facts.family), context.speed.restart)
                for facts in rest
            ),
            partitions=owned,
            eager=len(eager),
            eager_after=eager_after,
            snapshot=priced(context),
            order=ids(rest),
            eager_ids=ids(eager),
            target_list=tuple(names),
            speed=context.speed,
        )
    )
