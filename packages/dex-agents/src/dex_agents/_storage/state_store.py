"""The framework's state in `FrameworkRunState`: a head that is rewritten, and packs of parts that never are.

Each RunModel Step writes one head and the packs of what is new, so a long session's bytes grow with its content only.
"""

import json
from collections.abc import Iterator
from typing import Final, cast

from dex import Context
from pydantic import JsonValue

from dex_agents._storage.limits import MAX_STATE_BYTES
from dex_agents._storage.schema import RUN_STATE, find_instance
from dex_agents._storage.state_parts import Split, StateParts
from dex_agents._stored import Stored
from dex_agents.errors import TurnFailedError
from dex_agents.runner import FrameworkState

HEAD_KEY: Final = "head"
TURN_START_KEY: Final = "turn-start"

_PACK_BYTES: Final = 512 * 1024  # well under the 4 MiB that one message to a Worker may have


class PartsMissingError(Exception):
    """An earlier state needs parts that are not kept any more."""


class StateHead(Stored):
    """The root of a stored state and who wrote it."""

    version: int = 1
    framework: str
    framework_version: str
    format: int
    next_part: int
    root: JsonValue


class StatePack(Stored):
    """Immutable parts by number."""

    version: int = 1
    parts: dict[int, JsonValue]


class StateStore:
    """The state as one Step sees it; needs the whole `FrameworkRunState` map loaded."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._head = self._read_head(HEAD_KEY)
        self._turn_start = self._read_head(TURN_START_KEY)
        texts = {
            key: RUN_STATE.get(context, key)
            for key in RUN_STATE.get_all_instance_keys(context)
            if key not in (HEAD_KEY, TURN_START_KEY)
        }
        self._packs = {key: parts_of(text) for key, text in texts.items()}
        self._sizes = {key: len(text.encode()) for key, text in texts.items()}
        self._parts = StateParts({number: part for pack in self._packs.values() for number, part in pack.items()})

    def load(self) -> FrameworkState | None:
        """Return a fresh copy of the state; None before the first one was saved."""
        return self._state_of(self._head)

    def load_turn_start(self) -> FrameworkState | None:
        """Return the state as it was when the turn began."""
        return self._state_of(self._turn_start)

    def add_parts(self, parts: dict[int, JsonValue]) -> None:
        """Take parts that only earlier states need."""
        self._parts.add(parts)

    def load_at(self, head: str | None) -> FrameworkState | None:
        """Return a state of earlier by its stored head.

        Raises:
            PartsMissingError: Some of its parts are not kept any more.
        """
        if not self.has_all_parts(head):
            raise PartsMissingError
        return None if head is None else self._state_of(StateHead.model_validate_json(head))

    def has_all_parts(self, head: str | None) -> bool:
        """Whether a state of earlier can still be read."""
        if head is None:
            return True
        try:
            self._parts.reach(StateHead.model_validate_json(head).root)
        except KeyError:
            return False
        return True

    def save(self, state: FrameworkState) -> None:
        """Stage a new state: its new parts and its head.

        Raises:
            TurnFailedError: The session would hold more than one Step can load; the state stays as it was then.
        """
        # After an undone turn the head is older than the newest pack.
        newest = max((number for pack in self._packs.values() for number in pack), default=0)
        split = self._parts.split(state.value, max(newest + 1, self._head.next_part if self._head else 1))
        head = StateHead(
            framework=state.framework,
            framework_version=state.framework_version,
            format=state.format,
            next_part=split.next_part,
            root=split.root,
        )
        new_bytes = sum(split.sizes.values()) + 2 * len(head.model_dump_json().encode())
        if sum(self._sizes.values()) + new_bytes > MAX_STATE_BYTES:
            self._collect(head, self._head, self._turn_start)
        size = sum(self._sizes.values()) + new_bytes
        if size > MAX_STATE_BYTES:
            raise TurnFailedError(
                f"the session's model history would have {size} bytes, more than the {MAX_STATE_BYTES} that a Step can "
                "load: go on in a new session, and keep tool results small"
            )
        for pack in _packs(split):
            self._write(f"pack-{next(iter(pack.parts))}", pack.parts)
        self._head = head
        RUN_STATE.set(self._context, HEAD_KEY, head.model_dump_json())

    def restore_turn_start(self) -> None:
        """Go back to the state with which the turn began."""
        self._head = self._turn_start
        restore_turn_start(self._context)

    def end_turn(self) -> dict[int, JsonValue]:
        """Forget the turn's start and everything that the state no longer reaches.

        Returns:
            What of the forgotten the turn's start had reached, by number.
        """
        turn_start, self._turn_start = self._turn_start, None
        RUN_STATE.delete(self._context, TURN_START_KEY)
        forgotten = self._collect(self._head)
        if not forgotten or turn_start is None:
            return {}
        return {number: forgotten[number] for number in self._parts.reach(turn_start.root) & forgotten.keys()}

    def _collect(self, *roots: StateHead | None) -> dict[int, JsonValue]:
        """Delete the packs that no root reaches, and shrink those that are mostly dead; return what was in them."""
        forgotten: dict[int, JsonValue] = {}
        reached = {number for root in roots if root is not None for number in self._parts.reach(root.root)}
        for key, parts in list(self._packs.items()):
            live = {number: part for number, part in parts.items() if number in reached}
            if not live:
                RUN_STATE.delete(self._context, key)
                del self._packs[key], self._sizes[key]
            elif len(live) < len(parts) and 2 * StatePack(parts=live).size_in_bytes() < self._sizes[key]:
                self._write(key, live)
            else:
                continue
            forgotten.update((number, part) for number, part in parts.items() if number not in live)
        return forgotten

    def _write(self, key: str, parts: dict[int, JsonValue]) -> None:
        text = StatePack(parts=parts).model_dump_json()
        self._packs[key], self._sizes[key] = parts, len(text.encode())
        RUN_STATE.set(self._context, key, text)

    def _read_head(self, key: str) -> StateHead | None:
        text = find_instance(self._context, RUN_STATE, key)
        return None if text is None else StateHead.model_validate_json(text)

    def _state_of(self, head: StateHead | None) -> FrameworkState | None:
        if head is None:
            return None
        # Not validated: the value was JSON a moment ago, and walking all of a long history costs more than reading it.
        return FrameworkState.model_construct(
            framework=head.framework,
            framework_version=head.framework_version,
            format=head.format,
            value=self._parts.join(head.root),
        )


def first_save(state: FrameworkState) -> tuple[list[dict[int, JsonValue]], str]:
    """Split the first state of a session: the packs and the head that `write_pack` and `write_head` take.

    Equal states are split equally.
    """
    split = StateParts({}).split(state.value, 1)
    head = StateHead(
        framework=state.framework,
        framework_version=state.framework_version,
        format=state.format,
        next_part=split.next_part,
        root=split.root,
    )
    return [pack.parts for pack in _packs(split)], head.model_dump_json()


def write_pack(context: Context, parts: dict[int, JsonValue]) -> None:
    """Stage a pack of parts that no head needs yet."""
    RUN_STATE.set(context, f"pack-{next(iter(parts))}", StatePack(parts=parts).model_dump_json())


def write_head(context: Context, head: str) -> None:
    """Stage the head of a state whose packs are written."""
    RUN_STATE.set(context, HEAD_KEY, head)


def has_state(context: Context) -> bool:
    """Whether a state was saved; needs the `head` instance loaded."""
    return find_instance(context, RUN_STATE, HEAD_KEY) is not None


def begin_turn(context: Context) -> None:
    """Remember the current state as the turn's start; needs the `head` instance loaded."""
    head = find_instance(context, RUN_STATE, HEAD_KEY)
    if head is not None:
        RUN_STATE.set(context, TURN_START_KEY, head)


