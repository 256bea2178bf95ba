"""ReconcileUnsettledCall: a cancelled turn left a call of unknown outcome, and the system that it wrote to is asked."""

import logging

from dex import AsyncContext, StepDecision, dead_end

from dex_agents._storage.records import CallInput
from dex_agents._storage.schema import UNSETTLED_CALLS, find_instance
from dex_agents._turn.outcome_reports import take_report
from dex_agents._turn.reconciling import reconcile
from dex_agents.errors import DexAgentsError
from dex_agents.snapshot import OutcomeReport
from dex_agents.steps._step import SessionStep
from dex_agents.tools import Failed, OutcomeUnknown, Returned

_logger = logging.getLogger(__name__)


class ReconcileUnsettledCall(SessionStep[CallInput]):
    """Asks the tool's reconciler after the turn; what it finds out is told to the next turn's model.

    It runs beside the session. A reconciler that raises leaves the outcome unknown, for people.
    """

    async def execute(self, context: AsyncContext, input: CallInput) -> StepDecision:
        """Report what was found out, as a person would."""
        record = find_instance(context, UNSETTLED_CALLS, input.call_id)
        if record is None or not isinstance(record.settlement, OutcomeUnknown):
            return dead_end()  # somebody has settled it
        try:
            found = await reconcile(context, record.model_copy(update={"suspected": record.settlement}), self._services)
        except DexAgentsError:
            _logger.exception("the outcome of %s of session %s stays unknown", record.call_id, context.flow_id)
            return dead_end()
        if isinstance(found, Returned):
            report = OutcomeReport(call_id=record.call_id, happened=True, result=f"It returned: {found.text}")
            take_report(context, report)
        elif isinstance(found, Failed):
            take_report(context, OutcomeReport(call_id=record.call_id, happened=False, result=found.message))
        return dead_end()
