"""Ends a turn without an answer: closes what is open, and leaves a true note for the next turn's model."""

import logging
from collections.abc import Mapping
from typing import Literal

from dex import AsyncContext

from dex_agents._storage.message_log import MessageLog
from dex_agents._storage.records import CallRecord
from dex_agents._storage.session_editor import SessionEditor
from dex_agents._storage.state_store import StateStore
from dex_agents._turn.event_writer import EventWriter
from dex_agents._turn.failure_note import failure_note
from dex_agents._turn.services import SessionServices
from dex_agents._turn.turn_end import end_turn
from dex_agents.messages import text_message
from dex_agents.runner import CloseTurnRequest, StepContext
from dex_agents.snapshot import TurnResult
from dex_agents.tools import Question

_logger = logging.getLogger(__name__)


async def end_early(
    context: AsyncContext,
    services: SessionServices,
    session: SessionEditor,
    status: Literal["failed", "cancelled"],
    error: str,
    calls: Mapping[str, CallRecord],
    questions: tuple[Question, ...] = (),
) -> None:
    """Stage the end of the running turn.

    Args:
        context: The Step that ends it; the state and the user message are loaded, the turn's token is taken.
        services: The agent.
        session: The session.
        status: How the turn ended.
        error: Why, for people and for the model.
        calls: The turn's calls, all settled, by id.
        questions: The agent's own questions that nobody will answer now.
    """
    turn = session.turn
    store = StateStore(context)
    log = MessageLog(context)
    async with EventWriter(context, services.events, turn.turn_id) as events:
        open_calls = [calls[call_id] for call_id in turn.open_calls]
        undone = not turn.state_changed or await _close(
            context, services, session, store, events, open_calls, questions
        )
        lost_message = log.get(turn.message_sequence).message.text if undone else ""
        turn_calls = [calls[call_id] for call_id in turn.calls]
        note = failure_note(error, turn_calls, undone=undone, lost_message=lost_message)
        log.append(session, turn.turn_id, [text_message("note", note)], services.options)
        session.update(note=note)
        store.end_turn()
        end_turn(
            context, session, TurnResult(turn_id=turn.turn_id, status=status, error=error, usage=turn.usage), events
        )


async def _close(
    context: AsyncContext,
    services: SessionServices,
    session: SessionEditor,
    store: StateStore,
    events: EventWriter,
    open_calls: list[CallRecord],
    questions: tuple[Question, ...],
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
        calls=tuple(call.settled() for call in open_calls),
        questions=questions,
    )
    try:
        closed = await services.runner.close_turn(request)
        if closed.state is not None:
            store.save(closed.state)
            return closed.undone
    except Exception:
        # The session must go on whatever the runner does: undo the turn, and let the note carry what ran.
        _logger.exception("close_turn failed for %s; the turn is undone", context.flow_id)
    store.restore_turn_start()
    return True
