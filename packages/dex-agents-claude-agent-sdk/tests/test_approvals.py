"""Approvals, denials, failures and unknown outcomes; tools of the CLI, which run only when somebody said so."""

from typing import Any

import pytest
from claude_agent_sdk import (
    PermissionResultAllow,
    PermissionResultDeny,
    ToolPermissionContext,
    create_sdk_mcp_server,
    tool,
)
from pydantic import JsonValue

from dex_agents import ToolPolicy
from dex_agents.errors import ConfigurationError, ToolDidNotHappen
from dex_agents.testing import Decide, PendingQuestion, approve, deny
from dex_agents.tools import Answer, ToolEffect, current_tool_call
from dex_agents_claude_agent_sdk import ClaudeAgentRunner
from support.claude_sessions import Shop, call, results, shown
from support.fake_provider import Reply, ToolCall

NEEDS_PEOPLE = ToolPolicy(effect=ToolEffect.NON_IDEMPOTENT_WRITE, approval=True)


def bash(command: str, call_id: str) -> ToolCall:
    return ToolCall("Bash", {"command": command, "description": "test"}, call_id)


def answers(**by_call: Answer) -> Decide:
    """Answer each call as planned; nobody else is asked."""

    def find(asked: PendingQuestion) -> Answer:
        assert asked.call is not None
        return by_call[asked.call.call_id]

    return find


async def test_own_tools_are_approved_edited_denied_lost_and_raise_and_the_model_hears_how_each_ended(
    shop: Shop,
) -> None:
    asked = [call("pay", "p1", "1"), call("pay", "p2", "2"), call("pay", "p3", "3"), call("write", "w1", "bad")]
    shop.provider.script([Reply(tool_calls=asked), Reply(tool_calls=[call("write", "w2", "9")]), Reply(text="done")])
    session = shop.session(decide=answers(p1=approve(), p2=approve({"x": "20"}), p3=deny("too much")))
    await session.send("go")

    told = results(shop.provider.requests[-1])
    assert told["p1"] == "pay 1 is done"
    assert told["p2"] == "pay 20 is done"
    assert told["p3"] == "too much"
    assert "unknown" in told["w1"]
    assert "no line to the shop" in told["w1"]
    assert shop.log == ["pay 1", "pay 20", "write bad", "write 9"]
    # What the model asked for stays what it asked for.
    assert ("assistant", {"type": "tool_use", "id": "p2", "name": "mcp__shop__pay", "input": {"x": "2"}}) in shown(
        shop.provider.requests[-1]
    )


async def test_a_write_that_did_not_happen_may_be_tried_again_and_finds_its_key(shop: Shop) -> None:
    keys: list[str] = []

    @tool("send", "Send it.", {"to": str})
    async def send(arguments: dict[str, Any]) -> dict[str, Any]:
        running = current_tool_call()
        assert running is not None
        keys.append(running.idempotency_key)
        if arguments["to"] == "nobody":
            raise ToolDidNotHappen("nobody is there")
        image = {"type": "image", "data": "aGk=", "mimeType": "image/png"}
        return {"content": [{"type": "text", "text": "sent"}, image]}

    agent = shop.options(mcp_servers={"post office": create_sdk_mcp_server("post", tools=[send])})
    name = "mcp__post_office__send"
    shop.provider.script(
        [
            Reply(tool_calls=[ToolCall(name, {"to": "nobody"}, "s1")]),
            Reply(tool_calls=[ToolCall(name, {"to": "ann"}, "s2")]),
            Reply(text="done"),
        ]
    )
    session = shop.session(agent)
    await session.send("go")

    last = shop.provider.requests[-1]
    assert "nobody is there" in results(last)["s1"]
    [sent] = [block for _, block in shown(last) if block.get("tool_use_id") == "s2"]
    source = {"type": "base64", "media_type": "image/png", "data": "aGk="}
    assert sent["content"] == [{"type": "text", "text": "sent"}, {"type": "image", "source": source}]
    assert keys == ["session-1/turn-1/call-1", "session-1/turn-1/call-2"]


