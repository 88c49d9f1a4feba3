"""Custom assignors: Python packages register them in the entry point group `rebal.assignors`."""

from collections.abc import Sequence
from importlib.metadata import EntryPoint, entry_points
from typing import Final

from rebal.groups.assignors import NAMES, Assignor
from rebal.groups.assignors.spec import Guarded
from rebal.groups.errors import CustomAssignorError

GROUP: Final = "rebal.assignors"


def custom_names() -> tuple[str, ...]:
    """Return the sorted names of the installed custom assignors, without importing them."""
    return tuple(sorted({point.name for point in entry_points(group=GROUP)}))


def custom_assignors(wanted: Sequence[str]) -> dict[str, Assignor]:
    """Return name → assignor for the custom assignors in `wanted` that are installed.

    Raises:
        CustomAssignorError: one cannot be imported or is not an assignor, two packages register the
            same name, or the name is one of Kafka's own.
    """
    made: dict[str, Assignor] = {}
    for name in dict.fromkeys(wanted):
        points = sorted(entry_points(group=GROUP, name=name), key=lambda point: point.value)
        if not points:
            continue
        where = [
            f"assignor {name} of {point.dist.name if point.dist else 'an installed package'} "
            f"({point.value})"
            for point in points
        ]
        if name in NAMES or name == "uniform" or ":" in name:
            raise CustomAssignorError(
                f"{where[0]}: {name} is Kafka's own name; rename the assignor."
            )
        if len({point.value for point in points}) > 1:
            raise CustomAssignorError(
                f"{name} is provided by {' and by '.join(where)}: uninstall one of them."
            )
        made[name] = _loaded(points[0], where[0])
    return made


def _loaded(point: EntryPoint, where: str) -> Assignor:
    try:
        found = point.load()
        if not hasattr(found, "supported_protocols") or isinstance(found, type):
            found = found()
    except Exception as error:
        said = " ".join(str(error).split()).rstrip(".")
        raise CustomAssignorError(
            f"{where} cannot be loaded ({type(error).__name__}: {said})."
        ) from error
    return Guarded(found, where)
