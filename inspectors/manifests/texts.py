"""Manifests that are read line by line: each yields the names and versions that it holds."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple

# Each pattern finds its matches without going back over a line, however long that is.
GEM: Final = re.compile(
    r"^    (?P<name>[\w.-]+) \((?P<version>[^)\s-]+)[^)\n]*\)[ \r]*$", re.MULTILINE
)
GEMFILE: Final = re.compile(
    r"""^[ \t]*gem[ \t(]*["'](?P<name>[\w.-]+)["']"""
    r"""(?:[ \t]*,[ \t]*["'](?P<version>[^"'\n]+)["'])?""",
    re.MULTILINE,
)
HEX: Final = re.compile(
    r'^ *"(?P<name>\w+)": *\{(?::hex, *:\w+, *"(?P<version>[^"\n]+)"|:git|:path)', re.MULTILINE
)
PNPM: Final = re.compile(
    r"""^  ['"]?/?(?P<name>(?:@[\w.-]+/)?[\w.-]+)[@/](?P<version>\d[\w.+-]*)['"]?[(:_]""",
    re.MULTILINE,
)
# An alias names the package behind `@npm:`.
YARN: Final = re.compile(
    r"""^"?(?:[^\s#]+?@npm:)?(?P<name>(?:@[\w.-]+/)?[\w.-]+)@[^\n]*\n"""
    r"""  version:? "?(?P<version>[^"\s]+)""",
    re.MULTILINE,
)
# A dependency of Gradle's own lock file that is not of tests alone.
GRADLE_LOCK: Final = re.compile(
    r"^(?P<name>[\w.-]+:[\w.-]+):(?P<version>[^=\s]+)=(?:[\w,]*,)?(?:runtime|compile)Classpath",
    re.MULTILINE,
)
# A package that a line of a Dockerfile installs with pip.
PINNED: Final = re.compile(
    r"""(?:^|(?<=[\s"']))(?P<name>[A-Za-z][\w.-]*)(?:\[[^\]\n]*\])?==(?P<version>[^\s"'\\;&|]+)"""
)
# One of conda's environment.yml too.
_REQUIREMENT: Final = re.compile(
    r"\s*(?:- +)?[\"']?(?P<name>[A-Za-z0-9][\w.-]*)[ \t]*(?:\[[^\]]*\])?[ \t]*(?P<version>[^;#\\]*)"
)
_TEXT: Final = re.compile(r"""["']([^"']+)["']""")
_REFERENCE: Final = (
    r"(?:(?:localhost|[^\s/.:]*[.:][^\s/]*)/)?(?:library/)?"
    r"(?P<name>[^\s:@]+)(?::(?P<version>[^\s@]+))?"
)
_IMAGE: Final = re.compile(_REFERENCE)
FROM: Final = re.compile(
    rf"^[ \t]*FROM[ \t]+(?:--\S+[ \t]+)*{_REFERENCE}", re.IGNORECASE | re.MULTILINE
)
_COORDINATES: Final = re.compile(
    r"""["'](?P<name>[\w.-]+:[\w.-]+)(?::(?P<version>[^"':@*]+))?(?:[:@][^"']*)?["']"""
)
_PARTS: Final = re.compile(
    r"""group\s*[:=]\s*["']([\w.-]+)["']\s*,\s*name\s*[:=]\s*["']([\w.-]+)["']"""
    r"""(?:\s*,\s*version\s*[:=]\s*(?:["']([^"']+)["']|([\w.]+)))?"""
)
_PLUGIN: Final = re.compile(
    r"""\bid[\s(]+["'](?P<name>[\w.-]+)["']\)?\s+version\s*\(?["'](?P<version>[^"']+)["']"""
)
CLIENTS: Final = "org.apache.kafka:kafka-clients"
# Spring Boot's plugin reads the version of Kafka's packages from this property.
_BOOT: Final = re.compile(
    r"""(?:\[["']kafka\.version["']\]\s*=|set\(\s*["']kafka\.version["']\s*,)\s*["']([^"'\n]+)"""
)
_COMMENT: Final = re.compile(r"^[ \t]*(?://|/?\*|#).*", re.MULTILINE)
_ASSIGNED: Final = re.compile(
    r"""(?<![\w.])(?:(?:\w+\.)?ext\.)?(\w+)(?:[ \t]*:[ \t]*String)?"""
    r"""[ \t]*(?:=[ \t]*["']?|:[ \t]*["'])([\w.+${}-]{1,80})["']?(?=[\s,;)\]}]|\Z)"""
)
_NUMBER: Final = re.compile(r"v?\d")
# A property of Kotlin's scripts by its name: extra["kafka"], ${property("kafka")}.
_BY_NAME: Final = re.compile(
    r"""\b(?:ext(?:ra)?\s*\[|(?:findP|p)roperty\s*\()\s*["'](\w+)["']\s*[\])]"""
)
_BY_EXTRA: Final = re.compile(
    r"""[ \t]{1,9}by[ \t]{1,9}extra\([ \t]{0,9}(["'][^"'\n]*["'])[ \t]{0,9}\)"""
)
# Coordinates whose version is in a block behind them.
_RICH: Final = re.compile(
    r"""(["'][\w.-]+:[\w.-]+)["']\s{0,9}\)?\s{0,9}\{\s{0,99}version\s{0,9}\{([^{}]{0,500})\}"""
)
# A catalog in a script of settings.
_SETTING: Final = re.compile(
    r"""\bversion\(\s{0,9}["'](\w+)["']\s{0,9},\s{0,9}(["'][^"'\n]+["'])\s{0,9}\)"""
)
_LIBRARY: Final = re.compile(
    r"""\blibrary\([^,\n]+,\s{0,9}["']([\w.-]+)["']\s{0,9},\s{0,9}["']([\w.-]+)["']\s{0,9}\)"""
    r"""\s{0,99}\.version(?:Ref\(["'](\w+)|\(["']([^"'\n]+))["']\)"""
)
# A rule that gives all packages of a group one version.
_RULE: Final = re.compile(
    r"""requested\.group\s*==\s*["']([\w.-]+)["'][^}]{0,500}?useVersion[\s(]*["']([^"'\n]+)["']"""
)
_VARIABLE: Final = re.compile(r"\$\{(?:\w+\.)*(\w+?)(?:\.get\(\))?\}|\$(?:\w+\.)*(\w+)")
# sbt writes "group" %% "name" % version.
_PERCENT: Final = re.compile(r"""["']\s*%{1,3}\s*["']""")
_OF_SBT: Final = re.compile(r'"\s*%\s*([A-Za-z_][\w.]*)')
# A line that gives versions to others.
_GIVES: Final = re.compile(
    r"platform\s*\(|mavenBom|kafka\.version|spring-boot-gradle-plugin", re.IGNORECASE
)
# A configuration of tests, such as testImplementation, integrationTestRuntimeOnly or `% Test`.
_OF_TESTS: Final = re.compile(r"(?:^|.*[\s{])(?:test|\w+Test)[A-Z]\w*[\s(]|.*%\s*\"?[Tt]est\b")
# Names of the groups, and of the files, of what only developers install.
OF_TESTS: Final = re.compile(
    r"(?<![a-z])(?:dev(?:elop(?:ment)?)?|tests?|testing|lint|docs|typing|ci)(?![a-z])"
)
# Between versions of which the file does not say which one counts.
OR: Final = " or "


class Named(NamedTuple):
    """One mention of a package or image: `version` as written, None where none is.

    `tests`: only developers and tests have it, or, of Go, only other modules need it. `gives`: it
    gives versions to others, as a BOM does.
    """

    name: str
    version: str | None
    line: int = 0
    tests: bool = False
    gives: bool = False


def by_pattern(pattern: re.Pattern[str]) -> Callable[[str, str], Iterator[Named]]:
    """Return the reader of a format in which each package is a match of the pattern."""

    def read(text: str, _: str) -> Iterator[Named]:
        line, at = 1, 0
        for found in pattern.finditer(text):
            line += text.count("\n", at, found.end())
            at = found.end()
            yield Named(found["name"], found["version"], line)

    return read


def read_go_mod(text: str, _: str) -> Iterator[Named]:
    """Yield the modules that go.mod requires, each as what a `replace` puts in its place."""
    required: list[Named] = []
    replaced: dict[tuple[str, ...], tuple[str, str]] = {}
    block: list[str] = []
    for number, line in enumerate(text.splitlines(), 1):
        plain, _, comment = line.partition("//")
        words = plain.split()
        if words[1:] == ["("] or words == [")"]:
            block = words[:-1]
            continue
        match [*block, *words]:
            case ["require", module, version]:
                indirect = comment.split()[:1] == ["indirect"]
                required.append(Named(module, version, number, tests=indirect))
            case ["replace", module, *own, "=>", folder]:
                # The version of a fork is not in go.mod.
                replaced[module, *own] = (module, folder)
            case ["replace", module, *own, "=>", other, version]:
                replaced[module, *own] = (other, version)
    for one in required:
        # One with a version is for that version alone.
        found = replaced.get((one.name, one.version or ""), replaced.get((one.name,)))
        yield one._replace(name=found[0], version=found[1]) if found else one


def read_requirements(text: str, name: str) -> Iterator[Named]:
    """Yield the requirements of a pip file, or those that the texts of a setup.py may be; nothing
    is run. A version is one that `==` pins.
    """
    of_tests = bool(OF_TESTS.search(name.rpartition("/")[2]))
    for number, line in enumerate(text.splitlines(), 1):
        found = map(requirement, _TEXT.findall(line) if name.endswith(".py") else [line])
        yield from (one._replace(line=number, tests=of_tests) for one in found if one)


def requirement(text: str) -> Named | None:
    """Return one requirement (PEP 508); a version that is not pinned keeps its sign."""
    found = _REQUIREMENT.match(text)
    if found is None:
        return None
    return Named(found["name"], plain_version(found["version"].split(" --")[0].strip(" \t()\"'")))


def plain_version(version: str | None) -> str | None:
    """Return a version without the sign that pins it; None for an empty text."""
    return (version or "").strip().removeprefix("==").strip("= ") or None


def given(text: str) -> str:
    """Return what a build's script, sources or properties give to the scripts below: constants,
    each as one line, and the lines with platforms and plugins.
    """
    text = _script(text)
    lines = (line for line in text.splitlines() if _GIVES.search(line) or _PLUGIN.search(line))
    found = (f'{name} = "{value}"' for name, value in _ASSIGNED.findall(text))
    return "".join(f"\n{line}" for line in (*found, *lines))


def read_gradle(text: str, _: str) -> Iterator[Named]:
    """Yield the coordinates and plugins that a script or source of Gradle or sbt writes out.

    A variable counts where it has one text; what only some lines give does not. A library of tests
    alone is none of the consumers.
    """
    text = _script(text)
    values: dict[str, set[str]] = {}
    for variable, value in _ASSIGNED.findall(text):
        values.setdefault(variable, set()).add(value)

    def value_of(match: re.Match[str]) -> str:
        known = values.get(match[1] or match[2], set())
        # A package may have the name of its version.
        found = [value for value in known if _NUMBER.match(value)] or [*known]
        return found[0] if len(found) == 1 else match[0]

    found: list[Named] = []
    for number, line in enumerate(text.splitlines(), 1):
        gives = _GIVES.search(line) is not None
        plain = "" if _OF_TESTS.match(line) else _coordinates(line)
        # A variable may be made of others, but no line is made this long.
        for _depth in range(3):
            plain = _VARIABLE.sub(value_of, plain) if len(plain) < 10_000 else plain
        found += (Named(*each, number, gives=gives) for each in _written(plain))
    for group, version in _RULE.findall(text):
        own = _VARIABLE.sub(value_of, version)
        ruled = [one for one in found if one.name.startswith(f"{group}:")]
        found += (one._replace(version=own) for one in ruled)
    return together(found)


def _script(text: str) -> str:
    """Return a script without comments, its properties and rich versions as if written plainly."""

    def plain(match: re.Match[str]) -> str:
        written = _TEXT.findall(match[2])
        version = next(filter(_NUMBER.match, written), written[0] if written else "")
        lines = "\n" * match[0].count("\n")
        return f"{match[1]}:{version}{match[1][0]}{lines}" if version else match[0]

    def listed(match: re.Match[str]) -> str:
        return f'"{match[1]}:{match[2]}:{match[4] or f"${{{match[3]}}}"}"'

    text = _LIBRARY.sub(listed, _SETTING.sub(r"\1 = \2", text))
    text = _BY_NAME.sub(r"\1", _BY_EXTRA.sub(r" = \1", _COMMENT.sub("", text)))
    return _RICH.sub(plain, text)


def together(named: Iterable[Named]) -> Iterator[Named]:
    """Yield each package once, with all versions that one file gives it."""
    found: dict[str, Named] = {}
    for one in named:
        known = found.setdefault(one.name, one)
        versions = [
            text for each in (known, one) if each.version for text in each.version.split(OR)
        ]
        found[one.name] = known._replace(version=OR.join(dict.fromkeys(versions)) or None)
    yield from found.values()


def _coordinates(line: str) -> str:
    """Return a line of a script with each package as `"group:name:version"`."""

    def joined(match: re.Match[str]) -> str:
        version = match[3] or (f"${{{match[4]}}}" if match[4] else None)
        return f'"{":".join(filter(None, (match[1], match[2], version)))}"'

    return _OF_SBT.sub(r':${\1}"', _PERCENT.sub(":", _PARTS.sub(joined, line)))


def _written(line: str) -> Iterator[tuple[str, str | None]]:
    """Yield the names and versions on one line of a script."""
    yield from ((found["name"], found["version"]) for found in _COORDINATES.finditer(line))
    yield from ((marker(found["name"]), found["version"]) for found in _PLUGIN.finditer(line))
    yield from ((CLIENTS, found[1]) for found in _BOOT.finditer(line))


def marker(plugin: str) -> str:
    """Return the coordinates by which Gradle finds a plugin: its marker artifact."""
    return f"{plugin}:{plugin}.gradle.plugin"


def image(reference: str) -> Named:
    """Return `registry/name:tag@digest` as its name, without the registry, and its tag."""
    found = _IMAGE.match(reference)
    return Named(found["name"], found["version"]) if found else Named("", None)
