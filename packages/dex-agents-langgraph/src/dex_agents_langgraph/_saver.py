"""A checkpointer that lives for one Step: it starts from a session's state and ends as the next one."""

from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, cast

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    WRITES_IDX_MAP,
    BaseCheckpointSaver,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
)
from pydantic import JsonValue
from pydantic_core import from_json, to_json

from dex_agents_langgraph._codec import ValueCodec
from dex_agents_langgraph._late_values import Unread
from dex_agents_langgraph._private import NAMESPACE_SEPARATOR, TASK_SEPARATOR

Namespaces = dict[str, list[JsonValue]]
"""Checkpoints as JSON by namespace, the newest last."""

Writes = dict[tuple[str, int], tuple[str, JsonValue, str]]
"""Channel, value and task path by task and index."""


@dataclass
class StoredCheckpoint:
    """One checkpoint, everything in it as JSON.

    Attributes:
        id: Its id; ids grow with time.
        parent: The checkpoint before it.
        checkpoint: LangGraph's document, without the values of the channels.
        metadata: LangGraph's metadata: the step and where the checkpoint comes from.
        values: Values by channel.
        writes: What tasks that follow the checkpoint have written: channel, value and task path by task and index.
    """

    id: str
    parent: str | None
    checkpoint: dict[str, JsonValue]
    metadata: dict[str, JsonValue]
    values: dict[str, JsonValue]
    writes: Writes = field(default_factory=dict[tuple[str, int], tuple[str, JsonValue, str]])

    def dump(self, only_channels: Collection[str] | None = None) -> JsonValue:
        """Write it as JSON, with the values of these channels only."""
        return {
            "id": self.id,
            "parent": self.parent,
            # Bookkeeping that changes with every superstep: as text, it is one small part of the stored state.
            "checkpoint": to_json(self.checkpoint).decode(),
            "metadata": to_json(self.metadata).decode(),
            "values": {
                channel: value
                for channel, value in self.values.items()
                if only_channels is None or channel in only_channels
            },
            "writes": self.dump_writes(),
        }

    def dump_writes(self) -> JsonValue:
        """Write the pending writes as JSON."""
        return {
            f"{task} {index}": [channel, value, path] for (task, index), (channel, value, path) in self.writes.items()
        }

    def sorted_writes(self) -> list[tuple[tuple[str, int], tuple[str, JsonValue, str]]]:
        """Return the writes in the order in which LangGraph applies them: by the path of their tasks.

        Writes without a path stay in the order in which they came. Before LangGraph 1.2.24 those of delta channels have
        none, and their task ids would bring the results of parallel calls into another order.
        """
        return sorted(self.writes.items(), key=lambda item: item[1][2])

    @classmethod
    def load(cls, document: JsonValue) -> "StoredCheckpoint":
        """Read what `dump` wrote."""
        data = cast("dict[str, Any]", document)
        return cls(
            id=data["id"],
            parent=data["parent"],
            checkpoint=from_json(data["checkpoint"]),
            metadata=from_json(data["metadata"]),
            values=dict(data["values"]),
            writes=load_writes(data["writes"]),
        )


def load_writes(document: JsonValue) -> Writes:
    """Read what `StoredCheckpoint.dump_writes` wrote."""
    writes: Writes = {}
    for key, (channel, value, path) in cast("dict[str, tuple[str, JsonValue, str]]", document).items():
        task, _, index = key.rpartition(" ")
        writes[task, int(index)] = (channel, value, path)
    return writes


