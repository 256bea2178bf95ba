"""ResumeTurn: joins the calls of one model response."""

from dex import AsyncContext, StepDecision, Wait, dead_end, go_to_many

from dex_agents._storage.message_log import MessageLog
from dex_agents._storage.records import ResumeInput
from dex_agents._storage.schema import SETTLED_CALLS, TOOL_CALLS, batch_channel
from dex_agents._storage.session_editor import SessionEditor
from dex_agents._turn.settlement import call_status, call_text
from dex_agents.messages import Message, ResultBlock
from dex_agents.snapshot import SessionStatus
from dex_agents.steps import _moves
from dex_agents.steps._step import SessionStep


class ResumeTurn(SessionStep[ResumeInput]):
    """Waits until the whole batch is settled, saves the results, and gives them to the model."""

    async def wait_for(self, context: AsyncContext, input: ResumeInput) -> Wait:
        """Wait for one message a settlement."""
        return Wait.until(SETTLED_CALLS.for_n(batch_channel(input.batch), input.count))

    async def execute(self, context: AsyncContext, input: ResumeInput) -> StepDecision:
        """Save the results for people, in the order in which the model asked."""
        session = SessionEditor(context)
        turn = session.record.turn
        if turn is None or turn.turn_id != input.turn_id:
            return dead_end()
        records = [TOOL_CALLS.get(context, call_id) for call_id in turn.open_calls]
        blocks = tuple(
            ResultBlock(
                owner=record.request.owner,
                call_id=record.request.call_id,
                name=record.request.name,
                status=call_status(record),
                text=call_text(record),
            )
            for record in records
        )
        options = self._services.options
        if blocks:
            before = session.record.log_bytes
            MessageLog(context).append(session, turn.turn_id, [Message(role="tool", blocks=blocks)], options)
            # The calls' records have each result twice, for people and for the model.
            session.count_replaced(2 * (session.record.log_bytes - before))
        session.save(SessionStatus.RUNNING_MODEL)
        return go_to_many(_moves.to_run_model(session.turn, "batch_settled", attempts=options.run_model_limit))
