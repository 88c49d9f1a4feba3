"""What Kafka Streams puts into its subscription's user data: the head of SubscriptionInfo.

Source: Kafka's SubscriptionInfoData.json, v1 to v11, and its hand-written form before 2.4: the
version in use, the highest that the program knows (since v3), the id of its process. A version
above 11 holds only the two numbers for sure, which is all that Kafka's own leader reads of it.
"""

from __future__ import annotations

from typing import Final
from uuid import UUID

from rebal.groups.errors import WireError
from rebal.groups.model import Record
from rebal.groups.wire.primitives import Reader, Writer

HIGHEST_VERSION: Final = 11
_LATEST_SINCE: Final = 3
_PROCESS_ID: Final = 16


class StreamsUserData(Record, frozen=True, kw_only=True):
    """The head of one Streams member's user data; `rest` is all that follows, as sent.

    `version` is the one in use (upgrade.from 0.10.0 to 1.1, or an older leader, lowers it);
    `latest` the highest that the program knows, None below v3, which does not say it. `process_id`
    is the same for all members of one KafkaStreams object (None above v11, which is not known
    here).
    """

    version: int
    latest: int | None = None
    process_id: UUID | None = None
    rest: bytes = b""


def decode_streams(data: bytes) -> StreamsUserData:
    """The head of `data`, the user data of a member whose assignor is `stream`.

    Raises:
        WireError: a cut-off field, a version below 1, or a highest version below the one in use.
    """
    reader = Reader(data, "Kafka Streams subscription info")
    version = reader.int32("the version")
    if version < 1:
        raise reader.error(f"the version is {version}")
    latest = reader.int32("the highest version") if version >= _LATEST_SINCE else None
    if latest is not None and latest < version:
        raise reader.error(f"the highest version is {latest}, below the version {version}")
    known = version <= HIGHEST_VERSION
    return StreamsUserData(
        version=version,
        latest=latest,
        process_id=UUID(bytes=reader.raw(_PROCESS_ID, "the process id")) if known else None,
        rest=reader.raw(reader.remaining, "the rest"),
    )


def encode_streams(user_data: StreamsUserData) -> bytes:
    """The bytes of `user_data`.

    Raises:
        WireError: a version below 1, a field that its version has and that is None (or the other
            way round), or a highest version below the one in use.
    """
    version, latest, process_id = user_data.version, user_data.latest, user_data.process_id
    if version < 1:
        raise WireError(f"Streams' user data has no version {version}.")
    if (latest is None) is (version >= _LATEST_SINCE):
        raise WireError(f"The highest version cannot be {latest} in v{version}.")
    if (process_id is None) is (version <= HIGHEST_VERSION):
        raise WireError(f"The process id cannot be {process_id} in v{version}.")
    if latest is not None and latest < version:
        raise WireError(f"The highest version {latest} is below the version {version}.")
    writer = Writer()
    writer.int32(version, "the version")
    if latest is not None:
        writer.int32(latest, "the highest version")
    if process_id is not None:
        writer.raw(process_id.bytes)
    writer.raw(user_data.rest)
    return writer.done()
