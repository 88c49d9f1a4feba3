"""Parsers of manifests (build and lock files, image references) into package names and versions.

A project in XML (Maven's pom.xml, those of .NET) takes versions and properties from other files
too: from its parents, or from the nearest Directory.Packages.props. Only files below the root that
is read are used.
"""

import re
from collections import ChainMap, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from pathlib import Path, PurePosixPath
from posixpath import normpath
from typing import Any, Final, NamedTuple

from defusedxml.common import DefusedXmlException
from defusedxml.ElementTree import ParseError, fromstring

from rebal.inspectors.inventory.documents import (
    UnreadableDocument,
    documents,
    flatten,
    json_tree,
    mapping,
    str_or_none,
    toml_tree,
)
from rebal.inspectors.inventory.reader import configuration_text

# A requirement (PEP 508), or a package of npm; a version that is not pinned keeps its sign.
_REQUIREMENT: Final = (
    r"""(?P<name>@?[A-Za-z0-9][\w./-]*)[ \t]*(?:\[[^\]\n]{0,200}\])?[ \t(]*=*[ \t]*"""
    r"""(?P<version>(?:(?! --)[^;#\\"')\r\n])*)"""
)
REQUIREMENT: Final = re.compile(rf"^{_REQUIREMENT}", re.MULTILINE)
_REFERENCE: Final = (
    r"(?:(?:localhost|[^\s/.:]*[.:][^\s/]*)/)?(?:library/)?"
    r"(?P<name>[^\s:@]+)(?::(?P<version>[^\s@]+))?"
)
# An image: its name without the registry, and its tag.
IMAGE: Final = re.compile(rf"\A{_REFERENCE}")
_DOCKERFILES: Final = "*Dockerfile* *.dockerfile Containerfile"
# Behind what an argument of a command in a Dockerfile begins; its comments are passed over.
_ARGUMENT: Final = r"""^[ \t]*#.*|(?:^|(?<=[\s"']))"""
# Files in which each package is one match. Each pattern finds its matches without going back over a
# line, however long that is.
LINES: Final = tuple(
    (files, ecosystem, re.compile(pattern, re.MULTILINE))
    for files, ecosystem, pattern in (
        # A dependency that is not of tests alone.
        ("gradle.lockfile", "maven",
         r"^(?P<name>[\w.-]+:[\w.-]+):(?P<version>[^=\s]+)="
         r"(?:[\w,]*,)?(?:runtime|compile)Classpath"),
        ("pnpm-lock.yaml", "npm",
         r"""^  ['"]?/?(?P<name>(?:@[\w.-]+/)?[\w.-]+)[@/](?P<version>\d[\w.+-]*)['"]?[(:_]"""),
        # An alias names the package behind `@npm:`.
        ("yarn.lock", "npm",
         r"""^"?(?:[^\s#]{1,200}?@npm:)?(?P<name>(?:@[\w.-]+/)?[\w.-]+)@[^\n]*\n"""
         r"""  version:? "?(?P<version>[^"\s]+)"""),
        ("*requirements*.txt requirements/*.txt setup.cfg environment.yml environment.yaml", "pypi",
         rf"""^[ \t]*(?:- +)?["']?{_REQUIREMENT}"""),
        # Nothing is run: each text may be a requirement.
        ("setup.py", "pypi", rf"""["']{_REQUIREMENT}"""),
        ("Gemfile", "gem",
         r"""^[ \t]*gem[ \t(]*["'](?P<name>[\w.-]+)["']"""
         r"""(?:[ \t]*,[ \t]*["'](?P<version>[^"'\n]+)["'])?"""),
        ("Gemfile.lock", "gem",
         r"^    (?P<name>[\w.-]+) \((?P<version>[^)\s-]++)[^)\n]*+\)[ \r]*$"),
        ("mix.lock", "hex",
         r'^ *"(?P<name>\w+)": *\{(?::hex, *:\w+, *"(?P<version>[^"\n]+)"|:git|:path)'),
        (_DOCKERFILES, "docker", rf"^[ \t]*(?i:FROM)[ \t]+(?:--\S+[ \t]+)*{_REFERENCE}"),
        (_DOCKERFILES, "pypi",
         rf"""{_ARGUMENT}(?P<name>[A-Za-z][\w.-]*)(?:\[[^\]\n]*\])?==(?P<version>[^\s"'\\;&|]+)"""),
        (_DOCKERFILES, "npm",
         rf"""{_ARGUMENT}(?P<name>(?:@[\w.-]+/)?[\w.-]+)@(?P<version>[^\s"'\\;&|]+)"""),
        (_DOCKERFILES, "gem",
         rf"""{_ARGUMENT}(?P<name>[a-z][\w.-]*)["']?(?::|[ \t]+(?:-v|--version)[ \t=]*)["']?"""
         r"""(?P<version>[^\s"'\\;&|]+)"""),
    )
)  # fmt: skip
# A module that go.mod requires, and those of a block that it excludes.
_REQUIRED: Final = re.compile(
    r"^exclude[ \t]*\([^)]*|"
    r"^(?![^\n]*=>)[ \t]*(?:require[ \t]+)?(?P<name>[\w./~-]+)[ \t]+"
    r"(?P<version>(?:(?!//)[^\s()])+)(?P<tests>[ \t]*//[ \t]*indirect\b)?",
    re.MULTILINE,
)
_REPLACED: Final = re.compile(
    r"^[ \t]*(?:replace[ \t]+)?([\w./~-]+)(?:[ \t]+(v\S+))?[ \t]*=>[ \t]*([^\s]+)(?:[ \t]+(v\S+))?",
    re.MULTILINE,
)
CLIENTS: Final = "org.apache.kafka:kafka-clients"
_COORDINATES: Final = re.compile(
    r"""(?:(?P<gives>[Pp]latform[ \t]{0,9}\(|mavenBom|kafka\.version)[^"'\n]{0,99})?"""
    r"""["'](?P<name>[\w.${}-]+:[\w.${}-]+)(?::(?P<version>[^"':@*]+))?(?:[:@][^"']*)?["']"""
)
_ASSIGNED: Final = re.compile(
    r"""(?<![\w.])(?:(?:\w+\.)?ext\.)?(\w+)(?:[ \t]*:[ \t]*String)?"""
    r"""[ \t]*(?:=[ \t]*["']?|:[ \t]*["'])([\w.+${}-]{1,80})["']?(?=[\s,;)\]}]|\Z)"""
)
_NAMED: Final = r"""(["'][\w.-]+:[\w.-]+)"""
_RICH: Final = r"\s{0,9}\)?\s{0,9}\{\s{0,99}version\s{0,9}\{[^{}]{0,500}?"
_SETTING: Final = r"[ \t]{0,9},\s{0,99}version\s{0,9}[:=]\s{0,9}"
# How Gradle and sbt write coordinates, versions and properties, and their plain form. A version
# behind its package keeps its line.
_NOTATIONS: Final = tuple(
    (re.compile(pattern, re.MULTILINE), plain)
    for pattern, plain in (
        (r"^[ \t]*(?://|/?\*|#).*", ""),
        (r"""^.*%[ \t]*"?[Tt]est\b.*""", ""),
        (r"""["'][ \t]*%{1,3}[ \t]*["']""", ":"),
        (r'"[ \t]*%[ \t]*([A-Za-z_][\w.]*)', r':${\1}"'),
        # A catalog in a script of settings.
        (r"""\bversion\(\s{0,9}["'](\w+)["']\s{0,9},\s{0,9}(["'][^"'\n]+["'])\s{0,9}\)""",
         r"\1 = \2"),
        (r"""\blibrary\([^,\n]+,\s{0,9}["']([\w.-]+)["']\s{0,9},\s{0,9}["']([\w.-]+)["']""",
         r'"\1:\2"'),
        (r"""group[ \t]*[:=][ \t]*["']([\w.-]+)["'][ \t]*,"""
         r"""[ \t]*name[ \t]*[:=][ \t]*["']([\w.-]+)["']""", r'"\1:\2"'),
        # Of a rich version the number counts.
        (rf"""{_NAMED}(?=["']{_RICH}["'](v?\d[^"'\n]*))""", r"\1:\2"),
        (rf"""{_NAMED}(?=["'](?:{_RICH}|\s{{0,9}}\)\s{{0,99}}\.version\(|{_SETTING})"""
         r"""["']([^"'\n]+))""", r"\1:\2"),
        (rf"""{_NAMED}(?=["'](?:\s{{0,9}}\)\s{{0,99}}\.versionRef\(["']|{_SETTING})([\w.]+))""",
         r"\1:${\2}"),
        # Properties of Kotlin's scripts: extra["kafka"], ${property("kafka")}.
        (r"""[ \t]{1,9}by[ \t]{1,9}extra\([ \t]{0,9}(["'][^"'\n]*["'])[ \t]{0,9}\)""", r" = \1"),
        (r"""\b(?:ext(?:ra)?\s*\[|(?:findP|p)roperty\s*\()\s*["'](\w+)["']\s*[\])]""", r"\1"),
        (r"(\$\{[\w.]+)\.get\(\)", r"\1"),
        # Spring Boot's plugin reads the version of Kafka's packages from this property.
        (r"""(?:\[["']kafka\.version["']\]\s*=|set\(\s*["']kafka\.version["']\s*,)\s*["']""",
         f'kafka.version "{CLIENTS}:'),
        # Gradle finds a plugin by its marker artifact.
        (r"""\bid[ \t(]+["']([\w.-]+)["']\)?[ \t]+version[ \t]*\(?["']([^"'\n]+)["']""",
         r'"\1:\1.gradle.plugin:\2"'),
    )
)  # fmt: skip
# A configuration of tests, such as testImplementation or integrationTestRuntimeOnly.
_OF_TESTS: Final = re.compile(
    r"^(?:.*[ \t{])?(?:test|\w{1,99}Test)[A-Z]\w{0,99}[ \t(].*", re.MULTILINE
)
# Names of the groups, and of the files, of what only developers install.
OF_TESTS: Final = re.compile(
    r"(?<![a-z])(?:dev(?:elop(?:ment)?)?|tests?|testing|lint|docs|typing|ci)(?![a-z])"
)
# Between versions of which the file does not say which one counts.
OR: Final = " or "
_DEEPEST: Final = 9
_LONGEST: Final = 200


