"""Rejections on the live group, with what the plan and its journal know of them.

A log is rotated, and its times may have no zone. The plan's baseline keeps the rejections that it
was made of, and the journal the member ids of each look.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from typing import Final

from msgspec.structs import replace

from rebal.groups.model import GroupSnapshot, Member, Refusal, Tri
from rebal.groups.snapshot.redact import random_end
from rebal.planner.admission.rejected import label, member_of, still_out
from rebal.planner.advice.actions import wait
from rebal.planner.advice.wording import EVIDENCE
from rebal.planner.context import Context
from rebal.planner.facts import listed
from rebal.planner.plan import Advice, Plan
from rebal.planner.verification.journal import JournalEntry
from rebal.planner.verification.plan_context import context_of

# Rejected clients that retry do so within seconds; a container's crash loop waits up to minutes.
RECENT: Final = timedelta(seconds=60)


def with_rejoined(
    plan: Plan, entries: Sequence[JournalEntry], snapshot: GroupSnapshot
) -> GroupSnapshot:
    """Return `snapshot` with the rejections resolved whose client joined after an earlier look
    showed them.

    A member id that such a look did not show is that of a later join, which no log has to show.
    """
    baseline = () if plan.baseline.redacted else plan.baseline.refusals
    then = {member.member_id for member in plan.baseline.members}
    kept = {_key(one) for one in baseline if one.connection or one.at}
    new = Counter(map(text_of, new_refusals(plan, snapshot)))
    looks = [each for each in entries if each.blind is None]

    def rejoined_as(one: Refusal) -> str | None:
        member, text = _own_member(snapshot, one), text_of(one)
        if one.rejoined_as is not None or member is None:
            return one.rejoined_as
        joined = _key(one) in kept and member.member_id not in then
        joined = joined or any(
            one.at is not None
            and one.at <= each.at
            and 0 < new[text] <= each.refused.count(text)
            and member.member_id not in each.ids
            for each in looks
        )
        return member.member_id if joined else None

    found = (replace(one, rejoined_as=rejoined_as(one)) for one in snapshot.refusals)
    return replace(snapshot, refusals=tuple(found))


def _own_member(snapshot: GroupSnapshot, one: Refusal) -> Member | None:
    """Return the member of the rejected client, if its instance id or address shows it."""
    return member_of(snapshot, one) if one.instance_id or one.host else None


def _key(one: Refusal) -> tuple[object, ...]:
    """Return what tells a rejection from the client's next one: its connection, else its time."""
    return text_of(one), one.connection or (one.at, one.evidence.detail)


def text_of(one: Refusal) -> str:
    """Return the text of a rejection in the journal."""
    return f"{one.instance_id or one.client_id} [{', '.join(one.list)}]"


def new_refusals(plan: Plan, snapshot: GroupSnapshot) -> list[Refusal]:
    """Return the rejections since the plan was made."""
    before, began = set(plan.baseline.refusals), _began(plan)
    return [
        refusal
        for refusal in snapshot.refusals
        if refusal not in before and (refusal.at is None or refusal.at >= began)
    ]


