"""Tools of a RunModel Step: each call waits for the session, and its recorded result is given instead of running it."""

import copy
import json
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from inspect import isawaitable
from typing import Any, cast

from agents import (
    ApplyPatchOperation,
    ApplyPatchResult,
    ApplyPatchTool,
    CustomTool,
    FunctionTool,
    RunContextWrapper,
    ShellCallOutcome,
    ShellCommandOutput,
    ShellCommandRequest,
    ShellResult,
    ShellTool,
    Tool,
)
from agents.tool_context import ToolContext
from pydantic import JsonValue

from dex_agents_openai_agents._private import can_ask_policy, load_usage
from dex_agents_openai_agents._state import ToolRecord

DeferrableTool = FunctionTool | CustomTool | ShellTool | ApplyPatchTool
"""Kinds of tools whose calls can wait for an approval, and so become Steps of their own."""


def is_deferrable(tool: Tool) -> bool:
    """Whether calls of a tool become Steps; a shell in the provider's container runs there."""
    if isinstance(tool, ShellTool):
        return tool.executor is not None
    return isinstance(tool, FunctionTool | CustomTool | ApplyPatchTool)


def tool_key(tool: Tool) -> str:
    """Return the name under which the model knows a tool, with its namespace."""
    return tool.qualified_name if isinstance(tool, FunctionTool) else tool.name


@dataclass(kw_only=True)
class ReplayedTools:
    """Makes the tools of one RunModel Step.

    Attributes:
        records: What the calls of the settled batch left behind, by call id.
        needs_approval: The agent's own verdict on a call, by call id, as far as it depends on the call.
        originals: The agent's own tools by name, as this Step saw them.
    """

    records: Mapping[str, ToolRecord]
    needs_approval: dict[str, bool] = field(default_factory=dict[str, bool])
    originals: dict[str, Tool] = field(default_factory=dict[str, Tool])

    def __post_init__(self) -> None:
        self._file_results: dict[str, deque[JsonValue]] = {}
        for record in self.records.values():
            for done in record.operations:
                self._file_results.setdefault(str(done.operation), deque()).append(done.result)

    def adapt(self, tool: Tool) -> Tool:
        """Return a tool whose calls wait, and which returns what was recorded."""
        if not is_deferrable(tool):
            return tool
        self.originals[tool_key(tool)] = tool
        made = copy.copy(tool)
        if isinstance(made, FunctionTool):
            self._adapt_function(made)
        elif isinstance(made, CustomTool):
            made.needs_approval = self._note_verdict(made.needs_approval)
            made.on_approval = None
            made.on_invoke_tool = self._return_output
            made.custom_data_extractor = self._return_custom_data
        elif isinstance(made, ShellTool):
            made.needs_approval = self._note_verdict(made.needs_approval)
            made.on_approval = None
            made.executor = self._return_shell_result
        elif isinstance(made, ApplyPatchTool):
            made.needs_approval = self._note_verdict(made.needs_approval)
            made.on_approval = None
            made.editor = _RecordedEditor(self._file_results)
            made.custom_data_extractor = None
        return made

    def approval_of(self, name: str, call_id: str) -> bool:
        """Return whether the agent itself wants an approval for a call of the open response."""
        if call_id in self.needs_approval:
            return self.needs_approval[call_id]
        tool = self.originals.get(name)
        # A policy that the SDK could not ask, because the arguments are invalid or converted, counts as a yes.
        own = True if tool is None else cast("DeferrableTool", tool).needs_approval
        return own if isinstance(own, bool) else True

    def _adapt_function(self, tool: FunctionTool) -> None:
        own, original = tool.needs_approval, copy.copy(tool)
        if callable(own):

            async def judge(context: RunContextWrapper[Any], arguments: dict[str, Any], call_id: str) -> bool:
                return not can_ask_policy(original, json.dumps(arguments)) or await own(context, arguments, call_id)

            tool.needs_approval = self._note_verdict(judge)
        else:
            tool.needs_approval = True
        tool.on_invoke_tool = self._return_output
        # What stands around the call ran in the call's own Step.
        tool.tool_input_guardrails = None
        tool.tool_output_guardrails = None
        tool.timeout_seconds = None
        tool.custom_data_extractor = self._return_custom_data

    def _note_verdict(self, own: bool | Callable[..., Any]) -> Any:
        if not callable(own):
            return True

        async def note(context: RunContextWrapper[Any], arguments: Any, call_id: str) -> bool:
            verdict = own(context, arguments, call_id)
            self.needs_approval[call_id] = bool(await verdict if isawaitable(verdict) else verdict)
            return True

        return note

    async def _return_output(self, context: ToolContext[Any], _arguments: str) -> Any:
        record = self.records[context.tool_call_id]
        context.usage.add(load_usage(record.usage))
        return record.output

    def _return_custom_data(self, given: Any) -> Mapping[str, Any] | None:
        context: ToolContext[Any] = given.tool_context
        return cast("Mapping[str, Any] | None", self.records[context.tool_call_id].custom_data)

    def _return_shell_result(self, request: ShellCommandRequest) -> str | ShellResult:
        output = self.records[request.data.call_id].output
        return output if isinstance(output, str) else load_shell_result(cast("dict[str, Any]", output))


class _RecordedEditor:
    def __init__(self, results: dict[str, deque[JsonValue]]) -> None:
        self._results = results

    def create_file(self, operation: ApplyPatchOperation) -> ApplyPatchResult | str | None:
        return self._answer(operation)

    def update_file(self, operation: ApplyPatchOperation) -> ApplyPatchResult | str | None:
        return self._answer(operation)

    def delete_file(self, operation: ApplyPatchOperation) -> ApplyPatchResult | str | None:
        return self._answer(operation)

    def _answer(self, operation: ApplyPatchOperation) -> ApplyPatchResult | str | None:
        result = self._results[str(dump_operation(operation))].popleft()
        if isinstance(result, dict):
            return ApplyPatchResult(**cast("dict[str, Any]", result))
        return None if result is None else str(result)


def dump_operation(operation: ApplyPatchOperation) -> JsonValue:
    """Write a file operation as JSON."""
    return {
        "type": operation.type,
        "path": operation.path,
        "diff": operation.diff,
        "move_to": operation.move_to,
    }


def dump_file_result(result: ApplyPatchResult | str | None) -> JsonValue:
    """Write an editor's answer as JSON."""
    if isinstance(result, ApplyPatchResult):
        return {"status": result.status, "output": result.output}
    return result


def dump_shell_result(result: ShellResult | str) -> JsonValue:
    """Write what a shell's executor returned as JSON."""
    if not isinstance(result, ShellResult):
        return str(result)
    return {
        "output": [
            {
                "stdout": one.stdout,
                "stderr": one.stderr,
                "outcome": {"type": one.outcome.type, "exit_code": one.outcome.exit_code},
                "command": one.command,
                "provider_data": one.provider_data,
            }
            for one in result.output
        ],
        "max_output_length": result.max_output_length,
        "provider_data": result.provider_data,
    }


def load_shell_result(value: dict[str, Any]) -> ShellResult:
    """Read what `dump_shell_result` wrote."""
    output = [
        ShellCommandOutput(**cast("dict[str, Any]", {**one, "outcome": ShellCallOutcome(**one["outcome"])}))
        for one in value["output"]
    ]
    return ShellResult(**cast("dict[str, Any]", {**value, "output": output}))
