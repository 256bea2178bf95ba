"""What the model is shown after a compaction: a summary, then the newest turns."""

from typing import Any, cast

import pytest
from google.adk.agents import LlmAgent
from google.adk.models.llm_request import LlmRequest
from google.genai import types

from dex_agents.runner import CannotCompactNow, Compacted, Finished
from dex_agents.summaries import SUMMARY_HEAD
from dex_agents.testing import InMemorySession
from dex_agents_google_adk import GoogleADKRunner
from dex_agents_google_adk.testing import Reply, ScriptedLlm, ShownRequest

WINDOW = 3000
LONG = "word " * 300


class Model:
    """Answers with a long text, calls a tool when it is asked to look, and writes summaries."""

    def __init__(self) -> None:
        self.summaries: list[str] = []
        self.scripted = ScriptedLlm(self._reply)

    def _reply(self, request: LlmRequest) -> Reply:
        part = (request.contents[-1].parts or [])[-1]
        if (part.text or "").endswith("Summary:"):
            self.summaries.append(part.text or "")
            return f"summary {len(self.summaries)}"
        if part.text and "look" in part.text:
            call = types.FunctionCall(name="look", args={"at": "the sky"})
            return [types.Part(function_call=call)]
        return f"answer {len(self.scripted.shown)}: {LONG}"

    @property
    def shown(self) -> list[ShownRequest]:
        return [one for one in self.scripted.shown if not one.instruction.startswith("You compress the history")]


def look(at: str) -> str:
    """Look at something."""
    return f"{at} is blue: {LONG}"


@pytest.fixture(autouse=True)
def no_usage(monkeypatch: pytest.MonkeyPatch) -> None:
    """The scripted model counts 15 tokens always; without that the size of its context is estimated."""

    def untold(*_: object) -> None:
        return None

    monkeypatch.setattr("dex_agents_google_adk._runner.context_tokens", untold)


def session_of(model: Model) -> InMemorySession:
    agent = LlmAgent(name="agent", model=model.scripted, instruction="Be brief.", tools=[look])
    return InMemorySession(lambda: GoogleADKRunner(agent), compaction=WINDOW)


async def talk(session: InMemorySession, compactions: int) -> str:
    for number in range(25):
        text = f"look {number}" if number % 3 == 1 else f"question {number}"
        result = await session.send(text)
        assert isinstance(result, Finished), result
        if sum(isinstance(one, Compacted) for one in session.compactions) >= compactions:
            return text
    raise AssertionError("it did not compact")


async def test_after_a_compaction_the_model_reads_a_summary_and_the_newest_turns() -> None:
    model = Model()
    session = session_of(model)
    text = await talk(session, 1)
    compacted = next(one for one in session.compactions if isinstance(one, Compacted))
    assert (compacted.summary, compacted.usage.requests) == ("summary 1", 1)
    assert "user: question 0" in model.summaries[0]
    assert "[called look with" in model.summaries[0]
    contents = cast("list[dict[str, Any]]", model.shown[-1].contents)
    assert str(contents[0]["parts"][0]["text"]).startswith(SUMMARY_HEAD)
    assert any(part.get("text") == text for content in contents for part in content["parts"])


async def test_no_result_is_parted_from_its_call_and_there_is_one_summary_only() -> None:
    model = Model()
    session = session_of(model)
    await talk(session, 2)
    assert model.summaries[1].startswith("Summary of what came before:\nsummary 1\n")
    for request in model.shown:
        parts = [part for content in cast("list[dict[str, Any]]", request.contents) for part in content["parts"]]
        calls = sum("function_call" in part for part in parts)
        assert calls == sum("function_response" in part for part in parts)
        assert str(parts).count(SUMMARY_HEAD) <= 1
    middle = [one for one in session.compactions if isinstance(one, CannotCompactNow)]
    assert all("running invocation whole" in one.reason for one in middle)
