"""Kafka Streams versions: the rebalance protocol that a version runs, and the user data it sends.

Sources: AssignorConfiguration.java (values of upgrade.from that mean EAGER); KIP-429; KIP-904;
KIP-1124; StreamsAssignmentProtocolVersions.java and SubscriptionInfo.java at Kafka's release tags.
tests/live/test_streams_live.py shows that 4.1.1 does not start with upgrade.from=2.3.

The second half finds the members that are threads of one process, and so stop and start together. A
Streams member sends the id of its process. A Java consumer without a configured client id gets a
client id with its number in the process (ConsumerConfig.maybeOverrideClientId), as the threads of a
Spring container do. Such members at one address belong to one process, unless a number occurs twice
at the address: then nothing shows which of them belong together. A static member has its instance
id in place of the number, so nothing shows its process.
"""

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterator
from typing import Final

from rebal.groups.clients import is_default_client_id, older
from rebal.groups.errors import WireError
from rebal.groups.model import GroupSnapshot, Member, RebalanceProtocol, Software, Subscription, Tri
from rebal.groups.wire.consumer_protocol import StreamsUserData, decode_streams

COOPERATIVE_SINCE: Final = "2.4"
EAGER_UNTIL: Final = "4.0"
"""First version without EAGER; it does not start with an upgrade.from of 2.3 or older."""
BRIDGE: Final = "3.9"
"""Last minor version that accepts an upgrade.from of 2.3 or older."""
EAGER_VALUES: Final = (
    "0.10.0", "0.10.1", "0.10.2", "0.11.0", "1.0", "1.1", "2.0", "2.1", "2.2", "2.3",
)  # fmt: skip


def protocol_by_setting(software: Software, upgrade_from: str) -> RebalanceProtocol | None:
    """Return the rebalance protocol of a Streams version with this upgrade.from (empty: unset).

    None if the version is not known.
    """
    if older(software, COOPERATIVE_SINCE) is Tri.NO:
        eager = upgrade_from in EAGER_VALUES and older(software, EAGER_UNTIL) is Tri.YES
        return RebalanceProtocol.EAGER if eager else RebalanceProtocol.COOPERATIVE
    return RebalanceProtocol.EAGER if older(software, COOPERATIVE_SINCE) is Tri.YES else None


def protocol_by_version(software: Software | None) -> tuple[RebalanceProtocol, str] | None:
    """Return the protocol that a Streams version runs whatever upgrade.from is, and the reason.

    None where upgrade.from decides, where the version is not known, and for other clients.
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
    """Return the first fields of the subscription's user data, read as that of Kafka Streams.

    None if there is no user data, or if it cannot be read in this way.
    """
    if subscription is None or not subscription.user_data:
        return None
    try:
        return decode_streams(subscription.user_data)
    except WireError:
        return None


def releases_of(subscription: Subscription) -> str | None:
    """Return the Streams versions that send the user data of `subscription`: `>= 3.0, < 3.2`.

    None if the user data does not show them. With upgrade.from 0.10.0 to 1.1, newer programs write
    old user data, which then does not show the version.
    """
    if (data := user_data_of(subscription)) is None:
        return None
    if data.latest is None:
        return "< 2.4" if subscription.version == 0 else None
    if data.latest in _RELEASES:
        low, high = _RELEASES[data.latest]
        return f">= {low}, < {high}"
    # 11 is what all versions since 3.2 know, up to the newest seen (4.1).
    is_new = data.latest >= 11 and subscription.version >= 1
    low, high = (_V3_SINCE, "") if subscription.version >= 3 else ("3.2", f", < {_V3_SINCE}")
    return f">= {low}{high}" if is_new else None


THREAD: Final = "-StreamThread-"
"""Text between a program's client.id and the thread's number in the client id of a thread."""


def threads_of(snapshot: GroupSnapshot) -> dict[str, tuple[Member, ...]]:
    """Return member id → all members of the same process.

    A member whose process is not known is the only one in its tuple.
    """
    by_process: defaultdict[Hashable, list[Member]] = defaultdict(list)
    for process, member in _processes(snapshot):
        by_process[process].append(member)
    return {one.member_id: tuple(threads) for threads in by_process.values() for one in threads}


def _processes(snapshot: GroupSnapshot) -> Iterator[tuple[Hashable, Member]]:
    """Yield a key for each member, and the member; members of one process have equal keys.

    The key is the process id that a Streams member sends, else the address of a consumer whose
    client id Java generated, else the member id.
    """
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
            and is_default_client_id(snapshot.group.group_id, member.client_id)
        ):
            yield member.host, member
        else:
            yield member.member_id, member


def process_names(snapshot: GroupSnapshot) -> dict[str, str]:
    """Return member id → name of its process, such as `app (3 threads)`.

    Only processes with several threads have a name. Where processes have the same program name, the
    end of a member id is added.
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
    """Return the program name in the client id of `thread`, without the thread's number.

    For a client id that Java generates, the address is added, because all processes have the same
    id.
    """
    program, _, number = thread.client_id.rpartition(THREAD)
    if is_default_client_id(group_id, thread.client_id):
        return f"{thread.client_id.rpartition('-')[0]} at {(thread.host or '').removeprefix('/')}"
    return program if number and program else thread.client_id
