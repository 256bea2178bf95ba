"""AwaitUserMessage: the rest of a session between two turns."""

import logging
from dataclasses import replace
from typing import Any, Final

from dex import (
    AsyncContext,
    AttributeMap,
    AttributeMapNotLoadedError,
    StepDecision,
    StepOptions,
    Wait,
    go_to_many,
)

from dex_agents._storage import state_store
from dex_agents._storage.kept_turns import keep_turn_end
from dex_agents._storage.limits import MAX_UNSETTLED_CALLS, clipped
from dex_agents._storage.message_log import MessageLog
from dex_agents._storage.records import TurnRecord
from dex_agents._storage.schema import (
    FORK_ENDS,
    INTERRUPTS,
    MESSAGE_DIGESTS,
    MESSAGE_TURNS,
    MESSAGES,
    OUTCOME_REPORTS,
    RUN_STATE,
    SESSION,
    SETTINGS,
    STATUS,
    TITLE,
    TURN_MAIL,
    TURN_RESULTS,
    UNSETTLED_CALLS,
    USER,
    USER_MESSAGES,
    find,
)
from dex_agents._storage.session_editor import SessionEditor
from dex_agents._turn.attachments import characters_of
from dex_agents._turn.context_size import begin_context
from dex_agents._turn.event_writer import EventWriter
from dex_agents._turn.failure_note import joined_notes
from dex_agents._turn.forking import is_receiving, open_fork
from dex_agents._turn.measuring import begin_trace
from dex_agents._turn.outcome_reports import take_reports
from dex_agents._turn.settings import check_size
from dex_agents._turn.turn_mail import begin_mail
from dex_agents._turn_ids import turn_id_of
from dex_agents.events import AgentEventType
from dex_agents.messages import Message
from dex_agents.snapshot import SessionSettings, SessionStart, SessionStatus, UserMessage
from dex_agents.steps import _moves, _options
from dex_agents.steps._step import SessionStep

_logger = logging.getLogger(__name__)

REMEMBERED_MESSAGE_IDS: Final = 1000
"""For so many turns at least a repeated send of a message is recognised."""

FORGETS_EVERY: Final = 64
"""Turns; only then all message ids are loaded, which takes longer than all else that begins a turn."""

REMEMBERED_TURN_RESULTS: Final = 100
"""So many turns' results can be asked for."""


