"""CallSingleAttemptTool: one write that must not be repeated."""

from dex import AsyncContext, StepDecision, StepOptions

from dex_agents._storage.records import CallInput
from dex_agents._turn.tool_execution import execute_tool
from dex_agents.steps import _options
from dex_agents.steps._step import SessionStep


class CallSingleAttemptTool(SessionStep[CallInput]):
    """Runs a call at most once; a lost attempt leaves its outcome unknown."""

    def get_step_options(self) -> StepOptions:
        """Return the options without loads; each movement brings its own."""
        return _options.SINGLE_ATTEMPT_TOOL

    async def execute(self, context: AsyncContext, input: CallInput) -> StepDecision:
        """Run the call."""
        return await execute_tool(context, input, self._services)
