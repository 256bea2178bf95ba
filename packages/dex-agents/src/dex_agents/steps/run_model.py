"""RunModel: one model call, and what the model asked for."""

import asyncio
import logging

from dex import AsyncContext, StepDecision, StepOptions, ValueMappingError, go_to_many

from dex_agents._storage.kept_turns import end_state_of_turn
from dex_agents._storage.message_log import MessageLog
from dex_agents._storage.records import RunModelInput, TurnRecord
from dex_agents._storage.session_editor import SessionEditor
from dex_agents._storage.state_store import StateStore, has_state
from dex_agents._stored import NOT_UNICODE, in_unicode
from dex_agents._turn.attached_input import AttachedInput
from dex_agents._turn.attachment_reader import ContentUnreachableError
from dex_agents._turn.attempt import attempt
from dex_agents._turn.batch import begin_batch, check_step, refuse_batch
from dex_agents._turn.budget_check import check_budgets, priced, used_up_by
from dex_agents._turn.context_size import note_context, reaches_limit
from dex_agents._turn.event_writer import EventWriter
from dex_agents._turn.handing_back import hand_back_model, unreadable_here
from dex_agents._turn.heartbeat import heartbeats
from dex_agents._turn.measuring import measured_model, tell_end
from dex_agents._turn.model_input import consume_batch, turn_input
from dex_agents._turn.resolving import with_settings
from dex_agents._turn.step_context import step_context
from dex_agents._turn.stopping import worker_stop
from dex_agents._turn.turn_end import end_turn
from dex_agents._turn.turn_failure import failed_by
from dex_agents._turn.turn_mail import Steering, take_token
from dex_agents.errors import AttachmentNotKeptError, BudgetUsedUpError, StateNotReadableError, TurnFailedError
from dex_agents.runner import (
    Again,
    Finished,
    ModelStep,
    RunModelRequest,
    Usage,
    Waiting,
)
from dex_agents.snapshot import SessionStatus, TurnResult
from dex_agents.steps import _moves, _options
from dex_agents.steps._moves import Movement
from dex_agents.steps._step import SessionStep

_logger = logging.getLogger(__name__)

MAX_MODEL_STEPS = 1000
"""Of one turn. A framework's own limits end a loop long before; this one ends a broken adapter's."""


