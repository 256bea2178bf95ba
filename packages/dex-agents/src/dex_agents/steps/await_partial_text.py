"""AwaitPartialText: a turn was cancelled while its model spoke."""

from datetime import timedelta
from typing import Final

from dex import AsyncContext, StepDecision, Timer, Wait, dead_end, go_to_many

from dex_agents._storage.records import CancellationInput
from dex_agents._storage.schema import SESSION, WAKE_UPS
from dex_agents._turn.partial_text import wake_up_of
from dex_agents.steps import _moves
from dex_agents.steps._step import SessionStep

PATIENCE: Final = timedelta(seconds=1)
"""The least that a Timer can wait. A living Worker brings the text in a few milliseconds; a dead one never does."""


class AwaitPartialText(SessionStep[CancellationInput]):
    """Waits for what the cancelled model call had said, which its Worker brings; then ends the turn with it."""

    async def wait_for(self, context: AsyncContext, input: CancellationInput) -> Wait:
        """Wait for the text, but not for long."""
        return Wait.any_of(WAKE_UPS.for_one(wake_up_of(input.turn_id)), Timer.by_duration(PATIENCE))

    async def execute(self, context: AsyncContext, input: CancellationInput) -> StepDecision:
        """End the turn."""
        texts = WAKE_UPS.results(context, wake_up_of(input.turn_id))
        turn = SESSION.get(context).turn
        if turn is None or turn.turn_id != input.turn_id:
            return dead_end()
        return go_to_many(
            _moves.to_record_turn_cancellation(
                turn, input.reason, said="".join(map(self._services.sealing.open, texts))
            )
        )
