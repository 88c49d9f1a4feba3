"""Manifests that are read line by line: each yields the names and versions that it holds."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple

from rebal.inspectors.inventory.documents import substituted

# Each pattern finds its matches without going back over a line, however long that is.
GEM: Final = re.compile(r"    (?P<name>[\w.-]+) \((?P<version>[^)\s-]+)[^)]*\)\s*\Z")
HEX: Final = re.compile(
    r'\s*"(?P<name>\w+)":\s*\{(?::hex,\s*:\w+,\s*"(?P<version>[^"]+)"|:git|:path)'
)
PNPM: Final = re.compile(
    r"""  ['"]?/?(?P<name>(?:@[\w.-]+/)?[\w.-]+)[@/](?P<version>\d[\w.+-]*)['"]?[(:_]"""
)
_REQUIREMENT: Final = re.compile(
    r"\s*(?P<name>[A-Za-z0-9][\w.-]*)[ \t]*(?:\[[^\]]*\])?[ \t]*(?P<version>[^;#\\]*)"
)
_TEXT: Final = re.compile(r"""["']([^"']+)["']""")
_FROM: Final = re.compile(r"\s*FROM\s+(?:--\S+\s+)*(?P<image>\S+)", re.IGNORECASE)
_COORDINATES: Final = re.compile(
    r"""["'](?P<name>[\w.-]+:[\w.-]+)(?::(?P<version>[^"':@]+))?(?:[:@][^"']*)?["']"""
)
_PARTS: Final = re.compile(
    r"""group\s*[:=]\s*["']([\w.-]+)["']\s*,\s*name\s*[:=]\s*["']([\w.-]+)["']"""
    r"""(?:\s*,\s*version\s*[:=]\s*(?:["']([^"']+)["']|([\w.]+)))?"""
)
_PLUGIN: Final = re.compile(
    r"""\bid[\s(]+["'](?P<name>[\w.-]+)["']\)?\s+version\s*\(?["'](?P<version>[^"']+)["']"""
)
# Spring Boot's plugin reads Kafka's version from this property.
_BOOT_PROPERTY: Final = re.compile(
    r"""\[["']kafka\.version["']\]\s*=\s*["'](?P<version>[^"']+)|"""
    r"""set\(\s*["']kafka\.version["']\s*,\s*["'](?P<set>[^"']+)"""
)
_ASSIGNED: Final = re.compile(r"""\b(\w+)\s*=\s*["']([^"'$\n]+)["']""")
_VARIABLE: Final = re.compile(r"\$\{?(\w+)\}?")
# A configuration of tests, such as testImplementation or integrationTestRuntimeOnly.
_OF_TESTS: Final = re.compile(r"(?:^|.*[\s{])(?:test|\w+Test)[A-Z]\w*[\s(]")
# Between versions of which the file does not say which one counts.
OR: Final = " or "
_YARN_NAME: Final = re.compile(r'"?(?P<name>(?:@[\w.-]+/)?[\w.-]+)@')
_YARN_ALIAS: Final = re.compile(r"[^@]@npm:(?P<name>(?:@[\w.-]+/)?[\w.-]+)@")
_YARN_VERSION: Final = re.compile(r'  version:? "?(?P<version>[^"\s]+)')


class Named(NamedTuple):
    """One mention of a package or image: `version` as written, None where none is."""

    name: str
    version: str | None
    line: int = 0


def by_line(pattern: re.Pattern[str]) -> Callable[[str, str], Iterator[Named]]:
    """Return the reader of a format that names each package on one line, from its start on."""

    def read(text: str, _: str) -> Iterator[Named]:
        for number, line in enumerate(text.splitlines(), 1):
            if found := pattern.match(line):
                yield Named(found["name"], found["version"], number)

    return read


def read_go_mod(text: str, _: str) -> Iterator[Named]:
    """Yield the modules that go.mod requires, each as what a `replace` puts in its place."""
    required: list[Named] = []
    replaced: dict[str, tuple[str, str | None]] = {}
    block: list[str] = []
    for number, line in enumerate(text.splitlines(), 1):
        words = line.split("//")[0].split()
        if words[1:] == ["("] or words == [")"]:
            block = words[:-1]
            continue
        match [*block, *words]:
            case ["require", module, version]:
                required.append(Named(module, version, number))
            case ["replace", module, *_, "=>", other]:
                # A folder, or a fork whose version go.mod does not hold.
                replaced[module] = (module, other)
            case ["replace", module, *_, "=>", other, version]:
                replaced[module] = (other, version)
    for one in required:
        yield Named(*replaced.get(one.name, one[:2]), one.line)


