"""What the model is shown after a compaction: a summary, then the newest messages, valid for any provider."""

from typing import Any, cast

import pytest
from pydantic import JsonValue
from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, TextPart, ToolCallPart, UserPromptPart
from pydantic_ai.models.function import AgentInfo

from dex_agents.runner import CannotCompactNow, Compacted, Finished
from dex_agents.summaries import SUMMARY_HEAD
from dex_agents.testing import InMemorySession
from dex_agents_pydantic_ai import PydanticAIRunner
from dex_agents_pydantic_ai._state import read_state
from dex_agents_pydantic_ai.testing import ScriptedModel, ShownRequest

WINDOW = 3000
LONG = "word " * 300
"""About 300 tokens as a provider counts, 500 by the session's estimate."""


class Model:
    """Answers `answer <number>`; writes a summary when it is asked to; calls the tools that the user names."""

    def __init__(self) -> None:
        self.summaries: list[str] = []
        self.answers = 0
        self.scripted = ScriptedModel(self._reply, streaming=False)

    def _reply(self, messages: list[ModelMessage], info: AgentInfo) -> str | list[ToolCallPart]:
        last = messages[-1]
        assert isinstance(last, ModelRequest)
        prompt: object = getattr(last.parts[-1], "content", None)
        if isinstance(prompt, str) and prompt.endswith("Summary:"):
            self.summaries.append(prompt)
            assert not info.function_tools
            return f"summary {len(self.summaries)}"
        self.answers += 1
        if isinstance(prompt, str) and "look" in prompt and isinstance(last.parts[-1], UserPromptPart):
            return [ToolCallPart("look", {"at": place}, f"call-{self.answers}-{place}") for place in ("sky", "sea")]
        if isinstance(prompt, str) and prompt.startswith("look again"):
            return [ToolCallPart("look", {"at": "again"}, f"call-{self.answers}")]
        return f"answer {self.answers}: {LONG}"

    @property
    def shown(self) -> list[Any]:
        """The messages of the newest request that was not for a summary."""
        for request in reversed(self.scripted.shown):
            if not is_for_a_summary(request):
                return cast("list[Any]", request.messages)
        raise AssertionError("no request")


def is_for_a_summary(request: ShownRequest) -> bool:
    return (request.instructions or "").startswith("You compress the history")


def session_of(agent: Agent[Any, Any]) -> InMemorySession:
    return InMemorySession(lambda: PydanticAIRunner(agent), compaction=WINDOW)


def texts(messages: list[Any]) -> list[str]:
    return [str(part.get("content"))[:40] for message in messages for part in message["parts"]]


async def ask(session: InMemorySession, text: str) -> str:
    result = await session.send(text)
    assert isinstance(result, Finished), result
    return result.text


async def test_after_a_compaction_the_model_is_shown_what_a_plain_run_with_the_summary_shows() -> None:
    model = Model()
    agent = Agent(model.scripted, system_prompt="Be kind.", instructions="Be brief.")
    session = session_of(agent)
    for number in range(1, 4):
        await ask(session, f"question {number}")
    assert session.compactions == []

    while not session.compactions:
        await ask(session, "and now?")

    (compacted,) = session.compactions
    assert isinstance(compacted, Compacted)
    assert compacted.summary == "summary 1"
    assert compacted.usage.requests == 1
    assert compacted.usage.input_tokens > 500
    shown = model.shown
    assert texts(shown)[0] == "Be kind."
    assert texts(shown)[1].startswith(SUMMARY_HEAD[:40])
    assert texts(shown)[-1] == "and now?"
    assert "user: question 1" in model.summaries[0]
    assert "answer 1:" in model.summaries[0]
    # The plain run: the same agent, with the history that the session holds now.
    history = read_state(compacted.state).messages
    await agent.run("and now?", message_history=history)
    assert model.shown == shown


