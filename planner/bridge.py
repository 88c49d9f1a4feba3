"""The assignor by whose name the members of two client libraries run in one group.

While both run, the library of the leader, which is the member that joined first, assigns for all.
`range` and `roundrobin` need no user data, so each library reads what the others send and assign.
Sticky assignors send some, and not the same: franz-go's has the partitions of a member under
cooperative-sticky too (pkg/kgo/group_balancer.go, JoinGroupMetadata), which an old Java leader
misreads (RB117). kafkajs takes an assigner of the application under any name, and sends version 0
without user data (2.2.4, src/consumer/assignerProtocol.js), which every library reads.
"""

from typing import Final

from rebal.groups.clients import families
from rebal.groups.model import Record, Tri
from rebal.planner.clients import cooperative, is_mixed
from rebal.planner.facts import Facts, GroupFacts, listed
from rebal.planner.verdict import agreed

STATELESS: Final = ("roundrobin", "range")
"""Assignors without user data, which every library has or takes from the application."""
_KAFKA_GO: Final = "segmentio"
# It marks version 0 as 1, and as a leader reads nothing newer than 0 (0.4.51, consumergroup.go,
# makeMemberProtocolMetadata; RB119).
_SEND_VERSION_0: Final = frozenset({_KAFKA_GO, "kafkajs", "aiokafka"})


class Bridge(Record, frozen=True, kw_only=True):
    """Answer whether old and new members can run together, by which `assignor` (empty: by none),
    and why not: because of these `members`.
    """

    verdict: Tri
    assignor: str = ""
    why: str = ""
    members: tuple[Facts, ...] = ()


def read_each_other(one: str, two: str) -> bool:
    """Return whether each of these families, as a leader, reads what the other one sends."""
    return _KAFKA_GO not in (one, two) or {one, two} <= _SEND_VERSION_0


def bridge_of(group: GroupFacts, client: str) -> Bridge:
    """Return the assignor by which the members of a Stable group and those of `client` run
    together: the elected one, one that all lists hold, or one that all members can take up.
    """
    elected = group.elected or ""
    if all(facts.family_proven and facts.family == client for facts in group.members):
        return Bridge(verdict=Tri.YES, assignor=elected)
    against = _against(group, client, elected)
    if against is not None:
        return against
    held = [group.names_held(facts.member) for facts in group.members]
    usual = families()[client].newest_list

    def steps_to(name: str) -> tuple[bool, bool, bool]:
        everywhere = all(name in names for names in held)
        return name != elected, not everywhere, name not in usual

    # A custom class under one of these names may need user data.
    known = [name for name in STATELESS if name not in group.borrowed]
    return Bridge(verdict=Tri.YES, assignor=min(known or STATELESS, key=steps_to))


def _against(group: GroupFacts, client: str, elected: str) -> Bridge | None:
    """Return the answer where a member's client keeps the two libraries apart, or may do so."""
    unread = f"{client} and another client do not read each other's subscriptions (RB119)"
    unmixed = f"not every client starts with an eager assignor beside {elected} (RB104)"
    answers = [
        *((facts, _reads(facts, client), unread) for facts in group.members),
        *((facts, _takes_eager(group, facts, elected), unmixed) for facts in group.members),
    ]
    for verdict in (Tri.NO, Tri.CANNOT_TELL):
        found = [(facts, cause) for facts, answer, cause in answers if answer is verdict]
        if found:
            why = found[0][1]
            members = tuple(facts for facts, cause in found if cause == why)
            named = listed([facts.name for facts in members])
            who = named if verdict is Tri.NO else f"the client of {named} is not known"
            return Bridge(verdict=verdict, why=f"{why}: {who}", members=members)
    return None


def _reads(facts: Facts, client: str) -> Tri:
    if not facts.guesses:
        # kafka-go shows by its bytes, where they were read.
        unread = facts.member.subscription is None and not read_each_other(_KAFKA_GO, client)
        return Tri.CANNOT_TELL if unread or client == _KAFKA_GO else Tri.YES
    return agreed(Tri.YES if read_each_other(key, client) else Tri.NO for key in facts.guesses)


def _takes_eager(group: GroupFacts, facts: Facts, elected: str) -> Tri:
    """Return whether the member starts with an eager assignor beside the elected one."""
    if cooperative(elected) is not Tri.YES or is_mixed(group.names_held(facts.member)):
        return Tri.YES
    return facts.takes_mixed if facts.family_proven else Tri.CANNOT_TELL
