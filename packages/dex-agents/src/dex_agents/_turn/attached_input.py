"""Puts the contents of attachments into what a runner is given."""

from collections.abc import Sequence

from dex_agents._storage.attached_texts import NOTHING_ATTACHED, AttachedTexts
from dex_agents._storage.state_store import StateStore, check_attached
from dex_agents._turn.attachment_reader import AttachmentReader
from dex_agents._turn.attachments import attachments_of, characters_of
from dex_agents.messages import Block, MediaBlock, Message
from dex_agents.runner import NewTurn, TurnInput


class AttachedInput:
    """The contents that one Step needs: of the state, and of what is new.

    Args:
        attached: All of them.
    """

    def __init__(self, attached: AttachedTexts) -> None:
        self._attached = attached

    @classmethod
    async def read(
        cls,
        reader: AttachmentReader,
        session_id: str,
        store: StateStore,
        new: TurnInput | None = None,
        steering: Sequence[Message] = (),
    ) -> "AttachedInput":
        """Read what is needed, and give it to the state; it raises as the reader does.

        Raises:
            TurnFailedError: All that the model would be given of it is more than a Worker's memory should have to hold.
        """
        content = new.content if isinstance(new, NewTurn) else ()
        said = [*content, *(block for message in steering for block in message.blocks)]
        check_attached(store.attached_characters + characters_of(said))
        wanted = (*store.attachments, *attachments_of(said))
        attached = await reader.contents(session_id, wanted) if wanted else NOTHING_ATTACHED
        store.take(attached)
        return cls(attached)

    def turn(self, new: TurnInput) -> TurnInput:
        """Return a turn's input with contents in place of references."""
        if not isinstance(new, NewTurn) or not attachments_of(new.content):
            return new
        return new.model_copy(update={"content": self._filled(new.content)})

    def messages(self, steering: Sequence[Message]) -> tuple[Message, ...]:
        """Return messages with contents in place of references."""
        return tuple(
            message.model_copy(update={"blocks": self._filled(message.blocks)})
            if attachments_of(message.blocks)
            else message
            for message in steering
        )

    def _filled(self, blocks: Sequence[Block]) -> tuple[Block, ...]:
        return tuple(
            block.model_copy(update={"data_base64": self._attached.content(block.attachment.key), "attachment": None})
            if isinstance(block, MediaBlock) and block.attachment is not None
            else block
            for block in blocks
        )
