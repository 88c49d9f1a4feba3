"""Manifests in JSON, TOML and YAML: each yields the names and versions that it holds."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from typing import Any, Final

from rebal.inspectors.inventory.documents import (
    UnreadableDocument,
    documents,
    flatten,
    json_tree,
)
from rebal.inspectors.manifests.texts import Named, image, marker, pypi_name, requirement

_INSTALLED: Final = "node_modules/"
# How Helm values and Kustomize name an image in two keys.
_TAG_KEYS: Final = {"repository": "tag", "name": "newTag", "image": "tag"}
_PIN: Final = re.compile(r"=?=?\s*\d[\w.+-]*")


def read_package_lock(text: str, name: str) -> Iterator[Named]:
    """Yield the packages of npm's lock file, of its versions 1 to 3."""
    tree = _table(json_tree(text, name))
    for path, package in _table(tree.get("packages")).items():
        if _INSTALLED in path:
            named = _text(_table(package), "name") or path.rpartition(_INSTALLED)[2]
            yield Named(named, _text(_table(package), "version"))
    waiting = [] if "packages" in tree else [tree]
    while waiting:
        for named, inner in _table(waiting.pop().get("dependencies")).items():
            package = _table(inner)
            yield Named(named, _text(package, "version"))
            waiting.append(package)


def read_package_json(text: str, name: str) -> Iterator[Named]:
    """Yield what a Node.js project depends on; the versions are ranges as a rule."""
    tree = _table(json_tree(text, name))
    for key in ("dependencies", "optionalDependencies"):
        table = _table(tree.get(key))
        yield from (Named(named, _text(table, named)) for named in table)


def read_package_tables(text: str, name: str) -> Iterator[Named]:
    """Yield the tables `[[package]]` of the lock files of Cargo, Poetry, uv and PDM."""
    packages = _toml(text, name).get("package")
    for package in map(_table, packages if isinstance(packages, list) else []):
        named = _text(package, "name")
        if named:
            yield Named(named, _text(package, "version"))


def read_pyproject(text: str, name: str) -> Iterator[Named]:
    """Yield the dependencies of a Python project: of the standard's tables, and of Poetry's."""
    tree = _toml(text, name)
    project = _table(tree.get("project"))
    lists = [
        project.get("dependencies"),
        *_table(project.get("optional-dependencies")).values(),
        *_table(tree.get("dependency-groups")).values(),
    ]
    for entry in (entry for entries in lists if isinstance(entries, list) for entry in entries):
        one = requirement(entry) if isinstance(entry, str) else None
        if one:
            yield one
    poetry = _table(_table(tree.get("tool")).get("poetry"))
    groups = [_table(group) for group in _table(poetry.get("group")).values()]
    for group in (poetry, *groups):
        yield from _packages(group.get("dependencies"))


def read_pipfile(text: str, name: str) -> Iterator[Named]:
    """Yield the packages of a Pipfile."""
    return _packages(_toml(text, name).get("packages"))


def read_pipfile_lock(text: str, name: str) -> Iterator[Named]:
    """Yield the packages of Pipenv's lock file."""
    return _packages(_table(json_tree(text, name)).get("default"))


def _packages(table: object) -> Iterator[Named]:
    """Yield the packages of a table of Poetry or Pipenv, each with a version as text or in a
    table.
    """
    for named, value in _table(table).items():
        text_of = value if isinstance(value, str) else _text(_table(value), "version")
        pinned = text_of and _PIN.fullmatch(text_of)
        yield Named(pypi_name(named), text_of.strip("= ") if text_of and pinned else text_of)


def read_catalog(text: str, name: str) -> Iterator[Named]:
    """Yield the libraries and plugins of a Gradle version catalog."""
    tree = _toml(text, name)
    versions = _table(tree.get("versions"))
    for entry in _table(tree.get("libraries")).values():
        if isinstance(entry, str):
            group, _, rest = entry.partition(":")
            artifact, _, version = rest.partition(":")
            yield Named(f"{group}:{artifact}", version or None)
            continue
        table = _table(entry)
        module = _text(table, "module") or f"{_text(table, 'group')}:{_text(table, 'name')}"
        yield Named(module, _catalog_version(table.get("version"), versions))
    for entry in _table(tree.get("plugins")).values():
        plugin, _, version = entry.partition(":") if isinstance(entry, str) else ("", "", "")
        table = _table(entry)
        named = plugin or _text(table, "id") or ""
        yield Named(marker(named), version or _catalog_version(table.get("version"), versions))


def _catalog_version(version: object, versions: dict[str, Any]) -> str | None:
    """Return a version as written, or the one of `[versions]` that it refers to."""
    table = _table(version)
    referred = versions.get(str(table["ref"])) if "ref" in table else version
    rich = _table(referred)
    chosen = rich.get("strictly") or rich.get("require") or rich.get("prefer") or referred
    return chosen if isinstance(chosen, str) else None


def read_images(text: str, name: str) -> Iterator[Named]:
    """Yield the images of compose files, Kubernetes objects, Helm values and Kustomize files."""
    for document in documents(text, name):
        try:
            resource = document.resource
            flat = document.settings if resource is None else flatten(dict(resource))
        except ValueError as error:
            raise UnreadableDocument(name, str(error)) from None
        for path, value in flat.items():
            parent, _, key = path.rpartition(".")
            tag = flat.get(f"{parent}.{_TAG_KEYS.get(key, '')}".removeprefix("."))
            if tag is not None:
                yield image(value)._replace(version=tag)
            elif key in ("image", "repository"):
                yield image(value)


def _toml(text: str, name: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        reason = str(error).splitlines()[0][:200] if isinstance(error, ValueError) else "too deep"
        raise UnreadableDocument(name, f"not valid TOML: {reason}") from None


def _table(value: object) -> dict[str, Any]:
    """Return a table as it is, and an empty one for any other value."""
    return value if isinstance(value, dict) else {}


def _text(table: dict[str, Any], key: str) -> str | None:
    value = table.get(key)
    return value if isinstance(value, str) else None
