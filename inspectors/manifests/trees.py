"""Manifests in JSON, TOML and YAML: each yields the names and versions that it holds."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterator
from typing import Any, Final

from rebal.inspectors.inventory.documents import (
    UnreadableDocument,
    documents,
    flatten,
    mapping,
    text_of,
)
from rebal.inspectors.manifests.texts import (
    OF_TESTS,
    Named,
    image,
    marker,
    plain_version,
    requirement,
)

_INSTALLED: Final = "node_modules/"
# How Helm values and Kustomize name an image in two keys.
_TAG_KEYS: Final = {"repository": "tag", "name": "newTag", "newName": "newTag", "image": "tag"}
# An action of a Helm template; what is written around it is read.
_ACTION: Final = re.compile(r"\{\{.*?\}\}")


def tables(
    parse: Callable[[str, str], object], *paths: str
) -> Callable[[str, str], Iterator[Named]]:
    """Return the reader of a format that names packages at these paths; `*` stands for any key.

    There are tables by name, lists of tables, or lists of requirements.
    """

    def read(text: str, name: str) -> Iterator[Named]:
        tree = parse(text, name)
        for path in paths:
            for place, found in _at(tree, path.split(".")):
                of_tests = OF_TESTS.search(place) is not None
                yield from (one._replace(tests=of_tests) for one in _packages(found))

    return read


def _at(tree: object, path: list[str], place: str = "") -> Iterator[tuple[str, object]]:
    """Yield what is at a path of keys, with the keys that lead there."""
    if not path:
        yield place, tree
        return
    table = mapping(tree)
    for key in table if path[0] == "*" else path[:1]:
        yield from _at(table.get(key), path[1:], f"{place}.{key}")


def _packages(found: object) -> Iterator[Named]:
    """Yield the packages of a table by name, or of a list."""
    listed = [("", value) for value in found] if isinstance(found, list) else []
    for key, value in [*mapping(found).items(), *listed]:
        table = mapping(value)
        named = text_of(table.get("name")) or key.rpartition(_INSTALLED)[2]
        version = value if isinstance(value, str) else text_of(table.get("version"))
        one = Named(named, plain_version(version)) if named else requirement(version or "")
        if one:
            yield one


def read_catalog(text: str, name: str) -> Iterator[Named]:
    """Yield the libraries and plugins of a Gradle version catalog."""
    tree = toml_tree(text, name)
    versions = mapping(tree.get("versions"))
    for kind in ("libraries", "plugins"):
        for entry in mapping(tree.get(kind)).values():
            written, _, version = entry.rpartition(":") if isinstance(entry, str) else ("", "", "")
            table = mapping(entry)
            own = written or text_of(table.get("module")) or text_of(table.get("id"))
            named = own or f"{text_of(table.get('group'))}:{text_of(table.get('name'))}"
            found = version or _catalog_version(table.get("version"), versions)
            yield Named(marker(named) if kind == "plugins" else named, found)


def _catalog_version(version: object, versions: dict[str, Any]) -> str | None:
    """Return a version as written, or the one of `[versions]` that it refers to."""
    table = mapping(version)
    referred = versions.get(str(table["ref"])) if "ref" in table else version
    rich = mapping(referred)
    chosen = rich.get("prefer") or rich.get("strictly") or rich.get("require") or referred
    return chosen if isinstance(chosen, str) else None


def read_images(text: str, name: str) -> Iterator[Named]:
    """Yield the images of compose files, Kubernetes objects, Helm values, Kustomize and .env
    files, and the charts that Helm, Argo CD and Flux install.
    """
    for document in documents(_ACTION.sub("", text), name):
        resource = document.resource
        flat = document.settings if resource is None else flatten(resource, name)
        for path, value in flat.items():
            parent, _, key = path.rpartition(".")
            tag = flat.get(f"{parent}.{_TAG_KEYS.get(key, '')}".removeprefix("."))
            chart = flat.get(f"{parent}.targetRevision") or flat.get(f"{parent}.version")
            if chart and (key == "chart" or parent.startswith("dependencies")):
                # The version of a chart is not its image's.
                yield Named(f"charts/{value.rpartition('/')[2]}", f"chart {chart}")
            elif key == "name" and f"{parent}.newName" in flat:
                # Kustomize puts another image in its place.
                continue
            elif tag is not None:
                yield image(value)._replace(version=tag)
            elif key.lower().endswith(("image", "repository", "newname")):
                yield image(value)


def toml_tree(text: str, name: str) -> dict[str, Any]:
    """Return the TOML text of the file `name` as a tree.

    Raises:
        UnreadableDocument: it is not valid, or nested too deep.
    """
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        reason = str(error).splitlines()[0][:200] if isinstance(error, ValueError) else "too deep"
        raise UnreadableDocument(name, f"not valid TOML: {reason}") from None
