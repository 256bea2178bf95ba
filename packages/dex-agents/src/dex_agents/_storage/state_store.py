"""The framework's state in `FrameworkRunState`: a head that is rewritten, and packs of parts that never are.

Each RunModel Step writes one head and the packs of what is new, so a long session's bytes grow with its content only.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final

from dex import Context
from pydantic import JsonValue
from pydantic_core import from_json

from dex_agents._storage.attached_texts import NOTHING_ATTACHED, AttachedTexts
from dex_agents._storage.attachment_documents import AttachmentIndex
from dex_agents._storage.limits import MAX_ATTACHED_CHARACTERS, MAX_PLAIN_STATE_BYTES, MAX_STATE_BYTES
from dex_agents._storage.schema import ATTACHMENT_INDEX, RUN_STATE, find, find_instance
from dex_agents._storage.state_cache import STATES, KnownState, StateKey, keep_pack, read_pack
from dex_agents._storage.state_packs import Pack, merged, pack_up
from dex_agents._storage.state_parts import Part, Split, StateParts, dump, with_kept_items
from dex_agents._stored import Stored
from dex_agents.errors import TurnFailedError
from dex_agents.messages import Attachment
from dex_agents.runner import FrameworkState

HEAD_KEY: Final = "head"
TURN_START_KEY: Final = "turn-start"

WITH_REFERENCES: Final = 1000
"""Added to the format of a state with references in it. A Worker of a release that would take them for text finds that
its runner cannot read that format, and hands the Step back for another Worker."""


_OF_ATTACHMENTS: Final = {"attachments", "attached_characters"}


class PartsMissingError(Exception):
    """An earlier state needs parts that are not kept any more."""


class StateHead(Stored):
    """The root of a stored state and who wrote it.

    Attributes:
        attachments: The keys of those to which its parts refer; None in a session without attachments, whose texts
            stand for themselves.
        attached_characters: Of their contents as base64, each as often as it stands in the state.
    """

    version: int = 1
    framework: str
    framework_version: str
    format: int
    next_part: int
    root: JsonValue
    attachments: tuple[str, ...] | None = None
    attached_characters: int = 0

    @property
    def framework_format(self) -> int:
        """The adapter's own layout number."""
        return self.format if self.attachments is None else self.format - WITH_REFERENCES

    def stored_json(self) -> str:
        """Return the head as it is stored: most sessions have no attachments."""
        return self.model_dump_json(exclude=_OF_ATTACHMENTS if self.attachments is None else None)

    @classmethod
    def of(
        cls, state: FrameworkState, split: Split, attachments: tuple[str, ...] | None, characters: int = 0
    ) -> "StateHead":
        """Return the head of a state that was split."""
        return cls(
            framework=state.framework,
            framework_version=state.framework_version,
            format=state.format if attachments is None else state.format + WITH_REFERENCES,
            next_part=split.next_part,
            root=split.root,
            attachments=attachments,
            attached_characters=characters,
        )


@dataclass(frozen=True)
class EarlierState:
    """A state of earlier.

    Attributes:
        state: With references in place of contents, when there are `attachments`.
        attachments: The keys of those to which it refers; None in a session without attachments.
    """

    state: FrameworkState
    attachments: tuple[str, ...] | None


