"""`Crowd`: many consumer groups on one broker, made in milliseconds each by bare requests.

One connection joins the only member of each group, syncs it and commits its offsets; then it is
silent. The session timeout is long, so the groups stay Stable without a heartbeat.
"""

import struct
from collections.abc import Sequence
from typing import Any

from kafka.protocol.consumer import OffsetCommitRequest
from kafka.protocol.consumer.group import JoinGroupRequest, SyncGroupRequest
from tests.kafka.broker import Broker
from tests.kafka.rawgroup import MEMBER_ID_REQUIRED, NONE
from tests.kafka.rawwire import Wire, leave_request

_SESSION_MS = 1_800_000
PARTITIONS = 4


class Crowd:
    """Groups whose member owns the partitions 0 to 3 of `topic`, all committed at offset 0."""

    def __init__(self, broker: Broker, topic: str) -> None:
        self._wire = Wire(broker)
        self._topic = topic

    def __enter__(self) -> "Crowd":
        return self

    def __exit__(self, *_: object) -> None:
        self._wire.close()

    def add(self, group: str, assignors: Sequence[str]) -> str:
        """Make one group, and return its member's id."""
        member = self._join(group, assignors)
        self._commit(group, *member)
        return member[0]

    def empty(self, group: str) -> None:
        """Make one group whose member has left: its offsets keep it."""
        member_id = self.add(group, ["range"])
        answer = self._wire.ask(leave_request(group, {member_id: None}))
        assert answer.error_code == NONE

    def _join(self, group: str, assignors: Sequence[str]) -> tuple[str, int]:
        protocol = JoinGroupRequest.JoinGroupRequestProtocol
        member_id = ""
        while True:
            answer = self._wire.ask(
                JoinGroupRequest(
                    version=7,
                    group_id=group,
                    session_timeout_ms=_SESSION_MS,
                    rebalance_timeout_ms=60_000,
                    member_id=member_id,
                    group_instance_id=None,
                    protocol_type="consumer",
                    protocols=[
                        protocol(name=name, metadata=self._subscription(name)) for name in assignors
                    ],
                )
            )
            member_id = answer.member_id
            if answer.error_code == NONE:
                break
            assert answer.error_code == MEMBER_ID_REQUIRED, answer.error_code
        assignment = SyncGroupRequest.SyncGroupRequestAssignment
        synced = self._wire.ask(
            SyncGroupRequest(
                version=3,
                group_id=group,
                generation_id=answer.generation_id,
                member_id=member_id,
                group_instance_id=None,
                assignments=[assignment(member_id=member_id, assignment=self._assignment())],
            )
        )
        assert synced.error_code == NONE, synced.error_code
        return member_id, answer.generation_id

    def _commit(self, group: str, member_id: str, generation: int) -> None:
        topic = OffsetCommitRequest.OffsetCommitRequestTopic
        part = topic.OffsetCommitRequestPartition
        answer: Any = self._wire.ask(
            OffsetCommitRequest(
                version=7,
                group_id=group,
                generation_id_or_member_epoch=generation,
                member_id=member_id,
                group_instance_id=None,
                topics=[
                    topic(
                        name=self._topic,
                        partitions=[
                            part(
                                partition_index=number,
                                committed_offset=0,
                                committed_leader_epoch=-1,
                                committed_metadata=None,
                            )
                            for number in range(PARTITIONS)
                        ],
                    )
                ],
            )
        )
        codes = {each.error_code for one in answer.topics for each in one.partitions}
        assert codes == {NONE}, codes

    def _topics(self) -> bytes:
        name = self._topic.encode()
        return struct.pack(">ih", 1, len(name)) + name

    def _owned(self) -> bytes:
        return self._topics() + struct.pack(f">i{PARTITIONS}i", PARTITIONS, *range(PARTITIONS))

    def _subscription(self, assignor: str) -> bytes:
        """ConsumerProtocolSubscription v1; with cooperative-sticky it keeps its partitions."""
        owned = self._owned() if assignor == "cooperative-sticky" else struct.pack(">i", 0)
        return struct.pack(">h", 1) + self._topics() + struct.pack(">i", -1) + owned

    def _assignment(self) -> bytes:
        """ConsumerProtocolAssignment v0."""
        return struct.pack(">h", 0) + self._owned() + struct.pack(">i", -1)
