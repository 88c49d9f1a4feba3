"""Rules on missing or contradictory evidence, of a member or of the whole group (RB9xx)."""

from datetime import timedelta
from typing import Final

from rebal.groups.clients import default_list
from rebal.groups.model import GroupState, GroupType, Knowledge, Refusal
from rebal.planner.admission.check import (
    answer_if_repeated,
    departed_hint,
    label,
    unresolved_rejections,
)
from rebal.planner.admission.memory import INCONSISTENT
from rebal.planner.advice.actions import DEFAULTS
from rebal.planner.advice.steps import restart_fix, start_fix
from rebal.planner.advice.wording import START_EMPTY
from rebal.planner.commands import NamedCommand, read_more
from rebal.planner.context import CONSUMER
from rebal.planner.rules.assignors import unnamed
from rebal.planner.rules.registry import (
    Context,
    Facts,
    Finding,
    Findings,
    Risk,
    Severity,
    Trait,
    Tri,
    ahead,
    classic,
    family_commands,
    found,
    goal_needs_lists,
    narrowing_step,
    planning,
    read_brokers,
    rule,
    stable,
    to_consumer,
    what_decides,
    with_lists,
)
from rebal.planner.timeouts import MOST_SESSION, known_session, longest_session
from rebal.planner.verdict import opposite


@rule(
    "RB901",
    Severity.BLOCK,
    "A member's assignor list is not known",
    reference="Kafka protocol, DescribeGroups; KIP-412 (dynamic broker log levels)",
    applies=(goal_needs_lists, stable),
    traits={Trait.PENDING, Trait.ADMISSION},
    accepts=Risk.UNKNOWN_LISTS,
)
def unknown_list(context: Context) -> Findings:
    """The evidence does not show which assignors a member supports.

    Why it matters: describing a group never shows the members' assignor lists; only the coordinator
    has them. A list that is not known is never taken for safe: one member without the target is
    enough to have others rejected (RB102). The first bounce needs no lists, because it keeps the
    elected assignor, which every member supports by definition. The second bounce needs all of
    them.

    How to find out, any of:
    - the members' own start-up logs: Java prints its ConsumerConfig and, later, its member id.
      Then --client-log with a file, a folder, or - for kubectl logs. librdkafka prints both with
      debug=conf,cgrp, kafka-python and aiokafka at DEBUG; other clients print no list.
    - --probe: shows whether ALL members support an assignor. That is enough to begin the second
      bounce, not to call it finished.
    - --inventory: the configuration of the next start. Once a member has restarted in the second
      bounce, it counts as declared, and you confirm its list with the command that verify prints
      then (--confirm, --member, --list, --reason). The journal keeps that for this member id; the
      end names what it rests on ("proven: 2, confirmed by you: 1").
    - the broker's request log, switched on across the next restart of any dynamic member: then
      every member rejoins and shows its list. The logger kafka.request.logger of the group's
      coordinator is set to DEBUG with kafka-configs.sh (the finding has the commands), and set back
      afterwards. Then --request-log FILE.
      (A static member that restarts shows only itself. A quiet group shows nothing.)

    How to fix it: add that evidence and make the plan again. Or state what you know of the member
    with --assume 'client-id=NAME:range,cooperative-sticky', or accept the risk by name with
    --ignore RB901 --reason "…": the plan records either.

    It does not fire where evidence contradicts itself (RB902), or where bounds decide: a librdkafka
    member cannot hold eager and cooperative assignors together, and a Java member that kept its
    partitions when it rejoined has no eager assignor. A configuration file alone does not count: it
    shows what the next start will use.
    """
    disputed = {item.member_id for item in context.snapshot.contradictions}
    for before, asks in (
        (context.narrow_step, lambda facts: context.supports(facts, context.target)),
        (context.narrow_step + 1, context.holds_old),
    ):
        unknown = [
            facts
            for facts in context.members
            if facts.member.assignors.knowledge is not Knowledge.EXACT
            and facts.member.member_id not in disputed
            and asks(facts) is Tri.CANNOT_TELL
        ]
        # Another library replaces each member, with whatever its list holds.
        if unknown and (context.client is None or before == context.narrow_step):
            yield _finding(context, unknown, before)
            return