class Named(NamedTuple):
    """One mention of a package or image; `version` is as written (empty: none is written).

    `tests` is True if only development and tests use the package, or, for Go, if only other modules
    require it (`// indirect`). `gives` is True if it sets versions of other packages, as a BOM
    does.
    """

    name: str
    version: str = ""
    line: int = 0
    tests: bool = False
    gives: bool = False


def matches(pattern: re.Pattern[str], text: str, _: str = "") -> Iterator[Named]:
    """Yield one package for each match of `pattern` in the text.

    The pattern's groups `name` and `version` give the fields of that name; if the group `tests` or
    `gives` matched, that field is True.
    """
    line, at = 1, 0
    for found in pattern.finditer(text):
        line += text.count("\n", at, found.end())
        at = found.end()
        name, version, *marks = map(found.groupdict().get, ("name", "version", "tests", "gives"))
        yield Named(name or "", (version or "").strip(), line, *map(bool, marks))


def merged_by_name(named: Iterable[Named]) -> Iterator[Named]:
    """Yield each package once; different versions of its mentions are joined by ` or `."""
    by_name: dict[str, list[Named]] = defaultdict(list)
    for one in named:
        by_name[one.name].append(one)
    for found in by_name.values():
        yield found[0]._replace(
            version=OR.join(
                dict.fromkeys(text for one in found for text in one.version.split(OR) if text)
            )[:_LONGEST]
        )


