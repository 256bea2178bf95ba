"""Turns that are cancelled or fail, and calls without a result: what the model of the next request is told."""

from typing import Any

import pytest
from google.adk.agents.base_agent import BaseAgent
from google.adk.agents.llm_agent import LlmAgent
from google.adk.agents.parallel_agent import ParallelAgent  # pyright: ignore[reportDeprecated]
from google.adk.agents.sequential_agent import SequentialAgent  # pyright: ignore[reportDeprecated]
from google.adk.models.llm_request import LlmRequest
from google.adk.models.llm_response import LlmResponse
from google.adk.tools.tool_context import ToolContext
from google.genai.errors import ClientError

from dex_agents.errors import StateNotReadableError, ToolDidNotHappen, TurnFailedError
from dex_agents.testing import TurnPlan, check_runner
from dex_agents.tools import Failed, ToolEffect
from dex_agents_google_adk import GoogleADKRunner
from dex_agents_google_adk.testing import Reply, ScriptedLlm, call, replies_since_user
from support.google_adk_agents import error_of, failed, finished, session_of, simple
from support.google_adk_parity import quiet_agent

pytestmark = pytest.mark.filterwarnings("ignore:.*EXPERIMENTAL.*:UserWarning")


def two_tools(request: LlmRequest) -> Reply:
    if replies_since_user(request):
        return "done"
    return [call("work", {"x": 1}), call("work", {"x": 2})]


async def test_the_runner_keeps_the_contract_in_disturbed_conversations() -> None:
    agent, _, _ = simple(two_tools)
    report = await check_runner(lambda: GoogleADKRunner(agent), ["go", "go on"])
    assert report.answers == ("done", "done")
    assert report.conversations == 8
    assert report.cancelled == 4


def two_branches() -> BaseAgent:
    def script(request: LlmRequest) -> Reply:
        return "done" if replies_since_user(request) else [call("work", {"x": 1}, "call_0")]

    def work(x: int) -> str:
        """Work."""
        return f"worked {x}"

    branches = [LlmAgent(name=name, model=ScriptedLlm(script), tools=[work]) for name in ("p1", "p2")]
    both = quiet_agent(ParallelAgent, name="both", sub_agents=branches)  # pyright: ignore[reportDeprecated]
    last = LlmAgent(name="last", model=ScriptedLlm(lambda request: "all done"))
    return quiet_agent(SequentialAgent, name="top", sub_agents=[both, last])  # pyright: ignore[reportDeprecated]


async def test_the_contract_holds_for_two_branches_with_equal_call_ids() -> None:
    agent = two_branches()
    report = await check_runner(lambda: GoogleADKRunner(agent), ["go", "go on"])
    assert report.answers == ("all done", "all done")
    assert report.cancelled == 4
    session = session_of(agent)
    await session.send("go")
    assert len({(one.request.owner, one.request.call_id) for one in session.calls}) == 2
    assert len({one.request.call_id for one in session.calls}) == 2


async def test_a_cancelled_turn_leaves_a_true_history_and_a_note() -> None:
    agent, model, done = simple(two_tools)
    session = session_of(agent)
    ended = failed(await session.send("go", TurnPlan(cancel_after_calls=1)))
    finished(await session.send("go on"))
    contents: Any = model.shown[1].contents
    told = [part["function_response"]["response"] for part in contents[2]["parts"]]
    assert told == [{"result": "worked 1"}, {"error": "not run: the turn was cancelled"}]
    assert [part["text"] for part in contents[-1]["parts"]] == [ended.note, "go on"]
    # The calls of the second turn run at once.
    assert (done[0], sorted(done[1:])) == ("work 1", ["work 1", "work 2"])


async def test_what_a_call_wrote_stays_when_its_turn_is_cancelled() -> None:
    def note(x: int, tool_context: ToolContext) -> str:
        """Note."""
        tool_context.state["noted"] = x
        tool_context.state["temp:noted"] = x
        return "noted"

    agent, model, _ = simple([[call("note", {"x": 7}), call("work", {"x": 1})]], note, instruction="Noted: {noted?}.")
    session = session_of(agent)
    failed(await session.send("go", TurnPlan(cancel_after_calls=1)))
    failed(await session.send("go on", TurnPlan(fail_model_step=2)))
    assert "Noted: 7." in model.shown[1].instruction
    state: Any = session.state
    assert state.value["state"] == {"noted": 7}


