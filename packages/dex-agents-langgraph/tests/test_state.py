"""What a session stores of a graph: without loss, in bytes that grow with the content, and only named types."""

# LangGraph leaves parts of its own types open.
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false, reportUnknownVariableType=false

import json
import math
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from enum import Enum
from operator import is_
from typing import Annotated, Any, cast
from uuid import UUID

import pytest
from langchain.agents import AgentState, create_agent, factory
from langchain.agents.middleware import before_agent
from langchain.tools import InjectedState, ToolRuntime, tool
from langchain_core.documents import Document
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    BaseMessage,
    ChatMessage,
    HumanMessage,
    RemoveMessage,
    SystemMessage,
    ToolMessage,
)
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.runtime import Runtime
from langgraph.types import Command, Send
from pydantic import BaseModel, JsonValue

from dex_agents.errors import StateNotReadableError, TurnFailedError
from dex_agents.runner import CallToolRequest, Finished, FrameworkState, KeptObject, ModelStep, RunModelRequest
from dex_agents.testing import InMemorySession, TurnFailed
from dex_agents.tools import ToolOutcome
from dex_agents_langgraph import LangGraphRunner
from dex_agents_langgraph._codec import StepCodec, ValueCodec
from dex_agents_langgraph._private import Graph, check_names
from dex_agents_langgraph._state import read_state
from dex_agents_langgraph.testing import Reply, ScriptedChatModel, reply, tool_call
from support.langgraph_parity import stored_values


class Mood(Enum):
    OK = "ok"


class Word(str, Enum):  # noqa: UP042  a `StrEnum` is another case of the same
    YES = "yes"


@dataclass
class Cart:
    items: list[str]
    mood: Mood = Mood.OK
    number: int = field(default=3, init=False)


@dataclass
class Plain:
    items: list[str]
    mood: Mood = Mood.OK


class Profile(BaseModel):
    name: str
    mood: Mood = Mood.OK


HERE = [(each.__module__, each.__qualname__) for each in (Mood, Word, Cart, Plain, Profile)]

VALUES: list[Any] = [
    None,
    True,
    2**62,
    2**63,
    1.5,
    math.inf,
    "text",
    b"bytes",
    [1, [2, {"a": None}]],
    {"$type": "message"},
    {1: "one", (2, 3): "two"},
    ("a", ("b",)),
    {"a", "b"},
    datetime(2026, 1, 2, tzinfo=UTC),
    UUID(int=7),
    Mood.OK,
    Word.YES,
    Plain(["a"]),
    Profile(name="ann"),
    HumanMessage("hi", id="1", name="ann"),
    AIMessage(
        "x", tool_calls=[tool_call("f", "1", x=1)], usage_metadata=None, response_metadata={"at": datetime.now(UTC)}
    ),
    AIMessageChunk(content=[{"type": "text", "text": "x", "index": 0}]),
    ToolMessage("t", tool_call_id="1", artifact=Profile(name="ann"), status="error"),
    SystemMessage([{"type": "text", "text": "x", "cache_control": {"type": "ephemeral"}}]),
    ChatMessage(content="x", role="critic"),
    RemoveMessage("1"),
    HumanMessage("x", extra_field={"kept": True}),
    Send("node", {"messages": [HumanMessage("x")]}),
    Command(update={"messages": [ToolMessage("t", tool_call_id="1")]}, goto=[Send("a", 1)], graph=Command.PARENT),
    Document("text", metadata={"page": 1}),
]


@pytest.mark.parametrize(
    "value", VALUES, ids=[type(value).__name__ + str(number) for number, value in enumerate(VALUES)]
)
def test_values_come_back_as_they_were(value: Any) -> None:
    codec = ValueCodec([*HERE, (Document.__module__, Document.__qualname__)])
    stored = codec.encode(value, "it")
    through_json = cast("JsonValue", json.loads(json.dumps(stored, allow_nan=False)))
    back = codec.decode(through_json)
    assert type(back) is type(value)
    assert back == value
    if not isinstance(value, set):  # which has no order
        assert codec.encode(back, "it") == stored


