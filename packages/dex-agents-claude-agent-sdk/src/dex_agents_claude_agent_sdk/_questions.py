"""The CLI's tool `AskUserQuestion` as a question to people, and their answer as its result."""

from collections.abc import Mapping
from typing import Any, Final, cast

from pydantic import JsonValue

from dex_agents.errors import TurnFailedError
from dex_agents.tools import Answer, Question
from dex_agents_claude_agent_sdk._content import ApiBlock, error_block, result_block
from dex_agents_claude_agent_sdk._state import OpenCall

_UNANSWERED: Final = "The user did not answer the questions."
_LOST: Final = (
    "The turn ended early, and what became of the questions went with it: the user may have answered. Ask again if it "
    "still matters."
)


def to_question(call: OpenCall) -> Question:
    """Return the call as a question.

    `answer_schema` is an object with a text for each question of the model, or for one alone its text; `detail` holds
    what the model wrote, with the options that it offers.
    """
    asked = _asked(call)
    properties: dict[str, JsonValue] = {
        text: {"type": "string", "examples": [str(option["label"]) for option in one.get("options", [])]}
        for text, one in asked.items()
    }
    schema: JsonValue = {"type": "object", "properties": properties, "required": [*asked]}
    return Question(
        id=call.call_id,
        kind="answer",
        prompt="\n".join(_prompt(text, one) for text, one in asked.items()),
        # A session refuses what does not match.
        answer_schema=schema if len(asked) != 1 else {"anyOf": [{"type": "string"}, schema]},
        detail=call.arguments,
    )


def lost_answer(call_id: str) -> Answer:
    """Return what stands for an answer that people gave, and that a turn which ended early did not keep."""
    return Answer(question_id=call_id, is_error=True, message=_LOST)


def to_answer_block(call: OpenCall, answer: Answer | None) -> ApiBlock:
    """Return people's answer as the result of the call; None when the turn ended before they gave one.

    An answer is an object from question to text, or for a single question the text alone.

    Raises:
        TurnFailedError: The answer is something else.
    """
    if answer is None or answer.approved is False or answer.is_error:
        said = _UNANSWERED if answer is None else answer.message or _UNANSWERED
        return error_block(call.call_id, said)
    asked = _asked(call)
    value = answer.value
    if isinstance(value, str) and len(asked) == 1:
        value = {next(iter(asked)): value}
    if not isinstance(value, dict):
        raise TurnFailedError(
            f"the answer to {call.name} is {value!r}: give an object with a text for each of {', '.join(asked)}"
        )
    pairs = ", ".join(f'"{text}"="{said}"' for text, said in value.items())
    # The CLI's own words, which differ when somebody wrote an answer of their own.
    if all(_is_offered(asked.get(text, {}), str(said)) for text, said in value.items()):
        told = f"Your questions have been answered: {pairs}. You can now continue with these answers in mind."
    else:
        told = (
            f"The user answered: {pairs}. Read the answers carefully — they may request clarification, changes, or "
            "that you not proceed — and follow what they actually say."
        )
    return result_block(call.call_id, told)


def _is_offered(one: dict[str, Any], said: str) -> bool:
    labels = {str(option["label"]) for option in one.get("options", [])}
    return said in labels or (bool(one.get("multiSelect")) and set(said.split(", ")) <= labels)


def _asked(call: OpenCall) -> Mapping[str, dict[str, Any]]:
    arguments = cast("dict[str, Any]", call.arguments)
    return {str(one["question"]): one for one in arguments.get("questions", [])}


def _prompt(text: str, one: dict[str, Any]) -> str:
    labels = ", ".join(str(option["label"]) for option in one.get("options", []))
    return f"{text} ({labels})" if labels else text
