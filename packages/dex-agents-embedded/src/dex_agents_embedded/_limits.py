"""The sizes that the engine enforces."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from dex.dexpb import dex_pb2 as pb

from ._machine.budget import RunLimits
from ._machine.changes import is_absent

Response = pb.InvokeWaitForMethodResponse | pb.InvokeExecuteMethodResponse | pb.InvokeWorkerRPCResponse

KIBIBYTE = 1024
MEBIBYTE = 1024 * KIBIBYTE


LARGEST_FRAME_BYTES: Final = 3 * MEBIBYTE + 920 * KIBIBYTE
"""The SDK receives at most 4 MiB; the rest is left to the envelope."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Sizes in bytes of serialized messages.

    Attributes:
        run: The limits of runs that start now.
        frame: One message to a Worker or Client.
    """

    run: RunLimits = field(default_factory=RunLimits)
    frame: int = LARGEST_FRAME_BYTES


def oversized_value(response: Response, limit: int) -> str | None:
    """Return the name and size of the first value in a response that is over the limit, None if all fit."""
    if response.ByteSize() <= limit:
        return None
    return first_oversized(_named_values(response), limit)


def first_oversized(values: Iterable[tuple[str, pb.Value]], limit: int) -> str | None:
    """Return the name and size of the first value that is over the limit, None if all fit.

    Args:
        values: Pairs of a name for people and a value.
        limit: In bytes.
    """
    for name, value in values:
        size = value.ByteSize()
        if size > limit:
            return f"{name} has {size} bytes, the limit is {limit}"
    return None


def growth(response: Response) -> int:
    """Return how many bytes of values a response adds to a run; deletions add none."""
    added = sum(write.value.ByteSize() for write in response.upsert_attributes if not is_absent(write.value))
    added += sum(message.value.ByteSize() for message in response.publish_to_channel)
    if isinstance(response, pb.InvokeWaitForMethodResponse):
        added += sum(local.ByteSize() for local in response.upsert_step_exe_locals)
        return added + response.waiting_condition.ByteSize()
    added += sum(movement.ByteSize() for movement in response.step_decision.next_steps)
    return added + response.step_decision.close_decision.close_input.ByteSize()


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
