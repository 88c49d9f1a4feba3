"""A stable group of classic consumers, as most tests want it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from rebal.groups.model import Group, GroupSnapshot, GroupState, GroupType, Member

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)


def stable_group(*members: Member, **fields: Any) -> GroupSnapshot:
    """`fields` are those of the snapshot and of its group, which share no name."""
    known: dict[str, Any] = {
        "group_id": "g",
        "state": GroupState.STABLE,
        "type": GroupType.CLASSIC,
        "protocol_type": "consumer",
    }
    known |= {name: fields.pop(name) for name in Group.__struct_fields__ if name in fields}
    usual: dict[str, Any] = {"group": Group(**known), "captured_at": NOW, "members": members}
    return GroupSnapshot(**{**usual, **fields})
