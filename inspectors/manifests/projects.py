"""Project files in XML: Maven's pom.xml, and the projects of .NET with their central versions.

A project takes versions and properties from other files: from its parents (Maven), or from the
nearest Directory.Packages.props (.NET). Only files below the root that is read are looked at.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from posixpath import normpath
from typing import Any, Final

from defusedxml.common import DefusedXmlException
from defusedxml.ElementTree import ParseError, fromstring

from rebal.inspectors.inventory.documents import UnreadableDocument, substituted
from rebal.inspectors.inventory.reader import configuration_text
from rebal.inspectors.manifests.texts import CLIENTS, OR, Named, together

_PROPERTY: Final = re.compile(r"\$[{(]([^${}()]+)[)}]")
_CENTRAL: Final = "Directory.Packages.props"
_TEST_SDK: Final = "microsoft.net.test.sdk"
_MOST_PARENTS: Final = 20
_NONE: Final = Named("", None)
# Spring Boot's parent reads the version of Kafka's packages from this property.
_BOOT_PROPERTY: Final = "kafka.version"
_BOOT: Final = "org.springframework.boot:spring-boot-starter-parent"


@dataclass
class Sheet:
    """One project file; `chain` are the files it takes versions from, itself first. `boms` are
    those that no file below the root is; `parent` is Maven's, with its `relativePath`.
    """

    named: list[Named] = field(default_factory=list)
    managed: dict[str, str | None] = field(default_factory=dict)
    boms: list[Named] = field(default_factory=list)
    imports: list[Sheet] = field(default_factory=list)
    properties: dict[str, str] = field(default_factory=dict)
    chain: list[Sheet] = field(default_factory=list)
    artifact: str = ""
    parent: Named = _NONE
    above: str = ""

    def property(self, name: str) -> str | None:
        """Return the value of a property, here or in a parent; None if none has it."""
        return next((one.properties[name] for one in self.chain if name in one.properties), None)

    def version_of(self, name: str) -> str | None:
        """Return the version that this sheet or a parent manages; None if none does."""
        for sheet in self.chain:
            for one in (sheet, *sheet.imports):
                if name in one.managed:
                    # A BOM has its own properties; those of a parent are overridden below it.
                    return (self if one is sheet else one).resolved(one.managed[name])
        return None

    def resolved(self, version: str | None) -> str | None:
        """Return the version with its properties replaced; as it is where one is not known."""
        for _ in range(_MOST_PARENTS):
            text = substituted(_PROPERTY, version or "", lambda match: self.property(match[1]))
            if not text or text == version or len(text) > 200:
                break
            version = text
        return version


class Projects:
    """The project files below one root by relative path, each read once it is asked for."""

    def __init__(self, files: Mapping[PurePosixPath, Path]) -> None:
        self._files = files
        self._sheets: dict[PurePosixPath, Sheet] = {}
        self._folders: dict[str, list[PurePosixPath]] = {}
        for path in files:
            self._folders.setdefault(path.parent.name, []).append(path)

    def read(self, path: PurePosixPath) -> Iterator[Named]:
        """Yield the packages that one project names, and the BOMs that give versions to them.

        Raises:
            UnreadableDocument: the file, or one that it takes versions from, is no such XML.
        """
        sheet = self._sheet(path, 0)
        versions = ((one, one.version or sheet.version_of(one.name)) for one in sheet.named)
        yield from together(one._replace(version=sheet.resolved(text)) for one, text in versions)
        for name, managed in sheet.managed.items():
            yield Named(name, sheet.resolved(managed))
        boms = [bom for one in sheet.chain for bom in one.boms]
        override = sheet.property(_BOOT_PROPERTY)
        if override and any(bom.name == _BOOT for bom in boms):
            yield Named(CLIENTS, sheet.resolved(override), gives=True)
        for bom in boms:
            yield Named(sheet.resolved(bom.name) or "", sheet.resolved(bom.version), gives=True)

    def _sheet(self, path: PurePosixPath, depth: int) -> Sheet:
        if path not in self._sheets:
            root = self._parsed(path)
            maven = path.suffix == ".xml"
            sheet = _maven(root) if maven else _msbuild(root)
            self._sheets[path] = sheet
            sheet.chain.append(sheet)
            beside = PurePosixPath(normpath(path.parent / sheet.above))
            central = [folder / _CENTRAL for folder in path.parents]
            places = [beside, beside / "pom.xml"] if maven else central
            above = self._found(sheet.parent, places, depth)
            if above is not None:
                sheet.chain += above.chain
            elif sheet.parent.name:
                sheet.boms.insert(0, sheet.parent)
            for bom in [*sheet.boms]:
                below = self._found(bom, self._folders.get(_artifact(bom), ()), depth)
                if below is not None:
                    sheet.boms.remove(bom)
                    sheet.imports.append(below)
        return self._sheets[path]

    def _found(self, one: Named, places: Sequence[PurePosixPath], depth: int) -> Sheet | None:
        """Return the first of these files that has the artifact's name; None if none has."""
        known = (path for path in places if path in self._files and depth < _MOST_PARENTS)
        sheets = (self._sheet(path, depth + 1) for path in known)
        return next((sheet for sheet in sheets if sheet.artifact == _artifact(one)), None)

    def _parsed(self, path: PurePosixPath) -> Any:
        """Return the root of a file's XML: names without their namespaces, texts without spaces."""
        try:
            root = fromstring(configuration_text(self._files[path]), forbid_dtd=True)
        except DefusedXmlException:
            raise UnreadableDocument(
                str(path), "declares a DTD, which no project file does"
            ) from None
        except (ParseError, ValueError, RecursionError) as error:
            raise UnreadableDocument(str(path), f"not valid XML: {error}") from None
        for element in root.iter():
            element.tag = str(element.tag).rpartition("}")[2]
            element.text = (element.text or "").strip()
        return root


