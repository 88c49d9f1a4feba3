"""The text of `rebal inspect`: a screen for each group, the answer first, the next command last."""

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from itertools import groupby
from textwrap import wrap
from typing import Final, NamedTuple

from rich.cells import cell_len
from rich.text import Text

from rebal.cli.output import View
from rebal.cli.render.text import (
    Column,
    FittingTable,
    Forms,
    Rows,
    asks_of_a_fact,
    assignors_text,
    count,
    evidence_text,
    facts,
    known_lag,
    lag_by_member,
    listing,
    partitions_text,
    severity_style,
    software_text,
    spread,
    to_run,
    urgent_view,
    when,
)
from rebal.cli.report import Report
from rebal.groups.commands import Command
from rebal.groups.model import (
    GroupSnapshot,
    GroupState,
    GroupType,
    Knowledge,
    Member,
    ProbeAnswer,
    RebalanceProtocol,
    Source,
    Tri,
)
from rebal.groups.protocol import KIPS, classic_members_of_a_consumer_group
from rebal.planner.commands import explain
from rebal.planner.context import COOPERATIVE_STICKY, names
from rebal.planner.facts import all_partitions, natural, owned
from rebal.planner.plan import Finding, Severity
from rebal.planner.timeouts import in_words

_LABEL: Final = 10
_LONGEST_LABEL: Final = 24
_NAMES: Final = 28


def inspect_view(
    report: Report, next_command: Command, *, now: datetime | None = None, wide: bool = False
) -> View:
    """Return the screen of one group. `next_command` is the command to type next.

    Ages are relative to `now` (default: the time at which the group was captured). `wide` shows
    every member on a line of its own, with its partitions, and every finding's fix.
    """
    snapshot = report.snapshot
    now = now or snapshot.captured_at
    group_id = snapshot.group.group_id
    head: list[tuple[str | Text, Text | Forms]] = [(Text(group_id, style="bold"), _state(report))]
    above: View = []
    if cell_len(group_id) > _LONGEST_LABEL:
        above, head = [Text(group_id, style="bold")], [("", _state(report))]
    supports = list(_supports(report, now))
    head += [*_captured(snapshot, now), *_runs(report), *(_aligned(supports) if supports else ())]
    if wide and any(member.timeouts for member in snapshot.members):
        head.append(("waits", Text(in_words(snapshot.members))))
    view: View = [*urgent_view(report.findings), *above, facts(head, label=_LABEL)]
    view += [Text(""), members_table(report, now, wide=wide)] if snapshot.members else []
    said = list(_said(report, now, wide))
    view += [Text(""), facts(said, label=_LABEL)] if said else []
    view += [Text(""), facts([(Text("next:", style="bold"), next_command)], label=0)]
    return view


def _state(report: Report) -> Text:
    snapshot = report.snapshot
    group = snapshot.group
    where, lags = group.coordinator, known_lag(snapshot)
    total = sum(topic.partitions for topic in snapshot.topics)
    other = group.protocol_type not in (None, "", "consumer", group.type)
    expected, present = snapshot.expected_members, len(snapshot.members)
    missing = f" of {expected} expected" if expected not in (None, present) else ""
    address = f"{where.host}:{where.port} " if where is not None and where.host else ""
    parts = (
        str(group.state),
        str(group.type),
        f"{group.protocol_type} (not consumers)" if other else "",
        f"{count(present, 'member')}{missing}",
        count(total, "partition") if total else "",
        f"lag {sum(lags.values()):,}" if lags else "",
        "" if where is None else f"coordinator {address}({where.broker_id})",
    )
    return Text(" · ".join(filter(None, parts)))


def _captured(snapshot: GroupSnapshot, now: datetime) -> Iterator[tuple[Text, Text]]:
    at = when(snapshot.captured_at, now)
    if at != "just now":
        by = f" by {snapshot.captured_by}" if snapshot.captured_by else ""
        names = "; names are pseudonyms" if snapshot.redacted else ""
        yield Text("captured"), Text(f"{at}{by}{names}")


