"""Tells a runner where a request comes from."""

from dex import AsyncContext

from dex_agents._storage.records import SessionRecord
from dex_agents._turn.event_writer import EventWriter
from dex_agents.runner import StepContext, StopSignal


def step_context(
    context: AsyncContext, record: SessionRecord, events: EventWriter, *, stopping: StopSignal | None = None
) -> StepContext:
    """Return what a runner is told of a Step of the running turn.

    Args:
        context: The Step.
        record: The session.
        events: The Step's live feed.
        stopping: Of a Step that can end early; None for another one.
    """
    turn = record.running_turn
    return StepContext(
        session_id=context.flow_id,
        turn_id=turn.turn_id,
        step_number=record.step_number,
        attempt=context.attempt,
        settings=dict(turn.settings),
        events=events,
        stopping=stopping or StopSignal(),
    )
