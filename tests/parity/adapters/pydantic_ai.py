"""The column of `dex-agents-pydantic-ai`."""

import functools
import inspect
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import asdict
from typing import Any, cast

from pydantic import JsonValue
from pydantic_ai import Agent, ModelRetry, RunContext
from pydantic_ai.capabilities import HandleDeferredToolCalls
from pydantic_ai.exceptions import AgentRunError, ApprovalRequired, CallDeferred, ToolFailed, UserError
from pydantic_ai.messages import (
    BinaryContent,
    ModelMessage,
    ModelResponse,
    ModelResponsePart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
)
from pydantic_ai.models import Model
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.function import AgentInfo
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_ai.tools import DeferredToolRequests, DeferredToolResults, Tool, ToolApproved, ToolDenied
from pydantic_ai.usage import RunUsage, UsageLimits
from pydantic_core import to_jsonable_python

from dex_agents.runner import AgentFrameworkRunner
from dex_agents.tools import Answer
from dex_agents_pydantic_ai import PydanticAIRunner
from dex_agents_pydantic_ai._content import to_user_content
from dex_agents_pydantic_ai.testing import ScriptedModel, show
from parity.column import Column, Difference, Ending, Run, Stage
from parity.compare import check_tool_that_raises
from parity.scenario import HELPER_INSTRUCTIONS, INSTRUCTIONS, OTHER_MODEL, Delegate, HandOff, Structured
from parity.toolbox import (
    ALONE,
    ANSWERED_OUTSIDE,
    APPROVED_BEFORE,
    POLICIES,
    Image,
    ToolSaysNo,
    TryAgain,
    asks_for_approval,
)
from support.fake_provider import Reply, ToolCall

RETRIES = 2


class PydanticAIColumn(Column):
    """Pydantic AI: `agent.run` with a `HandleDeferredToolCalls` capability, and `PydanticAIRunner`."""

    def __init__(self) -> None:
        self.adapter = "pydantic-ai"
        self.paths = ("scripted", "openai-chat", "anthropic")
        self.skipped = {"a-hand-off": "Pydantic AI has no hand-off; agents are called as tools"}
        self.differences = {
            "a-tool-raises": Difference(
                "a tool's exception aborts a plain run; in a session the call is settled by its effect",
                check_tool_that_raises,
            )
        }

    def reply(self, said: Structured | Delegate | HandOff) -> Reply:
        match said:
            case Structured(value=value, beside=beside, call_id=call_id):
                return Reply(tool_calls=[*beside, ToolCall("final_result", value, call_id)])
            case Delegate(question=question, call_id=call_id):
                return Reply(tool_calls=[ToolCall("ask_helper", {"question": question}, call_id)])
            case HandOff():
                raise AssertionError("Pydantic AI has no hand-off")

    async def run_plainly(self, stage: Stage) -> Run:
        scenario = stage.scenario
        run, usage = Run(requests=[]), RunUsage()
        history: list[ModelMessage] = []

        async def answer(context: RunContext[Any], requests: DeferredToolRequests) -> DeferredToolResults:
            approvals = {call.tool_call_id: _approval(_decision(stage, call)) for call in requests.approvals}
            results = {call.tool_call_id: _result(_decision(stage, call)) for call in requests.calls}
            return requests.build_results(approvals=approvals, calls=results)

        async with _open_model(stage, "main") as model, _open_model(stage, "other") as other:
            agent = _agent(stage, model)
            for turn in scenario.turns:
                used = RunUsage()
                try:
                    result = await agent.run(
                        turn if isinstance(turn, str) else to_user_content(turn),
                        message_history=history or None,
                        model=other if scenario.settings.get("model") == OTHER_MODEL else None,
                        instructions=cast("str | None", scenario.settings.get("instructions")),
                        usage=used,
                        usage_limits=_limits(stage),
                        capabilities=[HandleDeferredToolCalls(handler=answer)],
                        event_stream_handler=_watch if scenario.streaming else None,
                    )
                except (AgentRunError, UserError, ConnectionError) as error:
                    run.endings.append(Ending(error=str(error)))
                else:
                    history = result.all_messages()
                    run.endings.append(Ending(output=to_jsonable_python(result.output)))
                usage.incr(used)
        run.usage = (usage.requests, usage.input_tokens, usage.output_tokens)
        return run

    @asynccontextmanager
    async def open_runner(self, stage: Stage) -> AsyncGenerator[Callable[[], AgentFrameworkRunner]]:
        async with _open_model(stage, "main") as model, _open_model(stage, "other") as other:

            def make_runner() -> AgentFrameworkRunner:
                return PydanticAIRunner(
                    _agent(stage, model),
                    tools=POLICIES,
                    models={OTHER_MODEL: other},
                    usage_limits=_limits(stage),
                    streaming=stage.scenario.streaming,
                )

            yield make_runner


