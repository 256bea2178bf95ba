"""What a user may send."""

from collections.abc import Sequence
from uuid import UUID

import pytest

from dex_agents._client.content import user_message
from dex_agents._storage.limits import MAX_MESSAGE_BYTES
from dex_agents.errors import BlankMessageError, ConfigurationError, MessageTooLargeError
from dex_agents.messages import Block, MediaBlock, ReasoningBlock, TextBlock


def test_text_becomes_one_block_with_a_whole_new_id() -> None:
    message = user_message("s", "hello", None)
    assert message.content == (TextBlock(text="hello"),)
    assert str(UUID(message.message_id)) == message.message_id


def test_media_alone_is_content() -> None:
    image = MediaBlock(media_type="image/png", uri="https://example.com/a.png")
    assert user_message("s", [TextBlock(text=" "), image], "m").content[1] == image


@pytest.mark.parametrize("content", ["", " ", "\n\t", "\u2003\u00a0", [], [TextBlock(text="  ")]])
def test_blank_content_is_refused(content: str | Sequence[Block]) -> None:
    with pytest.raises(BlankMessageError, match="is blank") as refused:
        user_message("s", content, None)
    assert refused.value.session_id == "s"


def test_a_message_that_no_worker_could_receive_is_refused_with_its_size() -> None:
    with pytest.raises(MessageTooLargeError, match="send its uri"):
        user_message("s", "ü" * (MAX_MESSAGE_BYTES // 2), None)


def test_blocks_that_only_an_agent_writes_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="'reasoning'"):
        user_message("s", [TextBlock(text="hi"), ReasoningBlock(text="hm")], None)


@pytest.mark.parametrize("message_id", ["", "a/b", "x" * 201, "a\nb"])
def test_an_id_that_cannot_be_stored_is_refused(message_id: str) -> None:
    with pytest.raises(ConfigurationError, match="message_id is"):
        user_message("s", "hi", message_id)
