"""The column of `dex-agents-google-adk`."""

import functools
import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict
from typing import Any, cast

from google.adk.agents.llm_agent import LlmAgent
from google.adk.agents.run_config import RunConfig
from google.adk.apps.app import App, ResumabilityConfig
from google.adk.events.event import Event
from google.adk.models.base_llm import BaseLlm
from google.adk.models.google_llm import Gemini
from google.adk.models.llm_request import LlmRequest
from google.adk.models.llm_response import LlmResponse
from google.adk.plugins.base_plugin import BasePlugin
from google.adk.runners import Runner
from google.adk.sessions.in_memory_session_service import InMemorySessionService
from google.adk.tools.agent_tool import AgentTool
from google.adk.tools.base_tool import BaseTool
from google.adk.tools.function_tool import FunctionTool
from google.adk.tools.long_running_tool import LongRunningFunctionTool
from google.genai import Client, types
from pydantic import JsonValue

from dex_agents.runner import AgentFrameworkRunner
from dex_agents_google_adk import GoogleADKRunner
from dex_agents_google_adk._content import to_user_content
from dex_agents_google_adk._private import REQUEST_CONFIRMATION, STREAMED
from dex_agents_google_adk.testing import Reply as ModelReply
from dex_agents_google_adk.testing import ScriptedLlm, call, show
from parity.column import Column, Difference, Ending, Run, Stage
from parity.compare import check_requests, check_tool_that_raises
from parity.scenario import (
    HELPER_INSTRUCTIONS,
    INSTRUCTIONS,
    OTHER_MODEL,
    Delegate,
    HandOff,
    Scenario,
    Structured,
)
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
from support.side_by_side import as_blocks


def _check_repeated_ids(plain: Run, durable: Run) -> None:
    _check_same_but(plain, durable, ('"id": "a-2"', '"id": "a"'), ('"id": "a-3"', '"id": "a"'), without="results")
    # The scripted model is shown no ids in its contents.
    assert '"a-3"' in json.dumps(durable.requests[-1])
    assert '"a-2"' not in json.dumps(plain.requests)


def _check_reason(plain: Run, durable: Run) -> None:
    assert "This tool call is rejected. Reason: too much" in json.dumps(durable.requests)
    _check_same_but(plain, durable, (" Reason: too much", ""))


def _check_other_reason(plain: Run, durable: Run) -> None:
    assert "This tool call is rejected. Reason: not today" in json.dumps(durable.requests)
    _check_same_but(plain, durable, (" Reason: not today", ""))


def _check_edited_arguments(plain: Run, durable: Run) -> None:
    assert (plain.executed, durable.executed) == (['pay {"euros": 1}'], ['pay {"euros": 100}'])
    _check_same_but(plain, durable, ("paid 100", "paid 1"), executed=False)


def _check_approvals(plain: Run, durable: Run) -> None:
    assert [line.replace("30", "3") for line in durable.executed] == plain.executed
    assert 'pay {"euros": 30}' in durable.executed
    assert "Reason: too much" in json.dumps(durable.requests)
    _check_same_but(plain, durable, ("paid 30", "paid 3"), (" Reason: too much", ""), executed=False)


def _check_order_of_a_late_answer(plain: Run, durable: Run) -> None:
    check_requests(plain, durable, count=1)
    [wanted, got] = (cast("dict[str, Any]", run.requests[1]) for run in (plain, durable))
    parts = got.get("body", got)["contents"][-1]["parts"]
    assert len(parts) == 2
    # The same two results, the other way round.
    parts.reverse()
    assert got == wanted
    assert (durable.endings, durable.executed, durable.usage) == (plain.endings, plain.executed, plain.usage)


def _check_same_but(
    plain: Run, durable: Run, *replaced: tuple[str, str], without: str | None = None, executed: bool = True
) -> None:
    """Check that nothing differs but these texts of the requests, written as in the session and as in the plain run."""
    text = json.dumps(durable.requests)
    for ours, theirs in replaced:
        text = text.replace(ours, theirs)
    got, wanted = json.loads(text), json.loads(json.dumps(plain.requests))
    for request in (*got, *wanted):
        request.pop(without, None)
    check_requests(Run(wanted), Run(got))
    assert (durable.endings, durable.usage) == (plain.endings, plain.usage)
    if executed:
        assert durable.executed == plain.executed