def _agent(stage: Stage, model: Model) -> Agent[Any, Any]:
    scenario = stage.scenario
    functions = stage.toolbox.functions(scenario.tools)
    agent: Agent[object, Any] = Agent(
        model,
        name="parity",
        instructions=INSTRUCTIONS,
        retries=RETRIES,
        output_type=scenario.output or str,
        tools=[
            Tool(
                _translated(name, function),
                takes_ctx=True,
                name=name,
                requires_approval=name in APPROVED_BEFORE,
                sequential=name in ALONE,
            )
            for name, function in functions.items()
        ],
    )
    if scenario.helper == "tool":
        helper: Agent[object, str] = Agent(model, name="helper", instructions=HELPER_INSTRUCTIONS)

        @agent.tool
        async def ask_helper(ctx: RunContext[object], question: str) -> str:
            """Ask the helper."""
            stage.toolbox.note("ask_helper", question=question)
            return (await helper.run(question, usage=ctx.usage)).output

    return agent


def _translated(name: str, function: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
    """Give a tool the framework's words for what may happen in it."""

    async def run(ctx: RunContext[Any], **arguments: Any) -> Any:
        if name in ANSWERED_OUTSIDE:
            raise CallDeferred
        if asks_for_approval(name, arguments) and not ctx.tool_call_approved:
            raise ApprovalRequired
        try:
            result = await function(**arguments)
        except TryAgain as asks:
            raise ModelRetry(str(asks)) from asks
        except ToolSaysNo as refusal:
            raise ToolFailed(str(refusal)) from refusal
        return BinaryContent(result.data, media_type=result.media_type) if isinstance(result, Image) else result

    return _with_context(run, function)


def _with_context(run: Callable[..., Awaitable[Any]], function: Callable[..., Any]) -> Callable[..., Awaitable[Any]]:
    """Give `run` the tool's signature behind the context, so that the model is told of the tool's own arguments."""
    own = inspect.signature(function)
    context = inspect.Parameter("ctx", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=RunContext[Any])
    functools.update_wrapper(run, function)
    del run.__wrapped__  # pyright: ignore[reportFunctionMemberAccess]
    run.__signature__ = own.replace(parameters=[context, *own.parameters.values()])  # pyright: ignore[reportFunctionMemberAccess]
    run.__annotations__ = {"ctx": RunContext[Any], **function.__annotations__}
    return run


def _limits(stage: Stage) -> UsageLimits | None:
    limit = stage.scenario.request_limit
    return None if limit is None else UsageLimits(request_limit=limit)


async def _watch(context: RunContext[Any], events: Any) -> None:
    async for _ in events:
        pass


def _decision(stage: Stage, call: ToolCallPart) -> Answer:
    return stage.scenario.decision(call.tool_name, call.args_as_dict())


def _approval(answer: Answer) -> ToolApproved | ToolDenied:
    if answer.approved:
        return ToolApproved(override_args=cast("dict[str, Any] | None", answer.arguments))
    return ToolDenied(answer.message) if answer.message else ToolDenied()


def _result(answer: Answer) -> Any:
    return ToolFailed(str(answer.value)) if answer.is_error else answer.value


def _open_model(stage: Stage, name: str) -> AbstractAsyncContextManager[Model]:
    provider = stage.provider
    match stage.path:
        case "openai-chat":
            return OpenAIChatModel(
                f"gpt-{name}", provider=OpenAIProvider(base_url=provider.openai_base_url, api_key="none")
            )
        case "anthropic":
            return AnthropicModel(
                f"claude-{name}", provider=AnthropicProvider(base_url=provider.anthropic_base_url, api_key="none")
            )
        case _:
            return _scripted_model(stage, name)


def _scripted_model(stage: Stage, name: str) -> Model:
    def respond(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        shown = cast("JsonValue", {"model": name, **asdict(show(messages, info))})
        stage.shown.append(shown)
        reply = stage.next_reply()
        parts: list[ModelResponsePart] = []
        if reply.reasoning:
            parts.append(ThinkingPart(reply.reasoning, signature="signed"))
        if reply.text:
            parts.append(TextPart(reply.text))
        for call in reply.tool_calls:
            arguments = call.arguments if isinstance(call.arguments, str) else dict(call.arguments)
            parts.append(ToolCallPart(call.name, arguments, call.id or f"call-{len(parts)}"))
        return ModelResponse(parts=parts)

    return ScriptedModel(respond, model_name=name, streaming=stage.scenario.streaming)