class AwaitUserMessage(SessionStep[SessionStart]):
    """Waits for the next user message and saves it. Holds no task slot while it waits."""

    def get_step_options(self) -> StepOptions:
        """Return the options of every execution."""
        return _options_with()

    async def wait_for(self, context: AsyncContext, input: SessionStart) -> Wait:
        """Say that the session waits."""
        if is_receiving(context):
            _introduce(context, input)
            STATUS.set(context, SessionStatus.RECEIVING_HISTORY.value)
            return Wait.until(FORK_ENDS.for_one())
        session = SessionEditor(context)
        if find(context, SESSION) is None:
            _introduce(context, input)
            session.save(SessionStatus.AWAITING_USER_MESSAGE)
        elif find(context, STATUS) != SessionStatus.AWAITING_USER_MESSAGE:  # the end of a turn has said it already
            session.save(SessionStatus.AWAITING_USER_MESSAGE)
        # A message that came too late to steer its turn goes before what waits.
        return Wait.any_of(TURN_MAIL.for_one(), USER_MESSAGES.for_one())

    async def execute(self, context: AsyncContext, input: SessionStart) -> StepDecision:
        """Begin a turn with the message."""
        del input
        if FORK_ENDS.results(context):
            open_fork(context)
            return go_to_many(_moves.to_await_user_message(0))
        options = self._services.options
        late = [mail.steering for mail in TURN_MAIL.results(context) if mail.steering is not None]
        (message,) = (*late, *USER_MESSAGES.results(context))
        session = SessionEditor(context)
        keep_turn_end(context, session.record, options.forkable_turns)
        number = session.record.turn_number + 1
        turn_id = turn_id_of(number)
        log = MessageLog(context)
        log.roll(session, options)
        said = Message(role="user", blocks=message.content)
        before = session.record.log_bytes
        log.append(session, turn_id, [said], options)
        session.count_replaced(session.stored_alone(session.record.log_bytes - before))  # it was in the queue
        turn = TurnRecord(
            turn_id=turn_id,
            number=number,
            message_sequence=session.record.last_sequence,
            message_text=clipped(said.text),
            note=joined_notes(session.record.note, *take_reports(context)),
            settings=(find(context, SETTINGS) or SessionSettings()).values,
            trace=begin_trace(context, self._services, turn_id, message),
            attached_characters=characters_of(said.blocks),
        )
        session.update(turn_number=number, turn=turn, note=None)
        if options.compaction is not None:
            begin_context(session, log, options)
            turn = session.turn
        session.save(SessionStatus.RUNNING_MODEL)
        begin_mail(context, turn_id)
        self._forget(context, message, number)
        async with EventWriter(context, self._services.events, turn_id) as events:
            events.write(AgentEventType.TURN_STARTED)
        return go_to_many(_moves.to_run_model(turn, "new_turn", attempts=options.run_model_limit))

    def _forget(self, context: AsyncContext, message: UserMessage, number: int) -> None:
        """Remember this message's turn and forget what nobody asks for any more."""
        if number % FORGETS_EVERY == 0:
            _forget_message_ids(context, number)
        MESSAGE_TURNS.set(context, message.message_id, number)
        TURN_RESULTS.delete(context, turn_id_of(number - REMEMBERED_TURN_RESULTS))
        unsettled = sorted(
            UNSETTLED_CALLS.get_all_instance_keys(context), key=lambda key: int(key.removeprefix("call-"))
        )
        for call_id in unsettled[: max(0, len(unsettled) - MAX_UNSETTLED_CALLS)]:
            _logger.warning("session %s forgets the unsettled %s: too many wait", context.flow_id, call_id)
            UNSETTLED_CALLS.delete(context, call_id)
        # Answered interrupts stayed until here, so that a late second answer hears why it is refused.
        for interrupt_id in INTERRUPTS.get_all_instance_keys(context):
            INTERRUPTS.delete(context, interrupt_id)


def forgetting_options() -> StepOptions:
    """Return the options of an execution that begins a turn whose number is a multiple of `FORGETS_EVERY`."""
    return _options_with(MESSAGE_TURNS)


def _options_with(*more: AttributeMap[Any]) -> StepOptions:
    return replace(
        _options.SPINE,
        execute_load_attribute_maps=(MESSAGES, *more, INTERRUPTS, OUTCOME_REPORTS, UNSETTLED_CALLS),
        execute_load_attribute_map_instances=(RUN_STATE.load(state_store.HEAD_KEY),),
    )


def _forget_message_ids(context: AsyncContext, number: int) -> None:
    try:
        message_ids = MESSAGE_TURNS.get_all_instance_keys(context)
    except AttributeMapNotLoadedError:
        return  # a fork, or an execution that another release scheduled: the next time will do
    for message_id in message_ids:
        if 0 < MESSAGE_TURNS.get(context, message_id) <= number - REMEMBERED_MESSAGE_IDS:
            MESSAGE_TURNS.delete(context, message_id)
            MESSAGE_DIGESTS.delete(context, message_id)


def _introduce(context: AsyncContext, start: SessionStart) -> None:
    SETTINGS.set(context, _usable(SessionSettings(values=start.settings), context.flow_id))
    # Written by the Flow itself too: what a start request sets carries no search index.
    TITLE.set(context, start.title)
    USER.set(context, start.user)


def _usable(settings: SessionSettings, session_id: str) -> SessionSettings:
    """Drop settings that would not travel with every Step; our own client refuses them before the session starts."""
    try:
        check_size(settings)
    except ValueError as error:
        _logger.error("session %s was started with settings that are dropped: %s", session_id, error)
        return SessionSettings()
    return settings
