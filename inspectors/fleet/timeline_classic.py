"""A classic group's record as the members of one generation."""

from __future__ import annotations

from collections.abc import Mapping

from rebal.groups.wire.group_metadata import GroupMetadata, GroupMetadataMember
from rebal.inspectors.fleet.timeline_log import MILLI
from rebal.inspectors.fleet.timeline_members import NOT_GIVEN, Seen, Standing
from rebal.inspectors.fleet.timeline_values import UNTOLD, Values


def members(
    value: GroupMetadata, before: Mapping[str, Standing], values: Values, alone: bool
) -> list[Seen]:
    """The members in `value`; those that are as `before` are the same objects.

    Where the record stands `alone`, without a log, a new generation in a subscription is no change
    and is taken over. Only the protocol type `consumer` has subscriptions that can be read.
    """
    consumer = value.protocol_type == "consumer"
    found: list[Seen] = []
    for entry in value.members:
        standing = before.get(entry.member_id)
        if standing is not None:
            same = standing.seen
            if same.entry is entry or (alone and consumer and _only_rejoined(same, entry, values)):
                found.append(same)
                continue
        found.append(
            Seen(
                entry.member_id,
                entry.instance_id,
                entry.client_id,
                entry.client_host,
                session_timeout_ms=entry.session_timeout_ms,
                rebalance_timeout_ms=entry.rebalance_timeout_ms,
                sent=values.sent(entry.subscription) if consumer else UNTOLD,
                given=values.given(entry.assignment) if consumer else NOT_GIVEN,
                entry=entry,
                protocol_type="classic",
            )
        )
    return found


def ended(at: int, value: GroupMetadata) -> int:
    """When the rebalance ended of a group's first record, which may be a later rewrite of it.

    The state's time is then far before the record's, for a static member's restart keeps it.
    """
    stamp = (value.state_timestamp_ms or -1) * MILLI
    if not value.members or not 0 < stamp <= at:
        return at
    longest = max(one.rebalance_timeout_ms or one.session_timeout_ms for one in value.members)
    return stamp if at - stamp > longest * MILLI else at


def _only_rejoined(seen: Seen, entry: GroupMetadataMember, values: Values) -> bool:
    """Is only the generation in its subscription new; it is taken over then."""
    old = seen.entry
    if not isinstance(old, GroupMetadataMember) or entry.member_id is not old.member_id:
        return False  # the reader gives the same text where all before the subscription is same
    if entry.assignment != old.assignment:
        return False
    sent, was = values.sent(entry.subscription), seen.sent
    if sent.topics != was.topics or sent.owned != was.owned or sent.error != was.error:
        return False
    seen.sent, seen.entry = sent, entry
    return True
