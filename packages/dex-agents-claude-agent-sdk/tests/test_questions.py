"""People's answers in the words in which the CLI tells them, without any CLI."""

import pytest
from claude_agent_sdk import ClaudeAgentOptions
from pydantic import JsonValue

from dex_agents.errors import TurnFailedError
from dex_agents.runner import CloseTurnRequest, StepContext
from dex_agents.testing import RecordedEvents
from dex_agents.tools import Answer
from dex_agents_claude_agent_sdk import ClaudeAgentRunner
from dex_agents_claude_agent_sdk._questions import to_answer_block, to_question
from dex_agents_claude_agent_sdk._state import OpenBatch, OpenCall, SessionState, read_state, write_state


def ask(*texts: str, several: bool = False) -> OpenCall:
    options = [{"label": "Red", "description": "r"}, {"label": "Blue", "description": "b"}]
    questions = [{"question": text, "header": "h", "multiSelect": several, "options": options} for text in texts]
    return OpenCall.model_validate(
        {"call_id": "q", "name": "AskUserQuestion", "kind": "question", "arguments": {"questions": questions}}
    )


@pytest.mark.parametrize(
    ("call", "value", "told"),
    [
        (ask("Colour?"), "Blue", 'Your questions have been answered: "Colour?"="Blue". You can now continue'),
        (ask("Colour?"), "Pink", 'The user answered: "Colour?"="Pink". Read the answers carefully'),
        (ask("Colour?", several=True), "Red, Blue", 'Your questions have been answered: "Colour?"="Red, Blue".'),
        (ask("A?", "B?"), {"A?": "Red", "B?": "Pink"}, 'The user answered: "A?"="Red", "B?"="Pink".'),
    ],
)
def test_an_answer_is_told_as_the_cli_tells_it(call: OpenCall, value: JsonValue, told: str) -> None:
    block = to_answer_block(call, Answer(question_id="q", value=value))

    assert block["content"].startswith(told)
    assert "is_error" not in block


def test_a_question_says_what_an_answer_must_look_like() -> None:
    question = to_question(ask("A?", "B?"))

    assert question.prompt == "A? (Red, Blue)\nB? (Red, Blue)"
    offered: JsonValue = {"type": "string", "examples": ["Red", "Blue"]}
    assert question.answer_schema == {
        "type": "object",
        "properties": {"A?": offered, "B?": offered},
        "required": ["A?", "B?"],
    }
    single = to_question(ask("A?")).answer_schema
    assert isinstance(single, dict)
    assert isinstance(single["anyOf"], list)
    assert single["anyOf"][0] == {"type": "string"}


def test_no_answer_is_told_as_an_error_and_a_wrong_one_is_refused() -> None:
    assert to_answer_block(ask("A?"), None)["is_error"]
    with pytest.raises(TurnFailedError, match="give an object with a text for each of A\\?, B\\?"):
        to_answer_block(ask("A?", "B?"), Answer(question_id="q", value="Red"))


@pytest.mark.parametrize(
    ("is_open", "answers", "told"),
    [
        (True, (), "did not answer"),
        (False, (), "the user may have answered"),
        (False, (Answer(question_id="q", value="Blue"),), 'Your questions have been answered: "A?"="Blue"'),
        (False, (Answer(question_id="q", approved=False, is_error=True, message="too late"),), "too late"),
    ],
)
async def test_a_turn_that_ends_early_says_truly_whether_people_had_answered(
    is_open: bool, answers: tuple[Answer, ...], told: str
) -> None:
    call = ask("A?")
    batch = OpenBatch(resume_at="row", calls=(call,))
    state = write_state(SessionState(session_id="s", cli_version="2", chunks={}, batch=batch))
    step = StepContext(session_id="s", turn_id="t", step_number=2, attempt=1, settings={}, events=RecordedEvents())
    request = CloseTurnRequest(
        step=step,
        state=state,
        turn_start=None,
        calls=(),
        questions=(to_question(call),) if is_open else (),
        answers=answers,
    )
    closed = await ClaudeAgentRunner(ClaudeAgentOptions()).close_turn(request)

    kept = read_state(closed.state)
    assert closed.answers_kept
    assert kept is not None
    assert told in str(kept.answers)
