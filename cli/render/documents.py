"""The records that JSON and YAML documents are built from: each field becomes a key, in order.

`document_of` fills such a record from a record of the model: it copies the fields that have the
same name in both. The caller gives the others as keyword arguments. `mirror` makes the document's
record from a record of the model, where the two differ only in what is written.
"""

from collections.abc import Iterable
from types import UnionType
from typing import Any, ClassVar, Final, TypeVar, Union, get_args, get_origin

import msgspec

from rebal.groups.model import Evidence, Moment, Source, TopicPartitions


class Document(msgspec.Struct, frozen=True, kw_only=True):
    """Base of a document's records; an empty text is written as null if `null_if_empty` names its
    field.
    """

    null_if_empty: ClassVar[tuple[str, ...]] = ()

    def __post_init__(self) -> None:
        """Write what is not known as null."""
        for name in self.null_if_empty:
            if not getattr(self, name):
                msgspec.structs.force_setattr(self, name, None)


_D = TypeVar("_D", bound=Document)


def document_of(kind: type[_D], source: object, **given: Any) -> _D:
    """Return a record of `kind`: its fields are copied from `source` by name, or are in `given`."""
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


_MIRRORS: Final[dict[type, type[Document]]] = {Evidence: EvidenceDocument}


def mirror(name: str, kind: type[msgspec.Struct], *written: str, **others: Any) -> type[Document]:
    """Return the document's record of `kind`: the fields `written`, each of them always a key.

    A text or a number that is empty where it is not known is null. `others` are the types of fields
    that the document has in another form. A record of the model in a type stands for its mirror.
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