def _finding(context: Context, unknown: list[Facts], before: int) -> Finding:
    bounds = sorted({name for facts in unknown for name in facts.member.assignors.at_least})
    least = f" (known: at least {', '.join(bounds)})" if bounds else ""
    one = len(unknown) == 1
    first = before == context.narrow_step
    other = " Or --probe." if context.can_probe else ""
    if not first:
        other = " Or add their configuration (--inventory PATH), and confirm it after the restart."
    risk = f"may lack {context.target}" if first else "may still have the old assignor"
    return found(
        f"{context.named(unknown)} {risk}: the evidence for {'its' if one else 'their'} assignor "
        f"{'list' if one else 'lists'} is missing{least}.",
        result=Tri.CANNOT_TELL,
        members=unknown,
        # In the order in which most teams can get it.
        fix=f"Add the members' own start-up logs: --client-log PATH.{other} Or --request-log FILE: "
        "the next restart of a dynamic member shows every list there.",
        commands=(
            *context.given.request_log(context.group.coordinator_id),
            read_more("RB901"),
        ),
        before_step=before,
    )


@rule(
    "RB902",
    Severity.BLOCK,
    "Two pieces of evidence contradict each other",
    reference="rebal: how evidence is merged (groups/evidence/merge.py)",
    traits={Trait.PENDING},
)
def contradiction(context: Context) -> Findings:
    """Two sources say things about a member that cannot both be true.

    Why it matters: something is wrong: a log of another cluster, a wrong clock, two processes with
    one id, or a fault of rebal. To choose one side silently would be a guess, so the list in
    question counts as not known.

    How to find out: look at both sources, which are named with their times.

    How to fix it: leave out the file that belongs to another group or time, or collect the evidence
    again, and make the plan again.
    """
    for item in context.snapshot.contradictions:
        named = [facts for facts in context.members if facts.member.member_id == item.member_id]
        whose = f" for {named[0].name}" if named else ""
        yield found(
            f"the evidence{whose} is contradictory and proves nothing: {item.what.rstrip('.')}.",
            result=Tri.CANNOT_TELL,
            members=named,
            evidence=item.evidence,
            fix="Collect the evidence again, or leave out a file of another group or another time.",
            before_step=narrowing_step(context),
        )


@rule(
    "RB903",
    Severity.WARN,
    "A member does not run the assignor list of its configuration",
    reference="Kafka: ConsumerConfig is read once, when the consumer is built; Spring for Apache "
    "Kafka: ConsumerFactory and @KafkaListener(properties) win over spring.kafka.*",
    traits={Trait.PASSING},
)
def changed_not_restarted(context: Context) -> Findings:
    """A member's configuration file and the assignor list that it runs differ.

    Why it matters: the file shows what the NEXT start will use, never what runs. A member that is
    changed in the repository is not changed in the group, and a member that crashes takes the new
    list at an unplanned moment.

    Or the list is set elsewhere: in code (a Spring ConsumerFactory with its own map,
    @KafkaListener(properties = …)) or in the environment, which win over the file. Then no restart
    brings the file's list, and the roll-out would change nothing. The rule reports that where a
    Java member's own log (ConsumerConfig values, with its time) shows that it was started after the
    file was last written.

    How to find out: --inventory beside --client-log or --request-log. Cannot tell: the file is
    there, and the running list is not known.

    How to fix it: restart the member when its step comes, not before; or change the file back until
    then. Where the list is set elsewhere, change it there.
    """
    unknown = []
    for facts in context.members:
        declared, known = _declared(facts), facts.member.assignors
        if declared is None:
            continue
        exact = known.knowledge is Knowledge.EXACT
        contradicted = set(declared) & set(known.lacks) or set(known.at_least) - set(declared)
        named = not any(unnamed(context, name) for name in declared)
        differs = named and (known.list != declared if exact else bool(contradicted))
        runs = f"[{', '.join(known.list)}]" if exact else "another list"
        written = facts.member.declared.evidence.at if facts.member.declared is not None else None
        # By its own log; the file's time and the log's are of two clocks.
        started_later = (
            written is not None
            and known.since is not None
            and known.since - written > timedelta(minutes=1)
        )
        if not named or not (exact or differs):
            unknown.append(facts)
        elif differs and started_later:
            yield _elsewhere(facts, runs, declared)
        elif differs:
            yield found(
                f"{facts.name} will change its list at its next start, planned or not: it runs "
                f"{runs}, and its configuration says [{', '.join(declared)}] (changed, not "
                "restarted).",
                members=(facts,),
                evidence=known.evidence,
                fix=restart_fix(context, (facts,), declared, then=" when its step comes")
                if context.target in declared
                else f"Set the file to the list of the plan's step before {facts.name} restarts: "
                f"[{', '.join(declared)}] has no {context.target}.",
            )
    if unknown:
        yield found(
            f"{context.named(unknown)} may change {'its' if len(unknown) == 1 else 'their'} list "
            "at the next start: the configuration is known, and the running list is not.",
            result=Tri.CANNOT_TELL,
            members=unknown,
            fix="Add --client-log or --request-log, which show what runs.",
        )