def _artifact(one: Named) -> str:
    return one.name.partition(":")[2]


def _maven(root: Any) -> Sheet:
    properties = {one.tag: one.text for one in root.findall("properties/*")}
    for one in root.findall("profiles/profile/properties/*"):
        # The command line decides which profile counts.
        known = properties.setdefault(one.tag, one.text)
        if one.text not in known.split(OR):
            properties[one.tag] = f"{known}{OR}{one.text}"
    for key in ("version", "parent/version"):
        if found := root.findtext(key):
            properties.setdefault("project.version", found)
    managing = root.findall("dependencyManagement/dependencies/dependency")
    central = {each: each.findtext("scope") for each in managing}
    of_tools = root.findall(".//plugin/dependencies/dependency")
    others = {*central, *of_tools}
    own = [each for each in root.iter("dependency") if each not in others]
    managed = [_coordinates(each) for each, scope in central.items() if scope != "import"]
    parent = root.find("parent")
    return Sheet(
        named=[_coordinates(each) for each in own if each.findtext("scope") != "test"],
        managed={one.name: one.version for one in managed},
        boms=[_coordinates(each) for each, scope in central.items() if scope == "import"],
        properties=properties,
        artifact=root.findtext("artifactId", ""),
        parent=_NONE if parent is None else _coordinates(parent),
        above="" if parent is None else parent.findtext("relativePath", "../pom.xml"),
    )


def _coordinates(element: Any) -> Named:
    keys = ("groupId", "artifactId", "version")
    group, artifact, version = (element.findtext(key, "") for key in keys)
    return Named(f"{group}:{artifact}", version or None)


def _msbuild(root: Any) -> Sheet:
    central = [_package(each, "Version") for each in root.iter("PackageVersion")]
    named = [_package(each, "VersionOverride", "Version") for each in root.iter("PackageReference")]
    of_tests = any(one.name == _TEST_SDK for one in named)
    return Sheet(
        named=[one._replace(tests=of_tests) for one in named],
        managed={one.name: one.version for one in central},
        properties={one.tag: one.text for one in root.findall(".//PropertyGroup/*")},
    )


def _package(element: Any, *keys: str) -> Named:
    name = element.get("Include") or element.get("Update") or ""
    versions = (element.get(key) or element.findtext(key) for key in keys)
    return Named(name.strip().lower(), next(filter(None, versions), None))