def resolved(variable: re.Pattern[str], values: Mapping[str, str], text: str) -> str:
    """Return `text` with its variables replaced by their `values`; an unknown variable stays.

    `variable` matches one variable; its first group is the variable's name.
    """
    for _ in range(_DEEPEST):
        if "$" in text and len(text) < _LONGEST:
            text = variable.sub(lambda match: values.get(match[1]) or match[0], text)
    return text


def read_go_mod(text: str, _: str) -> Iterator[Named]:
    """Yield the modules that go.mod requires, after its `replace` directives."""
    replaced = {
        # The version of a fork in a folder is not in go.mod.
        (module, own): (other, version) if version else (module, other)
        for module, own, other, version in _REPLACED.findall(text)
    }
    for one in matches(_REQUIRED, text):
        # One with a version is for that version alone.
        name, version = replaced.get(one[:2]) or replaced.get((one.name, "")) or one[:2]
        yield one._replace(name=name, version=version)


def read_gradle(text: str, _: str) -> Iterator[Named]:
    """Yield the dependencies and plugins that a Gradle or sbt script or source names, each once.

    Versions from constants in the text and from `useVersion` rules are filled in. Dependencies of
    tests alone are left out.
    """
    script = _plain(text)
    constants = [Named(*each) for each in _ASSIGNED.findall(script)]
    # A package may have the name of its version.
    numbers = (one for one in constants if re.match(r"v?\d", one.version))
    values = {
        one.name: one.version for one in (*merged_by_name(constants), *merged_by_name(numbers))
    }
    value = partial(resolved, re.compile(r"\$\{?(?:\w+\.)*(\w+)\}?"), values)
    named = [
        one._replace(name=value(one.name), version=value(one.version)) for one in mentions(text)
    ]
    # Rules that give all packages of a group one version.
    for group, version in re.findall(
        r"""requested\.group\s*==\s*["']([\w.-]+)["'][^}]{0,500}?useVersion[\s(]*["']([^"'\n]+)["']""",
        script,
    ):
        named += [
            one._replace(version=value(version))
            for one in named
            if one.name.startswith(f"{group}:")
        ]
    return merged_by_name(named)


