"""What a Step gives back to the session: the answer, the log's messages, usage."""

from typing import Any

from pydantic import JsonValue
from pydantic_ai import AgentRun
from pydantic_ai.messages import ModelRequest
from pydantic_ai.usage import RunUsage
from pydantic_core import PydanticSerializationError, to_json, to_jsonable_python
from pydantic_graph import End

from dex_agents.errors import TurnFailedError
from dex_agents.messages import Message, TextBlock
from dex_agents.runner import Finished, ModelOutcome, Usage
from dex_agents_pydantic_ai._content import from_response, to_result_block
from dex_agents_pydantic_ai._model_step import ModelStepRun, OpenBatch


def to_finished(run: AgentRun[Any, Any]) -> Finished:
    """Return a finished run's output: text as it is, anything else as JSON and as its text.

    Raises:
        TurnFailedError: The output cannot be written as JSON.
    """
    if run.result is None:
        raise RuntimeError("the run ended without a result: a capability of the agent must have removed it")
    output: Any = run.result.output
    if isinstance(output, str):
        return Finished(text=output)
    try:
        as_json: JsonValue = to_jsonable_python(output)
        return Finished(text="" if output is None else to_json(output).decode(), output=as_json)
    except PydanticSerializationError as error:
        raise TurnFailedError(
            f"the agent's output of type {type(output).__name__!r} cannot be written as JSON: {error}"
        ) from error


def to_log(
    step: ModelStepRun, end: OpenBatch | ModelRequest | End[Any] | None, outcome: ModelOutcome
) -> tuple[Message, ...]:
    """Return what the agent said and did in a Step, as people read it."""
    # The call of the output tool that ended the turn is the answer itself; people read it as text.
    answering = end.data.tool_call_id if isinstance(end, End) else None
    messages = [
        Message(role="assistant", blocks=from_response(response, without=(answering,) if answering else ()))
        for response in step.responses
    ]
    results = tuple(to_result_block(part) for part in step.inline if part.tool_call_id != answering)
    messages.append(Message(role="tool", blocks=results))
    if isinstance(outcome, Finished) and (answering is not None or not step.responses):
        messages.append(Message(role="assistant", blocks=(TextBlock(text=outcome.text),)))
    return tuple(message for message in messages if message.blocks)


def usage_between(before: RunUsage, after: RunUsage) -> Usage:
    """Return what was used between two points of a turn, in the session's terms."""
    return Usage(
        requests=after.requests - before.requests,
        input_tokens=after.input_tokens - before.input_tokens,
        output_tokens=after.output_tokens - before.output_tokens,
    )


def context_tokens(step: ModelStepRun) -> int | None:
    """Return the size of the model's context after a Step in tokens, when the provider told it."""
    if not step.responses:
        return None
    return step.responses[-1].usage.total_tokens or None
