"""An in-memory session: what a durable session does with a runner, without any engine."""

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from pydantic import JsonValue

from dex_agents._turn.answered_questions import newest_told, told_answers
from dex_agents._turn_ids import turn_id_of
from dex_agents.errors import TurnFailedError
from dex_agents.messages import Block, Message, ResultBlock, TextBlock, text_message
from dex_agents.reconciliation import Reconcilers
from dex_agents.runner import (
    Again,
    AgentFrameworkRunner,
    BatchSettled,
    CannotCompactNow,
    Closed,
    CloseTurnRequest,
    CompactOutcome,
    Continue,
    Finished,
    FrameworkState,
    ModelStep,
    NewTurn,
    RunModelRequest,
    StepContext,
    TurnInput,
    Usage,
    Waiting,
)
from dex_agents.settings import SettingsResolver, resolve_settings
from dex_agents.testing._calls import BatchRunner, RecordedCall, answer_question, describe_settlement
from dex_agents.testing._checks import check_request_unchanged, check_result, fingerprint, through_json
from dex_agents.testing._compactions import Compactions
from dex_agents.testing._decisions import Decide, PendingQuestion, refuse_questions
from dex_agents.testing._events import RecordedEvents
from dex_agents.tools import Answer

RUN_MODEL_ATTEMPTS = 3
"""Attempts of RunModel (the session contract's table of Steps)."""


@dataclass(frozen=True, kw_only=True)
class TurnPlan:
    """What goes wrong, or happens meanwhile, in one turn.

    Attributes:
        lost_tools: Calls of these tools are not run; their outcome is unknown.
        fail_model_step: The turn fails at that RunModel Step of the turn, counted from 1.
        cancel_after_calls: The first batch runs only that many of its calls; then the turn is cancelled.
        steering: User messages that arrive before a RunModel Step of the turn, by the Step's number from 1.
    """

    lost_tools: frozenset[str] = frozenset()
    fail_model_step: int | None = None
    cancel_after_calls: int | None = None
    steering: Mapping[int, str] = field(default_factory=dict[int, str])


@dataclass(frozen=True, kw_only=True)
class TurnFailed:
    """A turn that ended without an answer.

    Attributes:
        error: What ended it; None for a cancelled turn.
        note: What the next turn's model is told.
    """

    error: Exception | None
    note: str


class _PlannedFailureError(TurnFailedError):
    """The test's plan ends the turn here."""


class _Cancelled(Exception):  # noqa: N818  no error: the test's plan cancels the turn
    pass


