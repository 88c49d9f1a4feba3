"""Which Kafka Streams versions send the user data that a member sent.

Source: StreamsAssignmentProtocolVersions.java and SubscriptionInfo.java at Kafka's release tags.
"""

from __future__ import annotations

from typing import Final

from rebal.groups.errors import WireError
from rebal.groups.model import Subscription
from rebal.groups.wire.streams import StreamsUserData, decode_streams

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
    """The head of a member's user data; None where there is none, or it is not Streams' own."""
    if subscription is None or not subscription.user_data:
        return None
    try:
        return decode_streams(subscription.user_data)
    except WireError:
        return None


def releases_of(subscription: Subscription) -> str | None:
    """The Streams versions that sent such bytes, as `>= 3.0, < 3.2`; None when they do not tell.

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
