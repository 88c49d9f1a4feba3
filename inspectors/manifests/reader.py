"""The manifests of a folder: the Kafka clients and the products that its services are built from.

Only the dependencies that products.yaml knows are returned. A version is returned as it is written,
or as another file of the folder gives it; one that depends on anything else is None, with a note.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache, cached_property
from pathlib import Path, PurePosixPath
from typing import Final, NamedTuple

from rebal.groups.errors import DocumentError
from rebal.groups.libraries import Library
from rebal.inspectors.inventory.documents import json_tree, toml_tree
from rebal.inspectors.inventory.reader import configuration_text
from rebal.inspectors.manifests import texts, trees
from rebal.inspectors.manifests.products import Product, hints, library_of, product_of
from rebal.inspectors.manifests.projects import Projects
from rebal.inspectors.manifests.texts import CLIENTS, Named
from rebal.inspectors.repository.tree import Tree

# A project's own file, which gives ranges, and the lock files that say what they come to.
_LOCKS: Final = {
    "pyproject.toml": frozenset({"poetry.lock", "uv.lock", "pdm.lock"}),
    "Pipfile": frozenset({"Pipfile.lock"}),
    "Gemfile": frozenset({"Gemfile.lock"}),
    "package.json": frozenset(
        {"package-lock.json", "npm-shrinkwrap.json", "pnpm-lock.yaml", "yarn.lock"}
    ),
}
_LOCK_FILES: Final = frozenset().union(*_LOCKS.values())
_VERSION: Final = re.compile(r"v?\d[\w.+~-]*(?<![+-])", re.ASCII)
_KAFKA: Final = "org.apache.kafka"
_QUARKUS: Final = "io.quarkus"
_LONGEST: Final = 80
_RANGE: Final = frozenset("^~<>=!*")
# What a build keeps beside its projects, for all of them.
_OF_THE_BUILD: Final = re.compile(
    r"(?:\A|/)(?:(?:buildSrc|build-logic)/.*|gradle/[^/]*|project/[^/]*\.scala|requirements/[^/]*)\Z"
)
_PYPROJECT: Final = (
    *("project.dependencies", "project.optional-dependencies.*", "dependency-groups.*"),
    *("tool.poetry.dependencies", "tool.poetry.dev-dependencies"),
    *("tool.poetry.group.*.dependencies", "tool.uv.dev-dependencies"),
    "tool.pdm.dev-dependencies.*",
)


class _Format(NamedTuple):
    """Files whose names match `pattern`; those without a reader are projects in XML."""

    pattern: str
    ecosystem: str
    read: Callable[[str, str], Iterable[Named]] | None = None


# The first pattern that matches a name decides; each of its formats is read.
_FORMATS: Final = (
    _Format("pom.xml", "maven"),
    _Format("gradle.lockfile", "maven", texts.by_pattern(texts.GRADLE_LOCK)),
    *(
        _Format(f"*.{ending}", "maven", texts.read_gradle)
        for ending in ("gradle", "gradle.kts", "sbt", "scala", "kt", "java", "groovy")
    ),
    _Format("*.versions.toml", "maven", trees.read_catalog),
    _Format("go.mod", "golang", texts.read_go_mod),
    _Format(
        "package.json",
        "npm",
        trees.tables(json_tree, "dependencies", "optionalDependencies", "devDependencies"),
    ),
    *(
        _Format(
            name,
            "npm",
            trees.tables(json_tree, "packages", "dependencies", "dependencies.*.dependencies"),
        )
        for name in ("package-lock.json", "npm-shrinkwrap.json")
    ),
    _Format("pnpm-lock.yaml", "npm", texts.by_pattern(texts.PNPM)),
    _Format("yarn.lock", "npm", texts.by_pattern(texts.YARN)),
    _Format("*requirements*.txt", "pypi", texts.read_requirements),
    _Format("requirements/*.txt", "pypi", texts.read_requirements),
    *(
        _Format(name, "pypi", trees.tables(toml_tree, "package"))
        for name in ("poetry.lock", "uv.lock", "pdm.lock")
    ),
    _Format("pyproject.toml", "pypi", trees.tables(toml_tree, *_PYPROJECT)),
    _Format("Pipfile", "pypi", trees.tables(toml_tree, "packages", "dev-packages")),
    _Format("Pipfile.lock", "pypi", trees.tables(json_tree, "default")),
    _Format("setup.py", "pypi", texts.read_requirements),
    _Format("setup.cfg", "pypi", texts.read_requirements),
    *(_Format(f"environment.{end}", "pypi", texts.read_requirements) for end in ("yml", "yaml")),
    _Format("Gemfile", "gem", texts.by_pattern(texts.GEMFILE)),
    _Format("Gemfile.lock", "gem", texts.by_pattern(texts.GEM)),
    _Format("*.csproj", "nuget"),
    _Format("*.fsproj", "nuget"),
    _Format("Directory.*.props", "nuget"),
    _Format("Cargo.lock", "cargo", trees.tables(toml_tree, "package")),
    _Format("mix.lock", "hex", texts.by_pattern(texts.HEX)),
    *(
        _Format(pattern, ecosystem, texts.by_pattern(named))
        for pattern in ("*Dockerfile*", "*.dockerfile", "Containerfile")
        for ecosystem, named in (("docker", texts.FROM), ("pypi", texts.PINNED))
    ),
    *(_Format(f"*.{ending}", "docker", trees.read_images) for ending in ("yaml", "yml", "env")),
)
_IN_XML: Final = {each for each in _FORMATS if each.read is None}
# Formats to which other files give versions.
_SCRIPTS: Final = (texts.read_gradle, texts.read_go_mod)
_GIVERS: Final = (texts.read_gradle, trees.read_catalog)


@dataclass(frozen=True)
class ManifestReading:
    """The known libraries of a folder, with a note for each thing that is not understood."""

    libraries: tuple[Library, ...]
    notes: tuple[str, ...]


def read_manifests(tree: Tree) -> ManifestReading:
    """Return the Kafka clients and products that the manifests among these files name.

    A file that cannot be read becomes a note, and the others are read.
    """
    reader = _Reader(tree)
    # A project's own file comes first: it says which of its packages are for tests alone.
    for name, path in sorted(tree.paths(), key=lambda each: each[1].name not in _LOCKS):
        for known in _formats(name):
            reader.read(name, path, known)
    return ManifestReading(tuple(dict.fromkeys(reader.found)), tuple(dict.fromkeys(reader.notes)))


def scope_of(place: str) -> str:
    """Return the folder whose projects a file is for: its own, or for the build's own folders, such
    as buildSrc and gradle, the one that they are in.
    """
    build = _OF_THE_BUILD.search(place)
    return place[: build.start()] if build else place.rpartition("/")[0]


class _Reader:
    """The manifests of one version, as far as they are read."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self._projects = Projects(
            {PurePosixPath(n): path for n, path in tree.paths() if {*_formats(n)} & _IN_XML}
        )
        self._locks = [PurePosixPath(n) for n in tree.files if n.rpartition("/")[2] in _LOCK_FILES]
        # What projects' own files name: the folder, the product, and whether for tests alone.
        self._own: list[tuple[PurePosixPath, str, bool]] = []
        self.found: list[Library] = []
        self.notes: list[str] = []

    def read(self, name: str, path: Path, known: _Format) -> None:
        """Read one file; a bad one becomes a note."""
        place = _printable(name)
        try:
            text = configuration_text(path)
            if "\x00" in text:
                raise DocumentError(f"{place}: is a binary file, which no manifest is.")
            lower = text.lower()
            if not any(word in lower for word in hints(known.ecosystem)):
                return
            if known.read is None:
                named = self._projects.read(PurePosixPath(name))
            else:
                given = self._given(name) if known.read in _SCRIPTS else ""
                named = iter(known.read(text + given, place))
            self._keep(known.ecosystem, place, named)
        except DocumentError as error:
            self.notes.append(_printable(str(error)))

    def _given(self, place: str) -> str:
        """Return what files of the same folder and above give to a script: the constants of
        Gradle's and sbt's builds, and what Go's workspaces replace.
        """
        above = {*PurePosixPath(place).parents}
        return "".join(lines for folder, lines in self._shared if folder in above)

    @cached_property
    def _shared(self) -> list[tuple[PurePosixPath, str]]:
        found = []
        for name, path in self._tree.paths():
            reads = {known.read for known in _formats(name)}
            if path.name in ("gradle.properties", "go.work") or not reads.isdisjoint(_GIVERS):
                text = configuration_text(path)
                lines = f"\n{text}" if path.name == "go.work" else texts.given(text)
                if trees.read_catalog in reads:
                    lines += "".join(map(_platform, trees.read_catalog(text, name)))
                found.append((PurePosixPath(scope_of(name)), lines))
        return found

    def _keep(self, ecosystem: str, place: str, named: Iterable[Named]) -> None:
        """Keep what is known; a BOM is kept where it gives a version that the file does not."""
        # A lock file may name a package once for each place, or platform.
        first: dict[tuple[str, str | None], Named] = {}
        for one in named:
            first.setdefault((one.name, one.version), one)
        known = [(one, product_of(ecosystem, one.name)) for one in first.values()]
        own = PurePosixPath(place)
        if own.name in _LOCKS:
            self._own += [(own.parent, p.product, one.tests) for one, p in known if p]
            # What is beside or below a lock file of its kind is in there.
            locks = (lock for lock in self._locks if lock.name in _LOCKS[own.name])
            if any(lock.parent in own.parents for lock in locks):
                return
        brought = [(one, product) for one, product in known if product and not product.bom]
        used = [one for one, product in brought if not self._of_tests(own, one, product)]
        if ecosystem == "golang":
            # An indirect module counts where the project needs no known one itself.
            used = used or [one for one, _ in brought]
        bom = next((one for one, product in known if product and product.bom and one.version), None)
        inside = library_of(ecosystem, bom.name, bom.version) if bom is not None else None
        of_boot = (one.version for one, _ in known if one.gives and one.name == CLIENTS)
        versions = {
            _KAFKA: next(of_boot, inside.version if inside is not None else None),
            # Its extensions have the platform's own version.
            _QUARKUS: bom.version if bom is not None and bom.name.startswith(_QUARKUS) else None,
        }
        used = [
            one._replace(version=one.version or versions.get(one.name.partition(":")[0]))
            for one in used
        ]
        # Kafka's own version, where it is written, replaces that of the BOM.
        fixed = any(one.name.startswith(_KAFKA) and one.version for one in used)
        if fixed or all(one.version for one in used):
            bom = None
        givers = [
            f"{one.name} {one.version}"
            for one, product in known
            if one.gives and one.version and not product
        ]
        for one in used:
            silent = bom is not None or (fixed and not one.name.startswith(_KAFKA))
            version = one.version
            if givers and not silent and (version is None or "$" in version):
                version = f"{version or 'that'} of {' and '.join(givers)}"
            self._add(ecosystem, place, one._replace(version=version), silent=silent)
        if bom is not None:
            self._add(ecosystem, place, bom)

    def _of_tests(self, file: PurePosixPath, one: Named, product: Product) -> bool:
        """Return whether only developers and tests have a package. A lock file does not say so, but
        the projects' own files beside and below it do.
        """
        own = {
            of_tests
            for folder, name, of_tests in self._own
            if file.name in _LOCK_FILES
            and name == product.product
            and folder.is_relative_to(file.parent)
        }
        return one.tests or own == {True}

    def _add(self, ecosystem: str, place: str, one: Named, *, silent: bool = False) -> None:
        where = f"{place}:{one.line}" if one.line else place
        raw, name = one.version or "", _printable(one.name)
        version = raw if len(raw) <= _LONGEST and _VERSION.fullmatch(raw) else None
        found = library_of(ecosystem, name, version, where)
        self.found += [found] if found else []
        if raw[:1] in _RANGE and found and found.default_list is not None:
            # Every version of it that was looked up has the same list.
            return
        if raw and version is None:
            shown = _printable(raw[:_LONGEST])
            self.notes.append(f"{where}: the version of {name} is not a plain one ({shown}).")
        elif version is None and not silent:
            self.notes.append(f"{where}: the version of {name} is not written there.")


def _platform(one: Named) -> str:
    """Return the line that a catalog's entry is in a script, if it gives versions."""
    product = product_of("maven", one.name)
    return f'\nplatform("{one.name}:{one.version}")' if product and product.bom else ""


@cache
def _formats(name: str) -> list[_Format]:
    """Return the formats of a file, by its name or by that of its folder too."""
    last = name.rpartition("/")[2]
    ends = (last, f"{PurePosixPath(name).parent.name}/{last}")
    found = [one for one in _FORMATS if any(fnmatchcase(end, one.pattern) for end in ends)]
    return [one for one in found if one.pattern == found[0].pattern]


def _printable(text: str) -> str:
    """Return the text with `?` for what a terminal must not get, or cannot encode."""
    return "".join(each if each.isprintable() else "?" for each in text)