class RunModel(SessionStep[RunModelInput]):
    """Makes one model call and records its response. A crash repeats the call, and pays for it again."""

    def get_step_options(self) -> StepOptions:
        """Return the options without loads; each movement brings its own."""
        return _options.MODEL

    async def execute(self, context: AsyncContext, input: RunModelInput) -> StepDecision:
        """Go on to the next point where something must be recorded."""
        try:
            return await self._execute(context, input)
        except (StateNotReadableError, ValueMappingError) as error:
            unreadable = unreadable_here(error)
            if unreadable is None:
                raise
            # Not inside a context manager: it would set the traceback of the SDK's error, whose fields are frozen.
            raise hand_back_model(context, unreadable) from error
        except ContentUnreachableError as error:
            # A Worker that stops costs no attempt: the model was not called, and nothing is staged.
            if not worker_stop().is_set or context.attempt > 1:
                raise
            _logger.info("a model call of session %s is left to another Worker: %s", context.flow_id, error)
            turn, attempts = SessionEditor(context).turn, self._services.options.run_model_limit
            compacted = input.compaction == "done"
            return go_to_many(_moves.to_run_model(turn, input.kind, attempts=attempts, compacted=compacted))

    async def _execute(self, context: AsyncContext, input: RunModelInput) -> StepDecision:
        session = SessionEditor(context)
        if self._services.options.compaction is not None and self._must_compact(context, session, input):
            session.save(SessionStatus.COMPACTING_CONTEXT)
            return go_to_many(_moves.to_compact_context(session.turn, input.kind))
        session.update(step_number=session.record.step_number + 1)
        session.update_turn(model_steps=session.turn.model_steps + 1)
        store = StateStore(context)
        steering = Steering(context)
        lost = context.attempt - 1
        if lost:
            session.update(lost_attempts=session.record.lost_attempts + lost)
            session.update_turn(lost_attempts=session.turn.lost_attempts + lost)
        turn, options = session.turn, self._services.options
        paid = Usage()
        writer = EventWriter(context, self._services.events, turn.turn_id, step_number=session.record.step_number)
        async with writer as events, heartbeats(context, self._services.runner_name):
            new, offered = turn_input(context, session, input), steering.offered
            try:
                attached = await AttachedInput.read(self._services.attachments, context.flow_id, store, new, offered)
                request = RunModelRequest(
                    step=step_context(context, session.record, events, stopping=worker_stop()),
                    state=store.load(shares=self._services.takes_kept_objects),
                    input=attached.turn(new),
                    steering=attached.messages(offered),
                )
                if turn.model_steps > MAX_MODEL_STEPS:
                    raise TurnFailedError(f"the turn made {MAX_MODEL_STEPS} model Steps without an end")
                check_budgets(session.record, options)
                with attempt(self._services.sealing), measured_model(context, self._services, turn) as measured:
                    step = await self._services.runner.run_model(await with_settings(request, self._services))
                    measured.usage, measured.model = step.usage, step.model
                if options.price is not None:
                    session.update(priced_model=step.model)
                    step = step.model_copy(update={"usage": priced(step.usage, step.model, options, session.record)})
                paid = step.usage
                try:
                    _save_state(store, turn, step, len(offered))
                except NOT_UNICODE:
                    # A model call is paid: one bad character must not repeat it. Nothing is staged yet.
                    step, store = in_unicode(step), store.anew()
                    _save_state(store, turn, step, len(offered))
                if isinstance(step.outcome, Finished):
                    end_state_of_turn(context, store, turn.number, options.forkable_turns)
                if options.compaction is not None:
                    note_context(session, step, store.attached)
                session.update(state_bytes=store.stored_size(), attached_characters=store.attached_characters)
                session.count_replaced(store.replaced_bytes)
                movements = self._record(context, session, steering, step, events, input)
            except (TurnFailedError, StateNotReadableError, AttachmentNotKeptError) as error:
                if isinstance(error, StateNotReadableError) and error.newer_writer:
                    raise
                failed = failed_by(input, error, self._services.sealing)
                failed = failed.model_copy(update={"paid": paid, "lost_attempts": lost})
                return go_to_many(_moves.to_record_turn_failure(session.turn, failed))
            except asyncio.CancelledError:
                self._services.partial_texts.hand_over(context.flow_id, turn.turn_id, writer.said)
                raise
        return go_to_many(*movements)

    def _must_compact(self, context: AsyncContext, session: SessionEditor, step_input: RunModelInput) -> bool:
        """Whether older messages must be folded first; asked here, where all of the next input is at hand."""
        if step_input.compaction == "done" or not has_state(context):
            return False
        new = turn_input(context, session, step_input)
        return reaches_limit(session, new, Steering(context).offered, self._services.options)

    def _record(
        self,
        context: AsyncContext,
        session: SessionEditor,
        steering: Steering,
        step: ModelStep,
        events: EventWriter,
        input: RunModelInput,
    ) -> list[Movement]:
        """Stage everything that the model call changed, beside the state, in one commit.

        Nothing here can fail the turn: a failed turn must not carry half of what this one staged.
        """
        consume_batch(context, session)
        log, options = MessageLog(context), self._services.options
        steering.take(step.steering_taken, session, log, options)
        log.append(session, session.turn.turn_id, step.messages, options)
        session.update(usage=session.record.usage.plus(step.usage))
        session.update_turn(usage=session.turn.usage.plus(step.usage), state_changed=True)
        used_up = used_up_by(session.record, step, options)
        if used_up is not None:
            return [self._end_for_budget(context, session, step, events, input, used_up)]
        match step.outcome:
            case Waiting() as waiting:
                return begin_batch(context, session, waiting, events, options)
            case Again():
                session.save(SessionStatus.RUNNING_MODEL)
                return [_moves.to_run_model(session.turn, "continue", attempts=options.run_model_limit)]
            case Finished(text=text, output=output):
                turn = session.turn
                take_token(context, turn.turn_id)
                result = TurnResult(
                    turn_id=turn.turn_id, status="completed", text=text, output=output, usage=turn.usage
                )
                tell_end(context, self._services, turn, result)
                end_turn(context, session, result, events, options)
                return [_moves.to_await_user_message(turn.number)]

    def _end_for_budget(
        self,
        context: AsyncContext,
        session: SessionEditor,
        step: ModelStep,
        events: EventWriter,
        input: RunModelInput,
        used_up: BudgetUsedUpError,
    ) -> Movement:
        """End the turn with what the model said, and without what it asked for."""
        if isinstance(step.outcome, Waiting):
            refuse_batch(context, session, step.outcome, events, str(used_up))
        session.save(SessionStatus.RUNNING_MODEL)
        failed = failed_by(input, used_up, self._services.sealing)
        return _moves.to_record_turn_failure(session.turn, failed)


def _save_state(store: StateStore, turn: TurnRecord, step: ModelStep, offered: int) -> None:
    """Stage the state after a model call that the session can carry on from."""
    check_step(step, offered=offered)
    finished = isinstance(step.outcome, Finished)
    store.save(step.state, begins_turn=not turn.state_changed, ends_turn=finished)