async def test_lost_and_failed_calls_are_told_to_the_model_as_errors() -> None:
    agent, model, done = simple([[call("work", {"x": 1}, "a"), call("broken", {"x": 1}, "b")], "done"])
    session = session_of(agent, tools={"broken": ToolEffect.READ})
    finished(await session.send("go", TurnPlan(lost_tools=frozenset({"work"}))))
    assert model.shown[1].results == {
        "a": {"error": "the outcome of this call is unknown: it may have happened"},
        "b": {"error": "the tool failed: ConnectionError: no line"},
    }
    assert done == ["broken 1"] * 3


async def test_a_tool_can_say_that_its_write_did_not_happen() -> None:
    def refuse() -> str:
        """Refuse."""
        raise ToolDidNotHappen("the bank is closed")

    agent, model, _ = simple([[call("refuse", {}, "a")], "done"], refuse)
    session = session_of(agent)
    finished(await session.send("go"))
    assert isinstance(session.calls[0].settlement, Failed)
    assert model.shown[1].results == {"a": {"error": "the call did not happen: the bank is closed"}}


async def test_a_call_whose_tool_is_gone_is_safe_to_repeat() -> None:
    agent, model, done = simple([[call("work", {"x": 1}, "a")], "done"])
    tools = list[Any](agent.tools)  # pyright: ignore[reportUnknownMemberType, reportUnknownArgumentType]
    session = session_of(agent)
    seen: list[int] = []

    def without_work(*arguments: Any, **keywords: Any) -> GoogleADKRunner:
        # The second Step runs on a Worker with newer code, which has the tool no more.
        seen.append(1)
        fields = {"tools": tools[1:] if len(seen) == 2 else tools}
        return GoogleADKRunner(agent.clone(update=fields))

    session._make_runner = without_work  # pyright: ignore[reportPrivateUsage]
    finished(await session.send("go"))
    told: Any = model.shown[1].results["a"]
    assert "the tool did not run, so it is safe to call again" in told["error"]
    assert "'work'" in told["error"]
    assert done == []


@pytest.mark.parametrize(
    ("change", "newer"),
    [
        ({"format": 2}, True),
        ({"framework": "langgraph"}, False),
        ({"value": {"events": [{"actions": 7}], "state": {}}, "framework_version": "2.99.0"}, True),
        ({"value": {"events": "none"}, "framework_version": "2.0.0"}, False),
    ],
)
async def test_a_state_that_cannot_be_read_names_both_versions(change: dict[str, Any], newer: bool) -> None:
    agent, _, _ = simple(["a"])
    session = session_of(agent)
    await session.send("go")
    assert session.state is not None
    session.state = session.state.model_copy(update=change)
    error = failed(await session.send("go on")).error
    assert isinstance(error, StateNotReadableError)
    assert error.newer_writer is newer
    assert "written by" in str(error)
    assert "google-adk" in str(error)


@pytest.mark.parametrize("value", [object(), b"\xff"])
async def test_a_state_value_that_is_no_json_fails_the_turn_or_the_call_and_is_named(value: object) -> None:
    def before(callback_context: Any) -> None:
        callback_context.state["client"] = value

    agent, _, _ = simple(["x"], before_agent_callback=before)
    message = f"the session state 'client' is of type '{type(value).__name__}'"
    with pytest.raises(TurnFailedError, match=message):
        raise error_of(await session_of(agent).send("go"))

    def put(tool_context: Any) -> None:
        """Put."""
        tool_context.state["client"] = value

    agent, model, _ = simple([[call("put", {}, "a")], "done"], put)
    finished(await session_of(agent).send("go"))
    assert message in str(model.shown[1].results["a"])


async def test_a_model_that_gives_no_answer_fails_the_turn() -> None:
    agent, _, _ = simple(lambda request: LlmResponse(error_code="SAFETY", error_message="blocked"))
    with pytest.raises(TurnFailedError, match="SAFETY: blocked"):
        raise error_of(await session_of(agent).send("go"))


@pytest.mark.parametrize(("status", "attempts"), [(400, 1), (429, 3)])
async def test_a_request_that_the_provider_refuses_is_repeated_only_when_that_can_help(
    status: int, attempts: int
) -> None:
    def refuse(request: LlmRequest) -> Reply:
        raise ClientError(status, {"error": {"message": "no", "status": "NO"}})

    agent, model, _ = simple(refuse)
    error = error_of(await session_of(agent).send("go"))
    assert isinstance(error, TurnFailedError if status == 400 else ClientError)
    assert len(model.shown) == attempts
