"""The zone of a request log whose times name none, by generations that the records date too.

It is what `inspect` does with one group's log (`groups.evidence.logs`): a generation's record is
written when its leader's SYNC_GROUP is answered, so the two times are one moment.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as sql

from rebal.groups.evidence.logs import zone_offset
from rebal.groups.wire.offsets_topic import GROUP_METADATA, generation_in

_LOOKED_AT: Final = 64
"""Generations that are looked at; all must show the same zone."""
_HEAD: Final = 300
"""Bytes of a record's value up to its generation, at most."""
_CLASSIC: Final = GROUP_METADATA.to_bytes(2, "big")


def synced_in(requests: DataFrame) -> Mapping[tuple[str, int], int]:
    """Return when leaders synced, by group and generation, where the times name no zone.

    Times are microseconds since 1970, as if they were UTC.
    """
    rows = requests.where("local AND api = 'SYNC_GROUP' AND error = 0 AND size(assignments) > 0")
    found = rows.select("group_id", "generation", sql.unix_micros("at")).limit(_LOOKED_AT).collect()
    return {(group_id, generation): at for group_id, generation, at in found}


def offset_of(synced: Mapping[tuple[str, int], int], records: DataFrame) -> timedelta | None:
    """Return how far the log's clock is ahead of UTC; None: no record shows it, or several differ.

    `records` are rows of `schemas.TIMELINE` of the groups in `synced`.
    """
    rows = records.where(sql.substring("key", 1, 2) == sql.lit(_CLASSIC)).where("value IS NOT NULL")
    head = sql.substring("value", 1, _HEAD)
    written: dict[tuple[str, int], int] = {}
    for group_id, at, value in rows.select("group_id", sql.unix_micros("at"), head).collect():
        key = group_id, generation_in(bytes(value))
        written[key] = min(at, written.get(key, at))
    apart = [timedelta(microseconds=synced[key] - written[key]) for key in synced.keys() & written]
    found = {zone_offset(each) for each in apart} - {None}
    return found.pop() if len(found) == 1 else None
