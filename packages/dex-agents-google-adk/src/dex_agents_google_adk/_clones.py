"""Copies of the user's agents and plugins for one Step; the user's own are never changed."""

import inspect
import warnings
from collections.abc import Awaitable, Callable
from typing import Any, cast

from google.adk.agents.base_agent import BaseAgent
from google.adk.agents.llm_agent import LlmAgent
from google.adk.models.base_llm import BaseLlm
from google.adk.plugins.base_plugin import BasePlugin
from google.adk.tools.base_toolset import BaseToolset

from dex_agents_google_adk._agent_runs import AgentRuns
from dex_agents_google_adk._custom_agents import is_custom, record_runs
from dex_agents_google_adk._private import CALLBACKS
from dex_agents_google_adk._sessions import tools_of, walk_agents
from dex_agents_google_adk._toolsets import WatchedToolset

_Report = Callable[[BaseToolset, Exception], None]
_Callback = Callable[..., Any]


def clone_agents(
    root: BaseAgent, *, report: _Report, runs: AgentRuns | None = None, model: BaseLlm | str | None = None
) -> BaseAgent:
    """Copy a tree of agents for one Step.

    Args:
        root: The user's root agent.
        report: Gets toolsets whose tools could not be listed.
        runs: Which agents run; None leaves the agents' callbacks as they are.
        model: Takes the place of every agent's model.
    """
    with warnings.catch_warnings():
        # ADK calls some of its own agents deprecated, and says so at each copy.
        warnings.simplefilter("ignore", DeprecationWarning)
        clone = root.clone()
    originals, clones = list(walk_agents(root)), list(walk_agents(clone))
    clone_of = {id(original): copied for original, copied in zip(originals, clones, strict=True)}
    for copied in clones:
        _follow_references(copied, clone_of)
        if runs is not None:
            _gate_callbacks(copied, runs)
            if copied.parent_agent is not None and is_custom(copied.parent_agent):
                record_runs(copied, runs)
        if isinstance(copied, LlmAgent):
            copied.tools = [
                WatchedToolset(tool, report) if isinstance(tool, BaseToolset) else tool for tool in tools_of(copied)
            ]
            if model is not None:
                copied.model = model
    return clone


def _follow_references(agent: BaseAgent, clone_of: dict[int, BaseAgent]) -> None:
    """Let a custom agent that keeps its sub-agents in fields of its own find their copies."""
    for name in type(agent).model_fields:
        value: object = getattr(agent, name)
        if name not in ("parent_agent", "sub_agents") and isinstance(value, BaseAgent) and id(value) in clone_of:
            setattr(agent, name, clone_of[id(value)])


def _gate_callbacks(agent: BaseAgent, runs: AgentRuns) -> None:
    name = agent.name
    before = [_gated(one, lambda: runs.is_continued(name)) for one in agent.canonical_before_agent_callbacks]
    after = [
        _gated(one, lambda: runs.stopped or not runs.has_ended(name)) for one in agent.canonical_after_agent_callbacks
    ]
    agent.before_agent_callback = cast("Any", before or None)
    agent.after_agent_callback = cast("Any", after or None)


def _gated(callback: _Callback, skip: Callable[[], bool]) -> _Callback:
    async def gated(callback_context: Any) -> Any:
        if skip():
            return None
        result = callback(callback_context=callback_context)
        return await result if inspect.isawaitable(result) else result

    return gated


class GatedPlugin(BasePlugin):
    """A user's plugin whose callbacks fire once a turn or an agent's run, and not in every Step."""

    def __init__(self, inner: BasePlugin, skip: Callable[[str, dict[str, Any]], bool]) -> None:
        """Take the user's plugin.

        Args:
            inner: The plugin.
            skip: Whether to leave a callback out, by its name and arguments.
        """
        super().__init__(name=inner.name)
        for name in CALLBACKS:
            setattr(self, name, _delegate(getattr(inner, name), name, skip))


def _delegate(
    callback: Callable[..., Awaitable[Any]], name: str, skip: Callable[[str, dict[str, Any]], bool]
) -> Callable[..., Awaitable[Any]]:
    async def delegate(**arguments: Any) -> Any:
        return None if skip(name, arguments) else await callback(**arguments)

    return delegate
