"""ReconcileToolCall: a call's outcome is unknown, and the system that it wrote to is asked."""

import math

from dex import AsyncContext, StepDecision, StepOptions, ValueMappingError, dead_end, go_to_many

from dex_agents._storage.records import CallInput
from dex_agents._storage.schema import TOOL_CALLS, find_instance
from dex_agents._turn.event_writer import EventWriter
from dex_agents._turn.handing_back import put_off_for_key
from dex_agents._turn.reconciling import reconcile
from dex_agents._turn.settlement import settle_call
from dex_agents.steps import _moves, _options
from dex_agents.steps._step import SessionStep
from dex_agents.tools import RetryLater


class ReconcileToolCall(SessionStep[CallInput]):
    """Asks the tool's reconciler: a read, which is repeated up to three times; the call itself never is."""

    def get_step_options(self) -> StepOptions:
        """Return the options without loads; each movement brings its own."""
        return _options.TOOL

    async def execute(self, context: AsyncContext, input: CallInput) -> StepDecision:
        """Settle the call by what was found out, or ask again later."""
        try:
            return await self._execute(context, input)
        except ValueMappingError as error:
            if (put_off := put_off_for_key(context, input.call_id, error)) is None:
                raise
            return put_off

    async def _execute(self, context: AsyncContext, input: CallInput) -> StepDecision:
        record = find_instance(context, TOOL_CALLS, input.call_id)
        if record is None or record.settlement is not None:
            return dead_end()  # the turn has ended without this call
        outcome = await reconcile(context, record, self._services)
        if isinstance(outcome, RetryLater):
            return go_to_many(
                _moves.to_await_tool_start(record.call_id, delay_seconds=math.ceil(outcome.after_seconds))
            )
        async with EventWriter(context, self._services.events, record.turn_id) as events:
            settle_call(context, events, record, outcome)
        return dead_end()
