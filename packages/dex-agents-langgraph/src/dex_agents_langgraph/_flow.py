"""The few-line way from a graph to its session Flow."""

import logging
from collections.abc import Collection, Sequence

from langchain_core.language_models import BaseChatModel
from langchain_core.runnables import RunnableConfig

from dex_agents import AgentSessionFlow, AgentSessionOptions, ToolPolicies
from dex_agents.errors import ConfigurationError
from dex_agents.reconciliation import Reconcilers
from dex_agents.settings import SettingsResolver
from dex_agents_langgraph._private import Graph
from dex_agents_langgraph._runner import InputFactory, LangGraphRunner
from dex_agents_langgraph._runs import ContextFactory, GraphFactory

_logger = logging.getLogger(__name__)

_UNNAMED = "LangGraph"  # what LangGraph calls a graph that was compiled without a name


def session_flow(
    agent: Graph | GraphFactory,
    *,
    name: str | None = None,
    tools: ToolPolicies | None = None,
    context: ContextFactory | None = None,
    config: RunnableConfig | None = None,
    graph_input: InputFactory | None = None,
    inside_model_step: Collection[str] = (),
    allowed_types: Sequence[type] = (),
    streaming: bool = True,
    segment_seconds: float = 300,
    summary_model: BaseChatModel | str | None = None,
    options: AgentSessionOptions | None = None,
    reconcilers: Reconcilers | None = None,
    settings_resolver: SettingsResolver | None = None,
) -> AgentSessionFlow:
    """Build the session Flow of a graph; `AgentHost` serves it.

    A report of which tools are Steps of their own and which run inside RunModel is logged at level INFO.

    Args:
        agent: The compiled graph, or a function that builds it from a session's settings.
        name: The Flow type, which must stay the same for ever; None takes the graph's name.
        tools: As for `LangGraphRunner`.
        context: As for `LangGraphRunner`.
        config: As for `LangGraphRunner`.
        graph_input: As for `LangGraphRunner`.
        inside_model_step: As for `LangGraphRunner`.
        allowed_types: As for `LangGraphRunner`.
        streaming: As for `LangGraphRunner`.
        segment_seconds: As for `LangGraphRunner`.
        summary_model: As for `LangGraphRunner`.
        options: The application's choices about sessions; None for the defaults.
        reconcilers: Find out, by the tool's name, what became of a call whose outcome is unknown.
        settings_resolver: Makes a model, instructions and a reasoning effort of a session's settings, for a
            function that builds the graph, or for `context`; nothing else would be told of them.

    Raises:
        ConfigurationError: Neither the graph nor the call gives a name, or no Flow can have it; or there is a
            `settings_resolver` and nothing that would use what it makes; or the options ask for a compaction that the
            graph cannot have.
    """
    if settings_resolver is not None and not callable(agent) and context is None:
        raise ConfigurationError(
            "settings_resolver is given with a compiled graph, which does not use what it makes: give a function that "
            "builds the graph from the settings, or a `context` that reads them"
        )
    runner = LangGraphRunner(
        agent,
        tools=tools,
        context=context,
        config=config,
        graph_input=graph_input,
        inside_model_step=inside_model_step,
        allowed_types=allowed_types,
        streaming=streaming,
        segment_seconds=segment_seconds,
        summary_model=summary_model,
    )
    refusal = None if options is None or options.compaction is None else runner.compaction_refusal()
    if refusal is not None:
        raise ConfigurationError(f"compaction is on, but {refusal}")
    flow_name = runner.graph_name if name is None else name
    if name is None and (not flow_name or flow_name == _UNNAMED):
        raise ConfigurationError(
            "the graph has no name: compile it with one, or pass `name`; sessions are found by it for ever"
        )
    _logger.info("tools of agent %r\n%s", flow_name, runner.report())
    return AgentSessionFlow(
        runner,
        name=flow_name,
        options=AgentSessionOptions() if options is None else options,
        reconcilers=reconcilers,
        settings_resolver=settings_resolver,
    )
