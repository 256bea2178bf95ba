"""What a Step gives back to the session: the answer, the log's messages, usage."""

import json
from collections.abc import Collection, Sequence
from typing import Final, cast

from google.adk.agents.base_agent import BaseAgent
from google.adk.agents.llm_agent import LlmAgent
from google.adk.events.event import Event
from google.adk.workflow import BaseNode
from google.genai import types
from pydantic import JsonValue
from pydantic_core import to_jsonable_python

from dex_agents.errors import TurnFailedError
from dex_agents.messages import CallBlock, Message, ResultBlock
from dex_agents.runner import Finished
from dex_agents_google_adk._content import from_content, response_as_json, result_text

_ANSWERING_TOOL: Final = "set_model_response"
"""With its call the model gives a typed answer; people read the answer."""


def owner_of(event: Event, root: BaseNode) -> str:
    """Name who asked: the branch, or the agent where it is not the root."""
    if event.branch:
        return event.branch
    return "" if event.author == root.name else event.author


def to_finished(events: Sequence[Event], root: BaseNode) -> Finished:
    """Return the answer of an invocation: the last final response that says something.

    Args:
        events: The invocation's events.
        root: The root agent.

    Raises:
        TurnFailedError: The model ended the turn with an error.
    """
    said = [event for event in events if event.author != "user"]
    for event in reversed(said):
        if event.error_code and event.is_final_response() and not _text_of(event):
            raise TurnFailedError(f"the model gave no answer: {event.error_code}: {event.error_message or ''}")
        if event.is_final_response() and (text := _text_of(event)):
            return Finished(text=text, output=_typed(event, text, root))
    for event in reversed(said):
        if event.output is not None:
            output = cast("JsonValue", to_jsonable_python(event.output, serialize_unknown=True))
            return Finished(text=output if isinstance(output, str) else json.dumps(output), output=output)
        if responses := event.get_function_responses():
            # A tool whose result is not summarized has the last word.
            return Finished(text=result_text(response_as_json(responses[-1].response)))
    return Finished(text="")


def _text_of(event: Event) -> str:
    parts = event.content.parts if event.content is not None else None
    return "".join(part.text for part in parts or [] if part.text and not part.thought)


def _typed(event: Event, text: str, root: BaseNode) -> JsonValue:
    """Return the answer as JSON when its agent promises a type."""
    author = root.find_agent(event.author) if isinstance(root, BaseAgent) else None
    if not isinstance(author, LlmAgent) or author.output_schema is None:
        return None
    try:
        return cast("JsonValue", json.loads(text))
    except ValueError as error:
        raise TurnFailedError(f"the answer of agent {author.name!r} is no JSON: {text[:200]!r}") from error


def to_log(events: Sequence[Event], root: BaseNode, *, settled: Collection[str], agents: int) -> tuple[Message, ...]:
    """Return what the agents said and did in a Step, as people read it.

    Args:
        events: The Step's new events.
        root: The root agent.
        settled: Ids of calls whose results the session writes itself.
        agents: How many agents there are; one needs no name.
    """
    messages: list[Message] = []
    for event in events:
        if event.author == "user" or event.content is None:
            continue
        blocks = tuple(
            block
            for block in from_content(event.content, owner=owner_of(event, root))
            if not (isinstance(block, CallBlock | ResultBlock) and block.name == _ANSWERING_TOOL)
            and not (isinstance(block, ResultBlock) and block.call_id in settled)
        )
        role = "tool" if all(isinstance(block, ResultBlock) for block in blocks) else "assistant"
        if blocks:
            messages.append(Message(role=role, author=event.author if agents > 1 else "", blocks=blocks))
    return tuple(messages)


def context_tokens(metadata: Sequence[types.GenerateContentResponseUsageMetadata]) -> int | None:
    """Return the size of the model's context after a Step in tokens, when the provider told it."""
    return (metadata[-1].total_token_count or None) if metadata else None
