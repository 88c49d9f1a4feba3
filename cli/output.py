"""Output to the terminal: stdout is data, stderr is messages, and text from a cluster is escaped.

A view is a list of rich renderables made from records that went through `shown`, which turns
control, bidirectional and other invisible characters into visible escapes. Rich's markup, emoji
codes and highlighting are off. Colour is used on a terminal only, and never with NO_COLOR. A
terminal or a locale that shows ASCII only gets ASCII: symbols become their usual spelling (`->`,
`...`, `>=`), other characters become escapes such as `\\xe9`.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
import unicodedata
from collections.abc import Iterable, Mapping
from errno import EBADF
from functools import lru_cache
from io import StringIO
from itertools import chain
from typing import IO, TYPE_CHECKING, Any, Final, Literal, TextIO, TypeAlias, TypeVar

from rebal.cli.errors import FileError

if TYPE_CHECKING:
    from msgspec import Struct
    from rich.console import RenderableType

    from rebal.groups.commands import Command

_R = TypeVar("_R")
Format = Literal["text", "json", "yaml"]
"""Values of `-o`."""
FindingsFormat = Literal["text", "json", "yaml", "sarif", "github"]
"""Values of `-o` for commands that print findings."""
PlanFormat = Literal["text", "json", "yaml", "markdown", "sarif", "github"]
"""Values of `-o` for plans."""
RehearseFormat = Literal["text", "json", "yaml", "html"]
"""Values of `-o` for simulations; html is for a rehearsal."""
View: TypeAlias = "list[RenderableType]"
"""A text to print, part by part."""
_UNLIMITED: Final = 4000
_SPELLINGS: Final = {
    "→": "->", "↔": "<->", "…": "...", "·": "-", "–": "-", "≥": ">=", "≤": "<=", "×": "x",
    "─": "-", "═": "=", "│": "|", "┬": "+", "├": "+", "┤": "+", "┘": "+", "└": "+", "┐": "+",
    "┌": "+", "▁": "_", "▂": "_", "▃": "-", "▄": "-", "▅": "=", "▆": "=", "▇": "#", "█": "#",
    "▒": "=", "░": ".",
}  # fmt: skip
_COLUMNS: Final = re.compile("( *)([^ ]+(?: [^ ]+)*)")
_HIDDEN: Final = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})


def escape(text: str) -> str:
    r"""Return `text` with every control or invisible character written out (`\x1b`)."""
    return text if text.isprintable() else "".join(map(_visible, text))


def shown(record: _R) -> _R:
    """Return a copy of `record` (a record, list or mapping) with all its text escaped.

    Equal ids stay equal, so a finding still names its members.
    """
    import msgspec

    kind = type(record)
    if kind is str:
        return escape(record)  # type: ignore[arg-type,return-value]
    if record is None or isinstance(record, str | int):
        return record
    if isinstance(record, msgspec.Struct):
        return kind(**{name: shown(getattr(record, name)) for name in record.__struct_fields__})
    if kind in (tuple, list):
        return kind(shown(item) for item in record)  # type: ignore[attr-defined,call-arg]
    if isinstance(record, Mapping):
        return {shown(key): shown(value) for key, value in record.items()}  # type: ignore[return-value]
    return record


def say(message: str, *commands: Command) -> None:
    """Print `rebal: message` on stderr, and each command on a line of its own.

    An empty message prints nothing. An error in writing to stderr is ignored.
    """
    if not message:
        return
    lines = [f"rebal: {escape(' '.join(message.split()))}", *(f"  {line}" for line in commands)]
    text = "\n".join(lines)
    try:
        print(spelled(text) if is_ascii_only(sys.stderr) else text, file=sys.stderr, flush=True)
    except OSError:
        _abandon(sys.stderr)


def say_all(messages: Iterable[str]) -> None:
    """Print each message as `say` does."""
    for message in messages:
        say(message)


def write(text: str) -> None:
    """Write `text` to stdout; a closed pipe (`| head`) is no error.

    Raises:
        FileError: stdout is closed, or its disk is full.
    """
    stream([text])


def print_text(text: str) -> None:
    """Write `text` to stdout, spelled in ASCII if stdout can show nothing else.

    Documents are written with `write`, which does not change their characters for a terminal.
    """
    write(spelled(text) if is_ascii_only(sys.stdout) else text)


def stream(pieces: Iterable[str]) -> None:
    """Write a text to stdout piece by piece, so that the whole text is never in memory.

    Raises:
        FileError: stdout is closed, or its disk is full.
    """
    encoding = sys.stdout.encoding
    try:
        for text in pieces:
            try:
                sys.stdout.write(text)
            except UnicodeEncodeError:
                sys.stdout.write(text.encode(encoding, "backslashreplace").decode(encoding))
        sys.stdout.flush()
    except OSError as error:
        handle_write_error(error)


def handle_write_error(error: OSError) -> None:
    """Handle the `error` of a write to stdout: drop all further output.

    A closed pipe (`| head`) is no error.

    Raises:
        FileError: stdout is closed, or its disk is full.
    """
    _abandon(sys.stdout)
    if isinstance(error, BrokenPipeError):
        return
    why = "it is closed" if error.errno == EBADF else (error.strerror or str(error)).lower()
    raise FileError(f"cannot write to stdout: {why}; what was printed is not complete.") from None


def has_reader() -> bool:
    """Return whether stdout still has a reader: False once a write to it has failed."""
    return sys.stdout not in _ABANDONED


def envelope(
    kind: str,
    body: Mapping[str, Any] | Struct,
    code: int,
    form: str,
) -> str:
    """Return the document `rebal.<kind>/1` as JSON or YAML text (`form`).

    `schema` is its first key, and `exit_code` (`code`) its last. `body` may be a record and hold
    records; its keys keep their order, and None is written as null.
    """
    import msgspec

    from rebal.groups.snapshot.documents import enc_hook, text_of

    fields = dict(body) if isinstance(body, Mapping) else msgspec.structs.asdict(body)
    made = {
        "schema": f"rebal.{kind}/1",
        **msgspec.to_builtins(fields, enc_hook=enc_hook),
        "exit_code": code,
    }
    return text_of(made, "yaml" if form == "yaml" else "json")


def page(view: Iterable[RenderableType], *, wide: bool = False) -> None:
    """Print a view to stdout, laid out to the width of the terminal.

    The width has no limit with `wide`, or if stdout is no terminal and COLUMNS is not set.
    """
    stream(paged(view, wide=wide))


def is_screen() -> bool:
    """Return whether stdout is a terminal that shows colours and can be redrawn."""
    return sys.stdout.isatty() and os.environ.get("TERM", "") not in ("", "dumb")


def paged(view: Iterable[RenderableType], *, wide: bool = False) -> Iterable[str]:
    """Return the text that `page` prints, piece by piece."""
    if wide or not (sys.stdout.isatty() or os.environ.get("COLUMNS", "").isdecimal()):
        width = _UNLIMITED
    else:
        width = min(_UNLIMITED, max(40, shutil.get_terminal_size((100, 24)).columns))
    colour = is_screen() and not os.environ.get("NO_COLOR")
    return _rendered(view, width, colour=colour, plain=is_ascii_only(sys.stdout))


def render(
    view: Iterable[RenderableType],
    *,
    width: int,
    colour: bool = False,
    plain: bool = False,
) -> str:
    """Return the text of a view, laid out to `width` columns.

    `colour` adds terminal escape sequences; `plain` writes ASCII only.
    """
    return "".join(_rendered(view, width, colour=colour, plain=plain))


def _rendered(
    view: Iterable[RenderableType], width: int, *, colour: bool, plain: bool
) -> Iterable[str]:
    """Return the text of a view in pieces, as `render` does.

    The whole view is rendered first, so that an error in rendering is raised before any is printed.
    """
    from rich.console import Console
    from rich.segment import Segments

    console = Console(
        file=StringIO(),
        width=width,
        # Without a height, each part of a view asks the terminal for it.
        height=_UNLIMITED,
        color_system="standard" if colour else None,
        force_terminal=colour,
        no_color=not colour,
        markup=False,
        emoji=False,
        highlight=False,
        legacy_windows=False,
    )
    pieces: list[Iterable[str]] = []
    for part in view:
        console.file = made = StringIO()
        console.print(
            Segments(
                segment._replace(text="\n".join(map(escape, segment.text.split("\n"))))
                for segment in console.render(part)
            ),
            end="",
            crop=False,
        )
        laid = [line.rstrip() for line in made.getvalue().split("\n")[:-1]]
        pieces.append([f"{spelled_line(line) if plain else line}\n" for line in laid])
    return chain.from_iterable(pieces)


@lru_cache(maxsize=4096)
def _visible(char: str) -> str:
    if unicodedata.category(char) not in _HIDDEN:
        return char
    code = ord(char)
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


_ABANDONED: Final[list[IO[str]]] = []


def _abandon(stream: IO[str]) -> None:
    """Send all further output of `stream` to /dev/null, so that the process ends cleanly."""
    _ABANDONED.append(stream)
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


# ASCII


def is_ascii_only(stream: TextIO) -> bool:
    """Return whether `stream` can show only ASCII: by its encoding, or by a locale C or POSIX.

    Python writes UTF-8 where the locale is C (PEP 540), so the encoding alone does not tell.
    """
    try:
        "".join(_SPELLINGS).encode(stream.encoding or "utf-8")
    except (LookupError, UnicodeEncodeError):
        return True
    named = (os.environ.get(name) for name in ("LC_ALL", "LC_CTYPE", "LANG"))
    return next(filter(None, named), "") in ("C", "POSIX")


def spelled(text: str) -> str:
    """Return `text` in ASCII: symbols as their usual spelling (`->`), the others as escapes."""
    return text if text.isascii() else "".join(map(_spelling, text))


def spelled_line(line: str) -> str:
    """Return a line of columns in ASCII, aligned: longer spellings use the blanks between columns.

    The `...` at the end of a cut line replaces its last characters, so that the line does not grow.
    """
    if line.endswith("…"):
        line = line[: -len("...")] + "..."
    made, longer = "", 0
    for blanks, words in _COLUMNS.findall(line):
        spared = min(longer, max(0, len(blanks) - 1))
        made += blanks[spared:] + spelled(words)
        longer += len(spelled(words)) - len(words) - spared
    return made


def _spelling(char: str) -> str:
    if char.isascii():
        return char
    return _SPELLINGS.get(char) or char.encode("ascii", "backslashreplace").decode()
