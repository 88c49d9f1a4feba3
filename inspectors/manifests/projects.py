"""Project files in XML: Maven's pom.xml, and the projects of .NET with their central versions.

A project takes versions and properties from other files: from its parents (Maven), or from the
nearest Directory.Packages.props (.NET). Only files below the root that is read are looked at.
"""

import re
from collections import ChainMap
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path, PurePosixPath
from posixpath import normpath
from typing import Any, Final

from defusedxml.common import DefusedXmlException
from defusedxml.ElementTree import ParseError, fromstring

from rebal.inspectors.inventory.documents import UnreadableDocument
from rebal.inspectors.inventory.reader import configuration_text
from rebal.inspectors.manifests.texts import CLIENTS, Named, resolved, together

_PROPERTY: Final = re.compile(r"\$[{(]([^${}()]+)[)}]")
_MOST_PARENTS: Final = 20


@dataclass
class Sheet:
    """One project file: its own versions and properties first, those that it takes over behind.

    `parents` may be in the files `above`; `boms` are those that no file below the root is.
    """

    named: list[Named]
    managed: ChainMap[str, str]
    properties: ChainMap[str, str]
    parents: Sequence[Named]
    above: Sequence[PurePosixPath]
    boms: list[Named] = field(default_factory=list)
    artifact: str = ""


class Projects:
    """The project files below one root by relative path, each read once it is asked for."""

    def __init__(self, files: Iterable[tuple[str, Path]]) -> None:
        self._files = {PurePosixPath(name): path for name, path in files}
        self._sheets: dict[PurePosixPath, Sheet] = {}

    def read(self, name: str) -> Iterator[Named]:
        """Yield the packages that one project names, and the BOMs that give versions to them.

        Raises:
            UnreadableDocument: the file, or one that it takes versions from, is no such XML.
        """
        sheet = self._sheet(PurePosixPath(name), 0)
        value = partial(resolved, _PROPERTY, sheet.properties)
        yield from together(
            one._replace(version=value(one.version or sheet.managed.get(one.name, "")))
            for one in sheet.named
        )
        for managed, text in sheet.managed.maps[0].items():
            yield Named(managed, value(text))
        # Spring Boot's parent reads the version of Kafka's packages from this property.
        override = sheet.properties.get("kafka.version")
        if override and any(
            bom.name == "org.springframework.boot:spring-boot-starter-parent" for bom in sheet.boms
        ):
            yield Named(CLIENTS, value(override), gives=True)
        for bom in sheet.boms:
            yield Named(value(bom.name), value(bom.version), gives=True)

    def _sheet(self, path: PurePosixPath, depth: int) -> Sheet:
        if path not in self._sheets:
            read = _maven if path.suffix == ".xml" else _msbuild
            self._sheets[path] = sheet = read(self._parsed(path), path)
            for bom in [*sheet.boms]:
                below = self._found(bom, (), depth)
                if below is not None:
                    # A BOM has its own properties; those of a parent are overridden below it.
                    own = below.managed.items()
                    sheet.managed.maps.append(
                        {name: resolved(_PROPERTY, below.properties, text) for name, text in own}
                    )
                    sheet.boms.remove(bom)
            for parent in sheet.parents:
                above = self._found(parent, sheet.above, depth)
                if above is None:
                    sheet.boms.insert(0, parent)
                else:
                    sheet.managed.maps += above.managed.maps
                    sheet.properties.maps += above.properties.maps
                    sheet.boms += above.boms
        return self._sheets[path]

    def _found(self, one: Named, above: Sequence[PurePosixPath], depth: int) -> Sheet | None:
        """Return the first file, of those above and those in a folder of the artifact's name, that
        is the artifact's; None if none is.
        """
        artifact = one.name.partition(":")[2]
        folders = (path for path in self._files if path.parent.name == artifact != "")
        known = [path for path in (*above, *folders) if path in self._files]
        sheets = (self._sheet(path, depth + 1) for path in known if depth < _MOST_PARENTS)
        return next((sheet for sheet in sheets if sheet.artifact == artifact), None)

    def _parsed(self, path: PurePosixPath) -> Any:
        """Return the root of a file's XML: names without their namespaces, texts without spaces."""
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


def _maven(root: Any, path: PurePosixPath) -> Sheet:
    # The command line decides which profile counts.
    parts = [root, *root.findall("profiles/profile")]
    needs = [each for part in parts for each in part.findall("dependencies/dependency")]
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
    return Sheet(
        named=[_coordinates(each) for each in needs if each.findtext("scope") != "test"],
        managed=_versions(_coordinates(e) for e in central if e.findtext("scope") != "import"),
        properties=properties,
        parents=[_coordinates(each) for each in root.findall("parent")],
        above=[PurePosixPath(normpath(each)) for each in (beside, beside / "pom.xml")],
        boms=[_coordinates(each) for each in central if each.findtext("scope") == "import"],
        artifact=root.findtext("artifactId", ""),
    )


def _versions(named: Iterable[Named]) -> ChainMap[str, str]:
    return ChainMap({one.name: one.version for one in together(named)})


def _coordinates(element: Any) -> Named:
    group, artifact, version = (
        element.findtext(key, "") for key in ("groupId", "artifactId", "version")
    )
    return Named(f"{group}:{artifact}", version)


def _msbuild(root: Any, path: PurePosixPath) -> Sheet:
    named = [_package(each, "VersionOverride", "Version") for each in root.iter("PackageReference")]
    of_tests = any(one.name == "microsoft.net.test.sdk" for one in named)
    return Sheet(
        named=[one._replace(tests=of_tests) for one in named],
        managed=_versions(_package(each, "Version") for each in root.iter("PackageVersion")),
        properties=_versions(
            Named(each.tag, each.text) for each in root.findall(".//PropertyGroup/*")
        ),
        parents=[Named("")],
        above=[folder / "Directory.Packages.props" for folder in path.parents],
    )


def _package(element: Any, *keys: str) -> Named:
    name = element.get("Include") or element.get("Update") or ""
    return Named(
        name.strip().lower(),
        next(filter(None, (element.get(key) or element.findtext(key) for key in keys)), ""),
    )
