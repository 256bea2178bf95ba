"""The column of `dex-agents-openai-agents`."""

import base64
import functools
import json
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import asdict
from typing import Any, cast

from agents import (
    Agent,
    AgentsException,
    Model,
    OpenAIChatCompletionsModel,
    OpenAIResponsesModel,
    RunConfig,
    RunContextWrapper,
    Runner,
    RunResult,
    RunResultStreaming,
    Tool,
    ToolOutputImage,
    TResponseInputItem,
    function_tool,
)
from agents.usage import Usage
from openai import AsyncOpenAI
from pydantic import JsonValue
from pydantic_core import to_jsonable_python

from dex_agents.runner import AgentFrameworkRunner
from dex_agents_openai_agents import OpenAIAgentsRunner
from dex_agents_openai_agents._content import to_user_item
from dex_agents_openai_agents.testing import (
    Reply as ModelReply,
)
from dex_agents_openai_agents.testing import (
    ScriptedModel,
    ShownRequest,
    assistant_message,
    function_call,
    reasoning,
)
from parity.column import Column, Difference, Ending, Run, Stage
from parity.compare import check_requests
from parity.scenario import HELPER_INSTRUCTIONS, INSTRUCTIONS, OTHER_MODEL, Delegate, HandOff, Structured
from parity.toolbox import APPROVED_BEFORE, POLICIES, Image, ToolSaysNo, TryAgain, asks_for_approval
from support.fake_provider import Reply, ToolCall
from support.side_by_side import as_blocks

DEFAULT_MAX_TURNS = 10


def _check_tool_that_raises(plain: Run, durable: Run) -> None:
    assert "An error occurred while running the tool" in str(plain.requests[1])
    check_requests(plain, durable, count=1)
    assert durable.endings == plain.endings
    assert "no line to the warehouse" in str(durable.requests[1])
    assert "Please try again" not in str(durable.requests[1])
    # A read is tried three times.
    assert [line.partition(" ")[0] for line in durable.executed] == ["count", *["lose_line"] * 3]


def _check_edited_arguments(plain: Run, durable: Run) -> None:
    check_requests(plain, durable, count=1)
    assert durable.endings == plain.endings
    assert plain.executed == ['pay {"euros": 1}']
    assert durable.executed == ['pay {"euros": 100}']
    assert "paid 100" in str(durable.requests[1])


def _check_order_of_a_missing_tool(plain: Run, durable: Run) -> None:
    check_requests(plain, durable, count=1)
    assert durable.endings == plain.endings
    assert durable.executed == plain.executed
    [wanted, got] = (cast("dict[str, Any]", run.requests[1]) for run in (plain, durable))
    [wanted, got] = (cast("dict[str, Any]", one.get("body", one)) for one in (wanted, got))
    key = "messages" if "messages" in wanted else "input"
    assert {**got, key: None} == {**wanted, key: None}
    assert got.get("results") == wanted.get("results")
    # The same two results, the other way round.
    assert got[key][:-2] == wanted[key][:-2]
    assert got[key][-2:] == wanted[key][:-3:-1]


def _check_order_beside_approvals(plain: Run, durable: Run) -> None:
    check_requests(plain, durable, count=1)
    assert durable.endings == plain.endings
    assert len(durable.requests) == len(plain.requests)
    assert 'pay {"euros": 30}' in durable.executed
    assert [line for line in durable.executed if "30" not in line] == [
        line for line in plain.executed if line != 'pay {"euros": 3}'
    ]
    told = str(durable.requests[1])
    results = ("paid 1", "Oslo is sunny", "too much", "paid 30")
    assert all(result in told for result in results)
    assert [told.index(result) for result in results] == sorted(told.index(result) for result in results)


