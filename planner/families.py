"""What a client family can do, in three values, from groups/clients.py."""

from __future__ import annotations

from rebal.groups.model import Record, Tri


class Able(Record, frozen=True, kw_only=True):
    """What a client of a family (and version, where it matters) can do.

    `cooperative`: it has a cooperative assignor. `mixed`: it takes a list of eager and cooperative
    assignors. `follows_vote`: its rebalance protocol is that of the elected assignor, not one that
    was fixed when the client was built.
    """

    cooperative: Tri = Tri.CANNOT_TELL
    mixed: Tri = Tri.CANNOT_TELL
    follows_vote: bool = False


_NO = Able(cooperative=Tri.NO, mixed=Tri.NO)
_ABLE = {
    "java": Able(cooperative=Tri.YES, mixed=Tri.YES),
    "librdkafka": Able(cooperative=Tri.YES, mixed=Tri.NO),
    "kafka-python": Able(cooperative=Tri.YES, mixed=Tri.NO),
    "franz-go": Able(cooperative=Tri.YES, mixed=Tri.YES, follows_vote=True),
    "kafkajs": _NO,
    "aiokafka": _NO,
    "segmentio": _NO,
    "sarama": Able(),
}
_COOPERATIVE = {
    "cooperative-sticky": Tri.YES,
    "range": Tri.NO,
    "roundrobin": Tri.NO,
    "sticky": Tri.NO,
    "RoundRobinAssigner": Tri.NO,
}


def able(family: str, version: str | None) -> Able:
    """What clients of `family` can do; all `cannot tell` for a family that is not known."""
    if (
        family == "java"
        and version
        and version.startswith(("0.", "1.", "2.0", "2.1.", "2.2", "2.3"))
    ):
        return _NO
    return _ABLE.get(family, Able())


def cooperative(assignor: str) -> Tri:
    """Does `assignor` support COOPERATIVE; `cannot tell` for a custom one."""
    return _COOPERATIVE.get(assignor, Tri.CANNOT_TELL)
