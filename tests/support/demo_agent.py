"""The demo's agent without a framework: a model that asks for the demo's calls and then gives its answer."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Final, cast

from pydantic import JsonValue

from dex_agents import AgentSessionFlow, demo
from dex_agents.messages import CallBlock, Message, text_message
from dex_agents.runner import (
    BatchSettled,
    CallToolRequest,
    CannotCompactNow,
    Closed,
    CloseTurnRequest,
    CompactOutcome,
    CompactRequest,
    Description,
    Finished,
    FrameworkState,
    ModelStep,
    RunModelRequest,
    Waiting,
)
from dex_agents.tools import Returned, ToolOutcome, ToolRequest, find_policy

TOOLS: Final[Mapping[str, Callable[..., Awaitable[str]]]] = {
    "look_up_order": demo.look_up_order,
    "reserve_stock": demo.reserve_stock,
    "charge_card": demo.charge_card,
}


class DemoRunner:
    """Asks for all calls, then answers."""

    def describe(self) -> Description:
        """Say what this is."""
        return Description(
            framework="echo",
            framework_version="1",
            reads_formats=(1,),
            supports_steering=False,
            supports_compaction=False,
        )

    async def run_model(self, request: RunModelRequest) -> ModelStep:
        """Play the model."""
        demo.record_model_call()
        state = FrameworkState(framework="echo", framework_version="1", format=1, value=[])
        if isinstance(request.input, BatchSettled):
            answer = text_message("assistant", demo.ANSWER)
            return ModelStep(outcome=Finished(text=demo.ANSWER), state=state, messages=(answer,))
        calls = tuple(
            ToolRequest(
                call_id=f"provider-{number}",
                name=call.name,
                arguments=cast("JsonValue", dict(call.arguments)),
                policy=find_policy(demo.POLICIES, call.name),
            )
            for number, call in enumerate(demo.CALLS)
        )
        blocks = tuple(CallBlock(call_id=call.call_id, name=call.name, arguments=call.arguments) for call in calls)
        asked = Message(role="assistant", blocks=blocks)
        return ModelStep(outcome=Waiting(calls=calls), state=state, messages=(asked,))

    async def call_tool(self, request: CallToolRequest) -> ToolOutcome:
        """Run the tool."""
        arguments = cast("dict[str, JsonValue]", request.call.arguments)
        text = await TOOLS[request.call.name](**arguments)
        return Returned(record=text, text=text)

    async def close_turn(self, request: CloseTurnRequest) -> Closed:
        """Keep the state."""
        return Closed(state=request.state)

    async def compact(self, request: CompactRequest) -> CompactOutcome:
        """Refuse."""
        return CannotCompactNow(reason="not supported")


def demo_flow() -> AgentSessionFlow:
    """Build the demo agent, as an adapter's entry point does."""
    return AgentSessionFlow(DemoRunner(), name="echo-demo")