async def test_tools_of_the_cli_run_by_policy_by_rule_or_by_people_and_never_otherwise(shop: Shop) -> None:
    kept = shop.directory / "kept"
    kept.write_text("hello\n", encoding="utf-8")
    first = [
        ToolCall("Read", {"file_path": str(kept)}, "by-policy"),
        ToolCall("Glob", {"pattern": "*"}, "by-nobody"),
        bash("echo ruled", "by-rule"),
    ]
    edit = {"file_path": str(kept), "old_string": "hello", "new_string": "bye"}
    second = [
        ToolCall("Edit", edit, "approved"),
        ToolCall("Write", {"file_path": str(shop.directory / "denied"), "content": "x"}, "denied"),
        ToolCall("Write", {"file_path": str(shop.directory / "asked"), "content": "x"}, "edited"),
    ]
    shop.provider.script([Reply(tool_calls=first), Reply(tool_calls=second), Reply(text="done")])
    other: dict[str, JsonValue] = {"file_path": str(shop.directory / "edited"), "content": "by a person"}
    session = shop.session(
        shop.options(tools=["Bash", "Edit", "Glob", "Read", "Write"], allowed_tools=["Bash(echo:*)"]),
        tools={"Read": ToolEffect.READ, "Edit": NEEDS_PEOPLE, "Write": NEEDS_PEOPLE},
        decide=answers(approved=approve(), denied=deny("not that file"), edited=approve(other)),
    )
    await session.send("go")

    told = results(shop.provider.requests[-1])
    assert "hello" in told["by-policy"]
    assert "Glob is not allowed here" in told["by-nobody"]
    assert told["by-rule"] == "ruled"
    # The CLI that runs it alone knows what the conversation has read, without which it refuses to edit.
    assert "has been updated" in told["approved"]
    assert told["denied"] == "not that file"
    assert kept.read_text(encoding="utf-8") == "bye\n"
    assert {path.name for path in shop.directory.iterdir()} == {"kept", "edited"}
    assert (shop.directory / "edited").read_text(encoding="utf-8") == "by a person"
    assert [each.request.name for each in session.calls] == ["Edit", "Write", "Write"]


async def test_a_write_of_the_cli_that_a_policy_names_is_a_step_of_its_own_without_people(shop: Shop) -> None:
    shop.provider.script([Reply(tool_calls=[bash("echo paid >> ran", "b1")]), Reply(text="done")])
    session = shop.session(
        shop.options(tools=["Bash"], allowed_tools=["Bash"]), tools={"Bash": ToolEffect.NON_IDEMPOTENT_WRITE}
    )
    await session.send("go")

    assert [(each.request.name, each.request.policy.effect) for each in session.calls] == [
        ("Bash", ToolEffect.NON_IDEMPOTENT_WRITE)
    ]
    assert (shop.directory / "ran").read_text(encoding="utf-8") == "paid\n"


@pytest.mark.parametrize("effect", [ToolEffect.IDEMPOTENT_WRITE, ToolEffect.UNCLASSIFIED])
async def test_a_write_that_only_a_segment_can_run_is_refused_when_the_agent_is_built(
    shop: Shop, effect: ToolEffect
) -> None:
    options = shop.options(tools=["Agent", "Bash"])
    with pytest.raises(ConfigurationError, match=r"policy of Agent .*give it ToolEffect\.READ .*or approval=True"):
        ClaudeAgentRunner(options, tools={"Agent": effect, "Bash": effect})
    preset = shop.options(tools={"type": "preset", "preset": "claude_code"})
    with pytest.raises(ConfigurationError, match=r"policy of WebFetch .*give it ToolEffect\.READ"):
        ClaudeAgentRunner(preset, tools={"WebFetch": effect, "Bash": effect, "write": effect})