def restore_turn_start(context: Context) -> None:
    """Go back to the turn's start without reading what is stored, which may be unreadable."""
    head = find_instance(context, RUN_STATE, TURN_START_KEY)
    if head is None:
        RUN_STATE.delete(context, HEAD_KEY)
    else:
        RUN_STATE.set(context, HEAD_KEY, head)
    RUN_STATE.delete(context, TURN_START_KEY)


def forget_turn_start(context: Context) -> None:
    """Keep the state as it is at the end of a turn that did not change it."""
    RUN_STATE.delete(context, TURN_START_KEY)


def parts_of(pack: str) -> dict[int, JsonValue]:
    """Read a pack without walking its parts in Python, which a validation of JSON values does."""
    document = cast("dict[str, dict[str, JsonValue]]", json.loads(pack))
    return {int(number): part for number, part in document["parts"].items()}


def _packs(split: Split) -> Iterator[StatePack]:
    """Group new parts into packs of bounded size."""
    parts: dict[int, JsonValue] = {}
    size = 0
    for number, part in split.new_parts.items():
        if parts and size + split.sizes[number] > _PACK_BYTES:
            yield StatePack(parts=parts)
            parts, size = {}, 0
        parts[number] = part
        size += split.sizes[number]
    if parts:
        yield StatePack(parts=parts)