def _runs(report: Report) -> Iterator[tuple[Text, Text]]:
    snapshot = report.snapshot
    group = snapshot.group
    assignor = f", assignor {group.assignor}" if group.assignor else ""
    total = sum(map(owned, snapshot.members))
    label = Text("runs")
    if not snapshot.members:
        yield label, Text("nothing: no member is in the group now")
        return
    classic = len(classic_members_of_a_consumer_group(snapshot))
    if group.type is GroupType.CONSUMER and classic < len(snapshot.members):
        moves = ""
        if report.runs is RebalanceProtocol.MIXED:
            moves = "   the broker moves single partitions; " + (
                f"EAGER members stop all of theirs ({count(_stopped(report), 'partition')})"
                if _stopped(report)
                else "EAGER members own nothing now"
            )
        yield (
            label,
            Text.assemble(
                (f"KIP-848 (group.protocol=consumer){assignor}", "bold green"),
                moves,
            ),
        )
    elif group.type in KIPS:
        yield label, Text(f"{KIPS[group.type]}{assignor}", style="bold green")
    else:
        runs = report.runs
        stopped = count(_stopped(report), "partition")
        worker = group.protocol_type == "connect"
        whole = "all connectors and tasks" if worker else all_partitions(total)
        meaning = {
            RebalanceProtocol.EAGER: f"every rebalance stops {whole}"
            if not classic
            else "a member stops all its partitions whenever it has to rejoin",
            RebalanceProtocol.COOPERATIVE: "a rebalance stops only what moves",
            RebalanceProtocol.MIXED: f"every rebalance stops {stopped}"
            if _stopped(report)
            else "members that run EAGER own nothing now",
            RebalanceProtocol.CANNOT_TELL: "",
        }[runs]
        style = {
            RebalanceProtocol.EAGER: "bold",
            RebalanceProtocol.COOPERATIVE: "bold green",
        }.get(runs, "bold yellow")
        yield (
            label,
            Text.assemble((f"{runs.value}{assignor}", style), f"   {meaning}" if meaning else ""),
        )
    if report.why:
        each = "each member: " if report.of_each and len(snapshot.members) > 1 else ""
        yield Text(""), Text(f"{each}{report.why}", style="dim")


def _stopped(report: Report) -> int:
    """Return the number of partitions owned by members that run EAGER."""
    return sum(
        owned(member)
        for member in report.snapshot.members
        if report.member_runs.get(member.member_id) is RebalanceProtocol.EAGER
    )


def _supports(report: Report, now: datetime) -> Iterator[tuple[str, Text, str]]:
    snapshot = report.snapshot
    probe = snapshot.probe
    answers = {answer.assignor: answer for answer in (probe.answers if probe else ())}
    for said, found, verdict in (
        (Tri.YES, report.common.supported, Text("all members", style="green")),
        (Tri.NO, report.common.unsupported, Text("NOT all members", style="yellow")),
    ):
        for name in found:
            yield name, verdict, _source(name, answers.pop(name, None), said, report, now)
    for name in report.common.doubtful:
        answer = answers.pop(name, None)
        at = f", {when(answer.at, now)}" if answer else ""
        yield (
            name,
            Text("cannot tell", style="yellow"),
            f"probe said no{at}: {_worthless(snapshot)}",
        )
    for name, answer in answers.items():
        told = f"no answer ({answer.error})" if answer.error else str(answer.supported)
        yield name, Text("cannot tell", style="yellow"), f"probe: {told}"
    if probe is not None and probe.refused:
        yield "", Text("not probed", style="yellow"), probe.refused


def _source(name: str, answer: ProbeAnswer | None, said: Tri, report: Report, now: datetime) -> str:
    if answer is not None and answer.supported is said:
        return f"probe, {when(answer.at, now)}"
    # The vote proves the elected assignor alone.
    other = "elected, " if name != report.snapshot.group.assignor else ""
    return report.common.source.removeprefix(other).removesuffix(f", {Source.PROBE}")


def _worthless(snapshot: GroupSnapshot) -> str:
    coordinator = snapshot.group.coordinator
    since = coordinator.rebalanced_since_load if coordinator is not None else Tri.CANNOT_TELL
    if since is Tri.YES:
        return (
            "worth nothing yet: since the coordinator was loaded, a static member that is down "
            "counts with the elected assignor alone until its session ends"
        )
    if since is Tri.NO:
        text = "worth nothing: no rebalance completed since the coordinator was loaded"
    else:
        text = "worth nothing until a rebalance is seen since the coordinator was loaded"
    why = coordinator.rebalanced_why if coordinator else ""
    return f"{text} ({why.rstrip('.')})" if why else text


