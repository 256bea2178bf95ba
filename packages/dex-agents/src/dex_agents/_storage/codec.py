"""Codecs that carry this package's documents through the Dex SDK as JSON."""

from typing import Any, Generic, TypeVar

from dex import Codec, CodecRegistry, Value, WireKind

from dex_agents._storage.attachment_documents import AttachmentData, AttachmentDataCodec
from dex_agents._storage.sealing import Sealing, StoredText, StoredTextCodec
from dex_agents._stored import Stored

DocumentT = TypeVar("DocumentT", bound=Stored)


class DocumentCodec(Generic[DocumentT]):
    """Writes one kind of document as JSON text.

    Args:
        document_type: The kind.
        sealing: How it is stored; one without a codec leaves it readable.
        is_kept: It is kept for long, and only Workers read it.
    """

    wire_kind = WireKind.JSON

    def __init__(self, document_type: type[DocumentT], sealing: Sealing, *, is_kept: bool = False) -> None:
        self._document_type = document_type
        self._sealing = sealing
        self._is_kept = is_kept

    @property
    def type_name(self) -> str:
        """The name in the SDK's error messages."""
        return self._document_type.__qualname__

    def encode(self, value: DocumentT) -> Value:
        """Write a document."""
        if not isinstance(value, self._document_type):
            raise TypeError(f"expected {self.type_name}, got {type(value).__qualname__}")
        text = value.stored_json()
        return Value(WireKind.JSON, self._sealing.seal_document(text, is_kept=self._is_kept))

    def decode(self, value: Value) -> DocumentT:
        """Read a document; fields of newer versions are ignored."""
        if value.kind is not WireKind.JSON or not isinstance(value.data, str):
            raise TypeError(f"{self.type_name} is stored as JSON, found {value.kind.value}")
        return self._document_type.model_validate_json(self._sealing.open_document(value.data))


def document_codecs(
    sealing: Sealing,
    readable: frozenset[type[Stored]],
    kept: frozenset[type[Stored]],
    *document_types: type[Stored],
) -> CodecRegistry:
    """Build the registry that knows these documents.

    Args:
        sealing: The application's codec.
        readable: Documents that are not sealed, since they hold ids and numbers only.
        kept: Documents that are kept for long and that only Workers read.
        document_types: All documents.
    """
    codecs: dict[object, Codec[Any]] = {
        document_type: DocumentCodec(
            document_type,
            Sealing(None) if document_type in readable else sealing,
            is_kept=document_type in kept,
        )
        for document_type in document_types
    }
    texts: dict[object, Codec[Any]] = {
        StoredText: StoredTextCodec(sealing),
        AttachmentData: AttachmentDataCodec(sealing),
    }
    return CodecRegistry({**texts, **codecs})
