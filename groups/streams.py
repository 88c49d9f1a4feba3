"""Kafka Streams versions: the rebalance protocol that a version runs, and the user data it sends.

Sources: AssignorConfiguration.java (values of upgrade.from that mean EAGER); KIP-429; KIP-904;
KIP-1124; StreamsAssignmentProtocolVersions.java and SubscriptionInfo.java at Kafka's release tags.
tests/live/test_streams_live.py shows that 4.1.1 does not start with upgrade.from=2.3.
"""

from typing import Final

from rebal.groups.clients import older
from rebal.groups.errors import WireError
from rebal.groups.model import RebalanceProtocol, Software, Subscription, Tri
from rebal.groups.wire.user_data import StreamsUserData, decode_streams

COOPERATIVE_SINCE: Final = "2.4"
EAGER_UNTIL: Final = "4.0"
"""The first version that knows only COOPERATIVE, and does not start with an older upgrade.from."""
BRIDGE: Final = "3.9"
"""The last minor version that takes an upgrade.from of 2.3 or less."""
EAGER_VALUES: Final = (
    "0.10.0", "0.10.1", "0.10.2", "0.11.0", "1.0", "1.1", "2.0", "2.1", "2.2", "2.3",
)  # fmt: skip


def protocol_by_setting(software: Software, upgrade_from: str) -> RebalanceProtocol | None:
    """Return the protocol of a Streams version with this upgrade.from (empty: unset), if known."""
    if older(software, COOPERATIVE_SINCE) is Tri.NO:
        eager = upgrade_from in EAGER_VALUES and older(software, EAGER_UNTIL) is Tri.YES
        return RebalanceProtocol.EAGER if eager else RebalanceProtocol.COOPERATIVE
    known = older(software, COOPERATIVE_SINCE) is Tri.YES
    return RebalanceProtocol.EAGER if known else None


def protocol_by_version(software: Software | None) -> tuple[RebalanceProtocol, str] | None:
    """Return the protocol that a Streams version runs with any upgrade.from, and the reason.

    None where upgrade.from decides.
    """
    if software is None or software.family != "streams":
        return None
    shown = software.version or software.version_range
    if older(software, COOPERATIVE_SINCE) is Tri.YES:
        return RebalanceProtocol.EAGER, f"Kafka Streams {shown} knows only EAGER"
    if older(software, EAGER_UNTIL) is Tri.NO:
        return RebalanceProtocol.COOPERATIVE, f"Kafka Streams {shown} knows only COOPERATIVE"
    return None


# By the highest version of the user data that a program knows; a 2.0 or later program says it.
_RELEASES: Final = {
    3: ("2.0", "2.1"),
    4: ("2.1", "2.4"),
    5: ("2.4", "2.5"),
    6: ("2.5", "2.6"),
    7: ("2.6", "2.6.1"),
    8: ("2.6.1", "2.8"),
    9: ("2.8", "3.0"),
    10: ("3.0", "3.2"),
}
# The consumer inside sends v0 subscriptions before 2.4, and v3 since 3.4.
_V3_SINCE: Final = "3.4"


def user_data_of(subscription: Subscription | None) -> StreamsUserData | None:
    """Return the head of a member's user data; None if it is not that of a Streams member."""
    if subscription is None or not subscription.user_data:
        return None
    try:
        return decode_streams(subscription.user_data)
    except WireError:
        return None


def releases_of(subscription: Subscription) -> str | None:
    """Return the range of Streams versions that send such user data (`>= 3.0, < 3.2`), if it is
    known.

    upgrade.from 0.10.0 to 1.1 makes newer programs write old user data, which then says nothing.
    """
    data = user_data_of(subscription)
    if data is None:
        return None
    if data.latest is None:
        return "< 2.4" if subscription.version == 0 else None
    if data.latest in _RELEASES:
        low, high = _RELEASES[data.latest]
        return f">= {low}, < {high}"
    # 11 is what all versions since 3.2 know, up to the newest seen (4.1).
    is_new = data.latest >= 11 and subscription.version >= 1
    v3 = subscription.version >= 3
    return (f">= {_V3_SINCE}" if v3 else f">= 3.2, < {_V3_SINCE}") if is_new else None
