"""The members' table of `rebal inspect`: one line a member, equal lines folded in large groups."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from itertools import groupby
from typing import TYPE_CHECKING, Final

from rich.text import Text

from rebal.cli.render.common import (
    Column,
    FittingTable,
    assignors_text,
    count,
    evidence_text,
    known_lag,
    lag_by_member,
    partition_count,
    partitions_text,
    software_text,
    spread,
)
from rebal.cli.report import Report
from rebal.groups.model import Knowledge, Member, RebalanceProtocol, Record
from rebal.planner.context import names
from rebal.planner.plan import Severity

if TYPE_CHECKING:
    from rich.console import RenderableType

FOLD_ABOVE: Final = 20
FOLD_FROM: Final = 4


class _Row(Record, frozen=True, kw_only=True):
    """One member, ready to print; `key` is equal for members that may share a line."""

    name: str
    end: str
    host: str
    client: str
    assignors: str
    evidence: str
    runs: str
    partitions: int
    lag: int | None
    named: bool
    owned: str

    @property
    def key(self) -> tuple[str, str, str]:
        return self.client, self.assignors, self.runs


def members_table(report: Report, now: datetime, *, wide: bool = False) -> RenderableType:
    """The table of `report`'s members; times are told as of `now`."""
    rows = list(_rows(report, now))
    show_runs = wide or report.runs is RebalanceProtocol.MIXED
    columns = [
        Column("MEMBER"),
        Column("HOST", rank=3),
        Column("CLIENT"),
        Column("ASSIGNORS"),
        Column("EVIDENCE", rank=2),
        Column("RUNS", rank=0 if show_runs else 9),
        Column("PARTS", right=True),
        Column("LAG", right=True, rank=1 if known_lag(report.snapshot) else 9),
        *([Column("OWNS")] if wide else []),
    ]
    keep = [n for n, column in enumerate(columns) if column.rank < 9]
    lines = _folded(rows) if len(rows) > FOLD_ABOVE and not wide else map(_line, rows)
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
    for member in sorted(snapshot.members, key=lambda m: (labels[m.member_id], m.member_id)):
        name = labels[member.member_id]
        runs = report.member_runs.get(member.member_id)
        yield _Row(
            name=name,
            end="" if "…" in name else f" …{member.member_id[-4:]}",
            host=member.host.removeprefix("/"),
            client=software_text(member.software),
            assignors=_list(member),
            evidence=evidence_text(member.assignors.evidence, now),
            runs=runs.value if runs else "",
            partitions=partition_count(member.assignment),
            lag=lags[member.member_id],
            named=member.member_id in named,
            owned=partitions_text(member.assignment),
        )


def _list(member: Member) -> str:
    if member.protocol_type == "consumer":
        return "none (consumer protocol)"
    text = assignors_text(member.assignors)
    declared = member.declared
    if declared is not None and member.assignors.knowledge is not Knowledge.DECLARED:
        start = ", ".join(declared.list) or "its client's default"
        if declared.list != member.assignors.list:
            text += f"; next start: {start}"
    return text


def _line(row: _Row) -> list[str | Text]:
    return [
        Text.assemble((row.name, "bold" if row.named else ""), (row.end, "dim")),
        row.host,
        row.client,
        row.assignors,
        Text(row.evidence, style="dim"),
        row.runs,
        f"{row.partitions:,}",
        "?" if row.lag is None else f"{row.lag:,}",
        row.owned,
    ]


def _folded(rows: Sequence[_Row]) -> Iterator[list[str | Text]]:
    """Members that differ in nothing that matters share a line; those a blocking finding names
    stand alone, first."""
    yield from (_line(row) for row in rows if row.named)
    rest = sorted((row for row in rows if not row.named), key=lambda row: row.key)
    groups = sorted((list(found) for _, found in groupby(rest, key=lambda row: row.key)), key=len)
    for found in groups:
        if len(found) < FOLD_FROM:
            yield from map(_line, found)
            continue
        yield [
            Text(f"{len(found):,} members", style="bold"),
            count(len({row.host for row in found}), "host"),
            found[0].client,
            found[0].assignors,
            Text(_evidence_range([row.evidence for row in found]), style="dim"),
            found[0].runs,
            spread(row.partitions for row in found),
            _total([row.lag for row in found]),
            "",
        ]


def _total(lags: Sequence[int | None]) -> str:
    known = [lag for lag in lags if lag is not None]
    return f"{sum(known):,}" if len(known) == len(lags) else f"≥ {sum(known):,}"


def _evidence_range(texts: Sequence[str]) -> str:
    different = sorted(set(texts))
    return different[0] if len(different) == 1 else f"{different[0]}, and others"
