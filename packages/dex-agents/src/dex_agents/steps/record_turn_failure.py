"""RecordTurnFailure: a turn ends without an answer, and the session goes on."""

import logging

from dex import AsyncContext, StepDecision, go_to_many

from dex_agents._storage.message_log import MessageLog
from dex_agents._storage.records import RunModelInput
from dex_agents._storage.schema import TOOL_CALLS
from dex_agents._storage.session_editor import SessionEditor
from dex_agents._storage.state_store import StateStore
from dex_agents._turn.event_writer import EventWriter
from dex_agents._turn.failure_note import failure_note
from dex_agents._turn.recovery import recovery_detail
from dex_agents._turn.turn_end import end_turn
from dex_agents.messages import text_message
from dex_agents.runner import CloseTurnRequest, StepContext
from dex_agents.snapshot import TurnResult
from dex_agents.steps import _moves
from dex_agents.steps._step import SessionStep

_logger = logging.getLogger(__name__)


class RecordTurnFailure(SessionStep[RunModelInput]):
    """The failure route of RunModel: closes what is open, and leaves a true note for the next turn's model."""

    async def execute(self, context: AsyncContext, input: RunModelInput) -> StepDecision:
        """End the turn as failed."""
        error = input.error or recovery_detail(context)
        session = SessionEditor(context)
        turn = session.turn
        store = StateStore(context)
        log = MessageLog(context)
        async with EventWriter(context, self._services.events, turn.turn_id) as events:
            undone = not turn.state_changed or await self._close(context, session, store, events)
            lost_message = log.get(turn.message_sequence).message.text if undone else ""
            calls = [TOOL_CALLS.get(context, call_id) for call_id in turn.calls]
            note = failure_note(error, calls, undone=undone, lost_message=lost_message)
            log.append(session, turn.turn_id, [text_message("note", note)], self._services.options)
            session.update(note=note)
            store.end_turn()
            result = TurnResult(turn_id=turn.turn_id, status="failed", error=error, usage=turn.usage)
            end_turn(context, session, result, events)
        return go_to_many(_moves.to_await_user_message())

    async def _close(
        self, context: AsyncContext, session: SessionEditor, store: StateStore, events: EventWriter
    ) -> bool:
        """Make the state valid for the next turn; returns whether the turn was undone."""
        turn = session.turn
        state = store.load()
        if state is None:
            return True
        request = CloseTurnRequest(
            step=StepContext(
                session_id=context.flow_id,
                turn_id=turn.turn_id,
                step_number=session.record.step_number,
                attempt=context.attempt,
                settings=dict(turn.settings),
                events=events,
            ),
            state=state,
            turn_start=store.load_turn_start(),
            calls=tuple(TOOL_CALLS.get(context, call_id).settled() for call_id in turn.open_calls),
        )
        try:
            closed = await self._services.runner.close_turn(request)
        except Exception:
            # The session must go on whatever the runner does: undo the turn, and let the note carry what ran.
            _logger.exception("close_turn failed for %s; the turn is undone", context.flow_id)
            store.restore_turn_start()
            return True
        if closed.state is None:
            store.restore_turn_start()
        else:
            store.save(closed.state)
        return closed.undone
