"""Capabilities that keep a run from settling calls which the session settles."""

from typing import Any

from pydantic_ai.capabilities import CapabilityOrdering
from pydantic_ai.exceptions import CallDeferred
from pydantic_ai.messages import ToolCallPart, ToolReturn
from pydantic_ai.tools import DeferredToolRequests, DeferredToolResults, RunContext, ToolDefinition, ToolDenied

from dex_agents.runner import EventSink
from dex_agents_pydantic_ai._events import ForwardEvents


class CatchDeferrals(ForwardEvents):
    """Remembers the calls that nobody inside the run resolved, and answers them with placeholders.

    So a run ends normally that holds only one call, without `DeferredToolRequests` among the agent's output types.
    It forwards the events too: a run costs less with one capability than with two.

    Attributes:
        requests: What was deferred; None when nothing was.
    """

    def __init__(self, sink: EventSink) -> None:
        super().__init__(sink)
        self.requests: DeferredToolRequests | None = None

    def get_ordering(self) -> CapabilityOrdering | None:
        """Stand last, so that the agent's own handlers may resolve a call first."""
        return CapabilityOrdering(position="innermost")

    async def handle_deferred_tool_calls(
        self, ctx: RunContext[Any], *, requests: DeferredToolRequests
    ) -> DeferredToolResults | None:
        """Remember the calls and give each a placeholder, which never reaches the model."""
        self.requests = requests
        return requests.build_results(
            approvals={call.tool_call_id: ToolDenied("waiting") for call in requests.approvals},
            calls={call.tool_call_id: ToolReturn("waiting") for call in requests.calls},
        )

    @property
    def deferred_ids(self) -> set[str]:
        """Ids of the deferred calls."""
        if self.requests is None:
            return set()
        return {call.tool_call_id for call in (*self.requests.calls, *self.requests.approvals)}


class DeferEveryCall(CatchDeferrals):
    """Defers every function call once it is armed, so that a run tries its output tools and runs no other tool."""

    def __init__(self, sink: EventSink) -> None:
        super().__init__(sink)
        self.armed = False

    def get_ordering(self) -> CapabilityOrdering | None:
        """Stand first: the agent's own handlers get their say when the call runs alone."""
        return CapabilityOrdering(position="outermost")

    async def before_tool_execute(
        self, ctx: RunContext[Any], *, call: ToolCallPart, tool_def: ToolDefinition, args: dict[str, Any]
    ) -> dict[str, Any]:
        """Defer the call, once armed."""
        if self.armed:
            raise CallDeferred
        return args
