"""Codecs that carry this package's documents through the Dex SDK as JSON."""

from typing import Generic, TypeVar

from dex import CodecRegistry, Value, WireKind

from dex_agents._stored import Stored

DocumentT = TypeVar("DocumentT", bound=Stored)


class DocumentCodec(Generic[DocumentT]):
    """Writes one kind of document as JSON text."""

    wire_kind = WireKind.JSON

    def __init__(self, document_type: type[DocumentT]) -> None:
        self._document_type = document_type

    @property
    def type_name(self) -> str:
        """The name in the SDK's error messages."""
        return self._document_type.__qualname__

    def encode(self, value: DocumentT) -> Value:
        """Write a document."""
        if not isinstance(value, self._document_type):
            raise TypeError(f"expected {self.type_name}, got {type(value).__qualname__}")
        # Nothing is left out: None may be a tool's result, and defaults carry the discriminators and versions.
        return Value(WireKind.JSON, value.model_dump_json())

    def decode(self, value: Value) -> DocumentT:
        """Read a document; fields of newer versions are ignored."""
        if value.kind is not WireKind.JSON or not isinstance(value.data, str):
            raise TypeError(f"{self.type_name} is stored as JSON, found {value.kind.value}")
        return self._document_type.model_validate_json(value.data)


def document_codecs(*document_types: type[Stored]) -> CodecRegistry:
    """Build the registry that knows these documents."""
    return CodecRegistry({document_type: DocumentCodec(document_type) for document_type in document_types})
