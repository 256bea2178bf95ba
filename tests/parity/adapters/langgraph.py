"""The column of `dex-agents-langgraph`."""

# LangChain leaves parts of its own types open.
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false, reportUnknownVariableType=false

import base64
import copy
import inspect
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, cast

from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware, HumanInTheLoopMiddleware, ModelCallLimitMiddleware
from langchain.agents.middleware.model_call_limit import ModelCallLimitExceededError
from langchain.agents.structured_output import ToolStrategy
from langchain.tools import ToolRuntime, tool
from langchain_anthropic import ChatAnthropic
from langchain_core.callbacks import UsageMetadataCallbackHandler
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langchain_core.messages.tool import invalid_tool_call
from langchain_core.tools import BaseTool, StructuredTool, ToolException
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.types import Command, interrupt
from pydantic import JsonValue, SecretStr
from pydantic_core import to_jsonable_python

from dex_agents import ToolEffect
from dex_agents.runner import AgentFrameworkRunner
from dex_agents.tools import Answer
from dex_agents_langgraph import LangGraphRunner
from dex_agents_langgraph._content import to_human_message
from dex_agents_langgraph._private import Graph
from dex_agents_langgraph.testing import ScriptedChatModel
from parity.column import Column, Difference, Ending, Run, Stage
from parity.compare import check_tool_that_raises
from parity.scenario import HELPER_INSTRUCTIONS, INSTRUCTIONS, OTHER_MODEL, Delegate, HandOff, Structured
from parity.toolbox import (
    ANSWERED_OUTSIDE,
    APPROVED_BEFORE,
    POLICIES,
    Image,
    ToolSaysNo,
    TryAgain,
    asks_for_approval,
)
from support.fake_provider import Reply, ToolCall
from support.kept_clients import kept
from support.side_by_side import as_blocks

DECISIONS = ["approve", "edit", "reject"]
_REVIEWS_CALLS = "interrupt_mode" in inspect.signature(HumanInTheLoopMiddleware.__init__).parameters


class LangGraphColumn(Column):
    """LangGraph: `create_agent` with a checkpointer, resumed after each interrupt, and `LangGraphRunner`."""

    def __init__(self) -> None:
        self.adapter = "langgraph"
        self.paths = ("scripted", "openai-chat", "anthropic")
        self.skipped = {
            "another-try-too-often": "LangChain counts no retries: the model may call a tool again for ever",
        }
        self.differences = {
            "a-tool-raises": Difference(
                "a tool's exception aborts a plain run; in a session the call is settled by its effect",
                check_tool_that_raises,
            )
        }

    def reply(self, said: Structured | Delegate | HandOff) -> Reply:
        match said:
            case Structured(value=value, beside=beside, call_id=call_id):
                return Reply(tool_calls=[*beside, ToolCall("Report", value, call_id)])
            case Delegate(question=question, call_id=call_id):
                return Reply(tool_calls=[ToolCall("ask_helper", {"question": question}, call_id)])
            case HandOff(call_id=call_id):
                return Reply(tool_calls=[ToolCall("to_helper", {}, call_id)])

    async def run_plainly(self, stage: Stage) -> Run:
        scenario = stage.scenario
        run = Run(requests=[])
        graph: Any = copy.copy(_build(stage, scenario.settings))
        graph.checkpointer = InMemorySaver()
        counter = _Counter()
        config = {"configurable": {"thread_id": "parity-1"}, "callbacks": [counter]}
        mode = "messages" if scenario.streaming else "values"
        for number, turn in enumerate(scenario.turns):
            run_input: Any = {"messages": [to_human_message(as_blocks(turn), message_id=f"user-{number}")]}
            values: Any = None
            try:
                while run_input is not None:
                    async for _ in graph.astream(run_input, config, stream_mode=mode, subgraphs=True):
                        pass
                    state = await graph.aget_state(config)
                    values = state.values
                    answers = {each.id: _resume(stage, each.value) for each in state.interrupts}
                    run_input = Command(resume=answers) if answers else None
            except (ConnectionError, ModelCallLimitExceededError) as error:
                run.endings.append(Ending(error=str(error)))
            else:
                run.endings.append(Ending(output=_output(stage, values)))
        run.usage = counter.usage()
        return run

    @asynccontextmanager
    async def open_runner(self, stage: Stage) -> AsyncGenerator[Callable[[], AgentFrameworkRunner]]:
        # The agent's own review asks for these: the policy must not ask again.
        reviewed = dict.fromkeys(APPROVED_BEFORE, ToolEffect.NON_IDEMPOTENT_WRITE)

        def make_runner() -> AgentFrameworkRunner:
            return LangGraphRunner(
                lambda settings: _build(stage, settings),
                tools={**POLICIES, **reviewed},
                streaming=stage.scenario.streaming,
            )

        yield make_runner


