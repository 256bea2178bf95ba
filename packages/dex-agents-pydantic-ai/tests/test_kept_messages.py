"""Messages that a process keeps: each Step reads what is stored, whatever an agent did to the objects it was given."""

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pydantic import JsonValue
from pydantic_ai import Agent, RunContext
from pydantic_ai.capabilities import Hooks
from pydantic_ai.messages import (
    BinaryContent,
    ModelMessage,
    ModelRequest,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models import ModelRequestContext
from pydantic_ai.usage import RequestUsage

from dex_agents import AgentHost
from dex_agents.runner import FrameworkState, KeptObject
from dex_agents_pydantic_ai import session_flow
from dex_agents_pydantic_ai._kept_messages import KeptMessage
from dex_agents_pydantic_ai._state import SessionState, read_state, write_state
from dex_agents_pydantic_ai.testing import ScriptedModel

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def history() -> list[ModelMessage]:
    return [
        ModelRequest(parts=[UserPromptPart(content=["look", "here"], timestamp=NOW)], run_id="s/turn-1"),
        ModelResponse(
            parts=[TextPart("yes"), ToolCallPart("work", {"deep": [{"x": 1}]}, "a")],
            usage=RequestUsage(input_tokens=3, details={"cached": 1}),
            timestamp=NOW,
            run_id="s/turn-1",
        ),
        ModelRequest(parts=[ToolReturnPart("work", {"y": None}, "a", timestamp=NOW)], run_id="s/turn-1"),
        ModelRequest(parts=[UserPromptPart(content="next", timestamp=NOW)], run_id="s/turn-2"),
    ]


def stored(messages: list[JsonValue]) -> FrameworkState:
    """Return a state as a session gives it to the next Step."""
    kept = [message if isinstance(message, KeptObject) else KeptObject(message) for message in messages]  # pyright: ignore[reportArgumentType]
    state = write_state(SessionState(messages=[]))
    return FrameworkState.model_construct(
        framework=state.framework,
        framework_version=state.framework_version,
        format=state.format,
        value={"messages": kept, "turn": None},
    )


def messages_in(state: FrameworkState) -> list[Any]:
    value: Any = state.value
    return value["messages"]


def rename(messages: list[Any]) -> None:
    messages[1].parts[1].tool_name = "other"


def add_text(messages: list[Any]) -> None:
    messages[0].parts.append(UserPromptPart(content="more", timestamp=NOW))


def change_list(messages: list[Any]) -> None:
    messages[0].parts[0].content[0] = "away"


def change_argument(messages: list[Any]) -> None:
    messages[1].parts[1].args["deep"][0]["x"] = 2


def change_details(messages: list[Any]) -> None:
    messages[1].usage.details["cached"] = 2


def change_result(messages: list[Any]) -> None:
    messages[2].parts[0].content["y"] = 1


def put_another_part(messages: list[Any]) -> None:
    messages[1].parts[0] = TextPart("no")


@pytest.mark.parametrize(
    "change", [rename, add_text, change_list, change_argument, change_details, change_result, put_another_part]
)
def test_a_change_of_a_message_is_stored_and_is_not_met_by_a_step_that_reads_what_was_stored_before(
    change: Callable[[list[Any]], None],
) -> None:
    first = stored(messages_in(write_state(SessionState(messages=history()))))
    read = read_state(first)
    assert read_state(first).messages[1] is read.messages[1], "nothing is read twice"
    assert [one is other for one, other in zip(messages_in(write_state(read)), messages_in(first), strict=True)] == [
        True
    ] * 4
    change(read.messages)

    written = write_state(read)

    changed = [
        index
        for index, (new, old) in enumerate(zip(messages_in(written), messages_in(first), strict=True))
        if new is not old
    ]
    assert len(changed) == 1
    assert read_state(stored(messages_in(written))).messages == read.messages
    assert read_state(first).messages == history(), "another attempt of the Step"


def test_a_history_is_read_on_where_the_last_step_left_it_and_whole_where_it_is_another_one() -> None:
    first = stored(messages_in(write_state(SessionState(messages=history()))))
    read = read_state(first)
    read.messages.append(ModelResponse(parts=[TextPart("more")], timestamp=NOW, run_id="s/turn-2"))
    longer = stored(messages_in(write_state(read)))

    again = read_state(longer)

    assert [a is b for a, b in zip(again.messages, read.messages, strict=True)] == [True] * 4 + [False]
    assert len(again.kept.kept) == 5
    shorter = stored(messages_in(longer)[2:])
    assert read_state(shorter).messages == again.messages[2:]
    assert [a is b for a, b in zip(read_state(shorter).messages, again.messages[2:], strict=True)] == [True] * 3
    doubled = stored([*messages_in(longer), *messages_in(longer)])
    twice = read_state(doubled)
    assert twice.messages == again.messages * 2
    assert len({id(message) for message in twice.messages}) == 10, "two messages are never one object"
    assert messages_in(write_state(twice)) == messages_in(doubled)


def test_a_history_that_has_grown_much_is_made_again_as_a_whole_and_is_the_same() -> None:
    state = stored(messages_in(write_state(SessionState(messages=history()))))
    first = read_state(state)
    made_again = 0
    for number in range(3, 100):
        read = read_state(state)
        made_again += read.messages[0] is not first.messages[0]
        first = read
        read.messages.append(ModelResponse(parts=[TextPart(str(number))], timestamp=NOW, run_id=f"s/turn-{number}"))
        state = stored(messages_in(write_state(read)))

    texts: list[Any] = read_state(state).messages[4:]
    assert [message.parts[0].content for message in texts] == [str(number) for number in range(3, 100)]
    assert made_again == 1


def test_each_step_has_the_messages_of_the_running_turn_for_itself() -> None:
    state = write_state(SessionState(messages=history()))
    first = stored(messages_in(state))
    value: Any = first.value
    value["turn"] = {"run_id": "s/turn-2"}
    one, other = read_state(first), read_state(first)
    assert [a is b for a, b in zip(one.messages, other.messages, strict=True)] == [True, True, True, False]


def test_a_message_with_something_in_it_that_cannot_be_compared_is_read_every_time() -> None:
    message = ModelRequest(parts=[UserPromptPart(content=[BinaryContent(b"x", media_type="image/png")])])
    assert KeptMessage.of(message, KeptObject({})) is not None
    message.parts[0].content = [object()]  # pyright: ignore
    assert KeptMessage.of(message, KeptObject({})) is None


def texts_shown(model: ScriptedModel) -> list[list[str]]:
    shown: Any = [request.messages for request in model.shown]
    return [[part["content"] for message in messages for part in message["parts"]] for messages in shown]


async def test_a_hook_that_changes_old_messages_shows_the_model_what_it_shows_in_a_plain_run(tmp_path: Path) -> None:
    async def mark(ctx: RunContext[Any], request_context: ModelRequestContext) -> ModelRequestContext:
        first: Any = request_context.messages[0].parts[0]
        first.content += "!"
        return request_context

    def agent_of(model: ScriptedModel) -> Agent[object, str]:
        return Agent(model, name="marked", capabilities=[Hooks(before_model_request=mark)])

    plain, durable = ScriptedModel(["one", "two", "three"]), ScriptedModel(["one", "two", "three"])
    agent, messages = agent_of(plain), list[ModelMessage]()
    for text in ("a", "b", "c"):
        messages = (await agent.run(text, message_history=messages or None)).all_messages()
    async with AgentHost(session_flow(agent_of(durable)), directory=tmp_path) as host:
        session = host.session("s")
        await session.start()
        for text in ("a", "b", "c"):
            await session.ask(text)

    assert texts_shown(durable) == texts_shown(plain)
    assert texts_shown(durable)[2] == ["a!!!", "one", "b", "two", "c"]
