"""Tools that are no functions: shells, patches, MCP servers, the provider's own, and agents; each as in a plain run."""

import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import pytest
from agents import (
    Agent,
    ApplyPatchOperation,
    ApplyPatchResult,
    ApplyPatchTool,
    CustomTool,
    HostedMCPTool,
    LocalShellTool,
    RunContextWrapper,
    ShellCallOutcome,
    ShellCommandOutput,
    ShellCommandRequest,
    ShellResult,
    ShellTool,
    Tool,
    function_tool,
)
from agents.mcp import MCPServer, MCPServerStdio
from openai.types.responses import ResponseApplyPatchToolCall, ResponseCustomToolCall, ResponseFunctionShellToolCall
from openai.types.responses.response_apply_patch_tool_call import OperationCreateFile, OperationUpdateFile
from openai.types.responses.response_function_shell_tool_call import Action
from openai.types.responses.response_output_item import LocalShellCall, LocalShellCallAction, McpApprovalRequest

from dex_agents.errors import ToolDidNotHappen
from dex_agents.runner import KnownTool
from dex_agents.testing import PendingQuestion, TurnPlan, approve, deny
from dex_agents.tools import Answer, Failed, OutcomeUnknown, Returned, ToolEffect
from dex_agents_openai_agents import OpenAIAgentsRunner
from dex_agents_openai_agents.testing import Reply, ScriptedModel, ShownRequest, assistant_message
from support.openai_agents_parity import MODES, Mode, Scenario, check_parity
from support.openai_agents_sessions import call, failed, finished, session_of


def shell_call(call_id: str, *commands: str) -> ResponseFunctionShellToolCall:
    return ResponseFunctionShellToolCall(
        id=f"sh_{call_id}",
        action=Action(commands=list(commands)),
        call_id=call_id,
        status="completed",
        type="shell_call",
    )


def patch_call(call_id: str, operation: Any) -> ResponseApplyPatchToolCall:
    return ResponseApplyPatchToolCall(
        id=f"ap_{call_id}", call_id=call_id, operation=operation, status="completed", type="apply_patch_call"
    )


def update(path: str, diff: str) -> OperationUpdateFile:
    return OperationUpdateFile(path=path, diff=diff, type="update_file")


def custom_call(call_id: str, text: str) -> ResponseCustomToolCall:
    return ResponseCustomToolCall(call_id=call_id, input=text, name="write", type="custom_tool_call", id=call_id)


class Editor:
    def __init__(self, log: list[str]) -> None:
        self.log = log

    def create_file(self, operation: ApplyPatchOperation) -> str:
        self.log.append(f"create {operation.path}")
        return f"created {operation.path}"

    async def update_file(self, operation: ApplyPatchOperation) -> ApplyPatchResult:
        self.log.append(f"update {operation.path} {operation.diff}")
        return ApplyPatchResult(status="failed" if "bad" in operation.path else "completed", output="updated")

    def delete_file(self, operation: ApplyPatchOperation) -> None:
        self.log.append(f"delete {operation.path}")


def native_tools(log: list[str], **options: Any) -> list[Tool]:
    async def run(request: ShellCommandRequest) -> ShellResult | str:
        commands = request.data.action.commands
        log.append(f"shell {commands}")
        if commands[0] == "plain":
            return "only text"
        outcome = ShellCallOutcome(type="exit", exit_code=3)
        return ShellResult(
            output=[ShellCommandOutput(stdout=one, stderr="e", outcome=outcome, command=one) for one in commands],
            max_output_length=1000,
            provider_data={"where": "here"},
        )

    def write(ctx: Any, text: str) -> str:
        log.append(f"write {text}")
        return f"wrote {text}"

    return [
        ShellTool(executor=run, **options),
        ApplyPatchTool(editor=Editor(log), **options),
        CustomTool(name="write", description="Write.", on_invoke_tool=write, **options),
    ]


def operator(model: ScriptedModel, log: list[str]) -> Agent[Any]:
    return Agent(name="operator", model=model, tools=native_tools(log))


def careful(model: ScriptedModel, log: list[str]) -> Agent[Any]:
    """Its shell and its patches ask, and a callback of the agent answers some of them."""

    async def verdict(ctx: RunContextWrapper[Any], item: Any) -> Any:
        log.append("asked")
        return {"approve": "evil" not in str(item.raw_item), "reason": "never"}

    return Agent(name="careful", model=model, tools=native_tools(log, needs_approval=True, on_approval=verdict))


def gated(model: ScriptedModel, log: list[str]) -> Agent[Any]:
    return Agent(name="gated", model=model, tools=native_tools(log, needs_approval=True))


