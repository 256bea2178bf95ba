"""The user's hooks, let through where this Step does what they watch, and nowhere else."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from agents import Agent, AgentHookContext, AgentHooks, RunContextWrapper, RunHooks, Tool, TResponseInputItem
from agents.items import ModelResponse


def _ignore_model() -> None:
    pass


def _ignore_tool(context: object) -> None:
    del context


@dataclass(kw_only=True)
class HookGate:
    """What hooks of one Step hear.

    Attributes:
        model: Hooks about agents, models and handoffs are called.
        tools: Hooks about tools are called.
        starts: An agent's start hooks are called; off when an earlier Step called them for the same agent.
        handed_off: Another agent took over in this Step.
        asked_model: The current agent's model was asked in this Step.
        before_model: Called when the model is about to be asked.
        before_tool: Called with the context of a tool that is about to run.
    """

    model: bool
    tools: bool
    starts: bool = True
    handed_off: bool = False
    asked_model: bool = False
    before_model: Callable[[], None] = _ignore_model
    before_tool: Callable[[object], None] = _ignore_tool


class StepHooks(RunHooks[Any]):
    """Run hooks of one Step: the gate's own, then the user's."""

    def __init__(self, inner: RunHooks[Any] | None, gate: HookGate) -> None:
        self._inner = inner or RunHooks[Any]()
        self._gate = gate

    async def on_llm_start(
        self,
        context: RunContextWrapper[Any],
        agent: Agent[Any],
        system_prompt: str | None,
        input_items: list[TResponseInputItem],
    ) -> None:
        """Tell the Step that its one model call begins."""
        self._gate.asked_model = True
        self._gate.before_model()
        if self._gate.model:
            await self._inner.on_llm_start(context, agent, system_prompt, input_items)

    async def on_llm_end(self, context: RunContextWrapper[Any], agent: Agent[Any], response: ModelResponse) -> None:
        """Pass on."""
        if self._gate.model:
            await self._inner.on_llm_end(context, agent, response)

    async def on_agent_start(self, context: AgentHookContext[Any], agent: Agent[Any]) -> None:
        """Pass on once for each time that an agent takes over."""
        if self._gate.model and self._gate.starts:
            await self._inner.on_agent_start(context, agent)

    async def on_agent_end(self, context: AgentHookContext[Any], agent: Agent[Any], output: Any) -> None:
        """Pass on."""
        if self._gate.model:
            await self._inner.on_agent_end(context, agent, output)

    async def on_handoff(self, context: RunContextWrapper[Any], from_agent: Agent[Any], to_agent: Agent[Any]) -> None:
        """Remember that another agent takes over, and pass on."""
        self._gate.handed_off = True
        self._gate.asked_model = False
        self._gate.starts = True
        if self._gate.model:
            await self._inner.on_handoff(context, from_agent, to_agent)

    async def on_tool_start(self, context: RunContextWrapper[Any], agent: Agent[Any], tool: Tool) -> None:
        """Pass on where the tool really runs."""
        self._gate.before_tool(context)
        if self._gate.tools:
            await self._inner.on_tool_start(context, agent, tool)

    async def on_tool_end(self, context: RunContextWrapper[Any], agent: Agent[Any], tool: Tool, result: object) -> None:
        """Pass on where the tool really runs."""
        if self._gate.tools:
            await self._inner.on_tool_end(context, agent, tool, result)


class StepAgentHooks(AgentHooks[Any]):
    """An agent's own hooks behind the gate of one Step."""

    def __init__(self, inner: AgentHooks[Any], gate: HookGate) -> None:
        self._inner = inner
        self._gate = gate

    async def on_start(self, context: AgentHookContext[Any], agent: Agent[Any]) -> None:
        """Pass on once for each time that the agent takes over."""
        if self._gate.model and self._gate.starts:
            await self._inner.on_start(context, agent)

    async def on_end(self, context: AgentHookContext[Any], agent: Agent[Any], output: Any) -> None:
        """Pass on."""
        if self._gate.model:
            await self._inner.on_end(context, agent, output)

    async def on_handoff(self, context: RunContextWrapper[Any], agent: Agent[Any], source: Agent[Any]) -> None:
        """Pass on."""
        if self._gate.model:
            await self._inner.on_handoff(context, agent, source)

    async def on_tool_start(self, context: RunContextWrapper[Any], agent: Agent[Any], tool: Tool) -> None:
        """Pass on where the tool really runs."""
        self._gate.before_tool(context)
        if self._gate.tools:
            await self._inner.on_tool_start(context, agent, tool)

    async def on_tool_end(self, context: RunContextWrapper[Any], agent: Agent[Any], tool: Tool, result: object) -> None:
        """Pass on where the tool really runs."""
        if self._gate.tools:
            await self._inner.on_tool_end(context, agent, tool, result)

    async def on_llm_start(
        self,
        context: RunContextWrapper[Any],
        agent: Agent[Any],
        system_prompt: str | None,
        input_items: list[TResponseInputItem],
    ) -> None:
        """Pass on."""
        if self._gate.model:
            await self._inner.on_llm_start(context, agent, system_prompt, input_items)

    async def on_llm_end(self, context: RunContextWrapper[Any], agent: Agent[Any], response: ModelResponse) -> None:
        """Pass on."""
        if self._gate.model:
            await self._inner.on_llm_end(context, agent, response)
