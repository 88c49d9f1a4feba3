"""A person's word for what no evidence shows: never for what evidence speaks against."""

from __future__ import annotations

from rebal.groups.errors import RebalError
from rebal.groups.model import Tri
from rebal.planner.verification.journal import Confirmation
from rebal.planner.verification.steps import BY_HAND
from rebal.planner.verification.verify import Standing


class NothingToConfirmError(RebalError):
    """The step leaves nothing to a person, or is not the one that the group is in."""


class ContradictedError(RebalError):
    """Evidence says that the step is not done, or could say it and has not."""


def confirm(now: Standing, asked: Standing, step: int, reason: str) -> Confirmation:
    """That a person has looked at the members of `step` that only a person can tell.

    `now` is how the group stands, `asked` the same with `step` asked for. It holds for the member
    ids that are there now: one that comes later must be looked at again.

    Raises:
        NothingToConfirmError: there is nothing that only a person can tell.
        ContradictedError: members are missing, not done or not known by evidence.
    """
    begun = now.step is not None and (
        step <= now.step or (now.gate is Tri.YES and step == now.step + 1)
    )
    if not begun:
        raise NothingToConfirmError(
            f"--confirm {step}: the group is in step {now.step}, whose gate comes first."
        )
    standing = next(each for each in asked.steps if each.id == step)
    if not standing.by_hand:
        holds = standing.gate is Tri.YES
        raise NothingToConfirmError(
            f"--confirm {step}: nothing of this step is left to a person; "
            + ("its gate holds." if holds else f"what keeps it can be shown: {standing.why[0]}.")
        )
    others = [why for why in standing.why if not why.startswith(BY_HAND)]
    if others or asked.dangers:
        said = asked.dangers[0].message if asked.dangers else f"{others[0]}."
        raise ContradictedError(f"not confirmed, a word cannot stand against evidence: {said}")
    return Confirmation(step=step, reason=reason, members=standing.by_hand)
