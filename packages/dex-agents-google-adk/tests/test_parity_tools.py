"""A durable session shows the model what a plain run of the same agent shows it: one agent and its tools."""

import base64
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from google.adk.agents.llm_agent import LlmAgent
from google.adk.agents.run_config import RunConfig
from google.adk.apps.app import App
from google.adk.artifacts.file_artifact_service import FileArtifactService
from google.adk.models.llm_request import LlmRequest
from google.adk.planners.plan_re_act_planner import PlanReActPlanner
from google.adk.plugins.base_plugin import BasePlugin
from google.adk.tools.agent_tool import AgentTool
from google.adk.tools.base_tool import BaseTool
from google.adk.tools.base_toolset import BaseToolset
from google.adk.tools.function_tool import FunctionTool
from google.adk.tools.tool_context import ToolContext
from google.genai import types
from pydantic import BaseModel

from dex_agents.messages import MediaBlock, TextBlock
from dex_agents_google_adk.testing import Reply, call, replies_since_user
from support.google_adk_parity import MODES, Mode, Scenario, World, check_parity

# ADK's own AgentTool uses an argument of its runner that ADK calls deprecated.
pytestmark = pytest.mark.filterwarnings("ignore:The `plugins` argument is deprecated:DeprecationWarning")

PNG = b"\x89PNG\x00\xff"


class Answer(BaseModel):
    number: int


def look_up_in(world: World) -> Any:
    async def look_up(city: str, tool_context: ToolContext) -> dict[str, str]:
        """Say what the weather is."""
        world.log.append(f"look_up {city}")
        tool_context.state["last_city"] = city
        tool_context.state["temp:seen"] = city
        return {"weather": f"{city} is sunny"}

    return look_up


def agent_of(world: World, script: Any, tools: Any = (), **fields: Any) -> LlmAgent:
    fields.setdefault("instruction", "Be brief. Last city: {last_city?}.")
    return LlmAgent(name="root", model=world.model(script), tools=list(tools), **fields)


def one_tool(world: World) -> LlmAgent:
    script = [[types.Part(text="I look it up."), call("look_up", {"city": "Oslo"}, "a")], "It is sunny in Oslo."]
    return agent_of(world, script, [look_up_in(world)])


def parallel_tools(world: World) -> LlmAgent:
    script: list[Reply] = [
        [call("look_up", {"city": "Oslo"}, "a"), call("look_up", {"city": "Rome"}), call("look_up", {"city": "Bonn"})],
        [call("look_up", {"city": "Kyiv"}, "b")],
        "Sunny.",
    ]
    return agent_of(world, script, [look_up_in(world)])


def wrong_calls(world: World) -> LlmAgent:
    def add(first: int, second: int) -> int:
        """Add."""
        world.log.append("add")
        return first + second

    script: list[Reply] = [
        [call("add", {"first": 1}), call("nothing", {"x": 1}), call("add", {"first": 1, "second": 2})],
        [call("nothing", {})],
        "3",
    ]
    return agent_of(world, script, [add, look_up_in(world)])


def odd_results(world: World) -> LlmAgent:
    def nothing() -> None:
        """Return nothing."""

    def text() -> str:
        """Return a text."""
        return "text"

    def numbers() -> list[int]:
        """Return numbers."""
        return [1, 2]

    def failed() -> dict[str, str]:
        """Report an error."""
        return {"error": "the shop is closed"}

    def typed() -> Answer:
        """Return a model."""
        return Answer(number=3)

    script: list[Reply] = [
        [call(name, {}) for name in ("nothing", "text", "numbers", "failed")],
        "done",
    ]
    return agent_of(world, script, [nothing, text, numbers, failed, typed])


def media(world: World) -> LlmAgent:
    def picture() -> dict[str, Any]:
        """Take a picture."""
        return {"note": "see", "image": types.Part(inline_data=types.Blob(data=PNG, mime_type="image/png"))}

    def only_picture() -> types.Part:
        """Take a picture."""
        return types.Part(inline_data=types.Blob(data=PNG, mime_type="image/png"))

    return agent_of(world, [[call("picture", {}), call("only_picture", {})], "nice"], [picture, only_picture])


