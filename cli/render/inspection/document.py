"""`rebal.inspect/1`: every key is always present, and null if its value is not known."""

from __future__ import annotations

from typing import ClassVar

from rebal.cli.render.documents import (
    Document,
    EvidenceDocument,
    FailureDocument,
    OwnedDocument,
    document_of,
    owned_of,
)
from rebal.cli.render.text import known_lag, lag_by_member, software_text
from rebal.cli.report import Report
from rebal.groups.model import (
    CoordinatorKind,
    GroupState,
    GroupType,
    Knowledge,
    Member,
    Moment,
    RebalanceProtocol,
    Software,
    Timeouts,
    Tri,
)
from rebal.planner.plan import Severity


class _Coordinator(Document, frozen=True, kw_only=True):
    null_if_empty: ClassVar = ("host", "port", "rebalanced_why")
    broker_id: int
    host: str | None
    port: int | None
    kind: CoordinatorKind
    rebalanced_since_load: Tri
    rebalanced_why: str | None
    loaded_at: Moment | None
    leader_epoch: int | None


class _Runs(Document, frozen=True, kw_only=True):
    null_if_empty: ClassVar = ("why",)
    value: RebalanceProtocol
    why: str | None
    evidence: tuple[EvidenceDocument, ...]


class _Common(Document, frozen=True, kw_only=True):
    null_if_empty: ClassVar = ("source",)
    supported: tuple[str, ...]
    unsupported: tuple[str, ...]
    doubtful: tuple[str, ...]
    source: str | None


class _ProbeAnswer(Document, frozen=True, kw_only=True):
    assignor: str
    supported: Tri
    at: Moment
    error: str | None


class _Probe(Document, frozen=True, kw_only=True):
    refused: str | None
    answers: tuple[_ProbeAnswer, ...]


class _Topic(Document, frozen=True, kw_only=True):
    topic: str
    partitions: int


class _Software(Document, frozen=True, kw_only=True):
    name: str | None
    version: str | None
    family: str | None
    version_range: str | None


class _Assignors(Document, frozen=True, kw_only=True):
    knowledge: Knowledge
    list: tuple[str, ...]
    at_least: tuple[str, ...]
    lacks: tuple[str, ...]
    evidence: tuple[EvidenceDocument, ...]


class _Timeouts(Document, frozen=True, kw_only=True):
    session_ms: int | None
    rebalance_ms: int | None
    evidence: tuple[EvidenceDocument, ...]


class _NextStart(Document, frozen=True, kw_only=True):
    list: tuple[str, ...]
    group_protocol: str | None
    session_timeout_ms: int | None
    max_poll_interval_ms: int | None
    upgrade_from: str | None
    evidence: tuple[EvidenceDocument, ...]


class _Subscription(Document, frozen=True, kw_only=True):
    version: int | None = None
    topics: tuple[str, ...] = ()
    owned_partitions: list[OwnedDocument] | None = None
    generation_id: int | None = None
    rack_id: str | None = None


class _Ran(Document, frozen=True, kw_only=True):
    value: RebalanceProtocol
    upgrade_from: str | None
    evidence: tuple[EvidenceDocument, ...]


class _Worker(Document, frozen=True, kw_only=True):
    url: str
    connectors: int | None
    tasks: int | None
    leader: bool
    held_back_ms: int


class _Member(Document, frozen=True, kw_only=True):
    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    rack: str | None
    software: _Software
    rebalance_protocol: RebalanceProtocol | None
    assignors: _Assignors
    timeouts: _Timeouts
    next_start: _NextStart | None
    subscription: _Subscription
    subscription_error: str | None
    ran: _Ran | None
    worker: _Worker | None
    subscribed_topics: tuple[str, ...]
    subscribed_regex: str | None
    assignment: list[OwnedDocument]
    target_assignment: list[OwnedDocument] | None
    member_epoch: int | None
    protocol_type: str | None
    joined_at: Moment | None
    join_reason: str | None
    lag: int | None


