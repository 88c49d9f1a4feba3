"""The body of `rebal.inspect/1`: every key is always there, null where a thing is not known."""

from __future__ import annotations

from typing import Any

from rebal.cli.render.text import known_lag, lag_by_member, software_text
from rebal.cli.report import Report
from rebal.groups.model import (
    Contradiction,
    Departed,
    Evidence,
    GroupSnapshot,
    Member,
    ProbeAnswer,
    Refusal,
    Software,
    Subscription,
    Timeouts,
    TopicPartitions,
    Unmatched,
)
from rebal.planner.plan import Finding

Body = dict[str, Any]


def inspect_body(report: Report) -> Body:
    """One element of `groups`."""
    snapshot = report.snapshot
    group = snapshot.group
    lag = known_lag(snapshot)
    lags = lag_by_member(snapshot.members, lag)
    return {
        "group_id": group.group_id,
        "state": group.state,
        "type": group.type,
        "protocol_type": group.protocol_type,
        "assignor": group.assignor,
        "generation": group.generation,
        "group_epoch": group.group_epoch,
        "assignment_epoch": group.assignment_epoch,
        "coordinator": _coordinator(snapshot),
        "captured_at": snapshot.captured_at,
        "rebalance_protocol": {
            "value": report.runs,
            "why": report.why or None,
            "evidence": _evidence(report.evidence),
        },
        "common_assignors": {
            "supported": report.common.supported,
            "unsupported": report.common.unsupported,
            "doubtful": report.common.doubtful,
            "source": report.common.source or None,
        },
        "probe": _probe(snapshot),
        "expected_members": snapshot.expected_members,
        "lag": sum(lag.values()) if lag else None,
        "topics": [{"topic": t.name, "partitions": t.partitions} for t in snapshot.topics],
        "members": [_member(member, report, lags[member.member_id]) for member in snapshot.members],
        "refusals": [_refusal(refusal) for refusal in snapshot.refusals],
        "departed": [_departed(departed) for departed in snapshot.departed],
        "contradictions": [_contradiction(found) for found in snapshot.contradictions],
        "unmatched": [_unmatched(found) for found in snapshot.unmatched],
        "findings": [_finding(finding) for finding in report.findings],
        "notes": snapshot.notes,
    }


def partition_list(owned: TopicPartitions | None) -> list[Body] | None:
    """`[{"topic": …, "partitions": [0, 1]}]`; None stays None."""
    if owned is None:
        return None
    return [{"topic": topic, "partitions": list(numbers)} for topic, numbers in owned.items()]


def _member(member: Member, report: Report, lag: int | None) -> Body:
    known = member.assignors
    declared = member.declared
    timeouts = member.timeouts or Timeouts()
    return {
        "member_id": member.member_id,
        "instance_id": member.instance_id,
        "client_id": member.client_id,
        "host": member.host,
        "rack": member.rack,
        "software": _software(member.software),
        "rebalance_protocol": report.member_runs.get(member.member_id),
        "assignors": {
            "knowledge": known.knowledge,
            "list": known.list,
            "at_least": known.at_least,
            "lacks": known.lacks,
            "evidence": _evidence(known.evidence),
        },
        "timeouts": {
            "session_ms": timeouts.session_ms,
            "rebalance_ms": timeouts.rebalance_ms,
            "evidence": _evidence(timeouts.evidence),
        },
        "next_start": None
        if declared is None
        else {
            "list": declared.list,
            "group_protocol": declared.group_protocol,
            "session_timeout_ms": declared.session_timeout_ms,
            "max_poll_interval_ms": declared.max_poll_interval_ms,
            "upgrade_from": declared.upgrade_from,
            "evidence": _evidence((declared.evidence,)),
        },
        "subscription": _subscription(member.subscription),
        "subscription_error": member.subscription_error,
        "ran": None
        if member.ran is None
        else {
            "value": member.ran.value,
            "upgrade_from": member.ran.upgrade_from,
            "evidence": _evidence(member.ran.evidence),
        },
        "worker": None
        if member.worker is None
        else {
            "url": member.worker.url,
            "connectors": member.worker.connectors,
            "tasks": member.worker.tasks,
            "leader": member.worker.leader,
            "held_back_ms": member.worker.held_back_ms,
        },
        "subscribed_topics": member.subscribed_topics,
        "subscribed_regex": member.subscribed_regex,
        "assignment": partition_list(member.assignment),
        "target_assignment": partition_list(member.target_assignment),
        "member_epoch": member.member_epoch,
        "protocol_type": member.protocol_type,
        "joined_at": member.joined_at,
        "join_reason": member.join_reason,
        "lag": lag,
    }


