"""Members of a KIP-848 group of which only the request log tells: their heartbeats.

A heartbeat names the member, its topics and its epoch, the answer its next epoch; the assignment
has topic ids and is not kept. So there is one row a member, from its first epoch to its last.
"""

from __future__ import annotations

from collections.abc import Mapping

from rebal.inspectors.fleet.timeline.history import History
from rebal.inspectors.fleet.timeline.log import Person
from rebal.inspectors.fleet.timeline.members import Place, Standing
from rebal.inspectors.fleet.timeline.values import Head, Seen, Sent


def heard_at(persons: Mapping[str, Person]) -> int | None:
    """When one of those who sent such heartbeats was heard last; None: nobody did."""
    return max(
        (one.last_at for one in persons.values() if one.first_epoch is not None), default=None
    )


def write_members(history: History, persons: Mapping[str, Person], stay: bool = True) -> None:
    """Rows of those who sent such heartbeats; `stay` is whether who has not gone is there still."""
    for member_id in sorted(persons):
        person = persons[member_id]
        if person.first_epoch is None:
            continue
        head = Head(
            member_id,
            person.instance_id,
            person.client_id,
            person.host,
            person.rebalance_timeout_ms,
            None,
            "consumer",
        )
        seen = Seen(head, Sent(None, person.topics))
        history.roster.write(
            Standing(seen, person.first_epoch, person.first_at),
            Place(min(person.era, history.incarnation), person.last_epoch, None, person.last_at),
            person.left_at,
            person.left_reason,
            current=stay and not person.gone,
        )
