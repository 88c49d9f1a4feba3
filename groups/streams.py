"""Which rebalance protocol a Kafka Streams program runs, by its version and its upgrade.from.

Source: AssignorConfiguration.java (which values mean EAGER); KIP-429; KIP-904; KIP-1124. That 4.1.1
does not start with upgrade.from=2.3 was seen (tests/live/test_streams_live.py).
"""

from __future__ import annotations

from typing import Final

from rebal.groups.clients import older
from rebal.groups.model import RebalanceProtocol, Software, Tri

COOPERATIVE_SINCE: Final = "2.4"
EAGER_UNTIL: Final = "4.0"
"""The first version that knows only COOPERATIVE, and does not start with an older upgrade.from."""
BRIDGE: Final = "3.9"
"""The last minor version that takes an upgrade.from of 2.3 or less."""
EAGER_VALUES: Final = (
    "0.10.0", "0.10.1", "0.10.2", "0.11.0", "1.0", "1.1", "2.0", "2.1", "2.2", "2.3",
)  # fmt: skip


def protocol_by_setting(software: Software, upgrade_from: str) -> RebalanceProtocol | None:
    """What a Streams version runs with this upgrade.from (empty: unset); None: not to be told."""
    if older(software, COOPERATIVE_SINCE) is Tri.NO:
        eager = upgrade_from in EAGER_VALUES and older(software, EAGER_UNTIL) is Tri.YES
        return RebalanceProtocol.EAGER if eager else RebalanceProtocol.COOPERATIVE
    known = older(software, COOPERATIVE_SINCE) is Tri.YES
    return RebalanceProtocol.EAGER if known else None


def protocol_by_version(software: Software | None) -> tuple[RebalanceProtocol, str] | None:
    """What a Streams version runs whatever upgrade.from says, and why; None where that decides."""
    if software is None or software.family != "streams":
        return None
    shown = software.version or software.version_range
    if older(software, COOPERATIVE_SINCE) is Tri.YES:
        return RebalanceProtocol.EAGER, f"Kafka Streams {shown} knows only EAGER"
    if older(software, EAGER_UNTIL) is Tri.NO:
        return RebalanceProtocol.COOPERATIVE, f"Kafka Streams {shown} knows only COOPERATIVE"
    return None
