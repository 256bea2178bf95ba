"""What of a session an RPC must load to tell whether it has a message."""

from dex import AttributeMapLoad

from dex_agents._storage.schema import MESSAGE_DIGESTS, MESSAGE_TURNS
from dex_agents.snapshot import UserMessage


def loads_of(message: UserMessage) -> tuple[AttributeMapLoad, ...]:
    """Return the loads of what was stored under the message's id."""
    digest = (MESSAGE_DIGESTS.load(message.message_id),) if message.digest else ()
    return (MESSAGE_TURNS.load(message.message_id), *digest)
