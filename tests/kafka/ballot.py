"""`elected`: what a real coordinator elects for members with given ordered assignor lists.

The members are bare protocol speakers (JoinGroup v3, one connection each), so that any name and
any list can be put to the vote, in any order of joining.
"""

import contextlib
import selectors
import socket
import struct
import time
import uuid
from collections.abc import Sequence
from typing import Any

from kafka.protocol.consumer.group import JoinGroupRequest, LeaveGroupRequest
from kafka.protocol.parser import KafkaProtocol
from tests.kafka.broker import Broker

# ConsumerProtocolSubscription v0 of one topic, no user data.
_SUBSCRIPTION = struct.pack(">hih4si", 0, 1, 4, b"vote", -1)


class _Voter:
    def __init__(self, broker: Broker, group: str, names: Sequence[str]) -> None:
        host, port = broker.bootstrap.split(":")
        self.socket = socket.create_connection((host, int(port)), timeout=10)
        self.group = group
        self.names = names
        self.member_id = ""
        self.answer: Any = None
        self._parser = KafkaProtocol(client_id="voter")

    def join(self) -> None:
        self.answer = None
        self._send(
            JoinGroupRequest(
                version=3,
                group_id=self.group,
                session_timeout_ms=6000,
                rebalance_timeout_ms=6000,
                member_id=self.member_id,
                protocol_type="consumer",
                protocols=[
                    JoinGroupRequest.JoinGroupRequestProtocol(name=name, metadata=_SUBSCRIPTION)
                    for name in self.names
                ],
            )
        )

    def leave(self) -> None:
        self._send(LeaveGroupRequest(version=1, group_id=self.group, member_id=self.member_id))

    def receive(self) -> None:
        data = self.socket.recv(65536)
        if not data:
            raise ConnectionResetError("the broker closed a voter's connection")
        for _, answer in self._parser.receive_bytes(data):
            self.answer = answer
            self.member_id = answer.member_id or self.member_id

    def _send(self, request: Any) -> None:
        self._parser.send_request(request)
        self.socket.sendall(self._parser.send_bytes())


def elected(broker: Broker, lists: Sequence[Sequence[str]], timeout: float = 20) -> str:
    """The assignor that `broker` elects for a fresh group; members join in the order of `lists`."""
    group = f"ballot-{uuid.uuid4().hex}"
    broker.wait_coordinator(group)
    deadline = time.monotonic() + timeout
    with contextlib.ExitStack() as stack:
        voters = [_Voter(broker, group, names) for names in lists]
        for voter in voters:
            stack.callback(voter.socket.close)
        selector = stack.enter_context(selectors.DefaultSelector())
        for voter in voters:
            selector.register(voter.socket, selectors.EVENT_READ, voter)
        # The first member is alone at first; the others wait in line until it joins again.
        for voter in voters:
            voter.join()
            if voter is voters[0]:
                _receive(selector, deadline)
        while True:
            answered = [voter for voter in voters if voter.answer is not None]
            codes = {voter.answer.error_code for voter in answered}
            assert codes <= {0}, f"JoinGroup was answered with {codes}"
            sizes = [len(voter.answer.members) for voter in answered]
            if len(answered) == len(voters) and max(sizes) == len(voters):
                generations = {voter.answer.generation_id for voter in answered}
                names = {voter.answer.protocol_name for voter in answered}
                if len(generations) == 1:
                    assert len(names) == 1, f"one generation, several assignors: {names}"
                    for voter in voters:
                        voter.leave()
                    return names.pop()
            for voter in answered:
                voter.join()
            _receive(selector, deadline)


def _receive(selector: selectors.BaseSelector, deadline: float) -> None:
    ready = selector.select(max(0.0, deadline - time.monotonic()))
    assert ready, "the coordinator did not complete the rebalance in time"
    for key, _ in ready:
        key.data.receive()