def mentions(text: str) -> Iterator[Named]:
    """Yield the dependencies and plugins of a Gradle or sbt script, variables not replaced.

    Dependencies of tests are left out.
    """
    return matches(_COORDINATES, _OF_TESTS.sub("", _plain(text)))


def script_lines(text: str, platforms: Iterable[Named]) -> str:
    """Return what a build file gives to other scripts, as lines to append to those scripts.

    They are the constants in its content `text`, and the BOMs `platforms` that it uses.
    """
    return "".join(
        (
            *(f'\n{name} = "{value}"' for name, value in _ASSIGNED.findall(_plain(text))),
            *(f'\nplatform("{one.name}:{one.version}")' for one in platforms),
        )
    )


@lru_cache(1)
def _plain(text: str) -> str:
    """Return a Gradle or sbt script with every dependency rewritten as "GROUP:NAME:VERSION".

    Comments and sbt's test dependencies are removed.
    """
    for notation, plain in _NOTATIONS:
        text = notation.sub(plain, text)
    return text


# Files that name packages below some keys; `*` stands for any key.
TABLES: Final = (
    ("package.json", "npm", json_tree,
     ("dependencies", "optionalDependencies", "devDependencies")),
    ("package-lock.json npm-shrinkwrap.json", "npm", json_tree,
     ("packages", "dependencies", "dependencies.*.dependencies")),
    ("poetry.lock uv.lock pdm.lock", "pypi", toml_tree, ("package",)),
    ("pyproject.toml", "pypi", toml_tree,
     ("project.dependencies", "project.optional-dependencies.*", "dependency-groups.*",
      "tool.poetry.dependencies", "tool.poetry.dev-dependencies",
      "tool.poetry.group.*.dependencies", "tool.uv.dev-dependencies",
      "tool.pdm.dev-dependencies.*")),
    ("Pipfile", "pypi", toml_tree, ("packages", "dev-packages")),
    ("Pipfile.lock", "pypi", json_tree, ("default",)),
    ("Cargo.lock", "cargo", toml_tree, ("package",)),
)  # fmt: skip
# How Helm values and Kustomize name an image in two keys.
_TAG_KEYS: Final = {"repository": "tag", "name": "newTag", "newName": "newTag", "image": "tag"}
# A key of a catalog: an entry, or a part of one.
_ENTRY: Final = re.compile(
    r"((?:libraries|plugins)\..+?)(?:\.(?:module|id|group|name|version)(?:\.\w+)?)?"
)


def read_tables(
    parse: Callable[[str, str], object], paths: Sequence[str], text: str, name: str
) -> Iterator[Named]:
    """Yield the packages that a JSON or TOML document names at these key paths.

    At a path there is a table by package name, a list of tables, or a list of requirements. `parse`
    reads the text; `*` in a path stands for any key.
    """
    tree = parse(text, name)
    return (
        one._replace(line=0, tests=OF_TESTS.search(place) is not None)
        for path in paths
        for place, found in _at(tree, path.split("."))
        for one in matches(REQUIREMENT, "\n".join(_requirements(found)))
    )


def _at(tree: object, path: list[str], place: str = "") -> Iterator[tuple[str, object]]:
    """Yield (keys, value) for each value at a path of keys in `tree`.

    `*` in the path stands for any key; the keys that lead to the value are joined by dots.
    """
    if not path:
        yield place, tree
        return
    table = mapping(tree)
    for key in table if path[0] == "*" else path[:1]:
        yield from _at(table.get(key), path[1:], f"{place}.{key}")


def _requirements(found: object) -> Iterator[str]:
    listed = [("", value) for value in found] if isinstance(found, list) else []
    for key, value in [*mapping(found).items(), *listed]:
        table = mapping(value)
        name = str_or_none(table.get("name")) or key.rpartition("node_modules/")[2]
        yield f"{name} {str_or_none(value) or str_or_none(table.get('version')) or ''}".strip()


