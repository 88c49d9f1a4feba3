"""What a step of a plan changes, and what proves it of one member: the words of `Gate.aim`."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum

from rebal.groups.model import Record, Tri
from rebal.planner.context import Context, Facts
from rebal.planner.plan import Step


class Aim(StrEnum):
    """What a step changes, and so what proves it.

    widen: the target joins every list; narrow: nothing but the target's kind stays; refresh: a
    rebalance after the coordinator's load; consumer: KIP-848; classic: back from it, on the target
    alone; by-hand: a setting that nothing on the wire shows. Kafka Streams: on 2.4 or later, on
    COOPERATIVE, back below 4.0, on EAGER, back below 2.4. Connect workers: incremental, eager.
    """

    WIDEN = "widen"
    NARROW = "narrow"
    REFRESH = "refresh"
    CONSUMER = "consumer"
    CLASSIC = "classic"
    BY_HAND = "by-hand"
    STREAMS_NEW = "streams-new"
    STREAMS_COOPERATIVE = "streams-cooperative"
    STREAMS_BRIDGE = "streams-bridge"
    STREAMS_EAGER = "streams-eager"
    STREAMS_OLD = "streams-old"
    CONNECT_INCREMENTAL = "connect-incremental"
    CONNECT_EAGER = "connect-eager"


class Proof(Record, frozen=True, kw_only=True):
    """Has a member made a step, and why that is said.

    `by_hand` (only where it cannot be told): no evidence is sure to show it, so a person may look,
    and `rebal verify --confirm` takes their word.
    """

    done: Tri
    why: str = ""
    by_hand: bool = False


GateCheck = Callable[[Context, Step, Facts], Proof]
