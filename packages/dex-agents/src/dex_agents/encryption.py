"""Sessions that nobody can read where they are stored.

```python
encryption = Encryption({"2026-05": old_key, "2026-11": new_key}, write_with="2026-11")
flow = AgentSessionFlow(runner, name="support", options=AgentSessionOptions(at_rest=encryption))
```

What is said, asked and done leaves Workers and clients encrypted and lies so on the server: messages, tool calls and
their results, the framework's state, results of turns, interrupts, settings, live events, and errors of models and
tools. To be found and run, some things stay readable: session ids, titles, users, statuses, names of Steps, ids of
turns, calls, interrupts and user messages, the reason given to `stop`, times and sizes.
"""

import base64
import binascii
import os
import re
import zlib
from collections.abc import Mapping
from typing import Final, Protocol

from dex_agents.errors import ConfigurationError, EncryptionKeyError

SEALED_PREFIX: Final = "dexa1."
"""How a sealed value begins; then come the key's id, a dot, and base64."""

_KEY_BYTES: Final = 32
_NONCE_BYTES: Final = 12
_RAW: Final = b"\x00"
_COMPRESSED: Final = b"\x01"
_COMPRESSED_FROM_BYTES: Final = 256
_FASTEST: Final = 1


class AtRestCodec(Protocol):
    """Seals what a session stores; `Encryption` is one. Called on the event loop, so it must not wait for anything."""

    def seal(self, plain: str) -> str:
        """Return the sealed text: `SEALED_PREFIX`, the key's id without a dot, a dot, and text of `A-Za-z0-9+/=`."""
        ...

    def open(self, sealed: str) -> str:
        """Return the plain text.

        Raises:
            EncryptionKeyError: The key is missing or wrong.
        """
        ...


class Encryption:
    """Encrypts with AES-256-GCM-SIV of the library `cryptography` (install `dex-agents[encryption]`).

    Values are compressed first, which makes up for the third that text encoding adds. Values that were stored before
    the encryption was turned on stay readable, and become encrypted when they are written again.

    To change keys: give every process the new key beside the old ones; then set `write_with` to it everywhere. An old
    key is needed as long as a session has a value that was written with it.

    Args:
        keys: 32 bytes by id, for example `secrets.token_bytes(32)`; from a secret store. An id has 1 to 64 letters,
            digits, `-` and `_`, and is no secret.
        write_with: The id of the key for new values; the others only read.

    Raises:
        ConfigurationError: A key or an id cannot be one, or `cryptography` is missing.
    """

    def __init__(self, keys: Mapping[str, bytes], *, write_with: str) -> None:
        try:
            from cryptography.hazmat.primitives.ciphers.aead import AESGCMSIV
        except ImportError as error:
            raise ConfigurationError(f"{error}: install dex-agents[encryption]") from error
        for key_id, key in keys.items():
            if not re.fullmatch(r"[A-Za-z0-9_-]{1,64}", key_id):
                raise ConfigurationError(f"key id {key_id!r}: give 1 to 64 letters, digits, - and _")
            if len(key) != _KEY_BYTES:
                raise ConfigurationError(f"key {key_id!r} has {len(key)} bytes: give {_KEY_BYTES}")
        if write_with not in keys:
            raise ConfigurationError(f"write_with is {write_with!r}, and the keys are {sorted(keys)}: name one of them")
        self._ciphers = {key_id: AESGCMSIV(key) for key_id, key in keys.items()}
        self._write_with = write_with

    def __repr__(self) -> str:
        return f"Encryption({sorted(self._ciphers)}, write_with={self._write_with!r})"

    def seal(self, plain: str) -> str:
        """Return the text, compressed and encrypted with the key for new values."""
        content = plain.encode()
        if len(content) >= _COMPRESSED_FROM_BYTES:
            content = _COMPRESSED + zlib.compress(content, _FASTEST)
        else:
            content = _RAW + content
        nonce = os.urandom(_NONCE_BYTES)
        header = f"{SEALED_PREFIX}{self._write_with}."
        encrypted = self._ciphers[self._write_with].encrypt(nonce, content, header.encode())
        return header + base64.b64encode(nonce + encrypted).decode()

    def open(self, sealed: str) -> str:
        """Return the plain text.

        Raises:
            EncryptionKeyError: The key is missing, or it is another one than the value was written with.
        """
        from cryptography.exceptions import InvalidTag

        key_id = key_id_of(sealed)
        cipher = self._ciphers.get(key_id)
        if cipher is None:
            raise EncryptionKeyError(
                f"a value is encrypted with key {key_id!r}, and this process has {sorted(self._ciphers)}: give it that "
                "key too; nothing is lost",
                key_id=key_id,
            )
        header = f"{SEALED_PREFIX}{key_id}."
        try:
            packed = base64.b64decode(sealed[len(header) :], validate=True)
            content = cipher.decrypt(packed[:_NONCE_BYTES], packed[_NONCE_BYTES:], header.encode())
        except (InvalidTag, binascii.Error, ValueError):
            raise EncryptionKeyError(
                f"a value that was encrypted with key {key_id!r} cannot be opened: this process has another key of "
                "that id, or the value is damaged",
                key_id=key_id,
            ) from None
        kind, content = content[:1], content[1:]
        return (zlib.decompress(content) if kind == _COMPRESSED else content).decode()


def is_sealed(text: str) -> bool:
    """Tell whether a text is sealed; no JSON document is taken for it."""
    return text.startswith(SEALED_PREFIX)


def key_id_of(sealed: str) -> str:
    """Return the id of the key that a text was sealed with."""
    return sealed[len(SEALED_PREFIX) :].partition(".")[0]
