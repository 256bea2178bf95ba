"""Streaming, usage, typed output, questions, settings, limits, steering and compaction, with the real CLI."""

from typing import Any, cast

import pytest

from dex_agents.errors import TurnFailedError
from dex_agents.runner import CannotCompactNow, Compacted, CompactRequest, Finished, StepContext
from dex_agents.settings import ResolvedSettings
from dex_agents.testing import PendingQuestion, RecordedEvents, TurnFailed, TurnPlan, answer_with
from dex_agents.tools import Answer
from dex_agents_claude_agent_sdk import ClaudeAgentRunner
from support.claude_sessions import POLICIES, Shop, call, results, said_by_user, shown
from support.fake_provider import HttpError, RecordedRequest, Reply, ToolCall, Usage

SCHEMA = {"type": "object", "properties": {"pieces": {"type": "integer"}}, "required": ["pieces"]}
QUESTIONS = {
    "questions": [
        {
            "question": "Which colour?",
            "header": "Colour",
            "multiSelect": False,
            "options": [{"label": "Red", "description": "r"}, {"label": "Blue", "description": "b"}],
        }
    ]
}


def finished(outcome: object) -> Finished:
    assert isinstance(outcome, Finished), outcome
    return outcome


async def test_text_and_thinking_are_streamed_and_usage_and_cost_add_up_over_segments(shop: Shop) -> None:
    used = Usage(input_tokens=1000, output_tokens=100, cached_tokens=300)
    shop.provider.script(
        [
            Reply(reasoning="The shop first.", text="Let me see.", tool_calls=[call("read", "r", "1")], usage=used),
            Reply(tool_calls=[call("write", "w", "1")], usage=used),
            Reply(text="All done.", usage=used),
        ]
    )
    session = shop.session()
    assert finished(await session.send("go")).text == "All done."

    assert "".join(session.events.texts) == "Let me see.All done."
    assert "".join(session.events.reasonings) == "The shop first."
    assert (session.usage.requests, session.usage.input_tokens, session.usage.output_tokens) == (3, 3000, 300)
    # Three calls of 700 fresh and 300 cached tokens in, 100 out, at 3, 0.3 and 15 dollars a million.
    assert session.usage.cost == pytest.approx(3 * (700 * 3 + 300 * 0.3 + 100 * 15) / 1e6)


async def test_a_typed_output_is_given_back_and_the_next_turn_goes_on_behind_it(shop: Shop) -> None:
    shop.provider.script(
        [
            Reply(tool_calls=[call("write", "w", "1")]),
            Reply(tool_calls=[ToolCall("StructuredOutput", {"pieces": 3}, "o1")]),
            Reply(tool_calls=[ToolCall("StructuredOutput", {"pieces": 4}, "o2")]),
        ]
    )
    session = shop.session(shop.options(output_format={"type": "json_schema", "schema": SCHEMA}))

    assert finished(await session.send("how many?")).output == {"pieces": 3}
    assert finished(await session.send("and now?")).output == {"pieces": 4}
    roles = [(role, block["type"]) for role, block in shown(shop.provider.requests[-1])]
    assert roles[-2:] == [("user", "tool_result"), ("user", "text")]
    assert [role for role, _ in roles].count("assistant") == 2


async def test_the_model_asks_people_and_gets_their_answer_as_the_cli_words_it(shop: Shop) -> None:
    asked: list[PendingQuestion] = []

    def decide(question: PendingQuestion) -> Answer:
        asked.append(question)
        return answer_with("Blue")

    shop.provider.script(
        [Reply(tool_calls=[ToolCall("AskUserQuestion", QUESTIONS, "q"), call("write", "w", "1")]), Reply(text="ok")]
    )
    agent = shop.options(tools=["AskUserQuestion", "Read"], allowed_tools=["Read"])
    session = shop.session(agent, decide=decide)
    await session.send("paint it")

    assert [each.question.prompt for each in asked] == ["Which colour? (Red, Blue)"]
    assert asked[0].question.kind == "answer"
    assert results(shop.provider.requests[-1]) == {
        "q": 'Your questions have been answered: "Which colour?"="Blue". '
        "You can now continue with these answers in mind.",
        "w": "write 1 is done",
    }


