"""Committed offsets by a plain OffsetFetch: `committed_offsets`.

librdkafka's admin calls to a coordinator abort the whole process where the connection drops at the
wrong moment (confluentinc/librdkafka#4605, and #5397 for the cause), and a watch must outlive that.
"""

from __future__ import annotations

from typing import Any, Final

from kafka.protocol.consumer import OffsetFetchRequest

from rebal.inspectors.kafka.cluster import RawCluster
from rebal.inspectors.kafka.errors import RequestError
from rebal.inspectors.kafka.wire import Connection, Deadline, api_key, error_name, message

_EVERY_TOPIC: Final = 2
_SEVERAL_GROUPS: Final = 8
# From 10 on topics have ids and no names.
_LAST_NAMED: Final = 9


def committed_offsets(
    raw: RawCluster, group_id: str, deadline: Deadline
) -> dict[tuple[str, int], int | None]:
    """Topic and partition → the committed offset, None where there is none.

    Raises:
        ConnectError: no broker can be reached.
        RequestError: the coordinator's error, or no answer in time.
    """

    def ask(connection: Connection) -> Any:
        low, high = connection.versions.get(api_key(OffsetFetchRequest), (0, -1))
        version = min(high, _LAST_NAMED)
        if version < max(low, _EVERY_TOPIC):
            raise RequestError("UNSUPPORTED_VERSION", "the broker has no OffsetFetch by name.")
        group = {"group_id": group_id, "topics": None}
        fields = {"groups": [group]} if version >= _SEVERAL_GROUPS else group
        response = connection.exchange(message(OffsetFetchRequest, version, **fields), deadline)
        answer = response.groups[0] if version >= _SEVERAL_GROUPS else response
        if answer.error_code:
            name = error_name(answer.error_code)
            raise RequestError(name, f"the offsets of {group_id}: {name}.")
        return answer

    answer = raw.on_coordinator(group_id, deadline, ask)
    return {
        (topic.name, part.partition_index): (
            part.committed_offset if part.committed_offset >= 0 else None
        )
        for topic in answer.topics
        for part in topic.partitions
        if not part.error_code
    }