def read_yarn_lock(text: str, _: str) -> Iterator[Named]:
    """Yield the packages of yarn.lock, of yarn 1 and of later ones."""
    name = ""
    for number, line in enumerate(text.splitlines(), 1):
        if not line.startswith((" ", "#")):
            found = _YARN_ALIAS.search(line) or _YARN_NAME.match(line)
            name = found["name"] if found else ""
        elif name and (version := _YARN_VERSION.match(line)):
            yield Named(name, version["version"], number)


def read_requirements(text: str, _: str) -> Iterator[Named]:
    """Yield the requirements of a pip file; a version is one that `==` pins."""
    for number, line in enumerate(text.splitlines(), 1):
        if one := requirement(line):
            yield one._replace(line=number)


def read_setup(text: str, _: str) -> Iterator[Named]:
    """Yield the requirements that the texts of a setup.py may be; nothing is run."""
    for number, line in enumerate(text.splitlines(), 1):
        for quoted in _TEXT.findall(line):
            if one := requirement(quoted):
                yield one._replace(line=number)


def requirement(text: str) -> Named | None:
    """Return one requirement (PEP 508); a version that is not pinned keeps its sign."""
    found = _REQUIREMENT.match(text)
    if found is None:
        return None
    version = found["version"].split(" --")[0].strip().strip("()")
    return Named(pypi_name(found["name"]), version.removeprefix("==").strip("= ") or None)


def pypi_name(name: str) -> str:
    """Return the name of a Python package as registries compare it (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def read_gradle(text: str, _: str) -> Iterator[Named]:
    """Yield the coordinates and plugins that a Gradle script writes out.

    A variable counts where the script itself gives it one text; what only some lines give does not.
    A library of tests alone is none of the consumers.
    """
    values: dict[str, set[str]] = {}
    for variable, value in _ASSIGNED.findall(text):
        values.setdefault(variable, set()).add(value)

    def value_of(match: re.Match[str]) -> str | None:
        known = values.get(match[1], set())
        return next(iter(known)) if len(known) == 1 else None

    found: list[Named] = []
    for number, line in enumerate(text.splitlines(), 1):
        if line.lstrip().startswith(("//", "*", "/*")) or _OF_TESTS.match(line):
            continue
        for name, version in _written(line):
            plain = substituted(_VARIABLE, version, value_of) if version else None
            found.append(Named(name, plain or version or None, number))
    return together(found)


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


def _written(line: str) -> Iterator[tuple[str, str]]:
    """Yield the names and versions on one line of a Gradle script."""
    for found in _COORDINATES.finditer(line):
        yield found["name"], found["version"] or ""
    for group, name, version, expression in _PARTS.findall(line):
        yield f"{group}:{name}", version or (f"${expression}" if expression else "")
    for found in _PLUGIN.finditer(line):
        yield marker(found["name"]), found["version"]
    for found in _BOOT_PROPERTY.finditer(line):
        yield "org.apache.kafka:kafka-clients", found["version"] or found["set"]


def marker(plugin: str) -> str:
    """Return the coordinates by which Gradle finds a plugin: its marker artifact."""
    return f"{plugin}:{plugin}.gradle.plugin"


def read_dockerfile(text: str, _: str) -> Iterator[Named]:
    """Yield the images that a Dockerfile is built from."""
    for number, line in enumerate(text.splitlines(), 1):
        if found := _FROM.match(line):
            yield image(found["image"])._replace(line=number)


def image(reference: str) -> Named:
    """Return `registry/name:tag@digest` as its name, without the registry, and its tag."""
    whole = reference.split("@", maxsplit=1)[0]
    path, _, last = whole.rpartition("/")
    name, _, tag = last.partition(":")
    host, _, rest = path.partition("/")
    folder = rest if "." in host or ":" in host or host == "localhost" else path
    folder = "" if folder == "library" else folder
    return Named(f"{folder}/{name}" if folder else name, tag or None)