class InMemorySession:
    """One session of an agent, for tests of runners.

    Every Step gets a new runner, and everything between Steps goes through JSON. Each request and each result is
    checked against the rules of `dex_agents.runner`; a broken rule raises `RunnerContractError`.

    Attributes:
        session_id: The session's id.
        state: The framework state after the latest Step.
        messages: The log, as people would read it.
        steps: Names of the Steps that ran.
        calls: All tool calls.
        usage: Of all model Steps.
        events: What was streamed.
        settings_resolver: What the next Steps' settings are resolved with.
        steering_queue: Steering messages that no Step took; they are sent as ordinary messages after the turn.
    """

    def __init__(
        self,
        make_runner: Callable[[], AgentFrameworkRunner],
        *,
        decide: Decide = refuse_questions,
        settings: Mapping[str, JsonValue] | None = None,
        run_model_twice: bool = False,
        session_id: str = "session-1",
        most_model_steps: int = 100,
        compaction: int | None = None,
        reconcilers: Reconcilers | None = None,
        settings_resolver: SettingsResolver | None = None,
    ) -> None:
        """Start an empty session.

        Args:
            make_runner: Makes a runner; called for every Step.
            decide: Answers approvals and questions; the default fails the test.
            settings: The session's settings; each turn gets a copy.
            run_model_twice: Run each RunModel Step twice from the same bytes and drop the first result, as after a
                crash before the result was recorded.
            session_id: The session's id.
            most_model_steps: A turn with more RunModel Steps than that fails the test.
            compaction: Size of the model's context window in tokens: the runner compacts before a model input would
                reach 85 % of it. None never compacts.
            reconcilers: As for `AgentSessionFlow`.
            settings_resolver: As for `AgentSessionFlow`.
        """
        self.session_id = session_id
        self.state: FrameworkState | None = None
        self.messages: list[Message] = []
        self.steps: list[str] = []
        self.calls: list[RecordedCall] = []
        self.usage = Usage()
        self.events = RecordedEvents()
        self.settings: dict[str, JsonValue] = dict(settings or {})
        self.steering_queue: list[Message] = []
        self._make_runner = make_runner
        self._decide = decide
        self.settings_resolver = settings_resolver
        self._reconcilers: Reconcilers = reconcilers or {}
        self._run_model_twice = run_model_twice
        self._most_model_steps = most_model_steps
        self._turn_number = 0
        self._step_number = 0
        self._note: str | None = None
        self._compactions = Compactions(window_tokens=compaction, make_runner=make_runner)
        self._open: tuple[Waiting, list[RecordedCall]] | None = None
        self._answers: tuple[Answer, ...] = ()
        self._answered: list[str] = []

    async def send(self, content: str | Sequence[Block], plan: TurnPlan | None = None) -> Finished | TurnFailed:
        """Run one turn.

        Args:
            content: What the user says.
            plan: What goes wrong in this turn; None lets everything go right.

        Returns:
            The answer, or how the turn failed.

        Raises:
            AssertionError: The runner broke the contract, or something asked that the test does not answer.
        """
        plan = plan or TurnPlan()
        self._turn_number += 1
        blocks = (TextBlock(text=content),) if isinstance(content, str) else tuple(content)
        self.messages.append(Message(role="user", blocks=blocks))
        turn_start, first_call = self.state, len(self.calls)
        self._answered = []
        self._compactions.begin_turn(self._step_number + 1)
        try:
            result = await self._run_turn(NewTurn(content=blocks, note=self._note), plan)
        except AssertionError:
            raise
        except _Cancelled:
            return await self._end_early("it was cancelled", None, turn_start, first_call)
        except Exception as error:  # noqa: BLE001  a session fails the turn, whatever the runner raised
            return await self._end_early(str(error), error, turn_start, first_call)
        self._note = None
        return result

    async def _run_turn(self, turn_input: TurnInput, plan: TurnPlan) -> Finished:
        for number in range(1, self._most_model_steps + 1):
            if number in plan.steering:
                self.steering_queue.append(text_message("user", plan.steering[number]))
            if number == plan.fail_model_step:
                raise _PlannedFailureError("the test's plan fails this model call")
            turn_input = await self._compact_if_full(turn_input)
            step = await self._run_model(turn_input)
            match step.outcome:
                case Finished():
                    return step.outcome
                case Again():
                    turn_input = Continue()
                case Waiting():
                    turn_input = await self._settle(step.outcome, plan)
        raise AssertionError(f"the turn took more than {self._most_model_steps} RunModel Steps: it seems endless")

    @property
    def compactions(self) -> list[CompactOutcome]:
        """What each CompactContext Step came to."""
        return self._compactions.outcomes

    async def _compact_if_full(self, turn_input: TurnInput) -> TurnInput:
        """Let the runner shorten its state before the next model call; returns what that call is given then."""
        if self.state is None or not self._compactions.is_due(turn_input, self.steering_queue):
            return turn_input
        self.steps.append("CompactContext")
        outcome = await self._compactions.compact(await self._resolved_context(1), self.state, turn_input)
        if isinstance(outcome, CannotCompactNow):
            return turn_input
        self.state = outcome.state
        self.usage = self.usage.plus(outcome.usage)
        if not outcome.batch_taken:
            return turn_input
        self._take_batch()
        return Continue()

    async def _run_model(self, turn_input: TurnInput) -> ModelStep:
        self._step_number += 1
        self.steps.append("RunModel")
        if self._run_model_twice:
            await self._attempt_model(turn_input, 1)
        last_error: Exception | None = None
        for attempt in range(1, RUN_MODEL_ATTEMPTS + 1):
            try:
                step = await self._attempt_model(turn_input, attempt)
            except (AssertionError, TurnFailedError):
                raise
            except Exception as error:  # noqa: BLE001  anything else is retried by the Step's policy
                last_error = error
            else:
                self._commit(step, turn_input)
                return step
        assert last_error is not None  # noqa: S101  the loop ran at least once
        raise last_error

    async def _attempt_model(self, turn_input: TurnInput, attempt: int) -> ModelStep:
        state = None if self.state is None else through_json(self.state)
        request = RunModelRequest(
            step=await self._resolved_context(attempt),
            state=state,
            input=through_json(turn_input),
            steering=tuple(through_json(message) for message in self.steering_queue),
        )
        before = fingerprint(request)
        try:
            step = await self._make_runner().run_model(request)
        finally:
            check_request_unchanged("run_model", before, request)
        step = through_json(step)
        check_result(step, self.state)
        return step

    def _commit(self, step: ModelStep, turn_input: TurnInput) -> None:
        if isinstance(turn_input, BatchSettled):
            self._take_batch()
        if step.steering_taken > len(self.steering_queue):
            raise AssertionError(
                f"steering_taken is {step.steering_taken}, but only {len(self.steering_queue)} were offered"
            )
        self.messages += self.steering_queue[: step.steering_taken]
        del self.steering_queue[: step.steering_taken]
        self.messages += step.messages
        self.state = step.state
        self.usage = self.usage.plus(step.usage)
        self._compactions.note(step)

    def _take_batch(self) -> None:
        """The state has the results and answers of the open batch now."""
        self._answered += self._told()
        self._open, self._answers = None, ()

    def _told(self) -> tuple[str, ...]:
        questions = () if self._open is None else self._open[0].questions
        given = {answer.question_id: answer for answer in self._answers}
        return told_answers((question, given.get(question.id)) for question in questions)

    async def _settle(self, waiting: Waiting, plan: TurnPlan) -> BatchSettled:
        assert self.state is not None  # noqa: S101  a Step that waits has left a state
        calls: list[RecordedCall] = []
        for request in waiting.calls:
            call_id = f"call-{len(self.calls) + 1}"
            key = f"{self.session_id}/turn-{self._turn_number}/{call_id}"
            calls.append(RecordedCall(call_id=call_id, idempotency_key=key, request=request))
            self.calls.append(calls[-1])
        self._open = (waiting, calls)
        batch = BatchRunner(
            make_runner=self._make_runner,
            state=self.state,
            step=await self._resolved_context(1),
            decide=self._decide,
            lost_tools=plan.lost_tools,
            step_names=self.steps,
            reconcilers=self._reconcilers,
        )
        await batch.run(calls, run_only=plan.cancel_after_calls)
        if plan.cancel_after_calls is not None:
            raise _Cancelled
        answers = [
            await answer_question(self._decide, PendingQuestion(question=question, call=None, call_id=""))
            for question in waiting.questions
        ]
        self._answers = tuple(answers)
        self.steps.append("ResumeTurn")
        self._log_results(calls)
        return BatchSettled(calls=tuple(call.settled() for call in calls), answers=self._answers)

    async def _end_early(
        self, why: str, error: Exception | None, turn_start: FrameworkState | None, first_call: int
    ) -> TurnFailed:
        self.steps.append("RecordTurnFailure")
        undone, told = self.state == turn_start or self._compactions.only_compacted(self.state), self._told()
        if self._open is not None:
            waiting, calls = self._open
            closed = await self._close(waiting, calls, turn_start)
            undone = closed.undone
            told = () if closed.answers_kept and not undone else told
            if error is None:
                self._log_results(calls)
        ran = [
            f"{call.request.name} ({call.settlement.kind})"
            for call in self.calls[first_call:]
            if call.settlement is not None and call.settlement.kind not in ("denied", "not_run")
        ]
        note = f"[The previous turn ended early: {why}."
        if answered := newest_told((*self._answered, *told) if undone else told):
            note += f" The user had answered: {'; '.join(answered)}."
        if ran:
            note += f" Already done, do not repeat: {', '.join(ran)}."
        note += "]" if undone else " Its results are above.]"
        self._note, self._open, self._answers = note, None, ()
        if undone:
            self._compactions.undo_turn(self.state)
        self.messages.append(text_message("note", note))
        return TurnFailed(error=error, note=note)

    async def _close(self, waiting: Waiting, calls: list[RecordedCall], turn_start: FrameworkState | None) -> Closed:
        assert self.state is not None  # noqa: S101  an open batch has a state
        answered = {answer.question_id for answer in self._answers}
        request = CloseTurnRequest(
            step=self._context(1),
            state=through_json(self.state),
            turn_start=None if turn_start is None else through_json(turn_start),
            calls=tuple(call.settled() for call in calls),
            questions=tuple(each for each in waiting.questions if each.id not in answered),
            answers=self._answers,
        )
        before = fingerprint(request)
        closed = await self._make_runner().close_turn(request)
        check_request_unchanged("close_turn", before, request)
        closed = through_json(closed)
        check_result(closed, self.state)
        self.state = closed.state
        return closed

    async def _resolved_context(self, attempt: int) -> StepContext:
        step = self._context(attempt)
        if self.settings_resolver is None:
            return step
        return replace(step, resolved=await resolve_settings(step, self.settings_resolver))

    def _context(self, attempt: int) -> StepContext:
        return StepContext(
            session_id=self.session_id,
            turn_id=turn_id_of(self._turn_number),
            step_number=self._step_number,
            attempt=attempt,
            settings=copy.deepcopy(self.settings),
            events=self.events,
        )

    def _log_results(self, calls: Sequence[RecordedCall]) -> None:
        for call in calls:
            status, text = describe_settlement(call.settled())
            block = ResultBlock(
                owner=call.request.owner,
                call_id=call.request.call_id,
                name=call.request.name,
                status=status,
                text=text,
            )
            self.messages.append(Message(role="tool", blocks=(block,)))
