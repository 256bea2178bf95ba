"""One call of a CLI tool that writes or was approved, run by a CLI of its own that no model drives.

The CLI runs its tools only when a model asks. So a server on loopback plays the model: it asks for exactly this
call, and takes the result in the form in which a model would have got it. Nothing else can run there, no request leaves
the machine, and the CLI gets no credentials.
"""

import asyncio
from dataclasses import replace
from typing import Any, Final, cast

from claude_agent_sdk import ClaudeAgentOptions
from claude_agent_sdk.types import HookEvent

from dex_agents_claude_agent_sdk._content import ApiBlock, text_block
from dex_agents_claude_agent_sdk._gate import Gate
from dex_agents_claude_agent_sdk._messages_api import MessagesServer, Reply
from dex_agents_claude_agent_sdk._names import ToolBook, own_servers
from dex_agents_claude_agent_sdk._options import kept_names, segment_options
from dex_agents_claude_agent_sdk._private import find_cli
from dex_agents_claude_agent_sdk._processes import make_place
from dex_agents_claude_agent_sdk._rows import Row, place_of, results_of
from dex_agents_claude_agent_sdk._segment import Segment, SegmentError, run_segment
from dex_agents_claude_agent_sdk._state import MAIN, SessionState
from dex_agents_claude_agent_sdk._store import TranscriptStore

ALONE_SECONDS: Final = 2 * 60 * 60.0 - 60
"""How long the call may last: a minute less than the Step that runs it."""

_CREDENTIALS: Final = ("ANTHROPIC_", "CLAUDE_CODE_USE_", "CLAUDE_CODE_OAUTH_TOKEN", "AWS_", "GOOGLE_", "VERTEX_")
"""How the names of variables begin that lead to a provider."""

_HOOKS: Final[tuple[HookEvent, ...]] = ("PostToolUse", "PostToolUseFailure")
"""Hooks of the user's that a call has behind it; those before it were asked when the model wanted it."""


class NotReachedError(Exception):
    """The CLI ended before it was asked to run the call."""


class _PlayedModel:
    """Asks for one call, once."""

    def __init__(self, call_id: str, name: str, arguments: dict[str, Any]) -> None:
        self.asked = False
        self.answered = False
        self._call: ApiBlock = {"type": "tool_use", "id": call_id, "name": name, "input": arguments}

    def __call__(self, body: dict[str, Any]) -> Reply:
        content: object = cast("list[dict[str, Any]]", body["messages"])[-1]["content"]
        for block in cast("list[ApiBlock]", content) if isinstance(content, list) else ():
            if block.get("type") == "tool_result" and block["tool_use_id"] == self._call["id"]:
                self.answered = True
                return Reply([text_block("done")])
        if self.asked:
            return Reply(status=400, error="the call was asked for already")
        self.asked = True
        return Reply([self._call])


async def run_alone(
    agent: ClaudeAgentOptions,
    book: ToolBook,
    state: SessionState,
    *,
    call_id: str,
    name: str,
    arguments: dict[str, Any],
    environment: tuple[str, ...],
) -> ApiBlock:
    """Run one call of a tool of the CLI, or of an external server.

    Args:
        agent: The user's options.
        book: Where tools run.
        state: The conversation, of which the CLI knows what it has read.
        call_id: The provider's id.
        name: The tool, as the model sees it.
        arguments: What the model wrote, or what people made of it.
        environment: Variables of the Worker's environment that the CLI gets.

    Returns:
        The `tool_result` block.

    Raises:
        NotReachedError: The call was not even begun.
        SegmentError: It was begun, and nobody knows how it ended.
    """
    model = _PlayedModel(call_id, name, arguments)
    rows, resume_at = _rows_before(state)
    gate = Gate(book, only=(name, call_id))
    segment = Segment(gate=gate, store=TranscriptStore(rows))
    server = MessagesServer(model)
    await asyncio.to_thread(server.start)
    place = await asyncio.to_thread(make_place)
    try:
        kept = {each for each in kept_names(agent, environment, place) if not each.startswith(_CREDENTIALS)}
        place.write_launcher(find_cli(agent.cli_path), {*kept, *server.environment})
        options = segment_options(
            _without_model(agent, server.environment), place=place, gate=gate, store=segment.store, book=book
        )
        if resume_at is not None:
            options.resume, options.resume_session_at = state.session_id, resume_at
        await run_segment(options, "go", segment, place=place, events=_Silent(), seconds=ALONE_SECONDS)
    except SegmentError as error:
        if not model.asked:
            raise NotReachedError(str(error)) from error
        if not model.answered:
            raise
    finally:
        place.remove()
        await asyncio.to_thread(server.stop)
    # The transcript's form: a CLI adds reminders to what it sends.
    for row in segment.added:
        if call_id in results_of(row):
            return results_of(row)[call_id]
    if not model.asked:
        raise NotReachedError("the CLI ended without asking its model")
    raise SegmentError(f"the call of {name} was begun, and has no result")


def _without_model(agent: ClaudeAgentOptions, environment: dict[str, str]) -> ClaudeAgentOptions:
    """Return the options with the played model, without credentials and without what belongs to a conversation."""
    quiet = {key: value for key, value in agent.env.items() if not key.startswith(_CREDENTIALS)}
    own = own_servers(agent)
    servers: Any = agent.mcp_servers
    if isinstance(agent.mcp_servers, dict):
        servers = {name: one for name, one in agent.mcp_servers.items() if name not in own}
    return replace(
        agent,
        env={**quiet, **environment},
        hooks={event: matchers for event, matchers in (agent.hooks or {}).items() if event in _HOOKS},
        can_use_tool=None,
        mcp_servers=servers,
        output_format=None,
        max_budget_usd=None,
        max_turns=None,
        fallback_model=None,
    )


def _rows_before(state: SessionState) -> tuple[dict[str, list[Row]], str | None]:
    """Return the rows before the message whose calls are open, and the last of them."""
    rows = state.rows()
    main = rows.get(MAIN, [])
    if state.batch is None:
        return {}, None
    last = place_of(main, state.batch.resume_at)
    message_id = main[last]["message"]["id"]
    before = [
        row
        for row in main[: last + 1]
        if row.get("uuid") and not (row.get("type") == "assistant" and row["message"].get("id") == message_id)
    ]
    spoken = [row for row in before if row.get("type") in ("user", "assistant")]
    if not spoken:
        return {}, None
    return {**rows, MAIN: main[: place_of(main, spoken[-1]["uuid"]) + 1]}, str(spoken[-1]["uuid"])


class _Silent:
    """No feed: what the played model says is nothing for people."""

    def text(self, delta: str, *, owner: str = "") -> None:
        pass

    def reasoning(self, delta: str, *, owner: str = "") -> None:
        pass

    def progress(self, call_id: str, data: Any, *, owner: str = "") -> None:
        pass