@pytest.mark.parametrize(
    "value", [Mood.OK, Word.YES, Plain(["a"]), Profile(name="ann"), [Mood.OK], {"a": Profile(name="b")}]
)
def test_a_type_that_nobody_named_is_refused_instead_of_becoming_plain_data(value: Any) -> None:
    with pytest.raises(
        TurnFailedError, match=r"the channel 'cart' holds a .*, which would come back changed.*allowed_types"
    ):
        ValueCodec([]).encode(value, "the channel 'cart'")


def test_a_value_that_loses_a_part_is_refused() -> None:
    with pytest.raises(TurnFailedError, match=r"Cart, which would come back changed"):
        ValueCodec(HERE).encode(Cart(["a"]), "it")


def test_a_value_that_cannot_be_written_is_refused() -> None:
    with pytest.raises(TurnFailedError, match=r"it holds a builtins.function, which cannot be stored"):
        ValueCodec([]).encode(test_a_value_that_loses_a_part_is_refused, "it")


class Shop(AgentState[Any]):
    profile: Profile
    anything: Any


def shop(model: ScriptedChatModel, value: Any) -> Graph:
    @tool
    def fill(runtime: ToolRuntime[Any, Any]) -> Command[Any]:
        """Fill the state."""
        message = ToolMessage("filled", tool_call_id=runtime.tool_call_id)
        return Command(update={**value, "messages": [message]})

    return create_agent(model, [fill], state_schema=Shop)


SCRIPT: list[Reply] = [reply("", tool_call("fill", "a")), "done"]


@dataclass(eq=False)
class Series:
    """Compares with nothing, as arrays do."""

    items: list[int]

    def __eq__(self, other: object) -> bool:
        raise ValueError("the truth value of a series is ambiguous")


def test_values_that_cannot_be_compared_are_kept_in_messages() -> None:
    codec = ValueCodec([(Series.__module__, Series.__qualname__)]).for_step()
    message = ToolMessage("done", tool_call_id="a", artifact=Series([1]), additional_kwargs={"more": Series([2])})
    written = codec.encode(message, "it")
    assert codec.encode(message, "it") == written
    back = codec.decode(written)
    assert (back.artifact.items, back.additional_kwargs["more"].items) == ([1], [2])
    assert codec.encode(back, "it") == written


async def test_types_in_the_graph_s_schema_are_kept() -> None:
    graph = shop(ScriptedChatModel(SCRIPT), {"profile": Profile(name="ann")})
    session = InMemorySession(lambda: LangGraphRunner(graph))
    assert isinstance(await session.send("go"), Finished)
    assert (await stored_values(graph, session))["profile"] == Profile(name="ann")


async def test_a_state_that_cannot_be_stored_fails_its_turn_and_says_what_to_do() -> None:
    graph = StateGraph(Shop)
    graph.add_node("fill", lambda state: {"anything": Plain(["a"])})
    graph.add_edge(START, "fill")
    compiled = graph.compile()
    session = InMemorySession(lambda: LangGraphRunner(compiled))
    failed = await session.send("go")
    assert isinstance(failed, TurnFailed)
    assert "the channel 'anything' of the graph's state holds a " in failed.note
    assert "allowed_types" in failed.note
    allowed = InMemorySession(lambda: LangGraphRunner(compiled, allowed_types=[Plain, Mood]))
    assert isinstance(await allowed.send("go"), Finished)
    assert (await stored_values(compiled, allowed, [Plain, Mood]))["anything"] == Plain(["a"])


def _bytes(value: JsonValue) -> int:
    return len(json.dumps(value))


