"""Clients that the coordinator rejected and that are still out: one entry for each client."""

from msgspec.structs import replace

from rebal.groups.clients import is_automatic
from rebal.groups.evidence.absent import clocks_apart
from rebal.groups.evidence.exact import when
from rebal.groups.model import Departed, GroupSnapshot, Member, Refusal, Tri
from rebal.planner.admission.check import Admission, JoinEvent, admitted
from rebal.planner.admission.memory import CoordinatorMemory


def still_out(snapshot: GroupSnapshot) -> tuple[Refusal, ...]:
    """Return the newest rejection of each client that has not rejoined, the oldest first.

    `times` includes the client's earlier rejections with the same list.
    """
    newest: dict[tuple[str, ...], Refusal] = {}
    for one in sorted(snapshot.refusals, key=lambda each: when(each.at)):
        before = newest.get(client_key(one))
        often = before.times if before is not None and before.list == one.list else 0
        newest[client_key(one)] = replace(one, times=one.times + often)
    return tuple(
        one
        for one in newest.values()
        if one.rejoined_as is None and joined_since(member_of(snapshot, one), one) is not Tri.YES
    )


def rejected_again(memory: CoordinatorMemory, one: Refusal, *, stranger: bool = False) -> Admission:
    """Return whether the coordinator would admit the join that it rejected, if the client repeated
    it; a `stranger` is another program than the members.
    """
    if not one.list:
        return Admission(verdict=Tri.CANNOT_TELL, reason="its list is not known")
    # Error 23 comes after the check of the group's size (81): there was room for it.
    return admitted(
        replace(memory, room=max(memory.room, 1)),
        [
            JoinEvent(
                assignors=one.list,
                instance_id=one.instance_id,
                protocol_type="consumer" if stranger else memory.protocol_type or "consumer",
            )
        ],
    )


def label(one: Refusal) -> str:
    """Return the client's name for texts."""
    name = one.instance_id or one.client_id or "a client"
    return f"{name} ({one.host.lstrip('/')})" if one.host and not one.instance_id else name


def if_renamed(instance_id: str | None) -> str:
    """Return the sentence with the option that ends an instance id; empty for a dynamic client."""
    said = f" If {instance_id} left for good, or was renamed: --departed {instance_id}."
    return said if instance_id else ""


def client_key(one: Refusal | Departed) -> tuple[str, ...]:
    """Return what tells the client: its instance id, else its client id and address."""
    if one.instance_id:
        return (one.instance_id,)
    # A client in a crash loop comes from a new connection each time: its address stays.
    return (one.client_id, one.host)


def member_of(snapshot: GroupSnapshot, one: Refusal) -> Member | None:
    """Return the only member with the rejected client's name, from its address; None if there is no
    such member, or if several clients have that name.
    """
    members = snapshot.members
    if one.instance_id:
        same = [member for member in members if member.instance_id == one.instance_id]
    else:
        dynamic = [member for member in members if member.instance_id is None]
        named = [member for member in dynamic if member.client_id == one.client_id != ""]
        same = [member for member in named if address(member.host) in ("", address(one.host))]
        alike = (each for each in snapshot.refusals if each.client_id == one.client_id)
        # A client's own log has no address; each of its rejections stands on a line of that log.
        several = len({(o.host, o.evidence.detail.rpartition(":")[0]) for o in alike}) > 1
        if not one.host:
            same = [] if several or is_automatic(snapshot.group.group_id, one.client_id) else named
    return same[0] if len(same) == 1 else None


def joined_since(member: Member | None, one: Refusal) -> Tri:
    """Return whether the member with the rejected client's name joined after the rejection; no
    where there is none.

    A member id that was there before is another process of that client id, or its own old entry.
    """
    if member is None:
        return Tri.NO
    came = member.joined_at if one.instance_id is not None else member.first_joined_at
    if came is None or one.at is None:
        return Tri.CANNOT_TELL
    if came <= one.at:
        return Tri.NO
    return Tri.YES if came - one.at > clocks_apart(one) else Tri.CANNOT_TELL


def address(host: str) -> str:
    """Return the address without the slash that Java prints before it."""
    return host.removeprefix("/")
