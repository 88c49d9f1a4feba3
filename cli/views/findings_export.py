"""Findings for machines that show them: SARIF 2.1.0, and GitHub's workflow commands.

Levels: a block that fires is an error; a block that cannot be told, and a warning, are warnings; a
question to a person is a note. What the user chose to ignore is a suppressed result in SARIF and is
left out for GitHub.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from hashlib import sha256
from importlib.metadata import version
from typing import Any, Final
from urllib.parse import quote

from rebal.cli.output import shown
from rebal.groups.model import Tri
from rebal.planner.context import names
from rebal.planner.plan import Finding, Plan, Severity, Verdict
from rebal.planner.rules import Rule, rules

_SCHEMA: Final = "https://json.schemastore.org/sarif-2.1.0.json"
_LEVELS: Final = {Severity.BLOCK: "error", Severity.WARN: "warning", Severity.ASK: "note"}
_COMMANDS: Final = {"error": "error", "warning": "warning", "note": "notice"}
_VERDICTS: Final = {Verdict.BLOCKED: "error", Verdict.UNPROVEN: "warning"}
_SUMMARY: Final = "rebal"


def to_sarif(source: Plan | Sequence[Finding], *, group_id: str = "") -> str:
    """One SARIF document with one run, for a plan or for the findings of the group `group_id`.

    The location of a result is the group, written as the file `consumer-groups/NAME`, since those
    who show SARIF (GitHub's code scanning) take no result without a file.
    """
    import json

    found, group, labels = _parts(source, group_id)
    lasting = _lasting(source)
    known = rules()
    used = sorted({finding.rule for finding in found if finding.rule in known})
    run: dict[str, Any] = {
        "tool": {
            "driver": {
                "name": "rebal",
                "version": version("rebal"),
                "rules": [_rule(known[rule_id]) for rule_id in used],
            }
        },
        "results": [_result(finding, used, group, labels, lasting) for finding in found],
    }
    if isinstance(source, Plan):
        run["invocations"] = [
            {
                "executionSuccessful": True,
                "exitCode": source.exit_code,
                "exitCodeDescription": f"{source.verdict.value}: {source.summary}",
            }
        ]
    made = {"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]}
    return json.dumps(made, indent=2, ensure_ascii=False) + "\n"


def to_github(source: Plan | Sequence[Finding], *, group_id: str = "") -> str:
    """One workflow command a line (`::error title=…::…`); for a plan its verdict comes first."""
    return "".join(f"{line}\n" for line in _commands(source, group_id))


def _commands(source: Plan | Sequence[Finding], group_id: str) -> Iterator[str]:
    found, group, labels = _parts(source, group_id)
    if isinstance(source, Plan):
        level = _COMMANDS[_VERDICTS.get(source.verdict, "note")]
        yield _command(level, f"{_SUMMARY} {group} {source.verdict.value}", source.summary)
    for finding in found:
        if finding.ignored is None:
            title = f"{finding.rule} {group}".rstrip()
            yield _command(_COMMANDS[_level(finding)], title, _text(finding, labels))


def _parts(
    source: Plan | Sequence[Finding], group_id: str
) -> tuple[Sequence[Finding], str, dict[str, str]]:
    """The findings, the group's name, and member id → a name people know, for a plan."""
    if isinstance(source, Plan):
        return source.findings, source.group_id, names(source.baseline.members)
    return source, group_id, {}


def _level(finding: Finding) -> str:
    if finding.severity is Severity.BLOCK and finding.result is not Tri.YES:
        return "warning"
    return _LEVELS[finding.severity]


def _text(finding: Finding, labels: dict[str, str]) -> str:
    """The message, whom it concerns where the message has no room for all, and what to do."""
    unknown = " (cannot be told yet)" if finding.result is not Tri.YES else ""
    named = [labels.get(member, member) for member in finding.members]
    unsaid = [name for name in named if name not in finding.message]
    members = f" Members: {', '.join(named)}." if unsaid else ""
    fix = f" Fix: {finding.fix}" if finding.fix else ""
    return f"{finding.message}{unknown}{members}{fix}"


def _rule(known: Rule) -> dict[str, Any]:
    return {
        "id": known.id,
        "shortDescription": {
            "text": f"{known.title}{'?' if known.severity is Severity.ASK else '.'}"
        },
        "fullDescription": {"text": known.doc.split("\n\n")[0]},
        "help": {"text": f"{known.doc}\n\nReference: {known.reference}"},
        "defaultConfiguration": {"level": _LEVELS[known.severity]},
    }


def _result(
    finding: Finding,
    used: Sequence[str],
    group: str,
    labels: dict[str, str],
    lasting: dict[str, str],
) -> dict[str, Any]:
    made: dict[str, Any] = {
        "ruleId": finding.rule,
        **({"ruleIndex": used.index(finding.rule)} if finding.rule in used else {}),
        "level": _level(finding),
        "message": {"text": _text(finding, labels)},
        "locations": [_location(group, [labels.get(m, m) for m in finding.members])],
        "partialFingerprints": {"ruleAndGroup/v1": _fingerprint(finding, group, lasting)},
        "properties": {
            "result": finding.result.value,
            "severity": finding.severity.value,
            "reference": finding.reference,
            "evidence": [_evidence(item.source, item.detail) for item in finding.evidence],
        },
    }
    if finding.ignored is not None:
        made["suppressions"] = [{"kind": "external", "justification": finding.ignored}]
    return made


def _evidence(source: str, detail: str) -> str:
    return f"{source}: {detail}" if detail else str(source)


def _location(group: str, members: Iterable[str]) -> dict[str, Any]:
    where = {"name": group, "fullyQualifiedName": f"consumer-groups/{group}", "kind": "resource"}
    return {
        "physicalLocation": {
            "artifactLocation": {"uri": f"consumer-groups/{quote(group, safe='')}"},
            "region": {"startLine": 1},
        },
        "logicalLocations": [
            where,
            *(
                {
                    "name": member,
                    "fullyQualifiedName": f"consumer-groups/{group}/{member}",
                    "kind": "member",
                }
                for member in members
            ),
        ],
    }


def _lasting(source: Plan | Sequence[Finding]) -> dict[str, str]:
    """Member id → what outlives a restart of the member: its instance id, or its client id."""
    members = source.baseline.members if isinstance(source, Plan) else ()
    return {member.member_id: member.instance_id or member.client_id for member in members}


def _fingerprint(finding: Finding, group: str, lasting: dict[str, str]) -> str:
    """By rule, group and who it concerns, never by member ids: each restart gives new ones."""
    named = sorted({lasting.get(member, "") for member in finding.members})
    return sha256("\0".join([finding.rule, group, *named]).encode()).hexdigest()[:32]


def _command(level: str, title: str, message: str) -> str:
    """Text from a cluster cannot end the line or the title: that would be a command of its own."""
    data = shown(message).replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
    name = shown(title).replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
    name = name.replace(":", "%3A").replace(",", "%2C")
    return f"::{level} title={name}::{data}"