def _began(plan: Plan) -> datetime:
    """Return when the plan was made, in the milliseconds that logs print."""
    at = plan.baseline.captured_at
    return at.replace(microsecond=at.microsecond // 1000 * 1000)


def rejected_clients(plan: Plan, context: Context) -> tuple[Refusal, ...]:
    """Return the newest rejection of each client that has not rejoined.

    A client has rejoined if a log shows its join (planner/admission/rejected.py). Without a log,
    all clients have rejoined once no member is missing. A static member is counted while its
    session lasts, though its process was rejected: it is missing only after that.
    """
    # Who was out when the plan was made is out since; else an old rejection is history.
    short = len(plan.baseline.members) < (plan.expected_members or 0)
    full = not context.missing and len(context.members) >= (context.expected or 1)
    now, since = context.snapshot.captured_at, _began(plan)
    here = {None, *(facts.member.instance_id for facts in context.members)}
    static = [member for member in plan.baseline.members if member.instance_id not in here]
    if static and not full:
        # One that is gone may have stopped before the plan, which counted it all the same.
        since -= _longest_session(static)
    return tuple(
        one
        for one in still_out(context.snapshot)
        if (one.at is None or short or one.at >= since)
        and (not full or (one.at is not None and now - one.at < _counted_for(one, context)))
    )


def undated_rejections(
    plan: Plan, entries: Sequence[JournalEntry], context: Context
) -> tuple[Refusal, ...]:
    """Return the rejections of unknown time whose client may be out though the group is full.

    The coordinator counts a member that has ended without leaving until its session ends. It may be
    the rejected client's own entry, or another one that makes up the number. Where each completed
    rebalance begins that session anew, of a static member (KIP-345), there is no bound; else it is
    over so long after the first look that saw the rejection.
    """
    out = tuple(one for one in still_out(context.snapshot) if one.at is None)
    if any(facts.static for facts in context.members):
        return out
    lasts = _longest_session(facts.member for facts in context.members)
    since = context.snapshot.captured_at - lasts
    new = Counter(map(text_of, new_refusals(plan, context.snapshot)))

    def first_seen(text: str) -> datetime:
        if not new[text]:
            return plan.baseline.captured_at
        looks = (each.at for each in entries if each.refused.count(text) >= new[text])
        return next(looks, context.snapshot.captured_at)

    return tuple(one for one in out if first_seen(text_of(one)) > since)


def hidden(plan: Plan, entries: Sequence[JournalEntry], context: Context) -> Advice | None:
    """Return the advice to wait while a stopped static member may fill a rejected client's place.

    A stopped static member is counted until its session ends, and each completed rebalance begins
    that session anew (KIP-345). One that joined after the rejection is not in doubt, nor is a
    rejection that was older than a session when the plan was made. `entries` are the earlier looks,
    oldest first.
    """
    static = [facts for facts in context.members if facts.static]
    lasts = _longest_session(facts.member for facts in static)
    out = [
        (one.at, label(one))
        for one in still_out(context.snapshot)
        if one.at is not None and one.at >= _began(plan) - lasts
    ]
    if not out:
        out = list(_seen_before(entries, context))
    if not static or not out:
        return None
    at, who = max(out)
    seen = set().union(*(entry.ids for entry in entries if entry.at <= at))
    kept = [
        facts
        for facts in static
        if (id_ := facts.member.member_id) in seen or _may_be_of_baseline(plan, id_)
    ]
    until = max(at, _same_since(entries, context)) + lasts
    if not kept or context.snapshot.captured_at >= until:
        return None
    return wait(
        f"{who} was rejected and no log shows that it rejoined; "
        f"{context.named(kept)} may have stopped: the coordinator counts a stopped static member "
        f"until its session ends. Look again after {until:%H:%M:%SZ}"
    )


def _seen_before(
    entries: Sequence[JournalEntry], context: Context
) -> Iterator[tuple[datetime, str]]:
    """Yield the static members that an earlier look saw rejected and none saw back, with its time.

    Their log may have been rotated since. The rejected process is back in a member of another id;
    until then the entry that is counted may be its own.
    """
    here = {(f.member.instance_id, f.member.member_id) for f in context.members}
    counted = {instance for instance, _ in here}
    logged = set(map(text_of, context.snapshot.refusals))
    for number, entry in enumerate(entries):
        later = {(m.instance_id, m.member_id) for each in entries[number:] for m in each.members}
        for text in entry.refused:
            name = text.rpartition(" [")[0]
            ids = {id_ for instance, id_ in later | here if instance == name}
            if ids and ids <= entry.ids and not (name in counted and text in logged):
                yield entry.at, name


def _may_be_of_baseline(plan: Plan, member_id: str) -> bool:
    """Return whether this member id may be one of the plan's baseline.

    A redacted baseline has only the random end of an id. An id without one may be any of them.
    """
    before = {member.member_id for member in plan.baseline.members}
    if not plan.baseline.redacted:
        return member_id in before
    end = random_end(member_id)
    return end is None or end in {random_end(each) for each in before}


def _same_since(entries: Sequence[JournalEntry], context: Context) -> datetime:
    """Return the time of the first look since which the group has the same members."""
    here, since = {facts.member.member_id for facts in context.members}, None
    for entry in reversed(entries):
        if entry.ids != here:
            break
        since = entry.at
    return since or context.snapshot.captured_at


def estimates(plan: Plan, expect_members: int | None) -> bool:
    """Return whether the number of members is rebal's own: no user gave it.

    It is then the members and the rejected clients that the plan was made of.
    """
    known = context_of(plan, plan.baseline).expected
    return expect_members is None and plan.expected_members == known


def uncounted(plan: Plan, context: Context) -> tuple[Refusal, ...]:
    """Return the clients that were rejected and have not rejoined, without static members whose
    entry is counted.

    The rejections that the plan was made of count though their log has been rotated since.
    """
    snapshot, here = context.snapshot, {f.member.instance_id for f in context.members if f.static}
    out = [*still_out(snapshot), *_rotated_away(plan, snapshot)]
    return tuple(one for one in out if one.instance_id not in here)


def _rotated_away(plan: Plan, snapshot: GroupSnapshot) -> Iterator[Refusal]:
    """Yield the baseline's rejections of clients that no log at hand shows rejected, and that have
    no member that is new since.

    The pseudonyms of a redacted baseline match no member: whether its clients are back is not
    known.
    """
    baseline = plan.baseline
    if baseline.redacted:
        logged = snapshot.refusals
        yield from (one for one in still_out(baseline) if not _is_logged(one, logged))
        return
    before = {member.member_id for member in baseline.members}
    for one in still_out(baseline):
        member = _own_member(snapshot, one)
        new = member is not None and member.member_id not in before
        if not new and not any(_same_client(one, other) for other in snapshot.refusals):
            yield one


def _same_client(one: Refusal, other: Refusal) -> bool:
    """Return whether both may be one client's; a client's own log has no address."""
    if one.instance_id or other.instance_id:
        return one.instance_id == other.instance_id
    hosts = {one.host, other.host}
    return one.client_id == other.client_id and (len(hosts) == 1 or "" in hosts)


def _is_logged(one: Refusal, logged: Sequence[Refusal]) -> bool:
    """Return whether a log shows this redacted rejection, or a later one that stands for it.

    A later one of the same list counts while its client is out: it holds the plan up as well.
    """
    if one.at is None:
        return False
    same = [other for other in logged if (other.list, other.error) == (one.list, one.error)]
    return any(
        other.at is not None
        and (other.at == one.at or (other.at > one.at and other.rejoined_as is None))
        for other in same
    )


def _counted_for(refusal: Refusal, context: Context) -> timedelta:
    """Return how long after this rejection a full group may count a member that is down."""
    own = (facts.member for facts in context.members if facts.static)
    return _longest_session(one for one in own if one.instance_id == refusal.instance_id)


def _longest_session(members: Iterable[Member]) -> timedelta:
    """Return the longest session timeout of these members, at least `RECENT`."""
    timeouts = (member.timeouts for member in members)
    known = (one.session_ms for one in timeouts if one is not None)
    return max([RECENT, *(timedelta(milliseconds=ms) for ms in known if ms is not None)])


def count_of(out: Sequence[Refusal], here: int, *, step: int | None = None) -> Advice:
    """Return the advice to give the number of members, as the clients `out` have not rejoined.

    `here` is the number of members in the group.
    """
    one = len(out) == 1
    reason = (
        f"{listed([label(each) for each in out])} {'was' if one else 'were'} rejected and "
        f"{'has' if one else 'have'} not rejoined"
    )
    said = (
        f"give the number of members: {reason}; --expect-members {here + len(out)} if "
        f"{'it belongs' if one else 'they belong'} to the service, --expect-members {here} if not"
    )
    return Advice(action=EVIDENCE, verdict=Tri.CANNOT_TELL, reason=reason, step=step, text=said)


def if_it_is_back(missing: str, here: int) -> str:
    """Return the clause for a client that has rejoined, which no evidence shows.

    `missing` says how many members are not in the group, which has `here`.
    """
    return f"if it is back, {missing}; if the service has no more: --expect-members {here}"
