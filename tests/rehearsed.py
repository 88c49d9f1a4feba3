"""The rehearsals that cost a plan, each made once in a process: a tenth of a second for each plan.

A rehearsal depends on its arguments alone (`planner.rehearsal.rehearse.rehearse`).
"""

from collections.abc import Mapping
from hashlib import blake2b

import pytest

from rebal.groups.assignors import Assignor
from rebal.planner.rehearsal.costs import steps
from rebal.planner.rehearsal.outcome import Rehearsal
from rebal.planner.rehearsal.rehearse import rehearse
from rebal.planner.rehearsal.scripts import Scene, Script

_MADE: dict[bytes, Rehearsal] = {}


def forget() -> None:
    """Make the next ones anew, for a test that measures their work."""
    _MADE.clear()


def make_once(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(steps, "rehearse", _once)


def _once(
    scene: Scene, script: Script, *, seed: int, keep: bool, assignors: Mapping[str, Assignor] | None
) -> Rehearsal:
    # Nothing but its name tells what a custom assignor does.
    if assignors:
        return rehearse(scene, script, seed=seed, keep=keep, assignors=assignors)
    what = blake2b(repr((scene, script, seed, keep)).encode()).digest()
    if what not in _MADE:
        _MADE[what] = rehearse(scene, script, seed=seed, keep=keep, assignors=assignors)
    return _MADE[what]