def _elsewhere(facts: Facts, runs: str, declared: tuple[str, ...]) -> Finding:
    known, file = facts.member.assignors, facts.member.declared
    assert file is not None
    assert known.since is not None
    return found(
        f"no restart will give {facts.name} the list of its file: {facts.name} was started at "
        f"{known.since:%b %d %H:%MZ} with {runs}, and {file.evidence.detail}, which is older, says "
        f"[{', '.join(declared)}]. Code or the environment overrides the file, or {facts.name} "
        "reads another file.",
        members=(facts,),
        evidence=(*known.evidence, file.evidence),
        fix=f"Find where {facts.name}'s list is really set (a Spring ConsumerFactory, "
        "@KafkaListener(properties = …), a variable) and change it there.",
    )


def _declared(facts: Facts) -> tuple[str, ...] | None:
    declared = facts.member.declared
    if declared is None or declared.group_protocol == "consumer":
        return None
    return declared.list or default_list(facts.family, facts.version)


@rule(
    "RB906",
    Severity.BLOCK,
    "A member's client library is not known",
    reference="KIP-511 (client name and version); hazards RB104 and RB105",
    applies=(planning, classic, stable),
    traits={Trait.CLIENT_UNKNOWN},
)
def unknown_family(context: Context) -> Findings:
    """No evidence shows which client library a member uses.

    Why it matters: the steps differ by client. A Java consumer accepts eager and cooperative
    assignors together, librdkafka and kafka-python do not start with both, kafkajs and others have
    no cooperative assignor. So the first bounce can be planned without the members' assignor lists,
    but not without their clients. In a move to KIP-848 the client decides whether it starts with
    group.protocol=consumer, one by one as after a stop of all.

    How to find out: a Java member's own log names its software (--client-log), and so does
    the broker's request log for each member that joins (--request-log). Or ask its developers.

    How to fix it: add that evidence, or state what you know, which the plan records:
    --assume-family java, or for the client id app-3 alone --assume-family app-3=java.

    The client of a member whose list holds the target does not matter: the member has started with
    the list of the first bounce, or is past it. The same holds for any list with eager and
    cooperative assignors.

    A client id alone proves nothing, because anyone can set it. It counts (and RB907 warns) where
    the member's own bytes exclude the clients that do not accept such a list.
    """
    named = [facts for facts in ahead(context) if _matters(context, facts)]
    unknown = [facts for facts in named if facts.family is None]
    if unknown:
        online = context.goal == CONSUMER
        what = "group.protocol=consumer" if online else "the list of the first bounce"
        yield found(
            f"{context.named(unknown)} may not start with {what}: "
            f"{'its' if len(unknown) == 1 else 'their'} client library, which decides whether it "
            "is accepted, is unknown.",
            result=Tri.CANNOT_TELL,
            members=unknown,
            fix=what_decides(context, unknown),
            commands=family_commands(context, unknown),
        )
    by_id = [facts for facts in named if facts.family is not None]
    if by_id:
        families = ", ".join(sorted({str(facts.family) for facts in by_id}))
        yield found(
            f"{context.named(by_id)} may not start with the list of the first bounce: the client "
            f"may be {families}, as its client id suggests, or one that does not accept eager and "
            "cooperative assignors together.",
            result=Tri.CANNOT_TELL,
            members=by_id,
            fix=what_decides(context, by_id),
            commands=family_commands(context, by_id),
        )


def _matters(context: Context, facts: Facts) -> bool:
    """Return whether the plan depends on this member's client, and the client is not known."""
    if context.goal == CONSUMER:
        return facts.family is None
    lacks = context.supports(facts, context.target) is not Tri.YES
    if facts.family is None:
        # The list that it runs may prove it, whatever its client is.
        return lacks and Tri.YES not in (facts.takes_mixed, context.takes_mixed(facts))
    # RB104 and RB105 speak of clients that take no list of both kinds.
    return (
        lacks
        and context.mixes_protocols
        and facts.takes_mixed is Tri.YES
        and context.may_take_mixed(facts) is Tri.CANNOT_TELL
    )