def callbacks(world: World) -> LlmAgent:
    log = world.log

    def before_agent(callback_context: Any) -> None:
        log.append("before agent")
        callback_context.state["runs"] = callback_context.state.get("runs", 0) + 1

    async def after_agent(callback_context: Any) -> types.Content:
        log.append("after agent")
        return types.Content(role="model", parts=[types.Part(text="(signed)")])

    def before_tool(tool: BaseTool, args: dict[str, Any], tool_context: ToolContext) -> dict[str, Any] | None:
        log.append(f"before {tool.name}")
        args["city"] += "!"
        return {"weather": "forbidden"} if args["city"] == "Bonn!" else None

    def after_tool(
        tool: BaseTool, args: dict[str, Any], tool_context: ToolContext, tool_response: dict[str, Any]
    ) -> dict[str, Any]:
        log.append(f"after {tool.name}")
        return {**tool_response, "checked": True}

    def before_model(callback_context: Any, llm_request: LlmRequest) -> None:
        log.append("before model")

    def after_model(callback_context: Any, llm_response: Any) -> None:
        if not llm_response.partial:
            log.append("after model")

    return agent_of(
        world,
        [[call("look_up", {"city": "Oslo"}), call("look_up", {"city": "Bonn"})], "Sunny."],
        [look_up_in(world)],
        instruction="Run {runs}.",
        before_agent_callback=before_agent,
        after_agent_callback=after_agent,
        before_tool_callback=before_tool,
        after_tool_callback=after_tool,
        before_model_callback=before_model,
        after_model_callback=after_model,
    )


class Watcher(BasePlugin):
    """Logs every callback and changes what tools get and give."""

    def __init__(self, log: list[str]) -> None:
        super().__init__(name="watcher")
        self.log = log

    async def on_user_message_callback(self, *, invocation_context: Any, user_message: types.Content) -> None:
        self.log.append("user message")

    async def before_run_callback(self, *, invocation_context: Any) -> None:
        self.log.append("before run")

    async def after_run_callback(self, *, invocation_context: Any) -> None:
        self.log.append("after run")

    async def on_event_callback(self, *, invocation_context: Any, event: Any) -> None:
        if not event.partial:
            self.log.append(f"event {event.author}")

    async def before_agent_callback(self, *, agent: Any, callback_context: Any) -> None:
        self.log.append(f"before {agent.name}")

    async def after_agent_callback(self, *, agent: Any, callback_context: Any) -> None:
        self.log.append(f"after {agent.name}")

    async def before_tool_callback(self, *, tool: BaseTool, tool_args: dict[str, Any], tool_context: Any) -> None:
        self.log.append(f"before {tool.name}")
        tool_args["city"] += "?"

    async def after_tool_callback(
        self, *, tool: BaseTool, tool_args: dict[str, Any], tool_context: Any, result: dict[str, Any]
    ) -> dict[str, Any]:
        self.log.append(f"after {tool.name}")
        return {**result, "watched": True}


def plugins(world: World) -> App:
    script = [[call("look_up", {"city": "Oslo"})], "Sunny."]
    return App(name="root", root_agent=agent_of(world, script, [look_up_in(world)]), plugins=[Watcher(world.log)])


class Files(BaseToolset):
    """A toolset whose tools depend on the session's state."""

    def __init__(self, log: list[str]) -> None:
        super().__init__(tool_name_prefix="files")
        self.log = log

    async def get_tools(self, readonly_context: Any = None) -> list[BaseTool]:
        def read(path: str) -> str:
            """Read a file."""
            self.log.append(f"read {path}")
            return f"content of {path}"

        return [FunctionTool(read)]

    async def close(self) -> None:
        self.log.append("closed")


def toolset(world: World) -> LlmAgent:
    return agent_of(world, [[call("files_read", {"path": "a"})], "read"], [Files(world.log), look_up_in(world)])


