"""What becomes of people's answers to the agent's own questions when their turn ends early behind them."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Literal

import pytest
from pydantic import JsonValue

from dex_agents import AgentHost, AgentSessionFlow, AgentSessionOptions
from dex_agents._storage.records import RunModelInput, TurnRecord
from dex_agents._turn.answered_questions import newest_told, told_answers
from dex_agents.errors import AnswerTooLargeError, TurnFailedError
from dex_agents.runner import Closed, CloseTurnRequest, ModelStep, RunModelRequest, Waiting
from dex_agents.session import AgentSession
from dex_agents.steps import _moves
from dex_agents.steps._moves import Movement
from dex_agents.testing import InMemorySession, TurnFailed, TurnPlan, answer_with
from dex_agents.tools import Answer, Question
from support.scripted_runner import ScriptedRunner, read_runs
from support.scripted_sessions import pending
from support.waiting import wait_for

BLUE = 'The user had answered these questions: "which colour?" -> "blue".'


class Closer(ScriptedRunner):
    """Closes turns in one way, and keeps what it was asked to close."""

    def __init__(self, way: Literal["leaves", "keeps", "undoes"] = "leaves") -> None:
        super().__init__()
        self.way = way
        self.requests: list[CloseTurnRequest] = []

    async def close_turn(self, request: CloseTurnRequest) -> Closed:
        self.requests.append(request)
        if self.way == "undoes":
            return Closed(state=request.turn_start, undone=True)
        closed = await super().close_turn(request)
        return closed.model_copy(update={"answers_kept": self.way == "keeps"})

    @property
    def told(self) -> tuple[list[str], list[tuple[str, JsonValue]]]:
        """The ids of the open questions, and the answers to the others."""
        (request,) = self.requests
        answers = [(answer.question_id, answer.value) for answer in request.answers]
        return [question.id for question in request.questions], answers


@asynccontextmanager
async def session_of(
    runner: ScriptedRunner, directory: Path, options: AgentSessionOptions | None = None
) -> AsyncGenerator[AgentSession]:
    flow = AgentSessionFlow(runner, name="closer", options=options or AgentSessionOptions())
    async with AgentHost(flow, directory=directory / "engine") as host:
        session = host.session("s-1")
        await session.start()
        yield session


async def answer(session: AgentSession, prompt: str, value: str) -> None:
    """Answer the question with that prompt as soon as it is asked."""

    async def asked() -> str | None:
        waiting = (await session.snapshot()).pending_interrupts
        return next((each.interrupt_id for each in waiting if each.question.prompt == prompt), None)

    await session.answer_question(await wait_for(asked, what=prompt), value)


async def model_calls(log: Path, count: int) -> None:
    async def made() -> bool | None:
        return len([run for run in read_runs(log) if run["kind"] == "model"]) == count or None

    await wait_for(made, what=f"{count} model calls")


@pytest.mark.parametrize("end", ["fail for good", "crash for good"])
async def test_an_answer_whose_turn_fails_behind_it_is_told_to_the_next_turns_model(
    tmp_path: Path, log: Path, end: str
) -> None:
    runner = Closer()
    async with session_of(runner, tmp_path, AgentSessionOptions(run_model_limit=1)) as session:
        receipt = await session.send(f"ask colour\n{end}")
        await answer(session, "which colour?", "blue")
        with pytest.raises(TurnFailedError, match="for good"):
            await session.wait_for_result(receipt.message_id, timeout=10)

        recalled = await session.ask("recall", timeout=10)

    assert runner.told == ([], [("colour", "blue")])
    assert recalled.text.count(BLUE) == 1


async def test_answers_and_open_questions_of_a_cancelled_turn_are_told_apart(tmp_path: Path, log: Path) -> None:
    runner = Closer()
    async with session_of(runner, tmp_path) as session:
        await session.send("ask colour, size\nsay done")
        await pending(session, 2)
        await answer(session, "which colour?", "blue")
        assert await session.cancel_turn()

        recalled = await session.ask("recall", timeout=10)

    assert runner.told == (["size"], [("colour", "blue")])
    assert BLUE in recalled.text


async def test_an_answer_is_told_when_the_model_call_that_had_it_is_cancelled(tmp_path: Path, log: Path) -> None:
    runner = Closer()
    async with session_of(runner, tmp_path) as session:
        await session.send("ask colour\nsleep")
        await answer(session, "which colour?", "blue")
        await model_calls(log, 2)
        assert await session.cancel_turn()

        recalled = await session.ask("recall", timeout=10)

    assert runner.told == ([], [("colour", "blue")])
    assert BLUE in recalled.text


@pytest.mark.parametrize(
    ("way", "told"),
    [
        ("leaves", 'The user had answered these questions: "which size?" -> "M".'),
        ("keeps", ""),
        ("undoes", 'The user had answered these questions: "which colour?" -> "blue"; "which size?" -> "M".'),
    ],
)
async def test_the_note_tells_the_answers_that_the_state_does_not_have(
    tmp_path: Path, log: Path, way: Literal["leaves", "keeps", "undoes"], told: str
) -> None:
    async with session_of(Closer(way), tmp_path) as session:
        receipt = await session.send("ask colour\nask size\nfail")
        await answer(session, "which colour?", "blue")
        await answer(session, "which size?", "M")
        with pytest.raises(TurnFailedError):
            await session.wait_for_result(receipt.message_id, timeout=10)

        recalled = await session.ask("recall", timeout=10)

    assert told in recalled.text
    assert ("The user had answered" in recalled.text) is bool(told)


class AsksBesideCalls(Closer):
    """Asks a question of its own beside each batch of calls."""

    async def run_model(self, request: RunModelRequest) -> ModelStep:
        step = await super().run_model(request)
        if not isinstance(step.outcome, Waiting) or not step.outcome.calls:
            return step
        question = Question(id="colour", kind="answer", prompt="which colour?")
        return step.model_copy(update={"outcome": step.outcome.model_copy(update={"questions": (question,)})})


async def test_an_answer_beside_calls_leaves_room_for_them_where_the_failure_is_recorded(
    tmp_path: Path, log: Path
) -> None:
    runner = AsksBesideCalls()
    async with session_of(runner, tmp_path) as session:
        receipt = await session.send("call read_a\nfail")
        with pytest.raises(AnswerTooLargeError, match="more than the 262144"):
            await answer(session, "which colour?", "b" * 300_000)
        await answer(session, "which colour?", "b" * 200_000)
        with pytest.raises(TurnFailedError):
            await session.wait_for_result(receipt.message_id, timeout=10)

        recalled = await session.ask("recall", timeout=10)

    assert runner.told == ([], [("colour", "b" * 200_000)])
    assert [call.call.name for call in runner.requests[0].calls] == ["read_a"]
    assert f'"which colour?" -> "{"b" * 1999}.' in recalled.text


async def test_a_failure_that_an_earlier_release_has_scheduled_is_recorded_without_the_answers(
    tmp_path: Path, log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    current = _moves.to_record_turn_failure

    def loads_no_question(turn: TurnRecord, failed: RunModelInput) -> Movement:
        return current(turn.model_copy(update={"open_questions": ()}), failed)

    monkeypatch.setattr(_moves, "to_record_turn_failure", loads_no_question)
    runner = Closer()
    async with session_of(runner, tmp_path) as session:
        receipt = await session.send("ask colour\nfail")
        await answer(session, "which colour?", "blue")
        with pytest.raises(TurnFailedError):
            await session.wait_for_result(receipt.message_id, timeout=10)

        assert "The previous turn ended early" in (await session.ask("recall", timeout=10)).text
    assert runner.told == ([], [])


async def test_a_session_in_memory_tells_answers_as_a_durable_one() -> None:
    session = InMemorySession(lambda: Closer("undoes"), decide=lambda pending: answer_with(pending.question.id.upper()))
    failed = await session.send("ask colour\nask size\nsay done", TurnPlan(fail_model_step=3))

    assert isinstance(failed, TurnFailed)
    assert '"which colour?" -> "COLOUR"; "which size?" -> "SIZE".' in failed.note
    assert "The user had answered" not in str(await session.send("fail"))


def test_answers_of_every_kind_are_told_and_long_ones_are_clipped() -> None:
    question = Question(id="q", kind="answer", prompt="p" * 600)
    given = [
        Answer(question_id="q", value=None, answered_by="ann"),
        Answer(question_id="q", approved=False, message="too dear"),
        Answer(question_id="q", approved=False, is_error=True, message="approval deadline passed"),
        Answer(question_id="q", value="\ud800" + "x" * 3000),
        None,
    ]
    nothing, denied, long = told_answers((question, each) for each in given)

    prompt = f'"{"p" * 500}" -> '
    assert nothing == f"{prompt}null"
    assert denied == f'{prompt}{{"approved": false, "message": "too dear"}}'
    assert long == f'{prompt}"?{"x" * 1998}'
    assert newest_told(["a" * 5000, "b" * 5000, "c" * 3000]) == ("b" * 5000, "c" * 3000)
