"""OffsetCommitValue v0..v4, the value of most records of `__consumer_offsets`.

Source: Kafka's OffsetCommitValue.json; the topic id (KIP-848's tag 0 of v4) since Kafka 4.1.
"""

from __future__ import annotations

from typing import Final

from rebal.groups.model import Record
from rebal.groups.wire.primitives import Reader

HIGHEST_OFFSET_COMMIT: Final = 4
_TOPIC_ID: Final = 0


class OffsetCommit(Record, frozen=True, kw_only=True):
    """One committed offset: the next one to be read. Times are milliseconds since 1970.

    `leader_epoch` is None below v3, `expire_timestamp_ms` None in all versions but v1, `topic_id`
    (as Kafka prints it) None below v4 and where it was not written.
    """

    version: int
    offset: int
    leader_epoch: int | None = None
    metadata: str
    commit_timestamp_ms: int
    expire_timestamp_ms: int | None = None
    topic_id: str | None = None


def decode_offset_commit(data: bytes) -> OffsetCommit:
    """The value of a record whose key is an `OffsetCommitKey` (a tombstone has none).

    Raises:
        WireError: a version other than 0..4, a cut-off field, or text that is null or not UTF-8.
    """
    reader = Reader(data, "offset commit value")
    version = reader.int16("the version")
    if not 0 <= version <= HIGHEST_OFFSET_COMMIT:
        raise reader.error(f"version {version} is not one of 0 to {HIGHEST_OFFSET_COMMIT}")
    flexible = version >= 4
    offset = reader.int64("the offset")
    leader_epoch = reader.int32("the leader epoch") if version >= 3 else None
    metadata = reader.compact_string("the metadata") if flexible else reader.string("the metadata")
    commit_timestamp = reader.int64("the commit timestamp")
    expire_timestamp = reader.int64("the expire timestamp") if version == 1 else None
    topic_id = None
    if flexible:
        tags = reader.tagged_fields("the tagged fields")
        if _TOPIC_ID in tags:
            topic_id = Reader(tags[_TOPIC_ID], "topic id").uuid("the topic id")
    return OffsetCommit(
        version=version,
        offset=offset,
        leader_epoch=leader_epoch,
        metadata=metadata,
        commit_timestamp_ms=commit_timestamp,
        expire_timestamp_ms=expire_timestamp,
        topic_id=topic_id,
    )
