"""The tools of one tool Step: one call runs for real, through all that the SDK puts around it; the others wait."""

import copy
import json
from dataclasses import dataclass, field, replace
from inspect import isawaitable
from typing import Any, cast

from agents import (
    AgentsException,
    ApplyPatchOperation,
    ApplyPatchResult,
    ApplyPatchTool,
    CustomTool,
    FunctionTool,
    RunContextWrapper,
    ShellCommandRequest,
    ShellResult,
    ShellTool,
    Tool,
    ToolInputGuardrail,
    ToolInputGuardrailData,
    ToolOutputGuardrail,
    ToolOutputGuardrailData,
    default_tool_error_function,
)
from agents.editor import ApplyPatchEditor
from agents.tool_context import ToolContext
from pydantic import JsonValue

from dex_agents.errors import ToolDidNotHappen
from dex_agents_openai_agents._private import failure_function, replace_arguments, set_failure_function
from dex_agents_openai_agents._replay import dump_file_result, dump_operation, dump_shell_result, is_deferrable
from dex_agents_openai_agents._state import FileOperation


@dataclass(kw_only=True)
class LiveTools:
    """Makes the tools of one tool Step, and keeps what came of the call.

    Attributes:
        call_id: The provider's id of the call that runs.
        arguments: What a person made of the arguments; None runs with the model's.
        error: What the tool raised, where the session decides what that means.
        is_error: The tool raised, and the agent made a result of it.
        shell_result: What a shell's executor returned, as JSON.
        operations: What a patch's editor answered.
        reached: The tool itself was about to run.
    """

    call_id: str
    arguments: JsonValue = None
    error: Exception | None = None
    is_error: bool = False
    shell_result: JsonValue = None
    operations: list[FileOperation] = field(default_factory=list[FileOperation])
    reached: bool = False

    def adapt(self, tool: Tool) -> Tool:
        """Return a tool of which only approved calls run."""
        if not is_deferrable(tool):
            return tool
        made = copy.copy(tool)
        if isinstance(made, FunctionTool):
            made.needs_approval = True
            self._watch_function(made)
        elif isinstance(made, CustomTool):
            made.needs_approval = True
            made.on_approval = None
            self._watch_custom(made)
        elif isinstance(made, ShellTool):
            made.needs_approval = True
            made.on_approval = None
            self._watch_shell(made)
        elif isinstance(made, ApplyPatchTool):
            made.needs_approval = True
            made.on_approval = None
            made.editor = _WatchedEditor(made.editor, self)
        return made

    def begin(self, context: object) -> None:
        """Note that the tool is about to run, with edited arguments where there are some."""
        self.reached = True
        self.edit(context)

    def edit(self, context: object) -> None:
        """Give the call the arguments that a person edited; before anything looks at them."""
        if self.arguments is not None and isinstance(context, ToolContext) and context.tool_call_id == self.call_id:
            replace_arguments(cast("ToolContext[Any]", context), self.arguments_text)

    @property
    def arguments_text(self) -> str:
        """The edited arguments as the model would have written them."""
        return self.arguments if isinstance(self.arguments, str) else json.dumps(self.arguments)

    def _watch_function(self, tool: FunctionTool) -> None:
        self._watch_failures(tool)
        if self.arguments is None:
            return
        invoke = tool.on_invoke_tool

        async def invoke_edited(context: ToolContext[Any], arguments: str) -> Any:
            self.edit(context)
            return await invoke(context, context.tool_arguments)

        tool.on_invoke_tool = invoke_edited
        if tool.tool_input_guardrails is not None:
            tool.tool_input_guardrails = [self._edit_before_input(one) for one in tool.tool_input_guardrails]
        if tool.tool_output_guardrails is not None:
            tool.tool_output_guardrails = [self._edit_before_output(one) for one in tool.tool_output_guardrails]

    def _edit_before_input(self, guardrail: ToolInputGuardrail[Any]) -> ToolInputGuardrail[Any]:
        own = guardrail.guardrail_function

        def check(data: ToolInputGuardrailData) -> Any:
            self.edit(data.context)
            return own(data)

        return replace(guardrail, guardrail_function=check)

    def _edit_before_output(self, guardrail: ToolOutputGuardrail[Any]) -> ToolOutputGuardrail[Any]:
        own = guardrail.guardrail_function

        def check(data: ToolOutputGuardrailData) -> Any:
            self.edit(data.context)
            return own(data)

        return replace(guardrail, guardrail_function=check)

    def _watch_failures(self, tool: FunctionTool) -> None:
        """Let the session decide about what a tool raises, unless the agent says what the model is told of it."""
        own = failure_function(tool)
        if own is None:
            return  # The SDK raises it.

        async def decide(context: RunContextWrapper[Any], error: Exception) -> str:
            self.is_error = True
            by_default = own is default_tool_error_function and not isinstance(error, AgentsException)
            if by_default or isinstance(error, ToolDidNotHappen):
                self.error = error
            told = own(context, error)
            return await told if isawaitable(told) else told

        set_failure_function(tool, decide)

    def _watch_custom(self, tool: CustomTool) -> None:
        invoke = tool.on_invoke_tool

        async def watch(context: ToolContext[Any], given: str) -> Any:
            self.edit(context)
            try:
                result = invoke(context, given if self.arguments is None else self.arguments_text)
                return await result if isawaitable(result) else result
            except Exception as error:
                self.error = error
                raise

        tool.on_invoke_tool = watch

    def _watch_shell(self, tool: ShellTool) -> None:
        execute = cast(Any, tool.executor)

        async def watch(request: ShellCommandRequest) -> str | ShellResult:
            if isinstance(self.arguments, dict):
                action = replace(request.data.action, **cast("dict[str, Any]", self.arguments))
                request = replace(request, data=replace(request.data, action=action))
            try:
                result = execute(request)
                done: str | ShellResult = await result if isawaitable(result) else result
            except Exception as error:
                self.error = error
                raise
            self.shell_result = dump_shell_result(done)
            return done

        tool.executor = watch


class _WatchedEditor:
    def __init__(self, inner: ApplyPatchEditor, watcher: LiveTools) -> None:
        self._inner = inner
        self._watcher = watcher

    async def create_file(self, operation: ApplyPatchOperation) -> ApplyPatchResult | str | None:
        return await self._watch(self._inner.create_file, operation)

    async def update_file(self, operation: ApplyPatchOperation) -> ApplyPatchResult | str | None:
        return await self._watch(self._inner.update_file, operation)

    async def delete_file(self, operation: ApplyPatchOperation) -> ApplyPatchResult | str | None:
        return await self._watch(self._inner.delete_file, operation)

    async def _watch(self, edit: Any, operation: ApplyPatchOperation) -> ApplyPatchResult | str | None:
        edited = self._watcher.arguments
        changes = (
            {name: edited[name] for name in ("path", "diff") if name in edited} if isinstance(edited, dict) else {}
        )
        try:
            result = edit(replace(operation, **cast("dict[str, Any]", changes)))
            done: ApplyPatchResult | str | None = await result if isawaitable(result) else result
        except Exception as error:
            self._watcher.error = error
            raise
        answered = FileOperation(operation=dump_operation(operation), result=dump_file_result(done))
        self._watcher.operations.append(answered)
        return done
