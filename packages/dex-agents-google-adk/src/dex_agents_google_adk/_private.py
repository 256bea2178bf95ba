"""Every name of Google ADK that its documentation does not promise, in one place, checked at import.

A release that renames one of these names makes the import fail with a sentence that says so, instead of making a
session go wrong.
"""

import importlib
import logging
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator, Iterable
from contextlib import contextmanager
from contextvars import ContextVar
from importlib.metadata import version
from typing import Any, Final, cast

from google.adk.agents.base_agent import BaseAgent
from google.adk.agents.invocation_context import InvocationContext
from google.adk.agents.run_config import RunConfig
from google.adk.events.event import Event
from google.adk.models.llm_request import LlmRequest
from google.adk.plugins.base_plugin import BasePlugin
from google.adk.runners import Runner
from google.adk.sessions.session import Session
from google.adk.tools.base_tool import BaseTool
from google.adk.tools.tool_confirmation import ToolConfirmation
from google.genai import types

SUPPORTED_RELEASES: Final = ">=2.9.2,<2.14"
"""The releases of google-adk that this adapter was tested with; the package metadata names the same."""

DISTRIBUTION: Final = "google-adk"

_VERSION: Final = version(DISTRIBUTION)  # each state names it, and reading a distribution's metadata takes long

REQUEST_INPUT: Final = "adk_request_input"
REQUEST_CREDENTIAL: Final = "adk_request_credential"
REQUEST_CONFIRMATION: Final = "adk_request_confirmation"

_NAMES: Final[dict[str, tuple[str, ...]]] = {
    "google.adk.flows.llm_flows.functions": (
        "handle_function_call_list_async",
        "find_event_by_function_call_id",
        "REQUEST_CONFIRMATION_FUNCTION_CALL_NAME",
        "REQUEST_EUC_FUNCTION_CALL_NAME",
        "REQUEST_INPUT_FUNCTION_CALL_NAME",
    ),
    "google.adk.flows.llm_flows.base_llm_flow": ("_process_agent_tools", "_resolve_toolset_auth", "decide_step_resume"),
    "google.adk.runners": ("Runner._new_invocation_context", "Runner._find_user_message_for_invocation"),
    "google.adk.agents.callback_context": ("CallbackContext",),
    "google.adk.agents.invocation_context": (
        "LlmCallsLimitExceededError",
        "InvocationContext.increment_llm_call_count",
        "InvocationContext.__private_attributes__._invocation_cost_manager",
    ),
    "google.adk.tools.base_tool": ("BaseTool._defers_response", "BaseTool._get_declaration"),
    "google.adk.tools.agent_tool": ("_SingleTurnAgentTool", "_TaskAgentTool"),
    "google.adk.tools._node_tool": ("NodeTool",),
}


def installed_version() -> str:
    """Return the installed release of Google ADK."""
    return _VERSION


def check_names(expected: dict[str, tuple[str, ...]] = _NAMES) -> None:
    """Check that every undocumented name that this adapter uses is still there.

    Args:
        expected: Dotted names by module; a name of `__private_attributes__` is a private field of a model.

    Raises:
        ImportError: A name is missing; the text names it, the installed release and the supported range.
    """
    for module, names in expected.items():
        for name in names:
            _look_up(module, name)


def _look_up(module: str, name: str) -> Any:
    try:
        found: Any = importlib.import_module(module)
        for part in name.split("."):
            found = cast("dict[str, Any]", found)[part] if isinstance(found, dict) else getattr(found, part)
    except (ImportError, AttributeError, KeyError) as error:
        raise ImportError(
            f"{DISTRIBUTION} {installed_version()} has no {module}.{name}, which dex-agents-google-adk needs: install "
            f"a release in the range {SUPPORTED_RELEASES}"
        ) from error
    return found


check_names()

_FUNCTIONS: Final = "google.adk.flows.llm_flows.functions"
_FLOW: Final = "google.adk.flows.llm_flows.base_llm_flow"
_Calls = Callable[
    [
        InvocationContext,
        list[types.FunctionCall],
        dict[str, BaseTool],
        set[str] | None,
        dict[str, ToolConfirmation] | None,
    ],
    Coroutine[Any, Any, Event | None],
]
_run_calls: Final[_Calls] = _look_up(_FUNCTIONS, "handle_function_call_list_async")
_process_agent_tools: Final[Callable[[InvocationContext, LlmRequest], Coroutine[Any, Any, None]]] = _look_up(
    _FLOW, "_process_agent_tools"
)
_resolve_toolset_auth: Final[Callable[[InvocationContext, Any], AsyncGenerator[Event, None]]] = _look_up(
    _FLOW, "_resolve_toolset_auth"
)
LlmCallsLimitExceededError: Final[type[Exception]] = _look_up(
    "google.adk.agents.invocation_context", "LlmCallsLimitExceededError"
)
"""What ADK raises when an invocation makes more model calls than its `RunConfig` allows."""

