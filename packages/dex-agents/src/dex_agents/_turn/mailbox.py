"""Takes user messages into a session, each once."""

from typing import Final

from dex import Context

from dex_agents._storage.limits import MAX_MESSAGE_BYTES
from dex_agents._storage.schema import MESSAGE_TURNS, USER_MESSAGES
from dex_agents.messages import Block, TextBlock
from dex_agents.options import AgentSessionOptions
from dex_agents.snapshot import SendReceipt, UserMessage

QUEUED: Final = -1
"""Stands for the turn number of a message that has no turn yet; an unknown message has 0."""


def is_blank(content: tuple[Block, ...]) -> bool:
    """Whether nothing in the content says anything, by Python's rules of white space."""
    return not any(not isinstance(block, TextBlock) or block.text.strip() for block in content)


def receive(context: Context, message: UserMessage, options: AgentSessionOptions) -> SendReceipt:
    """Stage a message at the end of the queue.

    The caller holds the lock of the message's id and has loaded it, so that a repeated send is one message.
    """
    waiting = USER_MESSAGES.size(context)
    if is_blank(message.content):
        return SendReceipt(message_id=message.message_id, accepted=False, refusal="blank", queued_messages=waiting)
    if message.size_in_bytes() > MAX_MESSAGE_BYTES:
        return SendReceipt(message_id=message.message_id, accepted=False, refusal="too_large", queued_messages=waiting)
    if MESSAGE_TURNS.get(context, message.message_id) != 0:
        return SendReceipt(message_id=message.message_id, accepted=True, repeated=True, queued_messages=waiting)
    if waiting >= options.max_queued_messages:
        return SendReceipt(message_id=message.message_id, accepted=False, refusal="queue_full", queued_messages=waiting)
    USER_MESSAGES.publish(context, message)
    MESSAGE_TURNS.set(context, message.message_id, QUEUED)
    return SendReceipt(message_id=message.message_id, accepted=True, queued_messages=waiting + 1)
