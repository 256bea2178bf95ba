"""Opens one run of the user's graph for one Step, with what the Step's session and turn give it."""

import asyncio
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import (
    AbstractAsyncContextManager,
    AsyncExitStack,
    contextmanager,
)
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, cast

from langchain.agents.middleware.model_call_limit import ModelCallLimitExceededError
from langchain.agents.middleware.tool_call_limit import ToolCallLimitExceededError
from langchain_core.runnables import RunnableConfig
from langchain_core.runnables.config import merge_configs
from langgraph.errors import GraphRecursionError
from langgraph.types import StateSnapshot

from dex_agents.errors import ConfigurationError, TurnFailedError
from dex_agents.factories import open_for_step
from dex_agents.runner import StepContext
from dex_agents_langgraph._codec import ValueCodec
from dex_agents_langgraph._events import UsageCounter, forward
from dex_agents_langgraph._graphs import graphs_by_path
from dex_agents_langgraph._late_values import late_channels
from dex_agents_langgraph._private import (
    DEFAULT_RECURSION_LIMIT,
    GRAPH_DRAINED,
    STREAMS_TOOL_OUTPUT,
    Graph,
    as_graph,
    delta_channels,
    make_run_control,
)
from dex_agents_langgraph._turn_values import turn_values
from dex_agents_langgraph._types import collect_types

GraphFactory = Callable[[Mapping[str, Any]], Graph]
"""Builds the graph from a session's settings; called in every Step.

With a settings resolver, `model`, `instructions` and `reasoning_effort` are what it made of them.
"""

ContextFactory = Callable[[StepContext], Any | Awaitable[Any] | AbstractAsyncContextManager[Any]]
"""Makes the run's context for one Step: a plain or async function, or one made with `asynccontextmanager`."""

_REFUSED_STATUSES: Final = frozenset({400, 404, 405, 413, 422})
"""With these the provider says that the request itself is wrong: another attempt cannot help."""


@dataclass(frozen=True, kw_only=True)
class BuiltGraph:
    """The user's graph in one Step.

    Attributes:
        graph: The graph, which is never changed.
        codec: Writes and reads its values.
        deltas: By the nodes that lead to a graph, its channels whose value lies in the writes of earlier checkpoints.
        turn_values: Likewise, its channels that hold their value for one turn only.
        late_channels: Likewise, its channels whose values need not be read before somebody asks.
        recursion_limit: Supersteps that one turn may take.
    """

    graph: Graph
    codec: ValueCodec
    deltas: Mapping[tuple[str, ...], frozenset[str]]
    turn_values: Mapping[tuple[str, ...], set[str]]
    late_channels: Mapping[tuple[str, ...], frozenset[str]]
    recursion_limit: int