class OpenAIAgentsColumn(Column):
    """The OpenAI Agents SDK: `Runner.run` with its interruptions, and `OpenAIAgentsRunner`."""

    def __init__(self) -> None:
        self.adapter = "openai-agents"
        self.paths = ("scripted", "openai-chat", "openai-responses")
        self.skipped = {
            "call-ids-that-repeat": "the SDK refuses a call id that stands for two calls of one run",
            "another-try-too-often": "the SDK counts no retries of tools",
            "an-answer-from-outside": "the SDK has no tools that are answered from outside",
            "typed-output-refused-first": "the SDK fails a run whose output is invalid, and never asks for another",
            "typed-output-beside-a-call": "the SDK asks the model again after tools, whatever stood beside them",
        }
        self.differences = {
            "a-tool-raises": Difference(
                "a plain run tells the model to try again; in a session the call is settled by its effect",
                _check_tool_that_raises,
            ),
            "an-unknown-tool": Difference(
                "the word about a missing tool stands in the order of the calls; a plain run puts it last",
                _check_order_of_a_missing_tool,
            ),
            "approval-with-other-arguments": Difference(
                "people can approve a call with other arguments, which the SDK cannot do", _check_edited_arguments
            ),
            "approvals-beside-other-calls": Difference(
                "results stand in the order of the calls; a plain run puts those that people approved last",
                _check_order_beside_approvals,
            ),
        }

    def reply(self, said: Structured | Delegate | HandOff) -> Reply:
        match said:
            case Structured(value=value, beside=beside):
                return Reply(text=json.dumps(dict(value)), tool_calls=[*beside])
            case Delegate(question=question, call_id=call_id):
                return Reply(tool_calls=[ToolCall("ask_helper", {"input": question}, call_id)])
            case HandOff(call_id=call_id):
                return Reply(tool_calls=[ToolCall("transfer_to_helper", {}, call_id)])

    async def run_plainly(self, stage: Stage) -> Run:
        scenario = stage.scenario
        run, usage = Run(requests=[]), Usage()
        history: list[TResponseInputItem] = []
        async with _open_client(stage) as client:
            agent = _agent(stage, _model(stage, client, "main"))
            config = _config()
            if scenario.settings.get("model") == OTHER_MODEL:
                config.model = _model(stage, client, "other")
            if "instructions" in scenario.settings:
                agent = agent.clone(instructions=f"{INSTRUCTIONS}\n\n{scenario.settings['instructions']}")
            for turn in scenario.turns:
                message = to_user_item(as_blocks(turn))
                try:
                    result = await _run(stage, agent, [*history, message], config)
                    while result.interruptions:
                        state = result.to_state()
                        for item in result.interruptions:
                            answer = scenario.decision(item.tool_name or "", json.loads(item.arguments or "{}"))
                            if answer.approved:
                                state.approve(item)
                            else:
                                state.reject(item, rejection_message=answer.message)
                        result = await _run(stage, agent, state, config)
                except AgentsException as error:
                    run.endings.append(Ending(error=str(error)))
                    continue
                agent, history = result.last_agent, result.to_input_list()
                usage.add(result.context_wrapper.usage)
                run.endings.append(Ending(output=to_jsonable_python(result.final_output)))
        run.usage = (usage.requests, usage.input_tokens, usage.output_tokens)
        return run

    @asynccontextmanager
    async def open_runner(self, stage: Stage) -> AsyncGenerator[Callable[[], AgentFrameworkRunner]]:
        async with _open_client(stage) as client:

            def make_runner() -> AgentFrameworkRunner:
                return OpenAIAgentsRunner(
                    _agent(stage, _model(stage, client, "main")),
                    tools=POLICIES,
                    models={OTHER_MODEL: _model(stage, client, "other")},
                    run_config=_config(),
                    max_turns=stage.scenario.request_limit or DEFAULT_MAX_TURNS,
                    streaming=stage.scenario.streaming,
                )

            yield make_runner


def _config() -> RunConfig:
    return RunConfig(tracing_disabled=True, tool_not_found_behavior="return_error_to_model")


async def _run(stage: Stage, agent: Agent[Any], given: Any, config: RunConfig) -> RunResult | RunResultStreaming:
    most = stage.scenario.request_limit or DEFAULT_MAX_TURNS
    if not stage.scenario.streaming:
        return await Runner.run(agent, given, run_config=config, max_turns=most)
    result = Runner.run_streamed(agent, given, run_config=config, max_turns=most)
    async for _ in result.stream_events():
        pass
    return result


def _agent(stage: Stage, model: Model) -> Agent[Any]:
    scenario = stage.scenario
    tools: list[Tool] = [_tool(name, function) for name, function in stage.toolbox.functions(scenario.tools).items()]
    helper: Agent[Any] = Agent(name="helper", instructions=HELPER_INSTRUCTIONS, model=model)
    if scenario.helper == "tool":
        tools.append(helper.as_tool("ask_helper", "Ask the helper."))
    return Agent(
        name="parity",
        instructions=INSTRUCTIONS,
        model=model,
        tools=tools,
        handoffs=[helper] if scenario.helper == "handoff" else [],
        output_type=scenario.output,
    )


def _tool(name: str, function: Callable[..., Awaitable[Any]]) -> Tool:
    """Give a tool the framework's words for what may happen in it."""

    @functools.wraps(function)
    async def run(*arguments: Any, **named: Any) -> Any:
        try:
            result = await function(*arguments, **named)
        except (TryAgain, ToolSaysNo) as told:
            return str(told)
        if isinstance(result, Image):
            return ToolOutputImage(
                image_url=f"data:{result.media_type};base64,{base64.b64encode(result.data).decode()}"
            )
        return result

    async def asks(context: RunContextWrapper[Any], arguments: dict[str, Any], call_id: str) -> bool:
        return asks_for_approval(name, arguments)

    return function_tool(run, needs_approval=True if name in APPROVED_BEFORE else asks if name == "refund" else False)


@asynccontextmanager
async def _open_client(stage: Stage) -> AsyncGenerator[AsyncOpenAI]:
    async with AsyncOpenAI(base_url=stage.provider.openai_base_url, api_key="none", max_retries=0) as client:
        yield client


def _model(stage: Stage, client: AsyncOpenAI, name: str) -> Model:
    match stage.path:
        case "openai-chat":
            return OpenAIChatCompletionsModel(f"gpt-{name}", client)
        case "openai-responses":
            return OpenAIResponsesModel(f"gpt-{name}", client)
        case _:
            return _scripted_model(stage, name)


def _scripted_model(stage: Stage, name: str) -> Model:
    def respond(shown: ShownRequest) -> ModelReply:
        stage.shown.append(cast("JsonValue", {"model": name, **asdict(shown)}))
        reply = stage.next_reply()
        items: list[Any] = []
        if reply.reasoning:
            items.append(reasoning(reply.reasoning))
        if reply.text:
            items.append(assistant_message(reply.text))
        items += [
            function_call(
                call.name,
                call.arguments if isinstance(call.arguments, str) else dict(call.arguments),
                call_id=call.id or f"call-{place}",
            )
            for place, call in enumerate(reply.tool_calls)
        ]
        return items

    return ScriptedModel(respond)