@rule(
    "RB907",
    Severity.WARN,
    "A member's client library is inferred, not proven",
    reference="KIP-511 (client name and version)",
    applies=(planning, classic),
)
def guessed_family(context: Context) -> Findings:
    """The client library follows from what a member sends; the member never named it.

    Why it matters: the shape of the subscription bytes, a default client id or an assignor's name
    point to a library, but others can look the same. If the inference is wrong, the plan's
    configuration text is for another client: that member will not start, or will ignore the
    setting. Nothing that rebal calls proven depends on it.

    How to find out: --client-log or --request-log names the software; or ask its developers.

    How to fix it: add that evidence, or answer with --assume-family. Without an answer the plan
    gives the text of each client; restart one member first and check it.
    """
    named = [
        facts
        for facts in ahead(context)
        if (facts.family or facts.takes_mixed is Tri.YES) and not facts.family_proven
    ]
    if named:
        families = sorted({facts.family or " or ".join(facts.candidates) for facts in named})
        yield found(
            f"which client library {'does' if len(named) == 1 else 'do'} {context.named(named)} "
            f"use? It decides the configuration text, and {', '.join(families)} is inferred, not "
            "proven.",
            members=named,
            fix=what_decides(context, named),
            commands=family_commands(context, named),
        )


_OTHER_GROUP: Final = "Give that client a group id of its own."
_LEFT_BEHIND: Final = (
    "Set group.protocol=consumer for that client if it belongs to the service, else give it a "
    "group id of its own."
)


@rule(
    "RB904",
    Severity.BLOCK,
    "A client was rejected, and would be rejected again",
    reference="Kafka protocol: INCONSISTENT_GROUP_PROTOCOL (23); KIP-429",
    applies=(stable,),
    traits={Trait.HISTORY},
)
def rejected(context: Context) -> Findings:
    """A log shows joins that the coordinator rejected for good (errors 23, 26, 81, 82).

    Why it matters: a rejected Java or kafka-python consumer stops after the first rejection.
    librdkafka and franz-go retry without end while their process looks alive. The broker logs
    nothing else about it, and describe does not show who is not in the group: a member may be
    consuming nothing.

    How to find out: JOIN_GROUP lines with errorCode 23 in the request log; in the client's log
    "InconsistentGroupProtocolException" or "Inconsistent group protocol".

    How to fix it: find the member that has nothing in common with the rejected list (RB102) and
    restart that one with both assignors; then start the rejected client again.

    It does not fire where today's members would admit the rejected list, nor where that very client
    (its instance id; else its client id and address) has joined since, nor where the group has all
    members that you counted (`--expect-members`) and no stopped member's entry can be one of them.
    """
    of_programs = ": this is a Kafka Streams group" if context.streams else ""
    if context.group.protocol_type == "connect":
        of_programs = ": this is a group of Connect workers"
    for item in unresolved_rejections(context.snapshot):
        stranger = context.is_stranger(item.list)
        again = answer_if_repeated(context.memory, item, stranger=stranger)
        answer = opposite(again.verdict) if item.error == INCONSISTENT else Tri.CANNOT_TELL
        if answer is Tri.NO or _group_is_complete(context, item):
            continue
        causes = [facts for facts in context.members if facts.member.member_id in again.blame]
        blame = ""
        if causes and answer is Tri.YES:
            supports = "supports" if len(causes) == 1 else "support"
            blame = f"; {context.named(causes)} {supports} none of it"
        count = "once" if item.times == 1 else f"{item.times} times"
        still = "and would be rejected again" if answer is Tri.YES else "and may be rejected again"
        who = label(item)
        apart = stranger or not context.classic
        migrates = (
            context.group.type is GroupType.CONSUMER and item.error == INCONSISTENT and not stranger
        )
        shown = f"[{', '.join(item.list)}]" if item.list else "an unknown list"
        yield found(
            f"{who} was rejected {count} ({item.error}) with {shown} {still}{blame}{of_programs}.",
            result=answer,
            members=causes if answer is Tri.YES else (),
            evidence=(item.evidence,),
            fix=(_LEFT_BEHIND if migrates else _OTHER_GROUP if apart else start_fix(context, [who]))
            + departed_hint(item.instance_id),
            before_step=narrowing_step(context) if context.classic else None,
            urgent=True,
        )


