"""RecordToolOutcomeUnknown: CallSingleAttemptTool used up its attempts."""

from dex import AsyncContext, StepDecision

from dex_agents._storage.records import CallInput
from dex_agents._turn.lost_call import record_lost_call
from dex_agents.steps._step import SessionStep


class RecordToolOutcomeUnknown(SessionStep[CallInput]):
    """The failure route of CallSingleAttemptTool: records how the call ended, so that the turn goes on."""

    async def execute(self, context: AsyncContext, input: CallInput) -> StepDecision:
        """Settle the call by its effect and by what the server knows of its attempts."""
        return await record_lost_call(context, input, self._services)
