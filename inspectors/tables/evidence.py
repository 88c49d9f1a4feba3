"""Observations of members in a scan: evidence that binds to a live group's members.

A fact about a member id is exact for as long as that id is in the group, however old the scan; it
binds to nothing once the id is gone (groups/evidence/merge.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from rebal.groups.clients import family_of
from rebal.groups.evidence.observations import Joined, Observation, Refused
from rebal.groups.model import Evidence, Software, Source
from rebal.inspectors.clock import moment
from rebal.inspectors.tables.columns import rows_of
from rebal.inspectors.tables.reader import Tables

_LISTS: Final = (
    "group_id",
    "at",
    "last_at",
    "times",
    "member_id",
    "instance_id",
    "client_id",
    "host",
    "assignors",
    "protocol_type",
    "generation",
    "refused",
    "replaced_member_id",
    "software_name",
    "software_version",
    "reason",
    "session_timeout_ms",
    "rebalance_timeout_ms",
    "evidence",
    "source",
)
_TABLE: Final = "assignor_lists"
_SOURCES: Final = {source.value: source for source in Source}


def read_observations(tables: Tables, group: str | None = None) -> Iterator[Observation]:
    """Yield each join with an exact list, and each rejected one, of one `group` or of all.

    A list that was sent more than once has the time when it was last seen. A member id that came
    after the first generation that the scan knows of its group was new then.
    """
    rows = [dict(zip(_LISTS, r, strict=True)) for r in rows_of(tables.read(_TABLE, _LISTS, group))]
    first: dict[str, int] = {}
    for row in rows:
        if row["generation"] is not None:
            known = first.get(row["group_id"], row["generation"])
            first[row["group_id"]] = min(known, row["generation"])
    for row in rows:
        generation = row["generation"]
        made = _of_list(row, new=generation is not None and generation > first[row["group_id"]])
        if made is not None:
            yield made


def _of_list(row: dict[str, Any], *, new: bool) -> Observation | None:
    at = moment(row["last_at"]) or moment(row["at"])
    evidence = Evidence(
        source=_SOURCES.get(row["evidence"], Source.OFFSETS_TOPIC),
        at=at,
        detail=row["source"] or "",
    )
    names = row["assignors"] or ()
    client_id, host = row["client_id"] or "", row["host"] or ""
    said = software_of(row["software_name"], row["software_version"], evidence)
    if row["refused"]:
        return Refused(
            group_id=row["group_id"],
            list=names,
            at=at,
            times=row["times"] or 1,
            client_id=client_id,
            instance_id=row["instance_id"],
            host=host,
            software=said,
            evidence=evidence,
        )
    if not row["member_id"]:
        return None
    return Joined(
        group_id=row["group_id"],
        member_id=row["member_id"],
        list=names,
        new=new,
        at=at,
        client_id=client_id,
        instance_id=row["instance_id"],
        host=host,
        software=said,
        reason=row["reason"],
        generation_id=row["generation"],
        session_timeout_ms=row["session_timeout_ms"],
        rebalance_timeout_ms=row["rebalance_timeout_ms"],
        protocol_type=row["protocol_type"] or "consumer",
        replaced_member_id=row["replaced_member_id"],
        evidence=evidence,
    )


def software_of(name: str | None, version: str | None, evidence: Evidence) -> Software | None:
    """Return the client software of this name and version; None where no name is known."""
    if not name:
        return None
    return Software(
        family=family_of(name, version), name=name, version=version, evidence=(evidence,)
    )