def _build(stage: Stage, settings: Mapping[str, JsonValue]) -> Graph:
    scenario = stage.scenario
    model = kept(_model(stage, "other" if settings.get("model") == OTHER_MODEL else "main"))
    instructions = "\n\n".join([INSTRUCTIONS, *([str(settings["instructions"])] if "instructions" in settings else [])])
    tools: list[BaseTool] = [
        _as_tool(name, function) for name, function in stage.toolbox.functions(scenario.tools).items()
    ]
    middleware: list[AgentMiddleware[Any, Any, Any]] = []
    if APPROVED_BEFORE & set(scenario.tools):
        gated: Any = {name: {"allowed_decisions": DECISIONS} for name in APPROVED_BEFORE}
        # Before LangChain 1.4.6 all calls of a response are reviewed together.
        one_by_one: Any = {"interrupt_mode": "per_call"} if _REVIEWS_CALLS else {}
        middleware.append(HumanInTheLoopMiddleware(interrupt_on=gated, **one_by_one))
    if scenario.request_limit is not None:
        middleware.append(ModelCallLimitMiddleware(run_limit=scenario.request_limit, exit_behavior="error"))
    if scenario.helper == "tool":
        tools.append(_helper_tool(stage, model))
    if scenario.helper == "handoff":
        tools.append(_hand_off_tool())
    agent = create_agent(
        model,
        tools,
        system_prompt=instructions,
        middleware=middleware,
        response_format=None if scenario.output is None else ToolStrategy(scenario.output),
        name="main",
    )
    return _with_helper(agent, model) if scenario.helper == "handoff" else agent


def _helper_tool(stage: Stage, model: BaseChatModel) -> BaseTool:
    helper = create_agent(model, [], system_prompt=HELPER_INSTRUCTIONS, name="helper")

    @tool
    async def ask_helper(question: str) -> str:
        """Ask the helper."""
        stage.toolbox.note("ask_helper", question=question)
        answer: Any = await cast("Any", helper).ainvoke({"messages": [("user", question)]})
        return str(answer["messages"][-1].text)

    return ask_helper


def _hand_off_tool() -> BaseTool:
    @tool
    def to_helper(runtime: ToolRuntime[Any, Any]) -> Command[Any]:
        """Hand the conversation over to the helper."""
        message = ToolMessage("The helper takes over.", tool_call_id=runtime.tool_call_id, name="to_helper")
        asked = cast("list[BaseMessage]", runtime.state["messages"])[-1]
        return Command(graph=Command.PARENT, goto="helper", update={"messages": [asked, message]})

    return to_helper


def _with_helper(main: Graph, model: BaseChatModel) -> Graph:
    graph = StateGraph(MessagesState)
    graph.add_node("main", main)
    graph.add_node("helper", create_agent(model, [], system_prompt=HELPER_INSTRUCTIONS, name="helper"))
    graph.add_edge(START, "main")
    graph.add_edge("main", END)
    graph.add_edge("helper", END)
    return graph.compile()


