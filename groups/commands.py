"""Commands to paste into a shell: `Command` is the only text that rebal prints to be run.

A command is made of words, and each word is quoted here, so that bash and zsh read the words back
as they are, whatever a group, a file or a member is called.
"""

import shlex
from collections.abc import Sequence
from typing import Final, Self

_ESCAPES: Final = {"\n": r"\n", "\t": r"\t", "\r": r"\r", "\\": r"\\", "'": r"\'"}


class Variable(str):
    """A word of a command that the shell expands from the variable with this name: `"$NAME"`."""

    __slots__ = ()


class Command(str):
    """One command line, made of its words; it has no line break and no invisible character."""

    __slots__ = ()

    def __new__(cls, *words: str) -> Self:
        """Return the command line of these words, each quoted for the shell."""
        return super().__new__(cls, " ".join(map(quoted, words)))

    def __reduce__(self) -> tuple[object, tuple[str]]:
        """Return the pickled form, which restores the same command line."""
        return Command.read, (str(self),)

    @classmethod
    def read(cls, line: str) -> Self:
        """Return `line`, a command line that is already quoted, as a `Command` without change."""
        return super().__new__(cls, line)


def quoted(word: str) -> str:
    """Return `word` quoted for bash and zsh; invisible characters become escapes."""
    if isinstance(word, Variable):
        return f'"${word}"'
    return shlex.quote(word) if word.isprintable() else f"$'{''.join(map(_escaped, word))}'"


def _escaped(char: str) -> str:
    if char in _ESCAPES or char.isprintable():
        return _ESCAPES.get(char, char)
    errors = "surrogateescape" if "\udc80" <= char <= "\udcff" else "surrogatepass"
    return "".join(f"\\x{byte:02x}" for byte in char.encode("utf-8", errors))


def option(name: str, value: str) -> tuple[str, ...]:
    """Return the words of an option; a value that begins with a dash is joined to its name."""
    if not value.startswith("-") or value == "-":
        return name, value
    return (f"{name}={value}" if name.startswith("--") else f"{name}{value}",)


def options(name: str, values: Sequence[str]) -> tuple[str, ...]:
    """Return the words of an option that is repeated for each value."""
    return tuple(word for value in values for word in option(name, value))


def rebal(command: str, arguments: Sequence[str], words: Sequence[str]) -> Command:
    """Return a `rebal` command line: positional `arguments` first, then `words` (the options).

    Arguments come first because an option such as `FILE…` takes all words after it. If one of the
    arguments begins with a dash, all of them come last, after `--`.
    """
    last = any(argument.startswith("-") for argument in arguments)
    rest = (*words, "--", *arguments) if last else (*arguments, *words)
    return Command("rebal", *command.split(), *rest)
