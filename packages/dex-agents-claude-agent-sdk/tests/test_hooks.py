"""Hooks of the user's own are kept, and what they say about a call holds wherever it runs."""

from typing import Any

import pytest
from claude_agent_sdk import HookMatcher, PermissionResultDeny, ToolPermissionContext

from dex_agents.testing import PendingQuestion, approve
from dex_agents.tools import Answer
from support.claude_sessions import Shop, call, results
from support.fake_provider import Reply


async def test_hooks_refuse_change_and_put_to_people_what_would_run_in_a_step(shop: Shop) -> None:
    seen: list[str] = []

    async def before(given: Any, call_id: str | None, context: Any) -> Any:
        seen.append(f"{given['hook_event_name']} {call_id}")
        said: dict[str, Any] = {"hookEventName": "PreToolUse"}
        match given["tool_input"]["x"]:
            case "refuse":
                said.update(permissionDecision="deny", permissionDecisionReason="the hook says no")
            case "change":
                said.update(permissionDecision="allow", updatedInput={"x": "changed"})
            case "ask":
                said.update(permissionDecision="ask")
            case _:
                return {}
        return {"hookSpecificOutput": said}

    async def after(given: Any, call_id: str | None, context: Any) -> Any:
        seen.append(f"{given['hook_event_name']} {call_id}")
        return {}

    asked: list[str] = []

    def decide(question: PendingQuestion) -> Answer:
        assert question.call is not None
        asked.append(question.call.call_id)
        return approve()

    calls = [call("write", f"w{n}", x) for n, x in enumerate(("refuse", "change", "ask", "plain"))]
    shop.provider.script(
        [
            Reply(tool_calls=[*calls, call("read", "r", "1")]),
            Reply(tool_calls=[call("write", "w9", "refuse")]),
            Reply(text="done"),
        ]
    )
    hooks: Any = {"PreToolUse": [HookMatcher(hooks=[before])], "PostToolUse": [HookMatcher(hooks=[after])]}
    session = shop.session(shop.options(hooks=hooks), decide=decide)
    await session.send("go")

    told = results(shop.provider.requests[-1])
    assert told["w0"] == told["w9"] == "the hook says no"
    assert shop.log == ["write changed", "write ask", "write plain", "read 1"]
    assert asked == ["w2"]
    assert {"PreToolUse w0", "PreToolUse w3", "PreToolUse r"} <= set(seen)


@pytest.mark.parametrize("by", ["hook", "callback"])
async def test_what_stops_the_agent_ends_the_turn_and_nothing_runs(shop: Shop, by: str) -> None:
    async def stop(given: Any, call_id: str | None, context: Any) -> Any:
        return {"continue_": False, "stopReason": "enough"}

    async def deny(name: str, arguments: dict[str, Any], context: ToolPermissionContext) -> PermissionResultDeny:
        return PermissionResultDeny(message="enough", interrupt=True)

    calls = [call("write", "w", "1"), call("pay", "p", "1")]
    shop.provider.script([Reply(text="I begin.", tool_calls=calls), Reply(text="hello")])
    hooks: Any = {"PreToolUse": [HookMatcher(matcher="mcp__shop__write", hooks=[stop])]}
    session = shop.session(shop.options(hooks=hooks) if by == "hook" else shop.options(can_use_tool=deny))
    await session.send("go")
    await session.send("hello?")

    assert shop.log == []
    assert len(shop.provider.requests) == 2
    not_run = "not run: the agent was stopped before it"
    assert results(shop.provider.requests[-1]) == {"w": not_run if by == "hook" else "enough", "p": not_run}
