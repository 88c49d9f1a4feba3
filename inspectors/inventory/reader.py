"""The inventory: the configuration that the NEXT start of a service's consumers will use.

Reads Java and Spring properties, Spring YAML, librdkafka-style JSON, YAML and properties, folders
of them, and `kubectl get deploy,sts,cm -o yaml|json`. The result is *declared*: it proves nothing
about running processes. Only the keys that identify a consumer and choose its assignors are kept;
no other value of a file reaches the result or a message.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from rebal.groups.errors import DocumentError
from rebal.groups.evidence.observations import Declared
from rebal.groups.model import Record
from rebal.inspectors.inventory.clients import Place, clients_in
from rebal.inspectors.inventory.documents import (
    ENDINGS,
    LAYER,
    Document,
    Environment,
    documents,
    file_written,
)
from rebal.inspectors.inventory.kubernetes import Resource, workloads_in
from rebal.inspectors.logs.text_input import TextInput, files_in

_LARGEST_FILE: Final = 64 * 1024 * 1024
_MOST_FILES: Final = 5000
OF_A_PROFILE: Final = " is valid only while that profile is active, which the files do not show."
"""The end of a note on a consumer that is read whole."""


class InventoryReading(Record, frozen=True, kw_only=True):
    """The consumers that files declare, with a note for each value that is not known."""

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
        DocumentError: the file is `alone` and no configuration; else a bad file becomes a note.
    """
    notes: list[str] = []
    settings: dict[str, list[tuple[str, Document]]] = {}
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
        # Spring reads application.yaml and application-PROFILE.properties of one folder together.
        layer = LAYER.fullmatch(file.name)
        process = f"{file.parent}/{layer[1]}" if layer else name
        for document in found:
            if document.resource is not None:
                resources.append((name, document.resource))
            else:
                settings.setdefault(process, []).append((name, document))
    of_files = [one for process in settings.values() for one in _of_files(process, notes)]
    declared = (*of_files, *workloads_in(resources, notes))
    return InventoryReading(declared=declared, notes=tuple(dict.fromkeys(notes)))


def configuration_text(file: Path, name: str = "") -> str:
    """Return the text of a configuration file, plain or gz; `name` is for messages.

    Raises:
        DocumentError: it cannot be read, was cut off, or is larger than any configuration.
    """
    source = TextInput(file, name)
    data = source.read(_LARGEST_FILE)
    if source.cut_off:
        raise DocumentError(f"{source.name}: the gz data ends too early; fetch the file again.")
    # A NUL byte marks a binary file; other bytes that are not UTF-8 are replaced.
    return data.decode("utf-8-sig", "replace")


def _of_files(process: list[tuple[str, Document]], notes: list[str]) -> Iterator[Declared]:
    """Yield the consumers of one process's files, without and with each profile that differs."""
    known: set[object] = set()
    base_first = sorted(process, key=lambda each: each[1].profile is not None)
    for profile in dict.fromkeys(document.profile for _, document in base_first):
        layers = [
            (name, one.settings) for name, one in base_first if one.profile in (None, profile)
        ]
        where = layers[-1][0] + (f" (profile {profile})" if profile else "")
        place = Place(where, notes, *((file_written(Path(name)), None) for name, _ in layers))
        clients = clients_in([settings for _, settings in layers], Environment(), place)
        found = [one for one in clients if _identity(one) not in known]
        if profile is None:
            known.update(map(_identity, found))
        else:
            notes += (f"{one.where}{OF_A_PROFILE}" for one in found)
        yield from found


def _identity(one: Declared) -> tuple[object, ...]:
    settings = (one.list, one.group_protocol, one.upgrade_from)
    return (one.group_id, one.client_id, one.instance_id, *settings)