class SnapshotSaver(BaseCheckpointSaver[int]):
    """Keeps the checkpoints of one run as JSON.

    Values are written as JSON when LangGraph hands them over, so that a later change of the object does not reach the
    state, and one that cannot be stored is noticed at once.

    Args:
        codec: Writes and reads values.
        namespaces: The state to start from; it is not changed.
        refuse: Makes the error for a checkpoint that cannot be read.
    """

    def __init__(
        self,
        codec: ValueCodec,
        namespaces: Mapping[str, Sequence[JsonValue]],
        refuse: Callable[[Exception], Exception] = lambda error: error,
    ) -> None:
        super().__init__()
        self._codec = codec.for_step()
        self._refuse = refuse
        self.stored: dict[str, dict[str, StoredCheckpoint]] = {}
        self._late: Mapping[tuple[str, ...], Collection[str]] = {}
        # LangGraph may hand over the writes that belong to a checkpoint before the checkpoint itself.
        self._early_writes: dict[tuple[str, str], Writes] = {}
        self.load(namespaces)

    def load(self, namespaces: Mapping[str, Sequence[JsonValue]]) -> None:
        """Take over checkpoints; those of a namespace that is held already are replaced."""
        for namespace, documents in namespaces.items():
            loaded = (StoredCheckpoint.load(document) for document in documents)
            self.stored[namespace] = {checkpoint.id: checkpoint for checkpoint in loaded}

    def read_late(self, channels: Mapping[tuple[str, ...], Collection[str]]) -> None:
        """Give unread values for channels, which read them when somebody asks.

        Args:
            channels: By the nodes that lead to a graph, its channels that take such values.
        """
        self._late = channels

    def read_only(self) -> None:
        """Give what the run itself had from now on: it is over, and nobody changes what is read."""
        self._codec.read_only()

    @staticmethod
    def ids(documents: Sequence[JsonValue]) -> set[str]:
        """Return the ids of stored checkpoints."""
        return {cast("dict[str, str]", document)["id"] for document in documents}

    def newest(self, namespace: str) -> StoredCheckpoint | None:
        """Return the newest checkpoint of a namespace."""
        checkpoints = self.stored.get(namespace)
        return checkpoints[max(checkpoints)] if checkpoints else None

    def newest_step(self, namespace: str = "") -> int:
        """Return the superstep of the newest checkpoint; -2 when there is none, as LangGraph counts."""
        newest = self.newest(namespace)
        return -2 if newest is None else cast("int", newest.metadata.get("step", -2))

    def inner_checkpoints(self) -> Iterator[StoredCheckpoint]:
        """Iterate over the checkpoints of the graphs inside the root graph."""
        for namespace, checkpoints in self.stored.items():
            if namespace:
                yield from checkpoints.values()

    def overwrite(self, channel: str, value: Any) -> None:
        """Replace a channel's value in the root graph's newest checkpoint; no node is triggered by it.

        Raises:
            RuntimeError: There is no checkpoint.
        """
        newest = self.newest("")
        if newest is None:
            raise RuntimeError("the state has no checkpoint whose value could be replaced")
        newest.values[channel] = self._codec.encode(value, f"the channel {channel!r} of the graph's state")

    def forget(self, channels: Mapping[tuple[str, ...], Collection[str]]) -> None:
        """Empty channels that hold their value for one turn only.

        Args:
            channels: By the nodes that lead to a graph, its channels.
        """
        for namespace, checkpoints in self.stored.items():
            for checkpoint in checkpoints.values():
                for channel in channels.get(node_path(namespace), ()):
                    checkpoint.values.pop(channel, None)

    def dump(self, delta_channels: Mapping[tuple[str, ...], Collection[str]]) -> Namespaces:
        """Write what a later Step needs as JSON.

        Args:
            delta_channels: By the nodes that lead to a graph, its channels whose value lies in the writes of earlier
                checkpoints. Of a graph that is not named everything is kept.
        """
        dumped: Namespaces = {}
        for namespace, checkpoints in self.stored.items():
            if not checkpoints:
                continue
            deltas = delta_channels.get(node_path(namespace))
            if deltas is None:
                dumped[namespace] = [checkpoints[each].dump() for each in sorted(checkpoints)]
            else:
                dumped[namespace] = _newest_with_ancestors(checkpoints, deltas)
        return dumped

    # What LangGraph calls.

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """Return the checkpoint that a config names, or the newest of its namespace."""
        configurable = config.get("configurable", {})
        namespace = configurable.get("checkpoint_ns", "")
        wanted = configurable.get("checkpoint_id")
        checkpoints = self.stored.get(namespace, {})
        found = checkpoints.get(wanted) if wanted else self.newest(namespace)
        if found is None:
            return None
        try:
            return self._as_tuple(configurable["thread_id"], namespace, found)
        except Exception as error:
            # Whatever the types in the state raise: they are the application's.
            raise self._refuse(error) from error

    def _read(self, value: JsonValue) -> Any:
        try:
            return self._codec.decode(value)
        except Exception as error:
            raise self._refuse(error) from error

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """Do as `get_tuple`."""
        return self.get_tuple(config)

    def list(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,  # noqa: A002  LangGraph's name
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:
        """Iterate over the kept checkpoints of a namespace, newest first."""
        configurable = config.get("configurable", {}) if config else {}
        namespace = configurable.get("checkpoint_ns", "")
        last = before.get("configurable", {}).get("checkpoint_id") if before else None
        given = 0
        for checkpoint_id in sorted(self.stored.get(namespace, {}), reverse=True):
            found = self.stored[namespace][checkpoint_id]
            fits = all(found.metadata.get(key) == value for key, value in (filter or {}).items())
            if fits and (last is None or checkpoint_id < last) and (limit is None or given < limit):
                given += 1
                yield self._as_tuple(configurable.get("thread_id", ""), namespace, found)

    async def alist(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,  # noqa: A002  LangGraph's name
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        """Do as `list`."""
        for found in self.list(config, filter=filter, before=before, limit=limit):
            yield found

    def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Keep a checkpoint.

        Raises:
            TurnFailedError: A channel holds something that cannot be stored.
        """
        configurable = config.get("configurable", {})
        namespace = configurable.get("checkpoint_ns", "")
        parent_id = configurable.get("checkpoint_id")
        checkpoints = self.stored.setdefault(namespace, {})
        parent = checkpoints.get(parent_id) if parent_id else None
        document = dict(checkpoint)
        held = cast("dict[str, Any]", document.pop("channel_values"))
        values: dict[str, JsonValue] = {}
        for channel in checkpoint["channel_versions"]:
            if channel in new_versions or parent is None:
                if channel in held:
                    values[channel] = self._codec.encode(held[channel], f"the channel {channel!r} of the graph's state")
            elif channel in parent.values:
                values[channel] = parent.values[channel]
        checkpoints[checkpoint["id"]] = StoredCheckpoint(
            id=checkpoint["id"],
            parent=parent_id,
            checkpoint=cast("dict[str, JsonValue]", self._codec.encode(document, "a checkpoint")),
            metadata=cast("dict[str, JsonValue]", self._codec.encode(dict(metadata), "a checkpoint's metadata")),
            values=values,
            writes=self._early_writes.pop((namespace, checkpoint["id"]), {}),
        )
        return {
            "configurable": {
                "thread_id": configurable["thread_id"],
                "checkpoint_ns": namespace,
                "checkpoint_id": checkpoint["id"],
            }
        }

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Do as `put`."""
        return self.put(config, checkpoint, metadata, new_versions)

    def put_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        """Keep what a task has written.

        Raises:
            TurnFailedError: It is something that cannot be stored.
        """
        configurable = config.get("configurable", {})
        namespace, checkpoint_id = configurable.get("checkpoint_ns", ""), configurable["checkpoint_id"]
        checkpoint = self.stored.get(namespace, {}).get(checkpoint_id)
        kept = (
            self._early_writes.setdefault((namespace, checkpoint_id), {}) if checkpoint is None else checkpoint.writes
        )
        for position, (channel, value) in enumerate(writes):
            index = WRITES_IDX_MAP.get(channel, position)
            if index >= 0 and (task_id, index) in kept:
                continue
            stored = repr(value) if isinstance(value, BaseException) else value
            encoded = self._codec.encode(stored, f"a write to the channel {channel!r} of the graph's state")
            kept[task_id, index] = (channel, encoded, task_path)

    async def aput_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        """Do as `put_writes`."""
        self.put_writes(config, writes, task_id, task_path)

    def _as_tuple(self, thread_id: str, namespace: str, stored: StoredCheckpoint) -> CheckpointTuple:
        def config(checkpoint_id: str) -> RunnableConfig:
            return {
                "configurable": {
                    "thread_id": thread_id,
                    "checkpoint_ns": namespace,
                    "checkpoint_id": checkpoint_id,
                }
            }

        late = self._late.get(node_path(namespace), ())
        values = {
            channel: Unread(partial(self._read, value))
            if channel in late and isinstance(value, list)
            else self._codec.decode(value)
            for channel, value in stored.values.items()
        }
        document = {**self._codec.decode(cast("JsonValue", stored.checkpoint)), "channel_values": values}
        return CheckpointTuple(
            config=config(stored.id),
            checkpoint=cast("Checkpoint", document),
            metadata=cast("CheckpointMetadata", self._codec.decode(cast("JsonValue", stored.metadata))),
            parent_config=config(stored.parent) if stored.parent else None,
            pending_writes=[
                (task, channel, self._codec.decode(value)) for (task, _), (channel, value, _) in stored.sorted_writes()
            ],
        )


def node_path(namespace: str) -> tuple[str, ...]:
    """Return the nodes that lead to the graph of a namespace: `a:<task>|b:<task>` is `("a", "b")`."""
    if not namespace:
        return ()
    return tuple(level.partition(TASK_SEPARATOR)[0] for level in namespace.split(NAMESPACE_SEPARATOR))


def is_bound_to_task(namespace: str) -> bool:
    """Whether a namespace belongs to one task and is never entered again when the task is done."""
    return TASK_SEPARATOR in namespace


def first_task(namespace: str) -> str:
    """Return the task of the root graph that a namespace belongs to."""
    return namespace.split(NAMESPACE_SEPARATOR)[0].partition(TASK_SEPARATOR)[2]


def _newest_with_ancestors(checkpoints: Mapping[str, StoredCheckpoint], deltas: Collection[str]) -> list[JsonValue]:
    """Return the newest checkpoint, and before it those from which its delta channels are put together."""
    newest = checkpoints[max(checkpoints)]
    versions = cast("dict[str, JsonValue]", newest.checkpoint["channel_versions"])
    missing = {channel for channel in deltas if channel in versions and channel not in newest.values}
    kept = [newest.dump()]
    following = newest
    while missing and following.parent is not None and following.parent in checkpoints:
        following = checkpoints[following.parent]
        kept.insert(0, following.dump(missing))
        missing -= following.values.keys()
    return kept