class StateStore:
    """The state as one Step sees it; needs the whole `FrameworkRunState` map loaded, and `take` before `load`.

    Attributes:
        replaced_bytes: Of what this Step has replaced or deleted, about as it was stored.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        self.replaced_bytes = 0
        self._head = self._read_head(HEAD_KEY)
        self._turn_start = self._read_head(TURN_START_KEY)
        self._packs = {
            key: read_pack(RUN_STATE.get(context, key))
            for key in RUN_STATE.get_all_instance_keys(context)
            if key not in (HEAD_KEY, TURN_START_KEY)
        }
        parts: dict[int, Part] = {}
        for pack in self._packs.values():
            parts.update(pack.parts)
        self._parts = StateParts(parts)
        self._attached = NOTHING_ATTACHED

    @property
    def attached(self) -> AttachedTexts:
        """The contents that this Step has taken."""
        return self._attached

    @property
    def attachments(self) -> tuple[Attachment, ...]:
        """What `take` needs before this state, or the one with which the turn began, can be loaded."""
        heads = (head for head in (self._head, self._turn_start) if head is not None)
        keys = {key for head in heads for key in head.attachments or ()}
        return kept_attachments(self._context, keys) if keys else ()

    @property
    def attached_characters(self) -> int:
        """Of the contents in the state as base64, each as often as it stands there."""
        return 0 if self._head is None else self._head.attached_characters

    def take(self, attached: AttachedTexts) -> None:
        """Take the contents of attachments: of these, and of what else the next state may have."""
        self._attached = attached

    def anew(self) -> "StateStore":
        """Return the state as it was before this Step."""
        store = StateStore(self._context)
        store.take(self._attached)
        return store

    def load(self, *, shares: bool = False) -> FrameworkState | None:
        """Return the state; None before the first one was saved.

        Args:
            shares: It may have objects that other Steps get too (`KeptObject`); otherwise it is a copy.
        """
        return self._state_of(self._head, shares=shares)

    def load_turn_start(self) -> FrameworkState | None:
        """Return the state as it was when the turn began."""
        return self._state_of(self._turn_start)

    def add_parts(self, parts: Mapping[int, Part]) -> None:
        """Take parts that only earlier states need."""
        self._parts.add(parts)

    def load_at(self, head: str | None) -> EarlierState | None:
        """Return a state of earlier by its stored head; it needs no contents.

        Raises:
            PartsMissingError: Some of its parts are not kept any more.
        """
        if not self.has_all_parts(head):
            raise PartsMissingError
        if head is None:
            return None
        found = StateHead.model_validate_json(head)
        if found.attachments is None:
            return EarlierState(_state_with(found, self._value_of(found, shares=False)), None)
        return EarlierState(_state_with(found, self._parts.join(found.root)), found.attachments)

    def has_all_parts(self, head: str | None) -> bool:
        """Whether a state of earlier can still be read."""
        if head is None:
            return True
        try:
            self._parts.reach(StateHead.model_validate_json(head).root)
        except KeyError:
            return False
        return True

    def save(self, state: FrameworkState, *, begins_turn: bool = False, ends_turn: bool = False) -> None:
        """Stage a new state: its new parts and its head.

        Args:
            state: The state.
            begins_turn: It is the turn's first; the state before it is what an undone turn goes back to.
            ends_turn: `end_turn` follows in the same Step, so that nobody can go back any more.

        Raises:
            TurnFailedError: The session would hold more than one Step can load; the state stays as it was then.
        """
        # After an undone turn the head is older than the newest pack.
        newest = max((pack.newest for pack in self._packs.values()), default=0)
        key_before = self._key_of(self._head) if self._head else None
        before = STATES.get(key_before) if key_before else None
        next_part = max(newest + 1, self._head.next_part if self._head else 1)
        has_attachments = bool(self._attached.attachments) or (self._head and self._head.attachments is not None)
        attached = self._attached if has_attachments else None
        is_alike = before is not None and (before.attached_characters is None) is (attached is None)
        written_before = before.written if before is not None and is_alike else None
        split = self._parts.split(state.value, next_part, written_before, self._number_of, attached)
        # Only those that the new state still has: what a compaction dropped need not be read any more.
        used = None if attached is None else self._parts.attached(split.root)
        characters = 0 if attached is None else attached.characters(used or {})
        check_attached(characters)
        head = StateHead.of(state, split, None if used is None else tuple(sorted(used)), characters)
        head_text = head.stored_json()
        new_bytes = sum(split.sizes.values()) + 2 * len(head_text.encode())
        if self._may_be_too_large(new_bytes):
            self._collect(head, self._head, self._turn_start)
            if self._may_be_too_large(new_bytes):
                self._check_size(new_bytes, split.new_parts)
        for pack in pack_up(split.new_parts):
            self._write(pack)
        if begins_turn and self._turn_start is None and self._head is not None:
            self._turn_start = self._head
            if not ends_turn:
                RUN_STATE.set(self._context, TURN_START_KEY, self._head.stored_json())
        self._head = head
        RUN_STATE.set(self._context, HEAD_KEY, head_text)
        if key_before:
            STATES.forget(key_before)  # only an undone turn asks for it again
        counted = None if attached is None else characters
        self._remember(KnownState(split.value, split.written, split.characters, counted))

    def _number_of(self, text: str) -> int | None:
        found = (pack.numbers.get(text) for pack in self._packs.values())
        return next((number for number in found if number is not None), None)

    def _may_be_too_large(self, new_bytes: int) -> bool:
        """Whether a state is beyond its limits if what is new cannot be compressed."""
        plain = self.size() + new_bytes
        return self.stored_size() + new_bytes > MAX_STATE_BYTES or plain > MAX_PLAIN_STATE_BYTES

    def _check_size(self, new_bytes: int, new_parts: Mapping[int, Part]) -> None:
        """Measure a large state as it would be stored, which is too slow to be done every time."""
        size = self.stored_size() + sum(pack.stored_size for pack in pack_up(new_parts))
        plain = self.size() + new_bytes
        for found, most, what in ((size, MAX_STATE_BYTES, "a Step can load"), (plain, MAX_PLAIN_STATE_BYTES, "fit")):
            if found > most:
                raise TurnFailedError(
                    f"the session's model history would have {found} bytes, more than the {most} that {what}: go on in "
                    "a new session, keep tool results small, or turn on `compaction`"
                )

    def restore_turn_start(self) -> None:
        """Go back to the state with which the turn began."""
        self._head = self._turn_start
        restore_turn_start(self._context)

    def end_turn(self) -> dict[int, Part]:
        """Forget the turn's start and everything that the state no longer reaches.

        Returns:
            What of the forgotten is older than the turn, by number: the ends of earlier turns may need it.
        """
        turn_start, self._turn_start = self._turn_start, None
        RUN_STATE.delete(self._context, TURN_START_KEY)
        key = self._key_of(self._head) if self._head else None
        forgotten = self._collect(self._head)
        self._merge()
        known = STATES.get(key) if key else None
        if key and known:
            STATES.forget(key)
            self._remember(known)
        if not forgotten or turn_start is None:
            return {}
        # Not only what the start reached: a part can outlive its use by some turns, in a pack that others still need.
        return {number: part for number, part in forgotten.items() if number < turn_start.next_part}

    def _collect(self, *roots: StateHead | None) -> dict[int, Part]:
        """Delete the packs that no root reaches, and shrink those that are mostly dead; return what was in them."""
        forgotten: dict[int, Part] = {}
        reached = set[int]().union(*(self._parts.reach(root.root) for root in roots if root is not None))
        for key, pack in list(self._packs.items()):
            if reached.issuperset(pack.parts):
                continue
            live = Pack.of({number: part for number, part in pack.parts.items() if number in reached})
            if not live.parts:
                self._delete(key)
            elif 2 * live.size < pack.size:
                self._write(live, key)
            else:
                continue
            forgotten.update((number, part) for number, part in pack.parts.items() if number not in live.parts)
        return forgotten

    def _merge(self) -> None:
        """Make few packs of many small ones: each one costs every later Step a load."""
        for keys in merged(self._packs):
            together = {number: part for key in keys for number, part in self._packs[key].parts.items()}
            for key in keys:
                self._delete(key)
            for pack in pack_up(together):
                self._write(pack)

    def _write(self, pack: Pack, key: str | None = None) -> None:
        key = key or f"pack-{next(iter(pack.parts))}"
        if key in self._packs:
            self.replaced_bytes += self._packs[key].stored_size
        self._packs[key] = pack
        keep_pack(pack)
        RUN_STATE.set(self._context, key, pack.text)

    def _delete(self, key: str) -> None:
        self.replaced_bytes += self._packs.pop(key).stored_size
        RUN_STATE.delete(self._context, key)

    def _key_of(self, head: StateHead) -> StateKey:
        return dump(head.root), head.attachments is not None, frozenset(pack.text for pack in self._packs.values())

    def _remember(self, known: KnownState) -> None:
        if self._head is not None:
            STATES.put(self._key_of(self._head), known, known.size)

    def size(self) -> int:
        """Return how many bytes the parts have as text."""
        return sum(pack.size for pack in self._packs.values())

    def stored_size(self) -> int:
        """Return about how many bytes the parts have as they are stored."""
        return sum(pack.stored_size for pack in self._packs.values())

    def _read_head(self, key: str) -> StateHead | None:
        text = find_instance(self._context, RUN_STATE, key)
        return None if text is None else StateHead.model_validate_json(text)

    def _state_of(self, head: StateHead | None, *, shares: bool = False) -> FrameworkState | None:
        return None if head is None else _state_with(head, self._value_of(head, shares=shares))

    def _value_of(self, head: StateHead, *, shares: bool) -> JsonValue:
        known = STATES.get(self._key_of(head))
        if known is not None:
            return known.shared() if shares else from_json(known.text)
        value = self._parts.join(head.root, None if head.attachments is None else self._attached)
        return with_kept_items(value) if shares else value


def check_attached(characters: int) -> None:
    """Refuse a history whose contents of attachments no Worker's memory should have to hold.

    Args:
        characters: Of these contents as base64, each as often as it stands there.

    Raises:
        TurnFailedError: They are too many.
    """
    if characters > MAX_ATTACHED_CHARACTERS:
        raise TurnFailedError(
            f"the session's model history would have {characters:,} bytes of images and documents, each counted as "
            f"often as it stands there, and at most {MAX_ATTACHED_CHARACTERS:,} are possible: fork an earlier turn, "
            "begin a new session, or turn on `compaction` where it is off"
        )


def _state_with(head: StateHead, value: JsonValue) -> FrameworkState:
    # Not validated: the value was JSON a moment ago, and walking all of a long history costs more than reading it.
    return FrameworkState.model_construct(
        framework=head.framework, framework_version=head.framework_version, format=head.framework_format, value=value
    )


def kept_attachments(context: Context, keys: Collection[str]) -> tuple[Attachment, ...]:
    """Return the session's attachments of these keys."""
    index = find(context, ATTACHMENT_INDEX) or AttachmentIndex()
    return tuple(entry.attachment for entry in index.entries if entry.attachment.key in keys)


def first_save(earlier: EarlierState) -> tuple[list[dict[int, JsonValue]], str]:
    """Split the first state of a session: the packs and the head that `write_pack` and `write_head` take.

    Equal states are split equally.
    """
    split = StateParts({}).split(earlier.state.value, 1)
    packs = [{number: part.value for number, part in pack.parts.items()} for pack in pack_up(split.new_parts)]
    return packs, StateHead.of(earlier.state, split, earlier.attachments).stored_json()


def write_pack(context: Context, parts: Mapping[int, JsonValue]) -> None:
    """Stage a pack of parts that no head needs yet."""
    pack = Pack.of({number: Part.of(part) for number, part in parts.items()})
    RUN_STATE.set(context, f"pack-{next(iter(parts))}", pack.text)


def write_head(context: Context, head: str) -> None:
    """Stage the head of a state whose packs are written."""
    RUN_STATE.set(context, HEAD_KEY, head)


def has_state(context: Context) -> bool:
    """Whether a state was saved; needs the `head` instance loaded."""
    return find_instance(context, RUN_STATE, HEAD_KEY) is not None


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