async def test_stored_bytes_grow_with_the_content_only() -> None:
    """A list whose elements do not change is stored once by the session, so the rest must stay small and constant."""
    rests: list[int] = []

    def respond(messages: list[BaseMessage]) -> Reply:
        if isinstance(messages[-1], ToolMessage):
            return "answer " + "x" * 600
        return reply("", tool_call("look_up", "a", city="Oslo"))

    @tool
    def look_up(city: str) -> str:
        """Say what the weather is."""
        return "sunny " * 50

    session = InMemorySession(lambda: LangGraphRunner(create_agent(ScriptedChatModel(respond), [look_up])))
    previous: list[JsonValue] = []
    for number in range(30):
        assert isinstance(await session.send(f"question {number}"), Finished)
        assert session.state is not None
        value = cast("dict[str, Any]", session.state.value)
        [checkpoint] = value["namespaces"][""]
        messages = value["messages"]
        assert "messages" not in checkpoint["values"]
        assert messages[: len(previous)] == previous
        previous = messages
        rests.append(_bytes(value) - _bytes(messages))
    assert len(previous) == 120
    assert max(rests) - min(rests) < 50
    assert max(rests) < 1500


async def test_finished_subgraphs_leave_nothing_behind() -> None:
    def respond(messages: list[BaseMessage]) -> Reply:
        return "done" if isinstance(messages[-1], ToolMessage) else reply("", tool_call("fill", "a"))

    inner = shop(ScriptedChatModel(respond), {})
    graph = StateGraph(Shop).add_node("inner", inner).add_edge(START, "inner").compile()
    session = InMemorySession(lambda: LangGraphRunner(graph))
    for _ in range(3):
        assert isinstance(await session.send("go"), Finished)
        assert session.state is not None
        assert list(cast("dict[str, Any]", session.state.value)["namespaces"]) == [""]


def state(**changes: Any) -> FrameworkState:
    written = {
        "framework": "langgraph",
        "framework_version": "1.0.0",
        "format": 2,
        "value": {"namespaces": {}},
        **changes,
    }
    return FrameworkState.model_validate(written)


@pytest.mark.parametrize(
    ("changes", "newer", "text"),
    [
        ({"framework": "other"}, False, "written by other 1.0.0"),
        ({"format": 3}, True, "format 3"),
        ({"value": {"wrong": 1}}, False, "written by langgraph 1.0.0"),
        ({"value": {"wrong": 1}, "framework_version": "99.0"}, True, "written by langgraph 99.0"),
    ],
)
def test_an_unreadable_state_is_refused_with_both_versions(changes: dict[str, Any], newer: bool, text: str) -> None:
    with pytest.raises(StateNotReadableError, match="cannot be read by langgraph ") as raised:
        read_state(state(**changes))
    assert raised.value.newer_writer is newer
    assert text in str(raised.value)


async def test_a_state_with_values_of_a_newer_release_is_refused() -> None:
    session = InMemorySession(lambda: LangGraphRunner(create_agent(ScriptedChatModel(["a", "b"]), [])))
    assert isinstance(await session.send("go"), Finished)
    assert session.state is not None
    value = json.loads(json.dumps(session.state.value))
    value["messages"][0] = {"$type": "hologram"}
    session.state = session.state.model_copy(update={"value": value, "framework_version": "99.0"})
    with_newer = await session.send("go")
    assert isinstance(with_newer, TurnFailed)
    assert isinstance(with_newer.error, StateNotReadableError)
    assert with_newer.error.newer_writer
    assert "hologram" in str(with_newer.error)


def test_a_missing_name_of_the_framework_is_named() -> None:
    with pytest.raises(ImportError, match=r"has no langgraph.pregel._read.Nothing.*install a release in the range"):
        check_names({("langgraph.pregel._read", "Nothing", "x"): ()})
    with pytest.raises(ImportError, match=r"has no langgraph.pregel._read.PregelNode.nothing"):
        check_names({("langgraph.pregel._read", "PregelNode", "nothing"): ()})
    with pytest.raises(ImportError, match=r"has no parameter wrong of langgraph.pregel._read.PregelNode.copy"):
        check_names({("langgraph.pregel._read", "PregelNode", "copy"): ("wrong",)})


