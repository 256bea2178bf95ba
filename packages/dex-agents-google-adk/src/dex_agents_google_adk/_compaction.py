"""Replaces the older events of a session by a summary, between two turns."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from google.adk.agents import LlmAgent
from google.adk.events import Event
from google.adk.models.base_llm import BaseLlm
from google.adk.models.llm_request import LlmRequest
from google.adk.models.registry import LLMRegistry
from google.genai import types

from dex_agents.messages import Message
from dex_agents.runner import CompactRequest, StepContext, Usage
from dex_agents.summaries import (
    SummaryTask,
    block_tokens,
    estimate_scale,
    newest_to_keep,
    summary_for_model,
    summary_in,
    summary_task,
)
from dex_agents_google_adk._content import from_content
from dex_agents_google_adk._graphs import walk_nodes
from dex_agents_google_adk._state import SessionState
from dex_agents_google_adk._usage import to_usage


@dataclass(frozen=True, kw_only=True)
class Cut:
    """Where a session's events are cut.

    Attributes:
        task: What the summary's model call is given.
        newer: The events that are kept; at least the newest turn, by which ADK finds the agent that goes on.
    """

    task: SummaryTask
    newer: list[Event]

    @property
    def kept_turns(self) -> int:
        """How many turns have an event that is kept."""
        return len({event.invocation_id for event in self.newer})


def find_cut(state: SessionState, request: CompactRequest) -> Cut | None:
    """Find where to cut, in front of what the user said; None where nothing can be summarized."""
    events = state.events
    earlier = summary_in(_text_of(events[0])) if events else None
    first = 0 if earlier is None else 1
    written = [_to_log(event) for event in events]
    sizes = [block_tokens(message.blocks) for message in written]
    scale = estimate_scale(sizes, request.context_tokens)
    cuts = [index for index, event in enumerate(events) if index > first and _begins_turn(event)]
    cut = newest_to_keep(sizes, cuts, int(request.keep_tokens / scale))
    if cut is None:
        return None
    task = summary_task(written[first:cut], window_tokens=request.window_tokens, earlier_summary=earlier, scale=scale)
    return Cut(task=task, newer=events[cut:])


def compacted_state(state: SessionState, cut: Cut, summary: str) -> SessionState:
    """Return the state in which a summary stands for the older events."""
    content = types.Content(role="user", parts=[types.Part(text=summary_for_model(summary))])
    head = Event(author="user", invocation_id="summary", content=content, timestamp=cut.newer[0].timestamp)
    return replace(state, events=[head, *cut.newer])


def summary_model(
    root: Any, state: SessionState, step: StepContext, models: Mapping[str, BaseLlm | str]
) -> BaseLlm | None:
    """Return the model that the session names, or that of the agent that spoke last; None where no agent has one."""
    named = step.model_setting(models)
    if named is not None:
        return LLMRegistry.new_llm(named) if isinstance(named, str) else named
    agents = {node.name: node for node in walk_nodes(root) if isinstance(node, LlmAgent)}
    spoke = [agents[event.author] for event in state.events if event.author in agents]
    candidates = [*reversed(spoke), *agents.values()]
    return candidates[0].canonical_model if candidates else None


async def write_summary(model: BaseLlm, task: SummaryTask) -> tuple[str, Usage]:
    """Make the summary's model call.

    Raises:
        RuntimeError: The model wrote nothing.
    """
    request = LlmRequest(
        model=model.model,
        contents=[types.Content(role="user", parts=[types.Part(text=task.prompt)])],
        config=types.GenerateContentConfig(system_instruction=task.instructions),
    )
    text, error = "", ""
    metadata: list[types.GenerateContentResponseUsageMetadata] = []
    async for response in model.generate_content_async(request, stream=False):
        parts = (response.content.parts if response.content else None) or []
        text += "".join(part.text or "" for part in parts if not part.thought)
        error = response.error_message or response.error_code or error
        if response.usage_metadata is not None:
            metadata.append(response.usage_metadata)
    if not text.strip():
        raise RuntimeError(f"the model wrote no summary: {error or 'an empty response'}")
    return text.strip(), to_usage(metadata, 1)


def _begins_turn(event: Event) -> bool:
    parts = (event.content.parts if event.content else None) or []
    return event.author == "user" and bool(parts) and all(part.function_response is None for part in parts)


def _text_of(event: Event) -> str:
    parts = (event.content.parts if event.content else None) or []
    return "".join(part.text or "" for part in parts)


def _to_log(event: Event) -> Message:
    blocks = () if event.content is None else from_content(event.content)
    if event.author == "user":
        return Message(role="user", blocks=blocks)
    return Message(role="assistant", author=event.author, blocks=blocks)