@pytest.mark.filterwarnings("ignore::claude_agent_sdk.CanUseToolShadowedWarning")
async def test_the_agents_own_can_use_tool_decides_wherever_people_do_not(shop: Shop) -> None:
    asked: list[str | None] = []

    async def can_use_tool(
        name: str, arguments: dict[str, Any], context: ToolPermissionContext
    ) -> PermissionResultAllow | PermissionResultDeny:
        asked.append(context.tool_use_id)
        match arguments.get("x"):
            case "refuse":
                return PermissionResultDeny(message="the callback says no")
            case "change":
                return PermissionResultAllow(updated_input={"x": "changed"})
            case "raise":
                raise ValueError("a secret")
            case _:
                return PermissionResultAllow()

    writes = [call("write", f"w{n}", x) for n, x in enumerate(("refuse", "change", "raise", "plain"))]
    calls = [call("read", "r1", "refuse"), call("read", "r2", "1"), *writes, bash("echo ran > ran", "b")]
    shop.provider.script([Reply(tool_calls=[*calls, call("pay", "p", "refuse")]), Reply(text="done")])
    agent = shop.options(tools=["Bash"], allowed_tools=["Bash"], can_use_tool=can_use_tool)
    session = shop.session(agent, tools={"Bash": ToolEffect.NON_IDEMPOTENT_WRITE}, decide=lambda question: approve())
    await session.send("go")

    told = results(shop.provider.requests[-1])
    assert told["r1"] == told["w0"] == "the callback says no"
    assert told["w2"] == "can_use_tool failed: ValueError"
    assert shop.log == ["read 1", "write changed", "write plain", "pay refuse"]
    # Neither about what a rule allows, nor about what people decide.
    assert asked == ["r1", "r2", "w0", "w1", "w2", "w3"]
    assert (shop.directory / "ran").exists()


async def test_an_edited_call_runs_in_the_form_that_the_cli_gives_it(shop: Shop) -> None:
    kept = shop.directory / "kept"
    kept.write_text("one one\n", encoding="utf-8")
    asked = {"file_path": str(kept), "old_string": "one", "new_string": "two", "replace_all": True}
    calls = [ToolCall("Edit", asked, "e1"), bash("echo no > ran", "b1")]
    shop.provider.script(
        [
            Reply(tool_calls=[ToolCall("Read", {"file_path": str(kept)}, "r1")]),
            Reply(tool_calls=calls),
            Reply(text="ok"),
        ]
    )
    # The CLI adds `replace_all` to the one, and takes the `cd` from the other.
    edited: dict[str, JsonValue] = {"file_path": str(kept), "old_string": "one one", "new_string": "three"}
    command: dict[str, JsonValue] = {"command": f"cd {shop.directory} && echo yes > ran", "timeout": "5000"}
    session = shop.session(
        shop.options(tools=["Bash", "Edit", "Read"]),
        tools={"Read": ToolEffect.READ, "Edit": NEEDS_PEOPLE, "Bash": NEEDS_PEOPLE},
        decide=answers(e1=approve(edited), b1=approve(command)),
    )
    await session.send("go")

    assert kept.read_text(encoding="utf-8") == "three\n"
    assert (shop.directory / "ran").read_text(encoding="utf-8") == "yes\n"


async def test_a_rejected_command_never_runs_although_a_rule_allows_it_and_an_approved_one_runs_once_without_secrets(
    shop: Shop,
) -> None:
    shop.provider.script(
        [
            Reply(tool_calls=[bash("echo no >> ran", "no"), bash("echo yes >> ran; env", "yes")]),
            Reply(text="done"),
            Reply(text="and on"),
        ]
    )
    session = shop.session(
        shop.options(tools=["Bash"], allowed_tools=["Bash"]),
        tools={"Bash": NEEDS_PEOPLE},
        decide=answers(no=deny("rejected by ann"), yes=approve()),
    )
    await session.send("go")
    await session.send("go on")

    told = results(shop.provider.requests[-1])
    assert (shop.directory / "ran").read_text(encoding="utf-8") == "yes\n"
    assert told["no"] == "rejected by ann"
    assert "not-a-secret" not in told["yes"]
    assert len(shop.provider.requests) == 3