def inner_agent(world: World) -> LlmAgent:
    inner = LlmAgent(
        name="expert",
        description="Knows weather.",
        model=world.model([[call("look_up", {"city": "Oslo"})], "The expert says: sunny."], "inner"),
        tools=[look_up_in(world)],
    )
    script = [[call("expert", {"request": "Oslo?"}), call("look_up", {"city": "Rome"})], "Sunny."]
    return agent_of(world, script, [AgentTool(inner), look_up_in(world)])


def inner_agent_with_the_last_word(world: World) -> LlmAgent:
    inner = LlmAgent(name="expert", description="Knows.", model=world.model(["The expert says: sunny."], "inner"))
    return agent_of(world, [[call("expert", {"request": "Oslo?"})]], [AgentTool(inner, skip_summarization=True)])


def not_summarized(world: World) -> LlmAgent:
    def report(x: str, tool_context: ToolContext) -> dict[str, str]:
        """Report."""
        tool_context.actions.skip_summarization = True
        return {"report": x}

    return agent_of(world, [[call("report", {"x": "1"})], "never said"], [report])


def typed_answer(world: World) -> LlmAgent:
    script = [[call("look_up", {"city": "Oslo"})], [call("set_model_response", {"number": 4})]]
    return agent_of(world, script, [look_up_in(world)], output_schema=Answer, output_key="found")


def typed_answer_without_tools(world: World) -> LlmAgent:
    return agent_of(world, ['{"number": 4}'], output_schema=Answer, output_key="found")


def output_key(world: World) -> LlmAgent:
    script: list[Reply] = [
        [types.Part(text="First, "), call("look_up", {"city": "Oslo"})],
        [types.Part(text="then, "), call("look_up", {"city": "Rome"})],
        "done.",
    ]
    return agent_of(world, script, [look_up_in(world)], output_key="said", instruction="Said: {said?}")


def artifacts(world: World) -> LlmAgent:
    async def save(name: str, tool_context: ToolContext) -> dict[str, int]:
        """Save."""
        return {"version": await tool_context.save_artifact(name, types.Part(text=f"data of {name}"))}

    async def load(name: str, tool_context: ToolContext) -> dict[str, str | None]:
        """Load."""
        part = await tool_context.load_artifact(name)
        return {"data": part.text if part else None}

    script: list[Reply] = [[call("save", {"name": "a.txt"})], [call("load", {"name": "a.txt"})], "done"]
    return agent_of(world, script, [save, load])


def thoughts(world: World) -> LlmAgent:
    script: list[Reply] = [
        [
            types.Part(text="Hm, the weather.", thought=True, thought_signature=b"sig\xff"),
            call("look_up", {"city": "Oslo"}),
        ],
        [types.Part(text="Now I know.", thought=True), types.Part(text="Sunny.")],
    ]
    return agent_of(world, script, [look_up_in(world)])


def planned(world: World) -> LlmAgent:
    script: list[Reply] = [
        [types.Part(text="/*PLANNING*/ look it up /*ACTION*/"), call("look_up", {"city": "Oslo"})],
        "/*FINAL_ANSWER*/ Sunny.",
    ]
    return agent_of(world, script, [look_up_in(world)], planner=PlanReActPlanner())


def state_writes(world: World) -> LlmAgent:
    def note(key: str, value: str, tool_context: ToolContext) -> dict[str, Any]:
        """Note."""
        tool_context.state[key] = value
        return {"temp": tool_context.state.get("temp:seen"), "user": tool_context.state.get("user:name")}

    script: list[Reply] = [
        [call("look_up", {"city": "Oslo"})],
        [call("note", {"key": "user:name", "value": "Ann"}), call("note", {"key": "plain", "value": "x"})],
        [call("note", {"key": "app:mode", "value": "fast"})],
        "done",
    ]
    return agent_of(world, script, [look_up_in(world), note], instruction="User {user:name?}, mode {app:mode?}.")


def shared_list(world: World) -> LlmAgent:
    async def put(item: str, tool_context: ToolContext) -> dict[str, int]:
        """Put."""
        cart = [*tool_context.state.get("cart", []), item]
        tool_context.state["cart"] = cart
        return {"items": len(cart)}

    return agent_of(world, [[call("put", {"item": "a"}), call("put", {"item": "b"})], "done"], [put])


