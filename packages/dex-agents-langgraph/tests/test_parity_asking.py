"""A durable session shows the model what a plain run of the same agent shows it: people who approve and answer."""

# LangGraph leaves parts of its own types open.
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false, reportUnknownVariableType=false

import inspect
from typing import Any, cast

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import HumanInTheLoopMiddleware
from langchain.tools import tool
from langchain_core.tools import BaseTool
from langgraph.types import interrupt

from dex_agents.testing import PendingQuestion, answer_with, approve, deny
from dex_agents.tools import Answer
from dex_agents_langgraph._private import Graph
from dex_agents_langgraph.testing import reply, tool_call
from support.langgraph_parity import MODES, Mode, Models, Scenario, check_parity

HAS_CALL_REVIEWS = "interrupt_mode" in inspect.signature(HumanInTheLoopMiddleware.__init__).parameters


def tools_of(log: list[str]) -> list[BaseTool]:
    @tool
    def look_up(city: str) -> str:
        """Say what the weather is."""
        log.append(f"look_up {city}")
        return f"{city} is sunny"

    @tool
    def send(to: str) -> str:
        """Send a mail."""
        log.append(f"send {to}")
        return f"sent to {to}"

    @tool
    def consult(question: str) -> str:
        """Ask a person twice."""
        log.append(f"consult {question}")
        name = interrupt({"question": question})
        color = interrupt({"question": f"which color, {name}?"})
        log.append(f"consulted {name} {color}")
        return f"{name} likes {color}"

    return [look_up, send, consult]


def reviewed(mode: str, allowed: Any = True) -> Any:
    options: dict[str, Any] = {"interrupt_mode": mode} if mode != "batched" else {}

    def build(models: Models, log: list[str]) -> Graph:
        review = HumanInTheLoopMiddleware(interrupt_on={"send": allowed}, **options)
        return create_agent(models["m"], tools_of(log), middleware=[review])

    return build


def consulting(models: Models, log: list[str]) -> Graph:
    return create_agent(models["m"], tools_of(log))


def nested(models: Models, log: list[str]) -> Graph:
    inner = create_agent(
        models["inner"],
        tools_of(log),
        middleware=[HumanInTheLoopMiddleware(interrupt_on={"send": True})],
        name="inner",
    )

    @tool
    async def research(question: str) -> str:
        """Ask another agent."""
        log.append(f"research {question}")
        result = await inner.ainvoke({"messages": [{"role": "user", "content": question, "id": "asked"}]})
        return str(result["messages"][-1].text)

    return create_agent(models["m"], [research, *tools_of(log)])


def decide_on(to: str) -> dict[str, Any]:
    """What the person decides, in LangChain's words."""
    match to:
        case "bob":
            return {"type": "edit", "edited_action": {"name": "send", "args": {"to": "robert"}}}
        case "eve":
            return {"type": "reject", "message": "not eve"}
        case "mallory":
            return {"type": "reject"}
        case "me":
            return {"type": "respond", "message": "I did it myself"}
        case _:
            return {"type": "approve"}


def resume(value: Any) -> Any:
    if "action_requests" in value:
        return {"decisions": [decide_on(action["args"]["to"]) for action in value["action_requests"]]}
    if value.get("type") == "tool_approval":
        return decide_on(value["args"]["to"])
    return "blue" if "color" in value["question"] else "Ann"


def decide(pending: PendingQuestion) -> Answer:
    detail = cast("dict[str, Any]", pending.question.detail)
    if "question" in detail:
        return answer_with("blue" if "color" in detail["question"] else "Ann")
    if pending.question.kind == "answer":
        return answer_with("I did it myself")
    match detail["arguments"]["to"]:
        case "bob":
            return approve({"to": "robert"})
        case "eve":
            return deny("not eve")
        case "mallory":
            return Answer(question_id="", approved=False)
        case "me":
            # A person's words in place of the tool's result.
            return answer_with("I did it myself")
        case _:
            return approve()


MAILS = [
    reply(
        "mails",
        tool_call("look_up", "1", city="Oslo"),
        *(tool_call("send", f"mail-{to}", to=to) for to in ("ann", "bob", "eve", "mallory", "me")),
    ),
    "done",
]
RESPOND_ONLY = {"allowed_decisions": ["respond"]}
NO_REJECT = {"allowed_decisions": ["approve", "respond"]}

SCENARIOS = [
    Scenario(
        name="a review of all calls of a response",
        scripts={"m": MAILS},
        build=reviewed("batched"),
        resume=resume,
        decide=decide,
    ),
    Scenario(
        name="a review in which a person speaks for the tool",
        scripts={"m": [reply("", tool_call("send", "1", to="me")), "done"]},
        build=reviewed("batched", RESPOND_ONLY),
        resume=resume,
        decide=decide,
    ),
    Scenario(
        name="a review that knows no rejection",
        scripts={"m": [reply("", tool_call("send", "1", to="me")), "done"]},
        build=reviewed("batched", NO_REJECT),
        resume=resume,
        decide=lambda pending: deny("I did it myself"),
    ),
    Scenario(
        name="a tool that asks twice",
        scripts={
            "m": [reply("", tool_call("consult", "1", question="who?"), tool_call("look_up", "2", city="Oslo")), "x"]
        },
        build=consulting,
        resume=resume,
        decide=decide,
    ),
    Scenario(
        name="a review inside an agent that is a tool",
        scripts={
            "m": [reply("", tool_call("research", "1", question="x"), tool_call("look_up", "2", city="Rome")), "done"],
            "inner": MAILS,
        },
        build=nested,
        resume=resume,
        decide=decide,
    ),
]
if HAS_CALL_REVIEWS:
    SCENARIOS.append(
        Scenario(
            name="a review of each call",
            scripts={"m": MAILS},
            build=reviewed("per_call"),
            resume=resume,
            decide=decide,
        )
    )


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("scenario", SCENARIOS, ids=[f"langgraph-{scenario.name}" for scenario in SCENARIOS])
async def test_the_model_sees_what_a_plain_run_shows_it(scenario: Scenario, mode: Mode) -> None:
    await check_parity(scenario, mode)
