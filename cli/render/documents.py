"""The records that documents are built from: a field is a key, in its order, and none is left out.

`document_of` fills one from a record of the model: fields of the same names are taken over, with
their records inside. What has another name or another form in the document is given beside it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar, TypeVar

import msgspec

from rebal.groups.model import Moment, Source, TopicPartitions


class Document(msgspec.Struct, frozen=True, kw_only=True):
    """Base of a document's records; the texts named by `null_if_empty` are null where empty."""

    null_if_empty: ClassVar[tuple[str, ...]] = ()

    def __post_init__(self) -> None:
        """Write what is not known as null."""
        for name in self.null_if_empty:
            if not getattr(self, name):
                msgspec.structs.force_setattr(self, name, None)


_D = TypeVar("_D", bound=Document)


def document_of(kind: type[_D], source: object, **given: Any) -> _D:
    """Return a `kind` with the fields of `source` of the same names, and those `given`."""
    fields = {
        key: given[name] if name in given else getattr(source, name)
        for key, name in zip(kind.__struct_encode_fields__, kind.__struct_fields__, strict=True)
    }
    return msgspec.convert(fields, kind, from_attributes=True)


class EvidenceDocument(Document, frozen=True, kw_only=True):
    """One reason to believe a fact."""

    null_if_empty: ClassVar = ("detail",)
    source: Source
    at: Moment | None
    detail: str | None


class OwnedDocument(Document, frozen=True, kw_only=True):
    """The partitions of one topic that somebody owns."""

    topic: str
    partitions: list[int]


class FailureDocument(Document, frozen=True, kw_only=True):
    """Why a group could not be read; `group_id` is null where a broker did not list its groups."""

    group_id: str | None
    broker_id: int | None
    kind: str
    message: str


def failures_of(failures: Iterable[object]) -> list[FailureDocument]:
    """Return the failures of reading groups as a document has them."""
    return [document_of(FailureDocument, failure) for failure in failures]


def owned_of(owned: TopicPartitions | None) -> list[OwnedDocument] | None:
    """Return partitions by topic as a document has them; None stays None."""
    if owned is None:
        return None
    return [
        OwnedDocument(topic=topic, partitions=list(numbers)) for topic, numbers in owned.items()
    ]
