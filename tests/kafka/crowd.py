"""`Crowd`: many consumer groups on one broker, made in milliseconds each by bare requests.

One connection joins the only member of each group, syncs it and commits its offsets; then it is
silent. The session timeout is long, so the groups stay Stable without a heartbeat.
"""

from collections.abc import Sequence
from typing import Any

from kafka.protocol.consumer import OffsetCommitRequest
from rebal.groups.compact import Partitions
from rebal.groups.model import Subscription
from rebal.groups.wire.consumer_protocol import ConsumerAssignment
from rebal.inspectors.kafka.wire import message
from tests.encoders import encode_assignment, encode_subscription
from tests.kafka.broker import Broker
from tests.kafka.rawgroup import MEMBER_ID_REQUIRED, NONE
from tests.kafka.rawwire import Wire, join_request, leave_request, sync_request

_SESSION_MS = 1_800_000
PARTITIONS = 4


class Crowd:
    """Groups whose member owns the partitions 0 to 3 of `topic`, all committed at offset 0."""

    def __init__(self, broker: Broker, topic: str) -> None:
        self._wire = Wire(broker)
        self._topic = topic
        self._owned = {topic: Partitions(range(PARTITIONS))}

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
        sent = {name: self._subscription(name) for name in assignors}
        member_id = ""
        while True:
            answer = self._wire.ask(join_request(group, member_id, sent, session_ms=_SESSION_MS))
            member_id = answer.member_id
            if answer.error_code == NONE:
                break
            assert answer.error_code == MEMBER_ID_REQUIRED, answer.error_code
        given = encode_assignment(ConsumerAssignment(version=0, partitions=self._owned))
        synced = self._wire.ask(
            sync_request(group, member_id, answer.generation_id, {member_id: given})
        )
        assert synced.error_code == NONE, synced.error_code
        return member_id, answer.generation_id

    def _commit(self, group: str, member_id: str, generation: int) -> None:
        commit = {"committed_offset": 0, "committed_leader_epoch": -1, "committed_metadata": None}
        partitions = [{"partition_index": number} | commit for number in range(PARTITIONS)]
        answer: Any = self._wire.ask(
            message(
                OffsetCommitRequest, 7, group_id=group, member_id=member_id,
                generation_id_or_member_epoch=generation, group_instance_id=None,
                topics=[{"name": self._topic, "partitions": partitions}],
            )
        )  # fmt: skip
        codes = {each.error_code for one in answer.topics for each in one.partitions}
        assert codes == {NONE}, codes

    def _subscription(self, assignor: str) -> bytes:
        """With cooperative-sticky a member keeps its partitions."""
        owned = self._owned if assignor == "cooperative-sticky" else {}
        sent = Subscription(version=1, topics=(self._topic,), owned_partitions=owned)
        return encode_subscription(sent)
