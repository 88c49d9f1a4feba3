"""Project files in XML: Maven's pom.xml, and the projects of .NET with their central versions.

A project takes versions and properties from other files: from its parents (Maven), or from the
nearest Directory.Packages.props (.NET). Only files below the root that is read are looked at.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath
from posixpath import normpath
from typing import Any, Final

from defusedxml.common import DefusedXmlException
from defusedxml.ElementTree import ParseError, fromstring

from rebal.inspectors.inventory.documents import UnreadableDocument, substituted
from rebal.inspectors.manifests.texts import OR, Named, together

_PROPERTY: Final = re.compile(r"\$[{(]([^${}()]+)[)}]")
_CENTRAL: Final = "Directory.Packages.props"
_MOST_PARENTS: Final = 20
# Spring Boot's parent reads Kafka's version from this property.
_BOOT: Final = "org.springframework.boot:spring-boot-starter-parent"
_CLIENTS: Final = "org.apache.kafka:kafka-clients"
_BOOT_PROPERTY: Final = "kafka.version"


class Sheet:
    """One project file; `chain` are the files it takes versions from, itself first."""

    def __init__(self) -> None:
        self.named: list[Named] = []
        self.managed: dict[str, str | None] = {}
        self.boms: list[Named] = []
        self.imports: list[Sheet] = []
        self.properties: dict[str, str] = {}
        self.chain: list[Sheet] = [self]

    def property(self, name: str) -> str | None:
        """Return the value of a property, here or in a parent; None if none has it."""
        return next((one.properties[name] for one in self.chain if name in one.properties), None)

    def version_of(self, name: str) -> str | None:
        """Return the version that this sheet or a parent manages; None if none does."""
        managing = (one for sheet in self.chain for one in (sheet, *sheet.imports))
        found = next((one for one in managing if name in one.managed), None)
        return found.resolved(found.managed[name]) if found else None

    def resolved(self, version: str | None) -> str | None:
        """Return the version with its properties replaced; as it is where one is not known."""
        for _ in range(_MOST_PARENTS):
            if version is None or not _PROPERTY.search(version):
                break
            replaced = substituted(_PROPERTY, version, lambda match: self.property(match[1]))
            if replaced is None or len(replaced) > 200:
                break
            version = replaced
        return version


class Projects:
    """The project files below one root, each parsed once it is asked for."""

    def __init__(self, texts: Mapping[PurePosixPath, str]) -> None:
        self._texts = texts
        self._sheets: dict[PurePosixPath, Sheet] = {}
        self._folders: dict[str, list[PurePosixPath]] = {}
        for path in texts:
            self._folders.setdefault(path.parent.name, []).append(path)

    def read(self, path: PurePosixPath) -> Iterator[Named]:
        """Yield the packages that one project names, and the BOMs that give versions to them.

        Raises:
            UnreadableDocument: the file, or one that it takes versions from, is no such XML.
        """
        sheet = self._sheet(path, 0)
        versions = ((one.name, one.version or sheet.version_of(one.name)) for one in sheet.named)
        yield from together(Named(name, sheet.resolved(version)) for name, version in versions)
        for name, managed in sheet.managed.items():
            yield Named(name, sheet.resolved(managed))
        boms = [bom for one in sheet.chain for bom in one.boms]
        override = sheet.property(_BOOT_PROPERTY)
        if override and any(bom.name == _BOOT for bom in boms):
            yield Named(_CLIENTS, sheet.resolved(override))
        for bom in boms:
            yield Named(sheet.resolved(bom.name) or "", sheet.resolved(bom.version))

    def _sheet(self, path: PurePosixPath, depth: int) -> Sheet:
        if path not in self._sheets:
            root = _parsed(self._texts[path], path)
            maven = path.suffix == ".xml"
            sheet = _maven(root) if maven else _msbuild(root)
            self._sheets[path] = sheet
            above = self._parent(path, root) if maven else self._central(path)
            if above is not None and depth < _MOST_PARENTS:
                sheet.chain += self._sheet(above, depth + 1).chain
            for bom in self._boms(sheet) if depth < _MOST_PARENTS else ():
                sheet.imports.append(self._sheet(bom, depth + 1))
        return self._sheets[path]

    def _parent(self, path: PurePosixPath, root: Any) -> PurePosixPath | None:
        parent = root.find("parent")
        if parent is None:
            return None
        named = parent.findtext("relativePath", "../pom.xml").strip()
        below = PurePosixPath(normpath(path.parent / named))
        above = below if below in self._texts else below / "pom.xml"
        if above not in self._texts or above == path:
            return None
        there = _parsed(self._texts[above], above).findtext("artifactId")
        return above if there == parent.findtext("artifactId") else None

    def _boms(self, sheet: Sheet) -> Iterator[PurePosixPath]:
        """Yield the poms below the root that a pom imports, each in a folder of its own name."""
        for bom in sheet.boms:
            artifact = bom.name.partition(":")[2]
            for path in self._folders.get(artifact, ()):
                if _parsed(self._texts[path], path).findtext("artifactId") == artifact:
                    yield path

    def _central(self, path: PurePosixPath) -> PurePosixPath | None:
        return next(
            (
                folder / _CENTRAL
                for folder in path.parents
                if folder / _CENTRAL in self._texts and folder / _CENTRAL != path
            ),
            None,
        )


def _maven(root: Any) -> Sheet:
    sheet = Sheet()
    central = set(root.findall("dependencyManagement/dependencies/dependency"))
    own = (one for table in root.findall("properties") for one in table)
    sheet.properties |= {one.tag: (one.text or "").strip() for one in own}
    for one in (one for table in root.findall("profiles/profile/properties") for one in table):
        # The command line decides which profile counts.
        known, other = sheet.properties.get(one.tag), (one.text or "").strip()
        if known is None or other not in known.split(OR):
            sheet.properties[one.tag] = other if known is None else f"{known}{OR}{other}"
    for key in ("version", "parent/version"):
        if found := root.findtext(key):
            sheet.properties.setdefault("project.version", found.strip())
    parent = root.find("parent")
    if parent is not None:
        sheet.boms.append(_coordinates(parent))
    for each in root.iter("dependency"):
        one = _coordinates(each)
        scope = each.findtext("scope", "").strip()
        if each in central and scope == "import":
            sheet.boms.append(one)
        elif each in central:
            sheet.managed[one.name] = one.version
        elif scope != "test":
            sheet.named.append(one)
    return sheet


def _coordinates(element: Any) -> Named:
    group, artifact, version = (
        element.findtext(key, "").strip() for key in ("groupId", "artifactId", "version")
    )
    return Named(f"{group}:{artifact}", version or None)


def _msbuild(root: Any) -> Sheet:
    sheet = Sheet()
    for group in root.iter("PropertyGroup"):
        sheet.properties |= {one.tag: (one.text or "").strip() for one in group}
    for each in root.iter("PackageVersion"):
        one = _package(each, "Version")
        sheet.managed[one.name] = one.version
    for each in root.iter("PackageReference"):
        own = _package(each, "VersionOverride")
        sheet.named.append(own if own.version else _package(each, "Version"))
    return sheet


def _package(element: Any, key: str) -> Named:
    name = element.get("Include") or element.get("Update") or ""
    version = element.get(key) or element.findtext(key, "").strip()
    return Named(name.strip().lower(), version or None)


def _parsed(text: str, path: PurePosixPath) -> Any:
    """Return the root of an XML text, its names without their namespaces."""
    try:
        root = fromstring(text, forbid_dtd=True)
    except ParseError as error:
        raise UnreadableDocument(str(path), f"not valid XML: {error}") from None
    except DefusedXmlException:
        raise UnreadableDocument(str(path), "declares a DTD, which no project file does") from None
    except (ValueError, RecursionError):
        raise UnreadableDocument(str(path), "not valid XML") from None
    for element in root.iter():
        element.tag = str(element.tag).rpartition("}")[2]
    return root
