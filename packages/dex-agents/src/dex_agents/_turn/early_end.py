"""Ends a turn without an answer: closes what is open, and leaves a true note for the next turn's model."""

import logging
from collections.abc import Mapping, Sequence
from typing import Final, Literal

from dex import AsyncContext

from dex_agents._storage.kept_turns import end_state_of_turn
from dex_agents._storage.limits import clipped
from dex_agents._storage.message_log import MessageLog
from dex_agents._storage.records import CallRecord, InterruptRecord
from dex_agents._storage.session_editor import SessionEditor
from dex_agents._storage.state_store import StateStore, forget_turn_start, restore_turn_start
from dex_agents._turn.answered_questions import newest_told, told_answers
from dex_agents._turn.attached_input import AttachedInput
from dex_agents._turn.attachment_reader import ContentUnreachableError
from dex_agents._turn.attempt import attempt
from dex_agents._turn.context_size import undo_context
from dex_agents._turn.event_writer import EventWriter
from dex_agents._turn.failure_note import failure_note, joined_notes
from dex_agents._turn.measuring import tell_end
from dex_agents._turn.services import SessionServices
from dex_agents._turn.step_context import step_context
from dex_agents._turn.turn_end import end_turn
from dex_agents.errors import DexAgentsError, StateNotReadableError
from dex_agents.messages import text_message
from dex_agents.runner import Closed, CloseTurnRequest
from dex_agents.snapshot import TurnResult

_logger = logging.getLogger(__name__)

_UNDONE: Final = Closed(state=None, undone=True)


async def end_early(
    context: AsyncContext,
    services: SessionServices,
    session: SessionEditor,
    events: EventWriter,
    status: Literal["failed", "cancelled"],
    error: str,
    calls: Mapping[str, CallRecord],
    asked: Sequence[InterruptRecord] = (),
    *,
    reason: str = "",
    said: str = "",
) -> None:
    """Stage the end of the running turn.

    Args:
        context: The Step that ends it; the state is loaded, and the turn's token is taken.
        services: The agent.
        session: The session.
        events: The Step's live feed.
        status: How the turn ended.
        error: Why, for people and for the model.
        calls: The turn's calls, all settled, by id.
        asked: The agent's own questions of the open batch, answered or not.
        reason: A word for programs, as in `TurnResult`.
        said: What the model had said when it was cut off.
    """
    turn = session.turn
    error = clipped(error)
    log = MessageLog(context)
    closed = await _close(context, services, session, events, [calls[each] for each in turn.open_calls], asked)
    undone = closed.undone
    lost = (
        ()
        if closed.answers_kept and not undone
        else told_answers((each.interrupt.question, each.answer) for each in asked)
    )
    note = failure_note(
        error,
        [calls[call_id] for call_id in turn.calls],
        undone=undone,
        lost_message=turn.message_text if undone else "",
        dropped=turn.dropped_calls,
        said=said,
        answered=newest_told((*turn.answered, *lost) if undone else lost),
    )
    if said.strip():
        log.append(session, turn.turn_id, [text_message("assistant", said)], services.options)
    log.append(session, turn.turn_id, [text_message("note", note)], services.options)
    if undone:
        undo_context(session)
    # An undone turn took its own note with it, so the next turn's model must hear that one too.
    session.update(note=joined_notes(turn.note if undone else None, note))
    result = TurnResult(turn_id=turn.turn_id, status=status, error=error, usage=turn.usage, reason=reason)
    tell_end(context, services, turn, result)
    end_turn(context, session, result, events, services.options)


async def _close(
    context: AsyncContext,
    services: SessionServices,
    session: SessionEditor,
    events: EventWriter,
    open_calls: list[CallRecord],
    asked: Sequence[InterruptRecord],
) -> Closed:
    """Make the state valid for the next turn, whatever happens."""
    turn = session.turn
    if not turn.state_changed:
        forget_turn_start(context)
        return _UNDONE
    try:
        with attempt(services.sealing):
            return await _close_with_runner(context, services, session, events, open_calls, asked)
    except ContentUnreachableError:
        raise  # what cannot be read now can be read later: another attempt closes the turn
    except DexAgentsError:
        # The session must go on whatever the runner does, or whatever is stored: undo the turn without reading it, and
        # let the note carry what ran.
        _logger.exception("a turn of %s could not be closed; it is undone", context.flow_id)
        restore_turn_start(context)
        return _UNDONE


async def _close_with_runner(
    context: AsyncContext,
    services: SessionServices,
    session: SessionEditor,
    events: EventWriter,
    open_calls: list[CallRecord],
    asked: Sequence[InterruptRecord],
) -> Closed:
    turn = session.turn
    store = StateStore(context)
    await AttachedInput.read(services.attachments, context.flow_id, store)
    state = store.load()
    if state is None:
        raise StateNotReadableError("there is no state to close", newer_writer=False)
    request = CloseTurnRequest(
        step=step_context(context, session.record, events),
        state=state,
        turn_start=store.load_turn_start(),
        calls=tuple(call.settled() for call in open_calls),
        questions=tuple(each.interrupt.question for each in asked if each.answer is None),
        answers=tuple(each.answer for each in asked if each.answer is not None),
    )
    closed = await services.runner.close_turn(request)
    if closed.state is None:
        store.restore_turn_start()
    else:
        store.save(closed.state)
    end_state_of_turn(context, store, turn.number, services.options.forkable_turns)
    session.update(attached_characters=store.attached_characters)
    session.count_replaced(store.replaced_bytes)
    return _UNDONE if closed.state is None else closed
