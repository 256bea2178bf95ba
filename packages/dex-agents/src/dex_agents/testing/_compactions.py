"""The compactions of an in-memory session."""

from collections.abc import Callable, Sequence

from dex_agents._turn.context_size import KEPT_SHARE, fills_window, state_tokens, tokens_after
from dex_agents.messages import Message
from dex_agents.runner import (
    AgentFrameworkRunner,
    BatchSettled,
    Compacted,
    CompactOutcome,
    CompactRequest,
    FrameworkState,
    ModelStep,
    NewTurn,
    StepContext,
    TurnInput,
)
from dex_agents.testing._checks import (
    RunnerContractError,
    check_request_unchanged,
    check_result,
    fingerprint,
)


class Compactions:
    """Decides when a context is full, asks the runner, and checks what it returns.

    Attributes:
        outcomes: What each compaction came to.
    """

    def __init__(self, *, window_tokens: int | None, make_runner: Callable[[], AgentFrameworkRunner]) -> None:
        self.outcomes: list[CompactOutcome] = []
        self._window = window_tokens
        self._make_runner = make_runner
        self._tokens = 0
        self._reported: int | None = None
        self._turn_steps: list[int] = []
        self._at_start = 0
        self._start_state: FrameworkState | None = None

    def begin_turn(self, first_step: int) -> None:
        """Note that a turn begins with that RunModel Step."""
        self._turn_steps.append(first_step)
        self._at_start, self._start_state = self._tokens, None

    def only_compacted(self, state: FrameworkState | None) -> bool:
        """Whether a compaction is all that happened to the state in the running turn."""
        return self._start_state is not None and state == self._start_state

    def undo_turn(self, state: FrameworkState | None) -> None:
        """Forget the running turn, which was undone and has left this state."""
        self._turn_steps.pop()
        self._tokens = self._tokens if self.only_compacted(state) else self._at_start

    def note(self, step: ModelStep) -> None:
        """Note how large the context is after a model call."""
        if self._window is not None:
            self._reported = step.context_tokens
            self._tokens = tokens_after(step)

    def is_due(self, new: TurnInput, steering: Sequence[Message]) -> bool:
        """Whether the next model input would reach 85 % of the window."""
        return self._window is not None and fills_window(self._tokens, new, steering, self._window)

    async def compact(self, step: StepContext, state: FrameworkState, new: TurnInput) -> CompactOutcome:
        """Let a new runner shorten the state.

        Raises:
            RunnerContractError: It broke a rule.
        """
        begins = isinstance(new, NewTurn)
        steps = self._turn_steps[:-1] if begins else self._turn_steps
        request = CompactRequest(
            step=step,
            state=state.model_copy(deep=True),
            window_tokens=self._window or 0,
            keep_tokens=int((self._window or 0) * KEPT_SHARE),
            batch=new.model_copy(deep=True) if isinstance(new, BatchSettled) else None,
            context_tokens=self._reported,
            turns=len(steps),
            turn_starts=tuple(enumerate(steps, start=1)),
        )
        before = fingerprint(request)
        outcome = await self._make_runner().compact(request)
        check_request_unchanged("compact", before, request)
        outcome = type(outcome).model_validate_json(outcome.model_dump_json())
        check_result(outcome, state)
        self.outcomes.append(outcome)
        if isinstance(outcome, Compacted):
            if outcome.batch_taken and request.batch is None:
                raise RunnerContractError("compact took a batch that it was not given")
            if not outcome.summary.strip():
                raise RunnerContractError("compact returned an empty summary")
            if not 1 <= outcome.folded_before_step <= step.step_number + 1:
                raise RunnerContractError(
                    f"folded_before_step is {outcome.folded_before_step}, but {step.step_number} Steps have run"
                )
            self._tokens, self._reported = state_tokens(outcome.state), None
            if begins:
                self._start_state = outcome.state
        return outcome