class _Refusal(Document, frozen=True, kw_only=True):
    null_if_empty: ClassVar = ("client_id", "host", "connection", "software")
    at: Moment | None
    times: int
    client_id: str | None
    instance_id: str | None
    host: str | None
    connection: str | None
    error: str
    list: tuple[str, ...]
    rejoined_as: str | None
    rejoined_at: Moment | None
    software: str | None
    evidence: tuple[EvidenceDocument, ...]


class _Departed(Document, frozen=True, kw_only=True):
    null_if_empty: ClassVar = ("client_id", "host")
    member_id: str
    client_id: str | None
    instance_id: str | None
    host: str | None
    list: tuple[str, ...]
    last_seen: Moment | None
    left: bool
    left_at: Moment | None
    reason: str | None
    evidence: tuple[EvidenceDocument, ...]


class _Contradiction(Document, frozen=True, kw_only=True):
    member_id: str | None
    what: str
    evidence: tuple[EvidenceDocument, ...]


class _Unmatched(Document, frozen=True, kw_only=True):
    what: str
    why: str
    evidence: tuple[EvidenceDocument, ...]


class _Finding(Document, frozen=True, kw_only=True):
    null_if_empty: ClassVar = ("fix", "reference")
    rule: str
    severity: Severity
    result: Tri
    members: tuple[str, ...]
    message: str
    evidence: tuple[EvidenceDocument, ...]
    fix: str | None
    reference: str | None
    before_step: int | None
    ignored: str | None
    urgent: bool


class InspectedGroup(Document, frozen=True, kw_only=True):
    """One element of `groups`."""

    group_id: str
    state: GroupState
    type: GroupType
    protocol_type: str | None
    assignor: str | None
    generation: int | None
    group_epoch: int | None
    assignment_epoch: int | None
    coordinator: _Coordinator | None
    captured_at: Moment
    rebalance_protocol: _Runs
    common_assignors: _Common
    probe: _Probe | None
    expected_members: int | None
    lag: int | None
    topics: tuple[_Topic, ...]
    members: tuple[_Member, ...]
    refusals: tuple[_Refusal, ...]
    departed: tuple[_Departed, ...]
    contradictions: tuple[_Contradiction, ...]
    unmatched: tuple[_Unmatched, ...]
    findings: tuple[_Finding, ...]
    notes: tuple[str, ...]


class InspectDocument(Document, frozen=True, kw_only=True):
    """The body of `rebal.inspect/1`."""

    groups: list[InspectedGroup]
    failures: list[FailureDocument]


def inspected_group(report: Report) -> InspectedGroup:
    """Return one group of the document."""
    snapshot = report.snapshot
    lag = known_lag(snapshot)
    lags = lag_by_member(snapshot.members, lag)
    return document_of(
        InspectedGroup,
        snapshot.group,
        captured_at=snapshot.captured_at,
        rebalance_protocol=document_of(_Runs, report, value=report.runs),
        common_assignors=report.common,
        probe=snapshot.probe,
        expected_members=snapshot.expected_members,
        lag=sum(lag.values()) if lag else None,
        topics=[_Topic(topic=one.name, partitions=one.partitions) for one in snapshot.topics],
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


def _member(member: Member, report: Report, lag: int | None) -> _Member:
    declared, sent = member.declared, member.subscription
    return document_of(
        _Member,
        member,
        software=member.software or Software(),
        rebalance_protocol=report.member_runs.get(member.member_id),
        timeouts=member.timeouts or Timeouts(),
        next_start=declared and document_of(_NextStart, declared, evidence=(declared.evidence,)),
        subscription=_Subscription()
        if sent is None
        else document_of(_Subscription, sent, owned_partitions=owned_of(sent.owned_partitions)),
        assignment=owned_of(member.assignment),
        target_assignment=owned_of(member.target_assignment),
        lag=lag,
    )
