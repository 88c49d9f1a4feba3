"""Clients that the coordinator rejected and that are not back: one entry for each client.

A client is known by its instance id, else by its client id, address and connection as the request
log shows them: five pods with one client id are five clients. It is back when the evidence shows
that very client joining since (`Refusal.rejoined_as`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rebal.groups.evidence_exact import when
from rebal.groups.model import Refusal

if TYPE_CHECKING:
    from rebal.planner.context import Context


def still_out(context: Context) -> tuple[Refusal, ...]:
    """Return the newest rejection of each client that is not back, the oldest first."""
    newest: dict[tuple[str, ...], Refusal] = {}
    for one in sorted(context.snapshot.refusals, key=lambda each: when(each.at)):
        newest[_client(one)] = one
    return tuple(one for one in newest.values() if one.rejoined_as is None)


def _client(one: Refusal) -> tuple[str, ...]:
    if one.instance_id:
        return (one.instance_id,)
    return (one.client_id, one.host, one.connection)