SCENARIOS = [
    Scenario(
        name="shell, patches and a custom tool",
        script=[
            [
                shell_call("a", "ls", "pwd"),
                shell_call("b", "plain"),
                patch_call("c", update("x.py", "+1")),
                patch_call("d", update("x.py", "+1")),
                patch_call("e", OperationCreateFile(path="y.py", diff="+2", type="create_file")),
                patch_call("f", update("bad.py", "+1")),
                custom_call("g", "text"),
            ],
            "done",
        ],
        build=operator,
    ),
    Scenario(
        name="shell, patches and a custom tool that people approve",
        script=[
            [
                shell_call("a", "ls"),
                shell_call("b", "rm"),
                patch_call("c", update("x.py", "+1")),
                patch_call("d", update("y.py", "+1")),
                custom_call("e", "text"),
                custom_call("f", "more"),
            ],
            "done",
        ],
        build=gated,
        answers={one: approve() if one in "ace" else deny("no") for one in "abcdef"},
    ),
    Scenario(
        name="shell, patches and a custom tool that the agent's own callbacks approve",
        script=[
            [
                shell_call("a", "ls"),
                shell_call("b", "evil"),
                patch_call("c", update("x.py", "+1")),
                patch_call("d", update("evil.py", "+1")),
                custom_call("e", "text"),
                custom_call("f", "evil"),
            ],
            "done",
        ],
        build=careful,
    ),
]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda one: one.name)
async def test_the_model_is_shown_the_same(scenario: Scenario, mode: Mode) -> None:
    await check_parity(scenario, mode)


async def test_every_shell_command_and_patch_is_a_step_of_its_own() -> None:
    log: list[str] = []
    calls = [shell_call("a", "ls"), patch_call("b", update("x.py", "+1")), custom_call("c", "text")]
    agent = operator(ScriptedModel([calls, "done"]), log)
    session = session_of(agent)
    finished(await session.send("go"))
    assert session.steps.count("CallSingleAttemptTool") == 3
    assert [(one.request.name, one.request.arguments) for one in session.calls] == [
        ("shell", {"commands": ["ls"]}),
        ("apply_patch", {"diff": "+1", "path": "x.py", "type": "update_file"}),
        ("write", "text"),
    ]


async def test_an_approved_shell_command_and_a_custom_text_run_as_a_person_edited_them() -> None:
    log: list[str] = []
    agent = gated(ScriptedModel([[shell_call("a", "rm -rf /"), custom_call("b", "bad")], "done"]), log)

    def decide(pending: PendingQuestion) -> Answer:
        assert pending.call is not None
        return approve({"commands": ["ls /"]} if pending.call.name == "shell" else "good")

    finished(await session_of(agent, decide=decide).send("go"))
    assert sorted(log) == ["shell ['ls /']", "write good"]


async def test_an_approved_patch_is_applied_as_a_person_edited_it() -> None:
    log: list[str] = []

    def edit(pending: PendingQuestion) -> Answer:
        return approve({"path": "y.py", "diff": "+2"})

    model = ScriptedModel([[patch_call("a", update("x.py", "+1"))], "done"])
    session = session_of(gated(model, log), decide=edit)
    finished(await session.send("go"))
    assert log == ["update y.py +2"]
    assert model.shown[1].results == {"a": "updated"}


@pytest.mark.parametrize("kind", ["shell", "patch", "custom"])
@pytest.mark.parametrize(
    ("error", "settlement"), [(OSError("disk full"), OutcomeUnknown), (ToolDidNotHappen("closed"), Failed)]
)
async def test_what_a_native_tool_raises_is_settled_by_its_effect(
    kind: str, error: Exception, settlement: type
) -> None:
    def fail(*given: Any) -> Any:
        raise error

    class BadEditor(Editor):
        async def update_file(self, operation: ApplyPatchOperation) -> ApplyPatchResult:
            raise error

    tools: dict[str, tuple[Tool, Any]] = {
        "shell": (ShellTool(executor=fail), shell_call("a", "ls")),
        "patch": (ApplyPatchTool(editor=BadEditor([])), patch_call("a", update("x.py", "+1"))),
        "custom": (CustomTool(name="write", description="w", on_invoke_tool=fail), custom_call("a", "t")),
    }
    tool, asked = tools[kind]
    model = ScriptedModel([[asked], "done"])
    session = session_of(Agent(name="a", model=model, tools=[tool]))
    assert finished(await session.send("go")).text == "done"
    assert isinstance(session.calls[0].settlement, settlement)
    assert str(error) in str(model.shown[1].input[-1])


