"""A copy of the user's agents for one Step: same names, models, tools and handoffs, other behaviour of tools."""

import copy
from collections.abc import Callable, Sequence
from typing import Any, Final, cast

from agents import Agent, AgentBase, Handoff, Model, RunContextWrapper, Tool, handoff

from dex_agents_openai_agents._hooks import HookGate, StepAgentHooks
from dex_agents_openai_agents._private import handoff_target, set_handoff_target

HANDOFF_NOT_DONE: Final = "not done: the turn ended early"
"""What the model reads of a handoff that stood beside the calls of a turn that ended early."""


class AgentCopies:
    """Copies agents that hand off to each other, in cycles too; the user's objects are never changed.

    Attributes:
        root: The copy of the agent that the runner was made with.
    """

    def __init__(
        self,
        agent: Agent[Any],
        *,
        adapt_tool: Callable[[Tool], Tool],
        gate: HookGate,
        stops_after_tools: bool,
        adapt_model: Callable[[Model], Model] | None = None,
    ) -> None:
        """Copy an agent and all agents that it can hand off to.

        Args:
            agent: The agent.
            adapt_tool: Makes the tool that this Step uses of a tool of an agent.
            gate: What hooks hear.
            stops_after_tools: Nothing but tools runs: no handoff, no guardrail, no decision about the tools' results.
            adapt_model: Makes the model that this Step uses of a model that an agent names; None takes it as it is.
        """
        self._adapt_tool = adapt_tool
        self._gate = gate
        self._stops_after_tools = stops_after_tools
        self._adapt_model = adapt_model
        # Also holds the copies: a handoff keeps only a weak reference to its target.
        self._copies: dict[int, Agent[Any]] = {}
        self.root = self._copy(agent)

    def find(self, name: str | None) -> Agent[Any]:
        """Return the agent with that name; the root when there is none any more."""
        # The order of discovery, so that of two agents with one name the nearer is found.
        return next((agent for agent in self._copies.values() if agent.name == name), self.root)

    def _copy(self, agent: Agent[Any]) -> Agent[Any]:
        known = self._copies.get(id(agent))
        if known is not None:
            return known
        made = copy.copy(agent)
        self._copies[id(agent)] = made
        # A copy that is handed off to again must not be copied once more.
        self._copies[id(made)] = made
        made.__class__ = self._with_adapted_tools(type(agent))
        if agent.hooks is not None:
            made.hooks = StepAgentHooks(cast(Any, agent.hooks), self._gate)
        if self._adapt_model is not None and isinstance(agent.model, Model):
            made.model = self._adapt_model(agent.model)
        made.handoffs = [self._copy_handoff(one, made) for one in agent.handoffs]
        if self._stops_after_tools:
            made.tool_use_behavior = "run_llm_again"
            made.input_guardrails = []
            made.output_guardrails = []
        return made

    def _with_adapted_tools(self, base: type[Agent[Any]]) -> type[Agent[Any]]:
        adapt = self._adapt_tool

        async def get_all_tools(agent: Agent[Any], run_context: RunContextWrapper[Any]) -> list[Tool]:
            found: Sequence[Tool] = await base.get_all_tools(agent, run_context)
            return [adapt(tool) for tool in found]

        names = {"get_all_tools": get_all_tools, "__module__": base.__module__, "__qualname__": base.__qualname__}
        return type(base.__name__, (base,), names)

    def _copy_handoff(self, given: Agent[Any] | Handoff[Any, Any], owner: Agent[Any]) -> Agent[Any] | Handoff[Any, Any]:
        if isinstance(given, Agent):
            target = self._copy(given)
            return self._stop(handoff(target), owner) if self._stops_after_tools else target
        made = copy.copy(given)
        target = handoff_target(given)
        if target is not None:
            set_handoff_target(made, self._copy(target))
        if self._stops_after_tools:
            return self._stop(made, owner)
        invoke = given.on_invoke_handoff

        async def invoke_and_copy(context: RunContextWrapper[Any], arguments: str) -> Agent[Any]:
            return self._copy(await invoke(context, arguments))

        made.on_invoke_handoff = invoke_and_copy
        return made

    def _stop(self, made: Handoff[Any, Any], owner: Agent[Any]) -> Handoff[Any, Any]:
        """Let a handoff lead nowhere, and keep the history as it is."""

        async def stay(_context: RunContextWrapper[Any], _arguments: str) -> Agent[Any]:
            return owner

        def say_not_done(agent: AgentBase[Any]) -> str:
            del agent
            return HANDOFF_NOT_DONE

        made.on_invoke_handoff = stay
        made.input_filter = None
        made.nest_handoff_history = False
        made.get_transfer_message = say_not_done
        return made