class GoogleADKColumn(Column):
    """Google ADK: a `Runner` with in-memory sessions, answered by function responses, and `GoogleADKRunner`."""

    def __init__(self) -> None:
        self.adapter = "google-adk"
        self.paths = ("scripted", "gemini")
        self.warnings = (
            # AgentTool itself uses an argument of its runner that ADK calls deprecated.
            "ignore:The `plugins` argument is deprecated:DeprecationWarning",
            "ignore:.*EXPERIMENTAL.*:UserWarning",
        )
        self.skipped = {
            "another-try-too-often": "ADK counts no retries by itself: the model may call a tool again for ever",
            "arguments-that-are-no-json": "arguments of an ADK call are an object, whatever the model wrote",
        }
        self.differences = {
            "call-ids-that-repeat": Difference(
                "a call id that repeats gets a number behind it; a plain run keeps it", _check_repeated_ids
            ),
            "a-tool-raises": Difference(
                "a tool's exception aborts a plain run; in a session the call is settled by its effect",
                check_tool_that_raises,
            ),
            "approval-denied": Difference("the model is told why a call was refused", _check_reason),
            "a-tool-asks-for-approval-itself": Difference(
                "the model is told why a call was refused", _check_other_reason
            ),
            "approval-with-other-arguments": Difference(
                "people can approve a call with other arguments, which ADK cannot do", _check_edited_arguments
            ),
            "approvals-beside-other-calls": Difference(
                "people can approve a call with other arguments and say why they refuse one", _check_approvals
            ),
            "an-answer-from-outside": Difference(
                "results stand in the order of the calls; a plain run puts those from outside last",
                _check_order_of_a_late_answer,
            ),
        }

    def script(self, scenario: Scenario) -> Sequence[Reply]:
        # Only an agent with tools answers by a call; one without gets a response schema.
        by_call = bool(scenario.tools)
        return [
            Reply(text=json.dumps(dict(said.value))) if isinstance(said, Structured) and not by_call else reply
            for said, reply in zip(scenario.says, super().script(scenario), strict=True)
        ]

    def reply(self, said: Structured | Delegate | HandOff) -> Reply:
        match said:
            case Structured(value=value, beside=beside, call_id=call_id):
                return Reply(tool_calls=[*beside, ToolCall("set_model_response", value, call_id)])
            case Delegate(question=question, call_id=call_id):
                return Reply(tool_calls=[ToolCall("ask_helper", {"request": question}, call_id)])
            case HandOff(call_id=call_id):
                return Reply(tool_calls=[ToolCall("transfer_to_agent", {"agent_name": "helper"}, call_id)])

    async def run_plainly(self, stage: Stage) -> Run:
        scenario = stage.scenario
        run, watcher = Run(requests=[]), _Watcher(cast("str | None", scenario.settings.get("instructions")))
        async with _open_client(stage) as client:
            name = "other" if scenario.settings.get("model") == OTHER_MODEL else "main"
            app = _app(stage, _model(stage, client, name))
            app.plugins = [watcher]
            sessions = InMemorySessionService()
            await sessions.create_session(app_name=app.name, user_id="user", session_id="parity-1")
            runner = Runner(app=app, session_service=sessions)
            for turn in scenario.turns:
                run.endings.append(await _run_turn(stage, runner, to_user_content(as_blocks(turn))))
        run.usage = (watcher.requests, watcher.input_tokens, watcher.output_tokens)
        return run

    @asynccontextmanager
    async def open_runner(self, stage: Stage) -> AsyncGenerator[Callable[[], AgentFrameworkRunner]]:
        async with _open_client(stage) as client:

            def make_runner() -> AgentFrameworkRunner:
                return GoogleADKRunner(
                    _app(stage, _model(stage, client, "main")),
                    tools=POLICIES,
                    models={OTHER_MODEL: _model(stage, client, "other")},
                    run_config=_config(stage),
                    streaming=stage.scenario.streaming,
                )

            yield make_runner


async def _run_turn(stage: Stage, runner: Runner, message: types.Content) -> Ending:
    """Run ADK again and again, until nobody waits for an answer any more."""
    config = _config(stage)
    if stage.scenario.streaming:
        config.streaming_mode = STREAMED
    output: JsonValue = None
    given: types.Content | None = message
    while given is not None:
        waiting: list[types.FunctionCall] = []
        try:
            async for event in runner.run_async(
                user_id="user", session_id="parity-1", new_message=given, run_config=config
            ):
                if event.partial:
                    continue
                waiting += [one for one in event.get_function_calls() if one.id in (event.long_running_tool_ids or ())]
                output = _output(stage, event) if event.is_final_response() and _text(event) else output
        except Exception as error:  # noqa: BLE001  whatever ends the turn is compared
            return Ending(error=str(error))
        parts = [_answer(stage, one) for one in waiting]
        given = types.Content(role="user", parts=parts) if parts else None
    return Ending(output=output)


def _text(event: Event) -> str:
    parts = event.content.parts if event.content else None
    return "".join(part.text for part in parts or [] if part.text and not part.thought)