def repeated_ids(world: World) -> LlmAgent:
    def script(request: LlmRequest) -> Reply:
        return "Sunny." if replies_since_user(request) else [call("look_up", {"city": "Oslo"}, "call_0")]

    return agent_of(world, script, [look_up_in(world)])


def handled_error(world: World) -> LlmAgent:
    def broken(x: str) -> str:
        """Break."""
        raise ValueError(f"broken {x}")

    def on_error(tool: BaseTool, args: dict[str, Any], tool_context: ToolContext, error: Exception) -> dict[str, Any]:
        return {"handled": str(error)}

    return agent_of(world, [[call("broken", {"x": "1"})], "done"], [broken], on_tool_error_callback=on_error)


def endless(world: World) -> LlmAgent:
    def script(request: LlmRequest) -> Reply:
        return [call("look_up", {"city": "Oslo"})]

    return agent_of(world, script, [look_up_in(world)])


def dated(world: World) -> LlmAgent:
    def today() -> dict[str, str]:
        """Say the date."""
        return {"date": date(2026, 1, 2).isoformat()}

    return agent_of(world, [[call("today", {})], "It is the 2nd."], [today])


IMAGE = (
    TextBlock(text="What is this?"),
    MediaBlock(media_type="image/png", data_base64=base64.b64encode(PNG).decode()),
    MediaBlock(media_type="application/pdf", uri="gs://bucket/a.pdf"),
)

SCENARIOS = [
    Scenario(name="one tool, two turns", build=one_tool, turns=("go", "again"), compare_log="exact"),
    Scenario(name="parallel tools, nested rounds", build=parallel_tools, turns=("go", "again")),
    Scenario(name="wrong arguments and unknown tools", build=wrong_calls),
    Scenario(name="odd results", build=odd_results),
    Scenario(name="media in and out", build=media, turns=(IMAGE,)),
    Scenario(name="callbacks of the agent", build=callbacks, turns=("go", "again")),
    Scenario(name="callbacks of a plugin", build=plugins, turns=("go", "again"), compare_log="exact"),
    Scenario(name="a toolset with a prefix", build=toolset),
    Scenario(name="an agent as a tool", build=inner_agent, in_any_order=True),
    Scenario(name="an agent as a tool with the last word", build=inner_agent_with_the_last_word),
    Scenario(name="a result that is not summarized", build=not_summarized, turns=("go",)),
    Scenario(name="a typed answer with tools", build=typed_answer),
    Scenario(name="a typed answer without tools", build=typed_answer_without_tools),
    Scenario(name="an output key", build=output_key, turns=("go", "again")),
    Scenario(name="thoughts and signatures", build=thoughts, turns=("go", "again")),
    Scenario(name="a planner", build=planned),
    Scenario(
        name="state with prefixes",
        build=state_writes,
        turns=("go", "again"),
        state={"user:name": "Bob"},
        one_after_another=True,
    ),
    Scenario(name="shared state, one after another", build=shared_list, state={"cart": []}, one_after_another=True),
    Scenario(name="ids that a provider repeats", build=repeated_ids, turns=("go", "again", "and again")),
    Scenario(name="an error that a callback handles", build=handled_error),
    Scenario(
        name="a limit of model calls",
        build=endless,
        run_config=RunConfig(max_llm_calls=3),
        fails="Max number of llm calls limit of `3` exceeded",
    ),
    Scenario(name="a date", build=dated),
]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: f"google-adk-{scenario.name}".replace(" ", "-"))
async def test_the_model_is_shown_the_same(scenario: Scenario, mode: Mode) -> None:
    await check_parity(scenario, mode)


@pytest.mark.parametrize("mode", MODES)
async def test_google_adk_artifacts(mode: Mode, tmp_path: Path) -> None:
    directories = iter(range(10))
    scenario = Scenario(
        name="artifacts",
        build=artifacts,
        services=lambda: {"artifact_service": FileArtifactService(root_dir=tmp_path / str(next(directories)))},
    )
    await check_parity(scenario, mode)