async def test_an_answer_whose_turn_fails_behind_it_stands_in_the_conversation_as_the_cli_words_it(shop: Shop) -> None:
    shop.provider.script(
        [Reply(tool_calls=[ToolCall("AskUserQuestion", QUESTIONS, "q"), call("write", "w", "1")]), Reply(text="blue")]
    )
    agent = shop.options(tools=["AskUserQuestion", "Read"], allowed_tools=["Read"])
    session = shop.session(agent, decide=lambda question: answer_with("Blue"))
    failed = await session.send("paint it", plan=TurnPlan(fail_model_step=2))
    assert finished(await session.send("which colour?")).text == "blue"

    assert isinstance(failed, TurnFailed)
    assert "Blue" not in failed.note
    assert results(shop.provider.requests[-1]) == {
        "q": 'Your questions have been answered: "Which colour?"="Blue". '
        "You can now continue with these answers in mind.",
        "w": "write 1 is done",
    }


async def test_settings_change_model_and_prompt_at_the_next_turn_and_steering_stands_behind_the_results(
    shop: Shop,
) -> None:
    shop.provider.script(
        [Reply(text="hi"), Reply(tool_calls=[call("write", "w", "1")]), Reply(text="blue it is"), Reply(text="yes")]
    )
    session = shop.session(models={"fast": "claude-haiku-4-5"})
    await session.send("hello")
    session.settings.update({"model": "fast", "instructions": "Speak French."})
    await session.send("paint it", plan=TurnPlan(steering={2: "make it blue"}))
    await session.send("sure?")

    first, second, third, last = shop.provider.requests
    assert [each.model for each in (first, second)] == ["claude-sonnet-4-5", "claude-haiku-4-5"]
    assert "Be brief." in str(first.body["system"])
    assert "Be brief.\\n\\nSpeak French." in str(second.body["system"])
    assert [block["type"] for _, block in shown(third)[-2:]] == ["tool_result", "text"]
    assert said_by_user(last) == ["hello", "paint it", "make it blue", "sure?"]


async def test_a_resolver_chooses_model_instructions_and_effort_and_an_effort_that_the_sdk_lacks_fails_the_turn(
    shop: Shop,
) -> None:
    shop.provider.script([Reply(text="bonjour")])
    resolved = ResolvedSettings(model="claude-haiku-4-5", instructions="Speak French.", reasoning_effort="high")

    def resolve(step: StepContext) -> ResolvedSettings:
        return resolved if step.turn_id == "turn-1" else ResolvedSettings(reasoning_effort="minimal")

    session = shop.session()
    session.settings_resolver = resolve
    await session.send("hello")

    (first,) = shop.provider.requests
    assert first.model == "claude-haiku-4-5"
    assert "Speak French." in str(first.body["system"])
    assert "'minimal': the Claude Agent SDK knows low" in str(await session.send("hello"))


async def test_an_effort_that_is_none_is_refused_with_those_that_claude_takes(shop: Shop) -> None:
    session = shop.session()
    session.settings["reasoning_effort"] = "much"
    assert "'much': the Claude Agent SDK knows low, medium, high, xhigh, max" in str(await session.send("hello"))


async def test_a_limit_of_model_calls_holds_over_all_segments_of_a_turn_and_begins_anew_with_the_next(
    shop: Shop,
) -> None:
    shop.provider.script(
        [
            Reply(tool_calls=[call("read", "r1", "1")]),
            Reply(tool_calls=[call("write", "w1", "1")]),
            Reply(tool_calls=[call("write", "w2", "1")]),
            Reply(text="done"),
        ]
    )
    session = shop.session(shop.options(max_turns=2))
    failed = await session.send("go")
    await session.send("go on")

    assert isinstance(failed, TurnFailed)
    assert isinstance(failed.error, TurnFailedError)
    assert "max_turns" in str(failed.error)
    assert len(shop.provider.requests) == 4
    assert shop.log == ["read 1", "write 1", "write 1"]


