"""Records that JSON and YAML documents are built from; each field becomes a key, in order.

`document_of` fills such a record from a record of the model: it copies the fields that have the
same name in both, and the caller gives the other fields as keyword arguments. `mirror` makes the
class of such a record from a class of the model, given the names of the fields to write.
"""

from collections.abc import Iterable
from types import UnionType
from typing import Any, ClassVar, Final, TypeVar, Union, get_args, get_origin

import msgspec

from rebal.groups.model import Evidence, Moment, Source, TopicPartitions


class Document(msgspec.Struct, frozen=True, kw_only=True):
    """Base class of the records in documents.

    A field that `null_if_empty` names is written as null if it is empty or 0.
    """

    null_if_empty: ClassVar[tuple[str, ...]] = ()

    def __post_init__(self) -> None:
        """Set the fields that `null_if_empty` names to None if they are empty or 0."""
        for name in self.null_if_empty:
            if not getattr(self, name):
                msgspec.structs.force_setattr(self, name, None)


_D = TypeVar("_D", bound=Document)


def document_of(kind: type[_D], source: object, **given: Any) -> _D:
    """Return a record of `kind`; each field comes from `given`, or else by name from `source`."""
    fields = {
        key: given[name] if name in given else getattr(source, name)
        for key, name in zip(kind.__struct_encode_fields__, kind.__struct_fields__, strict=True)
    }
    return msgspec.convert(fields, kind, from_attributes=True)


class EvidenceDocument(Document, frozen=True, kw_only=True):
    """One piece of evidence for a fact: its source, time and detail."""

    null_if_empty: ClassVar = ("detail",)
    source: Source
    at: Moment | None
    detail: str | None


_MIRRORS: Final[dict[type, type[Document]]] = {Evidence: EvidenceDocument}


def mirror(name: str, kind: type[msgspec.Struct], *written: str, **others: Any) -> type[Document]:
    """Return a document class for the model class `kind`, with the fields named in `written`.

    `name` is the name of the new class. Each of its fields is always a key of the document.
    `others` are the types of fields that have another type in the document than in the model. Every
    other field whose default is an empty text or 0 is written as null if it has that value. If a
    field's type contains a class of the model, the document class of that class replaces it.
    """
    known = {field.name: field for field in msgspec.structs.fields(kind)}
    fields: list[tuple[str, Any]] = []
    empty = []
    for field in written:
        type_ = _mirrored(others[field] if field in others else known[field].type)
        if field not in others and known[field].default in ("", 0) and type_ is not bool:
            type_ = type_ | None
            empty.append(field)
        fields.append((field, type_))
    made: type[Any] = msgspec.defstruct(
        name,
        fields,
        bases=(Document,),
        namespace={"null_if_empty": tuple(empty)},
        frozen=True,
        kw_only=True,
    )
    return _MIRRORS.setdefault(kind, made)


def _mirrored(kind: Any) -> Any:
    origin, parts = get_origin(kind), tuple(map(_mirrored, get_args(kind)))
    if origin in (Union, UnionType):
        return Union[parts]  # noqa: UP007 - of types that are known only here
    return origin[parts] if origin in (tuple, list) else _MIRRORS.get(kind, kind)


class OwnedDocument(Document, frozen=True, kw_only=True):
    """The partitions of one topic that a member owns."""

    topic: str
    partitions: list[int]


class FailureDocument(Document, frozen=True, kw_only=True):
    """A failure to read a group; `group_id` is null if a broker did not list its groups."""

    group_id: str | None
    broker_id: int | None
    kind: str
    message: str


def failures_of(failures: Iterable[object]) -> list[FailureDocument]:
    """Return failures to read groups as records of a document."""
    return [document_of(FailureDocument, failure) for failure in failures]


def owned_of(owned: TopicPartitions | None) -> list[OwnedDocument] | None:
    """Return partitions by topic as records of a document, one for each topic; None stays None."""
    if owned is None:
        return None
    return [
        OwnedDocument(topic=topic, partitions=list(numbers)) for topic, numbers in owned.items()
    ]
