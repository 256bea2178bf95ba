"""Capabilities that keep a run from settling calls which the session settles."""

from typing import Any

from pydantic_ai.capabilities import AbstractCapability, CapabilityOrdering
from pydantic_ai.exceptions import CallDeferred
from pydantic_ai.messages import ToolCallPart, ToolReturn
from pydantic_ai.tools import DeferredToolRequests, DeferredToolResults, RunContext, ToolDefinition, ToolDenied


class CatchDeferrals(AbstractCapability[Any]):
    """Remembers the calls that nobody inside the run resolved, and answers them with placeholders.

    So a run ends normally that holds only one call, without `DeferredToolRequests` among the agent's output types.

    Attributes:
        requests: What was deferred; None when nothing was.
    """

    def __init__(self) -> None:
        super().__init__()
        self.requests: DeferredToolRequests | None = None

    @classmethod
    def get_serialization_name(cls) -> str | None:
        """Return None: it lives for one Step and is never part of an agent's specification."""
        return None

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

    def __init__(self) -> None:
        super().__init__()
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
