"""Settles the calls of one batch as a session does: order, approvals, questions, attempts, unknown outcomes."""

import asyncio
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from pydantic import JsonValue

from dex_agents._inquiry import Inquiry, is_user_question
from dex_agents.errors import StateNotReadableError, ToolDidNotHappen
from dex_agents.messages import ResultStatus
from dex_agents.reconciliation import Reconciler, Reconcilers, UnknownCall, ask_reconciler, settled_by
from dex_agents.runner import AgentFrameworkRunner, CallToolRequest, FrameworkState, StepContext
from dex_agents.testing._checks import check_request_unchanged, fingerprint, through_json
from dex_agents.testing._decisions import Decide, PendingQuestion
from dex_agents.tools import (
    Answer,
    Asks,
    Denied,
    Failed,
    NotRun,
    OutcomeUnknown,
    Question,
    RetryLater,
    Returned,
    SettledCall,
    Settlement,
    ToolCallInfo,
    ToolEffect,
    ToolOutcome,
    ToolRequest,
    running_tool_call,
)

REPEATABLE_ATTEMPTS = 3
"""Attempts of a read or idempotent write (the session contract's table of Steps)."""

MOST_QUESTION_ROUNDS = 20
"""How often one call may ask before the session takes it for an endless loop."""


@dataclass
class RecordedCall:
    """One tool call as the session saw it.

    Attributes:
        call_id: Minted by the session, for example `call-7`.
        idempotency_key: What the tool got, equal on every attempt.
        request: What the model asked for, through JSON.
        attempts: How often the runner was asked to run it, not counting runs that asked or came back later.
        questions: Everything it asked.
        settlement: How it ended; None while it is open.
    """

    call_id: str
    idempotency_key: str
    request: ToolRequest
    attempts: int = 0
    questions: list[Question] = field(default_factory=list[Question])
    settlement: Settlement | None = None
    approved: bool = False
    arguments: JsonValue = None
    answers: list[Answer] = field(default_factory=list[Answer])
    resume: JsonValue = None
    has_asked: bool = False
    resumed: int = 0

    def settled(self) -> SettledCall:
        """Return the call and its settlement, through JSON."""
        if self.settlement is None:
            raise AssertionError(f"{self.call_id} is not settled")
        return through_json(SettledCall(call=self.request, settlement=self.settlement, arguments=self.arguments))