async def test_a_second_summary_takes_the_first_one_in_and_replaces_it() -> None:
    model = Model()
    session = session_of(Agent(model.scripted, system_prompt="Be kind."))
    while len(session.compactions) < 2:
        await ask(session, "next")
    assert model.summaries[1].startswith("Summary of what came before:\nsummary 1\n")
    assert texts(model.shown).count("Be kind.") == 1
    shown = str(model.shown)
    assert shown.count(SUMMARY_HEAD) == 1
    assert "summary 2" in shown
    assert "summary 1" not in shown


async def test_a_long_turn_is_compacted_in_its_middle_and_keeps_its_question_and_every_open_call() -> None:
    model = Model()
    agent = Agent(model.scripted)

    @agent.tool_plain
    def look(at: str) -> str:
        return f"look again {LONG}" if len(session.steps) < 30 else f"{at}: {LONG}"

    @agent.tool_plain
    def unused() -> str:
        return "nothing"

    session = session_of(agent)
    await ask(session, "first")
    answer = await ask(session, "look around, please")
    assert answer.startswith("answer")
    compacted = [one for one in session.compactions if isinstance(one, Compacted)]
    assert compacted
    assert all(not one.batch_taken for one in compacted)
    shown = model.shown
    # Every call is answered, right behind the response that asked for it.
    end: list[Any] = [{"parts": []}]
    for before, after in zip(shown, [*shown[1:], *end], strict=True):
        asked = [part["tool_call_id"] for part in before["parts"] if part["part_kind"] == "tool-call"]
        given = [part["tool_call_id"] for part in after["parts"] if part["part_kind"] == "tool-return"]
        assert asked == given
    assert "look around, please" in texts(shown)
    assert texts(shown)[0].startswith(SUMMARY_HEAD[:40])
    # The turn goes on as it began: later Steps know its question.
    state = read_state(compacted[-1].state)
    assert state.prompt == "look around, please"


async def test_what_does_not_fit_is_left_out_of_the_summary_call_and_the_model_is_told() -> None:
    model = Model()
    session = session_of(Agent(model.scripted))
    await ask(session, "question 0: " + "word " * 5000)
    await ask(session, "question 1")
    assert "The oldest 1 messages of this part do not fit" in model.summaries[0]
    assert "question 0" not in model.summaries[0]
    assert "answer 1" in model.summaries[0]


async def test_a_first_turn_with_one_response_has_nothing_that_could_be_summarized_but_its_question() -> None:
    model = Model()
    agent = Agent(model.scripted)

    @agent.tool_plain
    def look(at: str) -> str:
        return f"{at}: {LONG * 4}"

    session = session_of(agent)
    await ask(session, "look")
    assert session.compactions == [CannotCompactNow(reason="no message is old enough to be summarized")]


async def test_the_sessions_own_model_writes_the_summary_with_settings_that_fit_one() -> None:
    model, other = Model(), Model()
    agent = Agent(model.scripted)

    def runner() -> PydanticAIRunner[Any, Any]:
        return PydanticAIRunner(
            agent, models={"other": other.scripted}, model_settings={"temperature": 0.5, "max_tokens": 20}
        )

    settings: dict[str, JsonValue] = {"model": "other"}
    session = InMemorySession(runner, compaction=WINDOW, settings=settings)
    while not session.compactions:
        await ask(session, "next")
    assert (len(model.summaries), len(other.summaries)) == (0, 1)
    summary_call = next(one for one in other.scripted.shown if is_for_a_summary(one))
    assert summary_call.settings == {"temperature": 0.5}


async def test_an_empty_summary_is_an_error_and_another_attempt_is_made() -> None:
    def reply(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        del info
        last = messages[-1].parts[-1]
        is_summary = isinstance(last, UserPromptPart) and str(last.content).endswith("Summary:")
        return ModelResponse(parts=[TextPart("" if is_summary else LONG)])

    agent = Agent(ScriptedModel(reply, streaming=False))
    session = InMemorySession(lambda: PydanticAIRunner(agent), compaction=WINDOW)
    with pytest.raises(ValueError, match="the model wrote no summary"):
        for _ in range(15):
            result = await session.send("next")
            if not isinstance(result, Finished):
                assert result.error is not None
                raise result.error
