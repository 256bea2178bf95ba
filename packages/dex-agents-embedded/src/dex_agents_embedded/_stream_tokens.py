"""Positions in a Stream as text that Clients carry and never look into.

A token must outlive what it names: the message may be trimmed, and the engine may restart with an empty memory. It
therefore holds no reference, only the sequence number of a message and which memory numbered it. A number from
another memory says nothing about this one, so that reading on from it begins at the oldest retained message.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import secrets
import struct
from typing import NamedTuple

from dex_agents_embedded._stream_errors import InvalidStreamRequestError

_VERSION = 1
_EPOCH_BYTES = 8
_OWNER_BYTES = 8
_LAYOUT = struct.Struct(f">B{_EPOCH_BYTES}s{_OWNER_BYTES}sQ")


class StreamKey(NamedTuple):
    """Names one Stream instance.

    Attributes:
        flow_type: Flow type whose schema declares the Stream.
        stream_name: Name of the Stream in that schema.
        flow_id: Flow whose messages these are; the Flow need not exist.
    """

    flow_type: str
    stream_name: str
    flow_id: str


class StreamTokens:
    """Writes and reads the tokens of one Stream memory.

    Args:
        epoch: Names the memory, in 8 bytes; None for a new one.
    """

    def __init__(self, epoch: bytes | None = None) -> None:
        self._epoch = epoch or secrets.token_bytes(_EPOCH_BYTES)

    def encode(self, key: StreamKey, sequence: int) -> str:
        """Return the token of the message that has this sequence number."""
        packed = _LAYOUT.pack(_VERSION, self._epoch, _owner(key), sequence)
        return base64.urlsafe_b64encode(packed).decode("ascii").rstrip("=")

    def decode(self, key: StreamKey, token: str) -> int | None:
        """Return the sequence number of a token, or None when an earlier memory wrote it.

        Args:
            key: Stream instance that the request names.
            token: Text that `encode` made, in this process or an earlier one.

        Raises:
            InvalidStreamRequestError: If the text is no token, or belongs to another Stream instance.
        """
        try:
            packed = base64.b64decode(token + "=" * (-len(token) % 4), altchars=b"-_", validate=True)
            version, epoch, owner, sequence = _LAYOUT.unpack(packed)
        except (ValueError, binascii.Error, struct.error) as error:
            raise InvalidStreamRequestError(
                f"the Stream token {token[:80]!r} is unreadable; pass a token exactly as the engine returned it"
            ) from error
        if version != _VERSION:
            raise InvalidStreamRequestError(
                f"the Stream token has format {version}, this engine knows {_VERSION}; read again with an empty token"
            )
        if owner != _owner(key):
            raise InvalidStreamRequestError(
                f"the Stream token belongs to another Stream or Flow than {key.stream_name!r} of Flow {key.flow_id!r};"
                " keep one token for each Stream instance"
            )
        return int(sequence) if epoch == self._epoch else None


def _owner(key: StreamKey) -> bytes:
    digest = hashlib.blake2b(digest_size=_OWNER_BYTES)
    for name in key:
        encoded = name.encode()
        # The length keeps ("ab", "c") and ("a", "bc") apart.
        digest.update(len(encoded).to_bytes(8, "big"))
        digest.update(encoded)
    return digest.digest()
