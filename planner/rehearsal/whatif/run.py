"""The rebalances of a what-if until the group is at rest, as the engine's `Rounds` gives them.

EAGER: one rebalance a step, in which everything stops. COOPERATIVE (KIP-429): each member that had
to give something up rejoins, until nobody has to. A KIP-848 coordinator computes one target, which
the members reach one by one.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from rebal.groups.assignors import Spec
from rebal.groups.assignors.client.kafka import KafkaAssignor
from rebal.groups.custom import Violation, violations
from rebal.groups.model import Record, TopicPartitions
from rebal.planner.rehearsal.engine.rounds import Rounds, rejoins
from rebal.planner.rehearsal.spec import Owners
from rebal.planner.rehearsal.whatif.assignors import Choice
from rebal.planner.rehearsal.whatif.changes import ChangeStep

MOST_ROUNDS: Final = 100


class RoundMember(Record, frozen=True, kw_only=True):
    """Partitions that one member loses and gets in one round; unchanged members are left out."""

    member_id: str
    revoked: TopicPartitions
    assigned: TopicPartitions


class Round(Record, frozen=True, kw_only=True):
    """One rebalance (or one new target of a KIP-848 group); counts are partitions.

    `why` is what set it off (empty: a follow-up of the round before, or the change of assignor).
    `gone` had an owner that has left; `revoked` are taken from members that stay (under EAGER:
    everything); `assigned` reach an owner that did not have them when the round began; members
    `still_owned` the rest. Under EAGER `members` is empty.
    """

    number: int
    why: str = ""
    gone: int = 0
    revoked: int
    assigned: int
    still_owned: int
    members: tuple[RoundMember, ...] = ()


class Walk:
    """The group on its way through the steps, and what has come of it so far.

    `numbers` has every member that takes part. It stops after `most_rounds`, over all steps.
    `before` and `after` are the owners at the start and now. `eager_stops` is what stops when each
    step is one EAGER rebalance; `stops` what stops the way the assignor works. `settled` is False
    where the last step did not come to rest; `again` is what the next rebalance would take from
    its owners all the same. `violations` are by rule.
    """

    def __init__(
        self,
        start: Spec,
        first: Owners,
        numbers: Mapping[str, int],
        choice: Choice,
        *,
        most_rounds: int,
    ) -> None:
        self._choice = choice
        self._most_rounds = most_rounds
        self._numbers = numbers
        self.group = Rounds(start, choice.assignor, choice.protocol)
        self.before = self.after = first
        self.rounds: list[Round] = []
        self.stops = self.eager_stops = self.again = self._gone = 0
        self.settled = True
        self.violations: dict[str, Violation] = {}

    def take(self, step: ChangeStep) -> None:
        """Go one step, until the group is at rest again.

        Raises:
            LeaderWouldFail: the real leader throws or never ends on the way.
            CustomAssignorError: a custom assignor fails.
        """
        self._apply(step)
        why = step.why
        self.settled = not self.group.spec.members
        while not self.settled and len(self.rounds) < self._most_rounds:
            self.settled = not self._rebalance(why)
            why = ""

    def _apply(self, step: ChangeStep) -> None:
        """Change the group, and count the partitions that lose their owner by it.

        Those of a group that is left empty count at the rebalance of whoever joins next.
        """
        before = self.group.change(step.apply)
        spec = self.group.spec
        stayed = {member.member_id for member in spec.members}
        left = [member for member in before if member.member_id not in stayed]
        gone = sum(len(member.owned) for member in left)
        self.eager_stops += sum(len(member.owned) for member in before)
        self.stops += gone
        self._gone += gone
        if left:
            self.after = self._state(spec, {m.member_id: m.owned for m in spec.members})

    def _rebalance(self, why: str) -> bool:
        """Rebalance once, and return whether members must join again."""
        choice = self._choice
        sent, result = self.group.rebalance()
        if choice.custom:
            for one in violations(sent, result, cooperative=choice.cooperative):
                self.violations.setdefault(one.rule, one)
        after = self._state(sent, result)
        made, self._gone = self._round(why, self._gone, after), 0
        self.rounds.append(made)
        self.stops += made.revoked
        self.after = after
        # A KIP-848 member reaches its target alone.
        return not choice.server_side and rejoins(choice.protocol, made.revoked)

    def look_ahead(self) -> None:
        """Compute `again`; only Kafka's own take away again, and only where subscriptions differ.

        Raises:
            LeaderWouldFail: as `take` does.
        """
        choice, spec = self._choice, self.group.spec
        asked = isinstance(choice.assignor, KafkaAssignor) and choice.cooperative and self.settled
        if asked and len({member.topics for member in spec.members}) > 1:
            _, result = self.group.next()
            self.again = self.after.without(self._state(self.group.spec, result)).total

    def _round(self, why: str, gone: int, after: Owners) -> Round:
        before, number = self.after, len(self.rounds) + 1
        if not self._choice.cooperative:
            return Round(
                number=number,
                why=why,
                gone=gone,
                revoked=before.total,
                assigned=after.total,
                still_owned=0,
            )
        gives, gets = before.without(after), after.without(before)
        names = {n: name for name, n in self._numbers.items()}
        by_now = {self._numbers[m.member_id]: m.member_id for m in self.group.spec.members}
        return Round(
            number=number,
            why=why,
            gone=gone,
            revoked=gives.total,
            assigned=gets.total,
            still_owned=before.total - gives.total,
            members=tuple(
                RoundMember(
                    member_id=by_now.get(n, names[n]),
                    revoked=gives.shares.get(n, {}),
                    assigned=gets.shares.get(n, {}),
                )
                for n in sorted(gives.shares.keys() | gets.shares.keys())
            ),
        )

    def _state(self, spec: Spec, owned: Mapping[str, Sequence[tuple[str, int]]]) -> Owners:
        ids = (member.member_id for member in spec.members)
        return Owners((self._numbers[id_], owned.get(id_, ())) for id_ in ids)
