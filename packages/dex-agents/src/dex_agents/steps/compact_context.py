"""CompactContext: folds older messages of the model's context into one summary."""

import time

from dex import AsyncContext, StepDecision, StepOptions, ValueMappingError, go_to_many
from pydantic import JsonValue

from dex_agents._storage.kept_summaries import replace_summary
from dex_agents._storage.records import RunModelInput
from dex_agents._storage.session_editor import SessionEditor
from dex_agents._storage.state_store import StateStore
from dex_agents._stored import NOT_UNICODE, in_unicode
from dex_agents._turn.attached_input import AttachedInput
from dex_agents._turn.attempt import attempt
from dex_agents._turn.budget_check import priced
from dex_agents._turn.context_size import note_compaction, tokens_to_keep, turn_starts
from dex_agents._turn.event_writer import EventWriter
from dex_agents._turn.handing_back import hand_back_model, unreadable_here
from dex_agents._turn.heartbeat import heartbeats
from dex_agents._turn.measuring import measured_model
from dex_agents._turn.model_input import consume_batch, turn_input
from dex_agents._turn.resolving import with_settings
from dex_agents._turn.step_context import step_context
from dex_agents._turn.turn_failure import failed_by
from dex_agents.errors import AttachmentNotKeptError, StateNotReadableError, TurnFailedError
from dex_agents.events import AgentEventType
from dex_agents.runner import BatchSettled, CannotCompactNow, Compacted, CompactOutcome, CompactRequest
from dex_agents.snapshot import ContextSummary, SessionStatus
from dex_agents.steps import _moves, _options
from dex_agents.steps._step import SessionStep


class CompactContext(SessionStep[RunModelInput]):
    """Makes one model call that summarizes, before RunModel. A crash repeats the call, and pays for it again."""

    def get_step_options(self) -> StepOptions:
        """Return the options without loads; each movement brings its own."""
        return _options.MODEL

    async def execute(self, context: AsyncContext, input: RunModelInput) -> StepDecision:
        """Replace older messages by a summary; where the history cannot be cut now, the turn goes on with all of it."""
        try:
            return await self._execute(context, input)
        except (StateNotReadableError, ValueMappingError) as error:
            unreadable = unreadable_here(error)
            if unreadable is None:
                raise
            # Not inside a context manager: it would set the traceback of the SDK's error, whose fields are frozen.
            raise hand_back_model(context, unreadable) from error

    async def _execute(self, context: AsyncContext, input: RunModelInput) -> StepDecision:
        session = SessionEditor(context)
        store = StateStore(context)
        async with (
            EventWriter(context, self._services.events, input.turn_id) as events,
            heartbeats(context, self._services.runner_name),
        ):
            try:
                outcome = await self._compact(context, session, store, input, events)
                if isinstance(outcome, Compacted):
                    begins_turn = not session.turn.state_changed
                    try:
                        _save_state(store, outcome, begins_turn=begins_turn)
                    except NOT_UNICODE:
                        # A summary is paid: one bad character must not repeat it. Nothing is staged yet.
                        outcome, store = in_unicode(outcome), store.anew()
                        _save_state(store, outcome, begins_turn=begins_turn)
                    session.update(attached_characters=store.attached_characters)
                    session.count_replaced(store.replaced_bytes)
                    note_compaction(session, outcome, store.attached)
                    self._record(context, session, outcome, events)
            except (TurnFailedError, StateNotReadableError, AttachmentNotKeptError) as error:
                if isinstance(error, StateNotReadableError) and error.newer_writer:
                    raise
                failed = failed_by(input, error, self._services.sealing)
                return go_to_many(_moves.to_record_turn_failure(session.turn, failed))
        taken = isinstance(outcome, Compacted) and outcome.batch_taken
        session.save(SessionStatus.RUNNING_MODEL)
        return go_to_many(
            _moves.to_run_model(
                session.turn,
                "continue" if taken else input.kind,
                attempts=self._services.options.run_model_limit,
                compacted=True,
            )
        )

    async def _compact(
        self,
        context: AsyncContext,
        session: SessionEditor,
        store: StateStore,
        step_input: RunModelInput,
        events: EventWriter,
    ) -> CompactOutcome:
        await AttachedInput.read(self._services.attachments, context.flow_id, store)
        state = store.load(shares=self._services.takes_kept_objects)
        if state is None:
            return CannotCompactNow(reason="the session has no state yet")
        turn, window = session.turn, self._services.options.compaction
        if window is None:  # the option was taken back while the Step waited
            return CannotCompactNow(reason="compaction is off")
        new = turn_input(context, session, step_input)
        turns, starts = turn_starts(session)
        known = session.record.context
        request = CompactRequest(
            step=step_context(context, session.record, events),
            state=state,
            window_tokens=window,
            keep_tokens=tokens_to_keep(window, store.attached_characters, store.attachments),
            batch=new if isinstance(new, BatchSettled) else None,
            context_tokens=known.tokens if known is not None and known.reported else None,
            turns=turns,
            turn_starts=starts,
        )
        with attempt(self._services.sealing), measured_model(context, self._services, turn) as measured:
            outcome = await self._services.runner.compact(await with_settings(request, self._services))
            measured.usage = outcome.usage if isinstance(outcome, Compacted) else None
        if isinstance(outcome, Compacted):
            record = session.record
            usage = priced(outcome.usage, record.priced_model, self._services.options, record)
            outcome = outcome.model_copy(update={"usage": usage})
        if isinstance(outcome, Compacted) and outcome.batch_taken and request.batch is None:
            raise TurnFailedError("the runner took a batch that it was not given")
        return outcome

    def _record(
        self,
        context: AsyncContext,
        session: SessionEditor,
        compacted: Compacted,
        events: EventWriter,
    ) -> None:
        """Stage what the compaction changed, beside the state, in one commit.

        What the state needs no longer stays until the turn ends: the turn may be undone.
        """
        if compacted.batch_taken:
            consume_batch(context, session)
        session.update(usage=session.record.usage.plus(compacted.usage))
        session.update_turn(usage=session.turn.usage.plus(compacted.usage))
        remembered = session.record.context
        summary = ContextSummary(
            text=compacted.summary,
            summarized_before_sequence=remembered.summarized_before if remembered else 1,
            turn_id=session.turn.turn_id,
            written_at=time.time(),
        )
        replace_summary(context, summary, session.turn.number, self._services.options.forkable_turns)
        data: JsonValue = {"summarized_before_sequence": summary.summarized_before_sequence}
        events.write(AgentEventType.CONTEXT_COMPACTED, text=compacted.summary, data=data)


def _save_state(store: StateStore, compacted: Compacted, *, begins_turn: bool) -> None:
    """Stage the shorter state, when its summary can be stored too."""
    compacted.summary.encode()
    store.save(compacted.state, begins_turn=begins_turn)