async def test_what_a_node_changes_in_an_old_message_is_stored() -> None:
    def mark(state: MessagesState) -> dict[str, list[BaseMessage]]:
        first = state["messages"][0]
        first.response_metadata.setdefault("marks", []).append(len(state["messages"]))
        first.content = f"{first.text}!"
        return {"messages": [AIMessage("done")]}

    graph = StateGraph(MessagesState).add_node("mark", mark).add_edge(START, "mark").compile()
    session = InMemorySession(lambda: LangGraphRunner(graph))
    for _ in range(3):
        assert isinstance(await session.send("go"), Finished)
    first = (await stored_values(graph, session))["messages"][0]
    assert (first.text, first.response_metadata) == ("go!!!", {"marks": [1, 3, 5]})


async def test_messages_that_stay_are_the_objects_that_the_session_keeps() -> None:
    stayed: list[tuple[int, int]] = []

    class Keeping(LangGraphRunner):
        async def run_model(self, request: RunModelRequest) -> ModelStep:
            given = [] if request.state is None else cast("dict[str, Any]", request.state.value)["messages"]
            before, kept = json.dumps(given), [KeptObject(document) for document in given]
            if request.state is not None:
                value = {**cast("dict[str, Any]", request.state.value), "messages": kept}
                request = replace(request, state=request.state.model_copy(update={"value": value}))
            step = await super().run_model(request)
            assert json.dumps(kept) == before
            written = cast("dict[str, Any]", step.state.value)["messages"]
            stayed.append((sum(map(is_, kept, written)), len(kept)))
            return step

    @before_agent
    def change_first(state: AgentState[Any], runtime: Runtime[None]) -> None:
        state["messages"][0].additional_kwargs["seen"] = len(state["messages"])

    @tool
    def look_up(city: str) -> str:
        """Say what the weather is."""
        return "sunny"

    def respond(messages: list[BaseMessage]) -> Reply:
        return "done" if isinstance(messages[-1], ToolMessage) else reply("", tool_call("look_up", "a", city="Oslo"))

    for middleware, changed in (((), 0), ((change_first,), 1)):
        stayed.clear()
        graph = create_agent(ScriptedChatModel(respond), [look_up], middleware=middleware)
        session = InMemorySession(lambda graph=graph: Keeping(graph))
        for _ in range(3):
            assert isinstance(await session.send("go"), Finished)
        # The hook runs in the first Step of a turn.
        assert [count - same for same, count in stayed] == [0, 0, changed, 0, changed, 0]
        assert stayed[-1][1] == 10


@pytest.mark.parametrize("name", ["plain", "looks", "injected"])
async def test_a_call_reads_the_thread_only_when_its_tool_looks_at_it(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []

    @tool
    def plain(city: str) -> str:
        """Say what the weather is."""
        return "sunny"

    @tool
    def looks(city: str, runtime: ToolRuntime[Any, Any]) -> str:
        """Say what was asked."""
        seen.append(runtime.state["messages"][0].text)
        return "sunny"

    @tool
    def injected(city: str, state: Annotated[dict[str, Any], InjectedState]) -> str:
        """Say what was asked."""
        seen.append(state["messages"][0].text)
        return "sunny"

    read: list[str] = []
    decode = StepCodec._decode_message  # pyright: ignore[reportPrivateUsage]

    def watched(codec: StepCodec, document: dict[str, Any]) -> BaseMessage:
        read.append(document["data"]["content"])
        return decode(codec, document)

    class Watched(LangGraphRunner):
        async def call_tool(self, request: CallToolRequest) -> ToolOutcome:
            with monkeypatch.context() as patch:
                patch.setattr(StepCodec, "_decode_message", watched)
                return await super().call_tool(request)

    model = ScriptedChatModel([reply("", tool_call(name, "a", city="Oslo")), "done"])
    graph = create_agent(model, [plain, looks, injected])
    assert isinstance(await InMemorySession(lambda: Watched(graph)).send("what is it like?"), Finished)
    assert model.shown[1].results == {"a": "sunny"}
    assert seen == ([] if name == "plain" else ["what is it like?"])
    # Older releases of LangChain hand the whole state to the tool node together with the call.
    if not hasattr(factory, "ToolCallWithContext"):
        assert ("what is it like?" in read) is (name != "plain")
