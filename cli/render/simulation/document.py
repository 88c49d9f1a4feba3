"""`rebal.simulate/1` as text, piece by piece: the whole document is never in memory.

The document is built without the members' partitions; these are inserted while the text is written.
So two million entries need only a few megabytes of memory.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Final

from msgspec.structs import asdict

from rebal.cli import output
from rebal.groups.model import GroupSnapshot, Record
from rebal.groups.snapshot.documents import enc_hook, text_of
from rebal.planner.rehearsal.holdings import Share, Writer
from rebal.planner.rehearsal.whatif.changes import Changes
from rebal.planner.rehearsal.whatif.simulation import Simulation

_FIRST: Final = -(2**62)
# A number at the end of a line: no text can look like it, as a text is quoted or has no such colon.
_PLACE: Final = re.compile(r"^( *)([^ ].*): (-46[0-9]{17})(?=,?$)", re.MULTILINE)


def simulate_text(
    found: GroupSnapshot, made: Sequence[Simulation], changes: Changes, code: int, form: str
) -> Iterator[str]:
    """Yield the envelope of one simulation, or of several with their common fields."""
    places = _Places(form)
    text = output.envelope("simulate", _body(found, made, changes), code, form, places.keep)
    return places.fill(text)


def _body(found: GroupSnapshot, made: Sequence[Simulation], changes: Changes) -> dict[str, object]:
    if len(made) == 1:
        return asdict(made[0])
    return asdict(
        SimulationsDocument(
            group_id=found.group.group_id,
            captured_at=found.captured_at,
            assignor_now=found.group.assignor,
            changes=changes,
            simulations=list(made),
        )
    )


class SimulationsDocument(Record, frozen=True, kw_only=True, omit_defaults=False):
    """The body of `rebal.simulate/1` where several assignors were simulated."""

    group_id: str
    captured_at: datetime
    assignor_now: str | None
    changes: Changes
    simulations: list[Simulation]


class _Places:
    """Placeholders in the document, and the `Share` that each of them stands for."""

    def __init__(self, form: str) -> None:
        self._json = form == "json"
        self._shares: list[Share] = []
        self._writers: dict[str, Writer] = {}

    def keep(self, value: object) -> object:
        """Return a placeholder number for a member's partitions (msgspec's hook)."""
        if isinstance(value, Share):
            self._shares.append(value)
            return _FIRST + len(self._shares) - 1
        return enc_hook(value)

    def fill(self, text: str) -> Iterator[str]:
        """Yield `text` in pieces, with each placeholder replaced."""
        done = 0
        for match in _PLACE.finditer(text):
            indent = match[1]
            yield text[done : match.end(2)]
            yield self._written(self._shares[int(match[3]) - _FIRST], indent)
            done = match.end()
        yield text[done:]

    def _written(self, share: Share, indent: str) -> str:
        """Return a share as text, from the colon on."""
        writer = self._writers.get(indent)
        if writer is None:
            writer = self._writers[indent] = self._writer(f"\n{indent}  ")
        made = "".join(writer(share))
        if not made:
            return ": {}"
        return f": {{{made[1:]}\n{indent}}}" if self._json else f":{made}"

    def _writer(self, line: str) -> Writer:
        if self._json:
            return Writer(
                lambda topic: f',{line}{text_of({topic: 0}, "json")[4:-4]}"',
                lambda partitions: f'{partitions}"',
            )
        return Writer(
            lambda topic: line + text_of({topic: 0}, "yaml")[:-2].replace("\n", line),
            # One number alone would be read as a number.
            lambda partitions: f"'{partitions}'" if partitions.isdigit() else partitions,
        )
