"""Files of a folder, and the manifests that `rebal check` finds there."""

from pathlib import Path
from typing import NamedTuple

from rebal.groups.clients import Library
from rebal.inspectors.manifests.reader import read_manifests
from rebal.inspectors.repository.tree import folder_tree

Files = dict[str, str]


class Reading(NamedTuple):
    libraries: tuple[Library, ...]
    notes: tuple[str, ...]


def write(folder: Path, files: Files) -> Path:
    """Write these files below a folder, and return it."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def place(one: Library) -> str:
    """Return the file and the line that name a library."""
    return f"{one.where}:{one.line}" if one.line else one.where


def read_folder(path: Path, files: Files | None = None) -> Reading:
    """Return what the manifests at this path name, after these files are written below it."""
    return Reading(*read_manifests(folder_tree(write(path, files) if files else path)))