def _aligned(told: Iterable[tuple[str, Text, str]]) -> Iterator[tuple[str, Forms]]:
    """Yield rows that show for each assignor whether all members support it, and the source.

    `told` are (assignor, verdict, source). Assignors with the same verdict and source share a row,
    except cooperative-sticky. The rows are aligned in columns; on a narrow terminal each row is
    running text.
    """
    alike: dict[tuple[bool, str, str], tuple[list[str], Text]] = {}
    for name, verdict, source in told:
        key = (name == COOPERATIVE_STICKY, verdict.plain, source)
        alike.setdefault(key, ([], verdict))[0].append(name)
    rows = [
        (line, verdict, key[2])
        for key, (names, verdict) in alike.items()
        for line in wrap(", ".join(names), _NAMES, break_long_words=False, break_on_hyphens=False)
        or [""]
    ]
    names = max(len(name) for name, _, _ in rows)
    verdicts = max(len(verdict) for _, verdict, _ in rows)
    for n, (name, verdict, source) in enumerate(rows):
        gap = " " * (verdicts - len(verdict) + 2)
        yield (
            "supports" if n == 0 else "",
            Forms(
                Text.assemble(f"{name.ljust(names)}  ", verdict, gap, (source, "dim")),
                Text.assemble(
                    f"{name}: ".replace(",:", ":"),
                    verdict,
                    (f", {source}" if source else "", "dim"),
                ),
            ),
        )


def _said(report: Report, now: datetime, wide: bool) -> Rows:
    """Yield the rows of findings, contradictions, unmatched evidence and notes, in this order."""
    asks: list[Finding] = []
    for finding in report.findings:
        if finding.urgent:
            continue
        if finding.severity is Severity.ASK and not asks_of_a_fact(finding) and not wide:
            asks.append(finding)
            continue
        text = Text.assemble((finding.rule, "bold"), f"  {finding.message}")
        if finding.fix and wide:
            text.append(f"\ndo: {finding.fix}", style="dim")
        yield _label(finding), text
        yield from to_run(finding.commands if wide else ())
    if asks:
        rules = listing(sorted({finding.rule for finding in asks}), most=12)
        yield (
            Text("ask", style="cyan"),
            Text(f"{rules}: look at your code first"),
        )
        yield "", explain(asks[0].rule)
    snapshot = report.snapshot
    for contradiction in snapshot.contradictions:
        sources = evidence_text(contradiction.evidence, now)
        said = f"{contradiction.what}{f' ({sources})' if sources else ''}"
        yield Text("contradicts", style="yellow"), Text(said)
    # A join that is bound to no member says nothing new once every list is exact.
    every = all(one.assignors.knowledge is Knowledge.EXACT for one in snapshot.members)
    loose = [
        found
        for found in snapshot.unmatched
        if wide or not every or found.evidence.source is Source.CONFIG_FILE
    ]
    for found in loose[: None if wide else 3]:
        yield Text("unmatched", style="dim"), Text(f"{found.what}: {found.why}", style="dim")
    if len(loose) > 3 and not wide:
        yield "", Text(f"and {len(loose) - 3} more: --wide", style="dim")
    yield from ((Text("note", style="yellow"), Text(note)) for note in snapshot.notes)


def _label(finding: Finding) -> Text:
    style = severity_style(finding.severity)
    if finding.result is Tri.CANNOT_TELL:
        return Text("cannot tell", style="yellow")
    if finding.severity is Severity.BLOCK:
        step = finding.before_step
        return Text("blocks" if step is None else f"before step {step}", style=style)
    return Text({Severity.WARN: "warning", Severity.ASK: "ask"}[finding.severity], style=style)


def probe_helps(report: Report) -> bool:
    """Return whether a probe may add evidence about this group's assignor lists."""
    snapshot = report.snapshot
    return (
        not all(m.assignors.knowledge is Knowledge.EXACT for m in snapshot.members)
        and snapshot.group.state is GroupState.STABLE
        and snapshot.group.type is GroupType.CLASSIC
        and snapshot.group.protocol_type == "consumer"
        and snapshot.group.assignor != "stream"
    )


FOLD_ABOVE: Final = 20
FOLD_FROM: Final = 4