@dataclass(frozen=True, kw_only=True)
class GraphRuns:
    """The user's graph, and what each of its runs gets.

    Attributes:
        agent: The graph, or what builds it from settings.
        context: Makes the run's context; None for a graph without any.
        config: LangChain's config for every run: tags, metadata, callbacks, the recursion limit.
        allowed_types: Types that may be stored beside those that the graph names.
        streaming: Let models stream.
        segment_seconds: After so long a RunModel Step ends at the next superstep.
    """

    agent: Graph | GraphFactory
    context: ContextFactory | None
    config: RunnableConfig
    allowed_types: Sequence[type]
    streaming: bool
    segment_seconds: float

    def build(self, settings: Mapping[str, Any]) -> BuiltGraph:
        """Return the graph for a session's settings.

        Raises:
            ConfigurationError: The factory returned something else.
        """
        given: object = self.agent
        return self._fixed if as_graph(given) else self._look_at(cast("GraphFactory", given)(settings))

    @cached_property
    def _fixed(self) -> BuiltGraph:
        # Looking at a graph takes some milliseconds, and a given one does not change.
        return self._look_at(self.agent)

    def _look_at(self, made: object) -> BuiltGraph:
        graph = as_graph(made)
        if graph is None:
            raise ConfigurationError(
                f"the agent is a {type(made).__name__}: give a compiled graph, or a function that builds one from the "
                "session's settings"
            )
        limits = (source.get("recursion_limit") for source in (self.config, graph.config or {}))
        return BuiltGraph(
            graph=graph,
            codec=ValueCodec(collect_types(graph, self.allowed_types)),
            deltas={path: delta_channels(one) for path, one in graphs_by_path(graph)},
            turn_values={path: turn_values(one) for path, one in graphs_by_path(graph)},
            late_channels={path: late_channels(one) for path, one in graphs_by_path(graph)},
            recursion_limit=next((limit for limit in limits if limit is not None), DEFAULT_RECURSION_LIMIT),
        )

    def thread_config(self, step: StepContext) -> RunnableConfig:
        """Return the config that names the thread."""
        return {"configurable": {"thread_id": step.session_id}}

    def config_for(self, step: StepContext) -> RunnableConfig:
        """Return LangChain's config for what a Step runs."""
        return merge_configs(
            self.config,
            {
                "configurable": {**_configurable_setting(step), "thread_id": step.session_id},
                "metadata": {"session_id": step.session_id, "turn_id": step.turn_id},
            },
        )

    def _stream_modes(self, *, inside_tool: bool) -> list[str]:
        if not self.streaming:
            return ["custom"]
        # Either mode lets models stream: inside tools, too, as in a plain run that is streamed.
        return ["custom", "messages", "tools"] if inside_tool and STREAMS_TOOL_OUTPUT else ["custom", "messages"]

    async def run(
        self,
        graph: Graph,
        run_input: Any,
        step: StepContext,
        *,
        usage: UsageCounter,
        recursion_limit: int,
        call_id: str | None = None,
    ) -> bool:
        """Run a copy of the graph to where it stops.

        Args:
            graph: The copy, with its checkpointer.
            run_input: What LangGraph gets.
            step: The Step.
            usage: Counts model calls.
            recursion_limit: Supersteps that are left.
            call_id: The call that the run is for; None in RunModel.

        Returns:
            Whether the run was stopped because it took long or because the Worker stops, and has more to do.
        """
        modes = self._stream_modes(inside_tool=call_id is not None)
        options: dict[str, Any] = {}
        if call_id is not None:
            # Such a pass is thrown away: nobody reads what it leaves in the channels.
            options["output_keys"] = []
        control = make_run_control() if call_id is None else None
        if control is not None:
            options["control"] = control
        config = merge_configs(self.config_for(step), {"callbacks": [usage], "recursion_limit": recursion_limit})
        async with open_for_step(self.context, step) as context, AsyncExitStack() as stack:
            if context is not None:
                options["context"] = context
            timer = None
            if control is not None:
                timer = asyncio.get_running_loop().call_later(self.segment_seconds, control.request_drain)
                stack.enter_context(step.stopping.calls(control.request_drain))
            try:
                # Everything is saved once, when the run stops: the Step is what makes it durable.
                stream = cast("Any", graph).astream(
                    run_input, config, stream_mode=modes, subgraphs=True, durability="exit", **options
                )
                async for namespace, mode, data in stream:
                    forward(namespace, mode, data, step.events, call_id=call_id or "")
            except GRAPH_DRAINED:
                return True
            finally:
                if timer is not None:
                    timer.cancel()
        return False

    async def look(self, graph: Graph, step: StepContext) -> StateSnapshot:
        """Return where a graph stands."""
        return await graph.aget_state(self.thread_config(step))


def _configurable_setting(step: StepContext) -> dict[str, Any]:
    value = step.settings.get("configurable", {})
    if not isinstance(value, dict):
        raise TurnFailedError(f"the setting 'configurable' is {value!r}: give an object")
    own = [name for name in value if name.startswith(("__", "checkpoint_")) or name == "thread_id"]
    if own:
        raise TurnFailedError(f"the setting 'configurable' has {own[0]!r}, which the session sets itself: leave it out")
    return dict(value)


@contextmanager
def translate_failures() -> Generator[None]:
    """Raise `TurnFailedError` for what another attempt of the same run cannot help."""
    try:
        yield
    except (GraphRecursionError, ModelCallLimitExceededError, ToolCallLimitExceededError) as error:
        raise TurnFailedError(str(error)) from error
    except Exception as error:
        # The clients of all providers put the HTTP status there.
        if getattr(error, "status_code", None) in _REFUSED_STATUSES:
            raise TurnFailedError(f"{type(error).__name__}: {error}") from error
        raise


def settings_of(step: StepContext) -> Mapping[str, Any]:
    """Return what a graph is built from: the settings, with what the session's resolver made of them laid over."""
    if step.resolved is None:
        return step.settings
    return {**step.settings, **{name: value for name, value in vars(step.resolved).items() if value is not None}}