@dataclass(frozen=True, kw_only=True)
class BatchRunner:
    """Runs the calls of one batch.

    Attributes:
        make_runner: Makes a fresh runner for each Step.
        state: The state that RunModel left.
        step: Where the requests come from.
        decide: Answers questions.
        lost_tools: Names of tools whose calls get lost: they are not run, and their outcome is unknown.
        step_names: Gets the name of each Step that runs.
        reconcilers: Ask what became of a call whose outcome is unknown.
    """

    make_runner: Callable[[], AgentFrameworkRunner]
    state: FrameworkState
    step: StepContext
    decide: Decide
    lost_tools: frozenset[str]
    step_names: list[str]
    reconcilers: Reconcilers = field(default_factory=dict[str, Reconciler])

    async def run(self, calls: Sequence[RecordedCall], *, run_only: int | None = None) -> None:
        """Settle all calls: in parallel, but each after those that its `after` names.

        Args:
            calls: The batch, in the model's order.
            run_only: Run that many of them, one by one, and settle the others as never run; None runs all.
        """
        if run_only is not None:
            for call in calls[:run_only]:
                await self._settle(call, calls)
            for call in calls[run_only:]:
                call.settlement = NotRun(message="not run: the turn was cancelled")
            return
        done = [asyncio.Event() for _ in calls]

        async def settle_in_order(index: int) -> None:
            for other in calls[index].request.after:
                await done[other].wait()
            await self._settle(calls[index], calls)
            done[index].set()

        # Not a TaskGroup: a broken rule must reach the test as itself, not in a group.
        tasks = [asyncio.create_task(settle_in_order(index)) for index in range(len(calls))]
        try:
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _settle(self, call: RecordedCall, batch: Sequence[RecordedCall]) -> None:
        if call.request.policy.approval:
            await self._ask_for_approval(call)
        if call.settlement is None and call.request.name in self.lost_tools:
            call.settlement = OutcomeUnknown(message="the outcome of this call is unknown: it may have happened")
        while call.settlement is None:
            outcome = await self._attempt(call, batch)
            if isinstance(outcome, Asks):
                await self._ask(call, outcome)
            elif isinstance(outcome, RetryLater):
                self.step_names.append("AwaitToolStart")
            else:
                call.settlement = outcome
        while isinstance(call.settlement, OutcomeUnknown) and call.request.name in self.reconcilers:
            found = await self._reconcile(call, call.settlement)
            if not isinstance(found, RetryLater):
                call.settlement = found
                return

    async def _reconcile(self, call: RecordedCall, suspected: OutcomeUnknown) -> Settlement | RetryLater:
        self.step_names.append("ReconcileToolCall")
        unknown = UnknownCall(
            session_id=self.step.session_id,
            turn_id=self.step.turn_id,
            call_id=call.call_id,
            tool_name=call.request.name,
            idempotency_key=call.idempotency_key,
            arguments=call.request.arguments if call.arguments is None else call.arguments,
            error=suspected.message,
            settings=self.step.settings,
        )
        said = await ask_reconciler(self.reconcilers[call.request.name], unknown)
        return settled_by(said, suspected.message)

    async def _ask_for_approval(self, call: RecordedCall) -> None:
        question = Question(id="approval", kind="approval", prompt=f"Run {call.request.name}?", about_this_call=True)
        await self._answer(call, question)

    async def _ask(self, call: RecordedCall, asks: Asks) -> None:
        if len(call.questions) >= MOST_QUESTION_ROUNDS:
            raise AssertionError(f"{call.request.name!r} asked {len(call.questions)} times: it seems to ask for ever")
        asks = through_json(asks)
        call.has_asked = True
        call.resume = asks.resume
        for question in asks.questions:
            await self._answer(call, question)

    async def _answer(self, call: RecordedCall, question: Question) -> None:
        self.step_names.append("AwaitToolApproval" if question.kind == "approval" else "AwaitAnswer")
        call.questions.append(question)
        pending = PendingQuestion(question=question, call=call.request, call_id=call.call_id)
        answer = await answer_question(self.decide, pending)
        if question.kind == "approval" and question.about_this_call:
            if answer.approved:
                call.approved = True
                call.arguments = answer.arguments
            else:
                call.settlement = Denied(message=answer.message or "The tool call was denied.")
        call.answers.append(answer)

    async def _attempt(self, call: RecordedCall, batch: Sequence[RecordedCall]) -> ToolOutcome | Settlement:
        effect = call.request.policy.effect
        self.step_names.append("CallTool" if effect.is_repeatable else "CallSingleAttemptTool")
        most = REPEATABLE_ATTEMPTS if effect.is_repeatable else 1
        for attempt in range(1, most + 1):
            call.attempts += 1
            try:
                return await self._call_runner(call, batch, attempt)
            except ToolDidNotHappen as error:
                return Failed(message=f"the call did not happen: {error}")
            except (AssertionError, StateNotReadableError):
                raise
            except Exception as error:  # noqa: BLE001  whatever a tool raises is settled by its effect
                if attempt == most:
                    return settle_lost_call(effect, error)
        raise AssertionError("unreachable: the last attempt settles the call")

    async def _call_runner(self, call: RecordedCall, batch: Sequence[RecordedCall], attempt: int) -> ToolOutcome:
        told = {answer.question_id: answer for answer in call.answers if is_user_question(answer.question_id)}
        request = CallToolRequest(
            step=replace(self.step, attempt=attempt),
            state=through_json(self.state),
            call=through_json(call.request),
            idempotency_key=call.idempotency_key,
            approved=call.approved,
            arguments=call.arguments,
            answers=tuple(answer for answer in call.answers if answer.question_id not in told),
            has_asked=call.has_asked,
            resume=call.resume,
            earlier=tuple(batch[index].settled() for index in call.request.after),
        )
        before = fingerprint(request)
        info = ToolCallInfo(
            session_id=self.step.session_id,
            turn_id=self.step.turn_id,
            call_id=call.call_id,
            idempotency_key=call.idempotency_key,
            attempt=attempt,
            resumed=call.resumed,
        )
        inquiry = Inquiry(answers=told)
        outcome: ToolOutcome | None = None
        try:
            with running_tool_call(info, inquiry):
                outcome = await self.make_runner().call_tool(request)
        except Exception:
            if inquiry.wish is None:
                raise
        finally:
            check_request_unchanged("call_tool", before, request)
        wish = inquiry.outcome(call.resume)
        if wish is None and outcome is not None:
            return through_json(outcome)
        assert wish is not None  # noqa: S101  without an outcome the exception was raised above
        call.resumed += 1
        return through_json(wish)


def settle_lost_call(effect: ToolEffect, error: Exception) -> Settlement:
    """Settle a call whose last attempt raised."""
    if effect is ToolEffect.READ:
        return Failed(message=f"the tool failed: {type(error).__name__}: {error}")
    return OutcomeUnknown(message=f"the outcome of this call is unknown: {type(error).__name__}: {error}")


async def answer_question(decide: Decide, pending: PendingQuestion) -> Answer:
    """Let the test answer, and give the answer its question's id."""
    answer = decide(pending)
    if inspect.isawaitable(answer):
        answer = await answer
    return through_json(answer.model_copy(update={"question_id": pending.question.id}))


def describe_settlement(call: SettledCall) -> tuple[ResultStatus, str]:
    """Return the status and the text of a settled call, for the log."""
    settlement = call.settlement
    if isinstance(settlement, Returned):
        return ("error" if settlement.is_error else "ok"), settlement.text
    return settlement.kind, settlement.message