class _Row(NamedTuple):
    """One member's row in the table.

    `alike` is equal for members that may share a line. `named` is True if a blocking finding names
    this member and not all members.
    """

    member: Member
    named: bool
    lag: int | None
    evidence: str
    alike: tuple[str, str, str]
    cells: list[str | Text]


def members_table(report: Report, now: datetime, *, wide: bool = False) -> FittingTable:
    """Return the table of the report's members; ages are relative to `now`.

    In a group of more than 20 members, similar members share a line unless `wide` is set.
    """
    rows = list(_rows(report, now))
    columns = [
        Column("MEMBER"),
        Column("HOST", rank=3, under="MEMBER"),
        Column("CLIENT"),
        Column("ASSIGNORS"),
        Column("EVIDENCE", rank=2, under="ASSIGNORS"),
        Column("RUNS", rank=0 if wide or report.runs is RebalanceProtocol.MIXED else 9),
        Column("PARTS", right=True),
        Column("LAG", right=True, rank=1 if known_lag(report.snapshot) else 9),
        *([Column("OWNS")] if wide else []),
    ]
    keep = [n for n, column in enumerate(columns) if column.rank < 9]
    fold = len(rows) > FOLD_ABOVE and not wide
    lines = _folded(rows) if fold else (row.cells for row in rows)
    return FittingTable(
        [columns[n] for n in keep],
        [[line[n] for n in keep] for line in lines],
    )


def _rows(report: Report, now: datetime) -> Iterator[_Row]:
    snapshot = report.snapshot
    labels = names(snapshot.members)
    lags = lag_by_member(snapshot.members, known_lag(snapshot))
    named = {
        member_id
        for finding in report.findings
        if finding.severity is Severity.BLOCK and len(finding.members) < len(snapshot.members)
        for member_id in finding.members
    }
    for member in sorted(
        snapshot.members, key=lambda m: (natural(labels[m.member_id]), m.member_id)
    ):
        name, lag = labels[member.member_id], lags[member.member_id]
        runs = report.member_runs.get(member.member_id)
        client, list_ = software_text(member.software), _list(member)
        evidence = evidence_text(member.assignors.evidence, now)
        alone = member.member_id in named
        end = "" if "…" in name else f" …{member.member_id[-4:]}"
        cells: list[str | Text] = [
            Text.assemble((name, "bold" if alone else ""), (end, "dim")),
            member.host.removeprefix("/"),
            client,
            list_,
            Text(evidence, style="dim"),
            runs.value if runs else "",
            f"{owned(member):,}",
            "?" if lag is None else f"{lag:,}",
            partitions_text(member.assignment),
        ]
        yield _Row(member, alone, lag, evidence, (client, list_, runs.value if runs else ""), cells)


def _list(member: Member) -> str:
    if member.protocol_type == "consumer":
        return "none (consumer protocol)"
    text = assignors_text(member.assignors)
    declared = member.declared
    if declared is not None and member.assignors.knowledge is not Knowledge.DECLARED:
        start = (
            ("group.protocol=consumer",) if declared.group_protocol == "consumer" else declared.list
        )
        if start != member.assignors.list:
            text += "; next start: " + (", ".join(start) or "its client's default")
    return text


def _folded(rows: Sequence[_Row]) -> Iterator[list[str | Text]]:
    """Yield the lines of the table: first each `named` member, then the others.

    If at least `FOLD_FROM` of the others have the same client, assignor list and protocol, they
    share a line.
    """
    yield from (row.cells for row in rows if row.named)
    rest = sorted((row for row in rows if not row.named), key=lambda row: row.alike)
    for found in sorted(
        (list(found) for _, found in groupby(rest, key=lambda row: row.alike)), key=len
    ):
        if len(found) < FOLD_FROM:
            yield from (row.cells for row in found)
            continue
        client, list_, runs = found[0].alike
        evidence = sorted({row.evidence for row in found})
        known = [row.lag for row in found if row.lag is not None]
        yield [
            Text(f"{len(found):,} members", style="bold"),
            count(len({row.member.host.removeprefix("/") for row in found}), "host"),
            client,
            list_,
            Text(evidence[0] + (", and others" if len(evidence) > 1 else ""), style="dim"),
            runs,
            spread(owned(row.member) for row in found),
            f"{'' if len(known) == len(found) else '≥ '}{sum(known):,}",
            "",
        ]