STREAMED: Final[Any] = _look_up("google.adk.agents.run_config", "StreamingMode.SSE")
"""The streaming mode in which a model sends its response in pieces."""

_NODE_RUNNING_TOOLS: Final[tuple[type[BaseTool], ...]] = (
    _look_up("google.adk.tools.agent_tool", "_SingleTurnAgentTool"),
    _look_up("google.adk.tools._node_tool", "NodeTool"),
)


def invocation_of(callback_context: Any) -> InvocationContext:
    """Return the invocation that a callback belongs to."""
    return callback_context._invocation_context


def count_model_calls(invocation: InvocationContext, already_made: int) -> None:
    """Let an invocation that goes on count the model calls of its earlier Steps."""
    manager: Any = invocation._invocation_cost_manager  # pyright: ignore[reportPrivateUsage]
    manager._number_of_llm_calls = max(manager._number_of_llm_calls, already_made)


def model_calls_of(invocation: InvocationContext) -> int:
    """Return how many model calls an invocation has made."""
    manager: Any = invocation._invocation_cost_manager  # pyright: ignore[reportPrivateUsage]
    return manager._number_of_llm_calls


def defers_response(tool: BaseTool) -> bool:
    """Whether ADK itself answers the tool's calls later (a task that is handed to another agent)."""
    return tool._defers_response  # pyright: ignore[reportPrivateUsage]


def is_declared(tool: BaseTool) -> bool:
    """Whether the model gets a declaration of the tool, and so can call it."""
    return tool._get_declaration() is not None  # pyright: ignore[reportPrivateUsage]


def runs_nodes(tool: BaseTool) -> bool:
    """Whether the tool runs nodes of the same invocation, which only a whole run can do."""
    return isinstance(tool, _NODE_RUNNING_TOOLS)


def new_invocation(
    runner: Runner, session: Session, *, invocation_id: str, run_config: RunConfig | None
) -> InvocationContext:
    """Build the context of an invocation that goes on, for one tool call."""
    content = runner._find_user_message_for_invocation(session.events, invocation_id)  # pyright: ignore[reportPrivateUsage]
    return runner._new_invocation_context(  # pyright: ignore[reportPrivateUsage]
        session, invocation_id=invocation_id, new_message=content, run_config=run_config
    )


async def run_call(
    invocation: InvocationContext,
    call: types.FunctionCall,
    tools: dict[str, BaseTool],
    confirmation: ToolConfirmation | None,
) -> Event | None:
    """Run one call through ADK's whole pipeline: plugins, callbacks, confirmation, the tool, errors.

    Returns:
        The event with the result; None when a long-running tool returned nothing.
    """
    given = None if confirmation is None or call.id is None else {call.id: confirmation}
    return await _run_calls(invocation, [call], tools, None, given)


async def list_request_tools(invocation: InvocationContext) -> dict[str, BaseTool]:
    """Return the tools that a model request of the agent has, with those that only a request reveals."""
    request = LlmRequest()
    await _process_agent_tools(invocation, request)
    return request.tools_dict


async def find_missing_credentials(invocation: InvocationContext, agent: BaseAgent) -> list[Event]:
    """Resolve the credentials of the agent's toolsets; events are left for those that are missing."""
    return [event async for event in _resolve_toolset_auth(invocation, agent)]


_settled: ContextVar[frozenset[str]] = ContextVar("dex_agents_google_adk_settled", default=frozenset())


class _SettledCalls(logging.Filter):
    """Keeps ADK from warning that calls have no result while a Step is about to give it their results.

    ADK puts a model request together before it looks whether calls are open, and does not use that request.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        settled = _settled.get()
        named = record.args[0] if isinstance(record.args, tuple) and record.args else None
        return not (settled and isinstance(named, list) and settled.issuperset(cast("list[str]", named)))


# Where ADK has no logger of this name, nothing warns.
logging.getLogger("google_adk.google.adk.flows.llm_flows.tools._rearranger").addFilter(_SettledCalls())


@contextmanager
def giving_results(call_ids: Iterable[str]) -> Generator[None]:
    """Run ADK where it is given the results of these calls."""
    token = _settled.set(frozenset(call_ids))
    try:
        yield
    finally:
        _settled.reset(token)


CALLBACKS: Final = tuple(name for name in vars(BasePlugin) if name.endswith("_callback"))
"""The callbacks that a plugin may have."""
