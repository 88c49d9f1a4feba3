"""Findings in formats that other tools display: SARIF 2.1.0 and GitHub's workflow commands.

A blocking finding is an error. It is only a warning if it is not verified, or if it blocks a step
after the next one. A warning is a warning, and a question to the operator is a note. An ignored
finding is a suppressed result in SARIF and is left out for GitHub.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final
from urllib.parse import quote

from rebal.cli.output import escape
from rebal.cli.report import Report
from rebal.groups import VERSION
from rebal.groups.model import Member, Tri
from rebal.planner.context import names
from rebal.planner.plan import Finding, Plan, Severity, Verdict
from rebal.planner.rules import Rule, rules

_LEVELS: Final = {Severity.BLOCK: "error", Severity.WARN: "warning", Severity.ASK: "note"}
COMMANDS: Final = {"error": "error", "warning": "warning", "note": "notice"}
_VERDICTS: Final = {Verdict.BLOCKED: "error", Verdict.UNPROVEN: "warning"}

Source = Plan | Report
Failures = Mapping[str, str]


def exported(
    form: str,
    *sources: Source,
    failures: Failures = MappingProxyType({}),
    file: Path | None = None,
) -> str:
    """Return the output of `-o sarif` or `-o github`, as `form` says.

    It has the findings of `sources`, which are plans or reports on groups. `failures` maps each
    group that could not be read to the reason. `file` is the snapshot file that was read.
    """
    if form == "sarif":
        return to_sarif(*sources, failures=failures, file=file)
    return to_github(*sources, failures=failures)


def to_sarif(
    *sources: Source, failures: Failures = MappingProxyType({}), file: Path | None = None
) -> str:
    """Return one SARIF document with one run: the findings of plans, or of groups as they run.

    `failures` maps each group that could not be read to the reason. A result has its group and its
    members as logical locations, and the snapshot `file`, if one was read, as its physical
    location. Findings of a live group have no file, so viewers that show only files (GitHub's code
    scanning) do not show them.
    """
    known = rules()
    found = [(source, finding) for source in sources for finding in source.findings]
    used = sorted({finding.rule for _, finding in found if finding.rule in known})
    run: dict[str, Any] = {
        "tool": {
            "driver": {
                "name": "rebal",
                "version": VERSION,
                "rules": [_rule(known[rule_id]) for rule_id in used],
            }
        },
        "results": [_result(finding, used, source, file) for source, finding in found],
    }
    invocations: list[dict[str, Any]] = [
        {
            "executionSuccessful": True,
            "exitCode": source.exit_code,
            "exitCodeDescription": f"{source.verdict.value}: {source.summary}",
        }
        for source in sources
        if isinstance(source, Plan)
    ]
    if failures:
        said = [{"level": "error", "message": {"text": why}} for why in failures.values()]
        invocations.append({"executionSuccessful": False, "toolExecutionNotifications": said})
    return sarif_of({**run, "invocations": invocations} if invocations else run)


def sarif_of(run: Mapping[str, Any]) -> str:
    """Return the text of a SARIF document that contains the SARIF run `run`."""
    made = {
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [run],
    }
    return json.dumps(made, indent=2, ensure_ascii=False) + "\n"


def to_github(*sources: Source, failures: Failures = MappingProxyType({})) -> str:
    """Return the findings and failures as GitHub workflow commands, each on a line.

    A command begins with `::error title=…::`. The verdict of a plan comes before its findings.
    """
    lines = [line for source in sources for line in _commands(source)]
    lines += [github_command("error", f"rebal {name}", why) for name, why in failures.items()]
    return "".join(f"{line}\n" for line in lines)


def _commands(source: Source) -> Iterator[str]:
    group, members = _group(source)
    labels = names(members)
    if isinstance(source, Plan):
        level = COMMANDS[_VERDICTS.get(source.verdict, "note")]
        yield github_command(level, f"rebal {group} {source.verdict.value}", source.summary)
    for finding in source.findings:
        if finding.ignored is None:
            yield github_command(
                COMMANDS[_level(finding, source)], f"{finding.rule} {group}", _text(finding, labels)
            )


def _group(source: Source) -> tuple[str, Sequence[Member]]:
    snapshot = source.baseline if isinstance(source, Plan) else source.snapshot
    return snapshot.group.group_id, snapshot.members


def _level(finding: Finding, source: Source) -> str:
    later = isinstance(source, Plan) and source.holds_later(finding)
    if finding.severity is Severity.BLOCK and (later or finding.result is not Tri.YES):
        return "warning"
    return _LEVELS[finding.severity]


def _text(finding: Finding, labels: dict[str, str]) -> str:
    unknown = " (not verified)" if finding.result is not Tri.YES else ""
    named = [labels.get(member, member) for member in finding.members]
    unsaid = [name for name in named if name not in finding.message]
    members = f" Members: {', '.join(named)}." if unsaid else ""
    fix = f" Fix: {finding.fix}" if finding.fix else ""
    commands = "".join(f"\n{one.use}: {one.line}" for one in finding.commands)
    return f"{finding.message}{unknown}{members}{fix}{commands}"


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
    finding: Finding, used: Sequence[str], source: Source, file: Path | None
) -> dict[str, Any]:
    group, members = _group(source)
    labels = names(members)
    made: dict[str, Any] = {
        "ruleId": finding.rule,
        **({"ruleIndex": used.index(finding.rule)} if finding.rule in used else {}),
        "level": _level(finding, source),
        "message": {"text": _text(finding, labels)},
        "locations": [_location(group, [labels.get(m, m) for m in finding.members], file)],
        "partialFingerprints": {"ruleAndGroup/v1": _fingerprint(finding, group, members)},
        "properties": {
            "result": finding.result.value,
            "severity": finding.severity.value,
            "reference": finding.reference,
            "evidence": [": ".join(filter(None, (e.source, e.detail))) for e in finding.evidence],
        },
    }
    if finding.ignored is not None:
        made["suppressions"] = [{"kind": "external", "justification": finding.ignored}]
    return made


def _location(group: str, members: Iterable[str], file: Path | None) -> dict[str, Any]:
    physical = {"artifactLocation": {"uri": uri_of(file)}} if file is not None else None
    return {
        **({"physicalLocation": physical} if physical else {}),
        "logicalLocations": [
            {"name": group, "fullyQualifiedName": f"consumer-groups/{group}", "kind": "resource"},
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


def uri_of(file: Path) -> str:
    """Return the file's URI for SARIF: `file://…` for an absolute path, else the quoted path."""
    return file.as_uri() if file.is_absolute() else quote(file.as_posix())


def _fingerprint(finding: Finding, group: str, members: Sequence[Member]) -> str:
    """Return a hash that stays the same when members restart.

    It covers the rule, the group, and the instance ids or client ids of the finding's members.
    """
    lasting = {member.member_id: member.instance_id or member.client_id for member in members}
    named = sorted({lasting.get(member, "") for member in finding.members})
    return sha256("\0".join([finding.rule, group, *named]).encode()).hexdigest()[:32]


def github_command(level: str, title: str, message: str, file: str = "", line: int = 0) -> str:
    """Return one GitHub workflow command; its texts are escaped, so they start no other command.

    `file` is relative to the repository. `line` is 0 if it is not known.
    """
    shown_values = {
        key: _escaped(value).replace(":", "%3A").replace(",", "%2C")
        for key, value in {"file": file, "line": str(line) if line else "", "title": title}.items()
        if value
    }
    named = ",".join(f"{key}={value}" for key, value in shown_values.items())
    return f"::{level} {named}::{_escaped(message)}"


def _escaped(text: str) -> str:
    return "\n".join(map(escape, text.split("\n"))).replace("%", "%25").replace("\n", "%0A")
