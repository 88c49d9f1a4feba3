"""The inventory: the configuration that the NEXT start of a service's consumers will use.

Reads Java and Spring properties, Spring YAML, librdkafka-style JSON, YAML and properties, folders
of them, and `kubectl get deploy,sts,cm -o yaml|json`. The result is *declared*: it proves nothing
about running processes. Only the keys that identify a consumer, choose its assignors or set its
timeouts and brokers are kept; no other value of a file reaches the result or a message.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from rebal.groups.errors import DocumentError
from rebal.groups.evidence.observations import Declared
from rebal.groups.model import Record
from rebal.inspectors.files import TextInput, files_in
from rebal.inspectors.inventory.clients import Part, consumers_of
from rebal.inspectors.inventory.documents import (
    ENDINGS,
    documents,
    file_written,
    layer_prefix,
)
from rebal.inspectors.inventory.kubernetes import Resource, workloads_in

_LARGEST_FILE: Final = 64 * 1024 * 1024
_MOST_FILES: Final = 5000


class InventoryReading(Record, frozen=True, kw_only=True):
    """The consumers that files declare, and notes on unknown values and unreadable files."""

    declared: tuple[Declared, ...] = ()
    notes: tuple[str, ...] = ()


def read_inventory(path: Path) -> InventoryReading:
    """Return the consumers declared in a file, in a directory's files, or on standard input (`-`).

    Raises:
        DocumentError: the path is missing or unreadable, or the only file is no configuration. In a
            directory a bad file becomes a note, and the others are read.
    """
    alone = str(path) == "-" or not path.is_dir()
    files = files_in([path])
    if len(files) > _MOST_FILES:
        raise DocumentError(
            f"{path}: holds more than {_MOST_FILES} files; name the folder of the service's "
            "own configuration."
        )
    passed_over = [f.name for f in files if not (alone or is_configuration(f))]
    found = read_declared([f for f in files if alone or is_configuration(f)], alone=alone)
    notes = list(found.notes)
    if passed_over:
        named = ", ".join(passed_over[:5]) + (", …" if len(passed_over) > 5 else "")
        notes.append(
            f"{path}: {len(passed_over)} files were not read, as their suffixes are not those of "
            f"configuration files ({named})."
        )
    if alone and not found.declared and not notes:
        notes.append(f"{files[0]}: declares no consumer (no group.id, no assignors).")
    return replace(found, notes=tuple(notes))


def is_configuration(file: Path) -> bool:
    """Return whether a file's suffix is that of a configuration file; `.env` is one too."""
    return file.name.rpartition(".")[2].lower() in ENDINGS


def read_declared(files: Sequence[Path], *, alone: bool = False) -> InventoryReading:
    """Return the consumers that these files declare together.

    Raises:
        DocumentError: a file is no configuration, and `alone` is True, because the user named that
            one file. Otherwise a bad file becomes a note.
    """
    notes: list[str] = []
    settings: dict[str, list[Part]] = {}
    resources: list[tuple[str, Resource]] = []
    for file in files:
        name = "standard input" if str(file) == "-" else str(file)
        try:
            found = documents(configuration_text(file), name)
        except DocumentError as error:
            if alone:
                raise
            notes.append(str(error))
            continue
        for document in found:
            if document.resource is not None:
                resources.append((name, document.resource))
            else:
                parts = settings.setdefault(layer_prefix(str(file)), [])
                parts.append((name, (file_written(file), None), document))
    declared = [one for process in settings.values() for one in consumers_of(process, notes)]
    declared += workloads_in(resources, notes)
    return InventoryReading(declared=tuple(declared), notes=tuple(dict.fromkeys(notes)))


def configuration_text(file: Path, name: str = "") -> str:
    """Return the text of a configuration file, plain or gz; `name` is for messages.

    Raises:
        DocumentError: the file cannot be read, was cut off, is binary, or larger than 64 MiB.
    """
    source = TextInput(file, name)
    data = source.read(_LARGEST_FILE)
    if source.cut_off:
        raise DocumentError(f"{source.name}: the gz data ends too early; fetch the file again.")
    if b"\0" in data:
        raise DocumentError(f"{source.name}: is a binary file; name a text, such as YAML or JSON.")
    return data.decode("utf-8-sig", "replace")
