"""One call that runs a conversation in every way in which a session may run it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from dex_agents.runner import AgentFrameworkRunner, Finished
from dex_agents.testing._checks import RunnerContractError
from dex_agents.testing._decisions import Decide, refuse_questions
from dex_agents.testing._session import InMemorySession, TurnFailed, TurnPlan


@dataclass(frozen=True, kw_only=True)
class RunnerReport:
    """What `check_runner` did.

    Attributes:
        answers: The answer of each turn.
        conversations: How many conversations it ran.
        cancelled: How many of them cancelled a turn with an open batch.
    """

    answers: tuple[str, ...]
    conversations: int
    cancelled: int


async def check_runner(
    make_runner: Callable[[], AgentFrameworkRunner],
    turns: Sequence[str],
    *,
    decide: Decide = refuse_questions,
) -> RunnerReport:
    """Check a runner against the rules of `dex_agents.runner` with a conversation that its agent can hold.

    The conversation runs undisturbed; then with every RunModel Step repeated from the same bytes; then once for each
    turn with that turn cancelled while its first batch is open, and once with that turn failed at its second model
    call, after which the turn is sent again. Every run must give the undisturbed answers, so use an agent whose answers
    do not depend on earlier turns, with tools that can be repeated.

    Args:
        make_runner: Makes a runner; called for every Step.
        turns: What the user says, turn by turn; use tools in at least one of them.
        decide: Answers approvals and questions.

    Returns:
        What was run.

    Raises:
        RunnerContractError: A rule is broken, or a disturbed run ended differently.
    """
    description = make_runner().describe()
    undisturbed = InMemorySession(make_runner, decide=decide)
    answers = [_answer(await undisturbed.send(turn), turn) for turn in turns]
    if undisturbed.state is not None and undisturbed.state.format not in description.reads_formats:
        raise RunnerContractError(
            f"it writes format {undisturbed.state.format}, but reads only {description.reads_formats}"
        )
    repeated = InMemorySession(make_runner, decide=decide, run_model_twice=True)
    for turn, answer in zip(turns, answers, strict=True):
        _expect(answer, _answer(await repeated.send(turn), turn), "with every RunModel Step repeated")
    conversations = 2
    cancelled = 0
    for disturbed in range(len(turns)):
        for plan in (TurnPlan(cancel_after_calls=0), TurnPlan(cancel_after_calls=1), TurnPlan(fail_model_step=2)):
            session = InMemorySession(make_runner, decide=decide)
            conversations += 1
            for index, (turn, answer) in enumerate(zip(turns, answers, strict=True)):
                if index == disturbed:
                    ended = await session.send(turn, plan)
                    cancelled += isinstance(ended, TurnFailed) and ended.error is None
                _expect(answer, _answer(await session.send(turn), turn), f"after turn {disturbed + 1} with {plan}")
    return RunnerReport(answers=tuple(answers), conversations=conversations, cancelled=cancelled)


def _answer(result: Finished | TurnFailed, turn: str) -> str:
    if isinstance(result, TurnFailed):
        raise RunnerContractError(f"the turn {turn!r} failed: {result.note}") from result.error
    return result.text


def _expect(wanted: str, got: str, how: str) -> None:
    if wanted != got:
        raise RunnerContractError(f"the undisturbed answer is {wanted!r}, but {how} it is {got!r}")