def _subscription(sent: Subscription | None) -> Body:
    if sent is None:
        return {
            "version": None,
            "topics": [],
            "owned_partitions": None,
            "generation_id": None,
            "rack_id": None,
        }
    return {
        "version": sent.version,
        "topics": sent.topics,
        "owned_partitions": partition_list(sent.owned_partitions),
        "generation_id": sent.generation_id,
        "rack_id": sent.rack_id,
    }


def _software(software: Software | None) -> Body:
    return {
        "name": software.name if software else None,
        "version": software.version if software else None,
        "family": software.family if software else None,
        "version_range": software.version_range if software else None,
    }


def _coordinator(snapshot: GroupSnapshot) -> Body | None:
    found = snapshot.group.coordinator
    if found is None:
        return None
    return {
        "broker_id": found.broker_id,
        "host": found.host or None,
        "port": found.port or None,
        "kind": found.kind,
        "rebalanced_since_load": found.rebalanced_since_load,
        "rebalanced_why": found.rebalanced_why or None,
        "loaded_at": found.loaded_at,
        "leader_epoch": found.leader_epoch,
    }


def _probe(snapshot: GroupSnapshot) -> Body | None:
    probe = snapshot.probe
    if probe is None:
        return None
    return {"refused": probe.refused, "answers": [_answer(answer) for answer in probe.answers]}


def _answer(answer: ProbeAnswer) -> Body:
    return {
        "assignor": answer.assignor,
        "supported": answer.supported,
        "at": answer.at,
        "error": answer.error,
    }


def _refusal(refusal: Refusal) -> Body:
    return {
        "at": refusal.at,
        "times": refusal.times,
        "client_id": refusal.client_id or None,
        "instance_id": refusal.instance_id,
        "host": refusal.host or None,
        "connection": refusal.connection or None,
        "error": refusal.error,
        "list": refusal.list,
        "rejoined_as": refusal.rejoined_as,
        "rejoined_at": refusal.rejoined_at,
        "software": software_text(refusal.software) if refusal.software else None,
        "evidence": _evidence((refusal.evidence,)),
    }


def _departed(departed: Departed) -> Body:
    return {
        "member_id": departed.member_id,
        "client_id": departed.client_id or None,
        "instance_id": departed.instance_id,
        "host": departed.host or None,
        "list": departed.list,
        "last_seen": departed.last_seen,
        "left": departed.left,
        "left_at": departed.left_at,
        "reason": departed.reason,
        "evidence": _evidence((departed.evidence,)),
    }


def _contradiction(found: Contradiction) -> Body:
    return {
        "member_id": found.member_id,
        "what": found.what,
        "evidence": _evidence(found.evidence),
    }


def _unmatched(found: Unmatched) -> Body:
    return {"what": found.what, "why": found.why, "evidence": _evidence((found.evidence,))}


def _finding(finding: Finding) -> Body:
    return {
        "rule": finding.rule,
        "severity": finding.severity,
        "result": finding.result,
        "members": finding.members,
        "message": finding.message,
        "evidence": _evidence(finding.evidence),
        "fix": finding.fix or None,
        "reference": finding.reference or None,
        "before_step": finding.before_step,
        "ignored": finding.ignored,
    }


def _evidence(items: tuple[Evidence, ...]) -> list[Body]:
    return [{"source": item.source, "at": item.at, "detail": item.detail or None} for item in items]