def read_catalog(text: str, name: str) -> Iterator[Named]:
    """Yield the libraries and plugins of a Gradle version catalog."""
    flat = flatten(toml_tree(text, name), name)
    for entry in dict.fromkeys(found[1] for found in map(_ENTRY.fullmatch, flat) if found):
        written, _, version = flat.get(entry, "").rpartition(":")
        module = written or flat.get(f"{entry}.module") or flat.get(f"{entry}.id")
        named = module or f"{flat.get(f'{entry}.group')}:{flat.get(f'{entry}.name')}"
        reference = flat.get(f"{entry}.version.ref")
        at = f"versions.{reference}" if reference else f"{entry}.version"
        rich = (flat.get(f"{at}{key}", "") for key in (".prefer", ".strictly", ".require", ""))
        # Gradle finds a plugin by its marker artifact.
        marker = f"{named}:{named}.gradle.plugin" if entry.startswith("plugins") else named
        yield Named(marker, version or next(filter(None, rich), ""))


def read_images(text: str, name: str) -> Iterator[Named]:
    """Yield the container images and Helm charts that YAML or .env files name.

    These are compose files, Kubernetes objects, Helm values and charts, Kustomize, Argo CD and
    Flux.
    """
    # What is written around the actions of a Helm template is read.
    for document in documents(re.sub(r"\{\{.*?\}\}", "", text), name):
        flat = flatten(document.resource, name) if document.resource else document.settings
        for path, value in flat.items():
            parent, _, key = path.rpartition(".")
            tag = flat.get(f"{parent}.{_TAG_KEYS.get(key, '')}".removeprefix("."))
            chart = flat.get(f"{parent}.targetRevision") or flat.get(f"{parent}.version")
            if chart and (key == "chart" or parent.startswith("dependencies")):
                # The version of a chart is not its image's.
                yield Named(f"charts/{value.rpartition('/')[2]}", f"chart {chart}")
            # Kustomize puts another image in the place of a name.
            elif (key != "name" or f"{parent}.newName" not in flat) and (
                tag or key.lower().endswith(("image", "repository", "newname"))
            ):
                yield from (
                    one._replace(version=tag or one.version, line=0)
                    for one in matches(IMAGE, value)
                )


_PROPERTY: Final = re.compile(r"\$[{(]([^${}()]+)[)}]")
_MOST_PARENTS: Final = 20


@dataclass
class ProjectFile:
    """One XML project file's packages, managed versions and properties.

    In `managed` and `properties`, its own values come first, inherited values later. `parents` are
    the projects it inherits from, which may be in the files `above`. `boms` are BOMs and parents
    that are in no file below the root. `artifact` is the project's own name.
    """

    named: list[Named]
    managed: ChainMap[str, str]
    properties: ChainMap[str, str]
    parents: Sequence[Named]
    above: Sequence[PurePosixPath]
    boms: list[Named] = field(default_factory=list)
    artifact: str = ""


