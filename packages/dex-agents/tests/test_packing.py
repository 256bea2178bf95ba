"""Texts come back as they were, whatever is in them, and shrink."""

import json

from dex import Value, WireKind
from hypothesis import given
from hypothesis import strategies as st

from dex_agents._storage.codec import DocumentCodec
from dex_agents._storage.dictionaries import DICTIONARIES
from dex_agents._storage.packing import pack, unpack
from dex_agents._storage.records import ChunkPlace, MessageChunk, MessageIndex, SessionRecord, TurnRecord
from dex_agents._storage.schema import session_codecs
from dex_agents._storage.sealing import Sealing, StoredTextCodec
from dex_agents.messages import SavedMessage, text_message

_looks_packed = st.builds(str.__add__, st.sampled_from([*DICTIONARIES]), st.text(max_size=300))


@given(st.text(max_size=600) | _looks_packed | st.text().map(lambda t: t * 50))
def test_every_text_comes_back(text: str) -> None:
    assert unpack(pack(text)) == text
    codec = StoredTextCodec(Sealing(None))
    assert codec.decode(codec.encode(text)) == text


def test_json_of_a_session_has_less_than_half_of_its_size() -> None:
    message = SavedMessage(
        sequence=7, turn_id="turn-4", saved_at=1.5, message=text_message("user", "How are you today?")
    )
    text = json.dumps([message.model_dump(mode="json")] * 2)
    assert len(pack(text)) < len(text) / 2


def test_a_short_text_and_one_that_was_stored_before_stay_readable() -> None:
    assert pack('{"a":1}') == '{"a":1}'
    assert unpack("x" * 5000) == "x" * 5000


def test_a_text_that_was_compressed_with_an_earlier_dictionary_stays_readable() -> None:
    stored = "dexz1.wxuephYEQjQE6IAcYBoBWQu0IbOkWKE8sRLkHqDdOmC3Ae0GuwmsIhXiOJDDEouzU1NAztQjI1rQMpWlkRlGVjGxNLOorQUA"
    assert unpack(stored) == (
        '{"version":1,"turn_id":"turn-58","status":"completed","text":"The lamp is on its way to you, and it is this '
        'one that you asked for.","output":null,"error":null,"usage":{"requests":1,"input_tokens":926,'
        '"output_tokens":4968}}'
    )


def test_a_chunk_is_stored_compressed_and_read_in_both_forms() -> None:
    saved = tuple(
        SavedMessage(sequence=n, turn_id="turn-1", saved_at=1.0, message=text_message("user", f"{n} lamps and chairs"))
        for n in range(1, 33)
    )
    chunk = MessageChunk(messages=saved)
    compressing, plain = (
        DocumentCodec(MessageChunk, Sealing(None), is_kept=True),
        DocumentCodec(MessageChunk, Sealing(None)),
    )
    stored, readable = compressing.encode(chunk), plain.encode(chunk)
    assert len(str(stored.data)) < len(str(readable.data)) / 4
    assert compressing.decode(stored) == compressing.decode(readable) == plain.decode(stored) == chunk


def test_a_record_is_stored_without_its_defaults_and_read_in_both_forms() -> None:
    turn = TurnRecord(turn_id="turn-7", number=7, message_sequence=13, settings={"limit": 0, "note": None})
    record = SessionRecord.model_validate({**SessionRecord(turn_number=7, turn=turn).model_dump(), "newer": 0})
    text = record.stored_json()
    assert "lost_attempts" not in text
    assert (
        SessionRecord.model_validate_json(text) == SessionRecord.model_validate_json(record.model_dump_json()) == record
    )


def test_where_chunks_lie_takes_a_few_bytes_a_chunk_and_is_read_in_both_forms() -> None:
    places = tuple(ChunkPlace(first_sequence=32 * n + 1, count=32, size=16_000 + n) for n in range(200))
    index = MessageIndex(chunks=places)
    codec = session_codecs(Sealing(None)).resolve(MessageIndex)
    stored = codec.encode(index)
    assert len(str(stored.data)) < 20 * len(places)
    assert codec.decode(stored) == codec.decode(Value(WireKind.JSON, index.model_dump_json())) == index
