"""The manifests of a folder: the Kafka clients and the products that its services are built from.

Only the dependencies that products.yaml knows are returned. A version is returned as it is written,
or as another file of the folder gives it; one that depends on anything else is None, with a note.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath
from typing import Final, NamedTuple

from rebal.groups.errors import DocumentError
from rebal.inspectors.inventory.reader import configuration_text
from rebal.inspectors.manifests import texts, trees
from rebal.inspectors.manifests.products import Dependency, client_of, hints, product_of
from rebal.inspectors.manifests.projects import Projects
from rebal.inspectors.manifests.texts import Named
from rebal.inspectors.repository.tree import Tree

_PYTHON_LOCKS: Final = frozenset({"poetry.lock", "uv.lock", "pdm.lock"})
# A project's own file, which gives ranges, and the lock files that say what they come to.
_LOCKS: Final = {
    "pyproject.toml": _PYTHON_LOCKS,
    "Pipfile": frozenset({"Pipfile.lock"}),
    "package.json": frozenset(
        {"package-lock.json", "npm-shrinkwrap.json", "pnpm-lock.yaml", "yarn.lock"}
    ),
}
_INCLUDED: Final = re.compile(r"^\s*(?:-r|--requirement)[ =]?\s*(\S+)", re.MULTILINE)
_PROPERTY: Final = re.compile(r"^\s*(\w+)\s*[=:]\s*([^\s\"'$]+)\s*$", re.MULTILINE)
_VERSION: Final = re.compile(r"v?\d[\w.+~-]*(?<![+-])", re.ASCII)
_CLIENTS: Final = "org.apache.kafka:kafka-clients"
_QUARKUS: Final = "io.quarkus"
_LONGEST: Final = 80
_RANGE: Final = frozenset("^~<>=!*")


class _Format(NamedTuple):
    """Files whose names match `pattern`; those without a reader are projects in XML."""

    pattern: str
    ecosystem: str
    read: Callable[[str, str], Iterable[Named]] | None = None


# The first pattern that matches a name decides.
_FORMATS: Final = (
    _Format("pom.xml", "maven"),
    _Format("*.gradle", "maven", texts.read_gradle),
    _Format("*.gradle.kts", "maven", texts.read_gradle),
    _Format("*.versions.toml", "maven", trees.read_catalog),
    _Format("go.mod", "golang", texts.read_go_mod),
    _Format("package.json", "npm", trees.read_package_json),
    _Format("package-lock.json", "npm", trees.read_package_lock),
    _Format("npm-shrinkwrap.json", "npm", trees.read_package_lock),
    _Format("pnpm-lock.yaml", "npm", texts.by_line(texts.PNPM)),
    _Format("yarn.lock", "npm", texts.read_yarn_lock),
    _Format("*requirements*.txt", "pypi", texts.read_requirements),
    *(_Format(name, "pypi", trees.read_package_tables) for name in sorted(_PYTHON_LOCKS)),
    _Format("pyproject.toml", "pypi", trees.read_pyproject),
    _Format("Pipfile", "pypi", trees.read_pipfile),
    _Format("Pipfile.lock", "pypi", trees.read_pipfile_lock),
    _Format("setup.py", "pypi", texts.read_setup),
    _Format("setup.cfg", "pypi", texts.read_requirements),
    _Format("Gemfile.lock", "gem", texts.by_line(texts.GEM)),
    _Format("*.csproj", "nuget"),
    _Format("*.fsproj", "nuget"),
    _Format("Directory.*.props", "nuget"),
    _Format("Cargo.lock", "cargo", trees.read_package_tables),
    _Format("mix.lock", "hex", texts.by_line(texts.HEX)),
    _Format("*Dockerfile*", "docker", texts.read_dockerfile),
    _Format("*.dockerfile", "docker", texts.read_dockerfile),
    _Format("Containerfile", "docker", texts.read_dockerfile),
    _Format("*.yaml", "docker", trees.read_images),
    _Format("*.yml", "docker", trees.read_images),
)


@dataclass(frozen=True)
class ManifestReading:
    """The known dependencies of a folder, with a note for each thing that is not understood."""

    dependencies: tuple[Dependency, ...]
    notes: tuple[str, ...]


def read_manifests(tree: Tree) -> ManifestReading:
    """Return the Kafka clients and products that the manifests among these files name.

    A file that cannot be read becomes a note, and the others are read.
    """
    reader = _Reader(tree)
    for path in reader.paths():
        reader.read(path)
    reader.read_projects()
    return ManifestReading(tuple(dict.fromkeys(reader.found)), tuple(dict.fromkeys(reader.notes)))


class _Reader:
    """The manifests of one version, as far as they are read."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self._folder = tree.root.resolve()
        self._read: set[Path] = set()
        self._projects: dict[str, dict[PurePosixPath, str]] = {"maven": {}, "nuget": {}}
        self.found: list[Dependency] = []
        self.notes: list[str] = []

    def paths(self) -> Iterator[Path]:
        """Yield the files that are manifests by their names.

        A project's own file is left out beside or below a lock file of its kind.
        """
        names = [PurePosixPath(name) for name in self._tree.files]
        locked = {
            own: {name.parent for name in names if name.name in locks}
            for own, locks in _LOCKS.items()
        }
        for name, path in self._tree.paths():
            decided = not locked.get(path.name, set()).isdisjoint(PurePosixPath(name).parents)
            if _format(path.name) and not decided:
                yield path

    def read(self, path: Path, known: _Format | None = None) -> None:
        """Read one file; a project waits until all files are read, as it may need others."""
        known = known or _format(path.name)
        if path in self._read or known is None:
            return
        self._read.add(path)
        place = self._place(path)
        try:
            text = configuration_text(path)
            if "\x00" in text:
                raise DocumentError(f"{place}: is a binary file, which no manifest is.")
            if known.read is None:
                self._projects[known.ecosystem][PurePosixPath(place)] = text
            elif _mentions(known.ecosystem, text):
                given = self._gradle_properties(path) if known.read is texts.read_gradle else ""
                self._keep(known.ecosystem, place, known.read(text + given, place))
            if known.read is texts.read_requirements:
                for named in _INCLUDED.findall(text):
                    included = path.parent / named
                    if included.is_file() and included.resolve().is_relative_to(self._folder):
                        self.read(included, known)
        except DocumentError as error:
            self.notes.append(_printable(str(error)))

    def _gradle_properties(self, script: Path) -> str:
        """Return the properties of a script's folder and of those above it, as a script's lines."""
        lines = [""]
        for name in (PurePosixPath(self._place(script)).parent / "x").parents:
            file = self._tree.root / name / "gradle.properties"
            if file.is_file():
                lines += [f'{k} = "{v}"' for k, v in _PROPERTY.findall(configuration_text(file))]
        return "\n".join(lines)

    def read_projects(self) -> None:
        """Read the projects in XML, which take versions from each other."""
        for ecosystem, files in self._projects.items():
            projects = Projects(files)
            for path, text in files.items():
                if not _mentions(ecosystem, text):
                    continue
                try:
                    self._keep(ecosystem, str(path), projects.read(path))
                except DocumentError as error:
                    self.notes.append(_printable(str(error)))

    def _keep(self, ecosystem: str, place: str, named: Iterable[Named]) -> None:
        """Keep what is known; a BOM is kept where it gives a version that the file does not."""
        # A lock file may name a package once for each place, or platform.
        first: dict[tuple[str, str | None], Named] = {}
        for one in named:
            first.setdefault((one.name, one.version), one)
        known = [(one, product_of(ecosystem, one.name)) for one in first.values()]
        used = [one for one, product in known if product and not product.bom]
        given = [one for one, product in known if product and product.bom and one.version][:1]
        # The library's own version, where it is written, replaces that of the BOM.
        fixed = any(one.name == _CLIENTS and one.version for one in used)
        # An extension of Quarkus has the platform's own version.
        platform = next((one.version for one in given if one.name.startswith(_QUARKUS)), None)
        used = [
            one._replace(version=one.version or platform) if one.name.startswith(_QUARKUS) else one
            for one in used
        ]
        if fixed or all(one.version for one in used):
            given = []
        for one in used:
            version = one.version
            if version is None and given and one.name == _CLIENTS:
                bom = Dependency(ecosystem, given[0].name, given[0].version, place)
                facts = client_of(bom)
                version = facts.library_version if facts else None
            silent = bool(given) or (fixed and one.name != _CLIENTS)
            self._add(
                ecosystem, place, Named(_printable(one.name), version, one.line), silent=silent
            )
        for one in given:
            self._add(ecosystem, place, one)

    def _add(self, ecosystem: str, place: str, one: Named, *, silent: bool = False) -> None:
        where = f"{place}:{one.line}" if one.line else place
        raw = one.version or ""
        version = raw if len(raw) <= _LONGEST and _VERSION.fullmatch(raw) else None
        self.found.append(Dependency(ecosystem, one.name, version, where))
        facts = client_of(self.found[-1])
        if raw[:1] in _RANGE and facts is not None and facts.default_list is not None:
            # Every version of it that was looked up has the same list.
            return
        if raw and version is None:
            shown = _printable(raw[:_LONGEST])
            self.notes.append(f"{where}: the version of {one.name} is not a plain one ({shown}).")
        elif version is None and not silent:
            self.notes.append(f"{where}: the version of {one.name} is not written there.")

    def _place(self, path: Path) -> str:
        return _printable(path.relative_to(self._tree.root).as_posix())


def _mentions(ecosystem: str, text: str) -> bool:
    lower = text.lower()
    return any(word in lower for word in hints(ecosystem))


def _format(name: str) -> _Format | None:
    return next((known for known in _FORMATS if fnmatchcase(name, known.pattern)), None)


def _printable(text: str) -> str:
    """Return the text with `?` for what a terminal must not get, or cannot encode."""
    return "".join(each if each.isprintable() else "?" for each in text)
