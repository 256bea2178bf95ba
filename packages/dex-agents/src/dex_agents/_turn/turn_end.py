"""Ends a turn, well or not: its result, its event, and the records that go with it."""

from dex import Context

from dex_agents._storage.schema import FINISHED_TURNS, TOOL_CALLS, TURN_RESULTS
from dex_agents._storage.session_editor import SessionEditor
from dex_agents._turn.event_writer import EventWriter
from dex_agents._turn.fullness import warn_when_filling
from dex_agents.events import AgentEventType
from dex_agents.options import AgentSessionOptions
from dex_agents.snapshot import SessionStatus, TurnResult


def end_turn(
    context: Context, session: SessionEditor, result: TurnResult, events: EventWriter, options: AgentSessionOptions
) -> None:
    """Stage the end of the running turn, whose token is taken."""
    turn = session.turn
    for call_id in turn.calls:
        TOOL_CALLS.delete(context, call_id)
    text = result.stored_json()
    TURN_RESULTS.set(context, turn.turn_id, text)
    session.count_replaced(session.stored_alone(len(text)))
    FINISHED_TURNS.set(context, turn.number)
    session.update(turn=None)
    session.save(SessionStatus.AWAITING_USER_MESSAGE)
    warn_when_filling(context, session.record, options, events)
    completed = result.status == "completed"
    events.write(
        AgentEventType.TURN_COMPLETED if completed else AgentEventType.TURN_FAILED,
        status=result.status,
        text=result.error or "",
    )
