"""Wrappers that log collectors put around a line, learned from printed configurations.

A Java client prints `ConsumerConfig values: ` and then one setting on each line. The text before a
setting was therefore added by the collector: in most cases the program's name. The line with
`ConsumerConfig values:` begins with the same text, if times are left out of both. Every later line
with this prefix is of that program. In JSON, the field that holds the configuration holds the
program's other lines too.
"""

import re
from collections.abc import Iterator
from typing import Final

from rebal.inspectors.logs.lines import Block, LogText, Stamp, Zone, better, stamp_of, unwrap

_COLOUR: Final = re.compile(r"\x1b\[[\d;]*[A-Za-z]|#033\[[\d;]*m")
# What differs from one line of a program to the next: times, priorities, line numbers.
_VARIABLE: Final = re.compile(
    r"\d{4}[-/]\d\d[-/]\d\d(?:[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?: ?(?:Z|UTC|[+-]\d\d:?\d\d)\b)?)?"
    r"|\b[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d(?:\.\d+)?"
    r"|\b\d\d:\d\d:\d\d(?:[.,]\d+)?"
    r"|\[ *\d+\.\d{6}\]"
    r"|(?<![\w-])\d{10,}(?:\.\d+)?(?![\w-])"
    r"|\bstd(?:out|err) [FP]\b"
    r"|^<\d{1,3}>"
    r"|^\s*\d+[:\t-]"
)
_BEGIN: Final = "Config values:"
# Without a line end of its own, a block is one line: spaces, or escaped line ends and tabs.
_ESCAPED: Final = re.compile(r"\\[nrt]|#01[12]")
_SETTING: Final = re.compile(r"(?:(.*)\s)?([a-z][\w.]*)", re.DOTALL)
# A prefix is no longer than this.
_FIRST: Final = 400
# A block's first setting comes at most so many lines after its begin; other pods print between.
_PATIENCE: Final = 200


class Wrappers:
    """The prefixes and JSON fields that log collectors put around the lines of one source.

    They are learned from the printed configurations while the lines are read.
    """

    def __init__(self, wanted: re.Pattern[str], zone: Zone) -> None:
        self._wanted = wanted
        self._zone = zone
        self._field = ""
        self._begun: list[Block] = []
        self._failed: list[Block] = []
        self._open: set[str] = set()
        self._prefixes: dict[str, set[str]] = {}

    @property
    def in_block(self) -> bool:
        """Return True if the next line may be a setting of a printed configuration."""
        return bool(self._begun or self._open)

    def texts(self, raw: bytes, number: int) -> Iterator[LogText]:
        """Yield the programs' lines that one line of the source holds, without their wrappers.

        Then yield each earlier configuration block that had no setting, and can no longer get one.
        """
        line = raw.decode("utf-8", "replace").rstrip("\r\n")
        at = stamp_of(line, self._zone)
        found = list(unwrap(line, self._wanted, self._zone, self._field))
        for inner in found:
            self._field = inner.field
            own = better(
                better(stamp_of(inner.text[:60], self._zone), inner.wrapper_time),
                # Any other time within the JSON may be that of a roll-out.
                stamp_of(line[: line.find("{")], self._zone),
            )
            for text in inner.text.splitlines():
                yield from self._placed(
                    text, number, own or at, " ".join(_VARIABLE.sub("", inner.origin).split())
                )
        if not found:
            yield from self._placed(line, number, at)
        while self._failed:
            yield self._without_settings(self._failed.pop(0))

    def unfinished(self) -> Iterator[LogText]:
        """Yield each configuration block that has begun, but of which no setting was read.

        Call it at the end of the source.
        """
        yield from map(self._without_settings, self._begun)

    def _without_settings(self, block: Block) -> LogText:
        return LogText(self._program(block.origin, block.start), "", block.number, None, block)

    def _placed(
        self, text: str, number: int, at: Stamp | None, origin: str = ""
    ) -> Iterator[LogText]:
        text = _COLOUR.sub("", text)
        begin = re.search(rf"\b(\w+){_BEGIN}(.*)", text, re.DOTALL) if _BEGIN in text else None
        if begin is not None:
            block = Block(begin[1], number, at, origin, _bare(text[: begin.start()]))
            yield LogText(self._program(origin, block.start), "", number, at)
            self._begun.append(block)
            for each in re.split(r"\s+(?=[a-z][\w.]* =(?:\s|$))", _ESCAPED.sub("\n", begin[2])):
                yield from self._setting(each, number, at, origin)
            return
        found = list(self._setting(text, number, at, origin)) if self.in_block else []
        yield from found
        if not found:
            program = self._program(origin, text)
            self._open.discard(program)
            while self._begun and number - self._begun[0].number > _PATIENCE:
                self._failed.append(self._begun.pop(0))
            yield LogText(program, text, number, at)

    def _setting(self, text: str, number: int, at: Stamp | None, origin: str) -> Iterator[LogText]:
        head, equals, value = text.partition(" =")
        match = _SETTING.fullmatch(_ESCAPED.sub(" ", head)) if equals else None
        if match is None:
            return
        prefix = _bare(match[1] or "")
        program = f"{origin} {prefix}".strip()
        value = value.partition("\t")[0].strip()
        mine = [
            each
            for each in self._begun
            if each.origin == origin
            and (not prefix or re.match(re.escape(prefix) + r"(?!\S)", each.start))
        ]
        if mine:
            # A block whose program has begun another one has no settings of its own.
            self._failed += mine[:-1]
            self._begun = [each for each in self._begun if each not in mine]
            self._open.add(program)
            if prefix:
                self._prefixes.setdefault(origin, set()).add(prefix)
        if program in self._open:
            yield LogText(program, text, number, at, mine[-1] if mine else None, match[2], value)

    def _program(self, origin: str, text: str) -> str:
        """Return the name of the program that wrote the line `text`.

        It is `origin` (the program's name in a JSON wrapper) and the longest learned prefix that
        the line begins with, if any.
        """
        known = self._prefixes.get(origin)
        if not known:
            return origin
        bare = _bare(text)
        ends = (*(space.start() for space in re.finditer(r"\s", bare)), len(bare))
        prefix = max((bare[:end] for end in ends if bare[:end] in known), key=len, default="")
        return f"{origin} {prefix}".strip()


def _bare(text: str) -> str:
    """Return the first 400 characters of a line without times, priorities and line numbers."""
    return _VARIABLE.sub("", text[:_FIRST]).strip()
