"""The manifests of a folder or a file, as `rebal check` finds them."""

from __future__ import annotations

from pathlib import Path

from rebal.inspectors.manifests.reader import ManifestReading, read_manifests
from rebal.inspectors.repository.tree import folder_tree


def read_folder(path: Path) -> ManifestReading:
    """Return what the manifests at this path name."""
    return read_manifests(folder_tree(path))