def _as_tool(name: str, function: Callable[..., Awaitable[Any]]) -> BaseTool:
    """Give a tool the framework's words for what may happen in it."""

    async def run(**arguments: Any) -> Any:
        if name in ANSWERED_OUTSIDE:
            return interrupt({"tool": name, "args": arguments})
        if asks_for_approval(name, arguments):
            [decision] = interrupt(_review(name, arguments))["decisions"]
            if decision["type"] == "reject":
                raise ToolException(decision["message"])
            arguments = decision.get("edited_action", {"args": arguments})["args"]
        try:
            result = await function(**arguments)
        except (TryAgain, ToolSaysNo) as refusal:
            raise ToolException(str(refusal)) from refusal
        if not isinstance(result, Image):
            return result
        data = base64.b64encode(result.data).decode()
        return [{"type": "image", "base64": data, "mime_type": result.media_type}]

    described = StructuredTool.from_function(coroutine=function, name=name)
    return StructuredTool(
        name=name,
        description=described.description,
        args_schema=described.args_schema,
        coroutine=run,
        handle_tool_error=True,
    )


def _review(name: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """What LangChain's own review asks, raised by the tool itself."""
    return {
        "action_requests": [{"name": name, "args": dict(arguments), "description": f"May {name} run?"}],
        "review_configs": [{"action_name": name, "allowed_decisions": DECISIONS}],
    }


def _resume(stage: Stage, value: Any) -> Any:
    if "action_requests" in value:
        actions = value["action_requests"]
        decided = [(each, stage.scenario.decision(each["name"], each["args"])) for each in actions]
        return {"decisions": [_decision(each["name"], answer) for each, answer in decided]}
    if value.get("type") == "tool_approval":
        return _decision(value["name"], stage.scenario.decision(value["name"], value["args"]))
    return stage.scenario.decision(value["tool"], value["args"]).value


def _decision(name: str, answer: Answer) -> dict[str, Any]:
    if not answer.approved:
        return {"type": "reject", "message": answer.message}
    if answer.arguments is None:
        return {"type": "approve"}
    return {"type": "edit", "edited_action": {"name": name, "args": answer.arguments}}


def _output(stage: Stage, values: Mapping[str, Any]) -> JsonValue:
    if stage.scenario.output is not None:
        return to_jsonable_python(values["structured_response"])
    return str(values["messages"][-1].text)


class _Counter(UsageMetadataCallbackHandler):
    """Counts requests beside tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.requests = 0

    def on_llm_end(self, response: Any, **kwargs: Any) -> None:
        super().on_llm_end(response, **kwargs)
        self.requests += 1

    def usage(self) -> tuple[int, int, int]:
        counted = self.usage_metadata.values()
        return (
            self.requests,
            sum(each["input_tokens"] for each in counted),
            sum(each["output_tokens"] for each in counted),
        )


def _model(stage: Stage, name: str) -> BaseChatModel:
    provider, key = stage.provider, SecretStr("none")
    match stage.path:
        case "openai-chat":
            return ChatOpenAI(
                model=f"gpt-{name}",
                base_url=provider.openai_base_url,
                api_key=key,
                max_retries=0,
                stream_usage=True,
            )
        case "anthropic":
            return ChatAnthropic(
                model_name=f"claude-{name}",
                base_url=provider.anthropic_base_url,
                api_key=key,
                max_retries=0,
                timeout=None,
                stop=None,
            )
        case _:
            return _scripted_model(stage, name)


def _scripted_model(stage: Stage, name: str) -> BaseChatModel:
    def respond(messages: list[BaseMessage]) -> AIMessage:
        shown = model.shown[-1]
        stage.shown.append({"model": name, "messages": shown.messages, "options": shown.options})
        said = stage.next_reply()
        content: Any = said.text
        if said.reasoning:
            content = [{"type": "reasoning", "reasoning": said.reasoning}, {"type": "text", "text": said.text}]
        message = AIMessage(content)
        for number, call in enumerate(said.tool_calls):
            call_id = call.id or f"call-{number}"
            if isinstance(call.arguments, str):
                message.invalid_tool_calls.append(
                    invalid_tool_call(name=call.name, args=call.arguments, id=call_id, error=None)
                )
            else:
                message.tool_calls.append(
                    {"name": call.name, "args": dict(call.arguments), "id": call_id, "type": "tool_call"}
                )
        return message

    model = ScriptedChatModel(respond, model_name=name, streaming=stage.scenario.streaming)
    return model
