"""Manifests in JSON, TOML and YAML: each yields the names and versions that it holds."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Final

from rebal.inspectors.inventory.documents import (
    documents,
    flatten,
    mapping,
    text_of,
    toml_tree,
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
# A key of a catalog: an entry, or a part of one.
_ENTRY: Final = re.compile(
    r"((?:libraries|plugins)\..+?)(?:\.(?:module|id|group|name|version)(?:\.\w+)?)?"
)
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
    flat = flatten(toml_tree(text, name), name)
    for entry in dict.fromkeys(found[1] for found in map(_ENTRY.fullmatch, flat) if found):
        written, _, version = flat.get(entry, "").rpartition(":")
        module = written or flat.get(f"{entry}.module") or flat.get(f"{entry}.id")
        named = module or f"{flat.get(f'{entry}.group')}:{flat.get(f'{entry}.name')}"
        reference = flat.get(f"{entry}.version.ref")
        at = f"versions.{reference}" if reference else f"{entry}.version"
        rich = (flat.get(f"{at}{key}") for key in (".prefer", ".strictly", ".require", ""))
        plain = version or next(filter(None, rich), None)
        yield Named(marker(named) if entry.startswith("plugins") else named, plain)


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
