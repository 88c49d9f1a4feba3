"""Looks at a group in their order, for what `verify` says of one after another."""

from datetime import timedelta
from typing import Any

from msgspec import json
from msgspec.structs import replace

from rebal.cli.planning import Wishes, plan_rollback
from rebal.groups.model import GroupSnapshot
from rebal.groups.snapshot.documents import dec_hook, enc_hook
from rebal.planner.plan import Accepted, Plan
from rebal.planner.verification.journal import JournalEntry
from rebal.planner.verification.verify import Standing, confirm, entry_of, verify
from tests.planner.builder import AT, group_of


def look(minutes: float, members: list[dict[str, Any]], **more: Any) -> GroupSnapshot:
    """The group (in the builder's shorthand) so long after the plan was made; not reloaded."""
    made = group_of({"members": members, "reloaded": False, **more})
    return replace(made, captured_at=AT + timedelta(minutes=minutes))


def pods(*starts: int, **more: Any) -> list[dict[str, Any]]:
    """Members with a client id each; the number counts the starts of the process."""
    return [app(n, s, **more) for n, s in enumerate(starts)]


def app(number: int, start: int = 1, **more: Any) -> dict[str, Any]:
    return {"id": f"app-{number}.{start}", "client": f"app-{number}", **more}


def bare(number: int, start: int = 1) -> dict[str, Any]:
    """One whose client nobody knows."""
    return app(number, start, family=None)


def id_of(number: int, start: int = 1) -> str:
    return f"app-{number}.{start}-0f0f"


class Story:
    """Each look held against the plan, with the journal between them as its file keeps it."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.entries: list[JournalEntry] = []

    def __call__(self, snapshot: GroupSnapshot, **more: Any) -> Standing:
        standing = verify(self.plan, self.entries, snapshot, **more)
        entry = entry_of(self.plan, standing, snapshot, entries=self.entries)
        written = json.encode(entry, enc_hook=enc_hook)
        self.entries.append(json.decode(written, type=JournalEntry, dec_hook=dec_hook))
        return standing

    def confirm(self, snapshot: GroupSnapshot, step: int, reason: str, **named: Any) -> None:
        """Keep a look with the operator's word, as `rebal verify --confirm` does."""
        now = verify(self.plan, self.entries, snapshot)
        asked = verify(self.plan, self.entries, snapshot, step=step)
        word = confirm(now, asked, step, reason, **named)
        self.entries.append(replace(entry_of(self.plan, asked, snapshot), confirmed=word))


def done(standing: Standing) -> dict[str, str]:
    return {member.name: str(member.done) for member in standing.members}


def back_from(made: Plan, seen: GroupSnapshot, **wished: Any) -> Plan:
    """Return the way back from there, as --abort plans it."""
    return plan_rollback(made, [], seen, Wishes(accepted=Accepted(**wished)))