async def test_a_cancelled_turn_answers_every_kind_of_open_call() -> None:
    log: list[str] = []
    calls = [shell_call("a", "ls"), shell_call("b", "ls"), patch_call("c", update("x.py", "+1")), custom_call("d", "t")]

    def script(shown: ShownRequest) -> Reply:
        return "done" if "ended early" in str(shown.input) else calls

    model = ScriptedModel(script)
    session = session_of(operator(model, log))
    failed(await session.send("go", TurnPlan(cancel_after_calls=1)))
    assert finished(await session.send("go on")).text == "done"
    assert set(model.shown[1].results) == {"a", "b", "c", "d"}
    assert str(model.shown[1].input).count("not run: the turn was cancelled") == 3
    assert log == ["shell ['ls']"]


async def test_a_tool_that_cannot_wait_runs_inside_the_model_step() -> None:
    log: list[str] = []

    def execute(request: Any) -> str:
        log.append("shell")
        return "out"

    tool = LocalShellTool(executor=execute)
    action = LocalShellCallAction(command=["ls"], env={}, type="exec")
    asked = LocalShellCall(id="ls_1", action=action, call_id="a", status="completed", type="local_shell_call")
    agent: Agent[Any] = Agent(name="a", model=ScriptedModel([[asked], "done"]), tools=[tool])
    session = session_of(agent)
    assert finished(await session.send("go")).text == "done"
    assert session.steps == ["RunModel", "RunModel"]
    assert log == ["shell"]
    [known] = OpenAIAgentsRunner(agent).describe().tools
    assert known == KnownTool(name="local_shell", owner="a", placement="inside_model_step")


def hosted(model: ScriptedModel, on_approval: Any = None) -> Agent[Any]:
    config: Any = {"type": "mcp", "server_label": "bank", "server_url": "https://x", "require_approval": "always"}
    return Agent(name="a", model=model, tools=[HostedMCPTool(tool_config=config, on_approval_request=on_approval)])


REQUEST = McpApprovalRequest(
    id="r1", arguments='{"euros": 5}', name="pay", server_label="bank", type="mcp_approval_request"
)


def after_approval(shown: ShownRequest) -> Reply:
    answers = [item for item in cast("list[Any]", shown.input) if item.get("type") == "mcp_approval_response"]
    return f"approved: {answers[0]['approve']} {answers[0].get('reason')}" if answers else [REQUEST]


@pytest.mark.parametrize(
    ("answer", "text"), [(approve(), "approved: True None"), (deny("too much"), "approved: False too much")]
)
async def test_an_approval_of_the_providers_own_mcp_tool_is_a_question_of_the_turn(answer: Answer, text: str) -> None:
    asked: list[PendingQuestion] = []

    def decide(pending: PendingQuestion) -> Answer:
        asked.append(pending)
        return answer

    session = session_of(hosted(ScriptedModel(after_approval)), decide=decide)
    assert finished(await session.send("go")).text == text
    [pending] = asked
    assert pending.call is None
    assert pending.question.detail == {"server": "bank", "name": "pay", "arguments": {"euros": 5}}
    assert "CallTool" not in session.steps


async def test_the_agents_own_callback_answers_the_providers_mcp_approvals() -> None:
    def agree(request: Any) -> Any:
        return {"approve": True}

    agent = hosted(ScriptedModel(after_approval), agree)
    session = session_of(agent)
    assert finished(await session.send("go")).text == "approved: True None"


@asynccontextmanager
async def stock(**options: Any) -> AsyncGenerator[MCPServer]:
    arguments: Any = {"command": sys.executable, "args": [str(Path(__file__).with_name("mcp_server.py"))]}
    async with MCPServerStdio(params=arguments, client_session_timeout_seconds=30, **options) as server:
        yield server


async def test_tools_of_an_mcp_server_are_steps_as_in_a_plain_run() -> None:
    async with stock(require_approval={"order": "always", "count": "never"}) as server:

        def build(model: ScriptedModel, log: list[str]) -> Agent[Any]:
            return Agent(name="a", model=model, mcp_servers=[server])

        calls = [call("count", "a", item="lamp"), call("order", "b", item="lamp"), call("order", "c", item="desk")]
        scenario = Scenario(
            name="mcp",
            script=[calls, "done"],
            build=build,
            answers={"b": approve(), "c": deny("too much")},
        )
        trace = await check_parity(scenario, "in one piece")
        assert "7 pieces of lamp" in trace.shown[1].results["a"]
        assert "lamp is ordered" in trace.shown[1].results["b"]
        assert trace.steps.count("CallSingleAttemptTool") == 2