class Projects:
    """The XML project files below one root, by relative path; each is parsed when first needed."""

    def __init__(self, files: Iterable[tuple[str, Path]]) -> None:
        self._files = {PurePosixPath(name): path for name, path in files}
        self._project_files: dict[PurePosixPath, ProjectFile] = {}

    def read(self, name: str) -> Iterator[Named]:
        """Yield the packages that one project names or manages, and its BOMs, which give versions.

        Raises:
            UnreadableDocument: the file, or a file that it takes versions from, is no valid XML.
        """
        project = self._project_file(PurePosixPath(name), 0)
        value = partial(resolved, _PROPERTY, project.properties)
        yield from merged_by_name(
            one._replace(version=value(one.version or project.managed.get(one.name, "")))
            for one in project.named
        )
        for managed, text in project.managed.maps[0].items():
            yield Named(managed, value(text))
        # Spring Boot's parent reads the version of Kafka's packages from this property.
        override = project.properties.get("kafka.version")
        if override and any(
            bom.name == "org.springframework.boot:spring-boot-starter-parent"
            for bom in project.boms
        ):
            yield Named(CLIENTS, value(override), gives=True)
        for bom in project.boms:
            yield Named(value(bom.name), value(bom.version), gives=True)

    def _project_file(self, path: PurePosixPath, depth: int) -> ProjectFile:
        if path not in self._project_files:
            read = _maven if path.suffix == ".xml" else _msbuild
            self._project_files[path] = project = read(self._parsed(path), path)
            for bom in [*project.boms]:
                below = self._found(bom, (), depth)
                if below is not None:
                    # A BOM has its own properties; those of a parent are overridden below it.
                    project.managed.maps.append(
                        {
                            name: resolved(_PROPERTY, below.properties, text)
                            for name, text in below.managed.items()
                        }
                    )
                    project.boms.remove(bom)
            for parent in project.parents:
                above = self._found(parent, project.above, depth)
                if above is None:
                    project.boms.insert(0, parent)
                else:
                    project.managed.maps += above.managed.maps
                    project.properties.maps += above.properties.maps
                    project.boms += above.boms
        return self._project_files[path]

    def _found(self, one: Named, above: Sequence[PurePosixPath], depth: int) -> ProjectFile | None:
        """Return the parsed project file of the artifact `one` (a parent or BOM); None: not found.

        The files `above` are tried first, then those whose folder has the artifact's name. `depth`
        counts the parents followed so far; after 20 no more is searched.
        """
        artifact = one.name.partition(":")[2]
        folders = (path for path in self._files if path.parent.name == artifact != "")
        known = [path for path in (*above, *folders) if path in self._files]
        projects = (self._project_file(path, depth + 1) for path in known if depth < _MOST_PARENTS)
        return next((project for project in projects if project.artifact == artifact), None)

    def _parsed(self, path: PurePosixPath) -> Any:
        """Return the root element of a file's XML, without namespaces, with all texts stripped.

        Raises:
            UnreadableDocument: the file is no valid XML, or declares a DTD.
        """
        try:
            root = fromstring(configuration_text(self._files[path], str(path)), forbid_dtd=True)
        except (ParseError, ValueError, RecursionError) as error:
            dtd = isinstance(error, DefusedXmlException)
            why = "declares a DTD, which no project file does" if dtd else f"not valid XML: {error}"
            raise UnreadableDocument(str(path), why) from None
        for element in root.iter():
            element.tag = str(element.tag).rpartition("}")[2]
            element.text = (element.text or "").strip()
        return root


def _maven(root: Any, path: PurePosixPath) -> ProjectFile:
    # The command line decides which profile counts.
    parts = [root, *root.findall("profiles/profile")]
    central = [
        each for part in parts for each in part.findall("dependencyManagement/dependencies/*")
    ]
    properties = _versions(
        Named(each.tag, each.text) for part in parts for each in part.findall("properties/*")
    )
    properties.setdefault(
        "project.version", root.findtext("version") or root.findtext("parent/version", "")
    )
    beside = path.parent / root.findtext("parent/relativePath", "../pom.xml")
    return ProjectFile(
        named=[
            _coordinates(each)
            for part in parts
            for each in part.findall("dependencies/dependency")
            if each.findtext("scope") != "test"
        ],
        managed=_versions(_coordinates(e) for e in central if e.findtext("scope") != "import"),
        properties=properties,
        parents=[_coordinates(each) for each in root.findall("parent")],
        above=[PurePosixPath(normpath(each)) for each in (beside, beside / "pom.xml")],
        boms=[_coordinates(each) for each in central if each.findtext("scope") == "import"],
        artifact=root.findtext("artifactId", ""),
    )


def _versions(named: Iterable[Named]) -> ChainMap[str, str]:
    return ChainMap({one.name: one.version for one in merged_by_name(named)})


def _coordinates(element: Any) -> Named:
    group, artifact, version = (
        element.findtext(key, "") for key in ("groupId", "artifactId", "version")
    )
    return Named(f"{group}:{artifact}", version)


def _msbuild(root: Any, path: PurePosixPath) -> ProjectFile:
    named = [_package(each, "VersionOverride", "Version") for each in root.iter("PackageReference")]
    of_tests = any(one.name == "microsoft.net.test.sdk" for one in named)
    return ProjectFile(
        named=[one._replace(tests=of_tests) for one in named],
        managed=_versions(_package(each, "Version") for each in root.iter("PackageVersion")),
        properties=_versions(
            Named(each.tag, each.text) for each in root.findall(".//PropertyGroup/*")
        ),
        parents=[Named("")],
        above=[folder / "Directory.Packages.props" for folder in path.parents],
    )


def _package(element: Any, *keys: str) -> Named:
    return Named(
        (element.get("Include") or element.get("Update") or "").strip().lower(),
        next(filter(None, (element.get(key) or element.findtext(key) for key in keys)), ""),
    )
