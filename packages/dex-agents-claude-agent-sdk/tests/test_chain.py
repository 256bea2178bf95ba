"""Whole conversations through the real CLI: every request exact, every write once. Each release runs these."""

from typing import Any

import pytest

from dex_agents.messages import CallBlock, ResultBlock
from dex_agents.testing import TurnPlan
from dex_agents.tools import ToolEffect, ToolPolicies
from support.claude_sessions import Shop, call, results, said_by_user, shown
from support.fake_provider import Reply, ToolCall

NAMES = {"r": "read", "w": "write"}


def batch(shape: str, tag: str, *, text: str = "") -> Reply:
    calls = [call(NAMES[letter], f"{tag}{place}", f"{tag}{place}") for place, letter in enumerate(shape)]
    return Reply(reasoning=f"thinking of {tag}", text=text, tool_calls=calls, chunk_delay_seconds=0.002)


def exchange(reply: Reply) -> list[tuple[str, Any]]:
    """What later requests must show of a reply, and of the results of its calls."""
    asked: list[tuple[str, Any]] = []
    if reply.reasoning:
        thinking = {"type": "thinking", "thinking": reply.reasoning, "signature": "ZmFrZS1zaWduYXR1cmU="}
        asked.append(("assistant", thinking))
    if reply.text:
        asked.append(("assistant", {"type": "text", "text": reply.text}))
    told: list[tuple[str, Any]] = []
    for each in reply.tool_calls:
        asked.append(("assistant", {"type": "tool_use", "id": each.id, "name": each.name, "input": each.arguments}))
        text = f"{each.name.removeprefix('mcp__shop__')} {dict(each.arguments)['x']} is done"  # pyright: ignore
        content = [{"type": "text", "text": text}]
        told.append(("user", {"type": "tool_result", "tool_use_id": each.id, "content": content}))
    return asked + told


async def test_three_turns_of_reads_and_writes_in_every_order_show_the_model_exactly_its_history(shop: Shop) -> None:
    turns = {
        "one": [batch("rwwr", "a"), batch("w", "b", text="Now this."), batch("rw", "c"), Reply(text="first")],
        "two": [batch("r", "d"), batch("wr", "e"), batch("ww", "f"), Reply(text="second")],
        "three": [batch("wrw", "g"), Reply(text="third")],
    }
    shop.provider.script([reply for replies in turns.values() for reply in replies])
    session = shop.session()
    answers = [(await session.send(text)) for text in turns]

    assert [getattr(answer, "text", answer) for answer in answers] == ["first", "second", "third"]
    wanted: list[tuple[str, Any]] = []
    requests = iter(shop.provider.requests)
    for text, replies in turns.items():
        wanted.append(("user", {"type": "text", "text": text}))
        for reply in replies:
            # A plain run's thinking of earlier turns is left out by nobody here: this model keeps all of it.
            assert shown(next(requests)) == wanted
            wanted += exchange(reply)
    calls = [each for replies in turns.values() for reply in replies for each in reply.tool_calls]
    # In the model's order, the reads behind a write too.
    assert shop.log == [f"{each.name[11:]} {dict(each.arguments)['x']}" for each in calls]  # pyright: ignore
    logged = [block for message in session.messages for block in message.blocks]
    assert [block.call_id for block in logged if isinstance(block, CallBlock)] == [each.id for each in calls]
    assert sorted(block.call_id for block in logged if isinstance(block, ResultBlock)) == sorted(
        each.id or "" for each in calls
    )


async def test_calls_that_the_cli_settles_itself_may_stand_before_and_between_writes(shop: Shop) -> None:
    unknown = [ToolCall("Nothing", {"x": "1"}, "u1"), ToolCall("Bash", {"command": "touch ran"}, "u2")]
    shop.provider.script(
        [
            Reply(tool_calls=[unknown[0], call("write", "w1", "1"), unknown[1], call("write", "w2", "2")]),
            Reply(tool_calls=[ToolCall("mcp__shop__write", {"y": "1"}, "w3"), call("read", "r1", "1")]),
            Reply(text="done"),
        ]
    )
    session = shop.session()
    await session.send("go")

    told = results(shop.provider.requests[-1])
    assert [*told] == ["u1", "w1", "u2", "w2", "w3", "r1"]
    assert "No such tool available: Nothing" in told["u1"]
    assert "No such tool available: Bash" in told["u2"]
    assert "required" in told["w3"]
    assert sorted(shop.log) == ["read 1", "write 1", "write 2"]
    assert not (shop.directory / "ran").exists()


async def test_reads_behind_a_write_run_behind_it_unless_only_a_rule_allows_them(
    shop: Shop, caplog: pytest.LogCaptureFixture
) -> None:
    kept = str(shop.directory / "kept")
    calls = [
        call("read", "r1", "1"),
        ToolCall("Write", {"file_path": kept, "content": "new"}, "c1"),
        ToolCall("Read", {"file_path": kept}, "c2"),
        ToolCall("Glob", {"pattern": "kept"}, "c3"),
        call("read", "r2", "2"),
    ]
    shop.provider.script([Reply(tool_calls=calls), Reply(text="done")])
    tools: ToolPolicies = {"Read": ToolEffect.READ, "Write": ToolEffect.IDEMPOTENT_WRITE}
    agent = shop.options(tools=["Read", "Write", "Glob", "Raed"], allowed_tools=["Glob"])
    session = shop.session(agent, tools=tools)
    await session.send("go")

    told = results(shop.provider.requests[-1])
    assert [*told] == ["r1", "c1", "c2", "c3", "r2"]
    assert "new" in told["c2"]
    assert "No files found" in told["c3"]
    assert [(each.request.call_id, each.request.after) for each in session.calls] == [
        ("c1", ()),
        ("c2", (0,)),
        ("r2", (1,)),
    ]
    # The CLI tells what it has; a name that it does not know is said once.
    assert [line for line in caplog.messages if "has no tool" in line] == [
        line for line in caplog.messages if "has no tool 'Raed', which the agent lists" in line
    ]
    assert sum("Raed" in line for line in caplog.messages) == 1


@pytest.mark.parametrize("ending", ["cancelled", "failed"])
async def test_a_turn_that_ends_early_leaves_a_history_that_is_valid_and_true(shop: Shop, ending: str) -> None:
    shop.provider.script([batch("rww", "a"), Reply(text="I see."), Reply(text="Yes.")])
    plan = TurnPlan(cancel_after_calls=1) if ending == "cancelled" else TurnPlan(fail_model_step=2)
    session = shop.session()
    await session.send("go", plan=plan)
    await session.send("what happened?")
    await session.send("really?")

    request = shop.provider.requests[-1]
    assert [*results(request)] == ["a0", "a1", "a2"]
    assert results(request)["a1"] == "write a1 is done"
    assert ("not run" in results(request)["a2"]) == (ending == "cancelled")
    assert said_by_user(request)[-2:] == ["what happened?", "really?"]
    assert shop.log.count("write a1") == 1
