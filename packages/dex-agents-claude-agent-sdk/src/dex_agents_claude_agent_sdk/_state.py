"""What a session stores of a Claude Code conversation: the rows of its transcript, and what is open in it."""

import logging
from dataclasses import dataclass, field, replace
from typing import Final, Literal

from pydantic import BaseModel, ConfigDict, JsonValue, ValidationError

from dex_agents.errors import StateNotReadableError
from dex_agents.releases import release_numbers
from dex_agents.runner import FrameworkState
from dex_agents_claude_agent_sdk._private import DISTRIBUTION, installed_version
from dex_agents_claude_agent_sdk._rows import Row, is_plain, pack, unpack

FORMAT: Final = 1
"""The layout of `FrameworkState.value`: `_Value`."""

FORMAT_WITH_PLAIN_ROWS: Final = 2
"""The same, with rows that are not compressed: earlier releases cannot read them, and must hand the session back."""

READ_FORMATS: Final = (FORMAT, FORMAT_WITH_PLAIN_ROWS)

_log = logging.getLogger("dex_agents_claude_agent_sdk")

MAIN: Final = ""
"""The subpath of the main transcript; subagents have others, for example `subagents/agent-a1b2`."""


class _Document(BaseModel):
    """A frozen JSON document; fields that a newer version added are ignored."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class OpenCall(_Document):
    """One call of the message whose calls are open.

    Attributes:
        call_id: The id of the `tool_use` block.
        name: The tool, as the model sees it.
        kind: `call` is settled by the session, `question` is answered by people, `inline` has its result, and the
            result of a `kept` one is among the rows.
        result: Of an inline call: the `tool_result` block that the CLI made.
        arguments: Of a question: what was asked.
    """

    call_id: str
    name: str
    kind: Literal["call", "question", "inline", "kept"]
    result: JsonValue = None
    arguments: JsonValue = None


class OpenBatch(_Document):
    """Where the next segment resumes.

    Attributes:
        resume_at: The uuid of the message's last row; the results hang below it.
        calls: All calls of the message, in the model's order.
        rejected: Chunks of the rows with which the CLI closed the message itself. They must be there when it resumes,
            and are dropped afterwards.
    """

    resume_at: str
    calls: tuple[OpenCall, ...]
    rejected: tuple[str, ...] = ()

    @property
    def is_settled(self) -> bool:
        """Whether every call has its result already."""
        return all(call.kind in ("inline", "kept") for call in self.calls)

    @property
    def unanswered(self) -> tuple[str, ...]:
        """Ids of the calls whose results the next segment is given."""
        return tuple(call.call_id for call in self.calls if call.kind != "kept")


class TurnCounters(_Document):
    """What is counted over the segments of a turn.

    Attributes:
        requests: Model calls of the main agent.
        cost_usd: What the CLI says that they cost.
    """

    requests: int = 0
    cost_usd: float = 0.0


class _Value(_Document):
    session_id: str
    cli_version: str
    rows: dict[str, tuple[str, ...]]
    batch: OpenBatch | None = None
    answers: list[JsonValue] | None = None
    turn: TurnCounters = TurnCounters()
    total_cost_usd: float = 0.0


@dataclass
class SessionState:
    """A session's conversation.

    Attributes:
        session_id: The CLI's own id of the conversation.
        cli_version: The CLI that wrote the newest rows.
        chunks: Transcript rows by subpath, as `pack` writes them.
        batch: The open calls; None between turns.
        answers: The results of a batch that was closed without a model call; the next message brings them.
        turn: Counters of the running turn.
        total_cost_usd: What the CLI says that all segments cost.
    """

    session_id: str
    cli_version: str
    chunks: dict[str, tuple[str, ...]]
    batch: OpenBatch | None = None
    answers: list[JsonValue] | None = None
    turn: TurnCounters = field(default_factory=TurnCounters)
    total_cost_usd: float = 0.0

    @property
    def has_plain_rows(self) -> bool:
        """Whether some of its rows are not compressed."""
        rejected = () if self.batch is None else self.batch.rejected
        return any(is_plain(chunk) for chunks in (*self.chunks.values(), rejected) for chunk in chunks)

    def rows(self) -> dict[str, list[Row]]:
        """Return the rows from which a CLI resumes, the rejected ones among them."""
        rows = {subpath: unpack(chunks) for subpath, chunks in self.chunks.items()}
        if self.batch is not None:
            rows[MAIN] = rows.get(MAIN, []) + unpack(self.batch.rejected)
        return rows

    def at_rest(self) -> "SessionState":
        """Return the state of a conversation whose calls all have results, with these among its rows."""
        if self.batch is None:
            return self
        rows = (*self.chunks.get(MAIN, ()), *self.batch.rejected)
        return replace(self, chunks={**self.chunks, MAIN: rows}, batch=None, answers=None)

    def with_rows(self, added: dict[str, list[Row]]) -> dict[str, tuple[str, ...]]:
        """Return the chunks with the rows that a segment added."""
        chunks = dict(self.chunks)
        for subpath, rows in added.items():
            chunks[subpath] = (*chunks.get(subpath, ()), *pack(rows))
        return chunks


def read_state(state: FrameworkState | None) -> SessionState | None:
    """Read what a session stored; None where it stored nothing yet.

    Raises:
        StateNotReadableError: Another version wrote it, in a layout that this one does not know.
    """
    if state is None:
        return None
    if state.framework != DISTRIBUTION or state.format not in READ_FORMATS:
        raise StateNotReadableError(
            f"the state was written by {state.framework} {state.framework_version} in format {state.format}; this is "
            f"{DISTRIBUTION} {installed_version()}, which reads formats {READ_FORMATS}: run the version that wrote it",
            newer_writer=state.framework == DISTRIBUTION and state.format > max(READ_FORMATS),
        )
    try:
        value = _Value.model_validate(state.value)
        found = SessionState(
            session_id=value.session_id,
            cli_version=value.cli_version,
            chunks=value.rows,
            batch=value.batch,
            answers=value.answers,
            turn=value.turn,
            total_cost_usd=value.total_cost_usd,
        )
    except ValidationError as error:
        raise StateNotReadableError(
            f"{DISTRIBUTION} {installed_version()} cannot read the state that {state.framework_version} wrote: {error}",
            newer_writer=False,
        ) from error
    return found


def write_state(state: SessionState) -> FrameworkState:
    """Write the state as a session stores it."""
    value = _Value(
        session_id=state.session_id,
        cli_version=state.cli_version,
        rows=state.chunks,
        batch=state.batch,
        answers=state.answers,
        turn=state.turn,
        total_cost_usd=state.total_cost_usd,
    )
    return FrameworkState(
        framework=DISTRIBUTION,
        framework_version=installed_version(),
        format=FORMAT_WITH_PLAIN_ROWS if state.has_plain_rows else FORMAT,
        value=value.model_dump(mode="json"),
    )


def warn_of_older_cli(state: SessionState, cli_version: str) -> None:
    """Warn when a conversation goes on with an older CLI than the one that wrote its newest rows.

    Each segment checks what it can, but no CLI promises to read what a later one wrote.

    Args:
        state: The conversation.
        cli_version: The CLI that goes on.
    """
    if release_numbers(state.cli_version) > release_numbers(cli_version):
        _log.warning(
            "a conversation that Claude Code %s wrote goes on with %s: let Workers with the newer one take it",
            state.cli_version,
            cli_version,
        )
