"""Compresses what a session stores, when the application has no codec of its own (an `Encryption` compresses too).

A long session's state is mostly JSON of the same few forms, so even short texts shrink to half. A text that was stored
before this was written is read as it is.
"""

import base64
import zlib
from typing import Final

from dex_agents._storage.bounded_cache import BoundedCache

PREFIX: Final = "dexz1."
"""How a compressed text begins: raw deflate with the dictionary below, as base64."""

PACKED_FROM_CHARACTERS: Final = 128
"""Shorter texts would not become shorter, or not by much."""

_REMEMBERED_FROM_CHARACTERS: Final = 2048
_REMEMBERED_BYTES: Final = 64 * 1024 * 1024
_BYTES_OF_A_CHARACTER: Final = 2  # a text and its compressed form, roughly

_LEVEL: Final = 9
_RAW_DEFLATE: Final = -15

# For ever as it is: texts that were stored with it need it. Another one needs another prefix. The end weighs most.
_DICTIONARY: Final = (
    b'"tool_call_id":"","outcome":"success","tool_name":"","args":"{\\"","part_kind":"tool-return","part_kind":"tool-call",'
    b'"function_call_output","call_id":"call_","type":"function_call","status":"completed","additional_kwargs":{},'
    b'"response_metadata":{},"type":"human","type":"ai","tool_calls":[],"invalid_tool_calls":[],"usage_metadata":'
    b'"invocation_id":"e-","author":"user","actions":{"state_delta":{},"artifact_delta":{}},"content":{"parts":[{"text":"'
    b'"role":"assistant","content":[{"type":"output_text","annotations":[],"text":"","role":"user","type":"message",'
    b'{"version":1,"framework":"pydantic-ai-slim","framework_version":"2.","format":1,"next_part":,"root":{"messages":'
    b'{"\\u0001list":[[{"\\u0001part":1},{"\\u0001part":2}],[{"\\u0001part":3}]]},"turn":null}}'
    b'{"version":1,"record":{"version":1,"turn_number":,"call_number":0,"batch_number":0,"step_number":,"last_sequence":,'
    b'"window_bytes":,"note":null,"usage":{"requests":,"input_tokens":,"output_tokens":},"turn":{"turn_id":"turn-",'
    b'"number":,"message_sequence":,"message_text":"","settings":{},"batch":0,"open_calls":[],"open_questions":[],"calls":[],'
    b'"dropped_calls":0,"state_changed":false,"model_steps":0,"context_at_start":null},"context":null},"head":'
    b'{"version":1,"parts":{"":{"parts":[{"content":"","timestamp":"2026-","part_kind":"user-prompt"}],"instructions":null,'
    b'"kind":"request","run_id":"/turn-","conversation_id":"","metadata":null,"state":"complete"},{"parts":[{"content":"",'
    b'"id":null,"provider_name":null,"provider_details":null,"part_kind":"text"}],"usage":{"input_tokens":,'
    b'"cache_write_tokens":0,"cache_read_tokens":0,"output_tokens":,"input_audio_tokens":0,"cache_audio_read_tokens":0,'
    b'"output_audio_tokens":0,"details":{}},"model_name":"","timestamp":"2026-","kind":"response","provider_name":null,'
    b'"provider_url":null,"provider_details":null,"provider_response_id":null,"finish_reason":null,'
    b'{"version":1,"turn_id":"turn-","status":"completed","text":"","output":null,"error":null,"usage":{"requests":1,'
    b'{"version":1,"messages":[{"version":1,"sequence":,"turn_id":"turn-","saved_at":17,"message":{"role":"assistant",'
    b'"author":"","blocks":[{"kind":"text","text":" the and to of a in is that for you with it on are this be not have '
)

_texts: Final = BoundedCache[str, str](_REMEMBERED_BYTES)


def pack(text: str) -> str:
    """Return a text as it is stored: compressed where that is shorter."""
    if len(text) < PACKED_FROM_CHARACTERS and not text.startswith(PREFIX):
        return text
    compressor = zlib.compressobj(_LEVEL, zlib.DEFLATED, _RAW_DEFLATE, zdict=_DICTIONARY)
    data = compressor.compress(text.encode()) + compressor.flush()
    packed = PREFIX + base64.b64encode(data).decode("ascii")
    if len(packed) >= len(text) and not text.startswith(PREFIX):
        return text
    _remember(packed, text)
    return packed


def unpack(stored: str) -> str:
    """Return a stored text as it was."""
    if not stored.startswith(PREFIX):
        return stored
    known = _texts.get(stored) if len(stored) >= _REMEMBERED_FROM_CHARACTERS else None
    if known is not None:
        return known
    decompressor = zlib.decompressobj(_RAW_DEFLATE, zdict=_DICTIONARY)
    data = decompressor.decompress(base64.b64decode(stored[len(PREFIX) :])) + decompressor.flush()
    text = data.decode()
    _remember(stored, text)
    return text


def _remember(packed: str, text: str) -> None:
    """Keep what is long: it is stored once, and read by every Step of a long session."""
    if len(packed) >= _REMEMBERED_FROM_CHARACTERS:
        _texts.put(packed, text, _BYTES_OF_A_CHARACTER * len(text))
