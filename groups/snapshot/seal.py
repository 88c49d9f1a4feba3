"""The seal of a document: a digest of each field, so that a changed one is found and named.

It protects against edits and damage, not against somebody who also writes new digests.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from rebal.groups.compact import fold
from rebal.groups.errors import DocumentError

KEY: Final = "checksum"
_DIGITS: Final = 12


def checksum(body: Mapping[str, object]) -> str:
    """Return `path:digest` of each field of plain data, on one line.

    A list of records has its length and a digest for each; a record with an `id` (a step) has one
    for each field.
    """
    return " ".join(f"{path}:{_digest(value)}" for path, value in _parts(body))


def check_seal(body: Mapping[str, object], name: str) -> None:
    """Check the document's own checksum; the order of keys and the layout do not count.

    Raises:
        DocumentError: there is none, or a field has changed; the message names the field.
    """
    written = body.get(KEY)
    if not isinstance(written, str):
        raise DocumentError(
            f"{name}: the field `{KEY}` is missing, so an edit would not be noticed: "
            "use the file as rebal wrote it."
        )
    before, after = (
        dict(part.rpartition(":")[::2] for part in sums.split())
        for sums in (written, checksum(body))
    )
    changed = [path for path in {**before, **after} if before.get(path) != after.get(path)]
    if not set(before.items()) & set(after.items()):
        changed = [KEY]
    if changed:
        raise DocumentError(
            f"{name}: `{changed[0]}` has changed since rebal wrote the file: "
            "use the file as it was written, or make a new one."
        )


def _parts(body: Mapping[str, object]) -> Iterator[tuple[str, object]]:
    for key, value in body.items():
        if key in ("schema", KEY):
            continue
        if isinstance(value, list) and value and all(isinstance(one, dict) for one in value):
            yield f"{key}[]", len(value)
            for number, one in enumerate(value):
                fields = one.items() if "id" in one else ()
                yield from ((f"{key}[{number}].{name}", each) for name, each in fields)
                if not fields:
                    yield f"{key}[{number}]", one
        else:
            yield key, value


def _digest(value: object) -> str:
    text = json.dumps(_plain(fold(value)), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode("ascii")).hexdigest()[:_DIGITS]


def _plain(value: Any) -> Any:
    """Return `value` as every JSON tool writes it: some turn 36.0 into 36."""
    match value:
        case dict():
            return {str(key): _plain(each) for key, each in value.items()}
        case list():
            return [_plain(each) for each in value]
        case float() if value.is_integer():
            return int(value)
        case None | str() | int() | float():
            return value
    return repr(value)
