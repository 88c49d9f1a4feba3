"""The result of one `rebal fleet scan`, in sentences."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from rebal.groups.commands import rebal
from rebal.inspectors.fleet.manifest import Manifest

_GROUPED: Final = (
    ("offset commits", ("OFFSET_COMMIT", "LEGACY_OFFSET_COMMIT")),
    ("of classic groups", ("GROUP_METADATA",)),
    ("of KIP-848 groups", ("CONSUMER_GROUP_",)),
    ("of share groups", ("SHARE_GROUP_",)),
    ("of streams groups", ("STREAMS_GROUP_",)),
    ("of kinds not known", ("UNKNOWN_KIND_",)),
    ("read twice", ("REPEATED",)),
    ("unreadable", ("UNREADABLE",)),
)


def summary_lines(manifest: Manifest, out: str) -> Iterator[str]:
    """Yield one sentence each: the records read, the rows written, the next command."""
    if manifest.read:
        others = "".join(
            f", {number:,} {name}" for name, number in manifest.skipped.items() if number
        )
        yield (
            f"{manifest.read:,} records of __consumer_offsets: {_kinds(manifest.records)}{others}."
        )
    if manifest.requests:
        lines, about = (manifest.requests.get(name, 0) for name in ("lines", "parsed"))
        cut_off = manifest.requests.get("cut_off", 0)
        more = f", {cut_off:,} cut off" if cut_off else ""
        yield f"{lines:,} lines of request logs, {about:,} about groups{more}."
    rows = {name: entry.rows for name, entry in manifest.tables.items()}
    made = ", ".join(
        f"{rows.get(table, 0):,} {table.replace('_', ' ')}"
        for table in ("groups", "rebalances", "assignor_lists", "incidents", "errors")
    )
    yield f"{made} are in {out}; next: {rebal('fleet report', (out,), ())}"


def _kinds(records: Mapping[str, int]) -> str:
    parts: list[str] = []
    for words, names in _GROUPED:
        amount = sum(
            count
            for kind, count in records.items()
            if any(kind == name or (name.endswith("_") and kind.startswith(name)) for name in names)
        )
        if amount or words == "unreadable":
            parts.append(f"{amount:,} {words}")
    unknown = sorted(kind for kind in records if kind.startswith("UNKNOWN_KIND_"))
    return ", ".join(parts) + (f" ({', '.join(unknown)})" if unknown else "")
