"""One tool call alone, run by the SDK from the interrupted run."""

import json
from typing import Any, cast

from agents import (
    Runner,
    RunResultStreaming,
    RunState,
    ToolInputGuardrailTripwireTriggered,
    ToolOutputGuardrailTripwireTriggered,
)
from agents.items import ToolApprovalItem, ToolCallOutputItem
from pydantic import BaseModel, JsonValue

from dex_agents.errors import ToolDidNotHappen
from dex_agents.runner import CallToolRequest
from dex_agents.tools import Asks, Question, Returned, ToolOutcome
from dex_agents_openai_agents._content import as_text, call_arguments, raw_field
from dex_agents_openai_agents._events import drain
from dex_agents_openai_agents._graph import AgentCopies
from dex_agents_openai_agents._hooks import HookGate, StepHooks
from dex_agents_openai_agents._live import LiveTools
from dex_agents_openai_agents._private import dump_usage, subtract_usage
from dex_agents_openai_agents._run_json import dump_run, pack_run, unpack_run
from dex_agents_openai_agents._runs import AgentRuns, only_tools
from dex_agents_openai_agents._state import SessionState, ToolRecord


async def run_one_call(
    runs: AgentRuns[Any], state: SessionState, request: CallToolRequest, tools: LiveTools
) -> ToolOutcome:
    """Run one call of the open response; the others keep waiting, and no model is asked.

    Args:
        runs: The agent.
        state: The session's state, with the open run.
        request: The session's request.
        tools: The tools of this Step, which keep what came of the call.
    """
    before = cast("JsonValue", state.open_run["context"]["usage"])
    resume = cast("dict[str, JsonValue] | None", request.resume)
    run = state.open_run if resume is None else unpack_run(resume)
    gate = HookGate(model=False, tools=True, before_tool=tools.begin)
    copies = AgentCopies(runs.agent, adapt_tool=tools.adapt, gate=gate, stops_after_tools=True)
    async with runs.open_context(request.step) as context:
        start = copies.find(state.start)
        restored: RunState[Any, Any] = await RunState.from_json(start, run)
        outer = {question_id(item) for item in restored.get_interruptions()}
        outer -= _answer(restored, request)
        result = Runner.run_streamed(
            start,
            restored,
            context=context,
            hooks=StepHooks(runs.hooks, gate),
            run_config=only_tools(runs.config_for(request.step)),
        )
        result.cancel(mode="after_turn")
        try:
            await drain(result, None)
        except (ToolInputGuardrailTripwireTriggered, ToolOutputGuardrailTripwireTriggered) as tripped:
            # What it kept from the model stays kept; the next RunModel Step ends the turn, as it ends a plain run.
            record = ToolRecord(output=str(tripped), halt=str(tripped))
            return Returned(record=record.model_dump(mode="json"), text=str(tripped), is_error=True)
        except Exception as error:
            if isinstance(error.__cause__, ToolDidNotHappen):
                raise error.__cause__ from error
            raise
    if tools.is_error:
        # It may have been an MCP server, which a list of tools that is kept would not show.
        runs.servers.doubt()
    if tools.error is not None:
        raise tools.error
    item = _find_output(result, tools.call_id)
    if item is not None:
        return _to_returned(item, tools, subtract_usage(dump_usage(result.context_wrapper.usage), before))
    nested = [one for one in result.interruptions if question_id(one) not in outer]
    if not nested:
        raise RuntimeError(f"the call {tools.call_id!r} left neither a result nor a question")
    return Asks(questions=tuple(_to_question(one) for one in nested), resume=pack_run(dump_run(result.to_state())))


def _answer(state: RunState[Any, Any], request: CallToolRequest) -> set[str]:
    """Approve the call, and settle what its inner agents asked; returns the ids of what was answered."""
    answers = {answer.question_id: answer for answer in request.answers}
    answered: set[str] = set()
    for item in state.get_interruptions():
        answer = answers.get(question_id(item))
        if item.call_id == request.call.call_id and item.agent.name == request.call.owner:
            state.approve(item)
        elif request.resume is not None and answer is not None:
            answered.add(question_id(item))
            if answer.approved and answer.arguments in (None, call_arguments(item.raw_item)):
                state.approve(item)
            elif answer.approved:
                # The inner run is not ours to edit; its model can ask again as the person wants it.
                wanted = json.dumps(answer.arguments)
                state.reject(item, rejection_message=f"Not run. It may be called with these arguments: {wanted}")
            else:
                state.reject(item, rejection_message=answer.message)
    return answered


def question_id(item: ToolApprovalItem) -> str:
    """Return the id of the question that an agent inside a tool asks."""
    return f"{item.agent.name}/{item.call_id}"


def _to_question(item: ToolApprovalItem) -> Question:
    return Question(
        id=question_id(item),
        kind="approval",
        prompt=f"May the agent {item.agent.name} call {item.qualified_name}?",
        detail={
            "agent": item.agent.name,
            "name": item.qualified_name,
            "arguments": call_arguments(item.raw_item),
        },
    )


def _find_output(result: RunResultStreaming, call_id: str) -> ToolCallOutputItem | None:
    for item in reversed(result.new_items):
        if isinstance(item, ToolCallOutputItem) and raw_field(item.raw_item, "call_id") == call_id:
            return item
    return None


def _to_returned(item: ToolCallOutputItem, tools: LiveTools, usage: JsonValue) -> Returned:
    wire = raw_field(item.raw_item, "output")
    record = ToolRecord(
        output=tools.shell_result if tools.shell_result is not None else _replayable(item.output, wire),
        operations=tuple(tools.operations),
        usage=usage,
        custom_data=cast("JsonValue", json.loads(json.dumps(item.custom_data, default=str))),
    )
    return Returned(
        record=record.model_dump(mode="json"),
        text=as_text(wire if wire is not None else item.output),
        is_error=tools.is_error or raw_field(item.raw_item, "status") == "failed",
    )


def _replayable(output: Any, wire: Any) -> JsonValue:
    """Return a JSON value from which the SDK makes the same item for the model as it made of a tool's result.

    A value that JSON keeps as it is stays itself, so that it can become the agent's final output. Of anything else only
    the form is kept that the model reads.
    """
    if isinstance(wire, list):
        return [_to_tool_content(part) for part in cast("list[Any]", wire)]
    try:
        kept = json.loads(json.dumps(output, allow_nan=False))
    except (TypeError, ValueError):
        return str(wire)
    return kept if type(kept) is type(output) and str(kept) == str(output) else str(wire)


def _to_tool_content(part: Any) -> JsonValue:
    content = part.model_dump(exclude_unset=True) if isinstance(part, BaseModel) else dict(part)
    return {**content, "type": str(content["type"]).removeprefix("input_")}
