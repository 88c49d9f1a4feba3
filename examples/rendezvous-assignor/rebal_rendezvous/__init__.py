"""`rendezvous`: each partition goes to the subscriber whose name mixes best with its own.

Nobody remembers anything, and yet a member that comes or goes moves only the partitions that it
gets or had (highest random weight hashing). The price is the balance: counts are about equal only.
"""

import hashlib

from rebal.groups.assignors import Assignment, Spec, SpecMember
from rebal.groups.model import RebalanceProtocol


class Rendezvous:
    """An EAGER assignor; `name`, `supported_protocols` and `assign` are all that rebal needs."""

    name = "rendezvous"
    supported_protocols = frozenset({RebalanceProtocol.EAGER})

    def assign(self, spec: Spec) -> Assignment:
        """Member id → `(topic, partition)` list."""
        result: Assignment = {member.member_id: [] for member in spec.members}
        for topic, count in sorted(spec.partitions.items()):
            takers = [member for member in spec.members if topic in member.topics]
            for partition in range(count if takers else 0):
                best = max(takers, key=lambda member: _weight(member, topic, partition))
                result[best.member_id].append((topic, partition))
        return result


def _weight(member: SpecMember, topic: str, partition: int) -> bytes:
    # A static member keeps its instance id when it is restarted; its member id is a new one.
    who = member.instance_id or member.member_id
    return hashlib.blake2b(f"{who}/{topic}/{partition}".encode(), digest_size=8).digest()
