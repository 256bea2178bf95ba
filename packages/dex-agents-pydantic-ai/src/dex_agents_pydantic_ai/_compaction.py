"""Replaces the older part of a history by a summary, so that the rest is one that any provider accepts."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, cast

from pydantic_ai.direct import model_request
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    SystemPromptPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models import Model
from pydantic_ai.settings import ModelSettings

from dex_agents.messages import Block, MediaBlock, Message, TextBlock
from dex_agents.runner import CompactRequest, Usage
from dex_agents.summaries import (
    SummaryTask,
    block_tokens,
    estimate_scale,
    newest_to_keep,
    summary_for_model,
    summary_task,
)
from dex_agents_pydantic_ai._content import from_response, from_user_content, to_result_block
from dex_agents_pydantic_ai._state import SessionState

_NOT_FOR_A_SUMMARY: Final = frozenset(
    {"max_tokens", "stop_sequences", "tool_choice", "parallel_tool_calls", "logit_bias"}
)
"""Model settings that are meant for the agent's own answers."""


@dataclass(frozen=True, kw_only=True)
class Cut:
    """Where a history is cut.

    Attributes:
        system: System prompts, which stand in the first request only, and must not be lost.
        older: What is summarized, without the summary that it begins with.
        question: The running turn's own question, kept word for word though it stands among the older part.
        newer: What is kept.
        scale: By what estimates of its size are to be multiplied.
    """

    system: list[SystemPromptPart]
    older: list[ModelMessage]
    question: list[ModelMessage]
    newer: list[ModelMessage]
    scale: float


def find_cut(state: SessionState, request: CompactRequest) -> Cut | None:
    """Find where to cut a history; None where nothing can be summarized.

    In front of a question of the user, or in front of one of the running turn's responses: then no tool result is
    parted from its call.
    """
    messages = state.messages
    first = 1 if _begins_with_summary(state) else 0
    running = None if state.turn is None else state.turn.run_id
    cuts = [index for index, message in enumerate(messages) if index > first and _may_begin(message, running)]
    if running is None:
        cuts.append(len(messages))
    else:
        last_response = max((i for i, message in enumerate(messages) if isinstance(message, ModelResponse)), default=0)
        cuts = [index for index in cuts if index <= last_response]
    sizes = [block_tokens([block for entry in _to_log(message) for block in entry.blocks]) for message in messages]
    scale = estimate_scale(sizes, request.context_tokens)
    cut = newest_to_keep(sizes, cuts, int(request.keep_tokens / scale))
    question = [
        message
        for message in messages[first:cut]
        if running is not None and message.run_id == running and _is_question(message)
    ][:1]
    if cut is None or cut - first == len(question):
        return None
    system = [
        part
        for message in messages[:cut]
        if isinstance(message, ModelRequest)
        for part in message.parts
        if isinstance(part, SystemPromptPart)
    ]
    return Cut(system=system, older=messages[first:cut], question=question, newer=messages[cut:], scale=scale)


def task_of(cut: Cut, state: SessionState, request: CompactRequest) -> SummaryTask:
    """Return what the summary's model call is given to read."""
    older = [entry for message in cut.older for entry in _to_log(message)]
    earlier = state.summary if _begins_with_summary(state) else None
    return summary_task(older, window_tokens=request.window_tokens, earlier_summary=earlier, scale=cut.scale)


def compacted_state(state: SessionState, cut: Cut, summary: str, session_id: str) -> SessionState:
    """Return the state in which a summary stands for the older part."""
    head = ModelRequest(
        parts=[*cut.system, UserPromptPart(content=summary_for_model(summary))],
        # Of no turn: a message without a run id would be taken for one of the running turn.
        run_id=f"{session_id}/summary",
        conversation_id=session_id,
    )
    return SessionState(messages=[head, *cut.question, *cut.newer], turn=state.turn, summary=summary)


def kept_turns(cut: Cut) -> int:
    """Return how many turns have a message that is kept word for word."""
    return len({message.run_id for message in (*cut.question, *cut.newer)})


async def write_summary(model: Model, task: SummaryTask, settings: ModelSettings | None) -> tuple[str, Usage]:
    """Make the summary's model call.

    Raises:
        ValueError: The model wrote nothing.
    """
    prompt = ModelRequest(parts=[UserPromptPart(content=task.prompt)], instructions=task.instructions)
    kept = {name: value for name, value in (settings or {}).items() if name not in _NOT_FOR_A_SUMMARY}
    response = await model_request(model, [prompt], model_settings=cast("ModelSettings", kept))
    text = (response.text or "").strip()
    if not text:
        raise ValueError(f"the model wrote no summary: {response.finish_reason or 'an empty response'}")
    used = response.usage
    return text, Usage(requests=1, input_tokens=used.input_tokens, output_tokens=used.output_tokens)


def _begins_with_summary(state: SessionState) -> bool:
    if state.summary is None or not state.messages:
        return False
    first, text = state.messages[0], summary_for_model(state.summary)
    return isinstance(first, ModelRequest) and any(
        isinstance(part, UserPromptPart) and part.content == text for part in first.parts
    )


def _may_begin(message: ModelMessage, running: str | None) -> bool:
    """Whether a history may begin with a message, behind a summary."""
    if isinstance(message, ModelResponse):
        return running is not None and message.run_id == running
    return _is_question(message)


def _is_question(message: ModelMessage) -> bool:
    """Whether a message is a request that begins a turn, with nothing that answers a response."""
    return isinstance(message, ModelRequest) and all(
        isinstance(part, UserPromptPart | SystemPromptPart) for part in message.parts
    )


def _to_log(message: ModelMessage) -> Iterator[Message]:
    """Write a message of the framework as the log would."""
    if isinstance(message, ModelResponse):
        yield Message(role="assistant", blocks=from_response(message))
        return
    for part in message.parts:
        if isinstance(part, UserPromptPart):
            yield Message(role="user", blocks=_small(from_user_content(part.content)))
        elif isinstance(part, ToolReturnPart):
            yield Message(role="tool", blocks=(to_result_block(part),))
        elif not isinstance(part, SystemPromptPart):
            text = getattr(part, "content", None)
            if isinstance(text, str):  # the framework's own words, such as a request to try again
                yield Message(role="note", blocks=(TextBlock(text=text),))


def _small(blocks: Sequence[Block]) -> tuple[Block, ...]:
    return tuple(
        block.model_copy(update={"data_base64": None}) if isinstance(block, MediaBlock) else block for block in blocks
    )
