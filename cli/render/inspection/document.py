"""The document `rebal.inspect/1`: every key is always present, null if its value is not known.

Its records are made from those of the model, with the fields that are named here.
"""

from collections.abc import Iterable

from rebal.cli.render.documents import (
    Document,
    FailureDocument,
    OwnedDocument,
    document_of,
    failures_of,
    mirror,
    owned_of,
)
from rebal.cli.render.text import known_lag, lag_by_member, software_text
from rebal.cli.report import Report
from rebal.groups.model import (
    AssignorList,
    Contradiction,
    Coordinator,
    DeclaredAssignors,
    Departed,
    Evidence,
    Group,
    Member,
    Moment,
    Probe,
    ProbeAnswer,
    RanProtocol,
    RebalanceProtocol,
    Refusal,
    Software,
    Subscription,
    Timeouts,
    Topic,
    Unmatched,
    WorkerState,
)
from rebal.groups.protocol import CommonAssignors
from rebal.planner.plan import Finding

_SHOWN = tuple[Evidence, ...]
mirror(
    "Coordinator",
    Coordinator,
    *("broker_id", "host", "port", "kind", "rebalanced_since_load", "rebalanced_why"),
    *("loaded_at", "leader_epoch"),
)
_Runs = mirror("Runs", Report, "value", "why", "evidence", value=RebalanceProtocol)
mirror("Common", CommonAssignors, "supported", "unsupported", "doubtful", "source")
mirror("ProbeAnswer", ProbeAnswer, "assignor", "supported", "at", "error")
mirror("Probe", Probe, "refused", "answers")
_Topic = mirror("Topic", Topic, "topic", "partitions", topic=str)
mirror("Software", Software, "name", "version", "family", "version_range")
mirror("Assignors", AssignorList, "knowledge", "list", "at_least", "lacks", "evidence")
mirror("Timeouts", Timeouts, "session_ms", "rebalance_ms", "evidence")
_NextStart = mirror(
    "NextStart",
    DeclaredAssignors,
    *("list", "group_protocol", "session_timeout_ms", "max_poll_interval_ms", "upgrade_from"),
    "evidence",
    evidence=_SHOWN,
)
_Subscription = mirror(
    "Subscription",
    Subscription,
    *("version", "topics", "owned_partitions", "generation_id", "rack_id"),
    version=int | None,
    owned_partitions=list[OwnedDocument] | None,
)
mirror("Ran", RanProtocol, "value", "upgrade_from", "evidence")
mirror(
    "Worker",
    WorkerState,
    *("url", "connectors", "tasks", "leader", "held_back_ms"),
    connectors=int | None,
    tasks=int | None,
    held_back_ms=int,
)
_Member = mirror(
    "Member",
    Member,
    *("member_id", "instance_id", "client_id", "host", "rack", "software", "rebalance_protocol"),
    *("assignors", "timeouts", "next_start", "subscription", "subscription_error", "ran", "worker"),
    *("subscribed_topics", "subscribed_regex", "assignment", "target_assignment", "member_epoch"),
    *("protocol_type", "joined_at", "join_reason", "lag"),
    client_id=str,
    host=str,
    software=Software,
    rebalance_protocol=RebalanceProtocol | None,
    timeouts=Timeouts,
    next_start=DeclaredAssignors | None,
    subscription=Subscription,
    assignment=list[OwnedDocument],
    target_assignment=list[OwnedDocument] | None,
    lag=int | None,
)
_Refusal = mirror(
    "Refusal",
    Refusal,
    *("at", "times", "client_id", "instance_id", "host", "connection", "error", "list"),
    *("rejoined_as", "rejoined_at", "software", "evidence"),
    software=str | None,
    evidence=_SHOWN,
)
_Departed = mirror(
    "Departed",
    Departed,
    *("member_id", "client_id", "instance_id", "host", "list", "last_seen", "left", "left_at"),
    *("reason", "evidence"),
    evidence=_SHOWN,
)
mirror("Contradiction", Contradiction, "member_id", "what", "evidence")
_Unmatched = mirror("Unmatched", Unmatched, "what", "why", "evidence", evidence=_SHOWN)
mirror(
    "Finding",
    Finding,
    *("rule", "severity", "result", "members", "message", "evidence", "fix", "reference"),
    *("before_step", "ignored", "urgent"),
)
_Inspected = mirror(
    "InspectedGroup",
    Group,
    *("group_id", "state", "type", "protocol_type", "assignor", "generation", "group_epoch"),
    *("assignment_epoch", "coordinator", "captured_at", "rebalance_protocol", "common_assignors"),
    *("probe", "expected_members", "lag", "topics", "members", "refusals", "departed"),
    *("contradictions", "unmatched", "findings", "notes"),
    captured_at=Moment,
    rebalance_protocol=Report,
    common_assignors=CommonAssignors,
    probe=Probe | None,
    expected_members=int | None,
    lag=int | None,
    topics=tuple[Topic, ...],
    members=tuple[Member, ...],
    refusals=tuple[Refusal, ...],
    departed=tuple[Departed, ...],
    contradictions=tuple[Contradiction, ...],
    unmatched=tuple[Unmatched, ...],
    findings=tuple[Finding, ...],
    notes=tuple[str, ...],
)


class InspectDocument(Document, frozen=True, kw_only=True):
    """The body of `rebal.inspect/1`: the groups, and the failures to read other groups."""

    groups: list[_Inspected]  # type: ignore[valid-type]
    failures: list[FailureDocument]


def inspect_document(reports: Iterable[Report], failures: Iterable[object]) -> InspectDocument:
    """Return the document of the reports, and of the groups that could not be read."""
    return InspectDocument(groups=list(map(_inspected, reports)), failures=failures_of(failures))


def _inspected(report: Report) -> Document:
    snapshot = report.snapshot
    lag = known_lag(snapshot)
    lags = lag_by_member(snapshot.members, lag)
    return document_of(
        _Inspected,
        snapshot.group,
        captured_at=snapshot.captured_at,
        rebalance_protocol=document_of(_Runs, report, value=report.runs),
        common_assignors=report.common,
        probe=snapshot.probe,
        expected_members=snapshot.expected_members,
        lag=sum(lag.values()) if lag else None,
        topics=[document_of(_Topic, one, topic=one.name) for one in snapshot.topics],
        members=[_member(member, report, lags[member.member_id]) for member in snapshot.members],
        refusals=[
            document_of(
                _Refusal,
                one,
                software=software_text(one.software) if one.software else None,
                evidence=(one.evidence,),
            )
            for one in snapshot.refusals
        ],
        departed=[
            document_of(_Departed, one, evidence=(one.evidence,)) for one in snapshot.departed
        ],
        contradictions=snapshot.contradictions,
        unmatched=[
            document_of(_Unmatched, one, evidence=(one.evidence,)) for one in snapshot.unmatched
        ],
        findings=report.findings,
        notes=snapshot.notes,
    )


def _member(member: Member, report: Report, lag: int | None) -> Document:
    declared, sent = member.declared, member.subscription
    return document_of(
        _Member,
        member,
        software=member.software or Software(),
        rebalance_protocol=report.member_runs.get(member.member_id),
        timeouts=member.timeouts or Timeouts(),
        next_start=declared and document_of(_NextStart, declared, evidence=(declared.evidence,)),
        subscription=document_of(
            _Subscription,
            sent or Subscription(version=0),
            version=sent and sent.version,
            owned_partitions=sent and owned_of(sent.owned_partitions),
        ),
        assignment=owned_of(member.assignment),
        target_assignment=owned_of(member.target_assignment),
        lag=lag,
    )
