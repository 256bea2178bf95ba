"""`ClaudeAgentRunner`: a Claude Agent SDK agent behind the contract between a session and a framework."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

from claude_agent_sdk import ClaudeAgentOptions
from pydantic import JsonValue

from dex_agents.checks import check, check_mappings, check_policies, is_number
from dex_agents.errors import ToolDidNotHappen, TurnFailedError
from dex_agents.runner import (
    BatchSettled,
    CallToolRequest,
    CannotCompactNow,
    Closed,
    CloseTurnRequest,
    CompactOutcome,
    CompactRequest,
    Description,
    ModelStep,
    NewTurn,
    RunModelRequest,
    StepContext,
)
from dex_agents.tools import (
    TOOL_CALL_NOT_RUN_ERROR_PREFIX,
    Answer,
    Returned,
    SettledCall,
    ToolOutcome,
    ToolPolicies,
)
from dex_agents_claude_agent_sdk._alone import NotReachedError, run_alone
from dex_agents_claude_agent_sdk._compaction import to_compacted
from dex_agents_claude_agent_sdk._content import (
    ApiBlock,
    as_text,
    error_block,
    settled_block,
    to_steering_blocks,
    to_user_blocks,
)
from dex_agents_claude_agent_sdk._gate import Gate
from dex_agents_claude_agent_sdk._known_tools import known_tools, warn_of_missing_tools
from dex_agents_claude_agent_sdk._model_step import (
    begin_turn,
    check_ending,
    check_injected,
    next_state,
    open_batch,
    to_log,
    to_outcome,
    to_usage,
)
from dex_agents_claude_agent_sdk._names import ToolBook, own_servers
from dex_agents_claude_agent_sdk._options import (
    DEFAULT_ENVIRONMENT,
    check_options,
    effort_of,
    kept_names,
    segment_options,
    with_instructions,
)
from dex_agents_claude_agent_sdk._private import DISTRIBUTION, bundled_cli_version, find_cli, installed_version
from dex_agents_claude_agent_sdk._processes import make_place, sweep
from dex_agents_claude_agent_sdk._questions import lost_answer, to_answer_block
from dex_agents_claude_agent_sdk._segment import SEGMENT_SECONDS, Segment, run_segment
from dex_agents_claude_agent_sdk._servers import call_own_tool
from dex_agents_claude_agent_sdk._state import (
    READ_FORMATS,
    OpenBatch,
    SessionState,
    read_state,
    warn_of_older_cli,
    write_state,
)
from dex_agents_claude_agent_sdk._store import TranscriptStore

_COMPACT: Final = "/compact"


@dataclass(frozen=True)
class _Given:
    """What a segment is sent.

    Attributes:
        content: Text, or blocks.
        answered: Ids of the calls whose results are among the blocks, in order.
        steered: How many steering messages are among them.
    """

    content: str | list[ApiBlock]
    answered: tuple[str, ...] = ()
    steered: int = 0


class ClaudeAgentRunner:
    """Runs a Claude Agent SDK agent one Step at a time: one segment of the CLI, or one tool call."""

    def __init__(
        self,
        options: ClaudeAgentOptions,
        *,
        tools: ToolPolicies | None = None,
        models: Mapping[str, str] | None = None,
        inline_reads: bool = True,
        environment: Sequence[str] = DEFAULT_ENVIRONMENT,
        segment_seconds: float = SEGMENT_SECONDS,
    ) -> None:
        """Take an agent as it is.

        Args:
            options: The agent. They are not changed, and may be used for plain runs as well.
            tools: What calls of a tool do, by the name that the model sees (`mcp__shop__refund`, `Bash`); for tools of
                the application's own servers the tool's name alone (`refund`) will do. An own tool that is not listed
                is unclassified. A tool of the CLI or of an external server that is not listed runs only where a rule of
                the agent's own allows it.
            models: Models that a session's `model` setting may name; when none are given, it is a model's name.
            inline_reads: Run reads of the application's own inside the segment, as a plain run does. Without it each is
                a Step of its own.
            environment: Variables of the Worker's environment that the CLI gets, beside `options.env`.
            segment_seconds: How long one segment may last, at most 14 minutes.

        Raises:
            ConfigurationError: The options name a conversation, or something else that sessions decide; a policy says
                that a tool of the CLI writes which cannot run in a Step of its own; or an argument is of no use.
        """
        check_options(options, environment)
        check_mappings(models=models)
        fits = is_number(segment_seconds) and segment_seconds > 0
        check("segment_seconds", segment_seconds, fits, f"give seconds, more than 0 and at most {SEGMENT_SECONDS:.0f}")
        self._options = options
        self._models = models or {}
        self._environment = tuple(environment)
        self._seconds = min(segment_seconds, SEGMENT_SECONDS)
        self._book = ToolBook(options, check_policies(tools), inline_reads=inline_reads)
        self._book.check_places(options.tools if isinstance(options.tools, list) else ())

    def describe(self) -> Description:
        """Describe the framework, and the tools that are known before any run."""
        return Description(
            framework=DISTRIBUTION,
            framework_version=installed_version(),
            reads_formats=READ_FORMATS,
            supports_steering=True,
            supports_compaction=True,
            tools=known_tools(self._options, self._book),
            policy_names=self._book.checked_names,
        )

    async def run_model(self, request: RunModelRequest) -> ModelStep:
        """Run one segment: model calls and reads, up to the next calls that the session settles.

        Raises:
            TurnFailedError: A limit, a request that the provider refuses, or a CLI that did not take results.
            StateNotReadableError: The state was written by another version.
        """
        state = read_state(request.state)
        if state is not None and isinstance(request.input, NewTurn):
            state = begin_turn(state)
        given = _to_given(request, state)
        segment = await self._run(request.step, state, given, self._turns_left(state), self._dollars_left(state))
        if state is not None and state.batch is not None and given.answered:
            check_injected(segment, state.batch.resume_at, given.answered)
        batch = open_batch(segment)
        if batch is None:
            check_ending(segment)
        said = segment.last_message()
        return ModelStep(
            outcome=to_outcome(segment, batch, self._book),
            state=write_state(next_state(state, segment, batch)),
            messages=to_log(segment, batch),
            usage=to_usage(segment),
            context_tokens=segment.context_tokens,
            steering_taken=given.steered,
            model=said[-1].model if said else "",
        )

    def _turns_left(self, state: SessionState | None) -> int | None:
        """Return how many model calls the turn has left: the CLI counts from its start, and a turn has several."""
        most = self._options.max_turns
        if most is None or state is None:
            return most
        left = most - state.turn.requests
        if left <= 0:
            raise TurnFailedError(f"max_turns: the turn has made the {most} model calls that it may make")
        return left

    def _dollars_left(self, state: SessionState | None) -> float | None:
        """Return what the turn may still cost: the CLI counts from its start, and a turn has several."""
        most = self._options.max_budget_usd
        if most is None or state is None:
            return most
        left = most - state.turn.cost_usd
        if left <= 0:
            raise TurnFailedError(f"max_budget_usd: the turn has cost {state.turn.cost_usd:.4f} of {most} US dollars")
        return left

    async def _run(
        self,
        step: StepContext,
        state: SessionState | None,
        given: _Given,
        max_turns: int | None,
        max_budget_usd: float | None,
        *,
        verbatim: bool = True,
    ) -> Segment:
        await asyncio.to_thread(sweep)
        place = await asyncio.to_thread(make_place)
        try:
            place.write_launcher(find_cli(self._options.cli_path), kept_names(self._options, self._environment, place))
            segment = Segment(gate=Gate(self._book), store=TranscriptStore({} if state is None else state.rows()))
            options = segment_options(
                self._options, place=place, gate=segment.gate, store=segment.store, book=self._book
            )
            options.system_prompt = with_instructions(options.system_prompt, step.instructions)
            options.model = step.model_setting(self._models) or options.model
            options.effort = effort_of(step) or options.effort
            options.max_turns, options.max_budget_usd = max_turns, max_budget_usd
            options.verbatim_prompts = verbatim
            if state is not None:
                if self._options.cli_path is None:
                    warn_of_older_cli(state, bundled_cli_version())
                options.resume = state.session_id
                options.resume_session_at = state.batch.resume_at if state.batch is not None else None
            await run_segment(options, given.content, segment, place=place, events=step.events, seconds=self._seconds)
        finally:
            place.remove()
        warn_of_missing_tools(self._options, segment.tools, segment.cli_version)
        return segment

    async def call_tool(self, request: CallToolRequest) -> ToolOutcome:
        """Run one call: of a tool of the application's own here, of another in a CLI that runs nothing else.

        Raises:
            ToolDidNotHappen: The call was not even begun.
            Exception: What the tool raised.
        """
        call = request.call
        arguments = cast("dict[str, Any]", call.arguments if request.arguments is None else request.arguments)
        own = self._book.own_tool(call.name)
        if own is not None:
            called = await call_own_tool(own_servers(self._options)[own[0]], own[1], arguments, call.call_id)
            return Returned(record={"content": called.content}, text=called.text, is_error=called.is_error)
        state = read_state(request.state)
        if state is None:
            raise RuntimeError("the state has no open calls: a tool call was run outside a turn")
        try:
            result = await run_alone(
                self._options,
                self._book,
                state,
                call_id=call.call_id,
                name=call.name,
                arguments=arguments,
                environment=self._environment,
            )
        except NotReachedError as error:
            raise ToolDidNotHappen(f"{TOOL_CALL_NOT_RUN_ERROR_PREFIX}: {error}") from error
        content = result.get("content")
        return Returned(record={"content": content}, text=as_text(content), is_error=bool(result.get("is_error")))

    async def close_turn(self, request: CloseTurnRequest) -> Closed:
        """Keep the results and answers of the open batch; the next message brings them."""
        state = read_state(request.state)
        if state is not None and state.batch is not None:
            # Of a question that is neither open nor answered nothing is known: the turn failed where a Worker of an
            # earlier release had it, or its budget was used up before anybody was asked.
            known = {question.id for question in request.questions} | {each.question_id for each in request.answers}
            lost = [lost_answer(call.call_id) for call in state.batch.calls if call.call_id not in known]
            blocks = _batch_blocks(state.batch, request.calls, [*request.answers, *lost])
            state.answers = cast("list[JsonValue]", blocks)
        return Closed(state=None if state is None else write_state(state), answers_kept=True)

    async def compact(self, request: CompactRequest) -> CompactOutcome:
        """Let the CLI fold the conversation into a summary, with its own command for that.

        Raises:
            SegmentError: The CLI came to no result.
        """
        state = read_state(request.state)
        if state is None:
            return CannotCompactNow(reason="the conversation is empty")
        if request.batch is not None or (state.batch is not None and not state.batch.is_settled):
            return CannotCompactNow(reason="calls are open; the CLI itself compacts a long turn")
        # A command is no verbatim prompt; nothing of the user's is in it.
        state = state.at_rest()
        segment = await self._run(request.step, state, _Given(_COMPACT), None, None, verbatim=False)
        return to_compacted(state, segment, request.first_step_of(0))


def _to_given(request: RunModelRequest, state: SessionState | None) -> _Given:
    """Return what the segment is sent.

    Raises:
        TurnFailedError: A part of the message is nothing that a user can send here.
    """
    steering = to_steering_blocks(request.steering)
    if isinstance(request.input, NewTurn):
        blocks = to_user_blocks(request.input.content, request.input.note) + steering
        if state is not None and state.batch is not None:
            answers = cast("list[ApiBlock]", state.answers or _batch_blocks(state.batch, (), ()))
            return _Given([*answers, *blocks], state.batch.unanswered, len(request.steering))
        if len(blocks) == 1 and blocks[0]["type"] == "text":
            # The form in which a plain run sends text.
            return _Given(blocks[0]["text"], steered=len(request.steering))
        return _Given(blocks, steered=len(request.steering))
    if state is None or state.batch is None:
        raise RuntimeError("the state has no open calls: a Step of a turn was run outside one")
    settled = request.input if isinstance(request.input, BatchSettled) else BatchSettled()
    blocks = _batch_blocks(state.batch, settled.calls, settled.answers)
    return _Given([*blocks, *steering], state.batch.unanswered, len(request.steering))


def _batch_blocks(batch: OpenBatch, calls: Sequence[SettledCall], answers: Sequence[Answer]) -> list[ApiBlock]:
    """Return the results of all calls of a batch, in the model's order."""
    settled = {each.call.call_id: each for each in calls}
    answered = {each.question_id: each for each in answers}
    blocks: list[ApiBlock] = []
    for call in batch.calls:
        if call.kind == "kept":
            continue
        if call.kind == "inline":
            blocks.append(cast("ApiBlock", call.result))
        elif call.kind == "question":
            blocks.append(to_answer_block(call, answered.get(call.call_id)))
        elif call.call_id in settled:
            blocks.append(settled_block(settled[call.call_id]))
        else:
            blocks.append(error_block(call.call_id, "not run: the turn ended early"))
    return blocks
