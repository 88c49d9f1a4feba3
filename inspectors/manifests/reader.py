"""The manifests of a folder: the Kafka clients and the products that its services are built from.

Only the dependencies in groups/data/products.yaml are returned; clients.yaml describes the client
libraries. A version is returned as it is written, or as another file of the folder gives it. A
version that depends on anything else is None, with a note.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Iterable
from functools import cache, cached_property, partial
from pathlib import Path, PurePosixPath
from typing import Final, Literal, NamedTuple

from msgspec.structs import replace

from rebal.groups.clients import Library, default_list, version_tuple
from rebal.groups.data import load_data
from rebal.groups.errors import DocumentError
from rebal.groups.model import Record
from rebal.inspectors.inventory.reader import configuration_text
from rebal.inspectors.manifests import texts
from rebal.inspectors.manifests.texts import CLIENTS, OF_TESTS, Named, Projects, matches
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
_KAFKA: Final = "org.apache.kafka"
_LONGEST: Final = 80


class _Format(NamedTuple):
    """One kind of manifest: the files whose names match `pattern`, and their ecosystem and reader.

    `read` is None for projects in XML, which `Projects` reads.
    """

    pattern: str
    ecosystem: str
    read: Callable[[str, str], Iterable[Named]] | None = None


# The first pattern that matches a name decides; each of its formats is read.
_FORMATS: Final = tuple(
    _Format(pattern, ecosystem, read)
    for patterns, ecosystem, read in (
        ("pom.xml", "maven", None),
        ("*.csproj *.fsproj Directory.*.props", "nuget", None),
        ("*.gradle *.gradle.kts *.sbt *.scala *.kt *.java *.groovy", "maven", texts.read_gradle),
        ("*.versions.toml", "maven", texts.read_catalog),
        ("go.mod", "golang", texts.read_go_mod),
        *(
            (files, ecosystem, partial(texts.read_tables, parse, paths))
            for files, ecosystem, parse, paths in texts.TABLES
        ),
        *(
            (files, ecosystem, partial(matches, pattern))
            for files, ecosystem, pattern in texts.LINES
        ),
        ("*.yaml *.yml *.env", "docker", texts.read_images),
    )
    for pattern in patterns.split()
)


def read_manifests(tree: Tree) -> tuple[tuple[Library, ...], tuple[str, ...]]:
    """Return the Kafka clients and products that the manifests in `tree` name, and notes.

    A note names a version that is not known, or a file that cannot be read; the other files are
    read.
    """
    reader = _ManifestReader(tree)
    # A project's own file comes first: it says which of its packages are for tests alone.
    for name, path in sorted(tree.paths(), key=lambda each: each[1].name not in _LOCKS):
        for known in _formats(name):
            reader.read(name, path, known)
    return tuple(dict.fromkeys(reader.found)), tuple(dict.fromkeys(reader.notes))


def scope_of(place: str) -> str:
    """Return the folder in which, and below which, the build file `place` applies to projects.

    That is the file's own folder. For a file in a folder of the build itself, such as buildSrc or
    gradle, it is the folder that contains buildSrc or gradle.
    """
    own = r"(?:buildSrc|build-logic)/.*|gradle/[^/]*|project/[^/]*\.scala|requirements/[^/]*"
    build = re.search(rf"(?:\A|/)(?:{own})\Z", place)
    return place[: build.start()] if build else place.rpartition("/")[0]


class _ManifestReader:
    def __init__(self, tree: Tree) -> None:
        self._paths = dict(tree.paths())
        self._projects = Projects(
            each for each in tree.paths() if any(known.read is None for known in _formats(each[0]))
        )
        # What projects' own files name: the folder, the product, and whether for tests alone.
        self._own: list[tuple[PurePosixPath, str, bool]] = []
        self.found: list[Library] = []
        self.notes: list[str] = []

    def read(self, name: str, path: Path, known: _Format) -> None:
        """Read one manifest into `found`; if it cannot be read, add a note."""
        place = _printable(name)
        try:
            text = configuration_text(path, place)
            if hints(known.ecosystem).search(text):
                # Files of the same folder and above give to a script: the constants of Gradle's and
                # sbt's builds, and what Go's workspaces replace.
                if known.read in (texts.read_gradle, texts.read_go_mod):
                    above = reversed(PurePosixPath(name).parents)
                    text += "".join(self._shared.get(folder, "") for folder in above)
                named = known.read(text, place) if known.read else self._projects.read(name)
                # A requirement file of developers says so in its name.
                of_tests = path.suffix == ".txt" and OF_TESTS.search(path.name) is not None
                self._keep(known.ecosystem, place, () if of_tests else named)
        except DocumentError as error:
            self.notes.append(_printable(str(error)))

    @cached_property
    def _shared(self) -> dict[PurePosixPath, str]:
        found: dict[PurePosixPath, str] = defaultdict(str)
        for name, path in self._paths.items():
            reads, scope = {known.read for known in _formats(name)}, PurePosixPath(scope_of(name))
            if path.name == "go.work":
                found[scope] += f"\n{configuration_text(path, name)}"
            elif (
                reads & {texts.read_gradle, texts.read_catalog} or path.name == "gradle.properties"
            ):
                text = configuration_text(path, name)
                catalog = texts.read_catalog in reads
                named = texts.read_catalog(text, name) if catalog else texts.mentions(text)
                found[scope] += texts.script_lines(text, filter(_gives, named))
        return found

    def _keep(self, ecosystem: str, place: str, named: Iterable[Named]) -> None:
        """Add the Kafka clients and products among the packages of the file `place` to `found`.

        A version that is not a plain number gets a note. A BOM is added if the version of a package
        comes from it.
        """
        known = [(one, product_of(ecosystem, one.name)) for one in named]
        own = PurePosixPath(place)
        if own.name in _LOCKS:
            self._own += [(own.parent, p.product, one.tests) for one, p in known if p]
            # What is beside or below a lock file of its kind is in there.
            locks = {str(folder / lock) for folder in own.parents for lock in _LOCKS[own.name]}
            if not locks.isdisjoint(self._paths):
                return
        brought = [(one, product) for one, product in known if product and not product.bom]
        # A lock file does not say what only developers and tests have, but the projects' own files
        # beside and below it do.
        locked = any(own.name in locks for locks in _LOCKS.values())
        below = [each for each in self._own if locked and each[0].is_relative_to(own.parent)]
        of_tests = {each[1] for each in below} - {each[1] for each in below if not each[2]}
        used = [one for one, p in brought if not one.tests and p.product not in of_tests]
        # An indirect module of Go counts where the project needs no known one itself.
        used = used or [one for one, _ in brought if ecosystem == "golang"]
        bom, group = next(
            ((one, p.bom) for one, p in known if p and p.bom and one.version), (Named(""), "")
        )
        inside = library_of(ecosystem, bom.name, _plain(bom.version)) or Library()
        of_boot = (one.version for one, _ in known if one.gives and one.name == CLIENTS)
        versions = {group: bom.version, _KAFKA: next(of_boot, inside.version)}
        used = [
            one._replace(version=one.version or versions.get(one.name.partition(":")[0]) or "")
            for one in used
        ]
        # Kafka's own version, where it is written, replaces that of the BOM.
        fixed = any(one.name.startswith(_KAFKA) and one.version for one in used)
        shown = [bom] if bom.name and not fixed and not all(one.version for one in used) else []
        givers = " and ".join(
            f"{one.name} {one.version}"
            for one, product in known
            if one.gives and one.version and not product
        )
        for one in (*used, *shown):
            silent = bool(shown) or (fixed and not one.name.startswith(_KAFKA))
            unclear = givers and not silent and ("$" in one.version or not one.version)
            raw = f"{one.version or 'that'} of {givers}" if unclear else one.version
            version = _plain(raw)
            found = library_of(ecosystem, _printable(one.name), version) or Library()
            self.found.append(replace(found, where=place, line=one.line))
            # Every version in a range that was looked up has the same list.
            quiet = raw[:1] in "^~<>=!*" and found.default_list is not None if raw else silent
            if version is None and not quiet:
                where = f"{place}:{one.line}" if one.line else place
                why = f"not a plain one ({raw[:_LONGEST]})" if raw else "not written there"
                self.notes.append(_printable(f"{where}: the version of {one.name} is {why}."))


def _gives(one: Named) -> bool:
    product = product_of("maven", one.name)
    return one.gives or (product is not None and product.bom != "")


def _plain(version: str) -> str | None:
    plain = re.fullmatch(r"v?\d[\w.+~-]*(?<![+-])", version, re.ASCII)
    return version if plain and len(version) <= _LONGEST else None


@cache
def _formats(name: str) -> list[_Format]:
    """Return all formats with the first pattern in `_FORMATS` that the path `name` matches.

    The result is empty if it matches none.
    """
    found = [one for one in _FORMATS if PurePosixPath(name).match(one.pattern)]
    return [one for one in found if one.pattern == found[0].pattern]


def _printable(text: str) -> str:
    """Return the text with `?` for each character that is not printable."""
    return "".join(each if each.isprintable() else "?" for each in text)


# Past every patch release of a line.
_END: Final = 1_000_000


class ProductFacts(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Facts about a product's versions from `first` to `last`, both included.

    Without `last`, they hold for all later versions too. `protocol` and `effect` are set only for a
    fault of the product. The comment at the top of products.yaml explains the fields.
    """

    first: str = "0"
    last: str | None = None
    inside: str | None = None
    library: str | None = None
    list: tuple[str, ...] | None = None
    list_key: str | None = None
    refuses: str | None = None
    source: str | None = None
    protocol: Literal["cooperative", "consumer", ""] = ""
    effect: str = ""

    def holds(self, low: tuple[int, ...], high: tuple[int, ...]) -> bool:
        """Return whether the facts apply to some version from `low` to `high`, both included.

        Called as `holds(high, low)`, it returns whether they apply to all these versions.
        """
        reached = self.last is None or low <= (version_tuple(self.last) or ())
        return reached and (version_tuple(self.first) or ()) <= high


