"""What the model is shown after a compaction: a summary, then the newest items, cut in front of a user's message."""

from typing import Any, cast

import pytest
from agents import Agent, ModelSettings, Runner, TResponseInputItem, function_tool

from dex_agents.messages import TextBlock
from dex_agents.runner import (
    CannotCompactNow,
    Compacted,
    CompactRequest,
    Finished,
    NewTurn,
    RunModelRequest,
    StepContext,
)
from dex_agents.summaries import SUMMARY_HEAD
from dex_agents.testing import InMemorySession, TurnPlan
from dex_agents_openai_agents import OpenAIAgentsRunner, testing
from dex_agents_openai_agents._state import read_state
from dex_agents_openai_agents.testing import Reply, ScriptedModel, ShownRequest, function_call

WINDOW = 3000
LONG = "word " * 300


class Model:
    """Answers with a long text, calls a tool when it is asked to look, and writes summaries."""

    def __init__(self) -> None:
        self.summaries: list[str] = []
        self.scripted = ScriptedModel(self._reply)

    def _reply(self, request: ShownRequest) -> Reply:
        last = cast("dict[str, Any]", request.input[-1])
        if is_for_a_summary(request):
            assert not request.tools
            self.summaries.append(str(last["content"]))
            return f"summary {len(self.summaries)}"
        if last.get("role") == "user" and "look" in str(last["content"]):
            return [function_call("look", {"at": "the sky"}, call_id=f"call-{len(self.scripted.shown)}")]
        return f"answer {len(self.scripted.shown)}: {LONG}"


def is_for_a_summary(request: ShownRequest) -> bool:
    return (request.instructions or "").startswith("You compress the history")


@function_tool
def look(at: str) -> str:
    """Look at something."""
    return f"{at} is blue: {LONG}"


def agent_of(model: Model) -> Agent[Any]:
    settings = ModelSettings(temperature=0.5, max_tokens=20, extra_headers={"team": "blue"})
    return Agent(name="agent", instructions="Be brief.", model=model.scripted, tools=[look], model_settings=settings)


@pytest.fixture(autouse=True)
def no_usage(monkeypatch: pytest.MonkeyPatch) -> None:
    """The scripted model counts no tokens, so the size of its context is estimated."""
    monkeypatch.setattr(testing, "INPUT_TOKENS", 0)
    monkeypatch.setattr(testing, "OUTPUT_TOKENS", 0)


def session_of(agent: Agent[Any]) -> InMemorySession:
    return InMemorySession(lambda: OpenAIAgentsRunner(agent), compaction=WINDOW)


async def ask_until_compacted(session: InMemorySession, times: int = 1) -> str:
    for number in range(20):
        text = f"look {number}" if number == 1 else f"question {number}"
        result = await session.send(text)
        assert isinstance(result, Finished), result
        if sum(isinstance(one, Compacted) for one in session.compactions) >= times:
            return text
    raise AssertionError("it never compacted")


async def test_after_a_compaction_the_model_is_shown_what_a_plain_run_with_the_summary_shows() -> None:
    model = Model()
    agent = agent_of(model)
    session = session_of(agent)

    text = await ask_until_compacted(session)

    compacted = next(one for one in session.compactions if isinstance(one, Compacted))
    assert compacted.summary == "summary 1"
    assert compacted.usage.requests == 1
    summary_call = next(one for one in model.scripted.shown if is_for_a_summary(one))
    settings = cast("dict[str, Any]", summary_call.settings)
    assert settings["extra_headers"] == {"team": "blue"}
    assert "max_tokens" not in settings
    items = read_state(compacted.state).items
    shown = [request for request in model.scripted.shown if not is_for_a_summary(request)][-1]
    question: TResponseInputItem = {"role": "user", "content": text}
    await Runner.run(agent, [*items, question])
    assert model.scripted.shown[-1].input == shown.input
    first = cast("dict[str, Any]", shown.input[0])
    assert str(first["content"]).startswith(SUMMARY_HEAD)
    assert "user: question 0" in model.summaries[0]


async def test_no_result_is_parted_from_its_call_and_there_is_one_summary_only() -> None:
    model = Model()
    session = session_of(agent_of(model))
    await ask_until_compacted(session, times=2)
    assert model.summaries[1].startswith("Summary of what came before:\nsummary 1\n")
    for request in model.scripted.shown:
        items = cast("list[dict[str, Any]]", request.input)
        asked = {item["call_id"] for item in items if item.get("type") == "function_call"}
        given = {item["call_id"] for item in items if item.get("type") == "function_call_output"}
        assert asked == given
        assert str(items).count(SUMMARY_HEAD) <= 1
    assert any("[called look with" in prompt for prompt in model.summaries)


async def test_in_the_middle_of_a_turn_the_turn_goes_on_whole() -> None:
    model = Model()
    agent = agent_of(model)
    session = session_of(agent)
    await session.send("question")
    # The state of a turn whose call is open: the SDK's run.
    await session.send("look", TurnPlan(cancel_after_calls=0))
    step = StepContext(session_id="s", turn_id="t", step_number=2, attempt=1, settings={}, events=session.events)
    runner = OpenAIAgentsRunner(agent)
    waiting = await runner.run_model(
        RunModelRequest(step=step, state=session.state, input=NewTurn(content=(TextBlock(text="look"),)))
    )
    request = CompactRequest(step=step, state=waiting.state, window_tokens=WINDOW, keep_tokens=100)
    outcome = await runner.compact(request)
    assert isinstance(outcome, CannotCompactNow)
    assert "keeps the running turn whole" in outcome.reason


def test_where_the_provider_keeps_the_conversation_there_is_nothing_to_compact() -> None:
    runner = OpenAIAgentsRunner(agent_of(Model()), auto_previous_response_id=True)
    assert not runner.describe().supports_compaction
    assert OpenAIAgentsRunner(agent_of(Model())).describe().supports_compaction
