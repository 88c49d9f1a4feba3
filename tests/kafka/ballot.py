"""`elected`: what a real coordinator elects for members with given ordered assignor lists.

The members are bare connections, so that any name and any list can be put to the vote, in any order
of joining.
"""

import uuid
from collections.abc import Sequence
from typing import Any

from rebal.groups.model import Subscription
from tests.encoders import encode_subscription
from tests.kafka.broker import Broker
from tests.kafka.rawwire import PATIENCE, Wire, join_request, leave_request, ready

_SUBSCRIPTION = encode_subscription(Subscription(version=0, topics=("vote",)))


class _Voter:
    """A member; `answer` is that to its last JoinGroup, None while it waits for the rebalance."""

    def __init__(self, broker: Broker, group: str, names: Sequence[str]) -> None:
        self.wire = Wire(broker)
        self.member_id = ""
        self.answer: Any = None
        self._group = group
        self._sent = dict.fromkeys(names, _SUBSCRIPTION)

    def join(self) -> None:
        self.answer = None
        self.wire.send(
            join_request(
                self._group, self.member_id, self._sent, session_ms=6000, rebalance_ms=6000
            )
        )

    def receive(self) -> None:
        self.answer = self.wire.receive(PATIENCE)
        assert self.answer is not None, "a JoinGroup was not answered"
        self.member_id = self.answer.member_id


def elected(broker: Broker, lists: Sequence[Sequence[str]]) -> str:
    """The assignor that `broker` elects for a fresh group; members join in the order of `lists`."""
    group = f"ballot-{uuid.uuid4().hex}"
    broker.wait_coordinator(group)
    voters = [_Voter(broker, group, names) for names in lists]
    try:
        for voter in voters:
            # The first answer gives a member its id (KIP-394).
            voter.join()
            voter.receive()
            voter.join()
            if voter is voters[0]:
                # It is alone at first; the others wait in line until it joins again.
                voter.receive()
        return _ended(group, voters)
    finally:
        for voter in voters:
            voter.wire.close()


def _ended(group: str, voters: Sequence[_Voter]) -> str:
    """Join again and again, until one generation holds all; then leave."""
    while True:
        answered = [voter for voter in voters if voter.answer is not None]
        codes = {voter.answer.error_code for voter in answered}
        assert codes <= {0}, f"JoinGroup was answered with {codes}"
        found = {(one.answer.generation_id, one.answer.protocol_name) for one in answered}
        whole = max((len(voter.answer.members) for voter in answered), default=0) == len(voters)
        if whole and len(answered) == len(voters) and len({number for number, _ in found}) == 1:
            assert len(found) == 1, f"one generation, several assignors: {found}"
            leaving = dict.fromkeys((voter.member_id for voter in voters), None)
            voters[0].wire.ask(leave_request(group, leaving))
            return found.pop()[1]
        for voter in answered:
            voter.join()
        waiting = [voter for voter in voters if voter.answer is None]
        there = ready([voter.wire for voter in waiting], PATIENCE)
        assert there, "the coordinator did not complete the rebalance in time"
        for voter in waiting:
            if voter.wire in there:
                voter.receive()