class Product(ProductFacts, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One entry of products.yaml, with the facts of all its versions; the comment at the top of the
    file explains the fields.
    """

    product: str
    names: tuple[str, ...]
    own_version: bool = False
    bom: str = ""
    group_protocol: bool = True
    releases: tuple[ProductFacts, ...] = ()
    faults: tuple[ProductFacts, ...] = ()


@cache
def products() -> dict[tuple[str, str], Product]:
    """Return (ecosystem, package name) → product, for all products in products.yaml."""
    return {
        name.partition(":")[::2]: one
        for one in load_data("products.yaml", dict[str, tuple[Product, ...]])["products"]
        for name in one.names
    }


@cache
def hints(ecosystem: str) -> re.Pattern[str]:
    """Return a pattern that matches every text that names a product of this ecosystem.

    A text without a match need not be parsed.
    """
    names = [name for (kind, name), one in products().items() if kind == ecosystem and not one.bom]
    # A Python package's name has many spellings; an image's is short without its folder.
    last = {"docker": "^charts/", "pypi": "-"}.get(ecosystem, "[:/]")
    words = {"kafka" if "kafka" in name else re.split(last, name)[-1] for name in names}
    return re.compile("|".join(map(re.escape, words)), re.IGNORECASE)


def product_of(ecosystem: str, name: str) -> Product | None:
    """Return the product with this package or image name; None if products.yaml has none.

    Other spellings of a name are accepted (PEP 503; a Scala version at its end), and folders of a
    mirror before an image's name.
    """
    # Spellings of one name: with Scala's version, and with any of three signs (PEP 503).
    spelling, plain = {
        "maven": (r"_(?:2\.1\d|3)\Z", ""),
        "pypi": (r"[-_.]+", "-"),
    }.get(ecosystem, (r"\A", ""))
    parts = re.sub(spelling, plain, name.lower() if ecosystem == "pypi" else name).split("/")
    folders = range(len(parts) - 1 if ecosystem == "docker" and len(parts) > 2 else 1)
    found = (products().get((ecosystem, "/".join(parts[folder:]))) for folder in folders)
    return next(filter(None, found), None)


def library_of(ecosystem: str, package: str, version: str | None) -> Library | None:
    """Return the Kafka client that a package or image contains; None if it is not a known product.

    `ecosystem` is the type in a package URL, such as `maven`. `version` is None if not known.
    """
    product = product_of(ecosystem, package)
    if product is None:
        return None
    # An image's tag `1.9`, or `1.9-debian`, is any release of that line.
    low = version_tuple(version) or ()
    tag = ecosystem == "docker" and len(re.findall(r"(?:\Av?|(?<=\d)\.)\d+", version or "")) < 3
    high = (*low, _END) if low and tag else low
    held = {replace(e, first="", last="") for e in product.releases if e.holds(low, high)}
    release = held.pop() if len(held) == 1 else ProductFacts()
    family = release.library or product.library
    inside = version if product.own_version else release.inside
    own = release.list or product.list or default_list(family, inside)
    return Library(
        family=family,
        version=inside,
        product="" if product.own_version else product.product,
        product_version=version,
        default_list=own if product.group_protocol else None,
        group_protocol=product.group_protocol,
        list_key=release.list_key or product.list_key,
        refuses=release.refuses or product.refuses,
        own_list=bool(product.list) or any(one.list for one in product.releases),
        ecosystem=ecosystem,
        package=package,
        # A fault that some release of a line may not have is not named.
        faults=tuple(
            (fault.protocol, f"{fault.effect} ({fault.source})")
            for fault in product.faults
            if low and fault.holds(high, low)
        ),
    )
