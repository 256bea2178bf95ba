"""What one command changed, for the store."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from dex.dexpb import dex_pb2 as pb

from .step import StepExecution


class Message(NamedTuple):
    """One queued Channel message.

    Attributes:
        sequence: Position among all messages of the run, from 1.
        message_id: The id that Workers and Clients know it by.
        value: The serialized `Value`.
    """

    sequence: int
    message_id: str
    value: bytes


@dataclass(frozen=True, slots=True)
class AttributeChange:
    """The newest value of one Attribute.

    Attributes:
        value: The serialized `Value`; None deletes the Attribute.
        index: How the value is searched for; None when it is not indexed.
        is_secret: True for a hard-delete Attribute: no copy of an earlier value may stay.
    """

    value: bytes | None
    index: pb.IndexConfig | None
    is_secret: bool = False


@dataclass(frozen=True, slots=True)
class OutsideWrite:
    """What a Client or an RPC changed, kept so that a run that begins anew can be given it again.

    Attributes:
        at: Unix time in seconds.
        event: How many transitions the run had made.
        rpc_name: The RPC; empty for a Client's own call.
        effects: The serialized `InvokeWorkerRPCResponse`, without its output and without hard-delete Attributes.
        first_message: The sequence of the first message that it published.
    """

    at: float
    event: int
    rpc_name: str
    effects: bytes
    first_message: int


@dataclass(slots=True)
class Delta:
    """The rows that a store has to write so that it equals the `Run` again.

    Attributes:
        header: True when a field of the run itself changed, apart from what it counts.
        counts: True when it counted a Step execution or a message.
        renamed: True when the run has got a new id.
        created: New Step executions by id.
        changed: Changed Step executions by id, those of `created` not repeated.
        removed: Finished Step executions, id to number.
        heartbeats: Step numbers whose heartbeat value changed, with the new value.
        attributes: Changed Attributes by physical key.
        published: New Channel messages by sequence, with the Channel's name.
        consumed: Sequences of messages that left their Channel.
        outside: What came from outside, by sequence.
    """

    header: bool = False
    counts: bool = False
    renamed: bool = False
    created: dict[str, StepExecution] = field(default_factory=dict[str, StepExecution])
    changed: dict[str, StepExecution] = field(default_factory=dict[str, StepExecution])
    removed: dict[str, int] = field(default_factory=dict[str, int])
    heartbeats: dict[int, bytes | None] = field(default_factory=dict[int, bytes | None])
    attributes: dict[str, AttributeChange] = field(default_factory=dict[str, AttributeChange])
    published: dict[int, tuple[str, Message]] = field(default_factory=dict[int, tuple[str, Message]])
    consumed: list[int] = field(default_factory=list[int])
    outside: dict[int, OutsideWrite] = field(default_factory=dict[int, OutsideWrite])

    @property
    def is_event(self) -> bool:
        """True for a transition that counts as one of the history: more than an attempt that starts or beats."""
        return bool(
            self.header
            or self.counts
            or self.created
            or self.removed
            or self.attributes
            or self.published
            or self.consumed
        )

    def __bool__(self) -> bool:
        return bool(
            self.header
            or self.counts
            or self.renamed
            or self.created
            or self.changed
            or self.removed
            or self.heartbeats
            or self.attributes
            or self.published
            or self.consumed
            or self.outside
        )