def _output(stage: Stage, event: Event) -> JsonValue:
    return _text(event) if stage.scenario.output is None else json.loads(_text(event))


def _answer(stage: Stage, asked: types.FunctionCall) -> types.Part:
    """Say what people say, in the way in which ADK wants to be told."""
    arguments = asked.args or {}
    if asked.name == REQUEST_CONFIRMATION:
        original = arguments["originalFunctionCall"]
        response: Any = {"confirmed": stage.scenario.decision(original["name"], original["args"]).approved}
    else:
        response = stage.scenario.decision(asked.name or "", arguments).value
    return types.Part(function_response=types.FunctionResponse(id=asked.id, name=asked.name, response=response))


def _config(stage: Stage) -> RunConfig:
    limit = stage.scenario.request_limit
    return RunConfig() if limit is None else RunConfig(max_llm_calls=limit)


def _app(stage: Stage, model: BaseLlm) -> App:
    scenario = stage.scenario
    tools: list[Any] = [_tool(name, function) for name, function in stage.toolbox.functions(scenario.tools).items()]
    if scenario.helper == "tool":
        tools.append(AgentTool(_helper("ask_helper", model)))
    agent = LlmAgent(
        name="parity",
        model=model,
        instruction=INSTRUCTIONS,
        tools=tools,
        output_schema=scenario.output,
        sub_agents=[_helper("helper", model)] if scenario.helper == "handoff" else [],
    )
    # Only an app that can be resumed pauses at a call that is answered from outside.
    pauses = bool(ANSWERED_OUTSIDE & set(scenario.tools))
    return App(
        name="parity", root_agent=agent, resumability_config=ResumabilityConfig(is_resumable=True) if pauses else None
    )


def _helper(name: str, model: BaseLlm) -> LlmAgent:
    return LlmAgent(name=name, description="Helps.", model=model, instruction=HELPER_INSTRUCTIONS)


def _tool(name: str, function: Callable[..., Awaitable[Any]]) -> BaseTool:
    """Give a tool the framework's words for what may happen in it."""

    @functools.wraps(function)
    async def run(**arguments: Any) -> Any:
        if name in ANSWERED_OUTSIDE:
            return None
        try:
            result = await function(**arguments)
        except (TryAgain, ToolSaysNo) as told:
            return {"error": str(told)}
        if isinstance(result, Image):
            return types.Part(inline_data=types.Blob(data=result.data, mime_type=result.media_type))
        return result

    def asks(**arguments: Any) -> bool:
        return asks_for_approval(name, arguments)

    if name in ANSWERED_OUTSIDE:
        return LongRunningFunctionTool(run)
    return FunctionTool(run, require_confirmation=True if name in APPROVED_BEFORE else asks)


class _Watcher(BasePlugin):
    """Counts model calls, those of agents inside tools too, and gives every one more instructions."""

    def __init__(self, instructions: str | None) -> None:
        super().__init__(name="parity_watcher")
        self._instructions = instructions
        self.requests = self.input_tokens = self.output_tokens = 0

    async def before_model_callback(self, *, callback_context: Any, llm_request: LlmRequest) -> None:
        self.requests += 1
        if self._instructions is not None:
            llm_request.append_instructions([self._instructions])

    async def after_model_callback(self, *, callback_context: Any, llm_response: LlmResponse) -> None:
        used = llm_response.usage_metadata
        if used is not None and not llm_response.partial:
            self.input_tokens += used.prompt_token_count or 0
            self.output_tokens += (used.candidates_token_count or 0) + (used.thoughts_token_count or 0)


@asynccontextmanager
async def _open_client(stage: Stage) -> AsyncGenerator[Client]:
    client = Client(api_key="none", http_options=types.HttpOptions(base_url=stage.provider.gemini_base_url))
    try:
        yield client
    finally:
        await client.aio.aclose()
        client.close()


def _model(stage: Stage, client: Client, name: str) -> BaseLlm:
    return Gemini(model=f"gemini-{name}", client=client) if stage.path == "gemini" else _scripted_model(stage, name)


def _scripted_model(stage: Stage, name: str) -> BaseLlm:
    def respond(request: LlmRequest) -> ModelReply:
        stage.shown.append(cast("JsonValue", asdict(show(name, request))))
        said = stage.next_reply()
        parts: list[types.Part] = []
        if said.reasoning:
            parts.append(types.Part(text=said.reasoning, thought=True, thought_signature=b"signed"))
        if said.text:
            parts.append(types.Part(text=said.text))
        for asked in said.tool_calls:
            assert not isinstance(asked.arguments, str), "a call of ADK holds its arguments as an object"
            parts.append(call(asked.name, dict(asked.arguments), asked.id))
        return parts

    return ScriptedLlm(respond, model=name)
