"""Output of `rebal check`: screen, Markdown, SARIF, GitHub workflow commands and document."""

from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

from rich.text import Text

from rebal.cli.output import View, envelope, shown
from rebal.cli.render.documents import Document
from rebal.cli.render.findings import COMMANDS, github_command, sarif_of, uri_of
from rebal.cli.render.plans.markdown import plain
from rebal.cli.render.text import Rows, count, facts, labelled, to_paste
from rebal.groups import VERSION
from rebal.groups.model import RebalanceProtocol, Tri
from rebal.planner.check.judge import Judgement

_LABELS: Final = {
    Tri.NO: Text("REJECTED", style="bold red"),
    Tri.CANNOT_TELL: Text("NOT VERIFIED", style="bold yellow"),
    Tri.YES: Text("safe", style="green"),
}
_LEVELS: Final = {Tri.NO: "error", Tri.CANNOT_TELL: "warning", Tri.YES: "note"}
_RULE: Final = {
    "id": "next-start",
    "shortDescription": {"text": "The next start of a consumer changes."},
    "fullDescription": {
        "text": "A change of a consumer's assignor list, rebalance protocol or client library "
        "decides whether the coordinator admits its next start (INCONSISTENT_GROUP_PROTOCOL)."
    },
}
# Notes on files that a screen shows; documents have all.
_NOTES: Final = 5


class CheckDocument(Document, frozen=True, kw_only=True):
    """The body of `rebal.check/1`: the groups whose next start changes, the worst verdict first.

    `before` and `after` name the two versions. `declared` is the number of groups that either
    version declares. `notes` say what could not be read in files of the later version.
    """

    before: str
    after: str
    declared: int
    groups: tuple[Judgement, ...]
    notes: tuple[str, ...]


def check_view(found: CheckDocument) -> View:
    """Return the screen of a check: the answer, then a block for each group that changes."""
    found = shown(found)
    view: View = [Text(_headline(found), style="bold")]
    for one in found.groups:
        rows = [(_LABELS[one.verdict], Text(one.group, style="bold")), *_rows(one)]
        view += [Text(""), facts(rows, label=len("NOT VERIFIED"))]
    if found.notes:
        more = len(found.notes) - _NOTES
        said = [*found.notes[:_NOTES], *([f"and {more:,} more: -o json"] if more > 0 else [])]
        view += [Text(""), facts(labelled(Text("not known", style="dim"), said))]
    return view


def check_text(found: CheckDocument, form: str, code: int) -> str:
    """Return the result of a check as text in the format `form`.

    `markdown` is a comment for a pull request. `github` is one workflow command for each group, at
    the line of its first change. `sarif` is a SARIF document. `json` and `yaml` are the document.
    `code` is the exit code, which the document and SARIF contain.
    """
    if form == "markdown":
        return _markdown(shown(found))
    if form == "github":
        lines = (
            github_command(
                COMMANDS[_LEVELS[one.verdict]],
                f"rebal {one.group}: {_LABELS[one.verdict]}",
                "\n".join(_lines(one)),
                one.changes[0].file,
                one.changes[0].line,
            )
            for one in found.groups
        )
        return "".join(f"{line}\n" for line in lines)
    if form != "sarif":
        return envelope("check", found, code, form)
    return sarif_of(
        {
            "tool": {"driver": {"name": "rebal", "version": VERSION, "rules": [_RULE]}},
            "results": [_result(one) for one in found.groups],
            "invocations": [{"executionSuccessful": True, "exitCode": code}],
        }
    )


def _markdown(found: CheckDocument) -> str:
    lines = [f"### rebal check: {plain(_headline(found))}"]
    for one in found.groups:
        lines += ["", f"**{plain(_LABELS[one.verdict].plain)}** {plain(one.group)}", ""]
        lines += (f"{'  ' if t.startswith(' ') else ''}- {plain(t.strip())}" for t in _lines(one))
    if found.notes:
        lines += ["", "Not known:", "", *(f"- {plain(note)}" for note in found.notes)]
    return "\n".join(lines) + "\n"


def _headline(found: CheckDocument) -> str:
    verdicts = [one.verdict for one in found.groups]
    whole = count(found.declared, "group")
    if not verdicts:
        declared = f"{whole} declared" if found.declared else "no file declares one"
        return f"no group starts differently: {declared}"
    said = [f"{verdicts.count(v)} {_LABELS[v].plain.lower()}" for v in _LABELS if v in verdicts]
    starts = "starts" if len(verdicts) == 1 else "start"
    return f"{len(verdicts)} of {whole} {starts} differently: {', '.join(said)}"


def _rows(one: Judgement) -> Rows:
    yield from labelled(
        "change",
        (
            f"{each.what}{f'  {each.before} → {each.after}' if each.after else ''}   {each.file}"
            f"{f':{each.line}' if each.line else ''}"
            for each in one.changes
        ),
    )
    stages = (("", one.before), ("during the roll-out ", one.during), ("then ", one.after))
    runs = [
        f"{label}{at.assignor}"
        + ("" if at.protocol is RebalanceProtocol.CANNOT_TELL else f" ({at.protocol.value})")
        for label, at in stages
        if at is not None and at.assignor
    ]
    known = one.before is not None and one.before.assignor is not None and len(runs) > 1
    yield from labelled("runs", [" · ".join(runs)] if known else [])
    yield (
        "live group" if one.live else "roll-out",
        one.reason + (f" ({', '.join(one.rules)})" if one.rules else ""),
    )
    for number, path in enumerate(one.paths):
        yield ("or" if number else "instead"), path.name
        for step in path.steps:
            yield "", f"  {step.brings}"
            yield from (("", to_paste(line, 4)) for line in step.setting)
    yield from labelled("look at", (f"{each.source}: {each.text}" for each in one.hazards))


def _lines(one: Judgement) -> Iterator[str]:
    """Return the lines of one group, each as `label: text`; a line without a label is indented."""
    return (f"{label}: {text}" if str(label) else f"  {text}" for label, text in _rows(one))


def _result(one: Judgement) -> dict[str, Any]:
    """Return the SARIF result of one group; its locations are the first change in each file."""
    first = {change.file: change for change in reversed(one.changes)}
    where = {"fullyQualifiedName": f"consumer-groups/{one.group}", "kind": "resource"}
    return {
        "ruleId": _RULE["id"],
        "ruleIndex": 0,
        "level": _LEVELS[one.verdict],
        "message": {"text": "\n".join(_lines(one))},
        "locations": [
            {
                "physicalLocation": {
                    "artifactLocation": {"uri": uri_of(Path(file))},
                    **({"region": {"startLine": first[file].line}} if first[file].line else {}),
                },
                "logicalLocations": [{"name": one.group, **where}],
            }
            for file in dict.fromkeys(change.file for change in one.changes)
        ],
        "partialFingerprints": {"group/v1": sha256(one.group.encode()).hexdigest()[:32]},
    }