def _group_is_complete(context: Context, one: Refusal) -> bool:
    """Return whether the group has its given number of members without the rejected client.

    True only if none of these members can be the entry of a stopped process: the rejection must be
    older than the longest session, and every static member must have joined after it, because a
    rebalance begins a static member's session anew (KIP-345).
    """
    if not context.counted or context.missing or one.at is None:
        return False
    members = context.snapshot.members
    session = MOST_SESSION if None in map(known_session, members) else longest_session(members)
    clocks = timedelta(seconds=5) if context.snapshot.clock_compared else timedelta(days=1)
    old = (m for m in members if m.instance_id and (m.joined_at is None or m.joined_at <= one.at))
    return context.snapshot.captured_at - one.at > session + clocks and not any(old)


@rule(
    "RB905",
    Severity.BLOCK,
    "A plan cannot start from this kind or state of group",
    reference="Kafka: group states and types; KIP-848; KIP-932; KIP-1071",
    applies=(planning,),
    traits={Trait.HISTORY, Trait.MISSING_MEMBERS},
)
def nothing_to_plan_from(context: Context) -> Findings:
    """Plans need a group of consumers or of Connect workers that is Stable and has members.

    Why it matters: during a rebalance the assignor and the members change while rebal reads them.
    An empty group shows no list, client or assignor. Share groups have no rebalance protocol, and
    other protocol types (schema registries) do not use consumer assignors. A plan from such a
    reading would be a guess.

    How to find out: rebal inspect shows type, protocol type and state.

    How to fix it: wait until the group is Stable, or start its members, and ask again.
    """
    group = context.group
    if group.type is GroupType.SHARE:
        yield found(
            "this is a share group, whose members keep no partitions: it has no rebalance protocol "
            "to change."
        )
    elif group.type in (GroupType.CONSUMER, GroupType.STREAMS):
        return
    elif group.protocol_type not in (None, "", "consumer", "connect"):
        yield found(
            f"the group's protocol type is {group.protocol_type}, which uses no consumer assignors "
            "and has no rebalance protocol to change.",
        )
    elif group.protocol_type == "connect" and context.goal == CONSUMER:
        return
    elif group.state in (GroupState.EMPTY, GroupState.DEAD) or not context.members:
        yield found(
            f"the group is {group.state} and has no members, so their number and their assignor "
            "lists are unknown.",
            result=Tri.CANNOT_TELL,
            fix=START_EMPTY,
        )
    elif group.state is not GroupState.STABLE:
        yield found(
            f"the group is {group.state}, not Stable: members and assignor may differ in a moment.",
            result=Tri.CANNOT_TELL,
            fix="Wait until it is Stable, and ask again.",
        )
    elif group.protocol_type not in ("consumer", "connect"):
        yield found(
            "the group's protocol type is unknown, so no path can be chosen.",
            result=Tri.CANNOT_TELL,
            fix="Take the snapshot again.",
            commands=[
                NamedCommand("take it", context.given.inspect(context.group.group_id, "--save"))
            ],
        )


@rule(
    "RB908",
    Severity.ASK,
    "The brokers' group settings were not read",
    reference="Kafka: group.max.size, group.consumer.max.size, group.consumer.migration.policy",
    applies=(planning, with_lists),
    traits=(Trait.ADMISSION,),
    accepts=Risk.UNREAD_SETTINGS,
)
def unread_settings(context: Context) -> Findings:
    """Limits that the brokers set can reject a restart, and nobody knows them here.

    Why it matters: a static member's old entry stays in the group until its session ends. If
    group.max.size equals the number of members, its return is rejected with GROUP_MAX_SIZE_REACHED
    and it stops. A move to KIP-848 needs room under group.consumer.max.size and a migration policy
    that allows it.

    How to find out: the right to DESCRIBE_CONFIGS on the cluster; for the first of these a probe
    is enough, which asks for a place. Or ask who runs the brokers.

    How to fix it: where the brokers keep Kafka's defaults (no limit of members; from 4.0 the policy
    is bidirectional), say so: --ignore RB908 --reason TEXT.
    """
    static = [facts for facts in ahead(context) if facts.static]
    if (
        context.asked
        and not context.snapshot.cluster.settings
        and ((static and not context.memory.room) or to_consumer(context))
    ):
        yield found(
            "the brokers' limits of members were not read: a restart may find the group full.",
            result=Tri.CANNOT_TELL,
            members=static,
            fix=f"{read_brokers(context)} Or ask who runs the brokers, and state it.",
            commands=[context.accepting(Risk.UNREAD_SETTINGS, DEFAULTS)],
        )
