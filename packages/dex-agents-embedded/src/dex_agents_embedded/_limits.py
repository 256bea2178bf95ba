"""The sizes that the engine enforces."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from dex.dexpb import dex_pb2 as pb

Response = pb.InvokeWaitForMethodResponse | pb.InvokeExecuteMethodResponse | pb.InvokeWorkerRPCResponse

KIBIBYTE = 1024
MEBIBYTE = 1024 * KIBIBYTE


@dataclass(frozen=True, slots=True)
class Limits:
    """Sizes in bytes of serialized messages.

    Attributes:
        value: One `Value`; 16 MiB as on a Dex Server.
        frame: One message to a Worker or Client. Both accept at most 4 MiB; the rest is left to the envelope.
    """

    value: int = 16 * MEBIBYTE
    frame: int = 3 * MEBIBYTE + 920 * KIBIBYTE

    def oversized_value(self, response: Response) -> str | None:
        """Return the name and size of the first value in a response that is over the limit, None if all fit."""
        if response.ByteSize() <= self.value:
            return None
        return self.first_oversized(_named_values(response))

    def first_oversized(self, values: Iterable[tuple[str, pb.Value]]) -> str | None:
        """Return the name and size of the first value that is over the limit, None if all fit.

        Args:
            values: Pairs of a name for people and a value.
        """
        for name, value in values:
            size = value.ByteSize()
            if size > self.value:
                return f"{name} has {size} bytes, the limit is {self.value}"
        return None


def attribute_values(writes: Iterable[pb.AttributeWrite]) -> Iterator[tuple[str, pb.Value]]:
    """Yield the values of Attribute writes with names for people."""
    return ((f"Attribute {write.key}", write.value) for write in writes)


def message_values(messages: Iterable[pb.ChannelMessage]) -> Iterator[tuple[str, pb.Value]]:
    """Yield the values of Channel messages with names for people."""
    return ((f"a message for Channel {message.channel_name}", message.value) for message in messages)


def _named_values(response: Response) -> Iterator[tuple[str, pb.Value]]:
    yield from attribute_values(response.upsert_attributes)
    yield from message_values(response.publish_to_channel)
    if isinstance(response, pb.InvokeWaitForMethodResponse):
        for local in response.upsert_step_exe_locals:
            yield f"Step local {local.key}", local.value
        return
    for movement in response.step_decision.next_steps:
        yield f"the input of Step {movement.step_type}", movement.step_input
    if response.step_decision.HasField("close_decision"):
        yield "the output", response.step_decision.close_decision.close_input
    if isinstance(response, pb.InvokeWorkerRPCResponse):
        yield "the output", response.output
