"""Processes of a group: members that are threads of one stop and start together.

Streams sends the id of its process. A Java consumer without a client id of its own gets the number
that it has in its process (ConsumerConfig.maybeOverrideClientId), as the threads of a Spring
container do: those of one address are of one process, unless a number comes twice. Then nothing
shows which of them belong together. The number of a static member is its instance id.
"""

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterator
from typing import Final

from rebal.groups.clients import is_automatic
from rebal.groups.model import GroupSnapshot, Member
from rebal.groups.streams import user_data_of

_THREAD: Final = "-StreamThread-"


def threads_of(snapshot: GroupSnapshot) -> dict[str, tuple[Member, ...]]:
    """Return member id → all members of its process; one that shows no process stands alone."""
    by_process: defaultdict[Hashable, list[Member]] = defaultdict(list)
    for process, member in _processes(snapshot):
        by_process[process].append(member)
    return {one.member_id: tuple(threads) for threads in by_process.values() for one in threads}


def _processes(snapshot: GroupSnapshot) -> Iterator[tuple[Hashable, Member]]:
    """Yield what tells each member's process from all others, and the member."""
    alike = Counter((member.client_id, member.host) for member in snapshot.members)
    shared = {host for (_, host), count in alike.items() if count > 1}
    for member in snapshot.members:
        # The bytes of other clients may read as those of Streams.
        streams = "stream" in (snapshot.group.assignor, *member.assignors.list)
        data = user_data_of(member.subscription) if streams else None
        if data is not None and data.process_id is not None:
            yield data.process_id, member
        elif (
            member.instance_id is None
            and member.host
            and member.host not in shared
            and is_automatic(snapshot.group.group_id, member.client_id)
        ):
            yield member.host, member
        else:
            yield member.member_id, member


def process_names(snapshot: GroupSnapshot) -> dict[str, str]:
    """Return member id → name of its process, such as `app (3 threads)`, for those of several
    threads; with the end of a member id where programs have one name.
    """
    several = {id_: threads for id_, threads in threads_of(snapshot).items() if len(threads) > 1}
    processes = {threads[0].member_id: threads for threads in several.values()}
    programs = {
        id_: _program(snapshot.group.group_id, threads[0]) for id_, threads in processes.items()
    }
    often = Counter(programs.values())
    named = {
        id_: f"{name}{f' …{id_[-6:]}' if often[name] > 1 else ''} ({len(processes[id_])} threads)"
        for id_, name in programs.items()
    }
    return {id_: named[threads[0].member_id] for id_, threads in several.items()}


def _program(group_id: str, thread: Member) -> str:
    """Return what the client ids of a process's threads are made of: the program's own, or the one
    that Java makes in every process, with the address.
    """
    program, _, number = thread.client_id.rpartition(_THREAD)
    if is_automatic(group_id, thread.client_id):
        return f"{thread.client_id.rpartition('-')[0]} at {(thread.host or '').removeprefix('/')}"
    return program if number and program else thread.client_id
