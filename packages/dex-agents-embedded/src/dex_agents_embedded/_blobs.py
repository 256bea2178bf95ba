"""Large values by reference: a message names them, and the SDK loads those that it has not cached.

The SDK receives messages of at most 4 MiB, and it loads all that one message names in one call. So one message can
carry that much itself and as much again by reference. A reference is made from the value's content: a value that did
not change is not sent again to a Worker that has it.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterator
from typing import Final
from weakref import WeakValueDictionary

from dex.dexpb import dex_pb2 as pb

from ._limits import KIBIBYTE, MEBIBYTE
from ._requests import Request

THRESHOLD_BYTES: Final = 64 * KIBIBYTE
"""Values over this size go by reference: below it asking for one costs more than sending it."""

_KEPT_FOR_CLIENTS_BYTES: Final = 64 * MEBIBYTE
_ENTRY_OVERHEAD_BYTES: Final = 128  # of one value in the answer that carries it


class Blob:
    """A value that a message names.

    Attributes:
        value: The value.
        size: Its serialized length in bytes.
    """

    __slots__ = ("__weakref__", "size", "value")

    def __init__(self, value: pb.Value, size: int) -> None:
        self.value = pb.Value()
        self.value.CopyFrom(value)
        self.size = size


class Blobs:
    """The values that may be asked for: those of running tasks, and those of recent answers to Clients.

    Args:
        largest_answer: What one answer may have in bytes, and so what one message may name.
        threshold: The size in bytes over which a value goes by reference.
    """

    def __init__(self, largest_answer: int, threshold: int = THRESHOLD_BYTES) -> None:
        self._largest_answer = largest_answer
        self._threshold = threshold
        # A task holds its blobs; with the task they are gone.
        self._blobs: WeakValueDictionary[tuple[str, str], Blob] = WeakValueDictionary()
        self._recent: OrderedDict[tuple[str, str], Blob] = OrderedDict()
        self._recent_bytes = 0

    def take_from_request(self, request: Request, secrets: Callable[[], Collection[str]]) -> list[Blob]:
        """Replace the large values of a Worker's request by references.

        Args:
            request: The request; it is changed.
            secrets: Returns the keys of hard-delete Attributes, which the SDK would cache on its disk.

        Returns:
            The values; they can be loaded as long as the caller keeps them.
        """
        if request.ByteSize() <= self._threshold:
            return []
        return self._take(request.context.flow_id, list(_values_of(request, secrets())))

    def take_from_result(self, flow_id: str, result: pb.FlowResult) -> None:
        """Replace the large outputs in an answer to a Client by references, which hold for a while."""
        if result.ByteSize() <= self._threshold:
            return
        for blob in self._take(flow_id, [output.completed_step_output for output in result.results]):
            self._keep(flow_id, blob)

    def load(self, request: pb.LoadBlobsRequest) -> pb.LoadBlobsResponse:
        """Return values by reference.

        Raises:
            LookupError: A value is not kept any more; the text says what to do.
        """
        response = pb.LoadBlobsResponse()
        for entry in request.entries:
            kind = entry.blob_value.WhichOneof("kind") or ""
            blob_id: str = getattr(entry.blob_value, kind) if kind.startswith("internal_blob_id") else ""
            blob = self._blobs.get((entry.flow_id, blob_id))
            if blob is None:
                raise LookupError(
                    f"the engine does not keep the value {blob_id!r} of Flow {entry.flow_id!r} any more: its task has "
                    "ended, or the engine was restarted; ask again for what named it"
                )
            response.values[blob_id].CopyFrom(blob.value)
        return response

    def _take(self, flow_id: str, values: list[pb.Value]) -> list[Blob]:
        sized = [
            (value.ByteSize(), value) for value in values if value.WhichOneof("kind") in ("string_value", "obj_value")
        ]
        sized.sort(key=lambda entry: entry[0], reverse=True)
        taken: list[Blob] = []
        left = self._largest_answer
        named: set[str] = set()
        for size, value in sized:
            if size <= self._threshold:
                break
            blob_id = _blob_id(value)
            if blob_id not in named:
                if size + _ENTRY_OVERHEAD_BYTES > left:
                    continue  # it stays in the message
                left -= size + _ENTRY_OVERHEAD_BYTES
                named.add(blob_id)
            blob = self._blobs.get((flow_id, blob_id))
            if blob is None:
                blob = self._blobs[flow_id, blob_id] = Blob(value, size)
            taken.append(blob)
            if value.WhichOneof("kind") == "string_value":
                value.internal_blob_id_for_string_value = blob_id
            else:
                value.internal_blob_id_for_obj_value = blob_id
        return taken

    def _keep(self, flow_id: str, blob: Blob) -> None:
        key = (flow_id, _blob_id(blob.value))
        if self._recent.pop(key, None) is None:
            self._recent_bytes += blob.size
        self._recent[key] = blob
        while self._recent_bytes > _KEPT_FOR_CLIENTS_BYTES and len(self._recent) > 1:
            _, oldest = self._recent.popitem(last=False)
            self._recent_bytes -= oldest.size


def _blob_id(value: pb.Value) -> str:
    return hashlib.blake2b(value.SerializeToString(deterministic=True), digest_size=20).hexdigest()


def _values_of(request: Request, secrets: Collection[str]) -> Iterator[pb.Value]:
    """Yield every value in a request that the SDK would load by reference."""
    yield from (attribute.value for attribute in request.attributes if attribute.key not in secrets)
    for messages in request.loaded_channel_messages.values():
        yield from (message.value for message in messages.messages)
    if isinstance(request, pb.InvokeWorkerRPCRequest):
        yield request.input
        return
    yield request.step_input
    if request.context.HasField("last_heartbeat_value"):
        yield request.context.last_heartbeat_value
    if isinstance(request, pb.InvokeExecuteMethodRequest):
        yield from (local.value for local in request.step_exe_locals)
        for channel_result in request.condition_results.channel_results:
            yield from channel_result.values
        for flow_result in request.condition_results.sub_flow_results:
            yield from (output.completed_step_output for output in flow_result.results)
