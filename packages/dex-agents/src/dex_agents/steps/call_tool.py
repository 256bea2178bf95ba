"""CallTool: one read or idempotent write."""

from dex import AsyncContext, StepDecision, StepOptions

from dex_agents._storage.records import CallInput
from dex_agents._turn.tool_execution import execute_tool
from dex_agents.steps import _options
from dex_agents.steps._step import SessionStep


class CallTool(SessionStep[CallInput]):
    """Runs a call that may be repeated: up to three attempts with one idempotency key."""

    def get_step_options(self) -> StepOptions:
        """Return the options without loads; each movement brings its own."""
        return _options.TOOL

    async def execute(self, context: AsyncContext, input: CallInput) -> StepDecision:
        """Run the call."""
        return await execute_tool(context, input, self._services)