async def test_servers_that_the_application_did_not_connect_are_connected_by_the_runner() -> None:
    arguments: Any = {"command": sys.executable, "args": [str(Path(__file__).with_name("mcp_server.py"))]}
    server = MCPServerStdio(params=arguments, client_session_timeout_seconds=30)
    model = ScriptedModel([[call("count", "a", item="lamp"), call("count", "b", item="desk")], "done"])
    agent: Agent[Any] = Agent(name="a", model=model, mcp_servers=[server])
    runner = OpenAIAgentsRunner(agent, tools={"count": ToolEffect.READ})
    session = session_of(agent)
    session._make_runner = lambda: runner  # pyright: ignore[reportPrivateUsage]
    assert finished(await session.send("go")).text == "done"
    assert "7 pieces of desk" in model.shown[1].results["b"]
    assert all(isinstance(one.settlement, Returned) for one in session.calls)
    await runner.aclose()
    assert cast("Any", server).session is None


def two_deep(log: list[str]) -> tuple[Agent[Any], ScriptedModel]:
    @function_tool(needs_approval=True)
    def pay(euros: int) -> str:
        log.append(f"pay {euros}")
        return f"paid {euros}"

    def cashier_says(shown: ShownRequest) -> Reply:
        if not shown.results:
            return [call("pay", "p1", euros=100)]
        if "with these arguments" in shown.results["p1"] and "p2" not in shown.results:
            return [call("pay", "p2", euros=1)]
        return assistant_messages(shown)

    cashier = Agent(name="cashier", model=ScriptedModel(cashier_says), tools=[pay])
    clerk_script = [[call("ask_cashier", "k1", input="pay")], "clerk done"]
    clerk = Agent(name="clerk", model=ScriptedModel(clerk_script), tools=[cashier.as_tool("ask_cashier", "asks")])
    model = ScriptedModel([[call("ask_clerk", "m1", input="go")], "done"])
    return Agent(name="manager", model=model, tools=[clerk.as_tool("ask_clerk", "asks")]), model


def assistant_messages(shown: ShownRequest) -> Reply:
    return [assistant_message(str(shown.results))]


async def test_an_inner_approval_with_edited_arguments_is_told_to_the_inner_model() -> None:
    log: list[str] = []
    asked: list[str] = []

    def decide(pending: PendingQuestion) -> Answer:
        asked.append(pending.question.id)
        return approve({"euros": 1}) if len(asked) == 1 else approve()

    agent, model = two_deep(log)
    session = session_of(agent, decide=decide)
    assert finished(await session.send("go")).text == "done"
    assert asked == ["cashier/p1", "cashier/p2"]
    assert log == ["pay 1"]
    assert model.shown[1].results == {"m1": "clerk done"}
    assert len(session.calls) == 1


async def test_an_inner_call_that_is_approved_with_its_own_arguments_runs() -> None:
    log: list[str] = []

    def send_back_what_was_shown(_pending: PendingQuestion) -> Answer:
        return approve({"euros": 100})

    agent, _ = two_deep(log)
    session = session_of(agent, decide=send_back_what_was_shown)
    assert finished(await session.send("go")).text == "done"
    assert log == ["pay 100"]


def with_a_question_beside_a_call(shown: ShownRequest) -> Reply:
    if "mcp_approval_response" in str(shown.input):
        return f"{shown.results}"
    return [REQUEST, call("work", "w", x=1)]


def mixed() -> tuple[Agent[Any], ScriptedModel]:
    @function_tool
    def work(x: int) -> str:
        return f"worked {x}"

    model = ScriptedModel(with_a_question_beside_a_call)
    agent = hosted(model)
    return agent.clone(tools=[*agent.tools, work]), model


async def test_a_question_of_the_provider_and_a_call_are_settled_together() -> None:
    agent, model = mixed()
    session = session_of(agent)
    assert finished(await session.send("go")).text == "{'w': 'worked 1'}"
    [answer] = [item for item in cast("list[Any]", model.shown[1].input) if item.get("type") == "mcp_approval_response"]
    assert answer["approve"] is True


async def test_a_cancelled_turn_answers_a_question_of_the_provider_with_no() -> None:
    agent, model = mixed()
    session = session_of(agent)
    failed(await session.send("go", TurnPlan(cancel_after_calls=1)))
    assert finished(await session.send("go on")).text == "{'w': 'worked 1'}"
    answers = [item for item in cast("list[Any]", model.shown[1].input) if item.get("type") == "mcp_approval_response"]
    assert [(one["approve"], one["reason"]) for one in answers] == [(False, "nobody answered: the turn ended early")]
