"""The names on the wire of assignor classes that are somebody's own, as members' logs show them.

A configuration prints classes, and a join the name of the assignor that was elected. Where one
class of the list is not Kafka's and the elected name is of none of the others, it is its name.
"""

from __future__ import annotations

from collections.abc import Sequence

from rebal.groups.clients import assignor_of


class ClassNames:
    """What was learned of classes that no client brings; a class has one name in all logs."""

    def __init__(self) -> None:
        self._learned: dict[str, set[str]] = {}

    def learn(self, classes: Sequence[str], elected: str | None) -> None:
        """A member with these classes joined, and this assignor was elected."""
        own = [each for each in classes if assignor_of(each) is None]
        if elected and len(own) == 1 and elected not in map(assignor_of, classes):
            self._learned.setdefault(own[0], set()).add(elected)

    def names(self, classes: Sequence[str]) -> tuple[str, ...] | None:
        """The list that goes over the wire; None where a class's name was not seen, or two were."""
        found = [assignor_of(each) or self._name(each) for each in classes]
        return None if None in found else tuple(name for name in found if name is not None)

    def _name(self, own: str) -> str | None:
        learned = self._learned.get(own, set())
        return next(iter(learned)) if len(learned) == 1 else None


def own_classes(classes: Sequence[str]) -> tuple[str, ...]:
    """`classes`, if one of them is somebody's own; else nothing, for the names say it all."""
    return tuple(classes) if any(assignor_of(each) is None for each in classes) else ()
