"""AwaitToolStart: a call that must not start yet."""

from datetime import timedelta

from dex import AsyncContext, StepDecision, Timer, Wait, dead_end, go_to_many

from dex_agents._storage.records import AwaitStartInput
from dex_agents._storage.schema import RELEASED_CALLS, TOOL_CALLS, find_instance
from dex_agents._turn.batch import start_call
from dex_agents._turn.event_writer import EventWriter
from dex_agents.steps._step import SessionStep


class AwaitToolStart(SessionStep[AwaitStartInput]):
    """Waits for the calls that a call must follow, or for the time that its tool asked for. Holds no task slot."""

    async def wait_for(self, context: AsyncContext, input: AwaitStartInput) -> Wait:
        """Wait for settlements, or for the time."""
        if input.earlier_calls:
            return Wait.until(RELEASED_CALLS.for_n(input.call_id, input.earlier_calls))
        return Wait.until(Timer.by_duration(timedelta(seconds=input.delay_seconds)))

    async def execute(self, context: AsyncContext, input: AwaitStartInput) -> StepDecision:
        """Start the call."""
        record = find_instance(context, TOOL_CALLS, input.call_id)
        if record is None:
            return dead_end()
        async with EventWriter(context, self._services.events, record.turn_id) as events:
            # After a delay that the tool asked for, an approval that it had stays valid.
            return go_to_many(start_call(context, record, events, self._services.options, released=True))
