"""PurgeSession and PurgeWaitingMessage: delete what a session keeps, then end it."""

from dex import AsyncContext, StepDecision, Wait, force_complete, go_to_many

from dex_agents._storage.erasure import STAGES, erase, erase_mail, erase_rest
from dex_agents._storage.records import PurgeInput
from dex_agents._storage.schema import USER_MESSAGES
from dex_agents.steps import _moves
from dex_agents.steps._step import SessionStep
from dex_agents.steps.await_user_message import REMEMBERED_TURN_RESULTS


class PurgeSession(SessionStep[PurgeInput]):
    """Deletes one stage after the other. A crash repeats a stage, which deletes what is there."""

    async def execute(self, context: AsyncContext, input: PurgeInput) -> StepDecision:
        """Delete a stage; after the last one end the session."""
        if input.stage < len(STAGES):
            erase(context, input.stage, REMEMBERED_TURN_RESULTS)
            return go_to_many(_moves.to_purge_session(input.stage + 1))
        erase_mail(context)
        if USER_MESSAGES.size(context):
            return go_to_many(_moves.to_purge_waiting_message())
        erase_rest(context)
        return force_complete()


class PurgeWaitingMessage(SessionStep[PurgeInput]):
    """Takes a message that waits for its turn, and drops it: all of them together need not fit into one request."""

    async def wait_for(self, context: AsyncContext, input: PurgeInput) -> Wait:
        """Take one."""
        return Wait.until(USER_MESSAGES.for_one())

    async def execute(self, context: AsyncContext, input: PurgeInput) -> StepDecision:
        """Go on with what is left."""
        return go_to_many(_moves.to_purge_session(len(STAGES)))
