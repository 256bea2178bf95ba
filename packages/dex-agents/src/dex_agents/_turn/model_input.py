"""The input of a model call: a user message, or a settled batch with all of its results."""

from dex import Context

from dex_agents._storage.limits import MAX_KEPT_CALLS
from dex_agents._storage.message_log import MessageLog
from dex_agents._storage.records import RunModelInput
from dex_agents._storage.schema import INTERRUPTS, TOOL_CALLS
from dex_agents._storage.session_editor import SessionEditor
from dex_agents._turn.answered_questions import newest_told, told_answers
from dex_agents.messages import SavedMessage
from dex_agents.runner import BatchSettled, Continue, NewTurn, TurnInput


def turn_input(context: Context, session: SessionEditor, step_input: RunModelInput) -> TurnInput:
    """Return what happened since the last model call; its messages, calls and interrupts are loaded."""
    turn = session.turn
    match step_input.kind:
        case "new_turn":
            message: SavedMessage = MessageLog(context).get(turn.message_sequence)
            return NewTurn(content=message.message.blocks, note=turn.note)
        case "batch_settled":
            calls = tuple(TOOL_CALLS.get(context, call_id).settled() for call_id in turn.open_calls)
            interrupts = (INTERRUPTS.get(context, interrupt_id) for interrupt_id in turn.open_questions)
            answers = tuple(interrupt.answer for interrupt in interrupts if interrupt.answer is not None)
            return BatchSettled(calls=calls, answers=answers)
        case "continue":
            return Continue()


def consume_batch(context: Context, session: SessionEditor) -> None:
    """Open the batch no more, and drop what only the runner needed of calls whose results the model has seen now."""
    turn = session.turn
    for call_id in turn.open_calls:
        TOOL_CALLS.set(context, call_id, TOOL_CALLS.get(context, call_id).slim())
    for call_id in turn.calls[:-MAX_KEPT_CALLS]:
        TOOL_CALLS.delete(context, call_id)
    dropped = turn.dropped_calls + len(turn.calls[:-MAX_KEPT_CALLS])
    asked = [INTERRUPTS.get(context, interrupt_id) for interrupt_id in turn.open_questions]
    told = told_answers((record.interrupt.question, record.answer) for record in asked)
    session.update_turn(
        calls=turn.calls[-MAX_KEPT_CALLS:],
        dropped_calls=dropped,
        open_calls=(),
        open_questions=(),
        answered=newest_told((*turn.answered, *told)),
    )
