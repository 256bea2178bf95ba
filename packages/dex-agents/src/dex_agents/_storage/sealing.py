"""Seals what leaves this process for the server, when the application gave a codec, and opens what comes back."""

import base64
from typing import Final, NewType

from dex import Value, ValueMappingError, WireKind

from dex_agents._storage.packing import pack, unpack
from dex_agents.encryption import AtRestCodec, is_sealed, key_id_of
from dex_agents.errors import EncryptionKeyError

StoredText = NewType("StoredText", str)
"""A text of a session that is sealed; an ordinary `str` is not, since the server must compare and index it."""

_QUOTE: Final = '"'

_AS_IT_IS: Final = b"\x00"
_SEALED: Final = b"\x01"


class Sealing:
    """What an application's codec, if any, does to a session's texts and documents.

    Args:
        codec: The application's; None leaves everything as it is.
    """

    def __init__(self, codec: AtRestCodec | None) -> None:
        self._codec = codec

    @property
    def is_on(self) -> bool:
        """Whether what is stored is sealed."""
        return self._codec is not None

    def seal(self, plain: str) -> str:
        """Return a text as it is stored. Nothing at all stays nothing: a client waits for its end."""
        return plain if self._codec is None or not plain else self._codec.seal(plain)

    def open(self, stored: str) -> str:
        """Return a stored text as it was; one that was stored before sealing began is left as it is.

        Raises:
            EncryptionKeyError: Its key is missing or wrong.
        """
        if not is_sealed(stored):
            return stored
        if self._codec is None:
            key_id = key_id_of(stored)
            raise EncryptionKeyError(
                f"a value is encrypted with key {key_id!r}, and this process has no encryption: give "
                "`AgentSessionOptions(at_rest=...)` with that key; nothing is lost",
                key_id=key_id,
            )
        return self._codec.open(stored)

    def store(self, plain: str) -> str:
        """Return a text as it is stored: sealed, or compressed."""
        return pack(plain) if self._codec is None else self.seal(plain)

    def seal_bytes(self, plain: bytes) -> bytes:
        """Return bytes as they are stored: themselves, or a sealed text, behind a byte that tells which."""
        if self._codec is None:
            return _AS_IT_IS + plain
        return _SEALED + self._codec.seal(base64.b64encode(plain).decode("ascii")).encode()

    def open_bytes(self, stored: bytes) -> bytes:
        """Return stored bytes as they were; raises as `open` does."""
        kind, content = stored[:1], stored[1:]
        return base64.b64decode(self.open(content.decode())) if kind == _SEALED else content

    def seal_document(self, json_text: str, *, is_kept: bool = False) -> str:
        """Return a JSON document as it is stored: itself, or a JSON string.

        Args:
            json_text: The document.
            is_kept: It is kept for long, and only Workers read it: it is compressed where it is not sealed.
        """
        if self._codec is not None:
            return f"{_QUOTE}{self._codec.seal(json_text)}{_QUOTE}"
        packed = pack(json_text) if is_kept else json_text
        return json_text if packed == json_text else f"{_QUOTE}{packed}{_QUOTE}"

    def open_document(self, stored: str) -> str:
        """Return a stored JSON document as it was; raises as `open` does."""
        return unpack(self.open(stored[1:-1])) if stored.startswith(_QUOTE) else stored


class StoredTextCodec:
    """Carries a `StoredText` through the Dex SDK.

    Args:
        sealing: How it is stored.
    """

    wire_kind = WireKind.STRING
    type_name = "StoredText"

    def __init__(self, sealing: Sealing) -> None:
        self._sealing = sealing

    def encode(self, value: str) -> Value:
        """Write a text."""
        return Value(WireKind.STRING, self._sealing.store(value))

    def decode(self, value: Value) -> str:
        """Read a text."""
        if not isinstance(value.data, str):
            raise TypeError(f"a text is stored as a string, found {value.kind.value}")
        return unpack(self._sealing.open(value.data))


def key_error_in(error: ValueMappingError) -> EncryptionKeyError | None:
    """Return the missing or wrong key behind an error of the SDK."""
    return error.__cause__ if isinstance(error.__cause__, EncryptionKeyError) else None
