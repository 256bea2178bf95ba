"""The small world of `dex-agents demo`: three tools, a question, and a log outside the session.

An adapter builds an agent of its framework from these, with a scripted model that asks for `CALLS` in one response and
then says `ANSWER`, and offers it by the entry point group `dex_agents.demos`: the framework's name leads to a function
that returns the agent's `AgentSessionFlow`.

Each tool run appends to the log that `DEX_AGENTS_DEMO_LOG` names, so that anybody can count afterwards what ran how
often. The services that the tools write to are simulated by that log: a reservation is dropped when its idempotency key
was seen before; a card would be charged again.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from pydantic import JsonValue

from dex_agents._demo.tool_run import begin_tool_run, log_model_call
from dex_agents.tools import ToolEffect, ToolPolicies, ToolPolicy

__all__ = [
    "ANSWER",
    "CALLS",
    "POLICIES",
    "QUESTION",
    "DemoCall",
    "charge_card",
    "look_up_order",
    "record_model_call",
    "reserve_stock",
]

QUESTION: Final = "Please deliver order A-17: look it up, reserve its stock and charge the card."
ANSWER: Final = "Order A-17 is on its way: one chair is reserved and 60 euros are charged."


@dataclass(frozen=True, kw_only=True)
class DemoCall:
    """One tool call that the scripted model asks for.

    Attributes:
        name: The tool.
        arguments: A JSON object.
    """

    name: str
    arguments: Mapping[str, JsonValue]


CALLS: Final = (
    DemoCall(name="look_up_order", arguments=MappingProxyType({"order_id": "A-17"})),
    DemoCall(name="reserve_stock", arguments=MappingProxyType({"order_id": "A-17"})),
    DemoCall(name="charge_card", arguments=MappingProxyType({"order_id": "A-17", "euros": 60})),
)
"""All of them in the model's first response, in this order."""

POLICIES: Final[ToolPolicies] = {
    "look_up_order": ToolEffect.READ,
    "reserve_stock": ToolEffect.IDEMPOTENT_WRITE,
    "charge_card": ToolPolicy(effect=ToolEffect.NON_IDEMPOTENT_WRITE, approval=True),
}


async def look_up_order(order_id: str) -> str:
    """Look an order up."""
    with begin_tool_run("look_up_order"):
        return f"order {order_id}: one chair, 60 euros, paid by card"


async def reserve_stock(order_id: str) -> str:
    """Reserve the stock of an order; the warehouse drops a repeated reservation by its idempotency key."""
    with begin_tool_run("reserve_stock") as run:
        if not run.was_applied():
            run.apply()
        await run.hold_first_run()
        return f"order {order_id}: one chair is reserved"


async def charge_card(order_id: str, euros: int) -> str:
    """Charge the card of an order; each run charges it once more."""
    with begin_tool_run("charge_card") as run:
        run.apply()
        return f"order {order_id}: {euros} euros are charged"


def record_model_call() -> None:
    """Count one call of the scripted model; the adapter's model calls it each time it is asked."""
    log_model_call()
