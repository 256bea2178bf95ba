"""What a tool asks of its session: answers of the user, and to be run again later."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, JsonValue

from dex_agents import UserQuestion, ask_user, ask_user_all, resume_later
from dex_agents._inquiry import Inquiry
from dex_agents.errors import (
    AnswerNotValidError,
    ConfigurationError,
    InterruptNotPendingError,
    NotInSessionError,
    QuestionNotAnsweredError,
    ToolPaused,
)
from dex_agents.runner import Finished
from dex_agents.testing import InMemorySession, PendingQuestion
from dex_agents.tools import Answer, Asks, RetryLater, ToolCallInfo, running_tool_call
from support.scripted_runner import ScriptedRunner, read_runs
from support.scripted_sessions import pending, scripted_session, snapshot_when
from support.waiting import wait_for

CALL = ToolCallInfo(session_id="s", turn_id="turn-1", call_id="call-1", idempotency_key="s/turn-1/call-1", attempt=1)


class Address(BaseModel):
    street: str
    number: int


def answers(**values: JsonValue) -> Inquiry:
    given = {f"ask_user:{name}": Answer(question_id=f"ask_user:{name}", value=value) for name, value in values.items()}
    return Inquiry(answers=given)


def test_a_question_ends_the_run_with_its_schema_and_the_answer_is_of_the_type_that_was_asked_for() -> None:
    asked = Inquiry()
    with running_tool_call(CALL, asked), pytest.raises(ToolPaused):
        ask_user("Where to?", Address)

    outcome = asked.outcome()
    assert isinstance(outcome, Asks)
    (question,) = outcome.questions
    assert (question.kind, question.prompt) == ("answer", "Where to?")
    assert isinstance(question.answer_schema, dict)
    assert question.answer_schema["required"] == ["street", "number"]
    given: JsonValue = {"street": "Main St", "number": 7}
    with running_tool_call(CALL, answers(**{"1": given})):
        assert ask_user("Where to?", Address) == Address(street="Main St", number=7)


def test_several_questions_are_asked_at_once_and_only_those_that_are_still_open() -> None:
    questions = [UserQuestion(prompt="How many?", answer_type=int, id="count"), UserQuestion(prompt="Why?", id="why")]
    asked = answers(count=2)
    with running_tool_call(CALL, asked), pytest.raises(ToolPaused):
        ask_user_all(questions)

    outcome = asked.outcome({"kept": True})
    assert isinstance(outcome, Asks)
    assert [question.id for question in outcome.questions] == ["ask_user:why"]
    assert outcome.resume == {"kept": True}
    with running_tool_call(CALL, answers(count=2, why="so")):
        assert ask_user_all(questions) == (2, "so")


def test_choices_may_leave_room_for_other_words() -> None:
    assert UserQuestion(prompt="Size?", choices=["S", "M"]).json_schema() == {"enum": ["S", "M"]}
    assert UserQuestion(prompt="Size?", choices=["S"], free_text=True).json_schema() == {
        "anyOf": [{"enum": ["S"]}, {"type": "string"}]
    }


def test_a_question_that_nobody_answered_in_time_raises_what_is_recorded_as_failed() -> None:
    late = Answer(question_id="ask_user:1", approved=False, is_error=True, message="approval deadline passed")
    with (
        running_tool_call(CALL, Inquiry(answers={"ask_user:1": late})),
        pytest.raises(QuestionNotAnsweredError, match=r"'Size\?': approval deadline passed"),
    ):
        ask_user("Size?")


@pytest.mark.parametrize(
    ("wish", "seconds"),
    [
        ({"after": timedelta(seconds=1.2)}, {2}),
        # Counted from the collection of the tests, which a whole run begins long before this one.
        ({"at": datetime.now(UTC) + timedelta(hours=1)}, set(range(1, 3601))),
        ({"at": datetime(2020, 1, 1, tzinfo=UTC)}, {0}),
    ],
)
def test_a_tool_is_resumed_after_a_time_or_at_one(wish: dict[str, Any], seconds: set[int]) -> None:
    asked = Inquiry()
    with running_tool_call(CALL, asked), pytest.raises(ToolPaused):
        resume_later(**wish, reason="not yet")

    outcome = asked.outcome()
    assert isinstance(outcome, RetryLater)
    assert outcome.after_seconds in seconds
    assert outcome.reason == "not yet"


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: resume_later(),
        lambda: resume_later(after=timedelta(seconds=-1)),
        lambda: resume_later(at=datetime(2030, 1, 1)),
        lambda: ask_user(" "),
        lambda: ask_user("x" * 5000),
        lambda: ask_user("Size?", deadline=timedelta(0)),
        lambda: ask_user("What?", type(lambda: 0)),
        lambda: UserQuestion(prompt="Size?", answer_type=int, choices=["1"]),
        lambda: ask_user_all([]),
        lambda: ask_user_all([UserQuestion(prompt="a", id="x"), UserQuestion(prompt="b", id="x")]),
    ],
    ids=range(10),
)
def test_what_cannot_be_asked_so_is_refused_before_anything_waits(wrong: Any) -> None:
    asked = Inquiry()
    with running_tool_call(CALL, asked), pytest.raises(ConfigurationError):
        wrong()
    assert asked.wish is None


def test_outside_a_session_both_say_that_there_is_none() -> None:
    with pytest.raises(NotInSessionError, match="ask_user was called where no session runs the tool"):
        ask_user("Size?")
    with pytest.raises(NotInSessionError, match="resume_later was called"):
        resume_later(after=timedelta(hours=1))


async def test_the_in_memory_session_asks_and_resumes_as_a_durable_one(log: Path) -> None:
    def decide(pending: PendingQuestion) -> Answer:
        return Answer(question_id="", value="M" if "size" in pending.question.prompt else 3)

    session = InMemorySession(ScriptedRunner, decide=decide)
    finished = await session.send("call write_chooses, read_resumes\nrecall")

    assert isinstance(finished, Finished)
    assert "write_chooses -> returned: write_chooses got M" in finished.text
    assert "read_resumes -> returned" in finished.text
    assert len([run for run in read_runs(log) if run["kind"] == "tool"]) == 4


async def test_an_answer_that_does_not_match_is_refused_and_not_used_up(tmp_path: Path, log: Path) -> None:
    async with scripted_session(tmp_path / "engine") as session:
        receipt = await session.send("call write_chooses\nrecall")
        (interrupt,) = await pending(session)
        assert interrupt.question.answer_schema == {"enum": ["S", "M"]}
        with pytest.raises(AnswerNotValidError, match=r"'XL' is not one of \['S', 'M'\]"):
            await session.answer_question(interrupt.interrupt_id, "XL")
        assert (await session.snapshot()).pending_interrupts == (interrupt,)
        await session.answer_question(interrupt.interrupt_id, "M", answered_by="ann")
        with pytest.raises(InterruptNotPendingError):
            await session.answer_question(interrupt.interrupt_id, "S")

        result = await session.wait_for_result(receipt.message_id, timeout=10)

        assert "write_chooses -> returned: write_chooses got M" in result.text
        assert [run["key"] for run in read_runs(log) if run["kind"] == "tool"] == ["s-1/turn-1/call-1"] * 2


async def test_edited_arguments_of_the_wrong_shape_do_not_use_up_the_approval(tmp_path: Path, log: Path) -> None:
    async with scripted_session(tmp_path / "engine") as session:
        receipt = await session.send("call write_b!\nrecall")
        (interrupt,) = await pending(session)
        with pytest.raises(AnswerNotValidError, match="JSON object, not list"):
            await session.approve(interrupt.interrupt_id, arguments=[1])
        with pytest.raises(AnswerNotValidError, match=r"\$.n: 'many' is not of type 'integer'"):
            await session.approve(interrupt.interrupt_id, arguments={"n": "many"})
        await session.approve(interrupt.interrupt_id, arguments={"n": 99})

        result = await session.wait_for_result(receipt.message_id, timeout=10)

        assert 'write_b -> returned: write_b did {"n": 99}' in result.text


async def test_each_question_of_a_tool_has_a_deadline_of_its_own(tmp_path: Path, log: Path) -> None:
    async with scripted_session(tmp_path / "engine") as session:
        receipt = await session.send("call write_orders\nrecall")
        count, colour = await pending(session, 2)
        assert (count.deadline, colour.deadline is None) == (None, False)

        async def late() -> bool:
            return [one.status for one in (await session.snapshot()).interrupts] == ["pending", "expired"]

        await wait_for(late, what="the colour's deadline")
        with pytest.raises(InterruptNotPendingError) as refused:
            await session.answer_question(colour.interrupt_id, "red")
        assert refused.value.reason == "expired"
        await session.answer_question(count.interrupt_id, 2)

        result = await session.wait_for_result(receipt.message_id, timeout=10)

        assert "write_orders -> failed: nobody answered 'Which colour?'" in result.text


async def test_a_tool_that_waits_holds_nothing_and_runs_again_with_its_key(tmp_path: Path, log: Path) -> None:
    async with scripted_session(tmp_path / "engine") as session:
        receipt = await session.send("call write_resumes\nrecall")
        await snapshot_when(session, "running_tools")

        result = await session.wait_for_result(receipt.message_id, timeout=10)

        assert "write_resumes -> returned" in result.text
        runs = [run for run in read_runs(log) if run["kind"] == "tool"]
        assert [(run["key"], run["attempt"]) for run in runs] == [("s-1/turn-1/call-1", 1)] * 2
