"""Manifests in JSON, TOML and YAML: each yields the names and versions that it holds."""

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from rebal.inspectors.inventory.documents import (
    documents,
    flatten,
    json_tree,
    mapping,
    text_of,
    toml_tree,
)
from rebal.inspectors.manifests.texts import IMAGE, OF_TESTS, REQUIREMENT, Named, matches

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
    """Yield the packages that a document names at these paths of keys.

    There are tables by name, lists of tables, or lists of requirements.
    """
    tree = parse(text, name)
    for path in paths:
        for place, found in _at(tree, path.split(".")):
            for one in matches(REQUIREMENT, "\n".join(_requirements(found))):
                yield one._replace(line=0, tests=OF_TESTS.search(place) is not None)


def _at(tree: object, path: list[str], place: str = "") -> Iterator[tuple[str, object]]:
    """Yield what is at a path of keys, with the keys that lead there."""
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
        name = text_of(table.get("name")) or key.rpartition("node_modules/")[2]
        yield f"{name} {text_of(value) or text_of(table.get('version')) or ''}".strip()


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
    """Yield the images of compose files, Kubernetes objects, Helm values, Kustomize and .env
    files, and the charts that Helm, Argo CD and Flux install.
    """
    # What is written around the actions of a Helm template is read.
    for document in documents(re.sub(r"\{\{.*?\}\}", "", text), name):
        flat = flatten(document.resource, name) if document.resource else document.settings
        for path, value in flat.items():
            parent, _, key = path.rpartition(".")
            tag = flat.get(f"{parent}.{_TAG_KEYS.get(key, '')}".removeprefix("."))
            chart = flat.get(f"{parent}.targetRevision") or flat.get(f"{parent}.version")
            # Kustomize puts another image in its place.
            replaced = key == "name" and f"{parent}.newName" in flat
            if chart and (key == "chart" or parent.startswith("dependencies")):
                # The version of a chart is not its image's.
                yield Named(f"charts/{value.rpartition('/')[2]}", f"chart {chart}")
            elif not replaced and (tag or key.lower().endswith(("image", "repository", "newname"))):
                yield from (
                    one._replace(version=tag or one.version, line=0)
                    for one in matches(IMAGE, value)
                )