async def test_a_limit_of_cost_holds_over_all_segments_of_a_turn(shop: Shop) -> None:
    used = Usage(input_tokens=100_000)  # 0.3 dollars
    writes = [Reply(tool_calls=[call("write", f"w{n}", str(n))], usage=used) for n in range(2)]
    shop.provider.script(writes)
    session = shop.session(shop.options(max_budget_usd=0.5))
    failed = await session.send("go")

    assert isinstance(failed, TurnFailed)
    assert isinstance(failed.error, TurnFailedError)
    assert "max_budget_usd: the turn has cost 0.6" in str(failed.error)
    assert len(shop.provider.requests) == 2


async def test_a_refused_request_fails_the_turn_at_once_and_an_overloaded_provider_is_asked_again(shop: Shop) -> None:
    shop.provider.script(
        lambda request: (
            Reply(failure=HttpError(400, "no such thing"))
            if "refuse" in str(said_by_user(request)[-1:])
            else Reply(text="hello", failure=None if request.number > 5 else HttpError(529))
        )
    )
    session = shop.session(environment=("PATH",))
    refused = await session.send("refuse this")
    tried = len(shop.provider.requests)
    again = await session.send("hello")

    assert isinstance(refused, TurnFailed)
    assert "no such thing" in str(refused.error)
    assert tried < 6
    assert finished(again).text == "hello"


async def test_a_conversation_is_folded_into_a_summary_that_takes_its_place(shop: Shop) -> None:
    def model(request: RecordedRequest) -> Reply:
        return Reply(text="<summary>They said hello.</summary>") if "summary" in _last(request) else Reply(text="hi")

    shop.provider.script(model)
    session = shop.session()
    await session.send("hello " + "again " * 2000)
    await session.send("and again")
    before = session.state
    assert before is not None
    step = StepContext(
        session_id="session-1", turn_id="turn-3", step_number=7, attempt=1, settings={}, events=RecordedEvents()
    )
    runner = ClaudeAgentRunner(shop.options(), tools=POLICIES)
    value = cast("dict[str, Any]", before.value)
    rows = {**value["rows"], "subagents/agent-a": value["rows"][""]}
    before = before.model_copy(update={"value": {**value, "rows": rows}})
    folded = await runner.compact(CompactRequest(step=step, state=before, window_tokens=1000, keep_tokens=0))

    assert isinstance(folded, Compacted)
    assert [*cast("dict[str, Any]", folded.state.value)["rows"]] == [""]
    assert "They said hello." in folded.summary
    assert folded.folded_before_step == 8
    session.state = folded.state
    await session.send("still there?")
    request = shop.provider.requests[-1]
    assert "again again" not in str(request.body["messages"])
    assert "They said hello." in said_by_user(request)[0]
    assert said_by_user(request)[-1] == "still there?"


async def test_a_conversation_with_open_calls_is_not_compacted_by_a_command(shop: Shop) -> None:
    shop.provider.script([Reply(tool_calls=[call("write", "w", "1")])])
    session = shop.session()
    await session.send("go", plan=TurnPlan(cancel_after_calls=0))
    assert session.state is not None
    step = StepContext(session_id="s", turn_id="turn-2", step_number=2, attempt=1, settings={}, events=RecordedEvents())
    request = CompactRequest(step=step, state=session.state, window_tokens=1000, keep_tokens=0)

    assert isinstance(await ClaudeAgentRunner(shop.options()).compact(request), CannotCompactNow)


def _last(request: RecordedRequest) -> str:
    return str(request.body["messages"][-1])
